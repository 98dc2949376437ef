"""When SGLang lets requests wait beside free running-request slots, and which recordings show it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specbench import show
from specbench.budget.predict import predict
from specbench.budget.to_json import to_document
from specbench.cli import app
from specbench.diagnose.diagnosis import of_log, of_path
from specbench.diagnose.finding import Finding
from specbench.engines.sglang.admission import FLAG, formula, least_free_slots
from specbench.engines.sglang.flags import released_flags
from specbench.params import load_run

RECORDS = Path(__file__).parent / "records"
#: 20 slots. Line 226: 17 run, 15 wait. 1, 8 and 8 were admitted; 3 slots stayed free, the engine waits for 4.
SHOWN = "h200-tp2_dflash-32-full-card"


@pytest.mark.parametrize(
    ("slots", "least"), [(7, None), (8, 2), (12, 2), (13, 3), (18, 3), (19, 4), (20, 4), (32, 4), (256, 4)]
)
def test_what_dflash_waits_for(slots: int, least: int | None) -> None:
    assert least_free_slots("0.5.16", {"speculative_algorithm": "DFLASH"}, slots) == least


@pytest.mark.parametrize(
    ("version", "asked", "slots", "least"),
    [
        ("0.5.16", 1, 20, None),  # off
        ("0.5.16", 0, 20, None),
        ("0.5.16", 3, 8, 2),  # capped by the formula
        ("0.5.16", 3, 20, 3),
        ("0.5.16", 9, 20, 4),
        ("0.5.16", 3, 7, None),  # unused below 8 slots
        ("0.5.17", 3, 8, 2),
        ("0.5.18", 1, 20, None),
        ("0.5.18", 3, 8, 3),  # as asked
        ("0.5.18", 3, 7, 3),
        ("0.5.18", 9, 4, 4),  # capped by the slots
    ],
)
@pytest.mark.parametrize("algorithm", ["DFLASH", None])
def test_the_flag(version: str, asked: int, slots: int, least: int | None, algorithm: str | None) -> None:
    arguments = {"speculative_algorithm": algorithm, "min_free_slots_delay": asked}
    assert least_free_slots(version, arguments, slots) == least


def test_which_releases_and_algorithms_wait() -> None:
    dflash = {"speculative_algorithm": "DFLASH", "min_free_slots_delay": None}
    assert released_flags()[FLAG][0] == "0.5.15"
    versions = ("0.5.12", "0.5.14", "0.5.15", "0.5.16", "0.5.23")
    assert [least_free_slots(version, dflash, 20) for version in versions] == [None, None, 4, 4, 4]
    assert least_free_slots("0.0.0.dev1+g977830e91", dflash, 20) is None
    assert least_free_slots("0.5.16", {"speculative_algorithm": "DSPARK"}, 20) == 4
    for name in ("EAGLE", "NGRAM", None):
        assert least_free_slots("0.5.16", {"speculative_algorithm": name}, 20) is None
    assert formula(20) == "min(4, max(2, (20 + 5) // 6)) = 4"


@pytest.mark.parametrize(
    "other",
    [
        {"pp_size": 2},
        {"pp_max_micro_batch_size": 8},
        {"enable_prefill_delayer": True},
        {"disaggregation_mode": "decode"},
    ],
)
def test_where_something_else_may_hold_requests_back_nothing_is_claimed(other: dict[str, object]) -> None:
    assert least_free_slots("0.5.16", {"speculative_algorithm": "DFLASH", **other}, 20) is None


def test_exactly_one_recording_shows_it() -> None:
    """The other DFLASH recordings of 0.5.16 with 8 slots or more fill all of them, or have no queue."""
    folders = (folder for folder in RECORDS.iterdir() if folder.is_dir())
    assert {folder.name for folder in folders if found(folder, "admission-delayed")} == {SHOWN}


def test_the_recording_is_explained_with_its_figures() -> None:
    for path in (RECORDS / SHOWN, RECORDS / SHOWN / "server.log"):
        (finding,) = found(path, "admission-delayed")
        assert finding.cause == (
            "Up to 15 requests wait while 17 of 20 run and the KV pool is 1% full (1 of 6 decode lines): with DFLASH "
            "the engine admits no request until 4 running-request slots are free (min(4, max(2, (20 + 5) // 6)) = 4), "
            "and 3 are. That is its design, not memory: admissions are batched, because each costs a draft prefill. "
            "--min-free-slots-delay 1 admits at once; it changes the trade-off between latency and throughput, not "
            "results."
        )
        assert finding.beside == (
            "17 of these 20 ran: DFLASH admits only when 4 places are free, --min-free-slots-delay 1."
        )
        (remedy,) = finding.remedies
        assert (dict(remedy.set), remedy.flags) == (
            {"engine.args.min-free-slots-delay": 1},
            "--min-free-slots-delay 1",
        )
        assert (remedy.basis, remedy.predicted, remedy.verdict) == ("source", {}, None)
        assert [line.line for line in finding.evidence] == [226]
        assert found(path, "queue-with-room") == []


def found(path: Path, finding_id: str) -> list[Finding]:
    return [finding for finding in of_path(path).findings if finding.id == finding_id]


#: Eight slots; the log's own line with a queue: 8 run, 8 wait.
EIGHT = (RECORDS / "h200-tp2_dflash-8" / "server.log").read_bytes()


def said(log: bytes) -> dict[str, Finding]:
    findings = of_log(log.splitlines(keepends=True)).findings
    return {one.id: one for one in findings if one.id in ("admission-delayed", "queue-with-room")}


def changed(pattern: bytes, new: bytes, log: bytes = EIGHT) -> bytes:
    made, times = re.subn(pattern, new, log)
    assert times
    return made


def running(count: int) -> bytes:
    return changed(rb"(Decode batch, #running-req: )8(, .*#queue-req: 8)", rb"\g<1>%d\2" % count)


def test_a_full_server_is_told_of_its_limit_and_one_that_waits_of_its_design() -> None:
    assert set(said(EIGHT)) == {"queue-with-room"}
    (seven,) = said(running(7)).values()
    assert seven.id == "admission-delayed"
    assert "while 7 of 8 run" in seven.cause and "until 2 running-request slots" in seven.cause
    assert "(min(4, max(2, (8 + 5) // 6)) = 2), and 1 is." in seven.cause
    assert said(running(6)) == {}  # 2 are free: whatever holds the queue, it is not this


def test_each_line_has_one_reason() -> None:
    """The line twice, and once more with 7 that run: each finding counts its own of 7 decode lines. 9 were asked."""
    (line,) = re.findall(rb".*Decode batch, #running-req: 8, .*#queue-req: 8\n", EIGHT)
    asked = re.sub(rb"max_running_requests=8", b"max_running_requests=9", EIGHT, count=1)
    both = said(asked.replace(line, line * 2 + line.replace(b"#running-req: 8", b"#running-req: 7")))
    assert set(both) == {"queue-with-room", "admission-delayed"}
    assert "while 8 run" in both["queue-with-room"].cause and "(2 of 7 decode" in both["queue-with-room"].cause
    assert "while 7 of 8 run" in both["admission-delayed"].cause and "(1 of 7 decode" in both["admission-delayed"].cause


def test_the_short_form_is_left_out_where_all_places_were_taken_once() -> None:
    """The log's own line has 8 of 8; one more has 7."""
    (line,) = re.findall(rb".*Decode batch, #running-req: 8, .*#queue-req: 8\n", EIGHT)
    both = said(EIGHT.replace(line, line + line.replace(b"#running-req: 8", b"#running-req: 7")))
    assert both["admission-delayed"].beside == ""


