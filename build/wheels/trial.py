"""Installs a finished wheel of ours into a scratch environment, and checks that the rule is on.

A wheel may have the right files and still not work. Only importing it shows that.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from machine.environments import environment
from machine.pythons import Interpreter, clean_environment
from paths import STATE
from refusal import Refusal, refusing_os_errors

# With JAXLIB_PJIT_STRICT=1 the import raises what the seam would otherwise only warn about. Our
# pjit is a plain C function; jaxlib's own is a nanobind function.
_PROGRAM = """
import types
import jaxlib._jax, jaxlib.pjit
is_ours = isinstance(jaxlib._jax.pjit, types.BuiltinFunctionType)
print("on" if is_ours and jaxlib.pjit.physical_out_shardings() else "off")
"""


def try_wheel(wheel: Path, python: Interpreter) -> None:
    """Installs the wheel, imports it, and checks that it says that the rule is on.

    Raises:
      Refusal: it does not install, does not import, or says that the rule is off.
    """
    with refusing_os_errors(f"write to {STATE}"):
        STATE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=STATE, prefix="trial-") as folder:
            inside = environment(Path(folder) / "trial", python, [wheel], cached=False)
            answer = subprocess.run(
                [str(inside), "-c", _PROGRAM],
                cwd=folder,
                env=clean_environment() | {"JAXLIB_PJIT_STRICT": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
    if answer.stdout.strip() != "on":
        last = (answer.stderr.strip().splitlines() or ["it says that the rule is off"])[-1]
        raise Refusal(f"{wheel.name}: was installed on trial and does not work: {last}")
