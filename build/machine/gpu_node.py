"""Chooses the GPUs to run on and the CUDA for them, before anything is installed.

A fault of the node is reported here in one line, rather than later in a plugin's traceback.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from machine import nvidia_smi
from machine.nvidia_smi import Features, Gpu
from machine.pythons import Interpreter, clean_environment
from refusal import Refusal

# From JAX's installation page: the oldest driver, and the lowest compute capability.
_NEEDS = {12: (525, (5, 2)), 13: (580, (7, 5))}
CUDAS = tuple(_NEEDS)
_DEFAULT = 12  # every GPU that JAX supports can use it
_FIRST_WITH_CUDA_13 = (0, 7, 2)
# cuDNN after 9.10 has no code for older GPUs. On several GPUs, JAX refuses one before 9.10.1.
_OLDEST_WITH_NEW_CUDNN = (7, 5)
_CUDNN_OF_OLD_GPUS = "nvidia-cudnn-cu12>=9.10.1,<9.11"
_PLUGINS = "from importlib.metadata import distributions as d; print(*[x.name for x in d()])"
# Without the device files of a GPU, JAX fails with a bare assertion.
_PROBE = """
import jax
try:
    print(len(jax.devices("cuda")))
except AssertionError:
    raise SystemExit("it sees no device file such as /dev/nvidia0; start a container with its GPUs")
"""


class Node(NamedTuple):
    """The GPUs to use, and how."""

    gpus: tuple[Gpu, ...]
    names: tuple[str, ...]  # the same GPUs, as CUDA_VISIBLE_DEVICES names them
    capability: tuple[int, int]  # the lowest
    cuda: int

    @property
    def kind(self) -> str:
        """The name that environments for these GPUs have in common."""
        old = "-volta" if self.capability < _OLDEST_WITH_NEW_CUDNN else ""
        return f"cuda{self.cuda}{old}"

    @property
    def title(self) -> str:
        """The GPUs in words, such as `2 x Tesla V100-SXM2-16GB, driver 535.54, CUDA 12`."""
        names = [gpu.name for gpu in self.gpus]
        counts = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
        return f"{counts}, driver {self.gpus[0].driver}, CUDA {self.cuda}"

    def requirements(self, jax_version: str) -> list[str]:
        """What to install beside a jaxlib.

        Raises:
          Refusal: the release has no plugin for this CUDA.
        """
        if self.cuda == 13 and tuple(map(int, jax_version.split(".")[:3])) < _FIRST_WITH_CUDA_13:
            first = ".".join(map(str, _FIRST_WITH_CUDA_13))
            raise Refusal(
                f"--cuda 13: jax supports it from {first} on, not in {jax_version}; give 12"
            )
        old = self.capability < _OLDEST_WITH_NEW_CUDNN
        return [f"jax[cuda{self.cuda}]=={jax_version}", *([_CUDNN_OF_OLD_GPUS] if old else [])]

    def settings(self, count: int | None = None) -> dict[str, str]:
        """The environment of a process that uses the first `count` GPUs, or all of them."""
        return {
            "JAX_PLATFORMS": "cuda",
            "CUDA_DEVICE_ORDER": os.environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
            "CUDA_VISIBLE_DEVICES": ",".join(self.names[:count]),
            # Several processes share a GPU here: none may take all of its memory.
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        }


def examine(python: Interpreter, devices: int | None = None, cuda: int | None = None) -> Node:
    """Looks at this node's GPUs, and chooses those to use.

    Args:
      python: if it has JAX's plugin for CUDA 13 installed, CUDA 13 is the default.
      devices: how many GPUs to use; None for all that CUDA_VISIBLE_DEVICES leaves.
      cuda: 12 or 13; None for the default.

    Raises:
      Refusal: the node cannot be used in that way.
    """
    if devices is not None and devices < 1:
        raise Refusal(f"--devices {devices}: give 1 or more")
    cuda = cuda or (13 if "jax-cuda13-plugin" in _packages(python) else _DEFAULT)
    try:
        gpus = nvidia_smi.gpus()
        if not gpus:
            raise nvidia_smi.NoAnswer("nvidia-smi lists none")
        _check_driver(gpus[0], cuda)
        features = nvidia_smi.features()
    except nvidia_smi.NoAnswer as error:
        raise Refusal(
            f"--platform gpu: finds no GPU here ({error}); use --platform cpu, or a node with GPUs"
        ) from error
    names = _visible(gpus)
    if not names:
        hidden = os.environ["CUDA_VISIBLE_DEVICES"]
        raise Refusal(
            f"CUDA_VISIBLE_DEVICES={hidden}: names none of the {len(gpus)} GPUs here; unset it"
        )
    chosen = _chosen(list(names), [features[index] for index in names.values()], devices)
    used = [names[name] for name in chosen]
    for index in used:
        _check(gpus[index], features[index], cuda)
    return Node(
        tuple(gpus[index] for index in used),
        tuple(chosen),
        min(features[index].capability for index in used),
        cuda,
    )


def check_environment(python: Path, node: Node, more: dict[str, str] | None = None) -> None:
    """Checks that the JAX of an environment finds the GPUs.

    Args:
      more: environment variables to set beside the node's own.

    Raises:
      Refusal: it does not find all of them.
    """
    done = subprocess.run(
        [str(python), "-c", _PROBE],
        cwd=python.parent,  # from where Python cannot import a folder of the repository
        env=clean_environment() | node.settings() | (more or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["it said nothing"]
        raise Refusal(
            f"JAX in {python.parent.parent} finds no GPU, nvidia-smi {len(node.gpus)}: {said[-1]} "
            f"(to see more: JAX_PLATFORMS=cuda {python} -c 'import jax; jax.devices()')"
        )
    found = int(done.stdout.split()[-1])
    if found != len(node.gpus):
        raise Refusal(
            f"JAX in {python.parent.parent} finds {found} of {len(node.gpus)} GPUs; "
            "give --devices, or CUDA_VISIBLE_DEVICES with those that work"
        )


def rehearsal(device_kind: str) -> str:
    """What to print beside a result of devices that are CPUs, whatever their platform is called."""
    return "" if device_kind.lower() != "cpu" else " (a rehearsal: these devices are CPUs)"


def _visible(gpus: Sequence[Gpu]) -> dict[str, int]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves: the name of each, and its place in `gpus`.

    As in CUDA, a name that no GPU has ends the list, and a repeated one counts once.
    """
    if "CUDA_VISIBLE_DEVICES" not in os.environ:
        return {str(gpu.index): place for place, gpu in enumerate(gpus)}
    found: dict[str, int] = {}
    for name in os.environ["CUDA_VISIBLE_DEVICES"].split(","):
        place = _place(name.strip(), gpus)
        if place is None:
            break
        if name.startswith("MIG-") or place not in found.values():
            found[name.strip()] = place
    return found


