"""What a campaign will cost: by recorded starts, predicted requests at once, and the folder's own runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from specbench.campaign.bill import Clock, bill
from specbench.cli import app
from specbench.configuration.config import RunConfig
from specbench.host import machine as host
from specbench.host.gpu_use import GpuMemory, InUse
from specbench.host.machine import Gpu, GpuState
from specbench.params import load_campaign, load_run
from specbench.paths import DATA
from specbench.records.record import RunRecord
from specbench.records.types import RunStatus
from specbench.records.writer import RecordWriter

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "tests" / "records"
LIVE = ROOT / "tests" / "live" / "records"
DURATIONS = yaml.safe_load((DATA / "durations.yaml").read_text())
#: Ranks, the record of the start, that of the requests, and the tokens of each of these.
CPU = [
    (1, "dflash-capped-4", "dflash-4", 32),
    (4, "tp4-dflash-from-memory", "tp4-dflash-from-memory", 16),
    (8, "tp8-dflash-8", "tp8-dflash-8", 16),
]
#: Seconds from the process's start to the first use of the GPU, less the half second from there to load_begin.
IMPORTS_S = {"cal_0512_dflash_r1": 50.3, "smoke_dflash_r4": 52.8}


def config(version: str = "0.5.16", /, **changes: Any) -> RunConfig:
    run = load_run(ROOT / "params" / "h200" / f"{version}.yaml")
    return run.replace({key.replace("__", "."): value for key, value in changes.items()})


@pytest.mark.parametrize("row", DURATIONS["starts"], ids=lambda row: row["source"].split()[0])
def test_the_starts_are_those_of_the_records(row: dict[str, Any]) -> None:
    record = RunRecord.open(RECORDS / row["source"].split()[0])
    assert (record.config.engine.version, record.config.gpu.count) == (row["version"], row["gpus"])
    imports_s = 0.0
    if "dist_begin" in record.status.marks and not record.status.stages:  # counted from the first use of the GPU
        imports_s = {"0.5.12": 50.3, "0.5.16": 52.8}[row["version"]]
    assert record.status.ready_s is not None
    assert row["seconds"] == pytest.approx(record.status.ready_s + imports_s, abs=0.06)
    off = record.config.engine.args.get("disable-cuda-graph") is True
    assert row["cuda_graphs"] is not off


@pytest.mark.parametrize(("ranks", "start", "record", "tokens"), CPU)
def test_servers_on_the_cpu_are_those_of_the_records(ranks: int, start: str, record: str, tokens: int) -> None:
    (row,) = [row for row in DURATIONS["cpu"] if row["ranks"] == ranks]
    ready_s = RunRecord.open(LIVE / start).status.ready_s
    assert ready_s is not None and row["start_s"] == pytest.approx(ready_s, abs=0.06)
    found = RunRecord.open(LIVE / record)
    heaviest = [
        trace for trace in found.requests() if trace.step == f"conc{found.config.workload.concurrency[-1]}-in64"
    ]
    taken_s = sorted(trace.end_s for trace in heaviest if trace.end_s is not None and trace.output_tokens == tokens)
    assert len(taken_s) == len(heaviest) in (4, 8)
    assert row["token_s"] == pytest.approx(taken_s[len(taken_s) // 2] / tokens, abs=0.001)  # the one in the middle


def test_a_server_on_the_cpu_is_not_billed_as_one_on_a_gpu() -> None:
    """params/live.yaml: 16 tokens to warm up, 8 × 32 one by one, 2 × 32 four at a time: 336 × 0.191 s = 64.176 s."""
    first = load_campaign(ROOT / "params" / "live.yaml").runs[0]
    told = bill([first, first])
    assert [cost.start_s for cost in told.costs] == [92.6, 92.6]  # the first one compiles no kernels
    assert [cost.workload_s for cost in told.costs] == pytest.approx([64.176, 64.176])
    assert (told.starts, told.gpu_s) == (2, 0.0)
    assert told.notes == (
        "how long a request takes on this CPU is not known: taken as that of a tiny model, 1 rank on two cores",
        "how long a start takes on this CPU is not known: taken as that of a tiny model, 1 rank on two cores",
    )


def test_starts_that_are_estimated_rest_on_recorded_ones() -> None:
    """Per rank (28.44 - 23.6) / 2 = 2.4 s; four that compile 173.6 - 128.6 = 45.0 more than two."""
    recorded = {(row["version"], row["gpus"], row["cuda_graphs"], row["cold"]): row for row in DURATIONS["starts"]}
    estimated = {(row["version"], row["gpus"], row["cuda_graphs"], row["cold"]): row for row in DURATIONS["estimated"]}
    assert len(estimated) == len(DURATIONS["estimated"]) == 9 and not estimated.keys() & recorded.keys()
    for (version, gpus, graphs, cold), row in estimated.items():
        if not cold:
            assert row["seconds"] == pytest.approx(recorded[version, 2, graphs, cold]["seconds"] + (gpus - 2) * 2.4)
    cold_s = {key[:2]: row["seconds"] for key, row in (recorded | estimated).items() if key[3]}
    assert cold_s["0.5.12", 4] - cold_s["0.5.12", 2] == pytest.approx(cold_s["0.5.16", 4] - cold_s["0.5.16", 2])
    assert cold_s["0.5.12", 8] - cold_s["0.5.12", 4] == pytest.approx(4 * 2.4)
    assert cold_s["0.5.16", 8] - cold_s["0.5.16", 4] == pytest.approx(4 * 2.4)


def test_what_is_estimated_is_said() -> None:
    four = config(gpu={"name": "h200", "count": 4}, parallel={"tp_size": 4})
    told = bill([four, four])
    assert [cost.start_s for cost in told.costs] == [173.6, 41.7]
    (note,) = told.notes
    assert note == (
        "no recorded start of 0.5.16 on 4 GPUs with compiled kernels and CUDA graphs: 41.7 s, which is estimated: 36.9 "
        "with two (h200-tp2_no-speculation-8) and 2 × 2.4"
    )
    (note,) = bill([config(engine__version="0.5.20", gpu={"name": "h200", "count": 8}, parallel={"tp_size": 8})]).notes
    assert note == (
        "no recorded start of 0.5.20 on 8 GPUs with kernels to compile and CUDA graphs: taken as that of 0.5.16 on 8 "
        "GPUs with kernels to compile and CUDA graphs, which is estimated: 173.6 with four (tp4_dflash_r8) and 4 × 2.4"
    )


@pytest.mark.parametrize(("name", "seconds"), IMPORTS_S.items())
def test_the_time_of_imports_is_that_of_the_records(name: str, seconds: float) -> None:
    marks = RunRecord.open(RECORDS / name).status.marks
    assert "dist_begin" not in marks
    assert marks["load_begin"] == pytest.approx(seconds, abs=0.05)


def test_a_workload_takes_as_many_rounds_as_requests_do_not_fit() -> None:
    clock = Clock()
    # 8 predicted at once: 1 + 8 clients in two rounds of 64 tokens at 0.0192 s, warm-up of 16; 17 prompts of 1,024
    nospec = config(speculative={"algorithm": "none"}, memory__max_running_requests=8)
    nospec = nospec.replace({"workload": {"concurrency": [1, 8], "requests": [1, 8], "output_tokens": 64, "warmup": 8}})
    assert clock.cost(nospec).workload_s == pytest.approx((64 + 64 + 16) * 0.0192 + 17 * 1024 / 5000)
    # 1 predicted at once: 8 + 1 + 8 rounds
    capped = config(memory__max_running_requests=8)
    capped = capped.replace({"workload": {"concurrency": [1, 8], "requests": [1, 8], "output_tokens": 64, "warmup": 8}})
    assert clock.cost(capped).workload_s == pytest.approx((64 + 8 * 64 + 8 * 16) * 0.0312 + 17 * 1024 / 5000)


def test_a_refusal_costs_its_start_and_no_requests() -> None:
    cost = Clock().cost(config("0.5.12", memory__max_running_requests=8))
    assert (cost.verdict, cost.start_s, cost.workload_s) == ("refused", 116.1, 0.0)


def test_kernels_are_compiled_once_per_version() -> None:
    told = bill([config(), config(), config("0.5.12"), config("0.5.12")])
    assert [cost.start_s for cost in told.costs] == [137.5, 44.5, 116.1, 48.8]
    assert told.notes == ()


def test_kernels_of_one_gpu_are_not_those_of_two() -> None:
    of = {n: config(gpu={"name": "h200", "count": n}, parallel={"tp_size": n}) for n in (1, 2, 4)}
    told = bill([of[1], of[2], of[4], of[2]])
    assert [cost.start_s for cost in told.costs] == [137.5, 128.6, 173.6, 36.9]


def test_what_is_not_known_is_said() -> None:
    later = config(engine__version="0.5.20", model="Qwen/Qwen3.5-27B", speculative={"algorithm": "none"})
    del_format = {key: value for key, value in later.engine.args.items() if key != "load-format"}
    notes = bill([later.replace({"engine.args": del_format})]).notes
    assert notes[0].startswith(
        "no recorded start of 0.5.20 with kernels to compile and CUDA graphs: taken as that of 0.5.16 "
    )
    assert "the recorded starts read no weights from disk: add the time that this machine needs for it" in notes
    assert "Qwen/Qwen3.5-27B on h200: taken as Qwen/Qwen3.6-27B on h200" in notes


@pytest.mark.parametrize("name", ["load-format", "--load-format", "load_format"])
def test_random_weights_are_known_in_any_spelling(name: str) -> None:
    """They are read from no disk, as in the recorded starts."""
    others = {key: value for key, value in config().engine.args.items() if key != "load-format"}
    assert bill([config().replace({"engine.args": {**others, name: "dummy"}})]).notes == ()


def test_several_gpus_count_each() -> None:
    told = bill([config(gpu={"name": "h200", "count": 2}, parallel={"tp_size": 2})])
    assert told.costs[0].start_s == 128.6
    assert told.gpu_s == pytest.approx(2 * told.held_s)


def test_runs_of_the_folder_are_the_better_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = InUse(gpu=0, used_bytes=0, free_bytes=1, total_bytes=1, uuid="GPU-a")
    memory = GpuMemory(before=(card,), after=(card,), is_back=True, tolerance_bytes=0)
    monkeypatch.setattr(host, "gpu_use", lambda: (card,))
    with RecordWriter(tmp_path / "a" / "record") as writer:
        writer.config(config())
        writer.command(["python"])
        writer.env({"gpu_memory": dataclasses.asdict(memory)})
        writer.log_path.write_text("", encoding="utf-8")
        phases = {"start": 81.5, "conc1-in1024": 4.0, "stop": 5.0}
        record = writer.finish(
            RunStatus(status="served", origin="measured", reason="test", ready_s=81.5, phases=phases)
        )
    clock = Clock(tmp_path)
    assert clock.cost(config()).start_s == 81.5
    assert (
        clock.cost(config(engine__args={"disable-cuda-graph": True})).start_s == 64.8
    )  # another kind; kernels are warm
    assert clock.cost(config("0.5.12")).start_s == 116.1
    assert clock.cost(config()).beside_s == 10
    clock.saw(record, wall_s=96.5)  # 11 s of it were neither start nor requests
    assert clock.cost(config()).beside_s == 11.0


def test_a_replay_takes_what_was_recorded_by_its_speed_and_no_gpu() -> None:
    replay = load_run(ROOT / "params" / "recordings" / "dflash_r8.yaml", ["engine.replay_speed=2.0"])
    told = bill([replay])
    assert told.costs[0].start_s == pytest.approx(8.63 / 2)
    assert (told.starts, told.gpu_s) == (0, 0.0)
    instant = replay.replace({"engine.replay_speed": "instant"})
    assert bill([instant]).total_s == 4.0
    # two at a time; pages of four runs and the front page, which takes as long as two, in three rounds of two
    told = bill([instant] * 4, pages_of=4, page_jobs=2, at_once=2)
    assert (told.total_s, told.pages_s) == (8.0 + 24.0, 24.0)


def test_what_was_not_enough_for_a_configuration_is_known(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "a" / "record") as writer:
        writer.config(config())
        writer.command(["python"])
        writer.env({})
        writer.log_path.write_text("", encoding="utf-8")
        phases = {"start": 210.0, "stop": 5.0}
        status = RunStatus(status="timed_out", origin="measured", reason="test", phases=phases, cut_short="deadline")
        writer.finish(status)
    clock = Clock(tmp_path)
    assert clock.least_s(config()) == 210.0
    assert clock.least_s(config(name="another")) == 0.0


# ── the campaign that is run on a GPU ────────────────────────────────────────────────────────────────────────────────

EXPECTED = {
    "story-4": ("serves", 24, 4),
    "story-8": ("refused", 2, 0),
    "dflash-8": ("capped", 8, 1),
    "dflash-8-full-card": ("capped", 37, 7),
    "dflash-8-full-card-40-slots": ("serves", 40, 8),
    "dflash-4": ("capped", 8, 1),
    "dflash-4-no-radix": ("serves", 4, 4),
    "dflash-4-20-slots": ("serves", 20, 4),
    "nextn-4-full-card": ("serves", 85, 4),
    "too-long": ("serves", 45, 4),
    "no-speculation-8": ("serves", 45, 8),
    "no-speculation-4": ("serves", 45, 4),
    "no-speculation-8-full-card": ("serves", 165, 8),
    "story-6": ("capped", 13, 3),
}


def machine(folder: Path) -> Path:
    for name in ("target", "draft"):
        (folder / name).mkdir()
    file = folder / "machine.yaml"
    file.write_text(
        'engines: {"0.5.12": {python: /opt/old, env: {CUDA_HOME: /opt/cuda}}, "0.5.16": {python: /opt/new}}\n'
        "models: {Qwen/Qwen3.6-27B: target, z-lab/Qwen3.6-27B-DFlash: draft}\n"
    )
    return file


def test_the_campaign_of_the_gpu_is_predicted_and_billed_without_one(tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["run", str(ROOT / "params" / "h200.yaml"), "--machine", str(machine(tmp_path)), "--out", str(out)]
    done = CliRunner().invoke(app, [*arguments, "--dry-run", "--json"])
    assert done.exit_code == 0, done.output
    assert not out.exists()
    data = json.loads(done.stdout)
    assert data["bill"]["starts"] == 14
    assert 15 < data["bill"]["gpu_minutes"] == data["bill"]["gpu_held_minutes"] < 26
    found = {
        run["name"]: (
            run["expected"],
            run["limits"]["state_slots"]["point"],
            run["limits"]["running_requests"]["point"],
        )
        for run in data["runs"]
    }
    assert found == EXPECTED
    ended = [run for run in data["runs"] if run["known_fault"] is not None]
    assert [run["name"] for run in ended] == ["nextn-4-full-card"]
    assert ended[0]["known_fault"].startswith("Memory suffices, but SGLang 0.5.16 ends at its first full batch (of 4)")
    assert ended[0]["warnings"][0] == ended[0]["known_fault"]
    commands = {run["name"]: run["command"] for run in data["runs"]}
    story = commands["story-8"]
    assert story[:3] == ["/opt/old", "-m", "sglang.launch_server"]
    assert story[story.index("--model-path") + 1] == str(tmp_path / "target")
    assert story[story.index("--mem-fraction-static") + 1].startswith("0.508")
    assert story[story.index("--port") + 1] == "PORT"
    assert {"--disable-piecewise-cuda-graph", "--load-format"} <= set(story)
    assert "--disable-prefill-cuda-graph" in commands["dflash-8"]
    assert "--mamba-scheduler-strategy" not in commands["dflash-8"]


def test_a_dry_run_says_at_once_what_the_machine_has_too_few_gpus_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = Gpu(index=0, name="NVIDIA H200", total_bytes=143_771 * 2**20, free_bytes=143_152 * 2**20)
    monkeypatch.setattr(host, "gpus", lambda: GpuState(gpus=(card, card), driver="580", reason=None))
    base = ROOT / "params" / "h200" / "0.5.16.yaml"
    points = [{"name": name, "parallel.tp_size": n, "gpu.count": n} for name, n in (("two", 2), ("four", 4))]
    file = tmp_path / "both.yaml"
    file.write_text(yaml.safe_dump({"campaign": "both", "base": str(base), "points": points}))
    told = json.loads(CliRunner().invoke(app, ["run", str(file), "--dry-run", "--json"]).stdout)
    assert told["doubts"] == ["run refuses four: gpu.count: 4 × h200 needed, this machine has 2 (NVIDIA H200)"]
    text = " ".join(CliRunner().invoke(app, ["run", str(file), "--set", "gpu.count=8", "--dry-run"]).stdout.split())
    assert "run refuses this: gpu.count: 8 × h200 needed, this machine has 2 (NVIDIA H200)" in text


def test_a_configuration_that_likely_runs_out_of_memory_is_told_with_its_arithmetic() -> None:
    """DFLASH with 0.97 of an H200: 1.88 GiB are left when all pools stand, of which a full prefill takes 2.77."""
    fine, tight = (config(gpu__emulate=None, memory__mem_fraction_static=share) for share in (0.9, 0.97))
    first, second = bill([fine, tight.replace({"name": "tight"})]).costs
    assert first.out_of_memory is None
    assert second.out_of_memory == (
        "Likely out of memory at a full prefill: 1.88 GiB are free outside the budget, less 0.29 GiB for CUDA graphs "
        "(estimated), less 2.77 GiB for a prefill of 8,192 tokens (estimated) = -1.19 GiB."
    )


def test_the_bill_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    params = str(ROOT / "params" / "h200.yaml")
    done = CliRunner().invoke(app, ["run", params, "--machine", str(machine(tmp_path)), "--dry-run"])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("h200: 14 configurations to run, 14 starts: about ")
    assert "dflash-8-full-card: about " in done.stdout
    assert "expected to be capped at 7 of 8" in done.stdout
    assert "expected to be refused (0 of 8)" in done.stdout
    (nextn,) = [line for line in done.stdout.splitlines() if line.startswith("nextn-4-full-card: ")]
    assert nextn.endswith(" s, expected to start; a known fault of the engine ends it at its first full batch")
    assert "no recorded token times of NEXTN: taken as DFLASH's" in done.stdout
    assert "CUDA_HOME=/opt/cuda" in done.stdout
    emulated = "Emulated budget of RTX PRO 6000 on H200; free memory inferred, not measured on 1 × RTX PRO 6000 (start "
    text = " ".join(done.stdout.split())
    assert text.count(emulated) == text.count("Emulated budget of") and 0 < text.count(emulated) < 14


def test_the_prompts_that_are_too_long_are_so_by_one() -> None:
    campaign = load_campaign(ROOT / "params" / "h200.yaml")
    run = next(run for run in campaign.runs if run.name == "too-long")
    fits, pool, context = run.workload.input_tokens
    tokens, out = run.memory.max_total_tokens, run.workload.output_tokens
    assert tokens is not None and run.memory.context_length is not None
    # SGLang 0.5.16: a prompt must be shorter than tokens - 1 - 5, and with its answer than the pool less one
    assert fits + out + 1 == tokens - 1
    assert pool == tokens - 6
    assert context + out == run.memory.context_length + 1


def test_escapes_in_a_path_do_not_reach_the_terminal(tmp_path: Path) -> None:
    params = tmp_path / "x.yaml"
    params.write_text(
        'name: x\nengine: {version: "0.5.16", python: "/p\\e[2J\\u202e/python"}\nmodel: Qwen/Qwen3.6-27B\n'
        "gpu: {name: h200}\n",
        encoding="utf-8",
    )
    shown = CliRunner().invoke(app, ["run", str(params), "--dry-run", "--out", str(tmp_path / "out")]).stdout
    assert "/p[2J/python' -m sglang" in " ".join(shown.split())
    assert "\x1b" not in shown and "\u202e" not in shown
