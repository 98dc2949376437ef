"""Memory from four sides, with the figures that recorded servers logged, answered and had in use."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from specbench import show
from specbench.cli.diagnosis_text import render
from specbench.diagnose.diagnosis import of_record
from specbench.diagnose.document import to_document
from specbench.engines.sglang.server_info import read
from specbench.gpus import load_gpu
from specbench.judging.side import TOTALS, Sides
from specbench.judging.sides import sides
from specbench.reading.pools import report
from specbench.reading.rank_gpus import Cards, cards
from specbench.records.record import RunRecord
from specbench.show.sides import rank_text
from specbench.studies.study import study
from specbench.units import GIB, MIB, Interval

RECORDS = Path(__file__).parent / "records"
CENT = GIB // 200 + 1  # half of 0.01 GiB


def found(name: str) -> Sides:
    seen = of_record(RunRecord.open(RECORDS / name)).sides
    assert seen is not None
    return seen


# ── /server_info ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "weights", "kv", "graphs", "tokens", "slots", "requests"),
    [
        ("0512_dflash_r4_exact", 51.05, 5.31, 0.0, 87_061, 24, 4),
        ("dflash_r8", 51.05, 9.65, 0.09, 158_177, 8, 1),
        ("tp2_dflash_r8", 25.62, 23.0, 0.43, 753_626, 47, 8),
    ],
)
def test_what_a_recorded_server_answered(
    name: str, weights: float, kv: float, graphs: float, tokens: int, slots: int, requests: int
) -> None:
    info = RunRecord.open(RECORDS / name).server_info()
    assert info is not None
    told = read(info)
    assert (told.weights.bytes, told.weights.resolution_bytes) == (round(weights * GIB), CENT)
    assert (told.kv.bytes, told.graphs.bytes) == (round(kv * GIB), round(graphs * GIB))
    assert told.graphs_of == "target"
    assert (told.kv_tokens, told.state_slots, told.running_requests) == (tokens, slots, requests)
    assert told.free_after_start is None


def test_the_answer_of_newer_versions_has_three_decimals_and_graphs_by_phase() -> None:
    """memory_usage as 0.5.20 and 0.5.23 build it (managers/scheduler_components/memory_usage.py)."""
    usage = {
        "weight": 51.051,
        "kvcache": 9.654,
        "startup_available": 65.801,
        "token_capacity": 158177,
        "token_capacity_swa": None,
        "graph": {"decode": 0.09, "prefill": 0.05},
    }
    told = read({"version": "0.5.23", "internal_states": [{"memory_usage": usage}]})
    assert told.weights.resolution_bytes == 536_871  # half of 0.001 GiB
    assert told.graphs.bytes == round(0.09 * GIB) + round(0.05 * GIB)
    assert told.graphs_of == "target and draft"
    assert told.free_after_start.bytes == round(65.801 * GIB)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"internal_states": None},
        {"internal_states": [3]},
        {"internal_states": [{"memory_usage": "much", "max_mamba_cache_size": True}]},
        {"internal_states": [{"memory_usage": {"weight": "51.05", "kvcache": -1, "graph": {"decode": None}}}]},
        {"max_total_num_tokens": "87061", "version": 5},
        {"max_total_num_tokens": 2**63, "internal_states": [{"max_mamba_cache_size": 2**63}]},
    ],
)
def test_an_answer_of_another_form_tells_nothing(answer: dict[str, Any]) -> None:
    told = read(answer)
    values = [value for name, value in dataclasses.asdict(told).items() if name != "graphs_of"]
    assert set(values) == {None}


# ── the four sides ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_cell_has_its_source() -> None:
    seen = found("dflash_r8")
    weights = seen.of("weights")
    assert (weights.log.value, weights.log.source) == (round(51.05 * GIB), "log line 25")
    assert weights.server_info.source == "/server_info memory_usage.weight (target alone)"
    assert weights.nvml is None  # NVML knows no terms
    assert seen.of("draft_weights").server_info is None
    tokens = seen.of("kv_tokens")
    assert (tokens.predicted.point, tokens.log.value, tokens.server_info.value) == (158_178, 158_177, 158_177)
    assert seen.disagreements == ()


def test_nvml_above_all_terms_is_context_and_unexplained() -> None:
    seen = found("dflash_r8")
    # gpu.csv: 648,019,968 B before the start, 80,190,898,176 B when ready, 80,507,568,128 B at most
    assert seen.of("before_start").nvml.value == 648_019_968
    assert seen.of("at_ready").nvml.value == 80_190_898_176 - 648_019_968
    assert seen.of("peak").nvml.value == 80_507_568_128 - 648_019_968
    rest = seen.of("context_and_unexplained").nvml
    # 0.09 + 51.05 + 3.38 + 0.02 + 1.27 + 4.50 + 0.03 + 9.66 + 3.02 + 0.14 = 73.16 GiB of 74.08 GiB
    assert rest.value / GIB == pytest.approx(0.92, abs=0.005)
    assert rest.source.endswith("less communication and the 9 terms of the log (73.16 GiB)")
    # the engine's own free memory at the end of its start (65.80 GiB) says the same
    assert seen.of("at_ready").log.value == pytest.approx(seen.of("at_ready").nvml.value, abs=0.1 * GIB)


def test_a_draft_that_shares_the_targets_embeddings_is_told() -> None:
    """Its embedding and head, 248,320 × 5,120 × 2 B each, are 4.74 GiB, which NVML saw go in two steps of 2,426 MiB."""
    seen = found("nextn_r4_full")
    back = seen.of("given_back").log
    assert back.value / GIB == pytest.approx(17.24 + 0.13 - 12.77, abs=0.001)
    assert back.source == "between log lines 34 and 44: 12.77 GiB free, then 17.37 GiB"
    rest = seen.of("context_and_unexplained").nvml
    assert rest.value / GIB == pytest.approx(0.72, abs=0.005)  # a DFLASH server of this card: 0.92
    assert rest.source.endswith(
        "less communication and the 9 terms of the log (122.04 GiB, without what was given back)"
    )


def test_what_communication_took_is_in_no_unexplained_rest() -> None:
    """2.433 GiB above the 9 terms of the log on either card, of which the distributed init took 1.07."""
    seen = found("h200-tp2_dflash-8")
    for rank in ("TP0", "TP1"):
        rest = seen.of("context_and_unexplained", rank).nvml
        assert rest.value / GIB == pytest.approx(2.433 - 1.07, abs=0.001)
        assert "less communication and the 9 terms of the log" in rest.source


def test_where_communication_is_not_logged_it_is_not_taken_for_nothing() -> None:
    record = RunRecord.open(RECORDS / "h200-tp2_dflash-8")
    seen = of_record(record)
    silent = tuple(one for one in seen.log.notices if one.kind != "distributed_ready")
    log = dataclasses.replace(seen.log, notices=silent)
    other = sides(seen.budgets["measured"], seen.pools, log, None, cards(record, ("TP0", "TP1")))
    rest = other.of("context_and_unexplained", "TP0").nvml
    assert rest.value / GIB == pytest.approx(2.433, abs=0.001)
    assert ", less the 9 terms of the log" in rest.source


def test_without_graphs_the_summary_tells_what_was_given_back() -> None:
    back = found("q35b_nextn_r16").of("given_back").log
    assert back.value / GIB == pytest.approx(18.99 - 17.32, abs=0.001)
    assert back.source == "between log lines 36 and 45: 17.32 GiB free, then 18.99 GiB"


@pytest.mark.parametrize("name", ["dflash_r8", "0512_dflash_r4", "nospec_r8", "ngram_r8"])
def test_others_give_nothing_back(name: str) -> None:
    """Up to 0.5.13 the target's graphs come before the draft: what is free falls from them on."""
    assert "given_back" not in {side.name for side in found(name).rows}


