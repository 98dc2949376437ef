"""Foreign recordings as records: what is kept, what is said about them, and what cannot be imported."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specbench.errors import RecordError
from specbench.importing.recording import Facts, import_all, import_folder, load_facts
from specbench.records.caveats import RANDOM_WEIGHTS
from specbench.records.record import RunRecord

RECORDS = Path(__file__).parent / "records"
FACTS = Facts(
    source="a test",
    gpu="h200",
    models={"/m/target": "org/target", "/m/draft": "org/draft"},
    versions={"0516": "0.5.16"},
    machine={"driver": "1.2"},
    notes={"GATE": "it waited"},
)
LOG = "[2026-01-01 00:00:00] The server is fired up and ready to roll!\n"


def foreign(folder: Path, **files: str) -> Path:
    """A recording in the foreign form, small."""
    folder.mkdir(parents=True)
    default = {
        "command.txt": (
            "/usr/bin/python3 -m sglang.launch_server --model-path /m/target --port 30000 --tp-size 2 "
            "--speculative-algorithm DFLASH --speculative-draft-model-path /m/draft --max-running-requests 8"
        ),
        "env.json": '{"SGLANG_A": "1", "GATE": "x", "HOME": "/root"}',
        "result.json": '{"name": "n", "version": "0516", "status": "ready", "t_load_begin_s": 0.4, "t_ready_s": 9.5}',
        "server.log": LOG,
        "gpu_memory.csv": (
            "t_s,phase,used_mib,free_mib,total_mib,gpu_util_pct,sm_clock_mhz,power_w\n0.5,start,618,143152,143771,7,1980,132.5\n"
        ),
    }
    for name, text in {**default, **{key.replace("__", "."): value for key, value in files.items()}}.items():
        (folder / name).write_text(text)
    return folder


def request(step: str, index: int, **more: object) -> str:
    row = {
        "step": step,
        "index": index,
        "concurrency": 2,
        "input_tokens": 64,
        "max_new_tokens": 16,
        "t_start_unix": 100.0 + index,
        "http_status": 200,
        "e2e_s": 0.75,
        "output_tokens": 3,
        "chunks_ms_tokens": [[250.0, 1], [500.5, 2]],
        "meta_info": {"finish_reason": {"type": "length"}},
        **more,
    }
    return json.dumps(row) + "\n"


def test_configuration_command_environment_and_samples(tmp_path: Path) -> None:
    record = import_folder(foreign(tmp_path / "mine"), tmp_path / "out", FACTS)
    config = record.config
    assert (config.name, config.model, config.speculative.draft_model_path) == ("mine", "org/target", "org/draft")
    assert (config.engine.version, config.parallel.tp_size, config.gpu.count) == ("0.5.16", 2, 2)
    assert config.engine.env == {"SGLANG_A": "1"}
    assert record.command()[:3] == ("/usr/bin/python3", "-m", "sglang.launch_server")
    assert record.env["environment"] == {"SGLANG_A": "1", "GATE": "x", "HOME": "/root"}
    assert record.env["machine"]["driver"] == "1.2"
    (sample,) = record.gpu_samples()
    assert sample.used_bytes == 618 * 1024 * 1024
    assert record.status.marks == {"load_begin": 0.4, "ready": 9.5}
    assert (record.status.ready_s, record.status.status, record.origin) == (9.5, "served", "recorded")
    assert "it waited" in record.status.notes


def test_requests_are_in_seconds_since_their_step_began(tmp_path: Path) -> None:
    rows = request("warmup", 0) + request("conc2", 1) + request("conc2", 2)
    record = import_folder(foreign(tmp_path / "mine", latency__jsonl=rows), tmp_path / "out", FACTS)
    warmup, first, second = record.requests()
    assert (warmup.phase, first.phase) == ("warmup", "measured")
    assert (first.sent_s, second.sent_s) == (0.0, 1.0)
    assert first.chunks == ((0.25, 1), (0.5005, 2))
    assert (first.end_s, first.finish_reason, first.error) == (0.75, "length", None)
    assert record.config.workload.concurrency == (2,)
    assert (record.config.workload.requests, record.config.workload.warmup) == (2, 1)


def test_failures_keep_their_text_and_a_server_that_refused_later_requests_had_crashed(tmp_path: Path) -> None:
    nothing = {"output_tokens": 0, "chunks_ms_tokens": [], "meta_info": {}}
    rows = (
        request("conc2", 0, **nothing)
        + request("conc2", 1, **nothing, error_body='{"error": "x"}')
        + request("conc2", 2, **nothing, http_status=None, exception="ConnectionRefusedError(111)")
    )
    record = import_folder(foreign(tmp_path / "mine", latency__jsonl=rows), tmp_path / "out", FACTS)
    assert [trace.error for trace in record.requests()] == [
        "the stream ended without a token",
        '{"error": "x"}',
        "ConnectionRefusedError(111)",
    ]
    assert (record.status.status, record.status.exit_code) == ("crashed", None)


def test_a_run_without_requests_is_load_only_and_says_so(tmp_path: Path) -> None:
    record = import_folder(foreign(tmp_path / "mine"), tmp_path / "out", FACTS)
    assert record.requests() == ()
    assert record.config.workload.requests == 0
    assert any(note.startswith("load only: ") for note in record.status.notes)


def test_the_recordings_own_note_is_kept_and_may_be_put_in_plain_words(tmp_path: Path) -> None:
    note = {"result.json": '{"name": "n", "version": "0516", "status": "ready", "note": "t_x is odd"}'}
    for number, (reworded, told) in enumerate(
        [
            ({}, ["the recording's own note: t_x is odd"]),
            ({"t_x is odd": "times of x are odd"}, ["times of x are odd"]),
            ({"t_x is odd": ""}, []),
        ]
    ):
        source = foreign(tmp_path / f"in{number}")
        (source / "result.json").write_text(note["result.json"])
        record = import_folder(source, tmp_path / f"out{number}", replace(FACTS, reworded=reworded))
        own = [text for text in record.status.notes if not text.startswith("load only: ") and text != "it waited"]
        assert own == told
        assert record.env["imported"]["note"] == "t_x is odd"


def test_random_weights_are_a_note(tmp_path: Path) -> None:
    command = "/usr/bin/python3 -m sglang.launch_server --model-path /m/target {} --max-running-requests 8"
    flags = (("--load-format dummy", True), ("--load-format=dummy", True), ("--load-format auto", False))
    for number, (flag, expected) in enumerate(flags):
        source = foreign(tmp_path / f"in{number}", command__txt=command.format(flag))
        record = import_folder(source, tmp_path / f"out{number}", FACTS)
        assert (record.status.notes[0] == RANDOM_WEIGHTS) is expected


@pytest.mark.parametrize("folder", [f for f in sorted(RECORDS.iterdir()) if f.is_dir()], ids=lambda f: f.name)
def test_the_notes_of_the_shipped_records_are_plain(folder: Path) -> None:
    record = RunRecord.open(folder)
    assert RANDOM_WEIGHTS in record.status.notes  # all of them were made with --load-format dummy
    text = " ".join(record.status.notes)
    assert "gate" not in text and "t_*" not in text
    held_back = "start-up times are not meaningful in this recording: the server was held back until the previous one"
    assert (held_back in text) is ("SPECBENCH_GATE" in record.env["environment"])
    assert record.env["imported"]["server_log_sha256"] == hashlib.sha256(record.log_bytes()).hexdigest()


def test_simulated_acceptance_is_kept_and_shown() -> None:
    by_patch = RunRecord.open(RECORDS / "dflash_r8_full_sim")
    assert by_patch.env["simulated_acceptance"] == {"SPECBENCH_SIM_ACCEPT": "6.3"}
    assert any("SPECBENCH_SIM_ACCEPT=6.3" in note and "cost model" in note for note in by_patch.status.notes)
    real = RunRecord.open(RECORDS / "dflash_r8_full")
    assert real.env["simulated_acceptance"] is None
    assert not any("simulated" in note for note in real.status.notes)


@pytest.mark.parametrize(
    ("variables", "kept"),
    [
        ({"SGLANG_SIMULATE_ACC_LEN": "3.5"}, {"SGLANG_SIMULATE_ACC_LEN": "3.5"}),
        ({"SGLANG_SIMULATE_ACC_LEN": "0"}, None),  # turned off
        ({"MY_SIM_ACC_RATE": "0.8", "SGLANG_SIMULATE_ACC_METHOD": "match-expected"}, {"MY_SIM_ACC_RATE": "0.8"}),
    ],
)
def test_acceptance_is_simulated_by_the_rule_of_every_run(
    tmp_path: Path, variables: dict[str, str], kept: dict[str, str] | None
) -> None:
    record = import_folder(foreign(tmp_path / "mine", env__json=json.dumps(variables)), tmp_path / "out", FACTS)
    assert record.env["simulated_acceptance"] == kept
    assert [note.partition(":")[0] for note in record.status.notes if "simulated" in note] == [
        f"draft acceptance was simulated ({name}={value})" for name, value in (kept or {}).items()
    ]


def test_what_the_recorded_configurations_say() -> None:
    story = RunRecord.open(RECORDS / "0512_dflash_r8_exact").config
    assert (story.engine.version, story.model) == ("0.5.12", "Qwen/Qwen3.6-27B")
    assert (story.memory.mem_fraction_static, story.memory.mamba_full_memory_ratio) == (0.50814, 0.5)
    assert (story.memory.max_running_requests, story.memory.context_length) == (8, 32768)
    assert story.memory.mamba_radix_cache_strategy == "extra_buffer"
    assert story.engine.allow_refused
    nemo = RunRecord.open(RECORDS / "nemo_nano_r32").config
    assert nemo.model.startswith("nvidia/")  # the second --model-path counts
    assert RunRecord.open(RECORDS / "tp4_dflash_r8").config.gpu.count == 4
    full = RunRecord.open(RECORDS / "dflash_r8_full").config.workload
    assert (full.input_tokens, full.output_tokens, full.concurrency, full.requests) == ((1024,), 256, (1, 8), (2, 8))


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"command__txt": "python -m x --max-running-requests many --model-path m"}, "--max-running-requests"),
        ({"command__txt": "python -m x"}, "model"),
        ({"result__json": "{"}, "cannot be imported"),
        ({"latency__jsonl": '{"step": "x"}\n'}, "t_start_unix"),
    ],
)
def test_what_cannot_be_imported_is_named_and_leaves_nothing(tmp_path: Path, files: dict[str, str], words: str) -> None:
    with pytest.raises(RecordError, match=words):
        import_folder(foreign(tmp_path / "in" / "mine", **files), tmp_path / "out", FACTS)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_no_foreign_recording(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no foreign recording"):
        import_all(tmp_path, tmp_path / "out", FACTS)


def test_the_facts_file(tmp_path: Path) -> None:
    assert load_facts(RECORDS / "facts.yaml").versions == {"0512": "0.5.12", "0516": "0.5.16"}
    (tmp_path / "facts.yaml").write_text("gpu: h200\n")
    with pytest.raises(RecordError, match="no facts file"):
        load_facts(tmp_path / "facts.yaml")


def test_the_command(tmp_path: Path) -> None:
    from specbench.cli import app

    for name in ("a", "b"):
        foreign(tmp_path / "in" / name)
    facts = tmp_path / "facts.yaml"
    facts.write_text("source: a test\ngpu: h200\nversions: {'0516': 0.5.16}\n")
    argv = ["import", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--facts", str(facts), "--json"]
    done = CliRunner().invoke(app, argv)
    assert done.exit_code == 0, done.output
    rows = json.loads(done.output)["records"]
    assert [(row["name"], row["status"], row["requests"]) for row in rows] == [("a", "served", 0), ("b", "served", 0)]
    assert RunRecord.open(tmp_path / "out" / "a").config.model == "/m/target"
