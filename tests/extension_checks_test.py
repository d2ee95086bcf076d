"""Checks of our two extensions before they go into a wheel, and of the finished wheel."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import synthetic_wheels
from machine import pythons
from refusal import Refusal
from synthetic_wheels import MACHINE, TAG, hash_of, shared_library, stub
from wheels import extension_checks, overlay, repack, stock_wheel, trial
from wheels.seam import Extensions

THIS = pythons.examine(sys.executable)

PJIT = "void *PyInit__pjit(void) { return 0; }"
HIDDEN = '__attribute__((visibility("hidden"))) void *PyInit__pjit(void) { return 0; }'
TWO = f"{PJIT} void _ZN8nanobind6detail3fooEv(void) {{}}"
FOREIGN = "int foreign(void); void *PyInit__pjit(void) { return foreign() ? 0 : (void *)1; }"
NO_CALL = "void *PyInit__jax(void) { return 0; }"
OTHER = {"x86_64": ("aarch64", 183), "aarch64": ("x86_64", 62)}[MACHINE]


def with_pjit(source: str) -> Callable[[Extensions], object]:
    return lambda extensions: shared_library(extensions.pjit, source)


def of_another_machine(extensions: Extensions) -> None:
    content = bytearray(extensions.pjit.read_bytes())
    content[18:20] = OTHER[1].to_bytes(2, "little")  # e_machine
    extensions.pjit.write_bytes(content)


def with_foreign_library(extensions: Extensions) -> None:
    folder = extensions.pjit.parent
    library = shared_library(
        folder / "libforeign.so", "int foreign(void) { return 1; }", "-Wl,-soname,libforeign.so.1"
    )
    shared_library(extensions.pjit, FOREIGN, str(library))


FAULTS: dict[str, tuple[Callable[[Extensions], object], str]] = {
    "another machine": (of_another_machine, f"is for {OTHER[0]}, not for {MACHINE}"),
    "no export": (with_pjit(HIDDEN), "does not export PyInit__pjit"),
    "an export more": (
        with_pjit(TWO),
        "exports _ZN8nanobind6detail3fooEv beside PyInit__pjit",
    ),
    "a foreign library": (with_foreign_library, "needs libforeign.so.1, which a user may not have"),
    "a call to nobody": (with_pjit(FOREIGN), "calls foreign, which is in no library that it needs"),
    "the wrong library": (
        lambda extensions: stub(extensions.pjit),
        "does not export PyInit__pjit",
    ),
    "a stub that calls nobody": (
        lambda extensions: shared_library(extensions.jax, NO_CALL, "-Wl,-rpath,$ORIGIN"),
        "does not need libjax_common.so, where Wrapped_PyInit__jax is",
    ),
    "a stub that looks elsewhere": (
        lambda extensions: stub(extensions.jax, run_path="/usr/lib"),
        "does not look for libjax_common.so beside itself",
    ),
    "half a library": (
        lambda extensions: extensions.jax.write_bytes(extensions.jax.read_bytes()[:200]),
        "is not a readable shared library",
    ),
    "no library": (lambda extensions: extensions.pjit.write_text("no"), "is not a readable shared"),
}


@pytest.fixture
def sound(tmp_path: Path) -> Extensions:
    return synthetic_wheels.extensions(tmp_path)


def test_sound_extensions_pass(sound: Extensions) -> None:
    extension_checks.check_extensions(sound, MACHINE)


@pytest.mark.parametrize(("spoil", "says"), FAULTS.values(), ids=FAULTS.keys())
def test_a_broken_extension_is_refused_in_one_line(
    spoil: Callable[[Extensions], object], says: str, sound: Extensions
) -> None:
    spoil(sound)

    with pytest.raises(Refusal) as refused:
        extension_checks.check_extensions(sound, MACHINE)

    message = str(refused.value)
    assert says in message
    assert message.startswith((str(sound.jax), str(sound.pjit)))
    assert "\n" not in message


def test_no_wheel_is_written_with_a_broken_extension(sound: Extensions, tmp_path: Path) -> None:
    library = synthetic_wheels.libraries(tmp_path)["seam"]
    stock = stock_wheel.check(synthetic_wheels.write_wheel(tmp_path, library), THIS.target)
    shared_library(sound.pjit, HIDDEN)

    with pytest.raises(Refusal, match="does not export PyInit__pjit"):
        repack.repack(stock, sound, THIS.target, tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_no_overlay_is_written_with_a_broken_extension(sound: Extensions, tmp_path: Path) -> None:
    (tmp_path / "site" / "jaxlib").mkdir(parents=True)
    shared_library(sound.pjit, HIDDEN)

    with pytest.raises(Refusal, match="does not export PyInit__pjit"):
        overlay.overlay(tmp_path / "site", sound, THIS, tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_a_wheel_that_fails_its_trial_is_not_written(sound: Extensions, tmp_path: Path) -> None:
    library = synthetic_wheels.libraries(tmp_path)["seam"]
    stock = stock_wheel.check(synthetic_wheels.write_wheel(tmp_path, library), THIS.target)

    # Its jaxlib cannot be imported.
    with pytest.raises(Refusal, match="was installed on trial and does not work"):
        repack.repack(
            stock,
            sound,
            THIS.target,
            tmp_path / "out",
            accept=lambda wheel: trial.try_wheel(wheel, THIS),
        )

    assert list((tmp_path / "out").iterdir()) == []


def small_wheel(folder: Path, jax: str, pjit: str) -> Path:
    """A wheel of Python modules, which pip and the trial treat like a real one."""
    info = "jaxlib-9.9.9+physical1.dist-info"
    contents = {
        "jaxlib/__init__.py": "",
        "jaxlib/_jax.py": jax,
        "jaxlib/pjit.py": pjit,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: jaxlib\nVersion: 9.9.9+physical1\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nTag: {TAG}-linux_{MACHINE}\n",
    }
    rows = [
        f"{name},{hash_of(text.encode())},{len(text.encode())}" for name, text in contents.items()
    ]
    contents[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,\n"])
    path = folder / f"jaxlib-9.9.9+physical1-{TAG}-linux_{MACHINE}.whl"
    with zipfile.ZipFile(path, "w") as file:
        for name, text in contents.items():
            file.writestr(name, text)
    return path


OURS, STOCK = "pjit = len", "class pjit: pass"
ON, OFF = (f"def physical_out_shardings(): return {on}" for on in (True, False))


def test_a_wheel_with_the_rule_on_passes_its_trial(tmp_path: Path) -> None:
    trial.try_wheel(small_wheel(tmp_path, OURS, ON), THIS)


@pytest.mark.parametrize(
    ("jax", "pjit", "says"),
    [
        (OURS, OFF, "it says that the rule is off"),
        (STOCK, ON, "it says that the rule is off"),
        ("raise ImportError('no PyInit__pjit')", ON, "ImportError: no PyInit__pjit"),
    ],
)
def test_a_wheel_without_the_fix_fails_its_trial(
    jax: str, pjit: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(Refusal) as refused:
        trial.try_wheel(small_wheel(tmp_path, jax, pjit), THIS)

    assert str(refused.value).endswith(f"was installed on trial and does not work: {says}")
