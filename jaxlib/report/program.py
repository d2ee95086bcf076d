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
"""Runs a program in this process as Python itself would run it."""

from __future__ import annotations

import builtins
import contextlib
import importlib.machinery
import pkgutil
import runpy
import sys
import types
from collections.abc import Callable
from pathlib import Path

_OURS = (__file__, str(Path(__file__).with_name("fastpath_report.py")))


def to_run(
    script: str | None, module: str | None, arguments: list[str]
) -> Callable[[], None]:
  """A function that runs a script or a module as Python itself would."""
  # Not runpy's public functions: they take `__main__` and `sys.argv` back when
  # the program's text ends, and its threads and exit handlers may use them.
  main = sys.modules["__main__"] = types.ModuleType("__main__")
  main.__builtins__ = builtins
  main.__annotations__ = {}
  if module is not None:
    sys.argv = ["-m", *arguments]
    return lambda: runpy._run_module_as_main(module)
  sys.argv = [script, *arguments]
  return _script(main, str(Path(script).absolute()))


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
  """Takes the frames of the report off the start of an error's traceback."""
  frames = error.__traceback__
  while frames is not None and frames.tb_frame.f_code.co_filename in _OURS:
    frames = frames.tb_next
  error.__traceback__ = frames


def strip_when_shown(error: BaseException) -> None:
  """Makes Python show an error as if the program had been run alone.

  The frames from Python's `-m` down to the program are added on the way out, so
  they are taken off in the exception hook.
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


def interrupts(error: BaseException) -> bool:
  """Whether Python ends by SIGINT when a program raises this."""
  if sys.version_info >= (3, 14):
    return isinstance(error, KeyboardInterrupt)
  return type(error) is KeyboardInterrupt


def interrupt_again() -> None:
  """Makes Python end by SIGINT, which it forgets at each `exec` of a text."""
  with contextlib.suppress(KeyboardInterrupt):
    exec("raise KeyboardInterrupt")
