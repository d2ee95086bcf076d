"""Builds our two extensions, and runs the C++ tests, with Bazel for one Python."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from machine import bazel
from machine.environments import locked
from machine.pythons import Interpreter
from paths import EXTENSIONS, LOGS, ROOT
from refusal import Refusal, refusing_os_errors
from wheels.seam import JAX, PJIT, Extensions

_BENCHMARK = "jaxlib/physical_out_shardings_benchmark.so"


def compile_extensions(python: Interpreter) -> Extensions:
    """Builds the extensions, and copies them to where the next Python's do not overwrite them.

    Raises:
      Refusal: the build failed; what the compiler said is in the log that it names.
    """
    return Extensions(*_compiled(python, (JAX, PJIT)))


def compile_benchmark(python: Interpreter) -> Path:
    """Builds the benchmark of the rule alone, which wants Google Benchmark.

    Raises:
      Refusal: the build failed.
    """
    (benchmark,) = _compiled(python, (_BENCHMARK,))
    return benchmark


def compile_from_nothing(python: Interpreter, outputs: Path) -> None:
    """Builds the extensions in an empty folder of outputs, by a Bazel of its own, and drops them.

    Raises:
      Refusal: the build failed.
    """
    log = LOGS / "bazel-from-nothing.log"
    startup = [f"--output_base={outputs}"]
    try:
        with log.open("wb") as output:
            status = _bazel("build", python, _targets((JAX, PJIT)), output, startup)
        if status != 0:
            raise Refusal(f"bazel build failed: {first_error(log)} (all of it in {log})")
    finally:
        # Ends this Bazel too, and it can delete what it made read-only.
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(["bazel", *startup, "clean", "--expunge"], cwd=ROOT, check=False, **quiet)


def _compiled(python: Interpreter, files: Sequence[str]) -> list[Path]:
    log = LOGS / "bazel-build.log"
    # Bazel has one folder of outputs, whichever Python they are for.
    with refusing_os_errors(f"write to {EXTENSIONS} or {LOGS}"), locked(EXTENSIONS):
        LOGS.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            status = _bazel("build", python, _targets(files), output)
        if status != 0:
            raise Refusal(f"bazel build failed: {first_error(log)} (all of it in {log})")
        folder = EXTENSIONS / python.abi
        folder.mkdir(parents=True, exist_ok=True)
        built = [ROOT / "bazel-bin" / file for file in files]
        return [_copied(file, folder / file.name) for file in built]


def _targets(files: Sequence[str]) -> list[str]:
    return [f"//jaxlib:{Path(file).name}" for file in files]


def test_extensions(python: Interpreter) -> bool:
    """Runs the C++ tests, their output on the terminal, and tells whether all passed."""
    return _bazel("test", python, ["//..."], None) == 0


def _bazel(
    command: str,
    python: Interpreter,
    targets: Sequence[str],
    output: BinaryIO | None,
    startup: Sequence[str] = (),
) -> int:
    bazel.write_settings()
    nanobind = importlib.util.find_spec("nanobind")
    flags = [
        f"--repo_env=PJIT_PYTHON={python.base}",
        f"--repo_env=PJIT_NANOBIND={Path(nanobind.origin).parent}",
    ]
    if startup:
        # The links in the repository go on leading to the usual outputs.
        flags.append("--symlink_prefix=/")
    return subprocess.run(
        ["bazel", *startup, command, *flags, *targets],
        cwd=ROOT,
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        check=False,
    ).returncode


def _copied(file: Path, target: Path) -> Path:
    # Bazel's outputs are read-only, and a new file spares whoever has the old one loaded.
    part = target.with_suffix(".part")
    shutil.copyfile(file, part)
    part.chmod(0o755)
    return part.replace(target)


def first_error(log: Path) -> str:
    """The line of a build's log to show a person: the compiler's own before Bazel's about it."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    of_compiler = [line for line in lines if ": error:" in line or ": fatal error:" in line]
    of_bazel = [line for line in lines if line.startswith("ERROR:")]
    return (of_compiler or of_bazel or lines or ["it said nothing"])[0]
