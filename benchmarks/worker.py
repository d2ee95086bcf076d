"""Measures on request. A request is a line of JSON on standard input, its answer a line of output.

The runner keeps one such process for each environment and asks them in turn, so that other work on
the machine slows all of them alike.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import jax
import jaxlib.version

import hit
import miss
import pause
from rule_switch import ours


def facts() -> dict[str, Any]:
    """What this process runs on."""
    devices = jax.devices()
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "jax": jax.__version__,
        "jaxlib": jaxlib.version.__version__,
        "ours": ours() is not None,
        "platform": devices[0].platform,
        "device": devices[0].device_kind,
        "devices": len(devices),
    }


MEASUREMENTS = {
    "facts": facts,
    "pause": pause.measure,
    "hit": hit.measure,
    "miss": miss.measure,
}


def main() -> None:
    # Anything that a library prints must not be read as an answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        answer = MEASUREMENTS[request.pop("measure")](**request)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
