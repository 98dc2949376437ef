"""Diagnoses of the recordings: the cause, its evidence, and remedies that other recordings prove to the token."""

from __future__ import annotations

import gzip
import io
import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from specbench.budget.predict import predict
from specbench.budget_types import MemoryBudget
from specbench.cli.diagnosis_text import render
from specbench.diagnose.diagnosis import of_log, of_path, of_record
from specbench.diagnose.document import to_document
from specbench.diagnose.finding import Remedy
from specbench.diagnose.types import Diagnosis
from specbench.errors import ConfigError, LogFormatError, RecordError
from specbench.judging.judge import passed
from specbench.judging.reconcile import SHARED
from specbench.records.record import RunRecord
from specbench.terms import Limit
from specbench.units import GIB

RECORDS = Path(__file__).parent / "records"

#: Every recording: how it ended, and what was wrong with it (nothing, for a server that serves what was asked).
FINDINGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "0512_dflash_r16": ("refused", ("refused-no-memory",)),
    "0512_dflash_r4": ("served", ("slow-first-request",)),
    "0512_dflash_r4_exact": ("served", ()),
    "0512_dflash_r8": ("refused", ("refused-state-pool",)),
    "0512_dflash_r8_exact": ("refused", ("refused-state-pool",)),
    "0512_dflash_r8_nograph": ("refused", ("refused-state-pool",)),
    "0512_nospec_r8": ("served", ()),
    "cal_0512_dflash_r1": ("served", ()),
    "dflash_r4": ("served", ("capped-by-state-slots", "slots-idle-while-queueing")),
    "dflash_r8": ("served", ("capped-by-state-slots", "slots-idle-while-queueing")),
    "dflash_r8_full": ("served", ("capped-by-state-slots",)),
    "dflash_r8_full_sim": ("served", ("capped-by-state-slots", "slots-idle-while-queueing")),
    "h200-tp2_dflash-32": ("served", ("capped-by-state-slots", "slots-idle-while-queueing", "slow-first-request")),
    "h200-tp2_dflash-32-full-card": ("served", ("capped-by-state-slots", "admission-delayed", "slow-first-request")),
    "h200-tp2_dflash-4": ("served", ("queue-with-room",)),
    "h200-tp2_dflash-8": ("served", ("queue-with-room", "slow-first-request")),
    "h200-tp2_dflash-8-full-card": ("served", ("queue-with-room", "slow-first-request")),
    "h200-tp2_nextn-8": ("crashed", ("crashed-serving",)),
    "h200-tp2_nextn-8-full-card": ("crashed", ("crashed-serving",)),
    "h200-tp2_nextn-8-no-graphs": ("served", ("queue-with-room",)),
    "h200-tp2_no-speculation-8": ("served", ("queue-with-room", "slow-first-request")),
    "h200-tp2_no-speculation-8-full-card": ("served", ("slots-beyond-use", "queue-with-room", "slow-first-request")),
    "h200-tp2_story-4": ("served", ("slots-beyond-use", "queue-with-room", "slow-first-request")),
    "h200-tp2_story-8": ("served", ("queue-with-room", "slow-first-request")),
    "h200-tp2_story-8-full-card": ("served", ("slots-beyond-use", "queue-with-room", "slow-first-request")),
    "h200-drafts-4_story-8-what-if": ("served", ("slow-first-request",)),
    "h200-fraction-89_story-8-what-if": ("served", ("slow-first-request",)),
    "h200_dflash-4": ("served", ("capped-by-state-slots", "slots-idle-while-queueing")),
    "h200_dflash-4-20-slots": ("served", ("slow-first-request",)),
    "h200_dflash-4-no-radix": ("served", ("slow-first-request",)),
    "h200_dflash-8": ("served", ("capped-by-state-slots", "slots-idle-while-queueing")),
    "h200_dflash-8-full-card": ("served", ("capped-by-state-slots", "slow-first-request")),
    "h200_dflash-8-full-card-40-slots": ("served", ("slow-first-request",)),
    "h200_nextn-4-full-card": ("crashed", ("crashed-serving",)),
    "h200_no-speculation-4": ("served", ("slow-first-request",)),
    "h200_no-speculation-8": ("served", ("slow-first-request",)),
    "h200_no-speculation-8-full-card": ("served", ("slow-first-request",)),
    "h200_story-4": ("served", ()),
    "h200_story-6": (
        "served",
        ("capped-by-state-slots", "slots-idle-while-queueing", "scratch-above-pool", "slow-first-request"),
    ),
    "h200_story-8": ("refused", ("refused-state-pool",)),
    "h200_too-long": ("served", ("context-overflow", "pool-overflow", "context-above-pool")),
    "nemo_nano_r32": ("refused", ("refused-arguments",)),
    "nextn_r4_full": ("crashed", ("crashed-serving",)),
    "nextn_r4_full_nodeepgemm": ("crashed", ("bad-environment",)),
    "ngram_r8": ("served", ()),
    "nospec_defaults": ("served", ()),
    "nospec_r4": ("served", ()),
    "nospec_r8": ("served", ()),
    "oom_r8": ("refused", ("out-of-memory-pools",)),
    "q35b_nextn_r16": ("served", ()),
    "smoke_dflash_r4": ("served", ("capped-by-state-slots", "slow-first-request")),
    "tp2_0512_dflash_r8": ("served", ()),
    "tp2_dflash_r32_full": ("served", ("capped-by-state-slots",)),
    "tp2_dflash_r8": ("served", ()),
    "tp2_nospec_r8": ("served", ("slow-first-request",)),
    "tp8-quarters_dflash-32": ("served", ("capped-by-state-slots", "slots-idle-while-queueing")),
    "tp8-quarters_dflash-4": ("served", ("queue-with-room",)),
    "tp8-quarters_dflash-8": ("served", ()),
    "tp8-quarters_dflash-8-fraction-88": ("served", ()),
    "tp8-quarters_nextn-8": ("crashed", ("crashed-serving",)),
    "tp8-quarters_no-speculation-8": ("served", ()),
    "tp8-quarters_no-speculation-8-fraction-88": ("served", ("slots-beyond-use",)),
    "tp8-quarters_story-4": ("served", ("slots-beyond-use", "queue-with-room")),
    "tp8-quarters_story-8": ("served", ()),
    "tp8-quarters_story-8-fraction-88": ("served", ("slots-beyond-use",)),
    "tp4_0512_dflash_r8": ("served", ("slots-beyond-use",)),
    "tp4_dflash_r8": ("served", ()),
    "tp4_nospec_r8": ("served", ("slots-beyond-use",)),
    "var_block8_r4": ("served", ("capped-by-state-slots",)),
    "var_maxmamba20_r4": ("served", ()),
    "var_nobuffer_r4": ("served", ("capped-by-state-slots",)),
    "var_nobuffer_r4_badargs": ("refused", ("refused-arguments",)),
    "var_noradix_r4": ("served", ()),
    "var_noradix_r8": ("refused", ("refused-no-memory",)),
    "var_ratio09_r4": ("served", ("capped-by-state-slots",)),
}