def _place(name: str, gpus: Sequence[Gpu]) -> int | None:
    for place, gpu in enumerate(gpus):
        is_it = name == str(gpu.index) or (name.startswith("GPU-") and gpu.uuid.startswith(name))
        # An old driver's name of a MIG instance contains its GPU's; a new driver's does not.
        if is_it or name.startswith(f"MIG-{gpu.uuid}/") or (name.startswith("MIG-") and place == 0):
            return place
    return None


def _chosen(names: list[str], features: list[Features], devices: int | None) -> list[str]:
    """The names of the GPUs to use.

    Raises:
      Refusal: there are fewer than `devices`.
    """
    split = any(each.is_split for each in features)
    usable = 1 if split else len(names)
    if devices is not None and devices > usable:
        why = ": MIG is on, and a process sees one instance" if split else ""
        raise Refusal(f"--devices {devices}: this node has {usable} GPU(s) to use{why}; give fewer")
    return names[: devices or usable]


def _check_driver(gpu: Gpu, cuda: int) -> None:
    oldest, _ = _NEEDS[cuda]
    major = gpu.driver.partition(".")[0]
    if not major.isdigit() or int(major) < oldest:
        advice = "; or use --cuda 12" if cuda > 12 and major.isdigit() and int(major) >= 525 else ""
        raise Refusal(
            f"--platform gpu: driver {gpu.driver} is too old for CUDA {cuda}, which needs {oldest} "
            f"or later; have it updated{advice}"
        )


def _check(gpu: Gpu, features: Features, cuda: int) -> None:
    _, lowest = _NEEDS[cuda]
    if features.capability < lowest:
        shown, least = ("{}.{}".format(*each) for each in (features.capability, lowest))
        can_twelve = cuda > 12 and features.capability >= _NEEDS[12][1]
        raise Refusal(
            f"--platform gpu: GPU {gpu.index} ({gpu.name}) has compute capability {shown}, CUDA "
            f"{cuda} needs {least}; use {'--cuda 12' if can_twelve else 'another node'}"
        )
    if features.compute_mode != "Default":
        raise Refusal(
            f"--platform gpu: GPU {gpu.index} ({gpu.name}) is in compute mode "
            f"{features.compute_mode}, but several processes have to share it; "
            "use another GPU, or run nvidia-smi --compute-mode=DEFAULT as root"
        )


def _packages(python: Interpreter) -> list[str]:
    done = subprocess.run(
        [str(python.path), "-c", _PLUGINS],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.split()
