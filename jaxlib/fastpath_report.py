# Copyright 2026 The JAX Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     https://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Runs a program and says what its slow dispatches were, and cost.

  python -m jaxlib.fastpath_report [--json FILE] SCRIPT [ARGUMENT ...]
  python -m jaxlib.fastpath_report [--json FILE] -m MODULE [ARGUMENT ...]

The program runs unchanged, with its own output and exit status. The report goes
to stderr when it ends: a line for each function, the costliest first.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import json
import runpy
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Row(NamedTuple):
  """What the slow dispatches of one function came to."""

  function: str
  defined_at: str
  slow_dispatches: int
  misses: int
  entries: int
  lost_ms: float  # in misses: what stands after the first dispatch
  chief_cause: str
  worst_call: str
  advice: str


def rows(dispatches: list[Any]) -> list[Row]:
  """The report of some `jaxlib.pjit.Dispatch`es, the costliest row first."""
  functions = collections.defaultdict(list)
  for dispatch in dispatches:
    functions[dispatch.function, dispatch.defined_at].append(dispatch)
  found = [_row(*name, of_it) for name, of_it in functions.items()]
  return sorted(found, key=lambda row: -row.lost_ms)


def _row(function: str, defined_at: str, dispatches: list[Any]) -> Row:
  misses = [dispatch for dispatch in dispatches if dispatch.is_miss]
  lost = collections.Counter()
  for miss in misses:
    lost[miss.cause] += miss.seconds
  cause = lost.most_common(1)[0][0] if lost else ""
  worst = max(misses, key=lambda miss: miss.seconds, default=None)
  advice = next((miss.advice for miss in misses if miss.cause == cause), None)
  return Row(
      function,
      defined_at,
      len(dispatches),
      len(misses),
      max(dispatch.entry for dispatch in dispatches),
      1e3 * sum(miss.seconds for miss in misses),
      cause,
      worst.called_from if worst else "",
      advice or "",
  )


def show(report: list[Row]) -> None:
  """Prints the report to stderr."""
  from rich import box, console, table

  shown = table.Table(
      title="Slow dispatches of jitted functions",
      caption="lost: time in misses, the calls after a function's first",
      box=box.SIMPLE_HEAD,
  )
  for name in ("function", "slow", "entries", "lost, ms"):
    shown.add_column(name, justify="left" if name == "function" else "right")
  for name in ("chief cause", "worst call", "to mend it"):
    shown.add_column(name, overflow="fold")
  for row in report:
    shown.add_row(
        f"{row.function}\n{row.defined_at}",
        str(row.slow_dispatches),
        str(row.entries),
        f"{row.lost_ms:.1f}",
        row.chief_cause or "none",
        row.worst_call,
        row.advice,
    )
  console.Console(stderr=True).print(shown, markup=False, highlight=False)


def _program(options: argparse.Namespace) -> Callable[[], Any]:
  """What runs the program as Python itself would."""
  if options.module:
    sys.argv = [options.module, *options.arguments]
    sys.path[0] = str(Path.cwd())
    return lambda: runpy.run_module(
        options.module, run_name="__main__", alter_sys=True
    )
  sys.argv = [options.script, *options.arguments]
  sys.path[0] = str(Path(options.script).absolute().parent)
  script = str(Path(options.script).absolute())
  return lambda: runpy.run_path(script, run_name="__main__")


def _status(error: SystemExit) -> int:
  if error.code is None or isinstance(error.code, int):
    return error.code or 0
  print(error.code, file=sys.stderr)
  return 1


def _is_own(frame: traceback.FrameSummary) -> bool:
  return frame.filename == __file__ or "runpy" in frame.filename


def _run(program: Callable[[], Any]) -> int:
  """Runs the program, and returns the exit status that Python would give."""
  try:
    program()
  except SystemExit as error:
    return _status(error)
  except KeyboardInterrupt:
    traceback.print_exc()
    return 130
  except BaseException as error:  # Python would print it, and so does this
    shown = traceback.TracebackException.from_exception(error)
    own = [_is_own(frame) for frame in shown.stack]
    first = own.index(False) if False in own else 0
    shown.stack = traceback.StackSummary.from_list(shown.stack[first:])
    print("".join(shown.format()), end="", file=sys.stderr)
    return 1
  return 0


def _parse(arguments: list[str]) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
      prog="python -m jaxlib.fastpath_report",
      description="Runs a program and reports its slow jit dispatches.",
      usage="%(prog)s [--json FILE] (SCRIPT | -m MODULE) [ARGUMENT ...]",
  )
  parser.add_argument("--json", metavar="FILE", help="write the report there")
  parser.add_argument("-m", dest="module", metavar="MODULE")
  parser.add_argument("rest", nargs=argparse.REMAINDER)
  options = parser.parse_args(arguments)
  options.script, options.arguments = None, options.rest
  # The program may go to another folder.
  options.json = options.json and str(Path(options.json).absolute())
  if not options.module:
    if not options.rest:
      parser.error("name a script, or a module with -m")
    options.script, *options.arguments = options.rest
    if not Path(options.script).is_file():
      parser.error(f"{options.script}: not found; name a script to run")
  return options


def _check(options: argparse.Namespace) -> str | None:
  """What stands in the way of the report, before the program runs."""
  if importlib.util.find_spec("rich") is None:
    return "the report needs rich: pip install rich"
  if options.json:
    try:
      Path(options.json).touch()
    except OSError as error:
      return f"{options.json}: {error.strerror}; name a file to write"
  return None


def main(arguments: list[str]) -> int:
  """Runs the command line and returns the program's exit status."""
  options = _parse(arguments)
  problem = _check(options)
  if problem is not None:
    print(f"fastpath_report: {problem}", file=sys.stderr)
    return 2
  import jaxlib.pjit

  with jaxlib.pjit.dispatches() as found:
    status = _run(_program(options))
  sys.stdout.flush()
  report = rows(found)
  show(report)
  if options.json:
    text = json.dumps([row._asdict() for row in report], indent=2)
    Path(options.json).write_text(text + "\n")
  return status


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
