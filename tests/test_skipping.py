"""What is predicted to be refused is not started, stays as a row, and runs as soon as nobody skips it any more."""

from __future__ import annotations

import json
import re
import shutil
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from specbench.budget.grid import predict_grid
from specbench.campaign import batch, report
from specbench.campaign import runs as running
from specbench.campaign.outlook import outlook
from specbench.campaign.types import Choices
from specbench.cli import app
from specbench.configuration.config import RunConfig
from specbench.errors import RecordError
from specbench.params import Campaign, load_campaign, load_run
from specbench.records import listing
from specbench.show.campaign import campaign as front_page
from specbench.studies.study import collect
from specbench.terms import Verdict

from .test_resume import ran

ROOT = Path(__file__).parent.parent
REFUSED: frozenset[Verdict] = frozenset({"refused"})
CAPPED: frozenset[Verdict] = frozenset({"refused", "capped"})


def story(name: str, /, **changes: Any) -> RunConfig:
    """The story's card; 4 requests are served at 0.75, and nothing at 0.6."""
    run = load_run(ROOT / "params" / "story" / "tp1-4.yaml")
    return run.replace({"name": name} | {key.replace("__", "."): value for key, value in changes.items()})


SERVES, NOTHING = story("serves"), story("nothing", memory__mem_fraction_static=0.6)
CAP = story("cap", memory__max_running_requests=6)


def little(*runs: RunConfig) -> Campaign:
    return Campaign(name="little", runs=runs, source=ROOT)


def test_only_what_no_free_memory_can_help_is_skipped(tmp_path: Path) -> None:
    # where the least and the likely memory refuse and the most does not
    fractions = np.arange(0.6, 0.75, 0.0025).round(4).tolist()
    grid = predict_grid(SERVES, {"memory.mem_fraction_static": fractions})
    unsure = fractions[int(np.argmax(grid.verdict.are("refused") & ~grid.verdict_high.are("refused")))]
    likely = story("likely-refused", memory__mem_fraction_static=unsure)
    ahead = outlook(little(NOTHING, likely, CAP, SERVES), tmp_path, Choices(skip=REFUSED))
    assert [(one.config.name, one.state) for one in ahead.standings] == [
        ("nothing", "skipped"),
        ("likely-refused", "new"),
        ("cap", "new"),
        ("serves", "new"),
    ]
    assert list(ahead.skipped) == ["nothing"]
    assert ahead.skipped["nothing"].outcome == "not started: predicted refused"
    assert [cost.config.name for cost in ahead.bill.costs] == ["likely-refused", "cap", "serves"]
    capped = outlook(little(NOTHING, likely, CAP, SERVES), tmp_path, Choices(skip=CAPPED))
    assert {name: one.predicted for name, one in capped.skipped.items()} == {
        "nothing": "refused",
        "likely-refused": "capped",
        "cap": "capped",
    }
    assert outlook(little(NOTHING, SERVES), tmp_path).skipped == {}


def test_what_is_saved_is_a_start_and_what_is_beside_it_on_every_gpu(tmp_path: Path) -> None:
    """0.5.12 on one GPU: 48.8 s with kernels that the other start compiles, 116.1 s where it has to; 10 s beside."""
    two = story("two", memory__mem_fraction_static=0.3, gpu__count=2, parallel__tp_size=2)
    ahead = outlook(little(NOTHING, SERVES, two), tmp_path, Choices(skip=REFUSED))
    assert {name: one.saved_gpu_s for name, one in ahead.skipped.items()} == {
        "nothing": pytest.approx(48.8 + 10),
        "two": pytest.approx(2 * (113.0 + 10)),  # no other start on two GPUs
    }
    assert ahead.bill.saved_gpu_s == pytest.approx(58.8 + 246.0)
    assert ahead.bill.costs[0].start_s == pytest.approx(116.1)
    everything = outlook(little(NOTHING, SERVES, two), tmp_path)
    assert everything.bill.gpu_s - ahead.bill.gpu_s == pytest.approx(ahead.bill.saved_gpu_s)