def test_the_table_covers_every_recording():
    assert set(FINDINGS) == {folder.name for folder in RECORDS.iterdir() if folder.is_dir()}


@pytest.mark.parametrize("name", FINDINGS)
def test_findings_of_every_recording(name):
    diagnosis = of_path(RECORDS / name)
    status, ids = FINDINGS[name]
    assert (diagnosis.status, tuple(finding.id for finding in diagnosis.findings)) == (status, ids)
    assert diagnosis.unread == ()
    assert all(finding.evidence for finding in diagnosis.findings)


@pytest.mark.parametrize("name", FINDINGS)
def test_prediction_and_log_agree_on_both_bases(name):
    """Every figure that was logged and predicted: pools, counts, weights; exact or within the stated interval."""
    diagnosis = of_path(RECORDS / name)
    off = diagnosis.reconciliation.off
    if name.startswith("tp8-quarters_"):  # four ranks share a card, and are counted at moments of their own
        assert {row.attribution for row in off} <= {SHARED}
        assert all(abs(row.delta or 0) < 0.06 * GIB for row in off)
        off = ()
    assert [(row.term, row.rank, row.basis, row.delta) for row in off] == []
    if diagnosis.pools.kv_tokens is not None:
        matched = {(row.term, row.basis) for row in diagnosis.reconciliation.rows if row.verdict == "match"}
        assert {("state_slots", "measured"), ("kv_tokens", "measured"), ("kv_tokens", "config")} <= matched


#: (failing run, change) -> what a real server with that change logged: requests, slots, tokens (± 3).
PROVED = [
    ("0512_dflash_r8_exact", {"memory.max_running_requests": 4}, "0512_dflash_r4_exact", (4, 24, 87_061)),
    ("dflash_r4", {"memory.max_mamba_cache_size": 20}, "var_maxmamba20_r4", (4, 20, 50_794)),
    ("dflash_r4", {"memory.disable_radix_cache": True}, "var_noradix_r4", (4, 4, 79_430)),
]


