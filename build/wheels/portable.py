"""The compiler of the wheels that we ship: zig's clang, which builds for any Linux.

It comes as a wheel from the package index. It links libc++ statically, and knows the symbols of
every glibc, so that what it builds here runs on an old system or on another machine. It compiles
libc++ the first time, and caches it.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from machine.environments import environment
from machine.pythons import examine
from paths import PORTABLE_REQUIREMENTS, ZIG
from refusal import Refusal, refusing_os_errors

GLIBC = "2.17"  # the oldest that any jaxlib wheel needs
CACHE = ZIG / "cache"

# Bazel calls one compiler for C, for C++ and for linking, where the arguments are in a file.
_WRAPPER = """#!/bin/sh
export ZIG_GLOBAL_CACHE_DIR={cache} ZIG_LOCAL_CACHE_DIR={cache}
language=c++
strip=
for argument; do
  case "$argument" in
    *.c) language=cc ;;
    -shared | @*) strip=-s ;;
  esac
done
# Without -O2 it would link a debug build of libc++.
exec {zig} $language -target {machine}-linux-gnu.{glibc} -O2 $strip "$@"
"""


def compiler(machine: str) -> Path:
    """The compiler for a machine: a program that takes gcc's arguments.

    Raises:
      Refusal: it cannot be installed.
    """
    python = environment(ZIG / "venv", examine(sys.executable), [PORTABLE_REQUIREMENTS])
    program = "import ziglang; print(ziglang.__path__[0])"
    found = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    text = _WRAPPER.format(
        cache=shlex.quote(str(CACHE)),
        zig=shlex.quote(f"{found.stdout.strip()}/zig"),
        machine=machine,
        glibc=GLIBC,
    )
    wrapper = ZIG / machine / "cc"
    with refusing_os_errors(f"write {wrapper}"):
        CACHE.mkdir(parents=True, exist_ok=True)
        wrapper.parent.mkdir(exist_ok=True)
        # Bazel examines its compiler again when the file is new.
        if not wrapper.is_file() or wrapper.read_text() != text:
            wrapper.write_text(text)
            wrapper.chmod(0o755)
    return wrapper


def compile_libraries(machines: Sequence[str]) -> None:
    """Compiles libc++ for several machines at the same time, since zig uses one core for each.

    Raises:
      Refusal: the compiler cannot be installed, or it failed.
    """
    compilers = [compiler(machine) for machine in machines]
    with ThreadPoolExecutor() as pool:
        list(pool.map(_compile_library, compilers))


def _compile_library(compiler: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "any.cc")
        source.write_text("#include <string>\n")
        call = [compiler, "-fPIC", "-shared", source, "-o", source.with_suffix(".so")]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise Refusal(f"{compiler} cannot compile libc++: {lines[0]}")
