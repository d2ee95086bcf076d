"""The paths in this repository. Everything under STATE can be deleted at any time."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STATE = ROOT / ".build"

TOOLS = STATE / "tools"
VENVS = STATE / "venv"
WHEELS = STATE / "wheels"  # stock ones
OUR_WHEELS = STATE / "ours"  # built with the system's compiler, for this machine only
STAMPS = STATE / "stamps"
LOGS = STATE / "logs"
EXTENSIONS = STATE / "extensions"
BAZEL_SETTINGS = STATE / "bazel.bazelrc"
HEADERS = STATE / "headers"
ZIG = STATE / "zig"

REQUIREMENTS = ROOT / "build" / "requirements"
TOOL_REQUIREMENTS = REQUIREMENTS / "tools.txt"
PORTABLE_REQUIREMENTS = REQUIREMENTS / "portable.txt"
JAX_REQUIREMENTS = REQUIREMENTS / "jax.txt"
TEST_REQUIREMENTS = ROOT / "tests" / "requirements.txt"
KEY_TEST_REQUIREMENTS = REQUIREMENTS / "key_tests.txt"
CONFORMANCE_REQUIREMENTS = REQUIREMENTS / "conformance.txt"
ALLOWED_DIFFERENCES = ROOT / "docs" / "conformance.md"
REPRODUCTION = ROOT / "tests" / "reproduction.py"
STRESS = ROOT / "tests" / "stress.py"
BENCH_REQUIREMENTS = REQUIREMENTS / "bench.txt"
BENCHMARKS = ROOT / "benchmarks"

# Variables that build.py sets before it starts again in TOOLS: when it first started, and whether
# it had to make TOOLS.
STARTED = "PJIT_BUILD_STARTED"
FIRST = "PJIT_BUILD_FIRST"
