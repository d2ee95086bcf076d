"""What nvidia-smi says of a node, and the nodes that are refused in one line."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import pytest

import arguments
import gpu_stand_ins
from machine import gpu_node, nvidia_smi, pythons
from refusal import Refusal

THIS = pythons.examine(sys.executable)
A100 = {"name": "NVIDIA A100-SXM4-80GB", "driver_version": "580.82.07", "compute_cap": "8.0",
        "mig.mode.current": "Disabled"}  # fmt: skip
OLD_DRIVER = {"driver_version": "470.82.01"}
V100_OF_TODAY = {"driver_version": "580.82.07"}
SPLIT = A100 | {"mig.mode.current": "Enabled"}


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Makes a stand-in for nvidia-smi answer for the machine, with no variable that hides GPUs."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in gpu_stand_ins.nvidia_smi(tmp_path, [{}, {}]).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return monkeypatch


def gpus_are(found: pytest.MonkeyPatch, *gpus: dict[str, str]) -> None:
    found.setenv("STAND_IN_GPUS", gpu_stand_ins.as_json(gpus))


def test_all_gpus_are_used_with_cuda_12(found: pytest.MonkeyPatch) -> None:
    node = gpu_node.examine(THIS)

    assert node.title == "2 x Tesla V100-SXM2-16GB, driver 535.183.06, CUDA 12"


def test_old_gpus_get_the_last_cudnn_that_has_code_for_them(found: pytest.MonkeyPatch) -> None:
    node = gpu_node.examine(THIS)

    assert node.requirements("0.10.2") == [
        "jax[cuda12]==0.10.2", "nvidia-cudnn-cu12>=9.10.1,<9.11"
    ]  # fmt: skip


def test_newer_gpus_get_what_jax_asks_for(found: pytest.MonkeyPatch) -> None:
    gpus_are(found, A100)

    assert gpu_node.examine(THIS, cuda=13).requirements("0.10.2") == ["jax[cuda13]==0.10.2"]


def test_a_process_sees_as_many_gpus_as_were_asked_for(found: pytest.MonkeyPatch) -> None:
    node = gpu_node.examine(THIS)

    assert node.settings(1) == {
        "JAX_PLATFORMS": "cuda",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "0",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        ("1", ("1",)),
        ("1,0", ("1", "0")),
        ("GPU-00000001", ("GPU-00000001",)),
        ("0,7,1", ("0",)),  # as CUDA does: a wrong name ends the list
        ("0,0", ("0",)),
    ],
)
def test_only_gpus_that_are_visible_are_used(
    visible: str, names: tuple[str, ...], found: pytest.MonkeyPatch
) -> None:
    found.setenv("CUDA_VISIBLE_DEVICES", visible)

    assert gpu_node.examine(THIS).names == names


def test_of_a_split_gpu_one_instance_is_used(found: pytest.MonkeyPatch) -> None:
    gpus_are(found, SPLIT, SPLIT)

    assert gpu_node.examine(THIS).names == ("0",)


REFUSED = (
    # The GPUs of the node, --devices, --cuda, and a part of the error's one line.
    ([], None, None, "finds no GPU here (nvidia-smi lists none); use --platform cpu"),
    ([OLD_DRIVER], None, None, "driver 470.82.01 is too old for CUDA 12, which needs 525"),
    ([{}], None, 13, "driver 535.183.06 is too old for CUDA 13, which needs 580 or later; "
                     "have it updated; or use --cuda 12"),
    ([V100_OF_TODAY], None, 13, "(Tesla V100-SXM2-16GB) has compute capability 7.0, CUDA 13 needs "
                                "7.5; use --cuda 12"),
    ([{"compute_cap": "3.7"}], None, None, "compute capability 3.7, CUDA 12 needs 5.2; "
                                        "use another node"),
    ([{}, {}], 3, None, "--devices 3: this node has 2 GPU(s) to use; give fewer"),
    ([{}], 0, None, "--devices 0: give 1 or more"),
    ([SPLIT], 2, None, "this node has 1 GPU(s) to use: MIG is on"),
    ([{"compute_mode": "Exclusive_Process"}], None, None, "compute mode Exclusive_Process"),
    ([{"driver_version": "[N/A]"}], None, None, "driver [N/A] is too old"),
    ([{"compute_cap": "[N/A]"}], None, None, "finds no GPU here (nvidia-smi gives '[N/A]' as a"),
)  # fmt: skip


@pytest.mark.parametrize(("gpus", "devices", "cuda", "says"), REFUSED, ids=[r[3] for r in REFUSED])
def test_an_unfit_node_is_refused_in_one_line(
    gpus: list[dict[str, str]],
    devices: int | None,
    cuda: int | None,
    says: str,
    found: pytest.MonkeyPatch,
) -> None:
    gpus_are(found, *gpus)

    with pytest.raises(Refusal) as refused:
        gpu_node.examine(THIS, devices, cuda)

    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_driver_that_does_not_answer_is_quoted(found: pytest.MonkeyPatch) -> None:
    found.setenv("STAND_IN_SAYS", "NVIDIA-SMI has failed.")

    with pytest.raises(Refusal, match="nvidia-smi says: NVIDIA-SMI has failed"):
        gpu_node.examine(THIS)


def test_a_machine_without_nvidia_smi_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    with pytest.raises(Refusal, match="there is no nvidia-smi"):
        gpu_node.examine(THIS)


def test_hidden_gpus_are_told_apart_from_none(found: pytest.MonkeyPatch) -> None:
    found.setenv("CUDA_VISIBLE_DEVICES", "")

    with pytest.raises(Refusal, match="names none of the 2 GPUs here; unset it"):
        gpu_node.examine(THIS)


def test_a_release_without_a_plugin_for_cuda_13_is_refused(found: pytest.MonkeyPatch) -> None:
    gpus_are(found, A100)

    with pytest.raises(Refusal, match=r"jax supports it from 0\.7\.2 on, not in 0\.6\.2"):
        gpu_node.examine(THIS, cuda=13).requirements("0.6.2")


@pytest.mark.parametrize("option", ["cuda", "devices"])
def test_an_option_for_gpus_is_refused_on_the_cpu(option: str) -> None:
    options = argparse.Namespace(**{"platform": "cpu", "cuda": None, "devices": None, option: 12})

    with pytest.raises(Refusal, match=f"--{option} 12: needs --platform gpu"):
        arguments.gpu_node(options, THIS)


def test_what_a_gpu_does_not_report_is_left_out(found: pytest.MonkeyPatch) -> None:
    gpus_are(found, {"power.draw": "[N/A]"})

    (reading,) = nvidia_smi.readings()

    assert (reading["power.draw"], reading["clocks.sm"]) == (None, 1290)


def test_other_tenants_are_counted(found: pytest.MonkeyPatch) -> None:
    found.setenv("STAND_IN_TENANTS", "4711,4712")

    assert nvidia_smi.processes() == {4711, 4712}


def test_a_jax_that_finds_no_gpu_is_refused_in_one_line(found: pytest.MonkeyPatch) -> None:
    node = gpu_node.examine(THIS)

    with pytest.raises(Refusal, match="finds no GPU, nvidia-smi 2: ") as refused:
        gpu_node.check_environment(Path(sys.executable), node)

    assert "\n" not in str(refused.value)
