"""Records of another machine, kept: what is replaced, what is derived again, and what stays as it was."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specbench.cli import app
from specbench.cli.import_ import renames
from specbench.configuration.config import RunConfig
from specbench.errors import ConfigError, RecordError
from specbench.importing.adopting import adopt_all
from specbench.importing.replaying import replay_text
from specbench.params import load_run
from specbench.records.record import RunRecord
from specbench.records.types import GpuSample, LogArrival, MetricSample, RequestTrace, RunStatus
from specbench.records.writer import RecordWriter

LOG = b"/home/me/site/x.py: warning\nmodel_path='/home/me/site/m' of /home/me\nready\n"
KEPT = b"/srv/site/x.py: warning\nmodel_path='/srv/site/m' of /data\nready\n"


def measured(folder: Path, name: str = "one") -> Path:
    """A run of a real engine, small."""
    config = RunConfig.model_validate(
        {
            "name": name,
            "engine": {"version": "0.5.16", "python": "/home/me/site/python", "env": {"PYTHONPATH": "/home/me/site"}},
            "model": "Qwen/Qwen3.6-27B",
            "gpu": {"name": "h200"},
        }
    )
    with RecordWriter(folder / name / "record") as writer:
        writer.log_path.write_bytes(LOG)
        writer.config(config)
        writer.command(["/home/me/site/python", "-m", "x"])
        writer.env({"argv_sha256": "old", "inputs_sha256": {"params": "old", "model": "m"}, "where": "/home/me/site"})
        writer.log_arrivals(
            LogArrival(line=line, offset=LOG.index(text), t_s=float(line), within_s=0.01)
            for line, text in enumerate((b"/home/me/site/x", b"model_path", b"ready"), 1)
        )
        writer.requests(
            [
                RequestTrace(
                    step="s", phase="measured", index=0, input_tokens=1, max_new_tokens=1, sent_s=0.0, error="/home/me"
                )
            ]
        )
        writer.gpu_samples(
            GpuSample(
                t_s=i / 2,
                phase="start",
                gpu=0,
                used_bytes=i,
                free_bytes=9 - i,
                total_bytes=9,
                utilization_pct=None,
                power_w=None,
            )
            for i in range(400)
        )
        writer.metric_samples([MetricSample(t_s=0.5, phase="start", name="num_queue_reqs", value=3.0)])
        writer.text("metrics.txt", 'up{path="/home/me/site"} 1\n', compress=True)
        writer.text("server_info.json", '{"model_path": "/home/me/site/m"}')
        status = RunStatus(status="served", origin="measured", reason="ok", ready_s=3.0, notes=("odd", "said twice"))
        writer.finish(status)
    return folder


def kept(tmp_path: Path) -> RunRecord:
    (record,) = adopt_all(
        measured(tmp_path / "runs"),
        tmp_path / "kept",
        prefix="far_",
        renamed={"/home/me": "/data", "/home/me/site": "/srv/site"},
        reworded={"odd": "plain", "said twice": ""},
    )
    return record


def test_what_was_wrong_is_put_right_and_what_was_said_stays_beside_it(tmp_path: Path) -> None:
    (record,) = adopt_all(
        measured(tmp_path / "runs"), tmp_path / "kept", corrected={"one": {"inputs_sha256.model": "right"}}
    )
    assert record.env["inputs_sha256"]["model"] == "right"
    assert record.env["imported"]["corrected"] == {"inputs_sha256.model": "m"}


@pytest.mark.parametrize("place", ["absent", "inputs_sha256.absent", "inputs_sha256.model.0", "where.4"])
def test_a_correction_of_what_is_not_there_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(RecordError, match=f"corrected: one: {place}: there is no such place in its env.json") as raised:
        adopt_all(measured(tmp_path / "runs"), tmp_path / "kept", corrected={"one": {place: 1}})
    assert len(str(raised.value).splitlines()) == 2
    assert not (tmp_path / "kept" / "one").exists()


def test_every_file_reads_the_new_names_and_the_longest_is_replaced_first(tmp_path: Path) -> None:
    record = kept(tmp_path)
    assert record.folder == tmp_path / "kept" / "far_one"
    assert record.log_bytes() == KEPT
    assert record.command()[0] == "/srv/site/python" == record.config.engine.python
    assert record.server_info() == {"model_path": "/srv/site/m"}
    assert record.metrics_text() == 'up{path="/srv/site"} 1\n'
    assert record.requests()[0].error == "/data"
    for file in record.folder.iterdir():
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        assert b"/home/me" not in data, file.name


def test_what_was_derived_from_the_text_is_derived_again(tmp_path: Path) -> None:
    record = kept(tmp_path)
    assert [KEPT[arrival.offset :][:5] for arrival in record.log_arrivals()] == [b"/srv/", b"model", b"ready"]
    assert record.env["argv_sha256"] == hashlib.sha256(b"/srv/site/python\0-m\0x").hexdigest()
    assert record.env["inputs_sha256"] == {
        "params": hashlib.sha256(record.config.model_dump_json().encode()).hexdigest(),
        "model": "m",
    }
    source = RunRecord.open(tmp_path / "runs" / "one")
    assert record.env["imported"] == {
        "from": "one",
        "server_log_sha256": hashlib.sha256(KEPT).hexdigest(),
        "put_in_place_of_its_own": ["/data", "/srv/site"],
        "source_sha256": {
            "record": source.sha256(),
            "server_log": hashlib.sha256(LOG).hexdigest(),
            "argv": "old",
        },
    }


def test_figures_stay_and_are_recorded_no_longer_measured(tmp_path: Path) -> None:
    record = kept(tmp_path)
    source = RunRecord.open(tmp_path / "runs" / "one")
    assert (source.origin, record.origin) == ("measured", "recorded")
    assert record.gpu_samples() == source.gpu_samples()
    assert record.metric_samples() == source.metric_samples()
    assert [(a.line, a.t_s) for a in record.log_arrivals()] == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert record.status.ready_s == 3.0
    assert record.status.notes == (
        "plain",
        (
            "imported from a record of another machine: names of its folders were replaced (/data, /srv/site stand for "
            "them), in the log too; every figure is as it was recorded"
        ),
    )
    assert (record.folder / "gpu.csv.gz").is_file()  # 400 samples are worth it
    assert (record.folder / "requests.jsonl").is_file()  # one request is not


def test_without_names_nothing_is_said_of_them(tmp_path: Path) -> None:
    (record,) = adopt_all(measured(tmp_path / "runs") / "one", tmp_path / "kept")
    assert record.name == "one"
    assert record.log_bytes() == LOG
    assert record.status.notes == ("odd", "said twice")


def test_a_record_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    kept(tmp_path)
    with pytest.raises(RecordError, match="A record is written once"):
        adopt_all(tmp_path / "runs", tmp_path / "kept", prefix="far_")
    with pytest.raises(RecordError, match="no record of specbench in it"):
        adopt_all(tmp_path, tmp_path / "kept")


@pytest.mark.parametrize("prefix", ["../", "/tmp/", "a/b", ".hidden", "a\nb\x1b[31m", "a" * 300, "a b"])
def test_a_prefix_that_is_no_part_of_a_name_writes_nothing(tmp_path: Path, prefix: str) -> None:
    """Not outside of the folder, and no params file either."""
    measured(tmp_path / "runs")
    options = ["--out", str(tmp_path / "kept"), "--prefix", prefix, "--replays", str(tmp_path / "params")]
    refused = CliRunner().invoke(app, ["import", str(tmp_path / "runs"), *options])
    assert isinstance(refused.exception, RecordError)
    said = str(refused.exception)
    assert said.startswith("--prefix: ") and said.count("\n") == 1 and "\x1b" not in said and len(said) < 400
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["runs"]


def test_two_records_of_one_name_are_told_before_either_is_kept(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for folder in ("one", "two"):
        (measured(tmp_path / "made", "same") / "same").rename(tmp_path / "runs" / folder)
    with pytest.raises(RecordError, match=r"^same: two records are called so\.\n"):
        adopt_all(tmp_path / "runs", tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def _linked(record: Path) -> None:
    (record / "notes.txt").symlink_to("/etc/hostname")


def _cut(record: Path) -> None:
    (record / "metrics.csv.gz").write_bytes(gzip.compress(b"t_s\n")[:8])


def _no_text(record: Path) -> None:
    (record / "metrics.txt").write_bytes(b"\xff\xfe")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_linked, r"notes.txt: a link or a folder, which no record has"),
        (_cut, r"metrics.csv.gz: cannot be read: Compressed file ended"),
        (_no_text, r"metrics.txt: cannot be read: 'utf-8' codec"),
    ],
)
def test_what_no_record_has_is_not_kept(tmp_path: Path, damage: Callable[[Path], None], said: str) -> None:
    """A link may lead anywhere: what it leads to is nobody's to keep."""
    damage(measured(tmp_path / "runs") / "one" / "record")
    with pytest.raises(RecordError, match=said) as caught:
        adopt_all(tmp_path / "runs", tmp_path / "kept")
    assert str(caught.value).count("\n") == 1
    assert not any((tmp_path / "kept").iterdir())