@pytest.mark.parametrize(("failing", "change", "proof", "logged"), PROVED)
def test_remedies_do_what_a_real_server_did(failing, change, proof, logged):
    remedies = [remedy for finding in of_path(RECORDS / failing).findings for remedy in finding.remedies]
    (remedy,) = [remedy for remedy in remedies if dict(remedy.set) == change]
    requests, slots, tokens = logged
    assert remedy.verdict == "serves"
    assert (remedy.predicted["running_requests"], remedy.predicted["state_slots"]) == (requests, slots)
    assert remedy.predicted["kv_tokens"] == pytest.approx(tokens, abs=3)
    proved = of_path(RECORDS / proof)
    assert proved.resolved["running_requests"] == requests
    assert proved.resolved["kv_tokens"] == tokens


@pytest.mark.parametrize("name", [name for name, (_, ids) in FINDINGS.items() if ids])
def test_no_remedy_falls_short_of_what_it_promises(name):
    diagnosis = of_path(RECORDS / name)
    for finding in diagnosis.findings:
        for remedy in finding.remedies:
            if remedy.basis in ("recording", "source"):  # promises no figure
                assert (dict(remedy.predicted), remedy.verdict) == ({}, None)
                assert remedy.flags and remedy.decided_by
                continue
            assert remedy.verdict == "serves"
            tokens = remedy.predicted["kv_tokens"]
            # One whole context fits: the one that is asked, or the one that the remedy proposes.
            assert tokens is not None and tokens >= remedy.set.get("memory.context_length", 32_768)
            # No flag: another card, or a flag that is left out.
            assert remedy.flags or set(remedy.set) <= {"gpu.count", "memory.max_total_tokens"}
            again = predicted_again(diagnosis, remedy)
            assert set(again.verdicts) == {"serves"}  # over the whole interval of free memory
            assert {limit: figure(again, limit) for limit in remedy.predicted} == remedy.predicted
            slack = again.terms["slack"].bytes
            room = again.emulation.room_bytes if again.emulation and again.basis == "measured" else 0
            assert slack is not None and slack.point - room >= 2 * GIB


def predicted_again(diagnosis: Diagnosis, remedy: Remedy) -> MemoryBudget:
    """Without what remedies use: the recorded configuration, the change, and what this start had free."""
    before = diagnosis.config
    assert before is not None
    config = before.replace(remedy.set)
    if remedy.basis == "config":
        return predict(config)
    was, will = before.memory.mem_fraction_static, config.memory.mem_fraction_static
    told = passed(before, diagnosis.pools)
    passes = told if told is None or was == will else told * will / was  # as large a share of the larger card
    return predict(config, free=diagnosis.budgets["measured"].free, passed_fraction=passes)


def figure(budget: MemoryBudget, limit: Limit) -> int | None:
    value = budget.limits[limit].value
    return None if value is None else value.point


def test_the_collapsed_start_is_explained_with_its_arithmetic():
    (finding,) = of_path(RECORDS / "0512_dflash_r8_exact").findings
    assert finding.severity == "fatal"
    assert "2 slots and one request needs 4: 2 // 4 = 0 requests" in finding.cause
    assert "8 × 2.29 = 18.35 GiB" in finding.cause and "19.59 GiB" in finding.cause
    assert [line.line for line in finding.evidence] == [114, 115, 139]
    assert finding.evidence[2].text == "AssertionError: max_running_request is zero"


def test_the_silent_cap_is_explained_with_its_arithmetic():
    capped, queue = of_path(RECORDS / "dflash_r8").findings
    assert "8 requests asked, 1 can run at once" in capped.cause and "8 slots // 5 per request = 1" in capped.cause
    assert "reduced from the requested 8 to 1" in capped.evidence[0].text
    assert queue.cause.startswith("Up to 7 requests wait while 1 runs, 4 of 8 state slots are idle")


#: Asked and granted: 8 (or 4) at once, and more clients. Of a DFLASH server with 47 slots at 5 per request 9 fit.
WAITED = {
    "h200-tp2_dflash-8": (
        "16 clients sent, 8 were asked to run at once: up to 8 waited, as configured; the KV pool was 1% full, so "
        "memory allows more (9 at once, by the prediction)."
    ),
    "h200-tp2_dflash-4": (
        "16 clients sent, 4 were asked to run at once: up to 12 waited, as configured; the KV pool was 1% full, so "
        "memory allows more (9 at once, by the prediction)."
    ),
    "h200-tp2_no-speculation-8-full-card": (
        "16 clients sent, 8 were asked to run at once: up to 8 waited, as configured; the KV pool was under 1% full, "
        "so memory allows more (16 at once, by the prediction)."
    ),
}


