"""A campaign from params to pages, with real processes: papermill, kernels, the replay server."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from specbench.campaign import batch, jobs, report
from specbench.campaign import runs as running
from specbench.campaign.outlook import outlook
from specbench.campaign.pages import MAX_PAGE_BYTES
from specbench.campaign.report import write_run
from specbench.campaign.types import CampaignResult, Choices, Event, PointResult
from specbench.cli import app
from specbench.cli.campaign_text import Screen, document, summary
from specbench.configuration.config import RunConfig
from specbench.errors import ConfigError, LaunchError, RecordError
from specbench.host import machine
from specbench.host.machine import Gpu, GpuState
from specbench.params import Campaign, load_campaign, load_run, load_sections
from specbench.paths import RUNS, runs_root
from specbench.records import listing
from specbench.records.types import RunStatus
from specbench.records.writer import RecordWriter
from specbench.studies.study import RUN_NOTEBOOK, collect
from specbench.terms import Outcome
from specbench.workbook.workers import worker_pool
from tests.workbench import until

ROOT = Path(__file__).parent.parent
EVIL = "<script>alert(1)</script>"
pytestmark = pytest.mark.slow


def recording(source: str, /, **changes: Any) -> RunConfig:
    run = load_run(ROOT / "params" / "recordings" / f"{source}.yaml", ["engine.replay_speed=instant"])
    return run.replace({key.replace("__", "."): value for key, value in changes.items()})


@pytest.fixture(scope="module")
def campaign() -> Campaign:
    runs = (
        recording("0512_dflash_r8"),
        recording("0512_dflash_r4"),
        recording("nospec_r4", name="lost", gpu__name="rtx-pro-6000"),  # not what was recorded
    )
    return Campaign(name="little", runs=runs, source=ROOT / "params", about=f"Two & one.\n\n{EVIL}")


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return []


@pytest.fixture(scope="module")
def result(campaign: Campaign, events: list[Event], tmp_path_factory: pytest.TempPathFactory) -> CampaignResult:
    return batch.run_campaign(campaign, tmp_path_factory.mktemp("runs") / "little", events.append)


def test_a_failed_point_does_not_stop_the_others(result: CampaignResult) -> None:
    assert [(point.name, point.status, point.outcome) for point in result.points] == [
        ("0512_dflash_r8", "refused", "refused"),
        ("0512_dflash_r4", "served", "served"),
        ("lost", None, "no_record"),
    ]
    assert "gpu.name: rtx-pro-6000 asked, h200 recorded" in str(result.points[2].error)
    assert result.problems == ()
    assert not result.complete
    assert not result.all_served


def test_every_run_has_its_record_notebooks_and_pages(result: CampaignResult) -> None:
    for point in result.points[:2]:
        names = {path.name for path in point.folder.iterdir()}
        assert names == {"record", "2_run.ipynb", "3_diagnose.ipynb", "index.html", "run.html"}
    assert {path.name for path in result.points[2].folder.iterdir()} == {"2_run.ipynb", "error.txt", "index.html"}
    assert {path.name for path in result.folder.iterdir() if path.is_file()} == {
        "campaign.json",
        "4_analysis.ipynb",
        "index.html",
    }


def test_pages_are_small_and_their_links_lead_somewhere(result: CampaignResult) -> None:
    pages = list(result.folder.rglob("*.html"))
    assert len(pages) == 6
    for page in pages:
        text = page.read_text("utf-8")
        assert len(text.encode()) < MAX_PAGE_BYTES
        assert "<script" not in text
        links = re.findall(r'href="([^"#]*)"', text)
        assert links
        for link in links:
            assert (page.parent / link).resolve().is_file(), f"{page}: {link}"


def test_the_front_page_tells_the_story(result: CampaignResult) -> None:
    text = result.index.read_text("utf-8")
    plain = re.sub(r"<[^>]+>", " ", text)
    assert "3 configurations: 1 served (" in plain
    assert "1 refused (the server did not start), 1 no record (the run itself failed)." in plain
    assert '<p class="about">Two &amp; one.</p><p class="about">&lt;script&gt;' in text
    assert "2 configurations did not get what was asked" in plain
    assert "In all 2 runs the weights are random" in plain
    assert text.index("the weights are random") < text.index("data:image/png")
    assert "87,034" in plain  # KV tokens logged with 4 requests
    assert "11,866" in plain  # and with 8
    assert "gpu.name: rtx-pro-6000 asked, h200 recorded" in plain
    assert 'href="0512_dflash_r8/index.html"' in text
    # the remedy of the refused run was tried by the run that served, and does not give what was asked
    assert (
        "memory.max_running_requests=4  ( --max-running-requests 4 ; predicted: 4 at once, fewer than asked, "
        "KV 11,866 → 87,035 tokens). Proved by"
    ) in plain


def test_the_page_of_the_refused_run_names_cause_evidence_and_remedy(result: CampaignResult) -> None:
    plain = re.sub(r"<[^>]+>", " ", (result.points[0].folder / "index.html").read_text("utf-8"))
    assert "8 requests at once asked, none served" in plain
    assert "capture_bs=[0]" in plain
    assert "0512_dflash_r4: served" in plain
    assert "recorded: replay of a recording" in plain


def test_progress_names_runs_phases_and_the_end(events: list[Event], result: CampaignResult) -> None:
    ended = [(event.run, event.phase) for event in events if event.finished and event.run]
    assert sorted(ended) == [("0512_dflash_r4", "served"), ("0512_dflash_r8", "refused"), ("lost", "no record")]
    assert (events[-1].run, events[-1].phase, events[-1].finished) == (None, "pages", True)
    # one count from the first configuration to the last page: 3 runs, a page each, the front page
    assert {event.total for event in events} == {7}
    assert [event.done for event in events] == sorted(event.done for event in events)
    assert events[-1].done == 7
    assert max(event.done for event in events if event.run) == 3


def test_nothing_is_left_running(result: CampaignResult) -> None:
    assert multiprocessing.active_children() == []


def test_the_result_for_programs(result: CampaignResult) -> None:
    data = json.loads(json.dumps(document(result)))
    assert data["schema"] == 1
    assert [(run["name"], run["status"], run["outcome"]) for run in data["runs"]] == [
        ("0512_dflash_r8", "refused", "refused"),
        ("0512_dflash_r4", "served", "served"),
        ("lost", None, "no_record"),
    ]


def test_the_table_fits_eighty_columns_and_tells_the_whole_cause(
    result: CampaignResult, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    summary(result)
    lines = capsys.readouterr().out.splitlines()
    report = next(number for number, line in enumerate(lines) if line.startswith("report: "))
    assert [line for line in lines[:report] if len(line) > 80] == []
    assert lines[0].split() == ["configuration", "asked", "resolved", "served", "outcome"]
    assert lines[1].split() == ["0512_dflash_r8", "8", "not", "logged", "none", "(did", "not", "start)", "refused"]
    cause = " ".join(
        line.strip() for line in lines[2 : lines.index(next(x for x in lines if x.startswith("0512_dflash_r4")))]
    )
    assert cause.startswith("The state pool got 2 slots and one request needs 4")
    assert "left for pools after the weights (predicted)." in cause
    assert any(line.startswith("lost") and line.endswith("no record") for line in lines)
    assert lines[report - 1] == "resolved and served: recorded"


def test_measured_and_recorded_runs_of_one_table_are_told_apart(
    result: CampaignResult, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    folder = shutil.copytree(result.folder, tmp_path / "little")
    status = folder / "0512_dflash_r4" / "record" / "status.json"
    status.write_text(json.dumps({**json.loads(status.read_text()), "origin": "measured"}))
    points = tuple(replace(point, folder=folder / point.folder.name) for point in result.points)
    mixed = replace(result, folder=folder, points=points)
    assert [run["origin"] for run in document(mixed)["runs"]] == ["recorded", "measured", None]
    summary(mixed)
    told = "resolved and served: recorded in 0512_dflash_r8; measured in 0512_dflash_r4"
    assert told in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [(["served", "started"], True), (["served", "capped"], False), (["unanswered"], False), (["refused"], False)],
)
def test_strict_wants_what_was_asked(outcomes: list[Outcome], expected: bool) -> None:
    points = tuple(
        PointResult(name="x", folder=Path("x"), status="served", outcome=outcome, error=None) for outcome in outcomes
    )
    found = CampaignResult(name="c", folder=Path("c"), index=Path("c"), points=points, problems=())
    assert found.all_served is expected


def test_the_collection_keeps_the_campaigns_order_and_the_failure(result: CampaignResult) -> None:
    found = collect(result.folder)
    assert [study.name for study in found.studies] == ["0512_dflash_r8", "0512_dflash_r4"]
    assert [
        (missing.name, "gpu.name: rtx-pro-6000 asked, h200 recorded" in missing.error) for missing in found.missing
    ] == [("lost", True)]


def test_report_rebuilds_pages_and_leaves_records_alone(result: CampaignResult, tmp_path: Path) -> None:
    folder = tmp_path / "little"
    run = shutil.copytree(result.points[0].folder, folder / result.points[0].name)
    record = run / "record"
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in record.iterdir()}
    (run / "index.html").unlink()
    done = CliRunner().invoke(app, ["report", str(folder), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["problems"] == []
    assert (folder / "index.html").is_file() and (run / "index.html").is_file()
    assert {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in record.iterdir()} == before


def test_report_of_a_folder_without_runs_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "params").mkdir()
    (tmp_path / "params" / "x.yaml").write_text("a: 1")
    with pytest.raises(RecordError, match="no run in it"):
        batch.report_folder(tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["params", "x.yaml"]


def test_report_never_writes_into_a_record() -> None:
    before = sorted((ROOT / "tests" / "records").rglob("*"))
    with pytest.raises(RecordError, match="nothing is ever written into a record"):
        batch.report_folder(ROOT / "tests" / "records")
    assert sorted((ROOT / "tests" / "records").rglob("*")) == before


def test_exit_codes_of_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "build", lambda root, *_, **__: (root / "index.html", ()))  # its pages decide no code
    params = str(ROOT / "params" / "recordings" / "0512_dflash_r8.yaml")
    arguments = ["run", params, "--set", "engine.replay_speed=instant", "--out", str(tmp_path / "out"), "--json"]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 0, refused.output  # a refused start is a result
    strict = CliRunner().invoke(app, [*arguments, "--resume", "--strict"])  # nothing runs again for it
    assert strict.exit_code == 1
    assert [folder.name for folder in listing.run_folders(tmp_path / "out")] == ["0512_dflash_r8"]


def test_real_engines_run_one_at_a_time() -> None:
    replay, real = recording("nospec_r4"), recording("nospec_r4", engine__replay=None)
    assert jobs.run_jobs([replay, real]) == 1
    assert jobs.run_jobs([replay]) == 1
    assert jobs.run_jobs([replay] * 8) >= 1


def test_untrusted_text_of_a_log_stays_text_on_the_page(tmp_path: Path) -> None:
    evil = EVIL
    config = recording("nospec_r4", name="evil", model=f"org/{evil}", engine__replay=None)
    log = (
        "[2026-11-29 13:01:31] Load weight begin. avail mem=139.13 GB\n"
        f"[2026-11-29 13:01:32] KV Cache is allocated. {evil}\n"
        "Traceback (most recent call last):\n"
        f"RuntimeError: Not enough memory. {evil}\n"
    )
    with RecordWriter(tmp_path / "evil" / "record") as writer:
        writer.config(config)
        writer.command(["python", evil])
        writer.env({})
        writer.log_path.write_text(log, encoding="utf-8")
        writer.finish(RunStatus(status="refused", origin="measured", reason=f"refused: {evil}", notes=(evil,)))
    assert write_run(tmp_path / "evil") is None
    page = (tmp_path / "evil" / "index.html").read_text("utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_a_worker_that_dies_is_a_row_and_the_others_go_on(campaign: Campaign, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with worker_pool(2) as pool:
        slow = pool.submit(_pause_then, "beside it")
        killed = pool.submit(os._exit, 3)
        later = [pool.submit(_pause_then, f"after {number}") for number in range(3)]
        outcome, _ = running._result(campaign.runs[0], tmp_path / "x", killed)
        assert [task.result(60) for task in (slow, *later)] == ["beside it", "after 0", "after 1", "after 2"]
    assert outcome.status is None
    assert str(outcome.error).startswith("the process that executed the notebook was ended from outside")


def test_a_worker_does_not_build_the_grammar_of_addresses() -> None:
    """Notebooks are checked without it; it would take a second of every worker."""
    with worker_pool(1) as pool:
        assert pool.submit(_grammars_after_a_notebook_was_checked).result(60) == []


def test_a_worker_that_is_killed_costs_its_own_configuration_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = (recording("dflash_r8", name="killed", engine__replay_speed=1.0), recording("0512_dflash_r8"))
    ahead = outlook(Campaign(name="c", runs=runs, source=ROOT), tmp_path)

    def kill_once(event: Event) -> None:
        """The first configuration takes minutes; its worker is the parent of the kernel that has started it."""
        if event.run == "killed" and not event.finished and not ended:
            for worker in multiprocessing.active_children():
                worker.kill()
                ended.append(worker.pid)

    ended: list[int | None] = []
    monkeypatch.setattr(running, "run_jobs", lambda _: 1)
    runner = running.Runs(ahead, Choices(), kill_once, [])
    runner.all()
    results = [runner.results[config.name] for config in runs]
    assert [(one.name, one.status, one.outcome) for one in results] == [
        ("killed", None, "no_record"),
        ("0512_dflash_r8", "refused", "refused"),
    ]
    assert "ended from outside" in str(results[0].error)


def _grammars_after_a_notebook_was_checked() -> list[str]:
    import nbformat
    from nbformat.v4 import new_notebook

    nbformat.validate(new_notebook())
    return [name for name in sys.modules if name.startswith("rfc3987_syntax.")]


def _does_nothing(config: RunConfig, folder: Path, until: float | None) -> str:
    return "nothing was done"


def _pause_then(word: str) -> str:
    time.sleep(0.2)
    return word


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_the_command(signal_number: signal.Signals, tmp_path: Path) -> None:
    arguments = ["run", str(ROOT / "params" / "recordings" / "dflash_r8.yaml"), "--out", str(tmp_path / "out")]
    command = [sys.executable, "-m", "specbench", *arguments, "--set", "engine.replay_speed=1.0"]  # minutes, if let
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, start_new_session=True, cwd=ROOT, **quiet) as process:
        tree: dict[int, psutil.Process] = {}
        assert until(lambda: any("specbench.replay" in line for line in lines(process.pid, tree)), 60)
        assert len(tree) >= 4  # worker, kernel, supervisor, replay
        process.send_signal(signal_number)
        assert until(lambda: not any(alive(one) for one in tree.values()), 120)


@pytest.mark.parametrize(("signal_number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_returns_when_everything_has_ended(
    signal_number: signal.Signals, code: int, tmp_path: Path
) -> None:
    """Whoever waits for the command finds the GPUs free and no half record."""
    arguments = ["run", str(ROOT / "params" / "recordings" / "dflash_r8.yaml"), "--out", str(tmp_path / "out")]
    command = [sys.executable, "-m", "specbench", *arguments, "--set", "engine.replay_speed=1.0"]
    with subprocess.Popen(
        command, start_new_session=True, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        tree: dict[int, psutil.Process] = {}
        assert until(lambda: any("specbench.replay" in line for line in lines(process.pid, tree)), 60)
        # Python's own resource tracker ends when the command has ended, a moment later.
        ours = {one.pid: " ".join(one.cmdline()) for one in tree.values() if alive(one)}
        ours = {pid: line for pid, line in ours.items() if "resource_tracker" not in line}
        process.send_signal(signal_number)
        _, told = process.communicate(timeout=180)
        left = [line for pid, line in ours.items() if alive(tree[pid])]
    assert process.returncode == code
    assert left == []
    assert list((tmp_path / "out" / "dflash_r8").glob("record*")) == []
    assert "Traceback" not in told


def lines(pid: int, tree: dict[int, psutil.Process]) -> list[str]:
    """The command lines of all descendants, which are added to `tree`."""
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children(recursive=True):
            tree[child.pid] = child
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                found.append(" ".join(child.cmdline()))
    return found


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_recording_that_is_not_there_is_told_before_anything_starts(tmp_path: Path) -> None:
    absent = recording("nospec_r8").replace({"engine.replay": str(tmp_path / "absent")})
    campaign = Campaign(name="c", runs=(recording("dflash_r8"), absent), source=ROOT)
    with pytest.raises(ConfigError, match=r"nospec_r8: engine\.replay: '.*absent' does not exist"):
        batch.run_campaign(campaign, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_in_which_nothing_can_be_written_is_told_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    campaign = Campaign(name="c", runs=(recording("dflash_r8"),), source=ROOT)
    with pytest.raises(RecordError, match="runs cannot be written there: Not a directory"):
        batch.run_campaign(campaign, tmp_path / "file" / "out")


def test_the_demo_is_a_valid_campaign() -> None:
    demo = load_campaign(ROOT / "params" / "demo.yaml")
    assert len(demo.runs) == 21
    assert all(run.engine.replay is not None for run in demo.runs)
    assert "Twenty-one recorded starts" in demo.about
    assert "0.75 of its free memory, 70.7 GiB for weights and pools" in demo.about


def test_what_a_campaign_is_about_is_text(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"campaign: c\nabout: [1]\npoints: [{{params: {ROOT}/params/story/tp1-4.yaml}}]\n")
    with pytest.raises(ConfigError, match="about: got"):
        load_campaign(file)


def test_a_name_that_ran_before_is_told_with_its_new_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign = Campaign(name="c", runs=(recording("dflash_r8"), recording("nospec_r8")), source=ROOT)
    (tmp_path / "dflash_r8").mkdir()
    monkeypatch.setattr(running, "run_point", _does_nothing)
    monkeypatch.setattr(report, "build", lambda *_, **__: (tmp_path / "index.html", ()))
    with Screen("c") as screen:
        batch.run_campaign(campaign, tmp_path, screen.show)
    told = capsys.readouterr().err.splitlines()
    assert [line for line in told if "exists" in line] == ["dflash_r8 exists: this run is dflash_r8.2"]


def test_the_run_notebook_is_given_what_was_stated_and_no_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A default handed on as if it had been stated would contradict the recording that is replayed."""
    given: dict[str, Any] = {}
    monkeypatch.setattr(running, "execute", lambda notebook, output, parameters, **_: given.update(parameters))
    data = {"name": "p", "engine": {"version": "0.5.16"}, "model": "Qwen/Qwen3.6-27B", "gpu": {"name": "h200"}}
    running.run_point(RunConfig.model_validate(data), tmp_path)
    assert given.pop("out") == str(tmp_path)
    assert load_sections(**given).stated() == {**data, "parallel": {}, "speculative": {}, "memory": {}, "workload": {}}


