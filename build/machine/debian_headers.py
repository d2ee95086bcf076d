"""Gets the headers of a Python that is not installed here from Debian's packages.

apt-get downloads a package of any suite and architecture, which is unpacked under `.build/`.
Nothing is installed, and root is not needed.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from machine.environments import locked
from machine.targets import Target
from paths import HEADERS
from refusal import Refusal, refusing_os_errors

_SUITES = {(3, 11): "bookworm", (3, 13): "trixie", (3, 14): "forky", (3, 15): "forky"}
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def debian_headers(target: Target) -> Path:
    """Returns the folder with a Python's headers, which are downloaded once.

    Raises:
      Refusal: Debian has no such Python, or it cannot be downloaded here.
    """
    name = "python{}.{}".format(*target.version)
    suite = _SUITES.get(target.version)
    if suite is None:
        raise Refusal(f"no headers for {target.label}: install {name} with its headers")
    folder = HEADERS / f"{name}-{target.machine}"
    with refusing_os_errors(f"write to {HEADERS}"), locked(folder):
        if not (folder / "Python.h").is_file():
            with tempfile.TemporaryDirectory(dir=HEADERS) as temporary:
                architecture = _ARCHITECTURES[target.machine]
                root = _unpacked(Path(temporary), suite, architecture, f"lib{name}-dev")
                _gather(root / "usr" / "include" / name, target.machine, folder)
    return folder


def in_one_folder(include: Path, machine: str) -> Path:
    """An installed Python's headers in one folder, as a compiler for another system needs them.

    Debian has them in two folders, so they are copied. Others have one, which is returned.

    Raises:
      Refusal: they cannot be copied.
    """
    if not _of_machine(include, machine).is_file():
        return include
    folder = HEADERS / f"{include.name}-{machine}-installed"
    with refusing_os_errors(f"write to {HEADERS}"), locked(folder):
        version = "patchlevel.h"
        copy = folder / version
        if not copy.is_file() or copy.read_bytes() != (include / version).read_bytes():
            _gather(include, machine, folder)
    return folder


def _of_machine(include: Path, machine: str) -> Path:
    """Where Debian keeps what depends on the machine. Its pyconfig.h includes this file."""
    return include.parent / f"{machine}-linux-gnu" / include.name / "pyconfig.h"


def _gather(include: Path, machine: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        whole = Path(temporary) / "whole"
        shutil.copytree(include, whole)
        shutil.copy(_of_machine(include, machine), whole)
        shutil.rmtree(folder, ignore_errors=True)
        whole.rename(folder)


def _unpacked(folder: Path, suite: str, architecture: str, package: str) -> Path:
    signed = f"[signed-by={_KEYS}] " if _KEYS.is_file() else ""
    sources = folder / "sources.list"
    sources.write_text(f"deb {signed}{_mirror()} {suite} main\n")
    (folder / "lists" / "partial").mkdir(parents=True)
    (folder / "cache" / "archives" / "partial").mkdir(parents=True)
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": "/dev/null",
    }
    options = [f"--option={name}={value}" for name, value in settings.items()]
    what = f"download {package} for {architecture} from {suite}"
    _run(["apt-get", *options, "update"], folder, what)
    _run(["apt-get", *options, "download", package], folder, what)
    (file,) = folder.glob("*.deb")
    root = folder / "root"
    _run(["dpkg-deb", "--extract", str(file), str(root)], folder, f"unpack {package}")
    return root


def _mirror() -> str:
    """The mirror of Debian that apt uses on this machine."""
    query = ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"]
    sites = _run(query, Path.cwd(), "ask apt-get for its mirrors").split()
    for site in sites:
        if site.rstrip("/").endswith("/debian"):
            return site
    raise Refusal("apt-get has no mirror of Debian here; install that Python with its headers")


def _run(command: list[str], folder: Path, what: str) -> str:
    try:
        return subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=True
        ).stdout
    except FileNotFoundError as error:
        raise Refusal(
            f"cannot {what}: {command[0]} is missing; this needs a Debian system"
        ) from error
    except subprocess.CalledProcessError as error:
        last = ([line for line in error.stderr.splitlines() if line.strip()] or ["it failed"])[-1]
        raise Refusal(f"cannot {what}: {last}") from error