@pytest.mark.parametrize(("name", "words"), WAITED.items())
def test_a_queue_of_more_than_were_asked_is_a_notice_that_names_the_load(name, words):
    diagnosis = of_path(RECORDS / name)
    (queue,) = [finding for finding in diagnosis.findings if finding.id == "queue-with-room"]
    assert (queue.severity, queue.cause) == ("notice", words)
    assert diagnosis.main_finding is None


def test_a_queue_where_memory_allows_no_more_says_what_would_limit(tmp_path):
    """40 slots at 5 per request are 8: told to make no more, the server would run 8 of 9."""
    record = tmp_path / "record"
    shutil.copytree(RECORDS / "h200-tp2_dflash-8", record)
    for name, old, new in (
        ("config.yaml", "max_mamba_cache_size: null", "max_mamba_cache_size: 40"),
        ("server.log", "max_mamba_cache_size: 47", "max_mamba_cache_size: 40"),
    ):
        text = (record / name).read_text(encoding="utf-8")
        assert old in text
        (record / name).write_text(text.replace(old, new), encoding="utf-8")
    (queue,) = [finding for finding in of_path(record).findings if finding.id == "queue-with-room"]
    assert queue.severity == "notice"
    assert "memory allows no more at once, by the prediction: 40 state slots at 5 per request serve 8 of the 9" in (
        queue.cause
    )


def test_a_queue_below_what_was_asked_stays_a_cost():
    (queue,) = [one for one in of_path(RECORDS / "dflash_r8").findings if one.id == "slots-idle-while-queueing"]
    assert queue.severity == "costly"


def test_a_misleading_engine_error_is_not_repeated_as_the_cause():
    """0.5.16 blames the weights; it is the scratch of 8 requests that does not fit."""
    (finding,) = of_path(RECORDS / "var_noradix_r8").findings
    assert "8 × 2.29 = 18.35 GiB" in finding.cause
    assert "blames the weights" in finding.cause


def test_out_of_memory_is_cured_by_a_smaller_fraction():
    """At 0.997 the pools overran the card by 1.77 GiB. Graphs of 8 requests and a full prefill take 3.48 by estimate,
    as a plan needs them: at 0.96 the pools leave 0.037 × 139.2 - 1.77 = 3.38 GiB, at 0.95 4.77.
    """
    (finding,) = of_path(RECORDS / "oom_r8").findings
    assert finding.remedies[0].set == {"memory.mem_fraction_static": 0.95}
    assert "1.77 GiB more than the card has" in finding.cause


def test_a_cap_with_room_on_the_card_is_cured_by_a_larger_fraction():
    """66 GiB are free beside the pools; dflash_r8_full shows that 0.88 gives 7, so 8 need more than that."""
    capped = of_path(RECORDS / "dflash_r8").findings[0]
    (remedy,) = [r for r in capped.remedies if set(r.set) == {"memory.mem_fraction_static"}]
    assert 0.88 < remedy.set["memory.mem_fraction_static"] < 0.95
    assert remedy.predicted["running_requests"] == 8
    assert capped.remedies[-1].set == {"memory.max_running_requests": 1}  # asking for less comes last


def test_refused_arguments_have_remedies_too():
    (finding,) = of_path(RECORDS / "var_nobuffer_r4_badargs").findings
    assert finding.remedies[0].set["memory.disable_radix_cache"] is True
    assert finding.remedies[0].predicted["running_requests"] == 4


def test_requests_that_are_too_long_are_told_what_fits(tmp_path):
    from specbench.running.run import run

    config = RunRecord.open(RECORDS / "dflash_r8_full").config.replace(
        {
            "engine.replay": str(RECORDS / "dflash_r8_full"),
            "engine.replay_speed": "instant",
            "workload.input_tokens": [32600],
            "workload.concurrency": [1],
            "workload.requests": 1,
            "workload.warmup": 0,
            "workload.allow_overflow": True,
        }
    )
    overflow = of_record(run(config, tmp_path / "run")).findings[0]
    assert overflow.id == "context-overflow"
    assert "32,600 input + 256 output = 32,856 tokens against 32,768" in overflow.cause
    longer, shorter = overflow.remedies
    assert longer.set == {"memory.context_length": 33_792}  # the next multiple of 1,024 above 32,856
    assert shorter.set == {"workload.input_tokens": [32_511]}  # 32,768 - 256 - 1