@pytest.mark.parametrize(("old", "file"), [("a", "config.yaml"), ("schema", "env.json"), ("served", "status.json")])
def test_a_rename_that_spoils_the_record_is_told(tmp_path: Path, old: str, file: str) -> None:
    with pytest.raises(RecordError, match=rf"^one: {file} is none any more with what --rename puts into it\.\n"):
        adopt_all(measured(tmp_path / "runs") / "one", tmp_path / "kept", renamed={old: "b"})
    assert not any((tmp_path / "kept").iterdir())


@pytest.mark.parametrize("text", ["/home/me", "=/srv"])
def test_a_rename_is_old_and_new(text: str) -> None:
    with pytest.raises(ConfigError, match="Expected OLD=NEW"):
        renames([text])
    assert renames(["/a=/b=c", "/d="]) == {"/a": "/b=c", "/d": ""}


def test_the_command(tmp_path: Path) -> None:
    runs = measured(tmp_path / "runs")
    arguments = ["import", str(runs), "--out", str(tmp_path / "kept"), "--prefix", "far_", "--rename", "/home/me=/srv"]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)["records"]
    assert (row["name"], row["status"], row["requests"]) == ("far_one", "served", 1)
    assert b"/home/me" not in RunRecord.open(tmp_path / "kept" / "far_one").log_bytes()
    again = [*arguments[:2], "--out", str(tmp_path / "more"), "--replays", str(tmp_path / "params")]
    assert CliRunner().invoke(app, again).exit_code == 0
    played = load_run(tmp_path / "params" / "one.yaml")
    assert played.engine.replay == str(tmp_path / "more" / "one")
    failed = CliRunner().invoke(app, [*again[:3], str(tmp_path / "third"), *again[4:]])
    assert "one.yaml: is there already.\nMove it away" in str(failed.exception)
    assert not (tmp_path / "third").exists()
    (tmp_path / "a_file").touch()
    failed = CliRunner().invoke(app, [*again[:3], str(tmp_path / "third"), "--replays", str(tmp_path / "a_file")])
    assert str(failed.exception) == (
        f"{tmp_path / 'a_file'}: params files cannot be written there: File exists.\nName another folder (--replays)."
    )
    assert not (tmp_path / "third").exists()
    (tmp_path / "none").mkdir()
    for options, words in (
        (["--prefix", "x"], "--prefix, --rename and --replays are for such"),
        ([], "also needs --facts"),
    ):
        failed = CliRunner().invoke(app, ["import", str(tmp_path / "none"), "--out", str(tmp_path / "o"), *options])
        assert failed.exit_code != 0
        assert words in str(failed.exception) + failed.output


