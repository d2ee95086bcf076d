"""Makes a folder for PYTHONPATH that adds our extensions to an installed jaxlib.

The folder has links to all files of the installed package, and copies of ours.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import tempfile
from pathlib import Path

from packaging.tags import parse_tag
from packaging.version import Version

from machine.pythons import Interpreter
from paths import ROOT
from refusal import Refusal, refusing_os_errors
from wheels.extension_checks import check_extensions
from wheels.seam import (
    ENTRY_POINTS,
    JAX,
    LIBRARY,
    LOCAL_LABEL,
    MODULES,
    PJIT,
    Extensions,
    check_library,
    no_library,
)


def check(site_packages: Path, out: Path, python: Interpreter) -> None:
    """Checks that an overlay can be made for the installed jaxlib, and that `out` is free.

    Raises:
      Refusal: it cannot be made, or `out` is not free.
    """
    package = site_packages / "jaxlib"
    if not package.is_dir():
        raise Refusal(f"{site_packages}: has no jaxlib; give the site-packages it is installed in")
    found = list(importlib.metadata.distributions(name="jaxlib", path=[str(site_packages)]))
    if not found:
        raise Refusal(f"{site_packages}: has no jaxlib metadata; install jaxlib from a wheel there")
    local = Version(found[0].version).local or ""
    if (site_packages / PJIT).exists() or LOCAL_LABEL in local.split("."):
        raise Refusal(f"{package}: has our extensions already; it needs no overlay")
    if not (site_packages / LIBRARY).is_file() or not (site_packages / JAX).is_file():
        raise no_library(str(package))
    _check_python(found[0], package, python)
    path = site_packages / LIBRARY
    with refusing_os_errors(f"read {path}"), path.open("rb") as library:
        check_library(library, str(path))
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise Refusal(f"{out}: exists and is not an empty folder; give --out another, or delete it")


def _check_python(
    distribution: importlib.metadata.Distribution, package: Path, python: Interpreter
) -> None:
    lines = (distribution.read_text("WHEEL") or "").splitlines()
    tags = [line.removeprefix("Tag:").strip() for line in lines if line.startswith("Tag:")]
    pythons = {f"{tag.interpreter}-{tag.abi}" for each in tags for tag in parse_tag(each)}
    if pythons != {python.target.tag}:
        raise Refusal(
            f"{package}: is for {' and '.join(sorted(pythons)) or 'no Python it names'}, but "
            f"{python.path} is {python.target.tag}; give --python the Python that it is for"
        )


def overlay(site_packages: Path, extensions: Extensions, python: Interpreter, out: Path) -> None:
    """Makes the folder, whole or not at all. `check` comes first.

    Raises:
      Refusal: it cannot be written, or an extension was built wrong.
    """
    check_extensions(extensions, python.machine)
    with refusing_os_errors(f"write {out}"):
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
            whole = Path(folder) / "overlay"
            _fill(whole / "jaxlib", (site_packages / "jaxlib").resolve(), extensions)
            _fill_metadata(whole / "jaxlib_overlay-1.dist-info")
            whole.rename(out)


def _fill(package: Path, installed: Path, extensions: Extensions) -> None:
    ours = {Path(JAX).name: extensions.jax, Path(PJIT).name: extensions.pjit}
    ours |= {Path(name).name: ROOT / file for name, file in MODULES.items()}
    package.mkdir(parents=True)
    for entry in installed.iterdir():
        if entry.name not in ours and entry.name != "__pycache__":
            (package / entry.name).symlink_to(entry)
    for name, file in ours.items():
        shutil.copy(file, package / name)


def _fill_metadata(folder: Path) -> None:
    """Lets pytest find the plugin. The name is not jaxlib's, whose metadata must stay visible."""
    folder.mkdir()
    metadata = "Metadata-Version: 2.1\nName: jaxlib-overlay\nVersion: 1\n"
    (folder / "METADATA").write_text(metadata)
    (folder / "entry_points.txt").write_text(ENTRY_POINTS)
