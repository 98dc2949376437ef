"""What-if: a change of one start is predicted as `predict` and the recordings say, tried, and proven."""

from __future__ import annotations

import shlex
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench.budget.predict import predict
from specbench.configuration.config import RunConfig
from specbench.diagnose import diagnosis
from specbench.errors import ConfigError, LaunchError
from specbench.params import load_run
from specbench.records.record import RunRecord
from specbench.studies.study import study
from specbench.whatif import figures, handing
from specbench.whatif.controls import changes, controls
from specbench.whatif.outlook import Outlook, WhatIf
from specbench.whatif.recordings import recordings
from specbench.whatif.trial import Trial, Way, replay_of, way

RECORDS = Path(__file__).parent / "records"
COLLAPSED = RECORDS / "0512_dflash_r8_exact"


@pytest.fixture(scope="module", params=["record", "log"])
def collapsed(request: pytest.FixtureRequest) -> WhatIf:
    """The start of 8 requests that was left with 2 state slots: with its record, and as its log alone."""
    return WhatIf.of(diagnosis.of_path(COLLAPSED if request.param == "record" else COLLAPSED / "server.log"))


@pytest.fixture(scope="module")
def record() -> WhatIf:
    return WhatIf.of(diagnosis.of_path(COLLAPSED))


def moved(what: WhatIf, **values: Any) -> Outlook:
    return what.with_(changes(what, controls(what), values))


@pytest.mark.parametrize(
    ("values", "verdict", "requests", "slots", "tokens"),
    [
        # Logged by 0512_dflash_r8_exact: 2 slots, 11,893 tokens; the free memory of the log is good to one token.
        ({}, "refused", 0, 2, 11_894),
        # Logged by 0512_dflash_r4_exact: 24 slots, 87,061 tokens.
        ({"requests": 4}, "serves", 4, 24, 87_062),
        # 4 slots of 2 conv+ssm states each for one request: 18 // 4 = 4 of 5.
        ({"requests": 5}, "capped", 4, 18, 69_165),
        # Scratch for 8 instead of 16 drafts of 8 requests is that of 16 drafts of 4: the same pools, 24 // 4 = 6.
        ({"draft_tokens": 8}, "capped", 6, 24, 87_062),
        # 40 slots of 8 × 16 drafts' scratch: nothing is left for KV.
        ({"slots": 40}, "refused", 0, 40, None),
        ({"ratio": 0.9}, "capped", 1, 4, 8_315),
        ({"fraction": 0.6}, "serves", 8, 32, 117_815),
        # A state of two bytes: 46 // 4 = 11, of which 8 are asked.
        ({"state_dtype": "bfloat16"}, "serves", 8, 46, 85_869),
        # Without a prefix cache a request takes one slot.
        ({"prefix_cache": "off"}, "serves", 8, 8, 1_156),
    ],
)
def test_the_story_of_one_card(
    collapsed: WhatIf, values: dict[str, Any], verdict: str, requests: int, slots: int, tokens: int | None
) -> None:
    found = moved(collapsed, **values)
    assert (found.verdict, found.basis) == (verdict, "measured")
    limits = [found.limit(name) for name in ("running_requests", "state_slots", "kv_tokens")]
    assert limits == [requests, slots, tokens]


def test_other_ranks_are_predicted_from_the_configuration_alone(record: WhatIf) -> None:
    found = moved(record, tp_size=2, fraction=0.5088)
    assert found.changes == {
        "memory.mem_fraction_static": 0.5088,
        "parallel.tp_size": 2,
        "gpu.count": 2,
    }
    assert (found.verdict, found.basis, found.limit("running_requests")) == ("serves", "config", 8)
    said = figures.headline(record, record.with_({}), found).text
    assert "from the configuration alone; free memory measured on 2 × H200: other ranks load other weights" in said
    # tp2_0512_dflash_r8, started so, logged 165 slots and 591,558 tokens.
    assert (found.limit("state_slots"), found.limit("kv_tokens")) == (165, 591_559)


@pytest.mark.parametrize(
    "name",
    ["0512_dflash_r8_exact", "h200_story-8", "nospec_r8", "nextn_r4_full", "tp2_dflash_r8", "oom_r8", "ngram_r8"],
)
def test_without_a_change_it_is_the_diagnosis_own_prediction(name: str) -> None:
    found = diagnosis.of_path(RECORDS / name)
    what = WhatIf.of(found)
    assert what.with_({}).budget == found.budgets.get("measured", found.budgets["config"])
    assert changes(what, controls(what), {}) == {}
    at_start = {one.name: one.start for one in controls(what)}
    assert changes(what, controls(what), dict(at_start)) == {}


