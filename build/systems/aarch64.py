"""Runs the report's program and the key tests on aarch64, which qemu emulates.

The system consists of Debian's packages, which are unpacked without running their install scripts.
The kernel passes its programs to qemu only inside the command's own user namespace (Linux 6.7), so
that nothing changes on this machine.
"""

from __future__ import annotations

import json
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from arguments import JAXLIB
from paths import KEY_TEST_REQUIREMENTS
from refusal import Refusal, refusing_os_errors
from systems import chroot, key_tests, results, wheels
from systems.matrix import Row
from systems.output import told

_SUITE = "trixie"
_MACHINE = "aarch64"
_EMULATOR = "qemu-aarch64-static"
# A 64-bit little-endian ELF program for machine 183, with any OS ABI.
_MAGIC = (
    r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00",
    r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff",
)
_REGISTER = "/proc/sys/fs/binfmt_misc/register"
_ENTER = f"""
set -e
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
printf %s "$1" > {_REGISTER}
root=$2
shift 2
for each in dev proc sys; do mount --rbind "/$each" "$root/$each"; done
exec chroot "$root" env --ignore-environment --chdir={chroot.CLONE} "$@"
"""
# All platforms that wheels for this machine name, up to the C library of the system above.
_PLATFORMS = ("manylinux2014", "manylinux_2_17", "manylinux_2_27", "manylinux_2_28")
_SITE = Path("usr/lib/python3/dist-packages")
_SETTINGS = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "TIMEOUT_S": "6000",
    "JAX_PLATFORMS": "cpu",
}


def tried(folder: Path) -> Iterator[Row]:
    """Yields two rows: the report's program, and the key tests.

    Raises:
      Refusal: this machine is aarch64 itself, or lacks the emulator.
    """
    if platform.machine() == _MACHINE:
        raise Refusal("this machine is aarch64 itself; run build.py demo and build.py test")
    chroot.require("debootstrap", "dpkg-deb", _EMULATOR, "unshare")
    root = _system(folder / _MACHINE)
    version = run(root, ["python3", "--version"]).split()[-1]
    wheel = wheels.made(version, _MACHINE)
    _install(root, version, wheel)
    chroot.copy_files(root)
    # jax.distributed looks up both names. An install script would have written the file.
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost {platform.node()}\n")
    row = Row("Debian 13", f"{_MACHINE}, emulated", version, JAXLIB, wheels.origin(wheel), "", "")

    said = run(root, ["python3", "tests/reproduction.py", "--json"], fails=True)
    yield row._replace(check="the report's program", result=_of_reproduction(said))

    said = run(root, ["python3", *key_tests.PYTEST, *key_tests.FILES], fails=True)
    yield row._replace(check=key_tests.CHECK, result=results.of_pytest(said))


def run(root: Path, command: Sequence[str], *, fails: bool = False) -> str:
    """Runs a command of the emulated system, shows its output, and returns it.

    Args:
      fails: whether the command may fail.

    Raises:
      Refusal: it failed, and may not.
    """
    magic, mask = _MAGIC
    # F: the kernel opens the emulator now, outside of the system, which has none.
    rule = f":{_MACHINE}:M::{magic}:{mask}:{shutil.which(_EMULATOR)}:F"
    settings = [f"{name}={value}" for name, value in _SETTINGS.items()]
    outside = ["unshare", "--map-root-user", "--mount", "--propagation", "private"]
    enter = ["sh", "-c", _ENTER, "sh", rule, str(root)]
    return told([*outside, *enter, *settings, *command], fails=fails)


def _system(root: Path) -> Path:
    """Unpacks the system, unless it is there."""
    made = root / "made-by-unpacking"
    if made.is_file():
        return root
    with refusing_os_errors(f"make {root}"):
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
    options = ["--variant=minbase", "--foreign", "--arch=arm64", "--include=python3"]
    told(["debootstrap", *options, _SUITE, str(root), chroot.mirror(), "sid"])
    for package in sorted((root / "var/cache/apt/archives").glob("*.deb")):
        told(["dpkg-deb", "--extract", str(package), str(root)])
        package.unlink()
    (root / chroot.CLONE.relative_to("/")).mkdir(parents=True)
    made.touch()
    return root


def _install(root: Path, version: str, wheel: Path) -> None:
    """Unpacks our wheel and what the key tests need into the system's folder of Python packages."""
    target = root / _SITE
    shutil.rmtree(target, ignore_errors=True)
    tag = "cp" + "".join(version.split(".")[:2])
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target)]
    command += ["--only-binary=:all:", "--implementation=cp", f"--python-version={version}"]
    command += [f"--abi={abi}" for abi in (tag, "abi3", "none")]
    command += [f"--platform={name}_{_MACHINE}" for name in _PLATFORMS]
    needed = [f"jax=={JAXLIB}", str(wheel), "--requirement", str(KEY_TEST_REQUIREMENTS)]
    told([*command, *needed])


def _of_reproduction(said: str) -> str:
    for line in said.splitlines():
        if line.startswith("{"):
            report = json.loads(line)
            wrong = [row["case"] for row in report["rows"] if not row["ok"]]
            if report["fixed"] and report["rows"] and not wrong:
                return "every row reaches its goal"
            return f"FAILED: {', '.join(wrong) or 'the rule is not on'}"
    return results.of_pytest(said)
