"""`build.py overlay`: its refusals, and a stock jaxlib that is fixed without being replaced."""

from __future__ import annotations

import argparse
import errno
import importlib.metadata
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import interpreters
import synthetic_wheels
from commands import overlay as overlay_command
from machine import pythons
from refusal import Refusal
from wheels import overlay, products
from wheels.seam import JAX, LIBRARY, MODULES, PJIT, Extensions

THIS = pythons.examine(sys.executable)

FED_BACK_KEYS = """
import json
import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

mesh = Mesh(jax.devices(), ("a",))
keys = jax.random.split(jax.random.key(0), 4)
keys = jax.device_put(keys, NamedSharding(mesh, PartitionSpec()))
step = jax.jit(lambda keys: keys[::-1])
entries = []
for _ in range(3):
    keys = step(keys)
    entries.append(step._cache_size())
print(json.dumps(entries))
"""

Libraries = dict[str, bytes]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Libraries:
    return synthetic_wheels.libraries(tmp_path_factory.mktemp("libraries"))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Extensions:
    """The extensions of the wheel under test."""
    wheel = os.environ.get("PJIT_WHEEL")
    if not wheel:
        pytest.skip("PJIT_WHEEL names no wheel of ours")
    folder = tmp_path_factory.mktemp("ours")
    with zipfile.ZipFile(wheel) as file:
        return Extensions(*(Path(file.extract(name, folder)) for name in (JAX, PJIT)))


@pytest.fixture
def installed(libraries: Libraries, tmp_path: Path) -> Path:
    """A site-packages folder with a small jaxlib in it."""
    site = tmp_path / "site-packages"
    with zipfile.ZipFile(synthetic_wheels.write_wheel(tmp_path, libraries["seam"])) as wheel:
        wheel.extractall(site)
    (site / "jaxlib" / "__pycache__").mkdir()
    return site


@pytest.fixture(scope="module")
def stock_site() -> Path:
    """The site-packages folder of the interpreter with the stock jaxlib."""
    program = "import json, sysconfig; print(json.dumps(sysconfig.get_path('platlib')))"
    return Path(interpreters.answer(program, python=interpreters.stock_python()))


def entries_of_fed_back_keys(python_path: Path | None) -> list[int]:
    settings = {"PYTHONPATH": str(python_path)} if python_path else {}
    python = interpreters.stock_python()
    return interpreters.answer(FED_BACK_KEYS, python=python, settings=settings)


def test_an_overlay_fixes_the_stock_jaxlib(
    stock_site: Path, ours: Extensions, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    overlay.check(stock_site, out, THIS)
    overlay.overlay(stock_site, ours, THIS, out)

    assert entries_of_fed_back_keys(None) == [1, 2, 2]
    assert entries_of_fed_back_keys(out) == [1, 1, 1]


def test_an_overlay_has_our_files_and_links_to_the_rest(
    installed: Path, ours: Extensions, tmp_path: Path
) -> None:
    out = tmp_path / "deep" / "out"
    overlay.overlay(installed, ours, THIS, out)

    entries = {entry.name: entry.is_symlink() for entry in (out / "jaxlib").iterdir()}
    assert entries == {
        "__init__.py": True,
        "_jax.so": False,
        "_pjit.so": False,
        **{Path(name).name: False for name in MODULES},
        "libjax_common.so": True,
        "version.py": True,
    }
    assert [entry.name for entry in out.parent.iterdir()] == ["out"]


def test_pytest_finds_the_plugin_of_an_overlay_and_jaxlib_keeps_its_metadata(
    installed: Path, ours: Extensions, tmp_path: Path
) -> None:
    overlay.overlay(installed, ours, THIS, tmp_path / "out")
    path = [str(tmp_path / "out"), str(installed)]

    found = list(importlib.metadata.distributions(path=path))

    names = {each.name: [e.value for e in each.entry_points] for each in found}
    assert names == {"jaxlib": [], "jaxlib-overlay": ["jaxlib._fastpath_pytest"]}


def test_an_overlay_may_go_into_an_empty_folder(
    installed: Path, ours: Extensions, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    overlay.check(installed, tmp_path / "out", THIS)
    overlay.overlay(installed, ours, THIS, tmp_path / "out")

    assert (tmp_path / "out" / PJIT).is_file()


def nothing_installed(site: Path, libraries: Libraries) -> None:
    for path in sorted(site.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def no_metadata(site: Path, libraries: Libraries) -> None:
    next(site.glob("jaxlib-*.dist-info")).rename(site / "hidden")


def no_library(site: Path, libraries: Libraries) -> None:
    (site / LIBRARY).unlink()


def no_symbol(site: Path, libraries: Libraries) -> None:
    (site / LIBRARY).write_bytes(libraries["no seam"])


def ours_already(site: Path, libraries: Libraries) -> None:
    (site / PJIT).touch()


def ours_by_its_label(site: Path, libraries: Libraries) -> None:
    replace_in(site, "METADATA", "Version: 9.9.9", "Version: 9.9.9+physical1")


def another_python(site: Path, libraries: Libraries) -> None:
    replace_in(site, "WHEEL", f"Tag: {synthetic_wheels.TAG}", "Tag: cp39-cp39")


def something_in_the_way(site: Path, libraries: Libraries) -> None:
    (site.parent / "out").mkdir()
    (site.parent / "out" / "notes.txt").touch()


def replace_in(site: Path, name: str, old: str, new: str) -> None:
    (path,) = site.glob(f"jaxlib-*.dist-info/{name}")
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (nothing_installed, "has no jaxlib; give the site-packages"),
        (no_metadata, "has no jaxlib metadata"),
        (no_library, "use jaxlib 0.6.1 or later"),
        (no_symbol, "has no symbol Wrapped_PyInit__jax"),
        (ours_already, "has our extensions already"),
        (ours_by_its_label, "has our extensions already"),
        (another_python, "is for cp39-cp39"),
        (something_in_the_way, "exists and is not an empty folder"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    spoil: Callable[[Path, Libraries], None],
    says: str,
    installed: Path,
    libraries: Libraries,
    tmp_path: Path,
) -> None:
    spoil(installed, libraries)

    with pytest.raises(Refusal) as refused:
        overlay.check(installed, tmp_path / "out", THIS)

    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_failed_write_is_refused_and_leaves_nothing(
    installed: Path, ours: Extensions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(overlay.shutil, "copy", fail)
    out = tmp_path / "deep" / "out"

    with pytest.raises(Refusal, match="no space left"):
        overlay.overlay(installed, ours, THIS, out)

    assert list(out.parent.iterdir()) == []


def test_the_command_prints_the_folder_for_pythonpath(
    installed: Path,
    ours: Extensions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(products, "compiled", lambda step, python: ours)

    parser = argparse.ArgumentParser()
    overlay_command.add_arguments(parser)
    places = ["--site-packages", str(installed), "--out", str(tmp_path / "out")]
    options = parser.parse_args(places)
    overlay_command.run(options, THIS)

    assert capsys.readouterr().out == f"PYTHONPATH={tmp_path / 'out'}\n"
    assert (tmp_path / "out" / PJIT).read_bytes() == ours.pjit.read_bytes()
