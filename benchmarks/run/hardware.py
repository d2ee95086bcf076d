"""The machine and the commit of a run, with nothing that identifies the machine's owner.

Standard library only.
"""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

from machine import nvidia_smi
from machine.pythons import clean_environment
from paths import ROOT


def machine() -> dict:
    """The machine's processor, memory, system and GPUs."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", platform.system()),
        "kernel": platform.release(),
        "gpus": gpus(),
    }


def load() -> float:
    """The load average of the last minute."""
    return round(os.getloadavg()[0], 2)


def commit() -> str:
    """The commit that is checked out. A plus follows if any file but a page differs from it."""
    revision = _output("git", "-C", str(ROOT), "rev-parse", "HEAD").strip()
    code = (":/", ":!docs/", ":!*.md")
    changed = _output("git", "-C", str(ROOT), "status", "--porcelain", "--", *code).strip()
    return f"{revision or 'unknown'}{'+' if changed else ''}"


def gpus() -> list[str]:
    """This machine's NVIDIA GPUs, each with the version of its driver."""
    try:
        return [f"{gpu.name}, {gpu.driver}" for gpu in nvidia_smi.gpus()]
    except nvidia_smi.NoAnswer:
        return []


def gpu_reading(when: str) -> dict:
    """What the GPUs do just now, and how many processes compute on them.

    Call it while none of the run's own processes does.
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