def test_a_server_that_never_was_ready_has_no_totals() -> None:
    seen = found("0512_dflash_r8")
    assert {side.name for side in seen.rows} & {"at_ready", "peak", "context_and_unexplained"} == set()
    assert seen.of("before_start").nvml.value == 648_019_968
    assert seen.of("draft_weights").log is None


def test_ranks_have_rows_of_their_own_and_only_the_first_answers() -> None:
    seen = found("tp2_dflash_r8")
    assert seen.of("weights", "TP0").server_info.value == round(25.62 * GIB)
    assert seen.of("weights", "TP1").server_info is None
    assert seen.of("weights", "TP1").log.value == round(25.62 * GIB)


def two_cards(tmp_path: Path, **env: Any) -> RunRecord:
    """The TP2 record as if both cards had been sampled: GPU 1 holds 1 GiB more than GPU 0."""
    shutil.copytree(RECORDS / "tp2_dflash_r8", tmp_path / "run")
    told = json.loads((tmp_path / "run" / "env.json").read_text())
    (tmp_path / "run" / "env.json").write_text(json.dumps({**told, **env}))
    head, *rows = (tmp_path / "run" / "gpu.csv").read_text().splitlines()
    columns = head.split(",")
    gpu, used = columns.index("gpu"), columns.index("used_bytes")
    lines = [head]
    for row in rows:
        cells = row.split(",")
        lines.append(row)
        other = [*cells]
        other[gpu], other[used] = "1", str(int(cells[used]) + GIB)
        lines.append(",".join(other))
    (tmp_path / "run" / "gpu.csv").write_text("\n".join(lines) + "\n")
    return RunRecord.open(tmp_path / "run")


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, {"TP0": "0", "TP1": "1"}),
        ({"server_gpus": [1, 0]}, {"TP0": "1", "TP1": "0"}),
        ({"inherited_environment": {"CUDA_VISIBLE_DEVICES": "1,0"}}, {"TP0": "1", "TP1": "0"}),
        ({"inherited_environment": {"CUDA_VISIBLE_DEVICES": "GPU-b,GPU-a"}}, {}),
        ({"server_gpus": [1, 2]}, {"TP0": "1"}),
    ],
)
def test_each_rank_has_the_samples_of_its_own_card(
    tmp_path: Path, env: dict[str, Any], expected: dict[str, str]
) -> None:
    seen = of_record(two_cards(tmp_path, **env)).sides
    assert seen is not None
    told = {row.rank: row.nvml.source for row in seen.rows if row.name == "before_start" and row.nvml is not None}
    assert told == {rank: f"NVML, GPU {gpu}, before the start" for rank, gpu in expected.items()}
    assert (seen.not_sampled is None) == (len(expected) == 2)


