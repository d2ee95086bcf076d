"""What a run was made on, with nothing that tells whose machine it is. Standard library only."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

from machine.pythons import Interpreter, clean_environment
from paths import ROOT
from refusal import Refusal

_PLUGINS = "from importlib.metadata import distributions as d; print(*[x.name for x in d()])"


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
    query = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    return _output(*query).splitlines()


def check_gpus() -> None:
    """Refuses a machine that has none.

    Raises:
      Refusal: it has none.
    """
    if not gpus():
        raise Refusal("--platform gpu: nvidia-smi finds no GPU here; use --platform cpu")


def cuda_of(python: Interpreter) -> str:
    """The name of jax's extra for the CUDA plugin that a Python has installed.

    Where it has none, that for CUDA 12, which every GPU that jax supports can use.
    """
    done = _output(str(python.path), "-c", _PLUGINS).split()
    return "cuda13" if "jax-cuda13-plugin" in done else "cuda12"


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