RECORDINGS = Path(__file__).parent.parent / "params" / "recordings"
TWO = sorted(file.stem for file in RECORDINGS.glob("h200-tp2_*.yaml"))


@pytest.mark.parametrize("name", TWO)
def test_a_record_is_played_by_the_params_file_that_was_written_by_hand(name: str) -> None:
    """But for its first words, which named the campaign's file."""
    assert len(TWO) == 13
    text = replay_text(RunRecord.open(RECORDINGS.parents[1] / "tests" / "records" / name))
    first, _, rest = (RECORDINGS / f"{name}.yaml").read_text(encoding="utf-8").partition(": SGLang ")
    assert first == f"# Recorded by params/h200-tp2.yaml ({name.removeprefix('h200-tp2_')})"
    assert text == f"# Recorded: SGLang {rest}"


@pytest.mark.parametrize("name", ["h200_story-8", "h200_too-long", "var_noradix_r4", "tp4_dflash_r8"])
def test_what_plays_a_record_is_what_was_recorded(tmp_path: Path, name: str) -> None:
    record = RunRecord.open(RECORDINGS.parents[1] / "tests" / "records" / name)
    file = tmp_path / "played.yaml"
    file.write_text(replay_text(record), encoding="utf-8")
    played = load_run(file)
    assert played.engine.replay == f"tests/records/{name}"
    for section in ("gpu", "parallel", "speculative", "memory", "workload"):
        assert getattr(played, section) == getattr(record.config, section)
    assert played.engine.args == record.config.engine.args