def test_a_log_of_which_little_was_read_is_not_called_fine():
    cases = Path(__file__).parent / "logs" / "sglang" / "cases"
    diagnosis = of_path(cases / "b300-tp8-ratio-skill.log")
    assert (diagnosis.findings, diagnosis.judged) == ((), False)
    assert of_path(RECORDS / "nospec_r4").judged


def test_scratch_that_outgrows_the_pool_is_named():
    """48.75 + 0.43 GiB of scratch beside 9.04 GiB of KV, as logged; then the next allocation fails."""
    cases = Path(__file__).parent / "logs" / "sglang" / "cases"
    finding, *_ = of_path(cases / "dflash-b16-oom-48gb-intermediate.log").findings
    assert finding.id.startswith("out-of-memory")
    assert "scratch alone took 49.18 GiB, more than the KV pool (9.04 GiB)" in finding.cause


def test_decode_lines_are_summed_up():
    """Five decode lines with accept len 2.17, 1.95, 1.80, 2.05, 1.80: 9.77 / 5."""
    cases = Path(__file__).parent / "logs" / "sglang" / "cases"
    serving = of_path(cases / "eagle3-speedup-below-paper.log").serving
    assert serving is not None and serving.decode_lines == 5
    assert serving.accept_length_mean == pytest.approx(9.77 / 5)
    nothing = of_path(RECORDS / "oom_r8").serving
    assert nothing is None


def test_a_bare_log_tells_the_same_as_the_record():
    record, log = of_path(RECORDS / "0512_dflash_r8_exact"), of_path(RECORDS / "0512_dflash_r8_exact" / "server.log")
    assert [f.cause for f in log.findings] == [f.cause for f in record.findings]
    assert log.config is not None and log.config.model == "Qwen/Qwen3.6-27B"
    assert (log.version, log.version_range) == ("0.5.12", ("0.5.12", "0.5.12"))
    assert (
        "engine version 0.5.12, by the names of its arguments: of others 0.5.12.post1 alone, which sizes alike, has "
        "exactly these"
    ) in log.assumptions
    assert any("assumed" in text for text in log.assumptions)
    assert (log.requested["running_requests"], log.resolved["kv_tokens"]) == (8, 11_893)


def test_a_paste_and_a_compressed_log_are_read(tmp_path):
    data = (RECORDS / "dflash_r8" / "server.log").read_bytes()
    packed = tmp_path / "server.log.gz"
    packed.write_bytes(gzip.compress(data))
    for found in (of_path(packed), of_log(io.BytesIO(data), name="paste")):
        ids = [finding.id for finding in found.findings]
        assert ids == ["capped-by-state-slots", "slots-idle-while-queueing", "acceptance-too-low"]


@pytest.mark.parametrize(
    "data", [b"", bytes(range(256)) * 40, b"INFO 06-01 vllm engine started\nGPU KV cache size: 1\n"]
)
def test_what_is_no_engine_log_is_said_in_two_lines(tmp_path, data):
    file = tmp_path / "x.log"
    file.write_bytes(data)
    with pytest.raises(LogFormatError) as caught:
        of_path(file)
    assert str(caught.value).count("\n") == 1
    assert "x.log" in str(caught.value)


def test_a_missing_path_is_named():
    with pytest.raises(ConfigError, match=r"record or log: '/nowhere/server\.log' does not exist"):
        of_path("/nowhere/server.log")


def test_the_document_has_the_promised_form():
    document = json.loads(json.dumps(to_document(of_record(RunRecord.open(RECORDS / "tp2_dflash_r8")))))
    assert document["schema"] == 1
    assert document["engine"] == {"name": "sglang", "version": "0.5.16", "version_range": ["0.5.16", "0.5.20"]}
    assert {pool["rank"] for pool in document["pools"]} == {"TP0", "TP1"}
    assert {pool["role"] for pool in document["pools"]} == {"target", "draft"}
    target = next(pool for pool in document["pools"] if (pool["rank"], pool["role"]) == ("TP0", "target"))
    assert (target["state_slots"], target["kv_tokens"]) == (47, 753_626)
    assert target["resolution_bytes"] == 2 * 5_368_710  # of kv: two figures, each ± half of 0.01 GiB
    draft = next(pool for pool in document["pools"] if (pool["rank"], pool["role"]) == ("TP0", "draft"))
    assert draft["state_slots"] is None and draft["conv_bytes"] is None
    row = document["reconciliation"][0]
    assert set(row) >= {"term", "rank", "basis", "predicted", "observed", "tolerance", "verdict"}
    assert document["resolved"]["running_requests"] == 8
    assert document["requested"]["running_requests"] == 8