def test_a_fraction_that_the_engine_chose_holds_for_the_changed_start_too() -> None:
    """Nothing given: the log's own fraction is that of this start, and moves nothing but what was moved."""
    found = diagnosis.of_path(RECORDS / "nospec_defaults")
    assert found.config is not None and found.config.memory.mem_fraction_static is None
    told = found.pools.requested["mem_fraction_static"]
    what = WhatIf.of(found)
    assert next(one for one in controls(what) if one.name == "fraction").start == told
    changed = found.config.replace({"memory.max_running_requests": 3, "memory.mem_fraction_static": told})
    after = moved(what, requests=3)
    assert after.budget == predict(changed, free=found.budgets["measured"].free)
    assert after.config is not None and yaml.safe_load(handing.params_text(after.config))["memory"] == (
        what.config.to_sections()["memory"] | {"max_running_requests": 3, "mem_fraction_static": told}
    )


def test_an_emulated_card_grows_with_its_own_fraction() -> None:
    """0.75 of the emulated card was passed as 0.50812 or so of the real one; 0.825 is 1.1 times that."""
    found = diagnosis.of_path(RECORDS / "h200_story-8")
    what = WhatIf.of(found)
    assert what.passed_fraction is not None and what.config.gpu.emulate is not None
    changed = what.config.replace({"memory.mem_fraction_static": 0.825})
    expected = predict(
        changed, free=found.budgets["measured"].free, passed_fraction=what.passed_fraction * 0.825 / 0.75
    )
    after = moved(what, fraction=0.825)
    assert after.budget == expected
    # The card that is there has 139.1934 GiB free, the emulated one 94.3063: what stays outside is less by 44.8871.
    slack = after.term("slack")
    assert slack is not None
    left = f"{slack / 2**30 - 44.8871:.2f} GiB"
    assert f"On RTX PRO 6000 itself {left} would stay outside the pools" in figures.headline(what, after, after).text


def test_a_verdict_of_the_pools_is_not_all_that_counts() -> None:
    """0.96 of the card leaves less outside than graphs and a prefill take: the prediction of the pools serves."""
    what = WhatIf.of(diagnosis.of_path(RECORDS / "dflash_r8_full"))
    after = moved(what, fraction=0.96, slots=40)
    assert after.budget is not None and after.budget.out_of_memory is not None
    assert after.verdict == "serves" and after.budget.out_of_memory in figures.headline(what, after, after).text


@pytest.mark.parametrize(
    ("given", "verdict", "words"),
    [
        ({"memory.max_running_requests": 0}, "impossible", "max_running_requests"),
        ({"memory.context_length": 10_000_000}, "refused", "the model's own context is 262144"),
        ({"parallel.tp_size": 7, "gpu.count": 7}, "not predicted", "7"),
        ({"memory.mamba_radix_cache_strategy": "extra_buffer_lazy"}, "refused", "extra_buffer_lazy"),
    ],
)
def test_an_impossible_combination_is_an_answer(
    record: WhatIf, given: dict[str, Any], verdict: str, words: str
) -> None:
    found = record.with_(given)
    assert found.verdict == verdict
    assert words in found.reason and "\n" not in found.reason


def test_the_curve_has_the_figures_of_single_predictions(record: WhatIf) -> None:
    found = record.curve(moved(record, ratio=0.9), range(1, 11))
    single = [moved(record, ratio=0.9, requests=count) for count in range(1, 11)]
    for limit in ("running_requests", "kv_tokens"):
        assert list(found.limits[limit]) == [one.limit(limit) for one in single]
    assert list(found.refused) == [one.verdict == "refused" for one in single]
    assert record.curve(record.with_({"memory.max_running_requests": 0}), range(1, 3)).asked == ()


def test_controls_start_at_the_runs_own_values(record: WhatIf) -> None:
    found = {one.name: one for one in controls(record)}
    assert {name: (one.start, one.given) for name, one in found.items()} == {
        "requests": (8, True),
        "slots": ("auto", False),
        "ratio": (0.5, True),
        "fraction": (0.50814, True),
        "draft_tokens": (16, False),  # of the draft's own config
        "state_dtype": ("as the model", False),
        "prefix_cache": ("extra_buffer", True),
        "tp_size": (1, False),
        "context": (32_768, True),
    }
    assert next(words for words, _ in found["state_dtype"].options) == "as the model (float32)"
    assert [value for _, value in found["prefix_cache"].options] == ["auto", "no_buffer", "extra_buffer", "off"]