def test_a_rank_alone_in_the_log_is_not_taken_for_the_first(tmp_path: Path) -> None:
    """TP0 died before its pools: what /server_info and GPU 0 tell is not of TP1."""
    record = two_cards(tmp_path)
    seen = of_record(record)
    pools = dataclasses.replace(seen.pools, ranks=tuple(one for one in seen.pools.ranks if one.rank == "TP1"))
    other = sides(seen.budgets["measured"], pools, seen.log, record.server_info(), cards(record, ("TP1",)))
    assert other.of("weights", "TP1").server_info is None
    assert other.of("before_start", "TP1").nvml.source == "NVML, GPU 1, before the start"


def test_cards_that_were_not_sampled_are_told_on_the_page() -> None:
    text = show.four_sides(study(RECORDS / "tp4_dflash_r8")).text
    assert "NVML tells nothing of a rank: the GPU of rank TP1 was not sampled (NVML every 0.5 s, first GPU only" in text
    assert "in whole MiB); nor is one of TP2, TP3 known." in text


def test_the_rank_with_least_free_memory_is_named() -> None:
    """TP4 logs 138.03, 137.99, 137.99 and 138.22 before loading; 123.84, 123.80, 123.80, 124.04 when sizing."""
    seen = found("tp4_dflash_r8")
    told = {row.rank: row.log.value for row in seen.rows if row.name == "free_before_loading"}
    assert told == {f"TP{n}": round(size * GIB) for n, size in enumerate((138.03, 137.99, 137.99, 138.22))}
    assert seen.of("free_when_sized", "TP1").log.value == round(123.80 * GIB)
    assert seen.deciding == "TP1"
    text = show.four_sides(study(RECORDS / "tp4_dflash_r8")).text
    assert "TP1, TP2 have least free before loading (137.99 GiB, recorded): the server goes by that." in text
    document = to_document(of_record(RunRecord.open(RECORDS / "tp4_dflash_r8")))
    assert document["free"]["deciding_rank"] == "TP1"
    assert document["free"]["before_loading_bytes"]["TP3"] == round(138.22 * GIB)
    assert found("tp2_dflash_r8").deciding is None  # both have 138.21
    assert found("dflash_r8").deciding is None


