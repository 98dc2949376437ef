"""A campaign over several calls: what is done stays, what is not goes on, in a copy of the folder too."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from specbench.campaign.outlook import outlook
from specbench.campaign.resume import asked, identity, standings
from specbench.campaign.types import Choices
from specbench.configuration.config import RunConfig
from specbench.errors import ConfigError
from specbench.params import load_campaign, load_run
from specbench.records import listing
from specbench.records.types import RequestTrace, RunStatus
from specbench.records.writer import RecordWriter
from specbench.terms import Status

ROOT = Path(__file__).parent.parent


def config(name: str, /, **changes: Any) -> RunConfig:
    run = load_run(ROOT / "params" / "h200" / "0.5.16.yaml")
    return run.replace({"name": name} | {key.replace("__", "."): value for key, value in changes.items()})


def ran(root: Path, run: RunConfig, status: Status = "served", **more: Any) -> Path:
    """A run folder with a record, listed as a campaign lists it. The record has what its machine added."""
    folder = root / run.name
    folder.mkdir(parents=True)
    listing.begin(root, run.name, folder, asked(run))
    with RecordWriter(folder / "record") as writer:
        writer.config(run.replace({"engine.python": "/there/python", "engine.env": {**run.engine.env, "A": "there"}}))
        writer.command(["python"])
        writer.env({})
        writer.log_path.write_text("", encoding="utf-8")
        if status == "served":
            writer.requests(
                [
                    RequestTrace(
                        step="conc1",
                        phase="measured",
                        index=0,
                        input_tokens=1,
                        max_new_tokens=1,
                        sent_s=0.0,
                        chunks=((0.1, 1),),
                    )
                ]
            )
        writer.finish(RunStatus(status=status, origin="measured", reason="test", **more))
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "c"
    folder.mkdir()
    names = ("served", "refused", "crashed", "cut", "killed", "changed", "new")
    listing.plan(folder, "c", dict.fromkeys(names, True))
    ran(folder, config("served"))
    ran(folder, config("refused"), "refused")
    ran(folder, config("crashed"), "crashed")
    ran(folder, config("cut"), "timed_out", cut_short="deadline")
    ran(folder, config("changed", memory__max_running_requests=6))
    listing.begin(folder, "killed", folder / "killed", asked(config("killed")))
    (folder / "killed" / "record.partial-1").mkdir(parents=True)  # process 1 is alive, on any machine
    yield folder


CONFIGS = tuple(config(name) for name in ("served", "refused", "crashed", "cut", "killed", "changed", "new"))


def states(root: Path, **options: bool) -> dict[str, str]:
    return {standing.config.name: standing.state for standing in standings(CONFIGS, root, **options)}


def test_what_has_a_result_is_skipped_and_everything_else_runs(root: Path) -> None:
    assert states(root) == {
        "served": "done",
        "refused": "failed",
        "crashed": "failed",
        "cut": "cut short",
        "killed": "interrupted",
        "changed": "changed",
        "new": "new",
    }
    told = {standing.config.name: standing.why for standing in standings(CONFIGS, root)}
    assert told["changed"] == "changed: changed since it ran (memory.max_running_requests: 6, now 4): it runs anew"
    assert told["refused"] == "refused: refused, stays so"
    assert [standing.config.name for standing in standings(CONFIGS, root) if standing.to_run] == [
        *("cut", "killed", "changed", "new")
    ]


def test_a_copy_of_the_folder_stands_where_the_folder_stood(root: Path, tmp_path: Path) -> None:
    before = states(root)
    copy = tmp_path / "elsewhere" / "renamed"
    shutil.copytree(root, copy)
    shutil.rmtree(root)
    assert states(copy) == before
    assert str(tmp_path) not in (copy / listing.CAMPAIGN).read_text()


def test_failed_ones_run_again_when_that_is_asked_and_stay_to_be_retried(root: Path) -> None:
    assert [name for name, state in states(root, retry_failed=True).items() if state == "retried"] == [
        *("refused", "crashed")
    ]
    # a call that was told to retry lists them as waiting; its deadline came first: the next one needs no such word
    listing.plan(root, "c", {"refused": True, "crashed": True})
    ran_again = root / "refused.2"
    ran_again.mkdir()
    listing.begin(root, "refused", ran_again, asked(config("refused")))
    shutil.copytree(root / "refused" / "record", ran_again / "record")
    assert (states(root)["refused"], states(root)["crashed"]) == ("failed", "retried")
    known = listing.read(root)
    assert known is not None and known.entry("refused").earlier == ("refused",)


def test_where_things_lie_and_how_long_one_waits_change_nothing() -> None:
    here = config("a")
    there = here.replace(
        {
            "engine.python": "/there/python",
            "engine.model_paths": {"Qwen/Qwen3.6-27B": "/there"},
            "engine.port": 31000,
            "engine.host": "127.0.0.2",
            "engine.ready_timeout_s": 10.0,
        }
    )
    assert identity(here) == identity(there)
    assert "/there" not in json.dumps(asked(there))
    for key, value in (("engine.env", {"A": "1"}), ("workload.output_tokens", 65), ("gpu.emulate", None)):
        assert identity(here) != identity(here.replace({key: value})), key


def test_a_default_that_is_written_out_is_the_same_configuration(root: Path) -> None:
    stated = config("served", memory__disable_radix_cache=False)
    assert standings([stated], root)[0].state == "done"


def test_a_list_that_does_not_tell_what_was_asked_is_compared_with_the_record(root: Path) -> None:
    document = json.loads((root / listing.CAMPAIGN).read_text())
    document["runs"] = [{"name": run["name"], "folder": run["folder"]} for run in document["runs"]]
    (root / listing.CAMPAIGN).write_text(json.dumps(document))
    found = states(root)
    assert (found["served"], found["changed"], found["refused"]) == ("done", "changed", "failed")


def test_what_was_asked_and_cannot_be_read_runs_anew(root: Path) -> None:
    document = json.loads((root / listing.CAMPAIGN).read_text())
    document["runs"][0]["asked"] = {"name": "served"}
    (root / listing.CAMPAIGN).write_text(json.dumps(document))
    assert states(root)["served"] == "changed"


@pytest.mark.parametrize(
    ("file", "text"),
    [("status.json", "{"), ("requests.jsonl", "{}\n"), ("config.yaml", "name: 3"), ("env.json", "[]")],
)
def test_a_damaged_record_runs_again_and_the_others_stay_as_they_are(root: Path, file: str, text: str) -> None:
    before = states(root)
    (root / "served" / "record" / file).write_text(text)
    assert states(root) == before | {"served": "damaged"}
    why = next(standing.why for standing in standings(CONFIGS, root) if standing.config.name == "served")
    assert why.startswith("served: its record is damaged (")
    assert why.endswith("): it runs again")
    assert "\n" not in why


def test_a_folder_that_was_never_a_campaign_has_nothing_done(tmp_path: Path) -> None:
    assert {standing.state for standing in standings(CONFIGS, tmp_path)} == {"new"}


def test_a_start_that_lost_its_port_is_no_result(tmp_path: Path) -> None:
    ran(tmp_path, config("lost"), "crashed", cut_short="port")
    (found,) = standings([config("lost")], tmp_path)
    assert (found.state, found.to_run) == ("cut short", True)
    assert found.why == "lost: another process took its port while it started: it runs again"


def test_runs_on_other_gpus_go_into_a_folder_of_their_own(tmp_path: Path) -> None:
    """`--set gpu.count=2` on a campaign of four, in the folder of the four, or the other way round."""
    points = [{"name": name, "gpu.count": 4, "parallel.tp_size": 4} for name in ("a", "b", "c")]
    file = tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump({"campaign": "c", "base": config("x").stated(), "points": points}))
    four, root = load_campaign(file), tmp_path / "out"
    two = load_campaign(file, ["gpu.count=2", "parallel.tp_size=2"])
    root.mkdir()
    listing.plan(root, "c", dict.fromkeys("abc", True))
    outlook(two, root, Choices(resume=True))  # nothing ran there yet
    for run in four.runs[:2]:
        ran(root, run)
    for resume in (True, False):
        outlook(four, root, Choices(resume=resume))
        with pytest.raises(ConfigError) as raised:
            outlook(two, root, Choices(resume=resume))
        assert str(raised.value) == (
            f"{root}: holds runs of a and 1 other on other GPUs (gpu.count: 4, now 2; parallel.tp_size: 4, now 2).\n"
            "Give these a folder of their own (--out FOLDER), or ask for what ran there."
        )
    # one point of several that was corrected is told, and runs anew
    corrected = dataclasses.replace(four, runs=(two.runs[0], *four.runs[1:]))
    found = outlook(corrected, root, Choices(resume=True)).standings
    assert [standing.state for standing in found] == ["changed", "done", "new"]
