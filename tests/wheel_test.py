"""`build.py wheel`: its refusals, its output, and the real wheel as pip installed it."""

from __future__ import annotations

import errno
import importlib.metadata
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename
from wheel.wheelfile import WheelFile

import synthetic_wheels
from machine import pythons
from paths import ROOT
from refusal import Refusal
from synthetic_wheels import MACHINE, PYTHON, STAMP, TAG, VERSION_PY, hash_of, write_wheel
from wheels import repack, stock_wheel
from wheels.seam import ENTRY_POINTS, JAX, LIBRARY, MODULES, PJIT, Extensions

THIS = pythons.examine(sys.executable)
OTHER_MACHINE = "aarch64" if MACHINE == "x86_64" else "x86_64"
Libraries = dict[str, bytes]
Broken = Callable[[Path, Libraries], Path]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Libraries:
    return synthetic_wheels.libraries(tmp_path_factory.mktemp("libraries"))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Extensions:
    return synthetic_wheels.extensions(tmp_path_factory.mktemp("ours"))


@pytest.fixture(autouse=True)
def own_stamps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repack, "STAMPS", tmp_path / "stamps")


def make(wheel: Path, ours: Extensions, out: Path) -> Path:
    """What `build.py wheel` does after the extensions are built."""
    return repack.repack(stock_wheel.check(wheel, THIS.target), ours, THIS.target, out)


def with_text(name: str) -> Broken:
    def write(folder: Path, libraries: Libraries) -> Path:
        (folder / name).write_text("no wheel")
        return folder / name

    return write


def with_options(library: str | None = "seam", **options: object) -> Broken:
    return lambda folder, libraries: write_wheel(folder, libraries.get(library), **options)


