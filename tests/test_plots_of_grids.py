"""Pictures of tables of predictions, seen through their Axes. The rows are made by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

from specbench import plots
from specbench.plots.palette import TERM_COLOURS
from specbench.units import GIB


@pytest.fixture
def ax() -> Iterator[Axes]:
    mpl.use("agg")
    yield plt.subplots(figsize=(9.5, 4))[1]
    plt.close("all")


def ints(*values: int | None) -> Any:
    return pd.array(list(values), dtype="Int64")


def texts(*values: str | None) -> Any:
    return pd.array(list(values), dtype="string")


@pytest.fixture
def rows() -> pd.DataFrame:
    """Two settings, 1 to 4 requests: the first is refused from 3 on, the second serves all, the last only likely."""
    return pd.DataFrame(
        {
            "setting": texts(*["TP1"] * 4, *["TP2"] * 4),
            "bound": texts(*["point"] * 8),
            "asked_requests": ints(1, 2, 3, 4, 1, 2, 3, 4),
            "state_slots": ints(20, 10, 2, 0, 90, 80, 70, 60),
            "kv_tokens": ints(1_000, 800, None, None, 4_000, 3_800, 3_600, 3_400),
            "running_requests": ints(1, 1, 0, 0, 1, 2, 3, 4),
            "tokens_per_request": ints(1_000, None, None, None, 4_000, 1_900, 1_200, 850),
            "context_len": ints(*[2_048] * 8),
            "verdict": texts("serves", "capped", "refused", "refused", *["serves"] * 4),
            "certainty": texts("sure", "no", "no", "no", "sure", "sure", "sure", "likely"),
        }
    )


def legend(ax: Axes) -> list[str]:
    found = ax.get_legend()
    assert found is not None
    return [text.get_text() for text in found.get_texts()]


def line(ax: Axes, number: int) -> tuple[list[float], list[float]]:
    found = ax.lines[number]
    return list(np.asarray(found.get_xdata(), float)), list(np.asarray(found.get_ydata(), float))


def test_requests_curve_ends_where_no_server_starts(rows: pd.DataFrame, ax: Axes) -> None:
    plots.requests_curve(rows, "state_slots", here=2, ax=ax)
    asked, slots = line(ax, 0)
    assert asked == [1, 2, 3, 4]
    assert slots[:2] == [20, 10]
    assert np.isnan(slots[2:]).all()  # a gap, not 2 and 0
    assert line(ax, 1) == ([3, 4], [0, 0])  # crosses on the axis
    assert ax.lines[1].get_marker() == "x"
    assert line(ax, 2) == ([2], [10])  # you are here
    told = ["TP1: serves 1, capped 2, refused from 3", "TP2: serves 1 to 4"]
    assert legend(ax) == [*told, "does not start", "asked here: 2"]
    assert ax.get_ylabel() == "state slots, predicted"
    assert {one.get_markerfacecolor() for one in ax.lines if one.get_marker() == "o"} == {"white", "none"}  # hollow


def test_requests_curve_shows_what_was_asked(rows: pd.DataFrame, ax: Axes) -> None:
    plots.requests_curve(rows, "running_requests", ax=ax)
    assert "as asked" in legend(ax)
    assert ([1, 2, 3, 4], [1, 2, 3, 4]) in [line(ax, number) for number in range(len(ax.lines))]


def one_line(rows: pd.DataFrame) -> pd.DataFrame:
    """TP1 alone: serves 1, capped at 2, refused from 3."""
    return rows[rows["setting"] == "TP1"].assign(setting="")


def run_row(**values: Any) -> pd.DataFrame:
    row = {"asked_requests": 2, "resolved_requests": 1, "served_requests": 1, "state_slots": 10, "kv_tokens": 800}
    known = {name: ints(values.get(name, value)) for name, value in row.items()}
    return pd.DataFrame({**known, "outcome": texts(values.get("outcome", "capped")), "origin": texts("recorded")})


def words(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


@pytest.mark.parametrize(
    ("figure", "resolved", "colour"),
    [("running_requests", 1, "weights"), ("state_slots", 10, "state_ssm"), ("kv_tokens", 800, "kv")],
)
def test_a_run_is_on_the_curve_where_it_is(
    rows: pd.DataFrame, ax: Axes, figure: str, resolved: int, colour: Any
) -> None:
    plots.requests_curve(one_line(rows), figure, run=run_row(), ax=ax)
    point = next(one for one in ax.lines if one.get_marker() == "o" and one.get_markersize() == 8)
    assert (list(point.get_xdata()), list(point.get_ydata())) == ([2], [resolved])
    assert to_rgba(point.get_markerfacecolor()) == to_rgba(TERM_COLOURS[colour])
    assert words(ax) == ["capped 2", "refused from 3", "you are here"]
    assert {"predicted", "does not start", "asked here: 2", "resolved (recorded)"} <= set(legend(ax))


def test_a_refused_run_is_on_the_axis(rows: pd.DataFrame, ax: Axes) -> None:
    run = run_row(asked_requests=4, resolved_requests=None, served_requests=None, outcome="refused")
    plots.requests_curve(one_line(rows), "state_slots", run=run, ax=ax)
    assert words(ax)[-1] == "you are here: refused"
    assert ax.texts[-1].xy == (4, 0.0)  # the 10 slots that it logged before are none that it serves with
    assert "resolved (recorded)" not in legend(ax)


@pytest.mark.parametrize(("served", "marked"), [(17, True), (20, False), (0, True), (None, False)])
def test_what_was_served_has_a_mark_where_it_is_not_what_was_resolved(
    rows: pd.DataFrame, ax: Axes, served: int | None, marked: bool
) -> None:
    run = run_row(asked_requests=32, resolved_requests=20, served_requests=served)
    plots.requests_curve(one_line(rows), "running_requests", run=run, ax=ax)
    diamonds = [line(ax, number) for number, one in enumerate(ax.lines) if one.get_marker() == "D"]
    assert diamonds == ([([32], [served])] if marked else [])
    assert ("served (recorded)" in legend(ax)) == marked
    ax.clear()
    plots.requests_curve(one_line(rows), "kv_tokens", run=run, ax=ax)
    assert [one for one in ax.lines if one.get_marker() == "D"] == []  # requests are no tokens


def test_the_ends_of_the_predicted_interval_are_a_band(rows: pd.DataFrame, ax: Axes) -> None:
    points = one_line(rows)
    low = points.assign(bound="low", state_slots=ints(18, 8, 0, 0))
    high = points.assign(bound="high", state_slots=ints(22, 12, 4, 0))
    plots.requests_curve(pd.concat([points, low, high]), "state_slots", ax=ax)
    assert "range of the prediction" in legend(ax)
    (band,) = [one for one in ax.collections if len(one.get_paths()) == 1]
    corners = {tuple(corner) for corner in np.asarray(band.get_paths()[0].vertices, float)}
    assert {(1, 18), (1, 22), (2, 8), (2, 12)} <= corners
    assert line(ax, 0)[1][:2] == [20, 10]  # the line is the likely figure


def test_settings_far_apart_are_drawn_on_a_logarithmic_axis(rows: pd.DataFrame, ax: Axes) -> None:
    plots.requests_curve(rows.assign(state_slots=ints(20, 10, 2, 0, 900, 800, 700, 600)), "state_slots", ax=ax)
    assert ax.get_yscale() == "log"
    ax.clear()
    plots.requests_curve(rows, "state_slots", ax=ax)
    assert ax.get_yscale() == "linear"
    assert ax.get_ylim()[0] == 0


def test_feasible_is_bounded_by_context_and_by_what_runs(rows: pd.DataFrame, ax: Axes) -> None:
    plots.feasible(rows, here=(2, 1_024), ax=ax)
    edges, longest = line(ax, 1)
    assert edges == [0.5, 1.5, 1.5, 2.5, 2.5, 3.5, 3.5, 4.5]
    assert longest == [2_048, 2_048, 1_900, 1_900, 1_200, 1_200, 850, 850]  # 4,000 is more than the context limit
    assert np.isnan(line(ax, 0)[1][2:]).all()  # TP1 runs one of two
    assert legend(ax) == [
        "TP1: does not fit",
        "TP2: fits",
        "not filled: likely, not sure",
        "asked here: 2 of 1,024",
    ]
    filled = ax.collections[1].get_paths()
    assert max(np.asarray(path.vertices, float)[:, 0].max() for path in filled) == 3.5  # the last one is not sure
    assert "context limit 2,048" in [text.get_text() for text in ax.texts]


def test_nothing_feasible_is_a_sentence(rows: pd.DataFrame, ax: Axes) -> None:
    plots.feasible(rows.assign(tokens_per_request=ints(*[None] * 8)), ax=ax)
    assert ax.texts[0].get_text() == "no number of requests is served as asked, by prediction"
    ax.clear()
    plots.requests_curve(rows.assign(kv_tokens=ints(*[None] * 8)), "kv_tokens", ax=ax)
    assert ax.texts[0].get_text() == "KV tokens: not predicted"


def test_a_model_without_state_has_no_slots_and_that_is_no_unknown(rows: pd.DataFrame, ax: Axes) -> None:
    none = rows.assign(state_slots=ints(*[None] * 8))
    plots.requests_curve(none, "state_slots", ax=ax)
    assert ax.texts[0].get_text() == "state slots: none, the model keeps no state"
    ax.clear()
    plots.requests_curve(none.assign(verdict=texts(*["refused"] * 8)), "state_slots", ax=ax)
    assert ax.texts[0].get_text() == "state slots: not predicted"


def test_gib_buys_says_what_one_buys(ax: Axes) -> None:
    rows = pd.DataFrame(
        {
            "setting": texts(*["asked 4"] * 4, "none", "none"),
            "pre_bytes": ints(*(gib * GIB for gib in (90, 92, 94, 96, 90, 92))),
            "running_requests": ints(0, 1, 2, 2, 0, 0),
            "kv_tokens": ints(None, 2_000, 4_000, 6_000, None, None),
            "verdict": texts("refused", "capped", "serves", "serves", "refused", "refused"),
        }
    )
    plots.gib_buys(rows, "running_requests", here_bytes=round(94.3 * GIB), ax=ax)
    # from 92 GiB (1) to 94 GiB (2): two GiB for a request; 96 GiB add none
    assert legend(ax) == ["asked 4: 2 GiB each", "none: does not start", "this card: 94.3 GiB"]
    assert line(ax, 0)[0] == [90, 92, 94, 96]
    ax.clear()
    plots.gib_buys(rows, "kv_tokens", ax=ax)
    assert legend(ax)[0] == "asked 4: 1,000 per GiB"
    assert ax.get_title(loc="left") + ax.get_title() == "What a GiB buys: KV tokens"
    assert ax.get_xlabel() == "GiB free before loading, on each card"


@pytest.mark.parametrize(
    ("figures", "ticks"),
    [
        ((1, 2, 20, 60), ["1", "2", "5", "10", "20", "50"]),
        (
            (10_000, 20_000, 300_000, 900_000),
            ["10,000", "20,000", "50,000", "100,000", "200,000", "500,000", "1,000,000"],
        ),
        ((1, 100, 10_000, 90_000), ["1", "10", "100", "1,000", "10,000", "100,000"]),
    ],
)
def test_an_axis_that_is_logarithmic_says_so_and_has_ticks_that_people_read(
    rows: pd.DataFrame, ax: Axes, figures: tuple[int, ...], ticks: list[str]
) -> None:
    plots.requests_curve(one_line(rows).assign(kv_tokens=ints(*figures), verdict="serves"), "kv_tokens", ax=ax)
    assert ax.get_yscale() == "log" and ax.get_ylabel().endswith(", log scale")
    low, high = ax.get_ylim()
    formatter = ax.yaxis.get_major_formatter()
    shown = [formatter(at) for at in ax.get_yticks() if low <= at <= high]
    assert shown == ticks
    assert not any(label.get_text() for label in ax.get_yticklabels(minor=True))


def test_running_requests_are_on_the_scale_of_those_that_are_asked(rows: pd.DataFrame, ax: Axes) -> None:
    wide = one_line(rows).assign(running_requests=ints(1, 2, 20, 60), verdict="serves")
    plots.requests_curve(wide, "running_requests", ax=ax)
    assert ax.get_yscale() == "linear" and ax.get_ylabel() == "running requests, predicted"
