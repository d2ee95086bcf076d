"""The one command line of this repository: `python3 build/build.py COMMAND`.

It runs on any CPython from 3.10 and makes for itself what it needs: missing system packages as root
or through sudo, Python packages in a virtual environment under `.build/`, in which it then runs.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

# Python does so by itself, but not with PYTHONSAFEPATH.
sys.path.insert(0, str(Path(__file__).resolve().parent))

import environments
import system_packages
from paths import ROOT, TOOL_REQUIREMENTS, TOOLS
from pythons import Interpreter, examine
from refusal import Refusal, refusing_os_errors

JAXLIB = "0.10.2"


def parse(arguments: list[str]) -> argparse.Namespace:
    """Reads the command line; ends the process where it is wrong."""
    parser = argparse.ArgumentParser(prog="build.py", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser("demo", help="build, and show stock jaxlib and ours side by side")
    test = commands.add_parser("test", help="run the C++ and the Python tests")
    wheel = commands.add_parser("wheel", help="make our wheel of a stock jaxlib wheel")
    overlay = commands.add_parser("overlay", help="make a PYTHONPATH folder for an installed one")
    conformance = commands.add_parser("conformance", help="run JAX's own tests on stock and ours")
    bench = commands.add_parser("bench", help="measure stock, ours, JAX's fix and the workaround")
    for command in (demo, test, wheel, overlay, conformance, bench):
        command.add_argument(
            "--python", default=sys.executable, help="the Python to build for (this one)"
        )
    source, which = wheel.add_mutually_exclusive_group(), test.add_mutually_exclusive_group()
    for command in (demo, which, source, conformance, bench):
        command.add_argument("--jaxlib", default=JAXLIB, metavar="VERSION", help=f"({JAXLIB})")
    which.add_argument(
        "--releases",
        metavar="VERSION,...",
        help="several, and a table of the results: versions, newest, or all",
    )
    source.add_argument("--wheel", type=_path, metavar="FILE", help="a wheel that is here already")
    for command in (demo, test, wheel, conformance):
        command.add_argument(
            "--out", type=_path, default=ROOT / "dist", metavar="DIR", help="(dist)"
        )
    overlay.add_argument("--site-packages", type=_path, required=True, metavar="DIR")
    overlay.add_argument("--out", type=_path, required=True, metavar="DIR")
    conformance.add_argument("--jax-source", type=_path, required=True, metavar="DIR")
    conformance.add_argument("--tests", metavar="NAME,...", help="which test files (those of docs)")
    bench.add_argument("--platform", choices=("cpu", "gpu"), default="cpu", help="(cpu)")
    bench.add_argument("--devices", type=int, metavar="N", help="(2 of the CPU, all GPUs)")
    bench.add_argument("--quick", action="store_true", help="fewer sizes and samples")
    bench.add_argument("--check", action="store_true", help="fail where an entry is one too many")
    bench.add_argument("--out", type=_path, default=ROOT / "dist" / "benchmarks", metavar="DIR")
    bench.add_argument(
        "--compare", nargs=2, type=_path, metavar="JSON", help="two results side by side instead"
    )
    test.add_argument("pytest", nargs="*", metavar="-- PYTEST ARGUMENT", default=[])
    port = commands.add_parser("port", help="put the fix into a git checkout of jax")
    port.add_argument("--jax-source", type=_path, required=True, metavar="DIR")
    instead = port.add_mutually_exclusive_group()
    instead.add_argument("--check", action="store_true", help="print the diff, and write nothing")
    instead.add_argument("--revert", action="store_true", help="take the fix out again")
    port.add_argument("--force", action="store_true", help="also over uncommitted changes")
    return parser.parse_args(arguments)


def _path(text: str) -> Path:
    """A path that is given. An empty one is a mistake, and would be the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("is empty; name a file or a folder")
    return Path(text)


def bootstrap(python: Interpreter, *, to_bench: bool = False) -> None:
    """Installs what is missing, and goes on in the environment that has the pinned packages.

    Raises:
      Refusal: something could not be installed.
    """
    if Path(sys.prefix) == TOOLS:
        return
    if " " in str(ROOT):
        raise Refusal(f"{ROOT}: Bazel cannot build where a path has a space; move the clone")
    this = examine(sys.executable)
    names = system_packages.missing([this, python], to_bench=to_bench)
    if names:
        system_packages.install(names)
    with refusing_os_errors(f"read {TOOLS}"):
        is_made = environments.is_made(TOOLS, this, [TOOL_REQUIREMENTS])
    if not is_made:
        print(f"Install what build.py runs on into {TOOLS} ...", file=sys.stderr, flush=True)
    tools = environments.environment(TOOLS, this, [TOOL_REQUIREMENTS])
    sys.stdout.flush()
    os.execv(tools, [str(tools), *sys.argv])


def run(options: argparse.Namespace, python: Interpreter) -> int:
    """Runs the command and returns the exit status.

    Raises:
      Refusal: bad input, or a machine that lacks something.
    """
    # These need the packages that bootstrap() brings.
    if options.command == "demo":
        from demo import demo

        return demo(options.jaxlib, python, options.out)
    if options.command == "bench" and options.compare:
        from bench_compare import compare

        return compare(*options.compare)
    if options.command == "bench":
        from bench import bench

        return bench(
            options.jaxlib,
            python,
            options.out,
            platform=options.platform,
            devices=options.devices,
            quick=options.quick,
            check=options.check,
        )
    if options.command == "conformance":
        from conformance import NAMES, conformance

        names = options.tests.split(",") if options.tests else NAMES
        return conformance(options.jax_source, options.jaxlib, names, python, options.out)
    if options.command == "test" and options.releases is not None:
        from releases import test_releases

        return test_releases(options.releases.split(","), python, options.out, options.pytest)
    if options.command == "test":
        from testing import test

        return test(options.jaxlib, python, options.out, options.pytest)
    from commands import make_overlay, make_wheel

    if options.command == "wheel":
        make_wheel(options.wheel, options.jaxlib, python, options.out)
    else:
        make_overlay(options.site_packages, python, options.out)
    return 0


def main(arguments: list[str]) -> int:
    """Runs the command line and returns the exit status."""
    options = parse(arguments)
    try:
        if options.command == "port":
            from port import port

            port(
                options.jax_source,
                check=options.check,
                revert=options.revert,
                force=options.force,
            )
            return 0
        python = examine(options.python)
        bootstrap(python, to_bench=options.command == "bench" and not options.compare)
        return run(options, python)
    except Refusal as refusal:
        print(f"build.py: {refusal}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        print(f"build.py: {TOOLS} lacks {error.name}; delete that folder", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    # So that what is half written is removed then too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(sys.argv[1:]))
