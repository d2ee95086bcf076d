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
"""Runs a program and says what its slow dispatches and compilations cost.

  python -m jaxlib.fastpath_report [OPTIONS] SCRIPT [ARGUMENT ...]
  python -m jaxlib.fastpath_report [OPTIONS] -m MODULE [ARGUMENT ...]

The program runs unchanged, with its own output and exit status. The report goes
to stderr when its threads and its exit handlers have ended: a line for each
function, the costliest first. `--json FILE` writes the same as JSON.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from jaxlib import _fastpath_report_program as program
from jaxlib import _fastpath_report_text as text
from jaxlib._fastpath_report_rows import Report


def _as_json(report: Report) -> str:
  rows = {
      "functions": [
          {**row._asdict(), "causes": [c._asdict() for c in row.causes]}
          for row in report.rows()
      ],
      "compilations": [
          {**row._asdict(), "causes": [c._asdict() for c in row.causes]}
          for row in report.beside()
      ],
  }
  return json.dumps(rows, indent=2) + "\n"


def _write(file: str, content: str) -> None:
  try:
    Path(file).write_text(content)
  except OSError as error:
    print(f"fastpath_report: {file}: {error.strerror}", file=sys.stderr)


class _Run:
  """A run of the program, from which the report is made when Python exits."""

  def __init__(self, json_file: str | None) -> None:
    import jaxlib.pjit

    self._json_file = json_file
    self._pid = os.getpid()
    self._is_interrupted = False
    self._collecting = contextlib.ExitStack()
    self._report = report = Report()
    self._collecting.enter_context(
        jaxlib.pjit.listening(report.add, report.add_compilation)
    )
    # Before any exit handler of the program's, so this one runs after them.
    atexit.register(self._end)

  def run(self, to_run: Callable[[], None]) -> None:
    """Runs the program. Python is to see what it raises, and end as it says."""
    try:
      to_run()
    except SystemExit:
      raise
    except BaseException as error:
      self._is_interrupted = type(error) is KeyboardInterrupt
      program.strip_when_shown(error)
      raise

  def _end(self) -> None:
    if os.getpid() != self._pid:  # the program forked
      return
    self._collecting.close()
    # The program's output comes first. If it cannot be written, Python tells.
    with contextlib.suppress(Exception):
      sys.stdout.flush()
    if self._json_file:
      _write(self._json_file, _as_json(self._report))
    with contextlib.suppress(Exception):  # the program may have closed it
      width = text.width_of(sys.stderr)
      rows, beside = self._report.rows(), self._report.beside()
      sys.stderr.write(text.text(rows, beside, width))
    if self._is_interrupted:
      program.interrupt_again()


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
  options.script = None
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
  run = _Run(options.json)
  run.run(program.to_run(options.script, options.module, options.arguments))


if __name__ == "__main__":
  main(sys.argv[1:])
