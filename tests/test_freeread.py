"""Free memory as the solver read it, found in NVML samples.

The starts are synthetic in time and real in size: the levels (MiB in use, of 143,771) and the log lines are those of
SGLang 0.5.16 and 0.5.12 on an H200, the moments are made up. With the levels before loading and at sizing the rule has
to give the tokens that the engines logged, to a few: nothing is fitted.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from specbench.cli import app
from specbench.diagnose import diagnosis
from specbench.engines.sglang import offsets
from specbench.engines.sglang.logs import read as read_log
from specbench.paths import DATA
from specbench.reading.freeread import MeasuredOffsets, measured_offsets
from specbench.reading.freeread_rank import Rank
from specbench.reading.gputrace import Trace
from specbench.reading.offset_rows import as_yaml, offset_rows
from specbench.reading.rank_gpus import UnknownError
from specbench.records import listing
from specbench.records.record import RunRecord
from specbench.records.types import GPU_COLUMNS, GpuSample
from specbench.units import GIB, MIB, Interval

UNTIMED = (
    "this record does not hold when each line of its log came (it was made before specbench timed log lines, or "
    "somebody else started the server)"
)
RECORDS = Path(__file__).parent / "records"
TOTAL = 143_771 * MIB
#: NVML's figures end on 0.1875 MiB there: 618.8125 MiB are in use by nobody.
FREE_OF_ALL = int(143_152.1875 * MIB)
#: MiB that are in use beside the 618.8125: (seconds, level). The context, the distributed init, then `pre`.
BEFORE = ((0.0, 0), (50.0, 19), (50.2, 524), (50.4, 618), (50.6, 688))
PRE_MIB, LOADED_MIB = 142_534.1875, 90_168.1875


def sample(t_s: float, used_mib: float, phase: str = "start") -> GpuSample:
    free = FREE_OF_ALL - int(used_mib * MIB)
    return GpuSample(
        t_s=t_s,
        phase=phase,
        gpu=0,
        used_bytes=TOTAL - free,
        free_bytes=free,
        total_bytes=TOTAL,
        utilization_pct=None,
        power_w=None,
    )


def steps(levels: Iterable[tuple[float, float]], *, seen_after_s: float = 0.001) -> list[GpuSample]:
    """As the telemetry keeps them: a level's first sample, and its last just before the next level."""
    rows, before = [], None
    for at_s, used in levels:
        if before is not None:
            rows.append(sample(at_s - seen_after_s, before))
        rows.append(sample(at_s, used))
        before = used
    rows.append(sample(999.0, before or 0))
    return rows