def test_a_failure_that_is_there_stays_and_an_older_run_of_something_else_is_an_earlier_one(tmp_path: Path) -> None:
    failed, changed = story("failed", memory__mem_fraction_static=0.6), story("changed")
    for run, status in ((failed, "refused"), (changed, "served")):
        ran(tmp_path, run, status)  # type: ignore[arg-type]
    now = changed.replace({"memory.mem_fraction_static": 0.6})
    choices = Choices(resume=True, retry_failed=True, skip=REFUSED)
    ahead = outlook(little(failed, now), tmp_path, choices)
    assert [one.state for one in ahead.standings] == ["failed", "skipped"]
    assert ahead.standings[0].why == "failed: is predicted to be refused again: stays as it is"
    listing.plan(tmp_path, "little", {"failed": False, "changed": False}, skipped=ahead.skipped)
    known = listing.read(tmp_path)
    assert known is not None
    assert known.runs == {"failed": "failed"}
    assert (known.entry("changed").folder, known.entry("changed").earlier) == (None, ("changed",))
    assert known.skipped == ahead.skipped
    # the old record is no result of what is asked now: without --skip it runs
    later = outlook(little(failed, now), tmp_path, Choices(resume=True))
    assert [(one.state, one.to_run) for one in later.standings] == [("failed", False), ("new", True)]


def test_the_page_tells_what_was_not_started_and_counts_it_as_no_run(tmp_path: Path) -> None:
    ran(tmp_path, SERVES)
    skipped = listing.Skipped(
        predicted="refused",
        reason="<b>2</b> slots are too few.",
        what="0.5.12 · DFLASH · TP 1",
        asked_requests=8,
        saved_s=72.0,
        saved_gpu_s=144.0,
    )
    listing.plan(tmp_path, "little", {"serves": False, "nothing": False}, skipped={"nothing": skipped})
    shown = front_page(collect(tmp_path))
    text = re.sub(r"<[^>]+>", " ", shown.html)
    assert "1 configuration: 1 served" in text
    told = "1 more was not started, predicted to be refused with any memory that may be free: nothing."
    assert f"{told} About 2.4 GPU minutes saved." in text
    assert "&lt;b&gt;2&lt;/b&gt; slots are too few. About 2.4 GPU minutes saved." in shown.html
    assert "not complete" not in text
    assert [study.name for study in collect(tmp_path).studies] == ["serves"]


@pytest.mark.parametrize("said", [{"predicted": "refused"}, {"asked_requests": "8"}, ["refused"], 1])
def test_a_list_that_was_edited_is_refused(tmp_path: Path, said: Any) -> None:
    entry = {"name": "a", "folder": None, "skipped": said}
    (tmp_path / "campaign.json").write_text(json.dumps({"schema": 1, "campaign": "c", "runs": [entry]}))
    with pytest.raises(RecordError, match="not readable"):
        listing.read(tmp_path)


CAMPAIGN = """
campaign: little
points:
  - {params: ROOT/params/recordings/0512_dflash_r8.yaml, name: refused}
  - {params: ROOT/params/recordings/0512_dflash_r4_exact.yaml, name: started, engine.replay_speed: instant}
"""


