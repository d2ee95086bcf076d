"""Small wheels like jaxlib's, sound or broken in one way, and extensions to put into them."""

from __future__ import annotations

import base64
import hashlib
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from wheels.seam import JAX, LIBRARY, Extensions

PYTHON = f"cp{sys.version_info[0]}{sys.version_info[1]}{getattr(sys, 'abiflags', '')}"
TAG = f"{PYTHON.rstrip('t')}-{PYTHON}"
MACHINE = platform.machine()
STAMP = (2026, 1, 2, 3, 4, 6)
VERSION_PY = b'__version__ = "9.9.9"\n'

_SEAM = "void *Wrapped_PyInit__jax(void) { return 0; }"
_NO_SEAM = "void *Wrapped_PyInit__xla(void) { return 0; }"
_STUB = "void *Wrapped_PyInit__jax(void); void *PyInit__jax(void) { return Wrapped_PyInit__jax(); }"
_PJIT = "int getpid(void); void *PyInit__pjit(void) { return getpid() ? 0 : (void *)1; }"
# This symbol has a new version since glibc 2.34.
_PJIT_NEW = """
int pthread_create(void *, void *, void *, void *);
void *PyInit__pjit(void) { return pthread_create(0, 0, 0, 0) ? 0 : (void *)1; }
"""


def shared_library(path: Path, source: str, *more: str) -> Path:
    """Compiles a library. Its calls may be unresolved. Without a compiler, the test is skipped."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to make small libraries with")
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path), "-x", "none", *more]
    subprocess.run(command, input=source, text=True, check=True)
    return path


def stub(path: Path, source: str = _STUB, *, run_path: str = "$ORIGIN") -> Path:
    """A `_jax.so` that is linked to a libjax_common.so, like ours."""
    with tempfile.TemporaryDirectory() as folder:
        soname = f"-Wl,-soname,{Path(LIBRARY).name}"
        common = shared_library(Path(folder) / Path(LIBRARY).name, _SEAM, soname)
        return shared_library(path, source, str(common), f"-Wl,-rpath,{run_path}")


def libraries(folder: Path) -> dict[str, bytes]:
    """Contents for libjax_common.so: one defines the symbol, one lacks it, one only calls it."""
    sources = {"seam": _SEAM, "no seam": _NO_SEAM, "undefined": _STUB}
    return {
        name: shared_library(folder / f"{name}.so", source).read_bytes()
        for name, source in sources.items()
    }


def extensions(folder: Path, *, new: bool = False) -> Extensions:
    """Stand-ins for our extensions, for an old glibc or for 2.34 and up."""
    return Extensions(
        stub(folder / "_jax.so"),
        shared_library(folder / "_pjit.so", _PJIT_NEW if new else _PJIT),
    )


def hash_of(content: bytes) -> str:
    """The hash in the form of RECORD."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
    return f"sha256={digest.rstrip(b'=').decode()}"


def write_wheel(
    folder: Path,
    library: bytes | None,
    *,
    name: str = "jaxlib",
    version: str = "9.9.9",
    tag: str = TAG,
    platforms: str = f"manylinux_2_27_{MACHINE}",
    said_version: str | None = None,
    said_platforms: str | None = None,
    said_hash: tuple[str, str] | None = None,
    listed: tuple[str, ...] = (),
    unlisted: tuple[str, ...] = (),
    added: tuple[str, ...] = (),
) -> Path:
    """Writes a wheel. Each option after the first four makes it contradict itself."""
    info = f"{name}-{version}.dist-info"
    tags = (said_platforms or platforms).split(".")
    contents = {
        f"{name}/__init__.py": b"",
        JAX: b"the stock stub",
        LIBRARY: library,
        f"{name}/version.py": VERSION_PY,
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {said_version or version}\n\n"
            "Version: in the text\n"
        ).encode(),
        f"{info}/WHEEL": (
            "Wheel-Version: 1.0\nRoot-Is-Purelib: false\n"
            + "".join(f"Tag: {tag}-{each}\n" for each in tags)
        ).encode(),
        **dict.fromkeys((*added, *unlisted), b"more"),
    }
    contents = {path: content for path, content in contents.items() if content is not None}
    rows = {path: f"{hash_of(content)},{len(content)}" for path, content in contents.items()}
    rows |= dict.fromkeys(listed, f"{hash_of(b'')},0")
    rows |= {f"{info}/RECORD": ","}
    if said_hash:
        rows[said_hash[0]] = said_hash[1]
    record = "".join(f"{path},{row}\n" for path, row in rows.items() if path not in unlisted)
    path = folder / f"{name}-{version}-{tag}-{platforms}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for entry, content in {**contents, f"{info}/RECORD": record.encode()}.items():
            stored = zipfile.ZipInfo(entry, STAMP)
            stored.external_attr = (0o100755 if entry.endswith(".so") else 0o100644) << 16
            stored.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(stored, content)
    return path
