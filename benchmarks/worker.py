"""Measures on demand: a request in JSON is a line of standard input, its answer a line of output.

The runner keeps one such process an environment and asks them in turn, so that what slows the
machine down meets all of them.
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
    # Whatever a library prints must not be taken for an answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        answer = MEASUREMENTS[request.pop("measure")](**request)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