def test_failed_requests_of_a_running_server_are_a_finding(tmp_path):
    from specbench.running.run import run

    config = RunRecord.open(RECORDS / "nospec_r4").config.replace(
        {
            "engine.replay": str(RECORDS / "nospec_r4"),
            "engine.replay_speed": "instant",
            "workload.concurrency": [4],
            "workload.requests": 4,
            "workload.warmup": 0,
            "workload.request_timeout_s": 1e-9,
        }
    )
    finding = of_record(run(config, tmp_path / "run")).findings[0]
    assert (finding.id, finding.severity) == ("requests-failed", "fatal")
    assert finding.cause.startswith("All of 4 requests failed although the server ran, 4 with: ")
    assert [line.line for line in finding.evidence] == [None, None, None]


@pytest.mark.parametrize("asked", [20_000, 10**25])
def test_an_absurd_number_of_requests_is_answered_at_once(tmp_path, asked):
    """The remedy that asks for less is found by bisection, whatever the log asked for."""
    text = (RECORDS / "0512_dflash_r8_exact" / "server.log").read_text()
    log = tmp_path / "x.log"
    log.write_text(text.replace("max_running_requests=8", f"max_running_requests={asked}"))
    (finding,) = of_path(log).findings
    assert finding.id == "refused-state-pool"
    assert finding.remedies == () or finding.remedies[-1].predicted["running_requests"] == 4


def test_a_folder_of_records_names_the_first(tmp_path: Path) -> None:
    for name in ("b", "a b"):
        shutil.copytree(RECORDS / "dflash_r4", tmp_path / name)
    (tmp_path / "no record").mkdir()
    with pytest.raises(RecordError) as raised:
        of_path(tmp_path)
    assert str(raised.value) == (
        f"{tmp_path}: no record itself; it holds 2 records, the first is a b.\n"
        f"Name one of them: specbench diagnose '{tmp_path / 'a b'}'"
    )


@pytest.mark.parametrize(
    ("name", "left_out", "rows"),
    [
        (
            "h200-tp2_dflash-8-full-card",
            ("TP1] Init torch distributed ends. elapsed=2.10",),
            {"communication": "1.07 (TP0; TP1 not logged)", "free before loading": "138.21"},
        ),
        (
            "tp4_dflash_r8",
            ("Load weight begin. avail mem=137.99", "TP1] Memory pool end. avail mem=67.21"),
            {
                "free after its pools": "78.40 to 78.64 67.21 to 67.45",
                "communication": "1.06 (TP3)",
                "to 1.30": "(TP1, TP2)",
                "free before loading": "138.03 (TP0)",
                "to 138.22": "(TP3)",
                "TP1, TP2": "not logged",
                "TP1 not": "logged",
            },
        ),
    ],
)
def test_a_figure_of_some_ranks_is_not_shown_as_that_of_all(
    tmp_path: Path, name: str, left_out: tuple[str, ...], rows: dict[str, str]
) -> None:
    lines = (RECORDS / name / "server.log").read_text().splitlines(keepends=True)
    log = tmp_path / "server.log"
    log.write_text("".join(line for line in lines if not any(text in line for text in left_out)))
    found = of_path(log)
    console = Console(width=80, file=io.StringIO())
    render(found, console, everything=True)
    printed = [" ".join(line.split()) for line in console.file.getvalue().splitlines()]
    for title, cells in rows.items():
        assert f"{title} {cells}" in printed


def test_free_memory_of_some_ranks_is_not_what_the_server_went_by(tmp_path: Path) -> None:
    """TP1 and TP2, which had least (137.99), logged nothing before loading: TP0's 138.03 decided nothing."""
    lines = (RECORDS / "tp4_dflash_r8" / "server.log").read_text().splitlines(keepends=True)
    log = tmp_path / "server.log"
    log.write_text("".join(line for line in lines if "Load weight begin. avail mem=137.99" not in line))
    found = of_path(log)
    assert set(found.budgets) == {"config"}
    assert {row.verdict for row in found.reconciliation.rows if row.term == "slack"} == {"not predicted"}
    assert to_document(found)["free"]["deciding_rank"] is None