def test_runs_that_name_no_folder_go_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "run_point", _does_nothing)
    monkeypatch.setattr(report, "build", lambda root, *_, **__: (root / "index.html", ()))
    monkeypatch.setenv(RUNS, str(tmp_path))
    result = batch.run_campaign(Campaign(name="c", runs=(recording("dflash_r8"),), source=ROOT))
    assert result.folder == tmp_path / "c"
    assert (tmp_path / "c" / "dflash_r8").is_dir()
    monkeypatch.delenv(RUNS)
    assert runs_root() == ROOT / "runs"


def test_pages_that_are_missing_are_told_and_end_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full when the pages are written: the runs are there, the report is not."""
    lost = CampaignResult(
        name="c", folder=tmp_path, index=tmp_path / "index.html", points=(), problems=("analysis: no space",)
    )
    assert lost.complete and lost.all_served
    monkeypatch.setattr(batch, "run_campaign", lambda *_, **__: lost)
    monkeypatch.setattr(batch, "report_folder", lambda *_: (lost.index, lost.problems))
    params = str(ROOT / "params" / "recordings" / "dflash_r8.yaml")
    for arguments in (["run", params], ["report", str(tmp_path)]):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 1
        assert "problem: analysis: no space" in done.output
        assert f"report: not written ({lost.index} does not exist)" in done.output
        done = CliRunner().invoke(app, [*arguments, "--json"])
        assert done.exit_code == 1
        assert '"index": null' in done.output


def test_a_list_that_cannot_be_written_does_not_lose_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = Campaign(name="c", runs=(recording("dflash_r8"),), source=ROOT)
    monkeypatch.setattr(running, "run_point", _does_nothing)
    monkeypatch.setattr(report, "build", lambda *_, **__: (tmp_path / "index.html", ("page: lost",)))
    (tmp_path / "campaign.json.partial").symlink_to("/dev/full")
    told, page = batch.run_campaign(campaign, tmp_path).problems
    assert "campaign.json: not written: No space left on device" in told
    assert page == "page: lost"


# ── engines that cannot be used ──────────────────────────────────────────────────────────────────────────────────────


def gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """As many H200s on this machine."""
    card = Gpu(index=0, name="NVIDIA H200", total_bytes=143_771 * 2**20, free_bytes=143_152 * 2**20)
    monkeypatch.setattr(machine, "gpus", lambda: GpuState(gpus=(card,) * count, driver="580", reason=None))


def unusable(name: str, python: str = "/absent/python") -> RunConfig:
    changes = {"name": name, "engine.replay": None, "engine.python": python}
    return recording("nospec_r4").replace(changes)


def test_without_any_usable_engine_nothing_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 1)
    runs = (unusable("a"), unusable("b"), unusable("c", "/other/python"))
    told: list[Event] = []
    with pytest.raises(LaunchError) as raised:
        batch.run_campaign(Campaign(name="x", runs=runs, source=ROOT), tmp_path / "x", told.append)
    first, second = str(raised.value).splitlines()
    assert first.startswith("engine.python: /absent/python: FileNotFoundError")
    assert second.endswith("1 other engine cannot be used either.")
    assert told == []
    assert not (tmp_path / "x").exists()


def test_without_its_gpus_nothing_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The campaign of four GPUs on a machine with two: no engine is even asked."""
    gpus(monkeypatch, 2)
    told: list[Event] = []
    with pytest.raises(LaunchError) as raised:
        batch.run_campaign(load_campaign(ROOT / "params" / "h200-tp4.yaml"), tmp_path / "x", told.append)
    assert str(raised.value) == (
        "gpu.count: 4 × h200 needed, this machine has 2 (NVIDIA H200).\n"
        "Run it on a machine that has them, here with 2 (--set parallel.tp_size=2 --set gpu.count=2 --out FOLDER, one "
        "of its own), or play a recording (engine.replay); `specbench predict` needs no GPU."
    )
    assert told == []
    assert not (tmp_path / "x").exists()


def test_those_without_a_usable_engine_fail_together_before_the_first_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(monkeypatch, 1)
    runs = (unusable("a"), recording("0512_dflash_r8"), unusable("b"))
    told: list[Event] = []
    result = batch.run_campaign(Campaign(name="x", runs=runs, source=ROOT), tmp_path / "x", told.append)
    assert [(point.name, point.outcome) for point in result.points] == [
        ("a", "no_record"),
        ("0512_dflash_r8", "refused"),
        ("b", "no_record"),
    ]
    (notice,) = [event.phase for event in told if event.notice]
    assert notice.startswith("cannot be run: a, b: engine.python: /absent/python: FileNotFoundError")
    finished = [event.run for event in told if event.finished and event.run is not None]
    assert finished[:2] == ["a", "b"]
    assert not (tmp_path / "x" / "a" / RUN_NOTEBOOK).exists()
    page = (tmp_path / "x" / "index.html").read_text("utf-8")
    assert "/absent/python" in page