def truncated(folder: Path, libraries: Libraries) -> Path:
    wheel = write_wheel(folder, libraries["seam"])
    wheel.write_bytes(wheel.read_bytes()[: wheel.stat().st_size // 2])
    return wheel


def damaged(folder: Path, libraries: Libraries) -> Path:
    wheel = write_wheel(folder, libraries["seam"])
    content = bytearray(wheel.read_bytes())
    with zipfile.ZipFile(wheel) as file:
        middle = file.getinfo(LIBRARY).header_offset + file.getinfo(LIBRARY).compress_size // 2
    content[middle] ^= 0xFF
    wheel.write_bytes(content)
    return wheel


def with_bad_library(folder: Path, libraries: Libraries) -> Path:
    return write_wheel(folder, b"\x7fELF and no more")


REFUSALS: dict[str, tuple[Broken, str]] = {
    "not there": (lambda folder, _: folder / "jaxlib.whl", "not found"),
    "a folder": (lambda folder, _: folder, "not found"),
    "no wheel's name": (with_text("notes.txt"), "is not a wheel"),
    "no wheel's content": (with_text(f"jaxlib-9.9.9-{TAG}-linux_{MACHINE}.whl"), "corrupt"),
    "another package": (with_options(name="numpy"), "is a wheel of numpy"),
    "truncated": (truncated, "corrupt or truncated"),
    "damaged": (damaged, "corrupt or truncated"),
    "wrong hash": (
        with_options(said_hash=("jaxlib/version.py", f"{hash_of(b'other')},5")),
        "Hash mismatch for file 'jaxlib/version.py'",
    ),
    "weak hash": (
        with_options(said_hash=("jaxlib/version.py", "md5=AAAA,5")),
        "Weak hash algorithm",
    ),
    "nonsense in RECORD": (with_options(said_hash=("jaxlib/version.py", "x")), "corrupt"),
    "listed, not there": (with_options(listed=("jaxlib/gone.py",)), "lacks jaxlib/gone.py"),
    "there, not listed": (with_options(unlisted=("jaxlib/more.py",)), "No hash found"),
    "before 0.6": (with_options(library=None), "use jaxlib 0.6.1 or later"),
    "no symbol": (with_options(library="no seam"), "has no symbol Wrapped_PyInit__jax"),
    "symbol undefined": (with_options(library="undefined"), "has no symbol"),
    "broken library": (with_bad_library, "is not a readable shared library"),
    "another Python": (with_options(tag="cp39-cp39"), "is for cp39-cp39"),
    "any Python": (with_options(tag="py3-none"), "is for py3-none"),
    "ours by its label": (with_options(version="9.9.9+physical1"), "has our extensions already"),
    "ours by its files": (with_options(added=(PJIT,)), "has our extensions already"),
    "Windows": (with_options(platforms="win_amd64"), "is for win_amd64"),
    "macOS": (with_options(platforms="macosx_11_0_arm64"), "is for macosx_11_0_arm64"),
    "musl": (with_options(platforms=f"musllinux_1_2_{MACHINE}"), "is for musllinux_1_2"),
    "another machine": (with_options(platforms="manylinux_2_27_s390x"), "is for manylinux_2_27_s"),
    "not the one asked for": (
        with_options(platforms=f"manylinux_2_27_{OTHER_MACHINE}"),
        f"is for {OTHER_MACHINE}",
    ),
    "another version inside": (with_options(said_version="1.0"), "METADATA says jaxlib 1.0"),
    "no version inside": (with_options(said_version="new"), "corrupt"),
    "another tag inside": (with_options(said_platforms="linux_other"), "its name others"),
}


@pytest.mark.parametrize(("broken", "says"), REFUSALS.values(), ids=REFUSALS.keys())
def test_bad_input_is_refused_in_one_line_that_names_the_file(
    broken: Broken, says: str, libraries: Libraries, ours: Extensions, tmp_path: Path
) -> None:
    wheel, out = broken(tmp_path, libraries), tmp_path / "out"

    with pytest.raises(Refusal) as refused:
        make(wheel, ours, out)

    message = str(refused.value)
    assert says in message
    assert message.startswith(str(wheel))
    assert "\n" not in message
    assert not out.exists()


def test_a_file_that_occurs_twice_is_refused(
    libraries: Libraries, ours: Extensions, tmp_path: Path
) -> None:
    wheel = write_wheel(tmp_path, libraries["seam"])
    with zipfile.ZipFile(wheel, "a") as file, pytest.warns(UserWarning):
        file.writestr("jaxlib/version.py", VERSION_PY)

    with pytest.raises(Refusal, match=r"has jaxlib/version\.py twice"):
        make(wheel, ours, tmp_path / "out")


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOSPC, "no space left"),
        (errno.EACCES, "no permission"),
        (errno.EROFS, "read-only file system"),
        (errno.EIO, os.strerror(errno.EIO)),
    ],
)
def test_a_failed_write_is_refused_and_leaves_nothing(
    number: int,
    says: str,
    libraries: Libraries,
    ours: Extensions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(repack, "_write_record", fail)
    out = tmp_path / "out"

    with pytest.raises(Refusal, match=says):
        make(write_wheel(tmp_path, libraries["seam"]), ours, out)

    assert list(out.iterdir()) == []


def test_an_out_folder_that_is_a_file_is_refused(
    libraries: Libraries, ours: Extensions, tmp_path: Path
) -> None:
    (tmp_path / "out").write_text("in the way")

    with pytest.raises(Refusal, match="something of that name is in the way"):
        make(write_wheel(tmp_path, libraries["seam"]), ours, tmp_path / "out")


def test_the_same_input_makes_the_same_bytes(
    libraries: Libraries, ours: Extensions, tmp_path: Path
) -> None:
    wheel = write_wheel(tmp_path, libraries["seam"])

    first, second = (make(wheel, ours, tmp_path / out) for out in ("first", "second"))

    assert first.read_bytes() == second.read_bytes()
    assert [path.name for path in first.parent.iterdir()] == [first.name]


def test_a_wheel_that_is_up_to_date_is_left_alone(
    libraries: Libraries, ours: Extensions, tmp_path: Path
) -> None:
    wheel = write_wheel(tmp_path, libraries["seam"])
    before = make(wheel, ours, tmp_path / "out").stat()

    assert make(wheel, ours, tmp_path / "out").stat().st_ino == before.st_ino


def test_a_wheel_that_was_changed_is_written_again(
    libraries: Libraries, ours: Extensions, tmp_path: Path
) -> None:
    wheel = write_wheel(tmp_path, libraries["seam"])
    made = make(wheel, ours, tmp_path / "out")
    sound = made.read_bytes()
    made.write_bytes(sound[:-1])

    make(wheel, ours, tmp_path / "out")

    assert made.read_bytes() == sound


def test_new_extensions_make_a_new_wheel(
    libraries: Libraries, ours: Extensions, tmp_path: Path
) -> None:
    wheel = write_wheel(tmp_path, libraries["seam"])
    other = Extensions(ours.jax, tmp_path / "_pjit.so")
    other.pjit.write_bytes(ours.pjit.read_bytes() + b"\0")
    before = make(wheel, ours, tmp_path / "out").read_bytes()

    assert make(wheel, other, tmp_path / "out").read_bytes() != before


def test_record_lists_every_file_with_its_hash(
    libraries: Libraries, ours: Extensions, tmp_path: Path
) -> None:
    made = make(write_wheel(tmp_path, libraries["seam"]), ours, tmp_path / "out")

    with WheelFile(made) as file:
        rows = stock_wheel.record(file)
        sizes = {info.filename: str(info.file_size) for info in file.infolist()}
        for info in file.infolist():
            file.read(info)  # raises if the hash differs
    record = "jaxlib-9.9.9+physical1.dist-info/RECORD"
    assert {path: row[2] for path, row in rows.items()} == {**sizes, record: ""}
    assert list(rows)[-1] == record


def test_only_what_must_change_changes(
    libraries: Libraries, ours: Extensions, tmp_path: Path
) -> None:
    stock = write_wheel(tmp_path, libraries["seam"])
    made = make(stock, ours, tmp_path / "out")

    with zipfile.ZipFile(stock) as before, zipfile.ZipFile(made) as after:
        old, new = ({name: file.read(name) for name in file.namelist()} for file in (before, after))
        looks = {(i.filename, i.date_time, i.external_attr >> 16) for i in after.infolist()}
    info = "jaxlib-9.9.9+physical1.dist-info"
    assert list(new) == [
        "jaxlib/__init__.py",
        JAX,
        PJIT,
        *MODULES,
        LIBRARY,
        "jaxlib/version.py",
        f"{info}/METADATA",
        f"{info}/entry_points.txt",
        f"{info}/WHEEL",
        f"{info}/RECORD",
    ]
    assert new["jaxlib/version.py"] == VERSION_PY
    assert new[LIBRARY] == old[LIBRARY]
    assert (new[JAX], new[PJIT]) == (ours.jax.read_bytes(), ours.pjit.read_bytes())
    assert {name: new[name] for name in MODULES} == {
        name: (ROOT / file).read_bytes() for name, file in MODULES.items()
    }
    assert new[f"{info}/METADATA"].decode() == (
        "Metadata-Version: 2.1\nName: jaxlib\nVersion: 9.9.9+physical1\n\nVersion: in the text\n"
    )
    assert new[f"{info}/entry_points.txt"].decode() == ENTRY_POINTS
    assert looks == {(name, STAMP, 0o100755 if name.endswith(".so") else 0o100644) for name in new}


@pytest.mark.parametrize(
    ("stock", "platform"),
    [
        ("manylinux_2_27", "manylinux_2_27"),
        ("manylinux_2_41", "manylinux_2_41"),
        ("manylinux2014", "manylinux_2_17"),
        ("manylinux_2_17.manylinux2014", "manylinux_2_17"),
        ("linux", "linux"),
    ],
)
def test_the_platform_is_the_stock_wheels_if_that_is_newer(
    stock: str, platform: str, libraries: Libraries, ours: Extensions, tmp_path: Path
) -> None:
    platforms = ".".join(f"{part}_{MACHINE}" for part in stock.split("."))

    made = make(write_wheel(tmp_path, libraries["seam"], platforms=platforms), ours, tmp_path)

    assert made.name == f"jaxlib-9.9.9+physical1-{TAG}-{platform}_{MACHINE}.whl"
    with zipfile.ZipFile(made) as file:
        lines = file.read("jaxlib-9.9.9+physical1.dist-info/WHEEL").decode().splitlines()
    assert [line for line in lines if line.startswith("Tag:")] == [
        f"Tag: {TAG}-{platform}_{MACHINE}"
    ]


def test_an_audit_leaves_the_current_folder_to_other_threads(
    ours: Extensions, libraries: Libraries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_wheel(tmp_path, libraries["seam"])

    def fail(folder: object) -> None:
        pytest.fail(f"the process changed to {folder}")

    monkeypatch.setattr(os, "chdir", fail)

    assert make(source, ours, tmp_path / "out").is_file()


def test_the_platform_is_our_extensions_if_that_is_newer(
    libraries: Libraries, tmp_path: Path
) -> None:
    new = synthetic_wheels.extensions(tmp_path, new=True)

    made = make(write_wheel(tmp_path, libraries["seam"]), new, tmp_path / "out")

    assert made.name.endswith(f"-manylinux_2_34_{MACHINE}.whl")


def test_an_unknown_platform_is_refused(
    libraries: Libraries, ours: Extensions, tmp_path: Path
) -> None:
    wheel = write_wheel(tmp_path, libraries["seam"], platforms=f"manylinux_9_9_{MACHINE}")

    with pytest.raises(Refusal, match=f"manylinux_9_9_{MACHINE}: unknown to auditwheel"):
        make(wheel, ours, tmp_path / "out")


def test_our_local_label_is_added_to_an_existing_one(
    libraries: Libraries, ours: Extensions, tmp_path: Path
) -> None:
    wheel = write_wheel(tmp_path, libraries["seam"], version="9.9.9+house")

    assert "-9.9.9+house.physical1-" in make(wheel, ours, tmp_path / "out").name


def real_wheel(variable: str) -> Path:
    path = os.environ.get(variable)
    if not path:
        pytest.skip(f"{variable} names no wheel")
    return Path(path)


def test_the_real_wheel_is_installed_and_pip_check_is_clean() -> None:
    _, version, _, tags = parse_wheel_filename(real_wheel("PJIT_WHEEL").name)

    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout
    assert importlib.metadata.version("jaxlib") == str(version)
    assert {tag.abi for tag in tags} == {PYTHON}


def test_pip_installs_the_real_wheel(tmp_path: Path) -> None:
    options = ["--no-deps", "--no-index", "--no-compile", "--target", str(tmp_path)]
    command = [sys.executable, "-m", "pip", "install", *options, str(real_wheel("PJIT_WHEEL"))]

    done = subprocess.run(command, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "jaxlib" / "_pjit.so").is_file()


def test_the_real_wheel_keeps_the_version_that_jax_compares() -> None:
    stock, ours = real_wheel("PJIT_STOCK_WHEEL"), real_wheel("PJIT_WHEEL")

    with zipfile.ZipFile(stock) as before, zipfile.ZipFile(ours) as after:
        name = "jaxlib/version.py"
        assert before.read(name) == after.read(name)
        assert set(before.namelist()) - set(after.namelist()) == {
            name for name in before.namelist() if ".dist-info/" in name
        }


@pytest.mark.parametrize("extra", ["", "cuda12"])
def test_the_local_version_satisfies_the_pins_of_jax(extra: str) -> None:
    version = importlib.metadata.version("jaxlib")
    assert version.endswith("+physical1")

    pins = [
        requirement
        for requirement in map(Requirement, importlib.metadata.requires("jax") or ())
        if requirement.name == "jaxlib"
        and (requirement.marker is None or requirement.marker.evaluate({"extra": extra}))
    ]

    assert pins
    for pin in pins:
        assert pin.specifier.contains(version), str(pin)