def call(params: Path, out: Path, *options: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(app, ["run", str(params), "--out", str(out), "--json", *options])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    return done.exit_code, json.loads(done.stdout)


def test_a_dry_run_says_what_would_be_skipped() -> None:
    file = str(ROOT / "params" / "h200.yaml")
    done = CliRunner().invoke(app, ["run", file, "--dry-run", "--skip", "refused", "--json"])
    found = json.loads(done.stdout)
    assert (found["bill"]["starts"], found["bill"]["skipped"]) == (13, 1)
    assert found["bill"]["gpu_minutes_saved"] == pytest.approx((48.8 + 10) / 60, abs=0.01)
    (one,) = (run for run in found["runs"] if run["state"] == "skipped")
    assert (one["name"], one["expected"]) == ("story-8", "refused")
    assert one["why"].startswith("story-8: not started: predicted refused: 2 state slots are fewer than the 4")
    told = CliRunner().invoke(app, ["run", file, "--dry-run", "--skip", "refused"], env={"COLUMNS": "200"}).stdout
    assert told.startswith("h200: 13 configurations to run, 13 starts: ")
    assert "1 configuration is not started, by prediction: story-8. About 1.0 GPU minutes saved." in told


def test_a_dry_run_of_recordings_says_what_the_pages_take(tmp_path: Path) -> None:
    """19 replays of 2 s each, and pages: the sum of the runs is not the whole."""
    arguments = [
        "run",
        str(ROOT / "params" / "demo.yaml"),
        "--dry-run",
        "--skip",
        "refused",
        "--out",
        str(tmp_path / "x"),
    ]
    told = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"}).stdout
    first = told.splitlines()[0]
    assert first.startswith("demo: 19 configurations to run, no engine to start: about ")
    assert ", of which its pages about " in first


class Here(Executor):
    """Runs and pages in this process, one by one."""

    def submit(self, fn: Any, /, *args: Any, **_: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args))
        return done


def played(config: RunConfig, folder: Path, until_s: float | None = None) -> None:
    """What a replay leaves, without its kernel: the record that it plays."""
    assert config.engine.replay is not None
    shutil.copytree(ROOT / config.engine.replay, folder / "record")


def test_a_campaign_of_replays_starts_what_is_not_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "build", lambda root, *_, **__: (root / "index.html", ()))  # pages: the next test
    monkeypatch.setattr(running, "worker_pool", lambda jobs: Here())
    monkeypatch.setattr(running, "run_point", played)
    params, out = tmp_path / "little.yaml", tmp_path / "out"
    params.write_text(CAMPAIGN.replace("ROOT", str(ROOT)))
    code, found = call(params, out, "--skip", "refused")
    assert code == 0
    assert found["complete"]
    assert [(run["name"], run["outcome"], run["origin"]) for run in found["runs"]] == [
        ("started", "started", "recorded")
    ]
    (skipped,) = found["skipped"]
    assert (skipped["name"], skipped["outcome"], skipped["predicted"]) == ("refused", "not_started", "refused")
    assert skipped["gpu_minutes_saved"] == 0.0  # a replay holds no GPU
    assert not (out / "refused").exists()
    known = listing.read(out)
    assert known is not None
    assert (list(known.runs), list(known.skipped), known.waiting) == (["started"], ["refused"], ())
    # dropped, the same folder goes on with it; kept, nothing is left to do
    runs = load_campaign(params)
    assert [one.state for one in outlook(runs, out, Choices(resume=True)).standings] == ["new", "done"]
    assert outlook(runs, out, Choices(resume=True, skip=REFUSED)).to_run == ()


def test_a_campaign_of_which_nothing_is_started_has_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "worker_pool", lambda jobs: Here())
    arguments = [
        *("run", str(ROOT / "params" / "recordings" / "0512_dflash_r8.yaml"), "--skip", "refused"),
        *("--out", str(tmp_path / "out")),
    ]
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    assert re.search(r"0512_dflash_r8 +8 +- +- +not started: predicted refused", done.stdout)
    assert "2 state slots are fewer than the 4 of one request" in " ".join(done.stdout.split())
    page = re.sub(r"<[^>]+>", " ", (tmp_path / "out" / "index.html").read_text("utf-8"))
    assert "No configuration has run." in page
    assert "1 configuration was not started, predicted to be refused" in page
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"campaign.json", "index.html"}
    assert CliRunner().invoke(app, [*arguments, "--strict"]).exit_code == 1
