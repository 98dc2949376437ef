"""What a notebook shows of a what-if: widgets where somebody looks, else text and pictures; figures before pictures."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from specbench.campaign.pages import Page, notebook_of, render, shown_cell
from specbench.show.shown import Shown
from specbench.studies.opened import opened
from specbench.studies.waterfall import steps
from specbench.whatif import panel
from specbench.whatif.board import Painter
from specbench.whatif.outlook import Outlook, WhatIf
from specbench.whatif.panel import curve_of, is_watched, points
from specbench.whatif.picture import Picture

RECORDS = Path(__file__).parent / "records"
COLLAPSED = RECORDS / "0512_dflash_r8_exact"
WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def subject() -> Any:
    return opened(COLLAPSED)


@pytest.fixture(scope="module")
def board(subject: Any) -> Any:
    shown = panel(subject, RECORDS, live=True)
    bundle = shown._repr_mimebundle_()
    assert set(bundle) == {WIDGET, "text/plain", "text/html"}
    assert "predicted as it was" in bundle["text/plain"] and "<img" not in bundle["text/html"]
    return shown.board


def test_without_a_frontend_there_is_no_widget(subject: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    shown = panel(subject, RECORDS)
    bundle = shown._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"} and shown.board is None
    # The collapsed start, and beside it the first remedy.
    assert "state_slots            2 " in bundle["text/plain"]
    assert "first remedy" in bundle["text/plain"] and "predicted with the change" in bundle["text/plain"]
    assert bundle["text/html"].count('src="data:image/png;base64,') == 1
    assert "<script" not in bundle["text/html"]


def test_an_open_notebook_has_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    assert not is_watched()
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/x/3_diagnose.ipynb")
    assert is_watched()


def test_a_run_without_findings_shows_itself_alone() -> None:
    text = panel(opened(RECORDS / "nospec_r8"), live=False)._repr_mimebundle_()["text/plain"]
    assert "with the change" not in text and "45 state slots, 215,240 KV tokens" in text


def test_a_log_that_tells_too_little_says_what_is_missing(tmp_path: Path) -> None:
    log = tmp_path / "<b>server.log"
    log.write_text(
        "[2026-01-02 03:04:05] Mamba Cache is allocated. max_mamba_cache_size: 24, conv_state size: 0.07GB, "
        "ssm_state size: 3.52GB \n"
    )
    for live in (True, False):
        bundle = panel(opened(log), live=live)._repr_mimebundle_()
        assert set(bundle) == {"text/plain", "text/html"}
        assert bundle["text/plain"].startswith("No what-if:") and "<b>" not in bundle["text/html"]


def test_moving_a_control_writes_the_figures_at_once(board: Any) -> None:
    board._inputs["requests"][-1].value = 4
    assert board.after.changes == {"memory.max_running_requests": 4}
    assert ">24</td>" in board._figures.value and "87,062" in board._figures.value
    assert "--max-running-requests 4 " in board._texts.value
    board._inputs["slots"][0].value = False
    board._inputs["slots"][-1].value = 16
    board._inputs["state_dtype"][-1].value = "bfloat16"
    assert board.after.changes == {
        "memory.max_running_requests": 4,
        "memory.max_mamba_cache_size": 16,
        "memory.mamba_ssm_dtype": "bfloat16",
    }
    board._reset()
    assert board.after.changes == {} and "as it was started" in board._figures.value


def test_saving_says_where_and_keeps_what_is_there(board: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECBENCH_RUNS", str(tmp_path))
    board._save()
    board._save()
    saved = sorted(path.name for path in (tmp_path / "what-if").iterdir())
    assert saved == ["0512_dflash_r8_exact-what-if.2.yaml", "0512_dflash_r8_exact-what-if.yaml"]
    assert f"{tmp_path}/what-if/{saved[0]}" in board._status.value


def test_a_picture_that_is_stale_is_not_shown() -> None:
    """Three are wanted while the first is drawn: it is dropped, as is the second; the last one is shown."""
    begun, go, shown = threading.Event(), threading.Event(), threading.Event()
    drawn: list[str] = []
    seen: list[bytes] = []

    def draw(outlook: Outlook) -> bytes:
        drawn.append(str(outlook.refusal))
        begun.set()
        assert go.wait(10)
        return drawn[-1].encode()

    def show(data: bytes) -> None:
        seen.append(data)
        shown.set()

    painter = Painter(draw, show, settle_s=0.0)
    for name in ("first", "second", "last"):
        painter.want(Outlook(changes={}, config=None, budget=None, refusal=name))
        assert begun.wait(10)
    go.set()
    assert shown.wait(10)
    assert (drawn, seen) == (["first", "last"], [b"last"])


def test_the_picture_is_updated_in_place(subject: Any) -> None:
    what = WhatIf.of(subject.diagnosis)
    before = what.with_({})
    picture = Picture(what, before, steps(subject.diagnosis))
    line, bars = picture._cliffs[1]._line, dict(picture._waterfall._bars)
    after = what.with_({"memory.max_running_requests": 4})
    picture.update(after, curve_of(what, after))
    assert picture.png().startswith(b"\x89PNG")
    assert picture._cliffs[1]._line is line and picture._waterfall._bars == bars
    # 12,079,595,520 B of scratch: 11.25 GiB; predicted for 4 of 12 asked, where 8 and more are refused.
    assert bars["scratch_ssm"].get_width() == pytest.approx(11.25)
    assert list(line.get_xdata()) == [1, 2, 3, 4, 5, 6, 7] and line.get_ydata()[3] == 87_062
    assert list(picture._cliffs[1]._here.get_xdata()) == [4]


def test_the_curve_reaches_beyond_what_was_and_is_asked(subject: Any) -> None:
    what = WhatIf.of(subject.diagnosis)
    assert list(points(what, what.with_({}))) == list(range(1, 13))
    many = points(what, what.with_({"memory.max_running_requests": 200}))
    assert many[0] == 1 and {8, 200} <= set(many) and many[-1] >= 288 and len(many) < 30


def test_a_page_shows_no_widget_and_keeps_no_state() -> None:
    cell = shown_cell(Shown("<p>the figures</p>", "the figures"))
    cell.outputs[0].data[WIDGET] = {"model_id": "abc", "version_major": 2, "version_minor": 0}
    notebook = notebook_of([cell])
    state = {"abc": {"model_name": "HTMLModel", "model_module": "@jupyter-widgets/controls", "state": {}}}
    notebook.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": state}}
    html = render(notebook, Page(title="x"))
    assert "the figures" in html
    assert "widget" not in html.split("</style>")[-1] and "<script" not in html
