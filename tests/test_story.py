"""The front page's list of shortfalls: the cause in a line, the flag, what it costs, and the run that tried it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from specbench import show
from specbench.records import listing
from specbench.show.story import shortfalls
from specbench.studies.study import Collection, Study, collect

RECORDS = Path(__file__).parent / "records"
NAMES = (
    "h200-tp2_dflash-32-full-card",
    "h200-tp2_dflash-8",
    "h200-tp2_nextn-8-no-graphs",
    "h200_dflash-4",
    "h200_dflash-4-20-slots",
    "h200_nextn-4-full-card",
    "h200_story-8",
)


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    folder = tmp_path_factory.mktemp("campaign")
    for name in NAMES:
        shutil.copytree(RECORDS / name, folder / name / "record")
        listing.begin(folder, name, folder / name, {})
    return collect(folder)


def entry(collection: Collection, name: str) -> list[str]:
    text = shortfalls(collection).text
    return next(part for part in text.split("\n- ") if part.startswith(f"{name}: ")).split("\n  ")


def run(collection: Collection, name: str) -> Study:
    return next(study for study in collection.studies if study.name == name)


def test_a_fault_of_the_engine_has_its_cause_and_what_another_run_proves(collection: Collection) -> None:
    head, remedy = entry(collection, "h200_nextn-4-full-card")
    assert head == (
        "h200_nextn-4-full-card: crashed (4 asked). A fault of the engine: the attention mask of its CUDA graphs is 64 "
        "entries too small for a full batch of 4."
    )
    assert remedy == (
        "Remedy: engine.args.disable-cuda-graph=true (--disable-cuda-graph; no prediction: a recording proves it; "
        "decoding without CUDA graphs is slower: a single request took 105 instead of 13 ms per token, and batches of "
        "8 were served (recorded with SGLang 0.5.16, the triton backend and two H200s)). Proved by "
        "h200-tp2_nextn-8-no-graphs: served 8 of 8 (with parallel.tp_size 2 instead of 1; memory.mem_fraction_static "
        "0.75 instead of 0.88; memory.max_running_requests 8 instead of 4; gpu.emulate rtx-pro-6000 instead of not "
        "given)."
    )
    html = shortfalls(collection).html
    assert "<code>--disable-cuda-graph</code>" in html
    assert '<a href="h200-tp2_nextn-8-no-graphs/index.html">' in html


def test_the_table_of_the_run_shows_no_figures_that_nobody_predicted(collection: Collection) -> None:
    others = [study.record for study in collection.studies if study.name != "h200_nextn-4-full-card"]
    text = str(show.findings(run(collection, "h200_nextn-4-full-card"), others))
    assert "\nRemedies.\n" in text
    row = next(line for line in text.splitlines() if line.startswith("engine.args.disable-cuda-graph=true"))
    assert row.count("not predicted") == 3  # requests, slots, KV tokens
    assert "no prediction: a recording proves it" in row
    assert "h200-tp2_nextn-8-no-graphs: served 8 of 8 (also parallel.tp_size 2 instead of 1; " in row


def test_a_server_that_ran_fewer_than_resolved_is_told_why(collection: Collection) -> None:
    head, slots, admission = entry(collection, "h200-tp2_dflash-32-full-card")
    why = (
        "32 requests asked, 20 can run at once: the state pool is the limit (104 slots // 5 per request = 20). 17 of "
        "these 20 ran: DFLASH admits only when 4 places are free, --min-free-slots-delay 1."
    )
    assert head.endswith(f", 57 of 57 requests answered). {why}")
    assert slots == (
        "Remedy: memory.max_mamba_cache_size=160 (--max-mamba-cache-size 160; predicted: 32 at once, KV 1,588,868 → "
        "1,145,019 tokens). Not tried in this campaign."
    )
    assert admission.startswith(
        "Remedy: engine.args.min-free-slots-delay=1 (--min-free-slots-delay 1; no prediction: by the engine's source, "
        "not recorded; admits each request at once"
    )
    found = run(collection, "h200-tp2_dflash-32-full-card")
    assert why in str(show.headline(found)).splitlines()
    row = next(line for line in str(show.runs_table(collection)).splitlines() if line.startswith(found.name))
    assert why in row


def test_flags_and_tokens_stand_beside_the_key(collection: Collection) -> None:
    assert entry(collection, "h200_dflash-4")[1] == (
        "Remedy: memory.max_mamba_cache_size=20 (--max-mamba-cache-size 20; predicted: 4 at once, KV 158,207 → 50,824 "
        "tokens). Proved by h200_dflash-4-20-slots: served 4 of 4."
    )


def test_a_served_run_with_notices_alone_has_no_why(collection: Collection) -> None:
    found = run(collection, "h200-tp2_dflash-8")
    assert [finding.severity for finding in found.diagnosis.findings] == ["notice", "notice"]
    assert found.diagnosis.main_finding is None
    verdict, source = str(show.headline(found)).splitlines()[-2:]  # no reason between
    assert verdict == "Served: 8 requests at once asked, 8 resolved, 8 served at once."
    assert source.startswith("recorded: ")
    names = {line.split(": ")[0] for line in shortfalls(collection).text.split("\n- ")[1:]}
    assert names == {"h200-tp2_dflash-32-full-card", "h200_dflash-4", "h200_nextn-4-full-card", "h200_story-8"}
