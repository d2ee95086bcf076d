"""The seam: where our two extensions attach to a stock jaxlib, and the files that we add."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO, NamedTuple

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from refusal import Refusal

JAX = "jaxlib/_jax.so"  # replaced
PJIT = "jaxlib/_pjit.so"  # added
MODULES = {  # added: the name in the wheel, and the file in this repository
    "jaxlib/_fastpath_ahead.py": "jaxlib/explanation/ahead.py",
    "jaxlib/_fastpath_call.py": "jaxlib/explanation/call.py",
    "jaxlib/_fastpath_compilations.py": "jaxlib/explanation/compilations.py",
    "jaxlib/_fastpath_difference.py": "jaxlib/explanation/difference.py",
    "jaxlib/_fastpath_dispatch.py": "jaxlib/explanation/dispatch.py",
    "jaxlib/_fastpath_equinox.py": "jaxlib/explanation/equinox.py",
    "jaxlib/_fastpath_explain.py": "jaxlib/explanation/explain.py",
    "jaxlib/_fastpath_history.py": "jaxlib/explanation/history.py",
    "jaxlib/_fastpath_lineage.py": "jaxlib/explanation/lineage.py",
    "jaxlib/_fastpath_locks.py": "jaxlib/explanation/locks.py",
    "jaxlib/_fastpath_nnx.py": "jaxlib/explanation/nnx.py",
    "jaxlib/_fastpath_origin.py": "jaxlib/explanation/origin.py",
    "jaxlib/_fastpath_pytest.py": "jaxlib/explanation/pytest_plugin.py",
    "jaxlib/_fastpath_remedy.py": "jaxlib/explanation/remedy.py",
    "jaxlib/_fastpath_report_page.html": "jaxlib/report/page.html",
    "jaxlib/_fastpath_report_page.py": "jaxlib/report/page.py",
    "jaxlib/_fastpath_report_program.py": "jaxlib/report/program.py",
    "jaxlib/_fastpath_report_rows.py": "jaxlib/report/rows.py",
    "jaxlib/_fastpath_report_text.py": "jaxlib/report/text.py",
    "jaxlib/_fastpath_report_timeline.py": "jaxlib/report/timeline.py",
    "jaxlib/_fastpath_signature.py": "jaxlib/explanation/signature.py",
    "jaxlib/_fastpath_structure.py": "jaxlib/explanation/structure.py",
    "jaxlib/_fastpath_summary.py": "jaxlib/explanation/summary.py",
    "jaxlib/_fastpath_telemetry.py": "jaxlib/explanation/telemetry.py",
    "jaxlib/_fastpath_text.py": "jaxlib/explanation/text.py",
    "jaxlib/_fastpath_value.py": "jaxlib/explanation/value.py",
    "jaxlib/_fastpath_value_difference.py": "jaxlib/explanation/value_difference.py",
    "jaxlib/fastpath_report.py": "jaxlib/fastpath_report.py",
    "jaxlib/pjit.py": "jaxlib/pjit.py",
}
ENTRY_POINTS = "[pytest11]\nfastpath = jaxlib._fastpath_pytest\n"
LIBRARY = "jaxlib/libjax_common.so"  # untouched: our _jax.so calls into it
SYMBOL = "Wrapped_PyInit__jax"
LOCAL_LABEL = "physical1"

# pyelftools also raises the others, if the tables that it follows are broken.
BROKEN_ELF = (
    ELFError,
    AttributeError,
    IndexError,
    KeyError,
    OverflowError,
    TypeError,
    ValueError,
    struct.error,
)


class Extensions(NamedTuple):
    """Our two extensions, built for one Python."""

    jax: Path
    pjit: Path


def check_library(library: BinaryIO, where: str) -> None:
    """Looks in a libjax_common.so, a seekable stream, for the symbol that our _jax.so calls.

    Raises:
      Refusal: it is not a shared library, or does not define the symbol. `where` names it.
    """
    try:
        found = SYMBOL in _defined(ELFFile(library))
    except BROKEN_ELF as error:
        raise Refusal(f"{where}: is not a readable shared library; get the wheel again") from error
    if not found:
        raise Refusal(f"{where}: has no symbol {SYMBOL} to attach to; use another jaxlib release")


def _defined(elf: ELFFile) -> set[str]:
    # Only the dynamic table: the other symbol table of jaxlib's 350 MB library has 700,000 symbols.
    return {
        symbol.name
        for segment in elf.iter_segments("PT_DYNAMIC")
        for symbol in segment.iter_symbols()
        if symbol["st_shndx"] != "SHN_UNDEF"
    }


def no_library(where: str) -> Refusal:
    """The error for a jaxlib without libjax_common.so."""
    return Refusal(f"{where}: has no {LIBRARY} to attach to; use jaxlib 0.6.1 or later")