@pytest.mark.parametrize(
    ("name", "logged", "predicted"),
    [
        # of an emulated smaller card the table says nothing, but of the larger one that is there
        ("h200-tp2_dflash-8", {"TP0": (1.07, 30), "TP1": (1.07, 31)}, (1.06, 1.07, 1.08)),
        ("h200-tp2_story-8", {"TP0": (1.01, 97), "TP1": (1.01, 98)}, (1.00, 1.01, 1.02)),
        ("h200_story-4", {"": (0.09, 76)}, (0.08, 0.09, 0.10)),
        ("h200-tp2_dflash-8-full-card", {"TP0": (1.07, 30), "TP1": (1.07, 31)}, (1.06, 1.07, 1.08)),
        (
            "tp4_dflash_r8",
            {"TP0": (1.25, 47), "TP1": (1.30, 46), "TP2": (1.30, 45), "TP3": (1.06, 44)},
            (1.05, 1.30, 1.31),
        ),
    ],
)
def test_what_communication_took(name: str, logged: dict[str, tuple[float, int]], predicted: tuple[float, ...]) -> None:
    """The first "Init torch distributed ends. … mem usage=" of each rank; a draft's own says 0.00."""
    rows = [row for row in found(name).rows if row.name == "communication"]
    told = {row.rank: (row.log.value, row.log.tolerance, row.log.source) for row in rows}
    assert told == {rank: (round(gib * GIB), CENT, f"log line {line}") for rank, (gib, line) in logged.items()}
    assert {row.predicted for row in rows} == {Interval(*(round(gib * GIB) for gib in predicted))}
    emulated = name in ("h200-tp2_dflash-8", "h200-tp2_story-8", "h200_story-4")
    expected = "GPU table, on the H200 that is there" if emulated else "GPU table"
    assert {row.predicted_from for row in rows} == {expected}


@pytest.mark.parametrize(
    ("name", "rank", "mib", "open_mib", "source"),
    [
        # 142,628.3125 MiB free when the context stands; 141,530.3125 when the line came, 2 MiB less until then
        ("h200-tp2_dflash-8", "TP0", 1_098, 2, "GPU 0: 139.2855 GiB free before the distributed init, 138.2112 to "),
        ("h200-tp2_dflash-8", "TP1", 1_098, 0, "GPU 1: 139.2855 GiB free before the distributed init, 138.2132 GiB "),
        # … 141,598.3125
        ("h200-tp2_story-8", "TP1", 1_030, 0, "GPU 1: 139.2855 GiB free before the distributed init, 138.2796 GiB "),
        # … 142,534.3125
        ("h200_story-4", "", 94, 0, "GPU 0: 139.2855 GiB free before the distributed init, 139.1937 GiB after it"),
    ],
)
def test_what_nvml_saw_communication_take(name: str, rank: str, mib: int, open_mib: int, source: str) -> None:
    row = found(name).of("communication", rank)
    assert (row.nvml.value, row.nvml.tolerance) == (mib * MIB, open_mib * MIB)
    assert row.nvml.source.startswith(f"NVML, {source}")
    assert abs(row.nvml.value - row.log.value) <= row.nvml.tolerance + row.log.tolerance


def test_the_context_stands_before_communication_is_taken() -> None:
    """139.2855 GiB are free before the init, 0.51 less than on the idle card of the table (143,152 MiB)."""
    source = found("h200-tp2_dflash-8").of("communication", "TP1").nvml.source
    assert "139.2855 GiB free before the distributed init" in source
    assert load_gpu("h200").idle_free_bytes / GIB - 139.2855 == pytest.approx(0.5114, abs=1e-4)
    assert "once its CUDA context stands" in TOTALS["communication"]


@pytest.mark.parametrize("name", ["dflash_r8", "tp4_dflash_r8", "h200_no-speculation-8"])
def test_nvml_tells_nothing_of_communication_without_close_samples(name: str) -> None:
    assert {row.nvml for row in found(name).rows if row.name == "communication"} == {None}


def test_a_log_that_begins_with_the_draft_tells_nothing_of_communication() -> None:
    """The draft's "mem usage=0.00" is no figure of the target."""
    record = RunRecord.open(RECORDS / "h200-tp2_dflash-8")
    seen = of_record(record)
    first = dataclasses.replace(seen.log, notices=tuple(one for one in seen.log.notices if one.line > 40))
    assert [one.values["used"].bytes for one in first.notices if one.kind == "distributed_ready"] == [0, 0]
    assert report(first).communication == {}
    other = sides(seen.budgets["measured"], seen.pools, first, None, cards(record, ("TP0", "TP1")))
    assert "communication" not in {row.name for row in other.rows}


