"""Keeps the results of commands in files, so that no page has a number that somebody typed.

    figures.record("conformance", COMMAND, exact={...}, measured={...})   # at the end of a command
    build.py pages --take conformance     # copies it to docs/figures/, and rewrites the pages
    build.py pages --take                 # the same for all that commands left at this commit
    build.py pages --check                # fails if a page differs from its figures

A command whose results a page shows calls `record`, which writes `.build/figures/NAME.json`:

    name      the name of the file; each thing that is measured separately has one
    command   the command line to repeat it
    commit    the commit that the command ran at; a plus follows if the code had local changes
    machine   the machine that it ran on
    exact     what has to be the same on every machine: entries, outcomes, names
    measured  what may differ: times, sizes, counts that depend on what a machine has installed

`docs/figures/NAME.json` is a copy of that file. A page shows it in a block, which a function of a
module in this folder writes (see `blocks`):

    <!-- figures: conformance.table -->
    <!-- /figures -->

A new figure needs three things: a call of `record`, a module here with a function that reads
`kept(NAME)` and returns Markdown, and a block in a page. `--check` fails if a page differs from its
figures, if figures are of a commit that is not in the history, or if their `exact` part differs
from that of the command's last run at the commit that is checked out. So push first, then run the
command and take its figures: after a rebase, their commit would not exist.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from paths import ROOT, STATE
from refusal import Refusal, refusing_os_errors
from run import hardware

KEPT = ROOT / "docs" / "figures"
FRESH = STATE / "figures"
_WIDTH = 200  # of a line in these files

Figures = dict[str, Any]


def record(
    name: str,
    command: str,
    exact: dict[str, Any] | None = None,
    measured: dict[str, Any] | None = None,
) -> None:
    """Writes the results of a command, for `build.py pages --take` and `--check`.

    Raises:
      Refusal: the file cannot be written.
    """
    facts = {
        "name": name,
        "command": command,
        "commit": hardware.commit(),
        "machine": hardware.machine(),
        "exact": exact or {},
        "measured": measured or {},
    }
    target = FRESH / f"{name}.json"
    with refusing_os_errors(f"write {target}"):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_as_json(facts) + "\n")


def _as_json(value: object, depth: int = 0) -> str:
    """JSON in which each value that fits on a line is on one, so that diffs are short."""
    line = json.dumps(value)
    if len(line) <= _WIDTH or not isinstance(value, dict | list):
        return line
    if isinstance(value, dict):
        parts = [f"{json.dumps(name)}: {_as_json(each, depth + 1)}" for name, each in value.items()]
    else:
        parts = [_as_json(each, depth + 1) for each in value]
    gap = "\n" + " " * depth
    return line[0] + ",".join(f"{gap} {part}" for part in parts) + gap + line[-1]


def kept(name: str) -> Figures | None:
    """The figures of that name in docs/figures, or None if none were taken."""
    return _read(KEPT / f"{name}.json")


def all_kept(prefix: str) -> list[Figures]:
    """The figures whose names begin with `prefix`, sorted by name."""
    return [each for path in sorted(KEPT.glob(f"{prefix}*.json")) if (each := _read(path))]


def source(of: Figures) -> str:
    """The command, commit and machine of figures: a line to put above their table."""
    machine = of["machine"]
    on = f"{machine['cores']} cores, {machine['cpu']}, {machine['system']}"
    return f"`{of['command']}` at commit {of['commit'][:10]} ({on}):"


def not_run(command: str) -> str:
    """What a page says if there are no figures."""
    return f"Not run yet at a commit of this history: `{command}` gives it."


def fresh() -> list[str]:
    """The names of the figures that commands left at the commit that is checked out."""
    commit = hardware.commit()
    found = ((path.stem, _read(path)) for path in sorted(FRESH.glob("*.json")))
    return [name for name, each in found if each and each["commit"] == commit]


def take(name: str) -> None:
    """Copies the figures of a command's last run to docs/figures.

    Raises:
      Refusal: there are none, or they belong to no commit of this history.
    """
    fresh = _read(FRESH / f"{name}.json")
    if fresh is None:
        there = ", ".join(sorted(path.stem for path in FRESH.glob("*.json"))) or "none"
        raise Refusal(f"--take {name}: no command left such figures; there are: {there}")
    if fault := _fault_of_commit(fresh):
        raise Refusal(f"--take {name}: {fault}; run {fresh['command']} again")
    KEPT.mkdir(parents=True, exist_ok=True)
    text = (FRESH / f"{name}.json").read_text()
    (KEPT / f"{name}.json").write_text(text)


def faults() -> list[str]:
    """A line for each file of figures in docs that is stale or of no commit in the history."""
    found = [
        f"{path.relative_to(ROOT)}: {fault}; run {kept_one['command']}, "
        f"then build.py pages --take {path.stem}"
        for path in sorted(KEPT.glob("*.json"))
        if (kept_one := _read(path)) and (fault := _fault(kept_one))
    ]
    for path in sorted((ROOT / "docs").rglob("results.json")):
        if fault := _fault_of_commit(json.loads(path.read_text())):
            found.append(f"{path.relative_to(ROOT)}: {fault}; run build.py bench again")
    return found


def _fault(figures: Figures) -> str:
    fresh = _read(FRESH / f"{figures['name']}.json")
    # An older run says nothing about this checkout.
    is_of_this_checkout = fresh is not None and fresh["commit"] == hardware.commit()
    if is_of_this_checkout and fresh["exact"] != figures["exact"]:
        return f"is stale: the command gives something else now, see {FRESH}"
    return _fault_of_commit(figures)


def _fault_of_commit(figures: Figures) -> str:
    commit = figures["commit"]
    if commit.endswith("+"):
        return f"is of {commit[:12]} with changes that are in no commit"
    return "" if _in_history(commit) else f"is of {commit[:12]}, which is not in the history"


def _in_history(commit: str) -> bool:
    """Whether that commit is in the history. If git cannot tell, the answer is yes."""
    git = ["git", "-C", str(ROOT)]
    quiet = {"check": False, "capture_output": True, "text": True}
    shallow = subprocess.run([*git, "rev-parse", "--is-shallow-repository"], **quiet)
    if shallow.stdout.strip() != "false":
        return True
    ancestor = [*git, "merge-base", "--is-ancestor", commit, "HEAD"]
    return subprocess.run(ancestor, **quiet).returncode == 0


def _read(path: Path) -> Figures | None:
    """The figures in a file, or None if there is no file.

    Raises:
      Refusal: the file is not one that `record` wrote.
    """
    try:
        facts = json.loads(path.read_text())
        wanted = ("name", "command", "commit", "machine", "exact", "measured")
        return {name: facts[name] for name in wanted}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Refusal(f"{path}: holds no figures; delete it, and take them again") from error
