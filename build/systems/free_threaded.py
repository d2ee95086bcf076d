"""Runs the demo, a hammer and the key tests on free-threaded CPython.

Debian has no package of it. It is built from the sources in Debian's source package of the same
CPython, as upstream released them, without Debian's patches.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from arguments import JAXLIB
from paths import KEY_TEST_REQUIREMENTS, ROOT
from systems import chroot, key_tests, results
from systems.matrix import Row

_SUITE, _PACKAGE, _ABI = "trixie", "python3.13", "cp313t"
_LIBRARIES = ("libbz2-dev", "libffi-dev", "liblzma-dev", "libsqlite3-dev", "libssl-dev")
_PACKAGES = ("build-essential", "dpkg-dev", "git", "python3", "xz-utils", "zlib1g-dev")
_PREFIX = Path("/opt/python3.13t")
_SOURCE = Path("/usr/src/python")
_BUILD = f"""
set -e
sed 's/^deb /deb-src /' /etc/apt/sources.list > /etc/apt/sources.list.d/source.list
apt-get update -q
apt-get source -q --tar-only {_PACKAGE}
tar --extract --strip-components=1 --file {_PACKAGE}_*.orig.tar.xz
./configure --quiet --disable-gil --prefix={_PREFIX}
make --silent --jobs="$(nproc)"
make --silent install
"""
_SECONDS = 60
# pip would compile the newest numpy, which may have no wheel. A loaded machine is very slow.
_SETTINGS = {"PIP_ONLY_BINARY": ":all:", "TIMEOUT_S": "3000", "JAXLIB_PJIT_STRICT": "1"}


def tried(folder: Path) -> Iterator[Row]:
    """Yields three rows: demo, hammer, key tests."""
    root = chroot.made(folder / "free-threaded", _SUITE, *_PACKAGES, *_LIBRARIES)
    python = _PREFIX / "bin" / "python3.13t"
    if not (root / python.relative_to("/")).exists():
        (root / _SOURCE.relative_to("/")).mkdir(parents=True, exist_ok=True)
        chroot.run(root, ["sh", "-c", _BUILD], cwd=_SOURCE)
    chroot.copy_repository(root)

    def run(*command: str | Path, fails: bool = True) -> str:
        return chroot.run(root, command, cwd=chroot.CLONE, settings=_SETTINGS, fails=fails)

    version = run(python, "--version").split()[-1]
    row = Row("Debian 13", "x86_64", f"{version}, no GIL", JAXLIB, "built there", "", "")
    said = run("python3", "build/build.py", "demo", "--python", python)
    yield row._replace(check="demo", result=results.of_demo(said))

    inside = _environment(root, python)
    command = ["tests/stress.py", "hammer", "--seconds", str(_SECONDS), "--json"]
    yield row._replace(check="hammer", result=_of_hammer(run(inside, *command)))

    said = run(inside, *key_tests.PYTEST, *key_tests.FILES)
    yield row._replace(check=key_tests.CHECK, result=results.of_pytest(said))


def _environment(root: Path, python: Path) -> Path:
    """The Python of an environment with the demo's wheel and what the tests need."""
    wheel = Path(".build/ours") / f"jaxlib-{JAXLIB}+*-{_ABI}-*.whl"
    (wheel,) = (root / chroot.CLONE.relative_to("/")).glob(str(wheel))
    folder = Path("/opt/environment")
    chroot.run(root, [python, "-m", "venv", "--clear", folder])
    requirements = KEY_TEST_REQUIREMENTS.relative_to(ROOT)
    needed = [f"jax=={JAXLIB}", f".build/ours/{wheel.name}", "--requirement", requirements]
    pip = [folder / "bin/python", "-m", "pip", "install", "--quiet"]
    chroot.run(root, [*pip, *needed], cwd=chroot.CLONE, settings=_SETTINGS)
    return folder / "bin" / "python"


def _of_hammer(said: str) -> str:
    for line in reversed(said.splitlines()):
        if line.startswith("{"):
            facts = json.loads(line)
            words = f"{facts['threads']} threads, {facts['calls']} calls, GIL {facts['GIL']}"
            return f"{'passed' if facts['ok'] else 'FAILED'}: {words}"
    return results.of_pytest(said)
