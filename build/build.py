"""The one command line of this repository: `python3 build/build.py COMMAND`.

A command is a module of `commands/`, which this file finds. It runs on any CPython from 3.10 on and
installs what it needs: missing system packages as root or through sudo, and Python packages into a
virtual environment under `.build/`, in which it then starts again.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import NoReturn

# Python adds build/ itself, unless PYTHONSAFEPATH is set.
_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE), str(_HERE.parent / "benchmarks")]

from machine import environments, system_packages
from machine.pythons import Interpreter, examine
from paths import FIRST, ROOT, STARTED, TOOL_REQUIREMENTS, TOOLS
from refusal import Refusal, refusing_os_errors


class Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line, as the rest of this program does."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def commands() -> dict[str, ModuleType]:
    """The modules of `commands/`, by their names on the command line.

    Each module has `HELP`, one line; `add_arguments(parser)`; and `run(options, python)`, which
    returns the exit status and raises Refusal. A module whose parser has no `--python` uses the
    standard library only, and its `run` takes just the options. An optional
    `system_packages(options)` returns the Debian packages that the command needs in addition to
    those that every build needs. If `options.finished` names a wheel, or `options.compare` names
    two results, the command builds nothing and needs none of them.
    """
    names = sorted(path.stem for path in (_HERE / "commands").glob("[a-z]*.py"))
    return {name: importlib.import_module(f"commands.{name}") for name in names}


def parse(arguments: list[str]) -> tuple[ModuleType, argparse.Namespace]:
    """Reads the command line. Ends the process on a mistake.

    Returns:
      The command's module, and its options.
    """
    parser = Parser(prog="build.py", description=__doc__.splitlines()[0])
    parsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    found = commands()
    for name, module in found.items():
        module.add_arguments(parsers.add_parser(name, help=module.HELP))
    options = parser.parse_args(arguments)
    return found[options.command], options


def bootstrap(python: Interpreter, more_packages: set[str], *, builds: bool) -> None:
    """Installs what is missing, and starts again in the environment with the pinned packages.

    Args:
      builds: whether the command compiles anything.

    Raises:
      Refusal: something could not be installed.
    """
    if Path(sys.prefix) == TOOLS:
        return
    if builds and " " in str(ROOT):
        raise Refusal(f"{ROOT}: Bazel cannot build where a path has a space; move the clone")
    os.environ[STARTED] = str(time.time())
    this = examine(sys.executable)
    names = system_packages.missing([this, python], more_packages, builds=builds)
    if names:
        system_packages.install(names)
    with refusing_os_errors(f"read {TOOLS}"):
        is_made = environments.is_made(TOOLS, this, [TOOL_REQUIREMENTS])
    if not is_made:
        os.environ[FIRST] = "1"
        print(
            f"Install the packages that build.py needs into {TOOLS} ...",
            file=sys.stderr,
            flush=True,
        )
    tools = environments.tools(TOOLS, this, TOOL_REQUIREMENTS)
    sys.stdout.flush()
    os.execv(tools, [str(tools), *sys.argv])


def run(command: ModuleType, options: argparse.Namespace) -> int:
    """Runs a command and returns the exit status.

    Raises:
      Refusal: bad input, or a machine that lacks something.
    """
    if "python" not in options:
        return command.run(options)
    if getattr(options, "find_links", None):
        environments.install_from(options.find_links)
    python = examine(options.python)
    more = command.system_packages(options) if hasattr(command, "system_packages") else set()
    given = any(getattr(options, name, None) for name in ("finished", "compare"))
    bootstrap(python, more, builds=not given)
    return command.run(options, python)


def main(arguments: list[str]) -> int:
    """Runs the command line and returns the exit status."""
    command, options = parse(arguments)
    try:
        return run(command, options)
    except Refusal as refusal:
        print(f"build.py: {refusal}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        print(f"build.py: {TOOLS} lacks {error.name}; delete that folder", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    # Raises SystemExit, so that a terminated process removes its half-written files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(sys.argv[1:]))
