"""A JAX plugin that serves CPU devices under the name `cuda`, where there is no GPU to rehearse on.

There are as many as CUDA_VISIBLE_DEVICES names, and none where STAND_IN_SAYS_NONE is set. Each
says of itself that it is a CPU, so that whatever was measured on them can be told from what a GPU
does.
"""

from __future__ import annotations

import os
from typing import Any


def initialize() -> None:
    """What JAX calls of every plugin that it finds."""
    from jax._src import hardware_utils, xla_bridge

    # Without a device file JAX does not even ask for the platform.
    hardware_utils.has_visible_nvidia_gpu = lambda: True
    xla_bridge.register_backend_factory("cuda", _client, priority=500, fail_quietly=False)


def _client() -> Any:
    from jax._src import distributed
    from jax._src.lib import _jax
    from jaxlib import xla_client

    names = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if not any(names) or "STAND_IN_SAYS_NONE" in os.environ:
        raise RuntimeError("no supported devices found for platform CUDA")
    state = distributed.global_state
    processes = {}
    if state.client is not None:
        gloo = _jax.make_gloo_tcp_collectives(distributed_client=state.client)
        processes = {
            "distributed_client": state.client,
            "node_id": state.process_id,
            "num_nodes": state.num_processes,
            "collectives": gloo,
        }
    return xla_client.make_cpu_client(num_devices=len(names), **processes)
