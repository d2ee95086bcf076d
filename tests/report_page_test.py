"""The report as a page: one file, a time line with the reasons, tested in a real browser."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jaxlib.pjit
import pytest
from jaxlib._fastpath_report_page import page
from jaxlib._fastpath_report_rows import Cause, Row
from jaxlib._fastpath_report_timeline import MAX_MARKS, Timeline

from reports import TITLE, report

SCRIPT = """
import jax, jax.numpy as jnp
@jax.jit
def step(x):
    return x
@jax.jit
def logged(x):
    jax.debug.callback(lambda x: None, x)
    return x
for x in (1.0, 1, "<b>" and 1):
    step(x)
for _ in range(3):
    logged(1.0)
jnp.ones(3)
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a real run."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "train.py").write_text(SCRIPT)
    done = report("--html", str(folder / "report.html"), str(folder / "train.py"))
    assert done.returncode == 0, done.stderr
    return folder / "report.html"


def data_in(text: str) -> dict[str, Any]:
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_the_page_needs_no_other_file(written: Path) -> None:
    text = written.read_text()

    assert not re.search(r"(src|href)=|url\(|@import|https?:", text)
    assert "<!--TITLE-->" not in text


def test_the_time_line_has_each_slow_dispatch_and_compilation(written: Path) -> None:
    data = data_in(written.read_text())

    lanes = [re.sub(r"/\S*/", "", lane) for lane in data["lanes"]]
    found = [(kind, lanes[lane]) for _, _, kind, lane, _ in data["marks"]]
    assert found == [
        ("first", "step at train.py:3"),
        ("compiled", "step at train.py:3"),
        ("first", "logged at train.py:6"),
        ("slow", "logged at train.py:6"),
        ("slow", "logged at train.py:6"),
        ("beside", "train.py:14 (<module>)"),
    ] + [("beside", "train.py:14 (<module>)")] * (len(found) - 6)
    starts = [start for start, *_ in data["marks"]]
    ends = [start + seconds for start, seconds, *_ in data["marks"]]
    assert all(end <= start + 1e-4 for end, start in zip(ends, starts[1:]))
    assert ends[-1] <= data["seconds"]


def dispatch(seconds: float, **changed: Any) -> jaxlib.pjit.Dispatch:
    what = {
        "function": "f", "function_number": 1, "defined_at": "f.py:1", "called_from": "f.py:2",
        "seconds": seconds, "traced": 0, "lowered": 0, "compiled": 0, "entry": 1,
        "is_first": False, "differences": (), "reason": "a", "dropped": 0,
    }  # fmt: skip
    return jaxlib.pjit.Dispatch(**{**what, **changed})


def test_the_longest_marks_are_kept_and_the_others_counted() -> None:
    timeline = Timeline()

    for milliseconds in range(MAX_MARKS + 10):
        timeline.add(dispatch(milliseconds / 1e3))

    assert min(mark.seconds for mark in timeline.marks()) == 0.01
    assert (len(timeline.marks()), timeline.left_out) == (MAX_MARKS, 10)


EVIL = "</script><img src=x onerror=alert(1)>&"


def test_text_of_the_program_is_escaped() -> None:
    timeline = Timeline()
    timeline.add(dispatch(1.0, function=EVIL, reason=EVIL))
    row = Row(EVIL, EVIL, 1, 1, 1, 1, 1, 0.0, 1.0, (Cause(1, 1.0, EVIL, (EVIL,)),))

    text = page(EVIL, [row], [], timeline)

    assert "<img" not in text
    assert data_in(text)["lanes"] == [f"{EVIL} at f.py:1"]
    assert text.count(html.escape(EVIL)) == 2 + 4  # the title twice, and the row's


def chromium() -> str:
    """The browser, or a skip. In CI it must be there."""
    found = shutil.which("chromium")
    if found is None and not os.environ.get("CI"):
        pytest.skip("there is no chromium to see the page in")
    assert found is not None, "install Debian's package chromium"
    return found


# What a person does, and what the page shows then.
PROBE = """
<script>
const move = target => target.dispatchEvent(new MouseEvent("mousemove", {
  bubbles: true, clientX: 300, clientY: 100}));
const tipIn = kind => {
  move(document.querySelector(".mark." + kind));
  const {display} = getComputedStyle(document.getElementById("tip"));
  return [display, document.getElementById("tip").textContent];
};
const widths = () => [...document.querySelectorAll(".mark")].map(
    mark => mark.getBoundingClientRect().width);
const before = Math.max(...widths());
const probed = {
  marks: document.querySelectorAll(".mark").length,
  lanes: document.querySelectorAll(".track").length,
  ticks: document.querySelectorAll("#axis span").length,
  tips: Object.fromEntries(["first", "compiled", "slow", "beside"].map(k => [k, tipIn(k)])),
  away: (move(document.body), getComputedStyle(document.getElementById("tip")).display),
};
const mark = document.querySelector(".mark.first"), box = mark.getBoundingClientRect();
mark.dispatchEvent(new WheelEvent("wheel", {
  bubbles: true, cancelable: true, deltaY: -1, clientX: box.left + box.width / 2}));
probed.zoomed = Math.max(...widths()) / before;
document.getElementById("timeline").dispatchEvent(new MouseEvent("dblclick", {bubbles: true}));
probed.reset = Math.max(...widths()) / before;
const pre = document.body.appendChild(document.createElement("pre"));
pre.id = "probed";
pre.textContent = JSON.stringify(probed);
</script>
"""


@pytest.fixture(scope="module")
def probed(written: Path) -> dict[str, Any]:
    """The page in a browser after these actions."""
    browser = chromium()
    copy = written.with_name("probed.html")
    copy.write_text(written.read_text().replace("</html>", f"{PROBE}</html>"))
    profile = written.with_name("profile")
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
         "--window-size=1200,800", "--dump-dom", copy.as_uri()],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    found = re.search(r'<pre id="probed">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stderr
    return json.loads(html.unescape(found[1]))


def test_a_browser_draws_each_mark_and_a_lane_for_each_place(
    probed: dict[str, Any], written: Path
) -> None:
    data = data_in(written.read_text())

    assert (probed["marks"], probed["lanes"]) == (len(data["marks"]), len(data["lanes"]))
    assert probed["ticks"] >= 2


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("first", "first call"),
        ("compiled", "x: type of the argument: was float, now int"),
        ("slow", "never takes the fastpath: it has host callbacks or other effects"),
        ("beside", ", operation outside jit"),
    ],
)
def test_pointing_at_a_mark_shows_its_reason_and_line(
    kind: str, says: str, probed: dict[str, Any]
) -> None:
    display, text = probed["tips"][kind]

    assert display == "block"
    assert says in text
    assert re.search(r"called at \S*train\.py:\d+ \(<module>\)$", text)


def test_pointing_elsewhere_shows_none(probed: dict[str, Any]) -> None:
    assert probed["away"] == "none"


def test_the_wheel_zooms_and_a_double_click_shows_all(probed: dict[str, Any]) -> None:
    assert probed["zoomed"] == pytest.approx(1.25, rel=0.01)
    assert probed["reset"] == pytest.approx(1.0)


def test_a_page_that_cannot_be_written_is_refused_before_the_program_runs(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('ran')")

    done = report("--html", str(tmp_path / "no" / "report.html"), str(script))

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("No such file or directory; name a file to write\n")


def test_the_page_and_the_text_have_one_title(written: Path) -> None:
    title = re.search("<h1>(.*)</h1>", written.read_text())[1]

    assert title.startswith(f"{TITLE}: 5 slow of 2 functions; ")
