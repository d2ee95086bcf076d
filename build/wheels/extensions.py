"""Builds our two extensions for one Python, and runs the C++ tests, with Bazel."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from machine import bazel
from machine.environments import locked
from machine.pythons import Interpreter
from machine.targets import Target
from paths import EXTENSIONS, LOGS, PORTABLE_REQUIREMENTS, ROOT, TOOL_REQUIREMENTS
from refusal import Refusal, refusing_os_errors
from wheels import portable
from wheels.seam import JAX, PJIT, Extensions

_BENCHMARK = "jaxlib/physical_out_shardings_benchmark.so"


def compile_extensions(python: Interpreter) -> Extensions:
    """Builds the extensions, and copies them to a folder of this Python's own.

    Raises:
      Refusal: the build failed; the message names the log with the compiler's output.
    """
    return Extensions(*_compiled(_native(python), python.label, (JAX, PJIT)))


def compile_portable(target: Target, headers: Path) -> Extensions:
    """Builds the extensions to run on any Linux, for a Python that need not be installed here.

    Builds nothing if they were built from the same sources before.

    Raises:
      Refusal: the build failed.
    """
    folder = EXTENSIONS / f"{target.label}-portable"
    extensions = Extensions(*(folder / Path(file).name for file in (JAX, PJIT)))
    stamp = folder / "built-from.sha256"
    with refusing_os_errors(f"write to {folder}"):
        digest = _digest_of_sources(target, headers)
        is_built = all(file.is_file() for file in (*extensions, stamp))
        if not is_built or stamp.read_text() != digest:
            stamp.unlink(missing_ok=True)
            _compiled(_portable(target, headers), folder.name, (JAX, PJIT))
            stamp.write_text(digest)
    return extensions


def _native(python: Interpreter) -> list[str]:
    return [f"--repo_env=PJIT_PYTHON={python.base}"]


def _portable(target: Target, headers: Path) -> list[str]:
    return [
        f"--repo_env=CC={portable.compiler(target.machine)}",
        f"--repo_env=PJIT_HEADERS={headers}",
        f"--repo_env=PJIT_FREE_THREADED={int(target.free_threaded)}",
        f"--sandbox_writable_path={portable.CACHE}",
    ]


def _digest_of_sources(target: Target, headers: Path) -> str:
    """A hash of all that the extensions are built from."""
    tracked = [*(ROOT / "jaxlib").rglob("*"), *(ROOT / "build" / "bazel").glob("*")]
    sources = [path for path in tracked if path.is_file() and path.suffix not in (".py", ".pyc")]
    code = [Path(__file__), Path(portable.__file__), PORTABLE_REQUIREMENTS, TOOL_REQUIREMENTS]
    digest = hashlib.sha256(target.label.encode())
    for path in sorted([*sources, *code, headers / "patchlevel.h", ROOT / ".bazelrc"]):
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def compile_benchmark(python: Interpreter) -> Path:
    """Builds the benchmark of the rule alone, which needs Google Benchmark.

    Raises:
      Refusal: the build failed.
    """
    (benchmark,) = _compiled(_native(python), python.label, (_BENCHMARK,))
    return benchmark


def compile_from_nothing(python: Interpreter, outputs: Path) -> None:
    """Builds the extensions in an empty output folder, with a Bazel server of its own.

    Raises:
      Refusal: the build failed.
    """
    log = LOGS / "bazel-from-nothing.log"
    startup = [f"--output_base={outputs}"]
    try:
        with log.open("wb") as output:
            status = _bazel("build", _native(python), _targets((JAX, PJIT)), output, startup)
        if status != 0:
            raise Refusal(f"bazel build failed: {first_error(log)} (all of it in {log})")
    finally:
        # Also ends this Bazel server. Only Bazel can delete the read-only files that it made.
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(["bazel", *startup, "clean", "--expunge"], cwd=ROOT, check=False, **quiet)


def _compiled(flags: Sequence[str], name: str, files: Sequence[str]) -> list[Path]:
    """Builds files, and copies them to a folder of that name."""
    log = LOGS / "bazel-build.log"
    # Bazel has one output folder for all Pythons.
    with refusing_os_errors(f"write to {EXTENSIONS} or {LOGS}"), locked(EXTENSIONS):
        LOGS.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            status = _bazel("build", flags, _targets(files), output)
        if status != 0:
            raise Refusal(f"bazel build failed: {first_error(log)} (all of it in {log})")
        folder = EXTENSIONS / name
        folder.mkdir(parents=True, exist_ok=True)
        built = [ROOT / "bazel-bin" / file for file in files]
        return [_copied(file, folder / file.name) for file in built]


def _targets(files: Sequence[str]) -> list[str]:
    return [f"//jaxlib:{Path(file).name}" for file in files]


def test_extensions(python: Interpreter) -> bool:
    """Runs the C++ tests with their output on the terminal. Returns whether all passed."""
    return _bazel("test", _native(python), ["//..."], None) == 0


def _bazel(
    command: str,
    flags: Sequence[str],
    targets: Sequence[str],
    output: BinaryIO | None,
    startup: Sequence[str] = (),
) -> int:
    bazel.write_settings()
    nanobind = importlib.util.find_spec("nanobind")
    flags = [*flags, f"--repo_env=PJIT_NANOBIND={Path(nanobind.origin).parent}"]
    if startup:
        # The links in the repository still lead to the usual outputs.
        flags.append("--symlink_prefix=/")
    return subprocess.run(
        ["bazel", *startup, command, *flags, *targets],
        cwd=ROOT,
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        check=False,
    ).returncode


def _copied(file: Path, target: Path) -> Path:
    # Bazel's outputs are read-only. A new file leaves the old one to processes that have it loaded.
    part = target.with_suffix(".part")
    shutil.copyfile(file, part)
    part.chmod(0o755)
    return part.replace(target)


def first_error(log: Path) -> str:
    """The line of a build's log to show the user: the compiler's error, or else Bazel's."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    of_compiler = [line for line in lines if ": error:" in line or ": fatal error:" in line]
    of_bazel = [line for line in lines if line.startswith("ERROR:")]
    return (of_compiler or of_bazel or lines or ["it said nothing"])[0]
