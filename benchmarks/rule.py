"""Google Benchmark of the C++ rule alone, on dispatches of the jaxlib of this environment.

Run as `rule.py MODULE RESULT SECONDS SIZE...`: the compiled benchmark, the JSON file to write, how
long to repeat each dispatch, and the numbers of outputs.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from dispatches import KINDS, dispatch

_NAME = "physical_out_shardings_benchmark"


def loaded(path: str) -> ModuleType:
    """The compiled benchmark, from any path."""
    spec = importlib.util.spec_from_file_location(_NAME, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(module: str, result: str, seconds: str, *sizes: str) -> None:
    benchmark = loaded(module)
    for kind in KINDS:
        for size in map(int, sizes):
            made = dispatch(kind, size)
            benchmark.register(
                f"{kind}/{size}",
                made.result,
                (made.argument,),
                made.registry,
                made.global_cache_key,
                size,
            )
    benchmark.run(
        [
            f"--benchmark_out={result}",
            "--benchmark_out_format=json",
            f"--benchmark_min_time={seconds}",
            "--benchmark_repetitions=5",
            "--benchmark_display_aggregates_only=true",
        ]
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
