"""Where things lie in this repository. Everything under STATE can be deleted at any time."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STATE = ROOT / ".build"

TOOLS = STATE / "tools"
VENVS = STATE / "venv"
WHEELS = STATE / "wheels"
STAMPS = STATE / "stamps"
LOGS = STATE / "logs"
EXTENSIONS = STATE / "extensions"

TOOL_REQUIREMENTS = ROOT / "build" / "requirements.txt"
TEST_REQUIREMENTS = ROOT / "tests" / "requirements.txt"
CONFORMANCE_REQUIREMENTS = ROOT / "build" / "conformance-requirements.txt"
ALLOWED_DIFFERENCES = ROOT / "docs" / "conformance.md"
REPRODUCTION = ROOT / "tests" / "reproduction.py"
BENCH_REQUIREMENTS = ROOT / "build" / "bench-requirements.txt"
BENCHMARKS = ROOT / "benchmarks"