def test_pools_that_are_full_are_another_reason() -> None:
    seven = running(7)
    row = rb"(Decode batch, #running-req: 7.*full token usage: )0\.\d\d(.*#queue-req: 8)"
    assert said(changed(row, rb"\g<1>0.90\2", seven)) == {}
    row = rb"(Decode batch, #running-req: 7.*mamba num: )\d+(.*#queue-req: 8)"
    assert set(said(changed(row, rb"\g<1>42\2", seven))) == {"admission-delayed"}  # 47 - 42 = 5 slots: one request
    assert said(changed(row, rb"\g<1>43\2", seven)) == {}


def test_a_value_of_the_flag_is_named() -> None:
    asked = changed(rb"min_free_slots_delay=None", b"min_free_slots_delay=3", running(7))
    (finding,) = said(asked).values()
    assert (
        "with --min-free-slots-delay 3 the engine admits no request until 2 running-request slots are free, and 1 is."
        in finding.cause
    )
    assert said(changed(rb"min_free_slots_delay=None", b"min_free_slots_delay=1", running(7))) == {}


def test_it_is_not_said_after_a_cause_that_it_does_not_complete(tmp_path: Path) -> None:
    """A crash later in the same log is the main cause; fewer running than could has nothing to do with it."""
    log = tmp_path / "server.log"
    crash = (RECORDS / "h200-tp2_nextn-8" / "server.log").read_bytes()
    tail = crash[crash.index(b"Scheduler hit an exception") - 28 :]
    log.write_bytes((RECORDS / SHOWN / "server.log").read_bytes() + tail)
    diagnosis = of_path(log)
    assert diagnosis.main_finding is not None and diagnosis.main_finding.severity == "fatal"
    assert found(log, "admission-delayed")
    assert diagnosis.beside == ()
    (of_record,) = of_path(RECORDS / SHOWN).beside
    assert of_record.id == "admission-delayed"


def test_a_prediction_says_that_fewer_may_run_than_have_places() -> None:
    """The recording ran 17 at once in 20 places: 20 is predicted and resolved, the note tells the difference."""
    config = load_run("params/recordings/h200-tp2_dflash-32-full-card.yaml")
    found = predict(config)
    running = found.limits["running_requests"].value
    assert running is not None and running.is_exact and running.point == 20
    assert found.admission == (
        "while requests run, a server with 20 places admits nothing before 4 are free (min(4, max(2, (20 + 5) // 6)) = "
        "4), so that at times fewer than 20 run; --min-free-slots-delay 1 turns that off."
    )
    assert found.warnings.count(found.admission) == 1
    assert found.admission in to_document(found)["warnings"] and found.admission in show.budget(found).text
    dry = CliRunner().invoke(app, ["run", "params/recordings/h200-tp2_dflash-32-full-card.yaml", "--dry-run", "--json"])
    (run,) = json.loads(dry.stdout)["runs"]
    assert found.admission in run["warnings"] and run["limits"]["running_requests"]["point"] == 20
    assert run["rests_on"] == "the configuration alone; free memory measured on 2 × H200"
    off = config.replace({"engine.args": {**config.engine.args, "min-free-slots-delay": 1}})
    assert predict(off).admission is None
    three = config.replace({"engine.args": {**config.engine.args, "min-free-slots-delay": 3}})
    assert "before 3 are free (--min-free-slots-delay is 3)" in str(predict(three).admission)
    assert predict(config.replace({"engine.version": "0.5.12"})).admission is None