def test_what_communication_took_is_shown() -> None:
    text = show.four_sides(study(RECORDS / "h200-tp2_dflash-8-full-card")).text
    rows = [line for line in text.splitlines() if line.startswith("communication ")]
    assert [line.split()[1:3] for line in rows] == [["TP0,", "TP1"]]
    assert "1148903752 [1138166333, 1159641170] (GPU table)" in rows[0]
    assert "1148903752 (log lines 30 and 31)" in rows[0]
    assert "1151336448 (NVML, GPU 0: 139.2855 GiB free before" in rows[0]
    assert "; NVML, GPU 1: 139.2855 GiB free before" in rows[0]
    seen = of_record(RunRecord.open(RECORDS / "tp4_dflash_r8"))
    document = to_document(seen)
    sizes = {"TP0": 1.25, "TP1": 1.30, "TP2": 1.30, "TP3": 1.06}
    assert document["free"]["communication_bytes"] == {rank: round(gib * GIB) for rank, gib in sizes.items()}
    row = next(row for row in document["sides"]["rows"] if (row["name"], row["rank"]) == ("communication", "TP3"))
    assert row["predicted_from"] == "GPU table" and row["nvml"] is None
    console = Console(width=120, file=io.StringIO())
    render(seen, console, everything=True)
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    last = max(place for place, line in enumerate(lines) if line[:1] == ["communication"])  # after the ledger
    assert "pools per rank, in GiB (2^30 B) or counts (recorded)" in " ".join(console.file.getvalue().split())
    assert "123 slots and 2,347,000 tokens are those of the server, not to be multiplied" in console.file.getvalue()
    assert lines[last] == ["communication", "1.06", "(TP3)"]
    assert lines[last + 1] == ["to", "1.30", "(TP1,", "TP2)"]


def test_contradictions_of_the_engine_are_told() -> None:
    record = RunRecord.open(RECORDS / "dflash_r8")
    info = json.loads(json.dumps(record.server_info()))
    info["max_total_num_tokens"] = 200_000
    info["internal_states"][0]["memory_usage"]["weight"] = 52.0
    seen = of_record(record)
    other = sides(seen.budgets["measured"], seen.pools, seen.log, info, cards(record, ("",)))
    assert other.disagreements == (
        "weights: 51.05 GiB (log line 25), 52.00 GiB (/server_info memory_usage.weight (target alone))",
        "kv_tokens: 158,177 (log, KV pool), 200,000 (/server_info max_total_num_tokens)",
    )


def test_of_several_ranks_the_least_pool_is_that_of_the_server() -> None:
    record = RunRecord.open(RECORDS / "tp2_dflash_r8")
    seen = of_record(record)
    less = {"state_slots": 46, "kv_tokens": 753_000}
    ranks = tuple(
        dataclasses.replace(pools, **less) if (pools.rank, pools.role) == ("TP1", "target") else pools
        for pools in seen.pools.ranks
    )
    pools = dataclasses.replace(seen.pools, ranks=ranks)
    other = sides(seen.budgets["measured"], pools, seen.log, record.server_info(), Cards(samples={}))
    assert (other.of("state_slots").log.value, other.of("kv_tokens").log.value) == (46, 753_000)
    assert other.disagreements == (
        "state_slots: 46 (log, state pool), 47 (/server_info max_mamba_cache_size)",
        "kv_tokens: 753,000 (log, KV pool), 753,626 (/server_info max_total_num_tokens)",
    )


def test_without_a_log_both_tables_have_what_the_server_answered(tmp_path: Path) -> None:
    """A server that was attached to, whose log nobody gave."""
    shutil.copytree(RECORDS / "h200_story-4", tmp_path / "run")
    (tmp_path / "run" / "server.log").write_text("")
    seen = of_record(RunRecord.open(tmp_path / "run"))
    assert seen.sides is not None
    assert seen.sides.of("state_slots").server_info.value == 24
    slots, tokens = (seen.reconciliation.of(limit, "config") for limit in ("state_slots", "kv_tokens"))
    assert [(row.rank, row.observed, row.verdict) for row in slots] == [("", 24, "match")]
    assert [(row.rank, row.observed, row.verdict) for row in tokens] == [("", 87_063, "match")]


