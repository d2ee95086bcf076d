"""Answers the queries of nvidia-smi that the commands make, where there is no driver.

The GPUs are STAND_IN_GPUS, a list of objects in JSON; a field that one lacks is that of a V100.
Where STAND_IN_SAYS is set it fails with that, as the real one does on standard output.
"""

from __future__ import annotations

import json
import os
import sys

V100 = {
    "name": "Tesla V100-SXM2-16GB",
    "driver_version": "535.183.06",
    "compute_cap": "7.0",
    "mig.mode.current": "[N/A]",
    "compute_mode": "Default",
    "clocks.sm": "1290",
    "clocks.max.sm": "1530",
    "power.draw": "55.10",
    "power.limit": "300.00",
    "temperature.gpu": "34",
    "utilization.gpu": "0",
    "memory.used": "0",
}


def main(query: str, form: str) -> int:
    if says := os.environ.get("STAND_IN_SAYS"):
        print(says)
        return 9
    if form != "--format=csv,noheader,nounits":
        print(f"ERROR: Option {form} is not recognized.")
        return 1
    what, _, fields = query.removeprefix("--query-").partition("=")
    if what == "compute-apps":
        print(os.environ.get("STAND_IN_TENANTS", "").replace(",", "\n"), end="")
        return 0
    for index, own in enumerate(json.loads(os.environ["STAND_IN_GPUS"])):
        gpu = V100 | {"index": str(index), "uuid": f"GPU-{index:08x}-stand-in"} | own
        unknown = [field for field in fields.split(",") if field not in gpu]
        if unknown:
            print(f'Field "{unknown[0]}" is not a valid field to query.')
            return 2
        print(", ".join(gpu[field] for field in fields.split(",")))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
