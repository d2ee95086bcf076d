"""`build.py wheelhouse`: the wheels that it makes, and an index for pip and uv."""

from __future__ import annotations

import functools
import hashlib
import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
import uv

import synthetic_wheels
from machine import pythons
from machine.targets import Target, target
from refusal import Refusal
from synthetic_wheels import MACHINE, PYTHON
from wheels import index, portable, products, wheelhouse

THIS = pythons.examine(sys.executable)


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A folder with two wheels that have no dependencies, and their index."""
    for version in ("9.9.8+physical1", "9.9.9+physical1"):
        synthetic_wheels.write_wheel(
            tmp_path, b"", version=version, platforms=f"manylinux_2_17_{MACHINE}"
        )
    index.write_index(tmp_path)
    return tmp_path


@pytest.fixture(params=["file", "http"])
def url(request: pytest.FixtureRequest, house: Path) -> Iterator[str]:
    """The index by its path, and from a static server."""
    if request.param == "file":
        yield (house / "simple").as_uri()
        return
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(house))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/simple/"
        server.shutdown()
        thread.join()


def installed(site: Path) -> list[str]:
    return sorted(path.name for path in site.glob("*.dist-info"))


def pip(url: str, requirement: str, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "install", "--isolated", "--no-cache-dir"]
    options = ["--index-url", url, "--target", str(site), requirement]
    return subprocess.run([*command, *options], capture_output=True, text=True)


def uv_pip(url: str, requirement: str, site: Path) -> subprocess.CompletedProcess[str]:
    command = [uv.find_uv_bin(), "pip", "install", "--no-config", "--no-cache"]
    options = ["--index", url, "--python", sys.executable, "--target", str(site), requirement]
    return subprocess.run([*command, *options], capture_output=True, text=True)


@pytest.mark.parametrize("install", [pip, uv_pip])
@pytest.mark.parametrize(
    ("requirement", "version"),
    [("jaxlib", "9.9.9"), ("jaxlib==9.9.8", "9.9.8"), ("jaxlib==9.9.9+physical1", "9.9.9")],
)
def test_the_index_serves_pip_and_uv(
    install: object, requirement: str, version: str, url: str, tmp_path: Path
) -> None:
    done = install(url, requirement, tmp_path / "site")

    assert done.returncode == 0, done.stderr
    assert installed(tmp_path / "site") == [f"jaxlib-{version}+physical1.dist-info"]


@pytest.mark.parametrize("install", [pip, uv_pip])
def test_a_wheel_with_another_hash_than_in_the_index_is_not_installed(
    install: object, url: str, house: Path, tmp_path: Path
) -> None:
    (wheel,) = house.glob("jaxlib-9.9.9*.whl")
    with wheel.open("ab") as file:
        file.write(b"\0")

    done = install(url, "jaxlib==9.9.9", tmp_path / "site")

    assert done.returncode != 0
    assert "hash" in done.stderr.lower()


def test_the_sums_are_those_of_the_wheels(house: Path) -> None:
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"],
        cwd=house,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2


def test_each_link_leads_to_a_wheel_and_has_its_hash(house: Path) -> None:
    page = house / "simple" / "jaxlib" / "index.html"

    links = re.findall(r'href="([^"#]+)#sha256=([0-9a-f]{64})"', page.read_text())

    assert len(links) == 2
    for path, digest in links:
        wheel = page.parent / unquote(path)
        assert hashlib.sha256(wheel.read_bytes()).hexdigest() == digest


def test_the_same_wheels_make_the_same_index(house: Path) -> None:
    files = ("simple/index.html", "simple/jaxlib/index.html", "SHA256SUMS")
    before = [(house / file).read_bytes() for file in files]

    index.write_index(house)

    assert [(house / file).read_bytes() for file in files] == before


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Records the wheels that are made, of releases that exist for this Python only."""
    made: list[Path] = []

    def fetched(step: object, version: str, target: Target) -> Path:
        if target.abi != PYTHON:
            raise Refusal(f"no wheel for {target.abi}")
        return Path(f"jaxlib-{version}")

    def portable_wheel(step: object, source: Path, target: Target, out: Path) -> Path:
        made.append(
            synthetic_wheels.write_wheel(
                out,
                b"",
                version=f"{source.name.removeprefix('jaxlib-')}+physical1",
                platforms=f"manylinux_2_17_{target.machine}",
            )
        )
        return made[-1]

    monkeypatch.setattr(products, "fetched", fetched)
    monkeypatch.setattr(products, "portable_wheel", portable_wheel)
    monkeypatch.setattr(portable, "compile_libraries", lambda machines: None)
    return made


def test_a_wheel_is_made_from_each_stock_wheel_that_exists(
    made: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = [target(tag, machine) for machine in ("x86_64", "aarch64") for tag in ("cp39", PYTHON)]

    status = wheelhouse.wheelhouse(["9.9.8", "9.9.9"], wanted, tmp_path / "out")

    assert status == 0
    assert len(made) == 4
    lines = capsys.readouterr().out.splitlines()
    table = [" ".join(line.split()) for line in lines if line.lstrip().startswith("9.9.")]
    here, other = (
        "tried" if machine == MACHINE else "built only" for machine in ("x86_64", "aarch64")
    )
    assert table == [
        line
        for version, (first, second) in zip(("9.9.8", "9.9.9"), (made[:2], made[2:]))
        for line in (
            f"{version} cp39 x86_64 no stock wheel",
            f"{version} {PYTHON} x86_64 0 {here} {first.name}",
            f"{version} cp39 aarch64 no stock wheel",
            f"{version} {PYTHON} aarch64 0 {other} {second.name}",
        )
    ]
    assert "4 wheels, 0.0 GB" in "\n".join(lines)
    assert lines[-1] == (
        f"pip install --extra-index-url {(tmp_path / 'out' / 'simple').as_uri()} jaxlib"
    )


@pytest.mark.parametrize(
    ("machines", "compiled_first"),
    [(["x86_64"], []), (["x86_64", "aarch64"], [["x86_64", "aarch64"]])],
)
def test_the_libraries_of_several_machines_are_compiled_first(
    machines: list[str],
    compiled_first: list[list[str]],
    made: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[list[str]] = []
    monkeypatch.setattr(portable, "compile_libraries", compiled.append)

    wheelhouse.wheelhouse(["9.9.9"], [target(PYTHON, machine) for machine in machines], tmp_path)

    assert compiled == compiled_first


def test_a_release_without_any_wheel_is_refused(made: list[Path], tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"jaxlib 9\.9\.9, cp39-x86_64: no wheel for cp39"):
        wheelhouse.wheelhouse(["9.9.9"], [target("cp39", "x86_64")], tmp_path)