def test_without_speculation_there_are_no_draft_tokens_to_move() -> None:
    what = WhatIf.of(diagnosis.of_path(RECORDS / "nospec_r8"))
    idle = next(one for one in controls(what) if one.name == "draft_tokens")
    assert idle.idle and idle.note == "no speculation"
    assert changes(what, controls(what), {"draft_tokens": 8}) == {}


def test_a_chain_of_drafts_keeps_its_steps_in_step() -> None:
    """NEXTN: 3 steps draft 4 tokens; 8 tokens are of 7 steps."""
    what = WhatIf.of(diagnosis.of_path(RECORDS / "nextn_r4_full"))
    assert changes(what, controls(what), {"draft_tokens": 8}) == {
        "speculative.num_draft_tokens": 8,
        "speculative.num_steps": 7,
    }


def test_a_log_without_a_configuration_says_what_is_missing(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "[2026-01-02 03:04:05] Mamba Cache is allocated. max_mamba_cache_size: 24, conv_state size: 0.07GB, "
        "ssm_state size: 3.52GB \n"
    )
    with pytest.raises(ConfigError, match=r"server.log: its configuration is not known: .*\nTell what"):
        WhatIf.of(diagnosis.of_path(log))


# ── to take away ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_params_file_loads_back_and_is_never_replaced(record: WhatIf, tmp_path: Path) -> None:
    config = moved(record, requests=4).config
    assert config is not None
    first = handing.save(config, tmp_path)
    second = handing.save(config, tmp_path)
    assert [first.name, second.name] == ["0512_dflash_r8_exact-what-if.yaml", "0512_dflash_r8_exact-what-if.2.yaml"]
    loaded = load_run(first)
    assert loaded == handing.started(config) and loaded.memory.max_running_requests == 4
    assert yaml.safe_load(handing.params_text(config))["engine"]["replay"] is None
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="not written"):
        handing.save(config, tmp_path / "file")


def test_the_command_line_is_one_for_a_shell(record: WhatIf) -> None:
    config = moved(record, requests=4, prefix_cache="off").config
    assert config is not None
    words = shlex.split(handing.command_text(config))
    assert words[words.index("--max-running-requests") + 1] == "4"
    assert "--disable-radix-cache" in words and "--mamba-scheduler-strategy" not in words
    assert "SGLANG_IS_FLASHINFER_AVAILABLE=false" in words


def test_what_a_hostile_name_says_stays_quoted(record: WhatIf) -> None:
    evil = record.config.replace({"model": "x; rm -rf ~ <script>", "memory.max_running_requests": 4})
    words = shlex.split(handing.command_text(evil))
    assert words[words.index("--model-path") + 1] == "x; rm -rf ~ <script>"
    assert yaml.safe_load(handing.params_text(evil))["model"] == "x; rm -rf ~ <script>"


# ── tried and proven ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_recording_that_is_the_changed_configuration(collapsed: WhatIf) -> None:
    config = moved(collapsed, requests=4).config
    assert config is not None
    found = recordings(config, RECORDS, from_log=collapsed.config.name == "server.log")
    assert [one.name for one in found.same] == ["h200_story-4", "0512_dflash_r4_exact"]


def test_where_none_fits_the_nearest_are_named_with_what_differs(record: WhatIf) -> None:
    config = moved(record, requests=5).config
    assert config is not None
    found = recordings(config, RECORDS, from_log=False)
    assert found.same == ()
    assert {one.name: one.differences for one in found.nearest[:2]} == {
        "0512_dflash_r4_exact": {"memory.max_running_requests": (4, 5)},
        "0512_dflash_r8_exact": {"memory.max_running_requests": (8, 5)},
    }
    told = figures.not_here(way(config, RECORDS), handing.command_text(config))
    assert "memory.max_running_requests 4, here 5" in told.text
    assert "--max-running-requests 5" in told.text


