"""The commands for a GPU node from end to end, with stand-ins instead of GPUs.

A clone and a finished wheel are copied to a "node" without network, as docs/gpu.md says, and the
scripts of that page run there. There are stand-ins for nvidia-smi, the batch system, the container
and JAX's CUDA plugin, which serves CPU devices. pip, uv, jax, jaxlib and our wheel are real.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import gpu_stand_ins
from machine.pythons import clean_environment
from paths import ROOT

REHEARSAL = "2 x Tesla V100-SXM2-16GB, driver 535.183.06, CUDA 12"
CPUS = "(a rehearsal: these devices are CPUs)"
NOT_CARRIED = shutil.ignore_patterns(".build", ".git", "bazel-*", "dist", "__pycache__", "*.lock")
# A few of the rows, since all of them would take minutes.
ROWS = "-k 'matrix and threefry2x32 or deleted or in_every or all_gpus'"
# The programs of a batch system and a container. They run the command that they get.
PROGRAMS = {
    "srun": 'exec "$@"',
    "apptainer": 'while [ "$1" != image.sif ]; do shift; done; shift; exec "$@"',
}


class Node(NamedTuple):
    """A copied clone, its settings, and our wheel."""

    clone: Path
    carried: Path
    wheel: Path
    programs: Path
    settings: dict[str, str]

    def run(self, *command: str | Path, **settings: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            [str(part) for part in command],
            cwd=self.clone,
            env=clean_environment()
            | {"PATH": path, "PYTHON": sys.executable}
            | self.settings
            | settings,
            capture_output=True,
            text=True,
            check=False,
        )

    def build_py(self, *arguments: str | Path, **settings: str) -> subprocess.CompletedProcess[str]:
        wheels = ("--wheel", self.wheel, "--find-links", self.carried)
        command = [sys.executable, "build/build.py", arguments[0], "--platform", "gpu", *wheels]
        return self.run(*command, *arguments[1:], **settings)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    if not os.environ.get("PJIT_WHEEL"):
        pytest.skip("PJIT_WHEEL names no wheel of ours")
    wheel = Path(os.environ["PJIT_WHEEL"])
    version = wheel.name.split("-")[1].partition("+")[0]
    folder = tmp_path_factory.mktemp("node")
    clone, carried, programs = folder / "clone", folder / "carried", folder / "bin"
    shutil.copytree(ROOT, clone, ignore=NOT_CARRIED)
    settings = gpu_stand_ins.nvidia_smi(programs, [{}, {}])
    for name, body in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    made = Node(clone, carried, wheel, programs, settings)
    done = made.run("sh", "docs/examples/gpu_carry.sh", carried, f"jax=={version}")
    assert done.returncode == 0, done.stderr
    gpu_stand_ins.cuda_plugin(carried, version)
    gpu_stand_ins.cudnn(carried)
    return made


@pytest.fixture(scope="module")
def batch_job(node: Node) -> subprocess.CompletedProcess[str]:
    """The three commands, as a batch system runs them."""
    settings = {"SLURM_SUBMIT_DIR": str(node.clone), "CUDA_VISIBLE_DEVICES": "0,1"}
    script = node.clone / "docs/examples/gpu.sbatch"
    return node.run("bash", script, node.wheel, node.carried, PYTEST_ADDOPTS=ROWS, **settings)


def test_the_three_commands_end_well(batch_job: subprocess.CompletedProcess[str]) -> None:
    assert batch_job.returncode == 0, batch_job.stderr


def test_the_demo_shows_both_tables(batch_job: subprocess.CompletedProcess[str]) -> None:
    assert f"{REHEARSAL} {CPUS}" in batch_job.stdout
    assert "on 2 GPUs (jax" in batch_job.stdout
    assert "on a 2x1 mesh of GPUs" in batch_job.stdout
    assert "left out, since they need more GPUs: float (4,4), x.T" in batch_job.stdout
    assert "Ours reaches the goal in every row. The wheel:" in batch_job.stdout


def test_the_tests_say_which_rows_ran_on_how_many_gpus(
    node: Node, batch_job: subprocess.CompletedProcess[str]
) -> None:
    table = (node.clone / "dist" / "gpu-tests.md").read_text().splitlines()

    assert table[0].startswith(REHEARSAL)
    assert table[0].endswith(CPUS)
    assert table[2] == "| passed / failed / not run | on 1 GPU | on 2 GPUs |"
    assert "| every fed back donated key is deleted | 2 / 0 / 0 | 2 / 0 / 0 |" in table
    assert "| one placement makes one cache entry in every process |  | 12 / 0 / 0 |" in table


def test_the_benchmark_leaves_its_page_and_its_plots(
    node: Node, batch_job: subprocess.CompletedProcess[str]
) -> None:
    out = node.clone / "dist" / "benchmarks"
    page = (out / "summary.md").read_text()

    assert f"> {REHEARSAL} {CPUS}." in page
    assert "* GPUs before: 1290 1290 MHz, 1530 1530 MHz at most, 55 55 W, 300 300 W" in page
    assert "| scalar key, 2 GPUs | stock | 1 1 2 2 2 2 2 2 2 2 |" in page
    assert "| scalar key, 2 GPUs | fixed | 1 1 1 1 1 1 1 1 1 1 |" in page
    assert "in the dispatch, without the wait for its results" in page
    assert {path.name for path in out.glob("*.png")} == {"hit.png", "miss.png", "pause.png"}
    assert "check: all entries and counters are right" in batch_job.stdout


def test_a_benchmark_on_gpus_can_be_compared_with_another(
    node: Node, batch_job: subprocess.CompletedProcess[str]
) -> None:
    results = node.clone / "dist" / "benchmarks" / "results.json"

    done = node.run(sys.executable, "build/build.py", "bench", "--compare", results, results)

    assert done.returncode == 0, done.stderr
    assert "scalar key, 2 GPUs" in done.stdout
    run = json.loads(results.read_text())
    assert run["place"] == {"platform": "gpu", "devices": 2, "found": 2}
    assert "extra, cold, dispatch" in {figure["figure"] for figure in run["figures"]}


def test_a_container_gets_an_overlay_that_is_shown_on_its_gpus(node: Node, tmp_path: Path) -> None:
    script, out = node.clone / "docs/examples/gpu_container.sh", tmp_path / "overlay"
    # The container's python3, with its own jaxlib.
    ours = node.clone / ".build" / "venv"
    (stock,) = [path for path in ours.glob("stock-cuda12*") if path.is_dir()]
    settings = {
        "PATH": os.pathsep.join([str(node.programs), str(stock / "bin"), os.environ["PATH"]])
    }

    done = node.run("sh", script, "image.sif", node.wheel, node.carried, out, **settings)

    assert done.returncode == 0, done.stderr
    assert f"PYTHONPATH={out}\n" in done.stdout
    assert f"Ours reaches the goal in every row. The overlay: {out}" in done.stdout


def test_a_plugin_that_finds_no_gpu_is_refused_in_one_line(node: Node, tmp_path: Path) -> None:
    out = tmp_path / "out"

    done = node.build_py("bench", "--quick", "--out", out, STAND_IN_SAYS_NONE="1")

    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert "finds no GPU, nvidia-smi 2: RuntimeError: Unable to initialize backend 'cuda'" in last
    assert "Traceback" not in done.stderr
    assert list(out.glob("*")) == []


def test_a_node_with_too_few_gpus_is_refused(node: Node) -> None:
    done = node.build_py("demo", "--devices", "3")

    assert done.returncode == 1
    assert done.stderr == "build.py: --devices 3: this node has 2 GPU(s) to use; give fewer\n"


def test_a_test_on_gpus_that_finds_none_fails() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "all_gpus"]
    settings = clean_environment() | {"JAX_PLATFORMS": "cuda", "PJIT_GPUS": "2"}

    done = subprocess.run(
        [*command, "tests/gpu_test.py"], cwd=ROOT, env=settings, capture_output=True, text=True
    )

    assert done.returncode == 1
    assert "2 GPUs were asked for, JAX finds none" in done.stdout
