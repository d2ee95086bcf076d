"""A jitted function that was pickled with the fix loads without it, and the reverse."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import cloudpickle
import pytest

import interpreters

DUMP = """
import sys, cloudpickle, jax
with open(sys.argv[1], "wb") as file:
    cloudpickle.dump(jax.jit(lambda key: jax.random.split(key)[0]), file)
"""
LOAD = """
import json, pickle, sys, jax, reproduction
with open(sys.argv[1], "rb") as file:
    f = pickle.load(file)
run = reproduction.call_back(f, [], reproduction.SECTION_1[0].make("threefry2x32"), 3)
print(json.dumps([run.outcome, run.entries, jax.random.key_data(run.last).tolist()]))
"""
OURS, STOCK = "with the fix", "without"


def python_of(side: str) -> str:
    return sys.executable if side == OURS else interpreters.stock_python()


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    """A path with only this interpreter's cloudpickle, for either interpreter."""
    shutil.copytree(Path(cloudpickle.__file__).parent, tmp_path / "cloudpickle")
    return {"PYTHONPATH": str(tmp_path)}


def loaded_after(dumped: str, loaded: str, pickled: Path, settings: dict[str, str]) -> list[object]:
    dump = interpreters.run(["-c", DUMP, str(pickled)], python=python_of(dumped), settings=settings)
    assert dump.returncode == 0, dump.stderr
    return interpreters.answer(
        ["-c", LOAD, str(pickled)], python=python_of(loaded), settings=settings
    )


@pytest.mark.parametrize("dumped", [OURS, STOCK])
def test_a_function_that_is_unpickled_with_the_fix_has_it(
    dumped: str, tmp_path: Path, settings: dict[str, str]
) -> None:
    key_data = [683029726, 1624662641]  # of key(0), split three times

    outcome = loaded_after(dumped, OURS, tmp_path / "function.pickle", settings)

    assert outcome == ["ok", [1, 1, 1], key_data]


def test_a_function_that_is_unpickled_without_the_fix_behaves_like_stock(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    stock = loaded_after(STOCK, STOCK, tmp_path / "stock.pickle", settings)

    outcome = loaded_after(OURS, STOCK, tmp_path / "ours.pickle", settings)

    assert outcome == stock
