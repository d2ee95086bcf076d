"""Stand-ins for GPUs: an nvidia-smi, and wheels of a CUDA plugin."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import interpreters
import synthetic_wheels

_FOLDER = interpreters.TESTS / "stand_ins"
_PLUGIN = "jax_plugins/xla_cuda_stand_in/__init__.py"


def as_json(gpus: Sequence[dict[str, str]]) -> str:
    """The value for STAND_IN_GPUS."""
    return json.dumps(gpus)


def nvidia_smi(folder: Path, gpus: Sequence[dict[str, str]]) -> dict[str, str]:
    """Puts an nvidia-smi into a folder. Returns the settings of a process that finds it."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "nvidia-smi"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {_FOLDER / "nvidia_smi.py"} "$@"\n')
    program.chmod(0o755)
    return {"STAND_IN_GPUS": as_json(gpus)}


def cuda_plugin(folder: Path, version: str, cuda: int = 12) -> list[Path]:
    """Writes wheels with the names that `jax[cuda12]` of a version requires. One has the plugin."""
    plugin, pjrt = f"jax-cuda{cuda}-plugin", f"jax-cuda{cuda}-pjrt"
    needs = [f"Requires-Dist: {pjrt}=={version}", "Provides-Extra: with-cuda"]
    code = {_PLUGIN: (_FOLDER / _PLUGIN).read_bytes()}
    return [_wheel(folder, plugin, version, needs, {}), _wheel(folder, pjrt, version, [], code)]


def cudnn(folder: Path, version: str = "9.10.2.21") -> Path:
    """Writes an empty wheel of the cuDNN version that old GPUs need."""
    return _wheel(folder, "nvidia-cudnn-cu12", version, [], {})


def _wheel(folder: Path, name: str, version: str, more: list[str], files: dict[str, bytes]) -> Path:
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    contents = files | {
        f"{info}/METADATA": "\n".join(
            ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *more, ""]
        ).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [
        f"{path},{synthetic_wheels.hash_of(data)},{len(data)}" for path, data in contents.items()
    ]
    contents[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for entry, data in contents.items():
            wheel.writestr(entry, data)
    return path
