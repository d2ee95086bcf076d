"""`build.py wheel` on randomly broken wheels: it refuses them, or writes a sound wheel."""

from __future__ import annotations

import csv
import functools
import sys
import zipfile
from pathlib import Path
from random import Random

import pytest
from packaging.utils import parse_wheel_filename
from wheel.wheelfile import WheelFile

import mutated_wheels
import synthetic_wheels
from machine import pythons
from refusal import Refusal
from wheels import platform_tag, repack, stock_wheel
from wheels.seam import JAX, LIBRARY, PJIT, Extensions

SEED = 3
COUNT = 500
THIS = pythons.examine(sys.executable)


def check_sound(made: Path, ours: Extensions, stock: Path) -> None:
    """Asserts all that pip and jaxlib need of our wheel."""
    _, version, _, tags = parse_wheel_filename(made.name)
    with WheelFile(made) as file, zipfile.ZipFile(stock) as before:
        names = [info.filename for info in file.infolist()]
        contents = {name: file.read(name) for name in names}  # raises if the hash differs
        said = {name: stock_wheel.headers(file, name) for name in ("METADATA", "WHEEL")}
        record = file.record_path
        assert contents[LIBRARY] == before.read(LIBRARY)
    rows = list(csv.reader(contents[record].decode().splitlines()))
    files = [name for name in names if not name.endswith("/")]
    assert [row[0] for row in rows] == files == list(dict.fromkeys(files))
    assert all(row[2] == str(len(contents[row[0]])) for row in rows[:-1])
    assert contents[JAX] == ours.jax.read_bytes()
    assert contents[PJIT] == ours.pjit.read_bytes()
    assert said["METADATA"].get_all("Version") == [str(version)]
    assert said["METADATA"].get_all("Name") == ["jaxlib"]
    assert said["WHEEL"].get_all("Tag") == [str(tag) for tag in tags]
    assert all(not name.startswith("/") and ".." not in name.split("/") for name in names)
    assert all(name.isprintable() and "\\" not in name for name in names)


def check_one(wheel: Path, ours: Extensions, out: Path) -> bool:
    """Whether the wheel was refused. Asserts a clear refusal, or a sound result."""
    try:
        made = repack.repack(stock_wheel.check(wheel, THIS.target), ours, THIS.target, out)
    except Refusal as refusal:
        assert str(wheel) in str(refusal)
        assert str(refusal).isprintable()
        assert not out.exists() or not list(out.iterdir())
        return True
    assert list(out.iterdir()) == [made]
    check_sound(made, ours, wheel)
    return False


def test_randomly_broken_wheels_are_refused_or_give_sound_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repack, "STAMPS", tmp_path / "stamps")
    # Only the stock wheel differs.
    monkeypatch.setattr(platform_tag, "audited", functools.cache(platform_tag.audited))
    library = synthetic_wheels.libraries(tmp_path)["seam"]
    ours = synthetic_wheels.extensions(tmp_path)
    sound = synthetic_wheels.write_wheel(tmp_path, library)
    wrong, refused = [], 0

    for number in range(COUNT):
        folder = tmp_path / str(number)
        folder.mkdir()
        kind, content = mutated_wheels.mutated(Random(f"{SEED} {number}"), sound)
        wheel = folder / sound.name
        wheel.write_bytes(content)
        try:
            refused += check_one(wheel, ours, folder / "out")
        except Exception as error:
            wrong.append(f"seed {SEED}, number {number}, {kind}: {error!r}")

    assert not wrong, "\n".join(wrong)
    # Some are still good, so the fuzzer also reaches the code after the checks.
    assert COUNT // 2 < refused < COUNT - 20
