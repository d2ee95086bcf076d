"""What a run was made on, with nothing that tells whose machine it is. Standard library only."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

from machine import nvidia_smi
from machine.pythons import clean_environment
from paths import ROOT


def machine() -> dict:
    """The kind of machine."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", platform.system()),
        "kernel": platform.release(),
        "gpus": gpus(),
    }


def load() -> float:
    """How many processes wanted a core, over the last minute."""
    return round(os.getloadavg()[0], 2)


def commit() -> str:
    """The commit that is checked out, with a plus where files other than pages differ from it."""
    revision = _output("git", "-C", str(ROOT), "rev-parse", "HEAD").strip()
    code = (":/", ":!docs/", ":!*.md")
    changed = _output("git", "-C", str(ROOT), "status", "--porcelain", "--", *code).strip()
    return f"{revision or 'unknown'}{'+' if changed else ''}"


def gpus() -> list[str]:
    """The NVIDIA GPUs there are, each with its driver's version."""
    try:
        return [f"{gpu.name}, {gpu.driver}" for gpu in nvidia_smi.gpus()]
    except nvidia_smi.NoAnswer:
        return []


def gpu_reading(when: str) -> dict:
    """What the GPUs do just now, and how many processes of others compute on them.

    It is to be taken while none of the run's own processes does.
    """
    return {
        "when": when,
        "gpus": nvidia_smi.readings(),
        "others": len(nvidia_smi.processes()),
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _output(*command: str) -> str:
    try:
        done = subprocess.run(
            command, env=clean_environment(), capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""
