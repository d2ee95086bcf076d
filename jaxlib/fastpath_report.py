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
to stderr when its threads and its exit handlers have ended: a line for each
function, the costliest first.
"""

from __future__ import annotations

import argparse
import atexit
import builtins
import collections
import contextlib
import importlib.machinery
import importlib.util
import json
import os
import pkgutil
import runpy
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

JIT_ONCE = "if they are one, call jax.jit once, outside the loop"
TITLE = "Slow dispatches of jitted functions"
_ANEW = "jitted anew: {} functions from one place"


class Row(NamedTuple):
  """What the slow dispatches of the functions of one place came to."""

  function: str
  defined_at: str
  functions: int
  slow_dispatches: int
  misses: int  # of each function: its dispatches after its first
  entries: int  # of the function that has most
  lost_ms: float  # in all but the first dispatch of the place
  chief_cause: str
  worst_call: str
  advice: str


class _Place:
  """What is known of the functions of one name and place, so far."""

  def __init__(self) -> None:
    self.functions: set[int] = set()
    self.first = 0
    self.slow_dispatches = self.misses = self.entries = 0
    self.lost = collections.Counter()  # seconds, by cause
    self.advice: dict[str, str | None] = {}
    self.worst_s, self.worst_call = 0.0, ""

  def add(self, dispatch: Any) -> None:
    if not self.functions:
      self.first = dispatch.function_number
    self.functions.add(dispatch.function_number)
    self.slow_dispatches += 1
    self.misses += dispatch.is_miss
    self.entries = max(self.entries, dispatch.entry)
    if dispatch.is_miss:
      self._lose(dispatch, dispatch.cause, dispatch.advice)
    elif dispatch.function_number != self.first:
      self._lose(dispatch, _ANEW, JIT_ONCE)

  def _lose(self, dispatch: Any, cause: str, advice: str | None) -> None:
    self.lost[cause] += dispatch.seconds
    self.advice.setdefault(cause, advice)
    if dispatch.seconds > self.worst_s:
      self.worst_s, self.worst_call = dispatch.seconds, dispatch.called_from

  def row(self, function: str, defined_at: str) -> Row:
    cause = self.lost.most_common(1)[0][0] if self.lost else ""
    return Row(
        function,
        defined_at,
        len(self.functions),
        self.slow_dispatches,
        self.misses,
        self.entries,
        1e3 * sum(self.lost.values()),
        cause.format(len(self.functions)),
        self.worst_call,
        self.advice.get(cause) or "",
    )


class Report:
  """Adds up dispatches, of any thread, and keeps none."""

  def __init__(self) -> None:
    self._lock = threading.Lock()
    self._places = collections.defaultdict(_Place)

  def add(self, dispatch: Any) -> None:
    with self._lock:
      self._places[dispatch.function, dispatch.defined_at].add(dispatch)

  def rows(self) -> list[Row]:
    """A row for each place, the costliest first."""
    with self._lock:
      found = [place.row(*name) for name, place in self._places.items()]
    return sorted(found, key=lambda row: -row.lost_ms)


def show(report: list[Row]) -> None:
  """Prints the report to stderr."""
  from rich import box, console, table

  shown = table.Table(
      title=TITLE,
      caption="lost: time in all but the first dispatch of a place",
      box=box.SIMPLE_HEAD,
      padding=(0, 1, 0, 0),
      pad_edge=False,
  )
  # Numbers keep their width. Texts and paths are folded where they must be.
  shown.add_column("function", overflow="fold")
  for name in ("functions", "slow", "entries", "lost, ms"):
    shown.add_column(name, justify="right", no_wrap=True)
  for name in ("chief cause", "worst call"):
    shown.add_column(name, overflow="fold")
  for row in report:
    shown.add_row(
        f"{row.function}\n{row.defined_at}",
        str(row.functions),
        str(row.slow_dispatches),
        str(row.entries),
        f"{row.lost_ms:.1f}",
        row.chief_cause or "none",
        row.worst_call,
    )
  to_stderr = console.Console(stderr=True, markup=False, highlight=False)
  if not report:
    to_stderr.print(f"{TITLE}: none")
    return
  to_stderr.print(shown)
  for row in report:
    if row.advice:  # in a line of its own, to be copied from
      to_stderr.print(f"To mend {row.function}: {row.advice}", soft_wrap=True)


def _program(options: argparse.Namespace) -> Callable[[], None]:
  """What runs the program as Python itself would."""
  # Not runpy's public functions: they take `__main__` and `sys.argv` back when
  # the program's text ends, and its threads and exit handlers may use them.
  main = sys.modules["__main__"] = types.ModuleType("__main__")
  main.__builtins__ = builtins
  main.__annotations__ = {}
  if options.module:
    sys.argv = ["-m", *options.arguments]
    return lambda: runpy._run_module_as_main(options.module)
  sys.argv = [options.script, *options.arguments]
  return _script(main, str(Path(options.script).absolute()))


def _script(main: types.ModuleType, path: str) -> Callable[[], None]:
  # With safe_path, Python did not put the folder of this `-m` there.
  is_safe = getattr(sys.flags, "safe_path", sys.flags.isolated)
  if not is_safe:
    del sys.path[0]
  if pkgutil.get_importer(path) is not None:  # a folder or a zip file
    sys.path.insert(0, path)
    return lambda: runpy._run_module_as_main("__main__", alter_argv=False)
  if not is_safe:
    sys.path.insert(0, str(Path(path).resolve().parent))
  return lambda: _run_file(main, path)


def _run_file(main: types.ModuleType, path: str) -> None:
  main.__file__, main.__cached__ = path, None
  if path.endswith(".pyc"):
    loader = importlib.machinery.SourcelessFileLoader("__main__", path)
    code = loader.get_code("__main__")
  else:
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    # The loader's own way would leave a file in `__pycache__`.
    code = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
  main.__loader__ = loader
  exec(code, main.__dict__)


def _strip(error: BaseException) -> None:
  """Takes the frames of this module off the start of an error's traceback."""
  frames = error.__traceback__
  while frames is not None and frames.tb_frame.f_globals is globals():
    frames = frames.tb_next
  error.__traceback__ = frames