def start(
    tmp_path: Path,
    name: str,
    levels: Iterable[tuple[float, float]],
    moments: dict[str, float],
    *,
    samples: list[GpuSample] | None = None,
    watched: bool = True,
    metrics: str | None = None,
) -> RunRecord:
    """A record like the shipped one, with the samples and moments of a start. `moments`: text of a line -> seconds.

    Lines without a moment came with the line before.
    """
    folder = tmp_path / name
    shutil.copytree(RECORDS / name, folder)
    rows = samples if samples is not None else steps(levels)
    with (folder / "gpu.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(GPU_COLUMNS)
        table.writerows(["" if v is None else v for v in (getattr(row, c) for c in GPU_COLUMNS)] for row in rows)
    text = io.StringIO()
    text.write("line,offset,t_s,within_s\n")
    at_s, left = 0.0, dict(moments)
    log = (folder / "server.log").read_bytes().decode("utf-8", "replace").split("\n")
    for number, line in enumerate(log, 1):
        found = next((key for key in left if key in line), None)
        if found is not None:
            at_s = left.pop(found)
        text.write(f"{number},0,{at_s},0.002\n")
    assert not left, f"no such line: {left}"
    (folder / "log_times.csv.gz").write_bytes(gzip.compress(text.getvalue().encode()))
    if metrics is not None:
        table_text = f"t_s,phase,name,value\r\n99.0,ready,{metrics}\r\n"
        (folder / "metrics.csv.gz").write_bytes(gzip.compress(table_text.encode()))
    env = json.loads((folder / "env.json").read_text())
    env["capture"] = {"memory_watched": watched}
    (folder / "env.json").write_text(json.dumps(env))
    return RunRecord.open(folder)


def used(free_mib: float) -> float:
    """MiB beside what nobody uses, of a level of free memory."""
    return 143_152.1875 - free_mib


#: 45 slots and 215,239 tokens: 0.13 GiB conv, 6.47 ssm, 13.14 KV; then what the log says is left.
NOSPEC = (
    *BEFORE,
    (50.9, used(142_464)),
    (51.5, used(LOADED_MIB) + 76),  # before the allocator's cache was emptied
    (51.6, used(LOADED_MIB) - 20),  # 88.07 GiB
    (51.8, used(LOADED_MIB)),
    (54.000, used(LOADED_MIB) + 130),  # conv
    (54.002, used(LOADED_MIB) + 130 + 6_624),  # ssm
    (54.010, used(68.27 * 1024)),  # KV
    (54.1, used(68.18 * 1024)),
    (60.0, used(68.04 * 1024)),  # graphs
)
NOSPEC_LINES = {
    "Init torch distributed begin": 50.1,
    "Init torch distributed ends": 50.55,
    "Load weight begin": 50.95,
    "Load weight end": 51.7,
    "Mamba Cache is allocated": 54.004,
    "KV Cache is allocated": 54.012,
    "Memory pool end": 54.033,
    "Capture target decode CUDA graph begin": 54.2,
    "Capture target decode CUDA graph end": 60.1,
}


def nospec(tmp_path: Path, **changes: Any) -> RunRecord:
    return start(tmp_path, "nospec_r4", **({"levels": NOSPEC, "moments": NOSPEC_LINES} | changes))


#: 0.5.16 with a DFLASH draft: loaded before the pools, and 100 MiB of buffers after it. Then 8 slots, 158,178 tokens.
DFLASH_READ_MIB = 86_608.1875
DFLASH = (
    *NOSPEC[:9],
    (53.0, used(88.05 * 1024)),
    (53.2, used(84.68 * 1024)),
    (53.9, used(DFLASH_READ_MIB)),
    (54.000, used(DFLASH_READ_MIB) + 26),  # conv of 9 slots
    (54.002, used(DFLASH_READ_MIB) + 26 + 1_296),
    (54.005, used(DFLASH_READ_MIB) + 26 + 1_296 + 4_608 + 34),  # and the scratch of 2 requests
    (54.500, used(69.07 * 1024)),
    (54.700, used(66.04 * 1024)),
    (55.0, used(65.94 * 1024)),
    (57.0, used(65.85 * 1024)),
    (58.0, used(65.80 * 1024)),
)
DFLASH_LINES = {
    **dict(list(NOSPEC_LINES.items())[:4]),
    "avail mem=88.05 GB": 53.1,
    "type=DFlashDraftModel": 53.3,
    "max_running_requests was reduced": 53.999,
    "Mamba Cache is allocated": 54.006,
    "K size: 4.83 GB": 54.51,
    "avail mem=69.07 GB": 54.53,
    "K size: 1.51 GB": 54.71,
    "avail mem=66.04 GB": 54.73,
    "Capture target verify CUDA graph begin": 55.1,
    "Capture target verify CUDA graph end": 57.1,
    "Capture draft verify CUDA graph end": 58.1,
}


def dflash(tmp_path: Path, **changes: Any) -> RunRecord:
    return start(tmp_path, "dflash_r4", **({"levels": DFLASH, "moments": DFLASH_LINES} | changes))


def test_levels_and_the_moments_between_which_memory_changed() -> None:
    trace = Trace(steps([(0.0, 10), (1.0, 20), (2.0, 30)]), gpu=0)
    levels = [(FREE_OF_ALL - level.free_bytes) // MIB for level in trace.between(0.5, 1.5)]
    assert levels == [10, 20]
    assert [(FREE_OF_ALL - level.free_bytes) // MIB for level in trace.between(0.9995, 0.9996)] == [10, 20]
    assert [(FREE_OF_ALL - level.free_bytes) // MIB for level in trace.between(1.2, 1.3)] == [20]
    assert trace.widest_gap_s(0.0, 3.0) == pytest.approx(0.001)
    assert trace.levels[1].held_s == pytest.approx(0.999)
    assert trace.between(-5.0, -4.0) == ()
    assert Trace(steps([(0.0, 10)]), gpu=1).between(0.0, 1.0) == ()


def test_what_the_solver_read_is_the_level_before_its_line_and_before_the_first_pool(tmp_path: Path) -> None:
    found = measured_offsets(nospec(tmp_path))
    assert isinstance(found, MeasuredOffsets), found
    assert found.pre == Interval.exact(int(PRE_MIB * MIB))
    assert found.post == Interval.exact(int(LOADED_MIB * MIB))
    assert found.exact
    # Printed: 139.13 and 88.07 GiB. By hand: 142,534.1875 - 139.13 × 1024 = 65.07, 88.07 × 1024 - 90,168.1875 = 15.49.
    assert found.pre_offset.point / MIB == pytest.approx(65.07, abs=0.01)
    assert found.post_offset.point / MIB == pytest.approx(15.49, abs=0.01)


def test_the_prediction_from_it_gives_the_engines_tokens(tmp_path: Path) -> None:
    """215,239 tokens and 45 slots were logged by a real engine; 0.1 MiB is one token here."""
    found = diagnosis.of_record(nospec(tmp_path))
    budget = found.budgets["measured"]
    tokens, slots = budget.limits["kv_tokens"].value, budget.limits["state_slots"].value
    assert tokens is not None and tokens.is_exact and abs(tokens.point - 215_239) <= 3
    assert slots == Interval.exact(45)
    assert budget.free.source.startswith("measured by NVML in this start: 139.1935 GiB free before loading")
    assert [row.verdict for row in found.reconciliation.of("kv_tokens", "measured")] == ["match"]


def test_a_draft_that_loads_before_the_pools_counts(tmp_path: Path) -> None:
    record = dflash(tmp_path)
    found = measured_offsets(record)
    assert isinstance(found, MeasuredOffsets), found
    assert (found.pre, found.post) == (
        Interval.exact(int(PRE_MIB * MIB)),
        Interval.exact(int(DFLASH_READ_MIB * MIB)),
    )
    limits = diagnosis.of_record(record).budgets["measured"].limits
    tokens, slots, requests = (limits[name].value for name in ("kv_tokens", "state_slots", "running_requests"))
    assert tokens is not None and abs(tokens.point - 158_178) <= 3 and tokens.is_exact
    assert (slots, requests) == (Interval.exact(8), Interval.exact(1))


def test_a_level_that_was_seen_once_on_the_way_down_was_not_read(tmp_path: Path) -> None:
    """A moment at 2 MiB less, just before the line that ends the distributed init: within its rounding too."""
    levels = [*BEFORE[:4], (50.5495, 620), (50.5505, 688), *NOSPEC[len(BEFORE) :]]
    found = measured_offsets(nospec(tmp_path, levels=levels))
    assert isinstance(found, MeasuredOffsets), found
    assert found.pre == Interval.exact(int(PRE_MIB * MIB))


def test_a_pool_whose_end_no_sample_saw_is_found_all_the_same(tmp_path: Path) -> None:
    """Between two samples the rest of the state pool and the KV pool were allocated."""
    levels = [level for level in NOSPEC if level[0] != 54.002]
    moments = NOSPEC_LINES | {"Mamba Cache is allocated": 54.011}
    found = measured_offsets(nospec(tmp_path, levels=levels, moments=moments))
    assert isinstance(found, MeasuredOffsets), found
    assert found.post == Interval.exact(int(LOADED_MIB * MIB))


def test_two_levels_that_both_may_have_been_read_give_an_interval(tmp_path: Path) -> None:
    """20 MiB (a segment of the allocator) are taken 30 ms before the pools, and the level rests: either was read."""
    levels = [*NOSPEC[:9], (53.97, used(LOADED_MIB) + 20), *((t, u + 20) for t, u in NOSPEC[9:11]), *NOSPEC[11:]]
    found = measured_offsets(nospec(tmp_path, levels=levels))
    assert isinstance(found, MeasuredOffsets), found
    lower = int(LOADED_MIB * MIB) - 20 * MIB
    assert found.post == Interval(lower, lower, int(LOADED_MIB * MIB))
    assert not found.exact
    tokens = diagnosis.of_record(RunRecord.open(tmp_path / "nospec_r4")).budgets["measured"].limits["kv_tokens"].value
    assert tokens is not None and tokens.contains(215_239) and not tokens.is_exact


def test_the_unrounded_figure_of_metrics_tells_how_the_two_counts_differ(tmp_path: Path) -> None:
    """NVML's count is 64 KiB above the engine's in this start: what the engine read is that much less."""
    at_end = (FREE_OF_ALL - int(used(68.04 * 1024) * MIB) - 65_536) / 2**30
    found = measured_offsets(nospec(tmp_path, metrics=f"startup_available_gpu_memory_gb,{at_end!r}"))
    assert isinstance(found, MeasuredOffsets), found
    assert found.difference == Interval.exact(-65_536)
    assert found.pre == Interval.exact(int(PRE_MIB * MIB) - 65_536)


def test_a_constant_difference_that_only_rounded_figures_show_is_an_interval(tmp_path: Path) -> None:
    """All of NVML is 300 MiB above what the log prints; its figures are rounded to 10.24 MiB."""
    shifted = [(t, u - 300) for t, u in NOSPEC]
    found = measured_offsets(nospec(tmp_path, levels=shifted))
    assert isinstance(found, MeasuredOffsets), found
    assert found.difference.contains(-300 * MIB)
    assert 0 < (found.difference.high - found.difference.low) / MIB <= 10.24
    assert found.pre.contains(int(PRE_MIB * MIB))


def test_a_process_that_moved_memory_meanwhile_is_noticed(tmp_path: Path) -> None:
    """Another process holds 500 MiB from 53.1 s to the end: the figures of the two loads differ by two constants."""
    moved = [(t, u + 500 * (t > 53.1)) for t, u in DFLASH]
    told = measured_offsets(dflash(tmp_path, levels=moved))
    assert told == "NVML and the engine disagree about free memory: another process moved it"


def test_why_nothing_is_said(tmp_path: Path) -> None:
    assert measured_offsets(RunRecord.open(RECORDS / "dflash_r4")) == UNTIMED
    told = measured_offsets(nospec(tmp_path / "a", watched=False))
    assert told == "GPU memory was not sampled closely enough while the server started"
    told = measured_offsets(nospec(tmp_path / "b", samples=steps(NOSPEC, seen_after_s=0.15)))
    assert told == "NVML was sampled with gaps of more than 0.1 s when memory was read"
    told = measured_offsets(nospec(tmp_path / "c", samples=[]))
    assert isinstance(told, str) and told.startswith("no GPU was sampled: ")


def test_damaged_samples_cost_the_measurement_not_the_diagnosis(tmp_path: Path) -> None:
    record = nospec(tmp_path)
    (record.folder / "gpu.csv").write_text("t_s,phase\nno,number\n")
    told = measured_offsets(record)
    assert isinstance(told, str) and "not the table that was written" in told
    assert not diagnosis.of_record(record).budgets["measured"].free.watched


def test_recorded_samples_of_half_a_second_are_too_sparse(tmp_path: Path) -> None:
    """The samples of the real start, every 0.5 s, as if they had been taken more often."""
    real = [s for s in RunRecord.open(RECORDS / "nospec_r4").gpu_samples() if s.t_s < 12]
    moments = {key: at_s - 50.2 for key, at_s in NOSPEC_LINES.items()}
    told = measured_offsets(nospec(tmp_path, samples=real, moments=moments))
    assert told == "NVML was sampled with gaps of more than 0.1 s when memory was read"


def test_records_become_rows_of_the_offsets_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two starts that agree share a row, which the table takes as it is; a reader is told why another has none."""
    first, second = nospec(tmp_path / "a"), nospec(tmp_path / "b")
    told = offset_rows([first, second, RunRecord.open(RECORDS / "dflash_r8"), dflash(tmp_path / "c")])
    assert [proposal.row for proposal in told.proposals] == [
        {
            "versions": ["0.5.16"],
            "algorithms": ["none"],
            "tp": 1,
            "gpu": "h200",
            "logged": {"pre": "139.13", "post": "88.07"},
            "pre": 0.06354,  # 65.07 MiB; the table's 0.06366 is that of other starts
            "post": 0.01513,
            "beside": 0.00922,  # 139.13 - 88.07 = 51.06, less 51.05078 by the shapes
            "exact": True,
            "runs": 2,
            "fractions": 1,
            "source": "measured by NVML in the starts nospec_r4, nospec_r4; they differ by at most 0.00 MiB",
        },
        {
            "versions": ["0.5.16"],
            "algorithms": ["DFLASH"],
            "tp": 1,
            "gpu": "h200",
            "logged": {"pre": "139.13", "post": "84.68"},
            "pre": 0.06354,
            "post": 0.10169,
            "beside": 0.01836,  # 139.13 - 84.68 = 54.45, less 51.05078 and the draft's 3.38086
            "exact": True,
            "runs": 1,
            "fractions": 1,
            "source": "measured by NVML in the starts dflash_r4",
        },
    ]
    text = as_yaml(told)
    assert text.endswith(f"  # dflash_r8: no row: {UNTIMED}\n")
    rows = yaml.safe_load("rows:\n" + text)["rows"]
    assert rows == [proposal.row for proposal in told.proposals]
    table = {**yaml.safe_load((DATA / "offsets.yaml").read_text(encoding="utf-8")), "rows": rows}
    monkeypatch.setattr(offsets, "_table", lambda: table)
    assert offsets.known_offsets("0.5.16", "DFLASH", 1, "h200").post.point == round(0.10169 * GIB)


def test_the_command_prints_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = nospec(tmp_path / "run").folder
    shown = CliRunner().invoke(app, ["offsets", str(tmp_path / "run")])
    assert shown.exit_code == 0
    assert "pre: 0.06354" in shown.stdout
    for name, file in (("p1", "status.json"), ("p2", "server.log"), ("p3", "env.json")):
        shutil.copytree(record, tmp_path / "all" / name / "record")
        (tmp_path / "all" / name / "record" / file).unlink()
        (tmp_path / "all" / name / "record" / "status.json").touch()
    shutil.copytree(record, tmp_path / "all" / "p4" / "record")
    mixed = CliRunner().invoke(app, ["offsets", str(tmp_path / "all")])
    assert mixed.exit_code == 0
    assert "pre: 0.06354" in mixed.stdout
    assert [line.partition(": no row: ")[0] for line in mixed.stdout.splitlines() if "# " in line] == [
        "  # p1",
        "  # p3",
        "  # nospec_r4",
    ]
    shutil.copytree(record, tmp_path / "all" / "p5")  # an imported one is the record itself
    listing.begin(tmp_path / "all", "p4", tmp_path / "all" / "p5", {})  # and takes the place of p4, listed or not
    both = CliRunner().invoke(app, ["offsets", str(tmp_path / "all"), "--json"])
    assert json.loads(both.stdout)["rows"][0]["runs"] == 2
    none = CliRunner().invoke(app, ["offsets", str(RECORDS / "dflash_r8"), "--json"])
    assert none.exit_code == 1
    assert json.loads(none.stdout)["without"] == [
        {
            "record": "dflash_r8",
            "reason": UNTIMED,
        }
    ]


@pytest.mark.parametrize(
    ("name", "rank", "gib"),
    [
        ("h200_nextn-4-full-card", "", 82.5257),  # before the draft was loaded 88.0550
        ("h200-tp2_nextn-8-full-card", "TP0", 109.7581),  # … 112.5745
        ("h200-tp2_dflash-8-full-card", "TP0", 110.6214),  # before a workspace was set up 110.6702
        ("h200-tp2_story-8", "TP1", 112.6214),  # … 112.6409
    ],
)
def test_ten_milliseconds_without_a_sample_never_give_a_wrong_level_as_exact(name: str, rank: str, gib: float) -> None:
    """The samples of 10 ms are left out, everywhere in the half second before the first pool."""
    record = RunRecord.open(RECORDS / name)
    log = read_log(record.log_path, name=name, version=record.config.engine.version)
    arrivals = {arrival.line: arrival for arrival in record.log_arrivals()}
    gpu = int(rank.removeprefix("TP") or 0)
    pool_s = arrivals[min(pool.line for pool in (*log.state_pools, *log.kv_pools))].t_s
    told: list[float | None] = []
    for begin_s in (pool_s - 0.5 + 0.0125 * n for n in range(41)):
        kept = [s for s in record.gpu_samples() if not begin_s < s.t_s < begin_s + 0.01]
        try:
            post = Rank(rank, Trace(kept, gpu), arrivals, log, None).found().post
        except UnknownError:
            told.append(None)
            continue
        assert post.low <= gib * GIB + 0.0001 * GIB and gib * GIB - 0.0001 * GIB <= post.high
        told.append(post.point / GIB)
    assert None in told  # where it matters it is not known …
    assert sum(one is not None for one in told) > 10  # … and elsewhere the samples left out change nothing
