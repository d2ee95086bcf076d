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
function, the costliest first. `--json FILE` writes the same as JSON, and
`--html FILE` as a page, with a time line.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jaxlib import _fastpath_report_page as page
from jaxlib import _fastpath_report_program as program
from jaxlib import _fastpath_report_text as text
from jaxlib._fastpath_report_rows import Beside, Report, Row
from jaxlib._fastpath_report_timeline import Timeline


def _as_json(rows: Sequence[Row], beside: Sequence[Beside]) -> str:
  found = {"functions": rows, "compilations": beside}
  parts = {name: [_as_dict(row) for row in of] for name, of in found.items()}
  return json.dumps(parts, indent=2) + "\n"


def _as_dict(row: Row | Beside) -> dict[str, Any]:
  return row._asdict() | {"causes": [cause._asdict() for cause in row.causes]}


def _write(file: str, content: str) -> None:
  try:
    Path(file).write_text(content, "utf-8")
  except OSError as error:
    print(f"fastpath_report: {file}: {error.strerror}", file=sys.stderr)


class _Run:
  """A run of the program, from which the report is made when Python exits."""

  def __init__(self, json_file: str | None, html_file: str | None) -> None:
    import jaxlib.pjit

    self._json_file, self._html_file = json_file, html_file
    self._timeline = Timeline() if html_file else None
    self._pid = os.getpid()
    self._is_interrupted = False
    self._collecting = contextlib.ExitStack()
    self._report = Report()
    for each in filter(None, (self._report, self._timeline)):
      self._collecting.enter_context(
          jaxlib.pjit.listening(each.add, each.add_compilation)
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
      self._is_interrupted = program.interrupts(error)
      program.strip_when_shown(error)
      raise

  def _end(self) -> None:
    if os.getpid() != self._pid:  # the program forked
      return
    self._collecting.close()
    # The program's output comes first. If it cannot be written, Python tells.
    with contextlib.suppress(Exception):
      sys.stdout.flush()
    rows, beside = self._report.rows(), self._report.beside()
    if self._json_file:
      _write(self._json_file, _as_json(rows, beside))
    if self._timeline is not None:
      title = text.title(rows, beside)
      _write(self._html_file, page.page(title, rows, beside, self._timeline))
    with contextlib.suppress(Exception):  # the program may have closed it
      sys.stderr.write(text.text(rows, beside, text.width_of(sys.stderr)))
    if self._is_interrupted:
      program.interrupt_again()


def _parse(arguments: list[str]) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
      prog="python -m jaxlib.fastpath_report",
      description="Runs a program and reports its slow jit dispatches.",
      usage=(
          "%(prog)s [--json FILE] [--html FILE] (SCRIPT | -m MODULE)"
          " [ARGUMENT ...]"
      ),
      allow_abbrev=False,
  )
  parser.add_argument("--json", metavar="FILE", help="write the report there")
  parser.add_argument("--html", metavar="FILE", help="write it as a page there")
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
  for name in ("json", "html"):
    file = getattr(options, name)
    setattr(options, name, file and str(Path(file).absolute()))
  return options


def _check(options: argparse.Namespace) -> str | None:
  """What stands in the way of the report, before the program runs."""
  for file in filter(None, (options.json, options.html)):
    try:
      Path(file).touch()
    except OSError as error:
      return f"{file}: {error.strerror}; name a file to write"
  return None


def main(arguments: list[str]) -> None:
  """Runs the command line, and ends as the program does."""
  options = _parse(arguments)
  problem = _check(options)
  if problem is not None:
    print(f"fastpath_report: {problem}", file=sys.stderr)
    sys.exit(2)
  run = _Run(options.json, options.html)
  run.run(program.to_run(options.script, options.module, options.arguments))


if __name__ == "__main__":
  main(sys.argv[1:])
