"""The explanations of small programs that follow public reports."""

from __future__ import annotations

import re

import pytest

import interpreters
from libraries import imported
from paths import ROOT

NUMBER = "each value is compiled again: unless it sets a shape, "
SAID = {
    "placement_fed_back": [
        "s['step']: sharding, different placement: was jax.devices()[0], now P()",
        "to fix it: it is this function's own output; place it before the loop as it is returned: "
        "jax.device_put(s['step'], NamedSharding(mesh, P()))",
    ],
    "commit_advice": [
        "p: committed or not: was uncommitted, now committed",
        "to fix it: commit it in every call: jax.device_put(p, jax.devices()[0])",
    ],
    "size_one_axis": [
        "kv: sharding, same placement, spelled differently: "
        "was P('data', 'tensor'), now P(None, 'tensor')",
        "to fix it: it is this function's own output; place it before the loop as it is returned: "
        "jax.device_put(kv, NamedSharding(mesh, P(None, 'tensor')))",
    ],
    "static_by_identity": [
        "act: static argument: was another object that prints alike, now <function <lambda>>",
        "to fix it: make it once, outside the loop",
    ],
    "field_in_a_model": [
        "model.epoch: static argument: was 0, now 1",
        f"to fix it: {NUMBER}make it an array: jnp.asarray(1)",
    ],
    "equal_hashes": [
        "c.axis: static argument: was -1 in Config(axis=-1), now -2 in Config(axis=-2)",
        f"to fix it: {NUMBER}pass it as an argument that is not static: jnp.asarray(-2)",
        "x: pytree structure: was dict key -1, now dict key -2",
        "to fix it: pass the same keys and as many elements in every call",
    ],
    "raised_once": [
        "the same signature as an earlier call, whose entry is gone",
        "to fix it: do not call clear_cache() or jax.clear_caches() between calls",
    ],
    "listeners_cleared": [
        "x: type of the argument: was float, now int",
        "to fix it: pass one type in every call: float(x)",
    ],
    "three_at_once": [
        "batch: shape or dtype: was float32[8,3], now float32[5,3]",
        "to fix it: pad it to (8, 3) in every call, as here where it is (5, 3): "
        "jnp.pad(batch, [(0, 3), (0, 0)])",
        "lr: type of the argument: was float32[], now float",
        "to fix it: pass an array in every call: jnp.asarray(lr, 'float32')",
        "params: committed or not: was uncommitted, now committed",
        "to fix it: commit it in every call: jax.device_put(params, jax.devices()[0])",
    ],
    "closest_structure": [
        "b['mask']: pytree structure: was None, now an array",
        "to fix it: pass an array in every call",
    ],
}


def said_by(case: str) -> list[str]:
    """What a case prints, without the places of its functions and calls."""
    done = interpreters.run([f"tests/cases/{case}.py"], devices=4, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    return [line for line in lines if not re.match(r"\d+$|for |FASTPATH CACHE MISS", line)]


@pytest.mark.parametrize("case", SAID)
def test_a_case_gets_the_right_explanation(case: str) -> None:
    if case == "field_in_a_model":
        imported("equinox")

    assert said_by(case) == SAID[case]


def test_a_thousand_misses_for_one_reason_are_one_message() -> None:
    (said,) = said_by("thousand_steps")

    assert int(said.removesuffix(" characters")) < 500
