"""A campaign over several calls, with real processes: a deadline, a killed command, a copied folder, a retry."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from specbench.campaign import batch, report
from specbench.campaign.outlook import outlook
from specbench.campaign.runs import Runs
from specbench.campaign.types import Choices
from specbench.cli import app
from specbench.params import Campaign, load_run
from specbench.records import listing
from specbench.records.record import RunRecord

from .test_batch import alive, lines, until

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow

#: Points of which the last would take hours at its own pace; the pace decides no result.
CAMPAIGN = """
campaign: little
points:
  - {params: ROOT/params/recordings/0512_dflash_r8.yaml, name: refused, engine.replay_speed: instant}
  - {params: ROOT/params/recordings/dflash_r8.yaml, name: slow, engine.replay_speed: 0.001}
"""
INSTANT = ("--set", "engine.replay_speed=instant")


@pytest.fixture
def params(tmp_path: Path) -> Path:
    file = tmp_path / "little.yaml"
    file.write_text(CAMPAIGN.replace("ROOT", str(ROOT)))
    return file


@pytest.fixture
def without_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pages are not what is looked at: each takes seconds. (Of what comes first, and in time: below.)"""
    monkeypatch.setattr(report, "build", lambda root, *_, **__: (root / report.INDEX, ()))


def call(params: Path, out: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    done = CliRunner().invoke(app, ["run", str(params), "--out", str(out), "--json", *options])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    return done.exit_code, json.loads(done.stdout), done.stderr


def test_a_deadline_leaves_what_does_not_fit_and_a_copy_of_the_folder_goes_on(
    params: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    code, first, _ = call(params, tmp_path / "here", "--deadline", "3600")
    assert code == 3
    assert [(run["name"], run["outcome"]) for run in first["runs"]] == [("refused", "refused")]
    assert list(first["left"]) == ["slow"]
    assert re.fullmatch(r"needs about [\d]{5} s, \d{4} s were left for it", first["left"]["slow"])
    # with 3600 s no call would ever come to it
    again = re.fullmatch(
        rf"specbench run {params} --out {tmp_path / 'here'} --deadline (\d+) --resume --json", first["go_on"]
    )
    assert again is not None and 8_000 < int(again[1]) < 99_000
    page = re.sub(r"<[^>]+>", " ", (tmp_path / "here" / "index.html").read_text("utf-8"))
    assert "This campaign is not complete. 1 configuration still to run: slow." in page

    there = tmp_path / "there"
    shutil.copytree(tmp_path / "here", there)
    shutil.rmtree(tmp_path / "here")
    record = RunRecord.open(there / "refused").sha256()
    code, second, _ = call(params, there, "--resume", "--deadline", "3600", *INSTANT)
    assert code == 0
    assert [(run["name"], run["outcome"], run["folder"]) for run in second["runs"]] == [
        ("refused", "refused", str(there / "refused")),
        ("slow", "capped", str(there / "slow")),
    ]
    assert (second["left"], second["go_on"], second["complete"]) == ({}, None, True)
    assert RunRecord.open(there / "refused").sha256() == record
    page = re.sub(r"<[^>]+>", " ", (there / "index.html").read_text("utf-8"))
    assert "not complete" not in page
    assert "2 configurations: " in page

    # a failure is a result: it is repeated when that is asked for, and the old record stays
    request.getfixturevalue("without_pages")
    code, third, _ = call(params, there, "--resume", "--retry", "failed", *INSTANT)
    assert code == 0
    assert [(run["name"], Path(run["folder"]).name) for run in third["runs"]] == [
        ("refused", "refused.2"),
        ("slow", "slow"),
    ]
    assert RunRecord.open(there / "refused").sha256() == record
    known = listing.read(there)
    assert known is not None and known.entry("refused").earlier == ("refused",)


@pytest.mark.usefixtures("without_pages")
def test_a_command_that_was_killed_goes_on(params: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["run", str(params), "--out", str(out)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(
        [sys.executable, "-m", "specbench", *arguments], start_new_session=True, cwd=ROOT, **quiet
    ) as process:
        tree: dict[int, psutil.Process] = {}
        came = until(lambda: any("records/dflash_r8 " in line for line in lines(process.pid, tree)), 300)
        process.send_signal(signal.SIGKILL)
        assert came
        assert until(lambda: not any(alive(one) for one in tree.values()), 120)
    code, data, _ = call(params, out, "--resume", *INSTANT)
    assert code == 0
    assert {run["name"]: run["outcome"] for run in data["runs"]} == {
        "refused": "refused",
        "slow": "capped",
    }
    known = listing.read(out)
    assert known is not None
    assert (known.entry("slow").folder, known.entry("slow").earlier, known.waiting) == ("slow.2", ("slow",), ())


@pytest.mark.usefixtures("without_pages")
def test_a_run_that_takes_longer_than_expected_is_ended_and_keeps_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_run(ROOT / "params" / "recordings" / "dflash_r8.yaml", ["engine.replay_speed=0.01"])
    monkeypatch.setattr(Runs, "_needs_s", lambda *_: 0.0)
    campaign = Campaign(name="c", runs=(config,), source=ROOT)
    result = batch.run_campaign(campaign, tmp_path, choices=Choices(deadline_s=90.0, resume=True))
    assert [(point.status, point.outcome) for point in result.points] == [("timed_out", "timed_out")]
    assert result.left["dflash_r8"].startswith("ended by the deadline of its campaign")
    assert not result.complete
    assert RunRecord.open(tmp_path / "dflash_r8").status.cut_short == "deadline"
    ahead = outlook(campaign, tmp_path, Choices(resume=True))
    assert [(standing.state, standing.to_run) for standing in ahead.standings] == [("cut short", True)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--retry", "failed"], "only what is resumed can be retried: add --resume"),
        (["--deadline", "0"], "0 is no number of seconds to be done in"),
        (["--deadline", "nan"], "nan is no number of seconds"),
        (["--resume", "--retry", "served"], "'served' is not"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    params: Path, tmp_path: Path, options: list[str], expected: str
) -> None:
    done = CliRunner().invoke(
        app, ["run", str(params), "--out", str(tmp_path / "out"), *options], env={"COLUMNS": "200"}
    )
    assert done.exit_code == 2
    assert expected in " ".join(re.sub(r"[│╭╮╰╯─]", " ", done.stderr).split())
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("without_pages")
def test_a_deadline_in_which_nothing_can_start_is_told(params: Path, tmp_path: Path) -> None:
    code, data, _ = call(params, tmp_path / "out", "--deadline", "5")
    assert code == 3
    assert (data["runs"], data["index"]) == ([], None)
    assert list(data["left"]) == ["refused", "slow"]
    known = listing.read(tmp_path / "out")
    assert known is not None and known.waiting == ("refused", "slow")
    # the command that goes on has a deadline in which one of them can run
    deadline = int(data["go_on"].split("--deadline ")[1].split()[0])
    assert 25 < deadline < 200
    code, data, _ = call(params, tmp_path / "out", "--resume", "--deadline", str(deadline))
    assert code == 3
    known = listing.read(tmp_path / "out")
    assert known is not None and known.entry("refused").folder == "refused"


def test_no_page_is_begun_that_would_come_too_late(tmp_path: Path) -> None:
    class Pool(Executor):
        def __init__(self) -> None:
            self.begun: list[str] = []

        def submit(self, fn: Any, /, *args: Any, **_: Any) -> Future[Any]:
            self.begun.append(args[0].name)
            done: Future[Any] = Future()
            done.set_result(None)
            return done

    for name in ("a", "b"):
        shutil.copytree(ROOT / "tests" / "records" / "0512_dflash_r8", tmp_path / "runs" / name / "record")
    late, early = Pool(), Pool()
    limit = report.Limit(until_s=time.monotonic() + 60, page_s=3600, jobs=2)
    _, problems = report.build(tmp_path / "runs", late, limit=limit)
    assert late.begun == ["runs"]
    assert problems == tuple(f"diagnosis of {name}: not written: the deadline came first" for name in "ab")
    limit = report.Limit(until_s=time.monotonic() + 3600, page_s=1, jobs=2)
    assert report.build(tmp_path / "runs", early, limit=limit, first={tmp_path / "runs" / "b"})[1] == ()
    assert early.begun == ["runs", "b", "a"]