def _strip_when_shown(error: BaseException) -> None:
  """Has Python show an error as if the program had been run by itself.

  The frames that are under the program's, from Python's `-m` to here, are added
  on the way out. So they are taken off where the error gets to the hook.
  """
  _strip(error)
  frames = error.__traceback__
  hook = sys.excepthook

  def show_stripped(
      kind: type[BaseException],
      value: BaseException,
      whole: types.TracebackType | None,
  ) -> None:
    del whole
    sys.excepthook = hook
    sys.last_traceback = value.__traceback__ = frames
    try:
      hook(kind, value, frames)
    except BaseException as error:  # Python shows that, too
      _strip(error)
      raise

  sys.excepthook = show_stripped


def _write(report: list[Row], file: str) -> None:
  text = json.dumps([row._asdict() for row in report], indent=2)
  try:
    Path(file).write_text(text + "\n")
  except OSError as error:
    print(f"fastpath_report: {file}: {error.strerror}", file=sys.stderr)


class _Run:
  """A run of the program, from which the report is made when Python exits."""

  def __init__(self, file: str | None) -> None:
    import jaxlib.pjit

    self._file = file
    self._pid = os.getpid()
    self._is_interrupted = False
    self._collecting = contextlib.ExitStack()
    self._report = Report()
    self._collecting.enter_context(jaxlib.pjit.listening(self._report.add))
    # Before any exit handler of the program's, so this one runs after them.
    atexit.register(self._end)

  def run(self, program: Callable[[], None]) -> None:
    """Runs the program. Python is to see what it raises, and end as it says."""
    try:
      program()
    except SystemExit:
      raise
    except BaseException as error:
      self._is_interrupted = type(error) is KeyboardInterrupt
      _strip_when_shown(error)
      raise

  def _end(self) -> None:
    if os.getpid() != self._pid:  # the program forked
      return
    self._collecting.close()
    # The program's output comes first. If it can not be written, Python tells.
    with contextlib.suppress(Exception):
      sys.stdout.flush()
    report = self._report.rows()
    if self._file:
      _write(report, self._file)
    try:
      show(report)
    except ImportError as error:  # the program has a rich of its own
      print(f"fastpath_report: no table: {error}", file=sys.stderr)
    if self._is_interrupted:
      _interrupt_again()


def _interrupt_again() -> None:
  """Has Python end by SIGINT, which it forgets at each `exec` of a text.

  Importing rich has some.
  """
  with contextlib.suppress(KeyboardInterrupt):
    exec("raise KeyboardInterrupt")


def _parse(arguments: list[str]) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
      prog="python -m jaxlib.fastpath_report",
      description="Runs a program and reports its slow jit dispatches.",
      usage="%(prog)s [--json FILE] (SCRIPT | -m MODULE) [ARGUMENT ...]",
      allow_abbrev=False,
  )
  parser.add_argument("--json", metavar="FILE", help="write the report there")
  # Whatever comes after the module or the script is the program's.
  rest = argparse.REMAINDER
  parser.add_argument("-m", dest="module", metavar="MODULE", nargs=rest)
  parser.add_argument("rest", nargs=rest)
  options = parser.parse_args(arguments)
  if options.module is not None:
    if not options.module:
      parser.error("-m: name a module to run")
    options.module, *options.arguments = options.module
  else:
    if not options.rest:
      parser.error("name a script, or a module with -m")
    options.script, *options.arguments = options.rest
    if not Path(options.script).exists():
      parser.error(f"{options.script}: not found; name a script to run")
  # The program may go to another folder.
  options.json = options.json and str(Path(options.json).absolute())
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


def main(arguments: list[str]) -> None:
  """Runs the command line, and ends as the program does."""
  options = _parse(arguments)
  problem = _check(options)
  if problem is not None:
    print(f"fastpath_report: {problem}", file=sys.stderr)
    sys.exit(2)
  _Run(options.json).run(_program(options))


if __name__ == "__main__":
  main(sys.argv[1:])
