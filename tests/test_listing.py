"""Which folders make up a campaign, and the progress that a run reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specbench.errors import RecordError
from specbench.records import listing
from specbench.workbook import progress


def folder(root: Path, name: str) -> Path:
    (root / name).mkdir()
    return root / name


def test_without_a_list_every_folder_counts_by_name(tmp_path: Path) -> None:
    folder(tmp_path, "b"), folder(tmp_path, "a"), folder(tmp_path, ".hidden")
    (tmp_path / "file").write_text("x")
    assert [found.name for found in listing.run_folders(tmp_path)] == ["a", "b"]
    assert listing.read(tmp_path) is None


def test_a_configuration_that_ran_again_takes_the_place_of_its_earlier_run(tmp_path: Path) -> None:
    listing.plan(tmp_path, "demo", {"z": True, "a": True})
    listing.begin(tmp_path, "z", folder(tmp_path, "z"), {"name": "z"})
    listing.begin(tmp_path, "a", folder(tmp_path, "a"), {"name": "a"})
    listing.plan(tmp_path, "demo", {"z": True, "a": False})
    known = listing.read(tmp_path)
    assert known is not None and known.waiting == ("z",)
    assert [found.name for found in listing.run_folders(tmp_path)] == ["z", "a"]  # until it starts again
    listing.begin(tmp_path, "z", folder(tmp_path, "z.2"), {"name": "z", "model": "m"})
    assert [found.name for found in listing.run_folders(tmp_path)] == ["z.2", "a"]
    assert (tmp_path / "z").is_dir()
    known = listing.read(tmp_path)
    assert known is not None
    assert known.entry("z") == listing.Listed(
        name="z", folder="z.2", waiting=False, asked={"name": "z", "model": "m"}, earlier=("z",)
    )
    assert (known.waiting, known.entry("unheard of").folder) == ((), None)


def test_what_has_not_run_keeps_its_place_in_the_campaign(tmp_path: Path) -> None:
    listing.plan(tmp_path, "c", {"a": True, "b": True, "c": True}, about="Words.")
    listing.begin(tmp_path, "c", folder(tmp_path, "c"), {})
    listing.begin(tmp_path, "a", folder(tmp_path, "a"), {})
    known = listing.read(tmp_path)
    assert known is not None
    assert [entry.name for entry in known.entries] == ["a", "b", "c"]
    assert (known.runs, known.waiting, known.about) == ({"a": "a", "c": "c"}, ("b",), "Words.")
    assert [found.name for found in listing.run_folders(tmp_path)] == ["a", "c"]


def test_a_list_of_an_earlier_specbench_is_read(tmp_path: Path) -> None:
    document = {"schema": 1, "campaign": "x", "runs": [{"name": "a", "folder": "a.2"}]}
    (tmp_path / listing.CAMPAIGN).write_text(json.dumps(document))
    known = listing.read(tmp_path)
    assert known is not None
    assert known.entries == (listing.Listed(name="a", folder="a.2"),)


def test_a_list_keeps_what_the_campaign_is_about(tmp_path: Path) -> None:
    listing.plan(tmp_path, "demo", {"a": True}, about="Words <b>.\n\nMore.")
    listing.begin(tmp_path, "a", folder(tmp_path, "a"), {})
    known = listing.read(tmp_path)
    assert known is not None
    assert known.about == "Words <b>.\n\nMore."
    # lists that were written before there were such words
    document = {"schema": 1, "campaign": "demo", "runs": []}
    (tmp_path / listing.CAMPAIGN).write_text(json.dumps(document))
    known = listing.read(tmp_path)
    assert known is not None
    assert known.about == ""


def test_a_list_that_does_not_fit_the_disk_leaves_the_old_one(tmp_path: Path) -> None:
    listing.plan(tmp_path, "c", {"a": False})
    (tmp_path / "campaign.json.partial").symlink_to("/dev/full")
    with pytest.raises(RecordError, match=r"campaign\.json: not written: No space left on device\.\n"):
        listing.begin(tmp_path, "b", tmp_path / "b", {})
    assert [entry.name for entry in tmp_path.iterdir()] == ["campaign.json"]
    found = listing.read(tmp_path)
    assert found is not None and [entry.name for entry in found.entries] == ["a"]


@pytest.mark.parametrize("name", ["../outside", "", ".", "..", "a/b", "a\\b", "/", "a\0", "x" * 256])
@pytest.mark.parametrize("key", ["folder", "earlier"])
def test_a_list_cannot_lead_out_of_its_folder(tmp_path: Path, name: str, key: str) -> None:
    root = folder(tmp_path, "root")
    folder(tmp_path, "outside")
    run = {"name": "a", "folder": name} if key == "folder" else {"name": "a", "folder": "a", "earlier": [name]}
    (root / listing.CAMPAIGN).write_text(json.dumps({"schema": 1, "campaign": "x", "runs": [run]}))
    with pytest.raises(RecordError, match="is no name of a run's folder"):
        listing.run_folders(root)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "not readable"),
        ('{"schema": 1}', "not readable"),
        ('{"schema": 1, "campaign": "x", "runs": ["a"]}', "not readable"),
        ('{"schema": 1, "campaign": "x", "runs": [{"name": "a", "folder": "a", "asked": 3}]}', "holds no sections"),
        ('{"schema": 2, "campaign": "x", "runs": []}', "later specbench"),
    ],
)
def test_a_list_that_cannot_be_read_says_so(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / listing.CAMPAIGN).write_text(text)
    with pytest.raises(RecordError, match=expected):
        listing.read(tmp_path)


def test_progress_is_read_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    assert progress.latest(path) is None
    report = progress.to_file(path)
    report("start", 3, 900)
    report("conc8-in1024", 2, 8)
    with path.open("a") as half:
        half.write('{"phase": "conc')
    assert str(progress.latest(path)) == "conc8-in1024 2/8"


def test_progress_that_cannot_be_written_does_not_stop_a_run(tmp_path: Path) -> None:
    progress.to_file(tmp_path / "missing" / "progress.jsonl")("start", 0, None)
    assert not (tmp_path / "missing").exists()


def test_the_batch_tells_the_kernel_where_to_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(progress.VARIABLE, str(tmp_path / "p"))
    progress.reporter()("ready", 1, None)
    assert str(progress.latest(tmp_path / "p")) == "ready"
