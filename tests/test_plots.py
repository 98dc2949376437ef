"""Plots, seen through their Axes: bar heights, fills, labels. Values are made by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

from specbench import frames, plots
from specbench.diagnose.diagnosis import of_path
from specbench.plots.palette import COMMUNICATION, LINE_COLOURS, LINE_STYLES, TERM_COLOURS, algorithm_colour
from specbench.terms import TERMS

TESTS = Path(__file__).parent

GIB = 2**30
MIB = 2**20
NO_FILL = (0.0, 0.0, 0.0, 0.0)


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    mpl.use("agg")
    before = dict(mpl.rcParams)
    yield
    assert {key for key in before if mpl.rcParams[key] != before[key]} <= {"backend"}, "a plot changed global settings"
    plt.close("all")


@pytest.fixture
def ax() -> Axes:
    return plt.subplots()[1]


def ints(*values: int | None) -> pd.array:
    return pd.array(list(values), dtype="Int64")


def bars(ax: Axes, prefix: str) -> list[tuple[float, float, bool]]:
    """(start, width, filled) of the bars whose label begins with `prefix`."""
    return [
        (bar.patches[0].get_x(), bar.patches[0].get_width(), bar.patches[0].get_facecolor() != NO_FILL)
        for bar in ax.containers
        if bar.get_label().startswith(prefix)
    ]


def texts(ax: Axes) -> str:
    return " | ".join(text.get_text() for text in ax.texts)


def legend(ax: Axes) -> list[str]:
    found = ax.get_legend()
    assert found is not None
    return [text.get_text() for text in found.get_texts()]


@pytest.fixture
def steps() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "term": pd.array(["before", "weights", "kv", "graphs", "slack"], dtype="string"),
            "label": pd.array(["before loading", "weights", "kv", "graphs (within slack)", "slack"], dtype="string"),
            "predicted_bytes": ints(1 * GIB, 50 * GIB, 10 * GIB, None, 19 * GIB),
            "observed_bytes": ints(1 * GIB, 51 * GIB, None, 1 * GIB, 18 * GIB),
            "predicted_card_bytes": ints(*[80 * GIB] * 5),
            "card_bytes": ints(*[80 * GIB] * 5),
            "place": pd.array(["card"] * 5, dtype="string"),
            "rank": pd.array([""] * 5, dtype="string"),
            "rank_words": pd.array([""] * 5, dtype="string"),
        }
    )


def test_waterfall_bars_start_where_the_last_one_ended(steps: pd.DataFrame, ax: Axes) -> None:
    plots.waterfall(steps, ax=ax)
    assert bars(ax, "predicted_bytes:") == [(0, 1, False), (1, 50, False), (51, 10, False), (61, 19, False)]
    # kv was not logged: the observed side has a gap, and graphs lie within slack without moving it on
    assert bars(ax, "observed_bytes:") == [(0, 1, True), (1, 51, True), (52, 1, True), (52, 18, True)]


def test_waterfall_says_what_is_unknown(steps: pd.DataFrame, ax: Axes) -> None:
    plots.waterfall(steps, origin="recorded", ax=ax)
    assert "not logged" in texts(ax)
    assert "not predicted" in texts(ax)
    assert "whole card: 80.00" in texts(ax)
    assert "GiB" in ax.get_xlabel()
    assert legend(ax) == ["predicted", "recorded"]


def test_a_prediction_alone_has_no_observed_rows(steps: pd.DataFrame, ax: Axes) -> None:
    plots.waterfall(steps.assign(observed_bytes=ints(*[None] * 5)), ax=ax)
    assert bars(ax, "observed_bytes:") == []
    assert "not logged" not in texts(ax)
    assert legend(ax) == ["predicted"]


def test_the_waterfall_tells_two_cards_apart_and_states_the_rest(steps: pd.DataFrame, ax: Axes) -> None:
    emulated = steps.assign(predicted_card_bytes=ints(*[60 * GIB] * 5))
    emulated.loc[2, ["term", "label", "observed_bytes"]] = ["unexplained", "unexplained rest", GIB // 4]
    plots.waterfall(emulated, ax=ax)
    assert "emulated card: 60.00" in texts(ax)
    assert "card that is there: 80.00" in texts(ax)
    assert ax.get_xlabel() == "GiB of the card, per rank; unexplained rest: 10.00 predicted, 0.25 recorded"


def test_cudas_total_is_no_other_card(steps: pd.DataFrame, ax: Axes) -> None:
    """torch names it when memory runs out: the card less what the driver keeps."""
    plots.waterfall(steps.assign(card_bytes=ints(*[79 * GIB] * 5)), ax=ax)
    assert "whole card (CUDA counts 79.00): 80.00" in texts(ax)


def test_of_several_ranks_the_waterfall_names_the_one_that_is_drawn(steps: pd.DataFrame, ax: Axes) -> None:
    plots.waterfall(steps.assign(rank="TP1", rank_words="no rank has less"), ax=ax)
    assert ax.get_xlabel() == "GiB of the card, of TP1 (no rank has less)"


def test_one_rank_of_many_is_not_said_to_have_least(ax: Axes) -> None:
    """A log of TP0 alone, of a server of eight ranks; beside it one of four, all of whose ranks logged."""
    alone = of_path(TESTS / "logs" / "sglang" / "one_rank" / "0.5.16-tp8-dflash-32.log.gz")
    plots.waterfall(frames.waterfall(alone), ax=ax)
    assert ax.get_xlabel().startswith("GiB of the card, of TP0 (1 rank of 8 in this log; others may have less); ")
    four = frames.waterfall(of_path(TESTS / "records" / "tp4_dflash_r8"))
    assert four["rank"].iloc[0] == "TP1" and set(four["rank_words"]) == {"no rank has less"}


def test_the_memory_of_a_host_is_not_called_a_cards(steps: pd.DataFrame, ax: Axes) -> None:
    host = steps.iloc[1:].assign(place="host", predicted_card_bytes=ints(*[None] * 4), card_bytes=ints(*[None] * 4))
    plots.waterfall(host, ax=ax)
    assert ax.get_xlabel() == "GiB of the host's memory, per rank"
    assert "card" not in texts(ax)


def test_communication_that_is_not_predicted_is_said_to_be_within_the_bar_above(steps: pd.DataFrame, ax: Axes) -> None:
    steps.loc[1, ["term", "label"]] = ["communication", "communication"]
    steps.loc[1, "predicted_bytes"] = pd.NA
    plots.waterfall(steps, ax=ax)
    assert "not predicted: within the bar above" in texts(ax)
    assert to_rgba(ax.containers[2].patches[0].get_facecolor()) == to_rgba(COMMUNICATION)
    assert bars(ax, "predicted_bytes:")[1] == (1, 10, False)  # kv begins where the bar above ended


def test_no_text_runs_into_the_line_of_the_card(steps: pd.DataFrame, ax: Axes) -> None:
    """Predicted graphs stand at 78.5 of 80 GiB: their words lie left of that."""
    sizes = ints(1 * GIB, 50 * GIB, 55 * GIB // 2, None, 3 * GIB // 2)
    plots.waterfall(steps.assign(predicted_bytes=sizes), ax=ax)
    word = next(text for text in ax.texts if text.get_text() == "not predicted")
    assert (word.get_ha(), word.get_position()[0] < 78.5) == ("right", True)
    size = next(text for text in ax.texts if text.get_text() == "50.00")
    assert (size.get_ha(), size.get_position()[0] > 51) == ("left", True)


def test_there_is_no_negative_zero(steps: pd.DataFrame, ax: Axes) -> None:
    steps.loc[2, ["term", "label", "predicted_bytes", "observed_bytes"]] = [
        "unexplained",
        "unexplained rest",
        -MIB,
        -MIB,
    ]
    plots.waterfall(steps, ax=ax)
    assert ax.get_xlabel().endswith("unexplained rest: 0.00 predicted, 0.00 recorded")
    assert "-0.00" not in texts(ax)


def test_waterfall_of_nothing_is_a_note(ax: Axes, steps: pd.DataFrame) -> None:
    plots.waterfall(steps.iloc[:0], ax=ax)
    assert not ax.containers
    assert "not logged" in texts(ax)


def test_every_term_has_its_own_colour() -> None:
    assert set(TERM_COLOURS) == set(TERMS)
    assert len(set(TERM_COLOURS.values())) == len(TERMS)
    assert COMMUNICATION not in TERM_COLOURS.values()
    assert algorithm_colour("dflash") == algorithm_colour("DFLASH") != algorithm_colour("none")


def memory_rows() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "run": ["a", "a", "b", "b"],
            "rank": ["", "", "", ""],
            "term": ["weights", "kv", "weights", "kv"],
            "basis": ["measured"] * 4,
            "predicted": ints(50 * GIB, 5 * GIB, 25 * GIB, 7 * GIB),
            "observed": ints(51 * GIB, 5 * GIB, None, None),
        }
    )


def test_memory_by_term_stacks_per_run(ax: Axes) -> None:
    plots.memory_by_term(memory_rows(), ax=ax)
    assert bars(ax, "predicted:a:") == [(0, 50, False), (50, 5, False)]
    assert bars(ax, "observed:a:") == [(0, 51, True), (51, 5, True)]
    assert bars(ax, "observed:b:") == []
    assert "not logged" in texts(ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]


def run_rows() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "run": ["cap", "no", "load"],
            "outcome": ["capped", "refused", "started"],
            "asked_requests": ints(8, 8, 4),
            "resolved_requests": ints(1, None, 4),
            "served_requests": ints(1, None, None),
            "origin": ["measured", "measured", "recorded"],
        }
    )


def test_asked_resolved_served_draws_only_what_is_known(ax: Axes) -> None:
    plots.asked_resolved_served(run_rows(), ax=ax)
    marks = {
        line.get_label(): (line.get_xdata()[0], line.get_markerfacecolor())
        for line in ax.lines
        if ":" in str(line.get_label())
    }
    assert marks["asked_requests:cap"] == (8.0, "white")
    assert marks["resolved_requests:cap"][0] == 1.0
    assert marks["resolved_requests:cap"][1] != "white"
    assert marks["served_requests:cap"][0] == 1.0
    assert "resolved_requests:no" not in marks
    assert "served_requests:load" not in marks
    assert "refused" in texts(ax)
    assert "capped" in texts(ax)
    assert "started, nothing sent" in texts(ax)
    assert legend(ax) == ["asked", "resolved by the engine (measured or recorded)", "served (measured or recorded)"]


def request_rows() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "load": ["1 client", "8 clients", "8 clients", "8 clients"],
            "origin": ["measured"] * 4,
            "ok": pd.array([True, True, True, False], dtype="boolean"),
            "simulated_acceptance": pd.array([None] * 4, dtype="string"),
            "ttft_s": pd.array([0.12, 0.5, 0.7, None], dtype="Float64"),
        }
    )


def test_ecdf_leaves_failed_requests_out_and_says_so(ax: Axes) -> None:
    plots.latency_ecdf(request_rows(), "ttft_s", ax=ax)
    assert legend(ax) == ["1 client (n=1)", "8 clients (n=2)"]
    assert "1 failed" in ax.get_legend().get_title().get_text()
    assert sorted(value for value in ax.lines[1].get_xdata() if value > 0) == [0.5, 0.7]
    assert ax.get_xlabel() == "time to first token (s), measured"


def test_curves_of_several_loads_differ_in_colour_and_in_line(ax: Axes) -> None:
    loads = [f"{clients} clients" for clients in (1, 2, 4, 8, 16)]
    rows = pd.DataFrame(
        {
            "load": loads,
            "origin": ["measured"] * 5,
            "ok": pd.array([True] * 5, dtype="boolean"),
            "simulated_acceptance": pd.array([None] * 5, dtype="string"),
            "ttft_s": pd.array([0.1, 0.2, 0.3, 0.4, 0.5], dtype="Float64"),
        }
    )
    plots.latency_ecdf(rows, "ttft_s", ax=ax)
    assert [line.get_color() for line in ax.lines] == ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7"]
    assert [line.get_linestyle() for line in ax.lines] == ["-", "--", ":", "-.", "-"]
    both = {(LINE_COLOURS[n % len(LINE_COLOURS)], LINE_STYLES[n % len(LINE_STYLES)]) for n in range(28)}
    assert len(both) == 28


def test_legends_lie_above_the_data(ax: Axes) -> None:
    def lies_above(axes: Axes) -> bool:
        axes.figure.canvas.draw()
        return axes.get_legend().get_window_extent().y0 >= axes.get_window_extent().y1 - 1

    _, panels = plt.subplots(1, 3)
    plots.request_queue(timeline_rows(), asked=8, ax=panels[0])
    plots.pool_usage(timeline_rows(), ax=panels[1])
    plots.latency_ecdf(request_rows(), "ttft_s", ax=panels[2])
    assert [lies_above(panel) for panel in panels] == [True] * 3


def latency_rows() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "run": ["a", "b"],
            "algorithm": ["none", "DFLASH"],
            "load": ["8 clients", "8 clients"],
            "metric": ["tpot_s", "tpot_s"],
            "random_weights": pd.array([True, True], dtype="boolean"),
            "simulated_acceptance": pd.array([None, None], dtype="string"),
            "count": ints(12, None),
            "p50": pd.array([0.0164, None], dtype="Float64"),
            "p90": pd.array([0.0180, None], dtype="Float64"),
            "maximum": pd.array([0.0300, None], dtype="Float64"),
            "mean": pd.array([0.0165, None], dtype="Float64"),
            "ok": ints(8, 0),
            "failed": ints(0, 8),
        }
    )


def test_latency_bars_are_in_milliseconds_and_failures_are_words(ax: Axes) -> None:
    plots.latency_bars(latency_rows(), "tpot_s", ax=ax)
    assert [bar[1] for bar in bars(ax, "a:")] == pytest.approx([16.4])
    assert bars(ax, "b:") == []
    assert "8 failed" in texts(ax)
    assert "(ms)" in ax.get_xlabel()
    assert legend(ax) == ["none"]  # DFLASH has no bar
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a · 8 clients (n=12)", "b · 8 clients"]


def test_the_median_stands_at_its_bar_and_off_the_line(ax: Axes) -> None:
    plots.latency_bars(latency_rows(), "tpot_s", ax=ax)
    figure = next(text for text in ax.texts if text.get_text() == "16.4")
    assert 16.4 < figure.get_position()[0] < 16.7
    (line,) = ax.lines
    assert list(line.get_xdata()) == pytest.approx([16.4, 18.0])  # to the 90th percentile
    assert line.get_ydata()[0] - figure.get_position()[1] > 0.3  # rows are 1 apart, the text is 0.45 high


def test_of_few_requests_the_line_ends_at_the_largest(ax: Axes) -> None:
    plots.latency_bars(latency_rows().assign(count=ints(2, None)), "tpot_s", ax=ax)
    assert list(ax.lines[0].get_xdata()) == pytest.approx([16.4, 30.0])
    assert "of fewer than 10 requests to the largest" in ax.get_xlabel()


def test_random_weights_are_said_where_they_matter(ax: Axes) -> None:
    rows = latency_rows().assign(algorithm=["DFLASH", "EAGLE"])
    plots.latency_bars(rows, "tpot_s", ax=ax)
    assert "All bars: random weights (--load-format dummy)" in ax.get_xlabel()
    ax.clear()
    mixed = rows.assign(algorithm=["DFLASH", "none"])  # without speculation weights decide no time
    plots.latency_bars(mixed, "tpot_s", ax=ax)
    assert "Marked *: random weights" in ax.get_xlabel()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a · 8 clients (n=12) *", "b · 8 clients"]
    ax.clear()
    plots.latency_bars(rows.assign(random_weights=pd.array([False, False], dtype="boolean")), "tpot_s", ax=ax)
    assert "random" not in ax.get_xlabel()
    ax.clear()
    plots.latency_bars(rows.assign(metric=["ttft_s", "ttft_s"]), "ttft_s", ax=ax)
    assert "random" not in ax.get_xlabel()
    ax.clear()
    plots.acceptance(rows.assign(metric=["accept_length", "accept_length"]), ax=ax)
    assert "says nothing about a trained draft model" in ax.get_xlabel()


def test_acceptance_without_speculation_is_a_note(ax: Axes) -> None:
    plots.acceptance(latency_rows(), ax=ax)
    assert "not logged" in texts(ax)


def timeline_rows() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "time_s": pd.array([0.0, 1.0, 2.0], dtype="Float64"),
            "kv_usage": pd.array([0.01, 0.02, 0.02], dtype="Float64"),
            "state_usage": pd.array([None, None, None], dtype="Float64"),
            "running_requests": ints(1, 1, 1),
            "queued_requests": ints(7, 6, 5),
        }
    )


def test_pool_usage_draws_only_the_pools_that_were_logged(ax: Axes) -> None:
    plots.pool_usage(timeline_rows(), ax=ax)
    assert list(ax.lines[0].get_ydata()) == pytest.approx([1.0, 2.0, 2.0])
    assert "%" in ax.get_ylabel()


def test_request_queue_shows_running_waiting_and_asked(ax: Axes) -> None:
    plots.request_queue(timeline_rows(), asked=8, ax=ax)
    assert legend(ax) == ["running", "waiting", "asked at once: 8"]
    assert list(ax.lines[1].get_ydata()) == [7, 6, 5]


def phase_rows(**columns: Any) -> pd.DataFrame:
    rows = {
        "phase": ["start", "serving", "conc8", "idle", "retraction"],
        "kind": ["start", "serving", "step", "idle", "retraction"],
        "begin": [-40.0, 0.0, 2.0, 50.0, 30.0],
        "end": [0.0, 50.0, 40.0, 90.0, 30.0],
        "unit": ["s"] * 5,
    }
    return pd.DataFrame(rows | columns)


def test_phases_are_bars_in_rows_and_a_long_start_is_cut(ax: Axes) -> None:
    plots.phase_strip(phase_rows(), ax=ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["workload", "server", "retractions"]
    step, start, serving, idle = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in ax.patches]
    assert (step, serving, idle) == ((2, 40), (0, 50), (50, 90))
    # 12 % of the 90 s from the first line to the last are left for the start of 40 s
    assert start == pytest.approx((-0.12 * 90 - 0.005 * 90, 0))
    assert [text.get_text() for text in ax.texts] == ["conc8", "start, 40 s", "serving", "idle"]
    (mark,) = ax.lines
    assert (list(mark.get_xdata()), mark.get_marker()) == ([30], "v")


def test_names_of_phases_are_no_formulas(ax: Axes) -> None:
    plots.phase_strip(phase_rows(phase=["start", "serving", r"$\frac{1}", "idle", "retraction"]), ax=ax)
    ax.figure.canvas.draw()  # matplotlib would fail to parse it
    assert r"$\frac{1}" in texts(ax)


def test_phases_are_marked_in_every_figure_over_time(ax: Axes) -> None:
    plots.request_queue(timeline_rows(), phases=phase_rows(), ax=ax)
    upright = [line.get_xdata()[0] for line in ax.lines if len(set(line.get_xdata())) == 1]
    assert upright == [2.0, 30.0]  # the step, and the retraction
    (idle,) = ax.patches
    assert (idle.get_x(), idle.get_width()) == (50, 40)


def test_a_series_that_was_not_logged_says_so(ax: Axes) -> None:
    plots.pool_usage(timeline_rows(), ax=ax)
    assert legend(ax) == ["KV tokens", "state slots: not logged"]
    ax.clear()
    plots.accept_lengths(timeline_rows().assign(accept_length=[None] * 3), ax=ax)
    assert "acceptance length: not logged (no speculation, or the server never decoded)" in texts(ax)


def test_lines_without_times_are_drawn_over_their_numbers(ax: Axes) -> None:
    rows = timeline_rows().assign(time_s=pd.array([None] * 3, dtype="Float64"), line=ints(70, 80, 95))
    plots.accept_lengths(rows.assign(accept_length=[2.5, 3.0, 2.0]), ax=ax)
    assert list(ax.lines[0].get_xdata()) == [70, 80, 95]
    assert ax.get_xlabel() == "line of the log: its lines have no time"


def test_thousands_of_lines_are_thinned_and_it_is_said(ax: Axes) -> None:
    """4,000 lines, a second apart, that run 3 and 9 requests in turns: in each part the mean is 6, from 3 to 9."""
    many = pd.DataFrame(
        {
            "time_s": pd.array([float(second) for second in range(4000)], dtype="Float64"),
            "running_requests": ints(*([3, 9] * 2000)),
            "queued_requests": ints(*([0] * 4000)),
            "lines": ints(*([90_000] * 4000)),
        }
    )
    plots.request_queue(many, ax=ax)
    assert len(ax.lines[0].get_xdata()) == 400
    assert set(ax.lines[0].get_ydata()) == {6.0}
    band = ax.collections[0].get_paths()[0].vertices
    assert {float(corner) for corner in band[:, 1]} == {3.0, 9.0}
    assert "4,000 decode lines: the mean, and from least to most, of each 1/400 of the width" in ax.get_xlabel()
    assert ax.get_xlabel().endswith("; kept of 90,000 in the log")


def test_no_line_is_drawn_over_idle_time(ax: Axes) -> None:
    """A line a second, and then none for an hour."""
    rows = pd.DataFrame(
        {
            "time_s": pd.array([0.0, 1.0, 2.0, 3602.0, 3603.0], dtype="Float64"),
            "accept_length": [2.0, 2.5, 3.0, 2.0, 2.5],
        }
    )
    plots.accept_lengths(rows, ax=ax)
    assert [float(figure) for figure in ax.lines[0].get_ydata()[:3]] == [2.0, 2.5, 3.0]
    assert pd.isna(ax.lines[0].get_ydata()[3])
    assert list(ax.lines[0].get_xdata()) == [0, 1, 2, 3602, 3602, 3603]


def test_a_run_that_never_decoded_has_a_note(ax: Axes) -> None:
    plots.request_queue(timeline_rows().iloc[:0], ax=ax)
    assert "never decoded" in texts(ax)


def test_gpu_memory_is_in_gib(ax: Axes) -> None:
    samples = pd.DataFrame(
        {
            "time_s": pd.array([0.0, 1.0, 50.0], dtype="Float64"),
            "phase": pd.array(["before", "start", "warmup"], dtype="string"),
            "gpu": ints(0, 0, 0),
            "used_bytes": ints(GIB, 3 * GIB, 3 * GIB),
            "total_bytes": ints(4 * GIB, 4 * GIB, 4 * GIB),
        }
    )
    plots.gpu_memory(samples, ax=ax)
    assert list(ax.lines[0].get_ydata()) == [1.0, 3.0, 3.0]
    assert legend(ax) == ["GPU 0", "card"]
    assert [line.get_xdata()[0] for line in ax.lines[2:]] == [0.0, 1.0, 50.0]  # where phases begin
    assert [text.get_text() for text in ax.texts] == ["start"]  # the others are too short for their names


def test_theme_is_the_only_thing_that_changes_settings() -> None:
    with mpl.rc_context():
        plots.theme()
        assert mpl.rcParams["axes.spines.top"] is False
