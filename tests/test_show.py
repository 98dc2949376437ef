"""Tables: the same cells as HTML and as text, unknown is a word, and both forms of a figure."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from specbench import show
from specbench.budget.predict import predict
from specbench.engines.contract import Line
from specbench.params import load_run
from specbench.reading import latency
from specbench.records import listing
from specbench.records.caveats import RANDOM_WEIGHTS
from specbench.records.provenance import provenance
from specbench.records.record import RunRecord
from specbench.records.types import CacheState
from specbench.show.campaign import missing_notice
from specbench.show.figures import amount_cell, change_text, interval_cell, logged_cell, remedy_cell, setting_text
from specbench.show.findings import clipped
from specbench.show.run import served_cell
from specbench.show.serving import _spread
from specbench.show.shown import Cell, code_lines, joined, paragraph, table
from specbench.show.story import warnings
from specbench.studies.opened import opened
from specbench.studies.study import collect, study
from specbench.units import GIB, MIB, Interval, Quantity, format_gib
from specbench.whatif import panel

ROOT = Path(__file__).parent.parent
RECORDS = Path(__file__).parent / "records"


def test_a_table_prints_whole_numbers_and_shows_thousands() -> None:
    shown = table(["run", "tokens"], [["a", 87061], ["bb", None]])
    assert str(shown) == "run      tokens\n---  ----------\na         87061\nbb   not logged"
    assert '<td class="num short">87,061</td>' in shown.html
    assert '<td class="muted">not logged</td>' in shown.html
    assert '<th scope="col" class=num>tokens</th>' in shown.html


def test_a_wide_table_says_so_and_a_stacked_one_names_its_cells() -> None:
    assert '<div class="table-wrap" ' in table(["a"] * 6, []).html
    assert '<div class="table-wrap many" ' in table(["a"] * 7, []).html
    stacked = table(["run", "<b>"], [["a", 1]], stack=True).html
    assert '<div class="table-wrap stack" ' in stacked
    assert '<td data-label="&lt;b&gt;" class="num short">1</td>' in stacked


def test_a_notebook_shows_the_html_and_a_terminal_the_text() -> None:
    shown = paragraph("a < b")
    assert shown.html == "<p>a &lt; b</p>"
    # in which JupyterLab sets no formula: $x$ of a log line is text
    assert shown._repr_html_() == f'<div class="tex2jax_ignore mathjax_ignore">{shown.html}</div>'
    assert str(shown) == repr(shown) == "a < b"
    assert joined([shown, shown]).html == "<p>a &lt; b</p><p>a &lt; b</p>"


def test_log_lines_keep_their_numbers_and_are_escaped() -> None:
    shown = code_lines([(30, "KV <b>"), (None, "x")], label="log")
    assert '<span class="ln">30</span> KV &lt;b&gt;\nx</pre>' in shown.html
    assert str(shown) == "  line 30: KV <b>\n  x"


def test_a_predicted_figure_shows_its_range() -> None:
    exact = interval_cell(Interval.exact(87061), "count")
    assert (exact.text, exact.printed) == ("87,061", "87061")
    wide = interval_cell(Interval(85906, 87150, 88971), "count")
    assert (wide.text, wide.printed) == ("87,150 (85,906 to 88,971)", "87150 [85906, 88971]")
    size = interval_cell(Interval.exact(3 * GIB), "bytes")
    assert (size.text, size.printed, size.title) == ("3.000 GiB", "3221225472", "3,221,225,472 B")
    assert interval_cell(None, "bytes").text == "not predicted"


def test_a_difference_has_its_sign() -> None:
    assert amount_cell(175, "count", signed=True).printed == "+175"
    assert amount_cell(-GIB, "bytes", signed=True).text == "-1.000 GiB"
    assert amount_cell(None, "bytes").text == "not logged"


def test_settings_read_like_a_params_file() -> None:
    assert setting_text({"a": None, "b": [1, 8], "c": True}) == "a: not given, b: 1, 8, c: true"
    assert change_text({"memory.max_running_requests": 4}) == "memory.max_running_requests=4"


def test_long_lines_say_how_much_is_left_out() -> None:
    assert clipped("x" * 360) == "x" * 360
    assert clipped("x" * 1360).endswith("… (1,000 more characters)")


def test_a_link_is_quoted() -> None:
    assert Cell(text="a", href="x y/index.html").html == '<td class="short"><a href="x%20y/index.html">a</a></td>'


def test_the_configuration_lists_what_is_set_and_nothing_else() -> None:
    text = str(show.configuration(load_run(ROOT / "params" / "story" / "tp1-4.yaml")))
    lines = [line.split() for line in text.splitlines()]
    assert ["max_running_requests", "4"] in lines  # a key per row, under its section
    assert ["memory", "mem_fraction_static", "0.75"] in lines
    assert "page_size" not in text


def test_flags_of_the_engine_are_rows_of_their_own() -> None:
    lines = str(show.configuration(load_run(ROOT / "params" / "recordings" / "dflash_r8.yaml"))).splitlines()
    assert ["args.load-format", "dummy"] in [line.split() for line in lines]
    assert max(len(line) for line in lines) < 80


def test_a_budget_says_predicted_basis_and_what_the_engine_would_say() -> None:
    shown = show.budget(predict(load_run(ROOT / "params" / "recordings" / "0512_dflash_r8_exact.yaml")))
    assert "predicted: refused" in shown.html
    assert "the configuration alone" in shown.html
    assert "max_running_request is zero" in shown.html


def test_what_if_varies_one_key() -> None:
    config = load_run(ROOT / "params" / "recordings" / "0512_dflash_r4_exact.yaml")
    text = str(show.what_if(config, "memory.max_running_requests", [4, 8]))
    four, eight = text.splitlines()[2:]
    assert four.split()[:3] == ["4", "serves", "4"]
    assert eight.split()[:3] == ["8", "refused", "0"]


def test_a_value_that_cannot_be_tried_is_a_row_with_the_reason() -> None:
    config = load_run(ROOT / "params" / "recordings" / "0512_dflash_r4_exact.yaml")
    text = str(show.what_if(config, "model", ["no/such-model"]))
    assert "no/such-model" in text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dflash_r8", "Capped: 8 requests at once asked, 1 resolved, 1 served at once."),
        ("nospec_r8", "Served: 8 requests at once asked, 8 resolved, 8 served at once."),
        ("0512_dflash_r8", "Refused: 8 requests at once asked, none served: the server did not start."),
        ("0512_dflash_r4_exact", "Started: 4 requests at once asked, 4 resolved; no request was sent (load-only run)."),
        ("nospec_defaults", "Started: As many as fit asked, 43 resolved; no request was sent (load-only run)."),
        (
            "h200_too-long",
            "Served: 4 requests at once asked, 4 resolved, 1 served at once; 1 of 3 requests answered.",
        ),
        (
            "nextn_r4_full",
            "Crashed: 4 requests at once asked, 4 resolved; no request answered before the server died.",
        ),
    ],
)
def test_the_headline_is_one_sentence(name: str, expected: str) -> None:
    lines = str(show.headline(study(RECORDS / name))).splitlines()
    # What marks every figure of a run comes before it.
    marked = ("SIMULATED ACCEPTANCE", "EMULATED BUDGET")
    assert next(line for line in lines if line and not line.startswith(marked)) == expected


def test_served_table_keeps_asked_predicted_resolved_and_served_apart() -> None:
    text = str(show.served_table(study(RECORDS / "dflash_r8")))
    row = next(line for line in text.splitlines() if line.startswith("running_requests"))
    assert row.split() == ["running_requests", "8", "1", "1", "1", "(by", "decode", "line", "79)"]
    assert "resolved (recorded)" in text
    assert "predicted (from logged free memory)" in text


def test_ranks_that_agree_share_a_row() -> None:
    text = str(show.reconciliation(study(RECORDS / "tp4_dflash_r8"))).partition("From four sides")[0]
    slots = [line for line in text.splitlines() if line.startswith("state_slots")]
    assert len(slots) == 1
    assert "TP0 to TP3" in slots[0]
    # ranks that differ stand one below the other
    names = [line.split()[0] for line in text.splitlines() if line and not line.startswith("-")]
    place = names.index("slack")
    assert names[place : place + 4] == ["slack", "slack", "slack", "state_slots"]


def test_of_several_ranks_slots_and_tokens_are_said_to_be_the_servers() -> None:
    """Qwen3.6-27B has 4 KV heads: 2 on each of two ranks, one on each of four."""
    said = "47 slots and 748,747 tokens are those of the server, not to be multiplied: each rank holds 1/2 of every "
    two = study(RECORDS / "h200-tp2_dflash-8")
    for shown in (show.overview(two), show.budget(two.diagnosis.budgets["measured"])):
        assert shown.text.count(f"{said}slot's state and 2 of the 4 KV heads of every token.") == 1
    assert "8 running requests (42.54 GiB left for pools per card)" in show.overview(two).text
    four = show.overview(study(RECORDS / "tp4_dflash_r8")).text
    assert "each rank holds 1/4 of every slot's state and one of the 4 KV heads of every token." in four
    one = show.overview(study(RECORDS / "dflash_r8")).text
    assert "not to be multiplied" not in one and "left for pools)" in one


def test_there_is_no_negative_zero() -> None:
    assert format_gib(-1) == "0.00 GiB" and format_gib(-GIB) == "-1.00 GiB"
    assert amount_cell(-1, "bytes").text == "0.000 GiB"
    assert interval_cell(Interval(-2 * MIB, -1, 0), "bytes").text == "0.000 GiB (-0.002 to 0.000)"


def test_no_digit_is_shown_that_nobody_printed_and_no_range_that_reads_as_one_figure() -> None:
    """'ssm_state size: 4.87GB' is known to ± 0.005; NVML's bytes are exact. Bounds that read alike are not repeated."""
    assert logged_cell(Quantity(5_229_122_683, GIB // 200)).text == "4.87 GiB"
    assert logged_cell(Quantity(5_229_122_683)).text == "4.870 GiB"
    cell = interval_cell(Interval(102_000_000, 102_111_232, 102_222_000), "bytes")
    assert (cell.text, cell.title) == ("0.095 GiB", "102,000,000 to 102,222,000 B")
    ledger = show.ledger(study(RECORDS / "dflash_r8"))
    assert "graphs, target" in ledger.text and "graphs, draft" in ledger.text and ">65.80 GiB<" in ledger.html


def test_what_a_configuration_does_not_have_is_no_row() -> None:
    without = study(RECORDS / "nospec_r8")
    for text in (str(show.reconciliation(without)), str(show.reconciliation_verdict(without))):
        assert "weights" in text
        assert "draft" not in text
        assert "scratch" not in text
    # what was predicted and not logged stays: it may have been missed
    assert "draft_kv" in str(show.reconciliation(study(RECORDS / "0512_dflash_r8")))


def test_none_was_served_is_said_in_words() -> None:
    refused, crashed = study(RECORDS / "0512_dflash_r8"), study(RECORDS / "nextn_r4_full")
    assert served_cell(refused).printed == "none (did not start)"
    assert served_cell(crashed).text == "none"
    row = next(line for line in str(show.served_table(crashed)).splitlines() if line.startswith("running_requests"))
    assert row.split()[-1] == "none"


def test_a_row_of_a_campaign_says_that_some_were_not_answered(tmp_path: Path) -> None:
    for name in ("h200_too-long", "nospec_r8"):
        shutil.copytree(RECORDS / name, tmp_path / name / "record")
    rows = str(show.runs_table(collect(tmp_path))).splitlines()
    row = next(line for line in rows if line.startswith("h200_too-long"))
    assert "served" in row
    assert "1 of 3 requests answered: 1 request refused, too long for the context length" in row
    assert "requests answered" not in next(line for line in rows if line.startswith("nospec_r8"))


def test_to_ask_for_less_is_no_green_remedy() -> None:
    capped = study(RECORDS / "dflash_r8")
    less = next(
        remedy
        for finding in capped.diagnosis.findings
        for remedy in finding.remedies
        if dict(remedy.set) == {"memory.max_running_requests": 1}
    )
    shown = remedy_cell(less, capped.wanted)
    assert (shown.printed, shown.tone) == ("serves 1 (fewer than asked)", "warn")
    assert remedy_cell(less, None).text == remedy_cell(less, 1).text == "serves"


def test_random_weights_are_said_where_the_figures_are() -> None:
    capped, plain = study(RECORDS / "dflash_r8"), study(RECORDS / "nospec_r8")
    assert (
        show.overview(capped).html.count(f'<p class="caveat">{RANDOM_WEIGHTS[0].upper()}{RANDOM_WEIGHTS[1:]}.</p>') == 1
    )
    assert "say nothing about a trained draft model" in show.latency(capped).html
    assert "trained" not in show.latency(plain).html  # without speculation the weights decide no time


def test_a_run_on_the_cpu_says_so_where_the_figures_are() -> None:
    recorded = study(RECORDS / "dflash_r8")
    args = recorded.record.config.engine.args | {"device": "cpu"}
    changed = recorded.record.config.replace({"engine.args": args})
    record = RunRecord(recorded.record.folder, recorded.record.status, changed, recorded.record.env)
    seen = replace(recorded, record=record)
    assert "NOT A PERFORMANCE FIGURE" in show.overview(seen).html
    assert "CPU, tiny model: not a performance figure." in show.latency(seen).html
    assert "on the CPU" in provenance(record) and "H200" not in provenance(record)
    assert "performance figure" not in show.overview(recorded).html + show.latency(recorded).html


def test_where_figures_come_from_is_said_once_and_only_of_what_was_seen() -> None:
    capped = study(RECORDS / "dflash_r8")
    assert show.overview(capped).html.count("specbench 0.1.0") == 1
    assert "on 1 × NVIDIA H200" in provenance(capped.record)
    unseen = RunRecord(capped.record.folder, capped.record.status, capped.record.config, {})
    assert "asked for 1 × h200, which no record confirms" in provenance(unseen)


def test_a_run_without_findings_says_so_and_counts_what_is_off() -> None:
    text = str(show.findings(study(RECORDS / "0512_dflash_r4_exact")))
    assert text == "No finding: nothing was refused, capped or spoiled. Figures off the prediction: 0."


def test_requests_before_a_crash_are_counted_with_the_warm_up_and_say_so() -> None:
    found = study(RECORDS / "h200_nextn-4-full-card")
    assert [request.phase for request in found.record.requests() if request.ok] == ["warmup", "measured"]
    cause = found.diagnosis.findings[0].cause
    assert (
        " The server died while serving after 2 requests (warm-up included), at the first batch of step conc4-in1024 "
        in cause
    )
    silent = [request for request in found.record.requests() if not request.ok]
    assert len(silent) == 4
    assert "1 of 5 requests answered before the server died." in str(show.headline(found))


def test_each_remedy_names_its_basis_where_they_differ() -> None:
    from specbench.show.findings import _remedies

    found = study(RECORDS / "h200_dflash-8")
    remedies = found.diagnosis.findings[0].remedies
    assert {remedy.basis for remedy in remedies} == {"measured", "config"}
    mixed = str(_remedies(remedies, found, ()))
    assert mixed.startswith("Remedies, their effect predicted from what each row names. Order: ")
    rows = {line.split("  ")[0]: line for line in mixed.splitlines()}
    more = next(line for change, line in rows.items() if change.startswith("parallel.tp_size=2"))
    fewer = next(line for change, line in rows.items() if change.startswith("memory.max_running_requests=1"))
    # params: an H200 with the budget of an RTX PRO 6000, whose free memory no start has told (data/gpus.yaml)
    source = "predicted from the configuration alone; free memory inferred, not measured on 2 × RTX PRO 6000"
    assert more.rstrip().endswith(f"({source})")
    assert fewer.rstrip().endswith("(predicted from this run's free memory)")
    alike = str(_remedies([one for one in remedies if one.basis == "config"], found, ()))
    assert alike.startswith(f"Remedies, their effect {source}. Order: ")
    assert "(predicted from" not in alike


def test_lines_that_nobody_could_read_are_shown() -> None:
    whole = study(RECORDS / "0512_dflash_r8")
    unread = Line(line=7, text="KV Cache is allocated. <b>")
    shown = show.findings(replace(whole, diagnosis=replace(whole.diagnosis, unread=(unread,))))
    assert "1 line looks like a figure but fits no known form" in shown.text
    assert "KV Cache is allocated. &lt;b&gt;" in shown.html


def test_latency_of_a_run_without_requests_says_so() -> None:
    assert "No request was sent" in str(show.latency(study(RECORDS / "0512_dflash_r8")))


def test_few_requests_have_a_range_and_many_have_percentiles() -> None:
    two, ten = latency.distribution([0.1, 0.3]), latency.distribution([float(value) for value in range(1, 12)])
    assert _spread(two, 1.0, 2).printed == "0.20 (n=2: 0.10 to 0.30)"
    assert _spread(ten, 1.0, 1).printed == "6.0 (p90 10.0, p99 10.9)"
    assert _spread(latency.distribution([0.5]), 1.0, 2).printed == "0.50 (n=1)"


def test_the_course_of_a_run_counts_what_was_answered() -> None:
    text = str(show.course(study(RECORDS / "nextn_r4_full").record))
    lines = [line for line in text.splitlines() if line.startswith(("warm", "seq", "conc"))]
    rows = {line.split()[0]: line.split()[-3:] for line in lines}
    assert rows == {
        "warm-up": ["1", "of", "1"],
        "warmup2": ["0", "of", "4"],  # here it died
        "seq1": ["0", "of", "2"],
        "conc4": ["0", "of", "4"],
    }
    assert "How it ended: ended while serving: RuntimeError" in text


def test_a_start_that_made_no_server_ready_is_not_called_until_ready() -> None:
    record = study(RECORDS / "h200_story-8").record
    assert record.status.ready_s is None
    for ready_s, name in ((None, "start"), (61.0, "start, until ready")):
        status = record.status.model_copy(update={"ready_s": ready_s, "phases": {"start": 0.46}})
        text = str(show.course(RunRecord(record.folder, status, record.config, record.env)))
        assert [line.split("  ")[0] for line in text.splitlines() if line.endswith("0.46")] == [name]


def test_the_course_tells_the_parts_of_the_start_and_the_cache() -> None:
    """The engine's own warm-up is part of its start; the warm-up requests are ours."""
    record = study(RECORDS / "nospec_r8").record
    status = record.status.model_copy(
        update={
            "stages": {"importing": 50.0, "the engine's own warm-up": 3.5},
            "caches": {"conc8": CacheState(flushed=False, used_tokens=5120)},
        }
    )
    text = str(show.course(RunRecord(record.folder, status, record.config, record.env)))
    lines = {line.split("  ")[0]: line.split() for line in text.splitlines()}
    assert lines["– importing"][-1] == "50.00"
    assert lines["– the engine's own warm-up"][-1] == "3.50"
    assert "warm-up requests" in lines
    assert lines["conc8"][-6:] == ["NOT", "flushed,", "5,120", "tokens", "in", "use"]


def test_an_old_figure_of_the_cache_does_not_deny_its_flush() -> None:
    record = study(RECORDS / "nospec_r8").record
    for flushed, said in (
        (True, "flushed, 0 tokens in use (8,192 tokens cached by its last report, which is up to 30 s old and may be "),
        (False, "NOT flushed, 0 tokens in use (8,192 tokens cached by its last report)"),
    ):
        cache = CacheState(flushed=flushed, used_tokens=0, evictable_tokens=8192)
        status = record.status.model_copy(update={"caches": {"conc8": cache}})
        text = str(show.course(RunRecord(record.folder, status, record.config, record.env)))
        (line,) = [line for line in text.splitlines() if line.startswith("conc8")]
        assert said in line


def test_failed_requests_are_quoted() -> None:
    text = str(show.latency(study(RECORDS / "nextn_r4_full")))
    assert "stream ended without a token" in text


_KEY, _PASSWORD, _HOME = "hf_ABCDEFGHIJKLMNOPQRSTUV", "hunter2secret", "/home/alice"


@pytest.mark.parametrize(
    ("model", "algorithm", "error"),
    [
        ("qwen36-27b", "DFLASH", f"401 for {_KEY} at https://bob:{_PASSWORD}@hub/x, cached in {_HOME}/.cache"),
        (f"{_HOME}/{_KEY}/qwen36-27b", "DFLASH", "x"),
        (f"https://bob:{_PASSWORD}@hub/unknown", "DFLASH", "x"),
        ("qwen36-27b", _KEY, "x"),
    ],
)
def test_no_sentence_of_a_page_holds_a_secret_of_the_log(
    tmp_path: Path, model: str, algorithm: str, error: str
) -> None:
    """Neither the reason, nor where figures come from, nor notes, questions and why there is no what-if."""
    stamp = "[2026-05-20 10:11:12 TP0]"
    file = tmp_path / "server.log"
    file.write_text(
        f"{stamp} server_args=ServerArgs(model_path='{model}', max_running_requests=8, mem_fraction_static=0.8, "
        f"speculative_algorithm='{algorithm}', kv_cache_dtype='{algorithm}')\n"
        f"{stamp} Load weight begin. avail mem=94.00 GB\n"
        f"{stamp} KV Cache is allocated. #tokens: 87061, K size: 2.66 GB, V size: 2.66 GB\n"
        f"{stamp} Scheduler hit an exception: Traceback (most recent call last):\n"
        f'  File "/sglang/srt/x.py", line 1, in run\nRuntimeError: {error}\n',
        "utf-8",
    )
    seen = opened(file)
    shown = [show.overview(seen), show.findings(seen), show.to_send(seen), panel(seen).static(picture=False)]
    text = "".join(one.html + one.text for one in shown)
    assert "RuntimeError" in text
    assert not [secret for secret in (_KEY, _PASSWORD, _HOME) if secret in text]


def test_no_reason_of_a_record_holds_a_secret(tmp_path: Path) -> None:
    for name in ("life", "life.2"):
        shutil.copytree(RECORDS / "nextn_r4_full", tmp_path / name / "record")
        status = tmp_path / name / "record" / "status.json"
        told = json.loads(status.read_text("utf-8"))
        told["reason"] = f"ended while serving: 401 for {_KEY}"
        status.write_text(json.dumps(told), "utf-8")
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "error.txt").write_text(f"RecordError: 401 for {_KEY}", "utf-8")
    found = collect(tmp_path)
    shown = [show.course(found.studies[0].record), show.runs_table(found), show.opening(found)]
    shown.append(missing_notice(f"401 for {_KEY}"))
    for one in shown:
        assert _KEY not in one.html + one.text
        assert "[removed by specbench]" in one.text or one is shown[2]


def test_the_end_of_the_log_has_line_numbers() -> None:
    record = study(RECORDS / "0512_dflash_r8").record
    lines = record.log_bytes().decode().rstrip("\n").split("\n")
    last = str(show.log_tail(record, 3)).splitlines()
    assert last[-1].startswith(f"  line {len(lines)}: ")
    assert len(last) == 3


def test_earlier_attempts_stand_under_the_row_of_the_last(tmp_path: Path) -> None:
    """The first has a page, of the second only the record is there, of the third the folder is gone."""
    for name, source in (("point", "0512_dflash_r8"), ("point.2", "nextn_r4_full"), ("point.4", "nospec_r8")):
        shutil.copytree(RECORDS / source, tmp_path / name / "record")
        listing.begin(tmp_path, "point", tmp_path / name, {})
        if name == "point.2":
            listing.begin(tmp_path, "point", tmp_path / "point.3", {})
    (tmp_path / "point" / "index.html").touch()
    shown = show.runs_table(collect(tmp_path))
    lines = [line for line in str(shown).splitlines() if "point" in line]
    assert [line.split("  ")[0] for line in lines] == [
        "point.4 (0.5.16 · none · TP 1)",
        "earlier attempt: point.3",
        "earlier attempt: point.2",
        "earlier attempt: point",
    ]
    assert "served" in lines[0]
    assert "no record" in lines[1] and "its folder is gone" in lines[1]
    assert "crashed" in lines[2]
    assert "refused" in lines[3]
    assert 'href="point/index.html"' in shown.html
    assert 'href="point.2/index.html"' not in shown.html


def test_marks_that_differ_in_the_passed_fraction_alone_are_said_once(tmp_path: Path) -> None:
    for name in (
        "h200_story-4",
        "h200_dflash-8",
        "h200-tp2_story-8",
        "h200-tp2_dflash-8",
        "h200-tp2_dflash-8-full-card",
    ):
        shutil.copytree(RECORDS / name, tmp_path / name / "record")
    emulated, random = [line for line in str(warnings(collect(tmp_path))).splitlines() if line]
    assert emulated == (
        "EMULATED BUDGET OF RTX PRO 6000 ON H200: mem_fraction_static 0.75 of RTX PRO 6000 was passed as 0.50712862, "
        "0.50738546, 0.50814030; room outside the budget and speed are those of H200: in 4 of 5 runs. These are: "
        "h200-tp2_dflash-8, h200-tp2_story-8, h200_dflash-8, h200_story-4."
    )
    assert random.startswith("In all 5 runs the weights are random")


def test_a_remedy_says_what_it_replaces() -> None:
    page = show.findings(opened(RECORDS / "0512_dflash_r8_exact" / "server.log")).html
    assert "--mem-fraction-static 0.6 (it had mem_fraction_static 0.50814)" in page
    assert "--speculative-num-draft-tokens 4<" in page  # its note says: 4 instead of 16


def test_a_prediction_from_the_configuration_says_whether_its_free_memory_was_measured() -> None:
    emulated, real = study(RECORDS / "h200_dflash-8"), study(RECORDS / "tp4_dflash_r8")
    # data/gpus.yaml: one H200 and four were measured; of an RTX PRO 6000, whose budget the first one has, none was
    unmeasured = "From the configuration: free memory inferred, not measured on 1 × RTX PRO 6000."
    assert unmeasured in str(show.reconciliation(emulated))
    assert "From the configuration: free memory measured on 4 × H200." in str(show.reconciliation(real))
    assert "Predicted from the configuration alone" not in str(show.overview(real))  # it is from its logged memory
    bare = replace(real, diagnosis=replace(real.diagnosis, budgets={"config": real.diagnosis.budgets["config"]}))
    assert "Predicted from the configuration alone; free memory measured on 4 × H200." in str(show.overview(bare))
