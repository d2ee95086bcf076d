"""Finds the platform tag of our wheel, by auditwheel's policies."""

from __future__ import annotations

import multiprocessing
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from auditwheel.libc import Libc
from auditwheel.policy import WheelPolicies
from auditwheel.wheel_abi import analyze_wheel_abi
from wheel.wheelfile import WheelFile

from machine.targets import Target
from refusal import Refusal
from wheels.seam import JAX, LIBRARY, PJIT, Extensions


def newest_platform(stock: set[str], extensions: Extensions, target: Target) -> str:
    """The newer platform, which needs more, of the stock wheel's and our extensions'.

    Args:
      stock: the platform tags of the stock wheel, all of which name one platform.

    Raises:
      Refusal: auditwheel knows none of the stock wheel's platforms.
    """
    ours, policies = audited(extensions, target)
    priorities = [policy.priority for policy in policies if stock & {policy.name, *policy.aliases}]
    if not priorities:
        raise Refusal(f"platform tag {'.'.join(sorted(stock))}: unknown to auditwheel")
    priority = min(ours, max(priorities))
    (name,) = (policy.name for policy in policies if policy.priority == priority)
    return name


def audited(extensions: Extensions, target: Target) -> tuple[int, WheelPolicies]:
    """The priority of the best policy that both extensions meet, and all policies."""
    # In a process of its own, since auditwheel changes the current folder.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_audit, extensions, target).result()


def _audit(extensions: Extensions, target: Target) -> tuple[int, WheelPolicies]:
    with tempfile.TemporaryDirectory() as folder:
        # auditwheel takes only wheels. One with just our extensions spares it jaxlib's 350 MB.
        wheel = Path(folder) / f"jaxlib-0-{target.tag}-linux_{target.machine}.whl"
        with WheelFile(wheel, "w") as file:
            file.write(str(extensions.jax), JAX)
            file.write(str(extensions.pjit), PJIT)
        audit = analyze_wheel_abi(
            Libc.GLIBC,
            None,
            wheel,
            frozenset({Path(LIBRARY).name}),
            disable_isa_ext_check=False,
            allow_graft=False,
        )
    return audit.overall_policy.priority, audit.policies