@pytest.mark.parametrize("name", sorted(path.name for path in RECORDS.iterdir() if path.is_dir()))
def test_recorded_servers_do_not_contradict_themselves(name: str) -> None:
    assert found(name).disagreements == ()


def test_they_are_shown_and_in_the_document() -> None:
    one = study(RECORDS / "dflash_r8")
    shown = show.reconciliation(one)
    assert "The log and /server_info agree." in shown.text
    assert "context and unexplained" in shown.html
    assert "not told" in shown.html
    document = to_document(one.diagnosis)["sides"]
    row = next(row for row in document["rows"] if row["name"] == "at_ready")
    assert row["nvml"]["value"] == 79_542_878_208
    assert row["server_info"] is None
    assert json.loads(json.dumps(document)) == document


def test_a_replay_says_why_nvml_tells_nothing(tmp_path: Path) -> None:
    shutil.copytree(RECORDS / "dflash_r8", tmp_path / "record")
    env = json.loads((tmp_path / "record" / "env.json").read_text())
    (tmp_path / "record" / "env.json").write_text(json.dumps({**env, "replay": {"name": "dflash_r8"}}))
    for samples in (tmp_path / "record").glob("gpu.csv*"):
        samples.unlink()
    text = show.four_sides(study(tmp_path / "record")).text
    assert "NVML tells nothing: not sampled, a replay." in text
    header = text.splitlines()[1]
    assert "/server_info (recorded)" in header and "NVML (" not in header


def rows_of(name: str, term: str) -> list[str]:
    lines = show.four_sides(study(RECORDS / name)).text.splitlines()
    return [line for line in lines if line.startswith(f"{term} ")]


def test_ranks_that_are_told_the_same_share_a_row() -> None:
    (start,) = rows_of("h200-tp2_dflash-8", "before start")
    assert "TP0, TP1" in start and start.endswith("644939776 (NVML, GPU 0 and 1, before the start)")
    (weights,) = rows_of("h200-tp2_dflash-8", "weights")
    assert "27509265531 (log lines 40 and 41)" in weights
    assert "27509265531 (/server_info memory_usage.weight (target alone), of TP0)" in weights
    # the summary is logged by the first rank alone; NVML sees both cards alike
    (ready,) = rows_of("h200-tp2_dflash-8", "at ready")
    assert "less the baseline, of TP0)" in ready and ready.endswith("(NVML, GPU 0 and 1, first sample when ready)")


def test_ranks_that_differ_do_not() -> None:
    ranks = [line.removeprefix("communication").split("  ") for line in rows_of("tp4_dflash_r8", "communication")]
    assert [next(cell.strip() for cell in cells if cell.strip()) for cells in ranks] == ["TP0", "TP1, TP2", "TP3"]
    (slots,) = rows_of("tp4_dflash_r8", "state_slots")
    assert slots.split()[1:4] == ["TP0", "to", "TP3"]


def test_a_card_that_holds_more_has_a_row_of_its_own(tmp_path: Path) -> None:
    two_cards(tmp_path)
    lines = show.four_sides(study(tmp_path / "run")).text.splitlines()
    starts = [line.split()[2] for line in lines if line.startswith("before start ")]
    assert starts == ["TP0", "TP1"]


def test_what_holds_for_all_ranks_is_called_alike_in_both_tables() -> None:
    both = show.reconciliation(study(RECORDS / "tp2_dflash_r8")).text
    for term in ("state_slots", "kv_tokens", "running_requests", "context_len", "max_input_tokens"):
        assert [line.split()[1:3] for line in both.splitlines() if line.startswith(f"{term} ")] == [["TP0,", "TP1"]] * 2


@pytest.mark.parametrize(
    ("ranks", "every", "expected"),
    [
        ([""], [""], "all"),
        ([""], ["TP0", "TP1"], "TP0, TP1"),
        (["TP1", "TP2", "TP3"], ["TP0", "TP1", "TP2", "TP3"], "TP1 to TP3"),
        (["TP0", "TP1", "TP3"], ["TP0", "TP1", "TP2", "TP3"], "TP0, TP1, TP3"),
        (["TP2"], ["TP0", "TP1", "TP2", "TP3"], "TP2"),
    ],
)
def test_words_for_ranks(ranks: list[str], every: list[str], expected: str) -> None:
    assert rank_text(ranks, every) == expected