def test_with_an_engine_and_a_gpu_it_is_started_for_real(record: WhatIf, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording that is equal is there, and is not taken for a measurement."""
    config = moved(record, requests=4).config
    assert config is not None
    monkeypatch.setattr("specbench.whatif.trial.preflight", lambda config: None)
    found = way(config.replace({"engine.replay": "tests/records/0512_dflash_r8_exact"}), RECORDS)
    assert found.words.startswith("measured: ") and found.config is not None
    assert (found.config.engine.replay, found.config.memory.max_running_requests) == (None, 4)
    assert found.config.name == "0512_dflash_r8_exact-what-if"


def chosen(config: RunConfig, folder: str | Path | None, *, from_log: bool = False) -> Way:
    """As on a machine without an engine, without asking it."""
    same = recordings(config, folder, from_log=from_log).same
    assert same
    return Way(config=replay_of(same[0], "tried"), words=f"recorded (replayed): {same[0].name}")


def test_graphs_that_only_one_of_the_two_has_are_named(record: WhatIf, monkeypatch: pytest.MonkeyPatch) -> None:
    """0512_dflash_r8_exact was started without CUDA graphs, h200_story-4 with them."""
    monkeypatch.setattr("specbench.whatif.trial.preflight", refusing)
    config = moved(record, requests=4).config
    assert config is not None
    assert way(config, RECORDS).words == (
        "recorded (replayed): h200_story-4, which was with CUDA graphs (this start without)"
    )
    alike = WhatIf.of(diagnosis.of_path(RECORDS / "h200_story-8")).with_({"memory.max_running_requests": 4}).config
    assert alike is not None and way(alike, RECORDS).words == "recorded (replayed): h200_story-4"


def refusing(_: RunConfig) -> None:
    raise LaunchError("no engine here.\nNone is needed.")


def test_predicted_tried_proven(record: WhatIf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECBENCH_RUNS", str(tmp_path))
    after = moved(record, requests=4)
    assert after.config is not None
    heard: list[tuple[str, str]] = []
    trial = Trial(after.config, RECORDS, lambda state, text: heard.append((state, text)), choose=chosen)
    trial.start()
    assert trial.wait(60) and trial.found is not None
    assert heard[-1][0] == "done" and "recorded (replayed): h200_story-4" in heard[-1][1]
    assert trial.found.record.origin == "recorded"
    assert trial.found.diagnosis.pools.kv_tokens == 87_063
    lines = figures.proven(record, after, trial.found).text.splitlines()
    tokens = next(line.split() for line in lines if line.startswith("kv_tokens"))
    # Old start, predicted with its interval, the new record's, and that it lies within.
    assert (tokens[1], tokens[2], tokens[-2:]) == ("11893", "87062", ["87063", "match"])
    assert next(line for line in lines if line.startswith("outcome")).split()[1:] == [
        "refused",
        "serves",
        "served",
        "match",
    ]
    assert "measured" not in "\n".join(lines)


def test_a_trial_that_is_stopped_leaves_nothing(
    record: WhatIf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECBENCH_RUNS", str(tmp_path))
    after = moved(record, requests=4)
    assert after.config is not None
    running, heard = threading.Event(), []

    def told(state: str, text: str) -> None:
        heard.append(state)
        if "start:" in text:
            running.set()

    trial = Trial(after.config, RECORDS, told, choose=chosen)
    trial.start()
    assert running.wait(30)
    trial.stop()
    assert trial.wait(30)
    assert (heard[-1], trial.found) == ("stopped", None)
    assert list((tmp_path / "single").iterdir()) == []


def test_a_prediction_that_fails_is_off(record: WhatIf) -> None:
    """The record of 8 requests beside the prediction for 4: nothing agrees, and the table says so."""
    after = moved(record, requests=4)
    lines = figures.proven(record, after, study(COLLAPSED)).text.splitlines()
    assert next(line for line in lines if line.startswith("outcome")).endswith("off: refused")
    assert next(line for line in lines if line.startswith("state_slots")).split()[-1] == "off"


def test_what_came_from_a_log_is_text(record: WhatIf) -> None:
    evil = record.config.replace({"model": "<script>alert(1)</script>"})
    what = WhatIf(config=evil, resolved=evil, free=record.free, passed_fraction=None, observed=record.observed)
    found = what.with_({})
    assert found.verdict == "not predicted" and "<script>" in found.reason
    html = figures.headline(what, found, found).html + figures.figures(what, found, found).html
    assert "<script>" not in html and "&lt;script&gt;" in html


def test_damaged_recordings_are_passed_over_and_a_file_is_no_folder_of_them(tmp_path: Path) -> None:
    """One without its log, one whose status is cut, one whose configuration is no YAML, and the good one."""
    damages = {"a": ("server.log", None), "b": ("status.json", '{"a":'), "c": ("config.yaml", "a: ["), "d": None}
    for name, damage in damages.items():
        shutil.copytree(RECORDS / "dflash_r8", tmp_path / name)
        if damage is not None:
            file, text = tmp_path / name / damage[0], damage[1]
            file.unlink()
            if text is not None:
                file.write_text(text)
    config = RunRecord.open(RECORDS / "dflash_r8").config
    found = recordings(config, tmp_path, from_log=False)
    assert [record.folder.name for record in found.same] == ["d"]
    with pytest.raises(ConfigError, match=r"\Arecordings: .* cannot be read: Not a directory\.\n.+\Z"):
        recordings(config, tmp_path / "d" / "server.log", from_log=False)
