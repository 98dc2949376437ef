"""Which configurations make up a campaign, and how far it is: `campaign.json` beside its run folders.

It names every configuration of the campaign in its order, the folder of its newest run, what was asked of that run, and
which have not run yet. A folder without such a file is taken whole, by name. There is no path in it and nothing of the
machine, so that a folder which was copied elsewhere is the same campaign.

A configuration that runs again gets a new folder (`name.2`); the list then names the new one, the old stays on disk and
is listed as an earlier run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import RecordError

CAMPAIGN = "campaign.json"
_SCHEMA = 1
_LONGEST_NAME_BYTES = 255  # of a file system


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Why a configuration was not started, as it was predicted: nothing here was recorded or measured."""

    predicted: str  # refused or capped, with all free memory that is possible
    reason: str  # in a sentence
    what: str  # version, algorithm and ranks, in words
    asked_requests: int | None  # None: not given
    saved_s: float  # what running it would have taken, expected
    saved_gpu_s: float  # the same for every GPU that it would have held; 0: none

    @property
    def outcome(self) -> str:
        return not_started(self.predicted)

    @property
    def why(self) -> str:
        """The reason, with what is saved where a GPU would have been held."""
        return f"{self.reason} {saved(self.saved_gpu_s)}".strip()


def not_started(predicted: str) -> str:
    """The outcome of what is skipped, in words."""
    return f"not started: predicted {predicted}"


def saved(gpu_s: float) -> str:
    """'About 2.4 GPU minutes saved.'; "": no GPU would have been held."""
    return f"About {gpu_s / 60:.1f} GPU minutes saved." if gpu_s else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One configuration of a campaign."""

    name: str
    folder: str | None = None  # name of the folder of its newest run; None: it has not run
    waiting: bool = False  # it is still to run (again) before the campaign is complete
    asked: Mapping[str, Any] | None = None  # sections that its newest run was asked for; None: not recorded
    earlier: tuple[str, ...] = ()  # folders of earlier runs, oldest first
    skipped: Skipped | None = None  # not to be started by the last call; None: it was to be, or is done


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    campaign: str
    entries: tuple[Listed, ...]  # in the campaign's order
    about: str = ""  # in its author's words

    @property
    def runs(self) -> dict[str, str]:
        """Name of the configuration -> name of its folder, of those that have run."""
        return {entry.name: entry.folder for entry in self.entries if entry.folder is not None}

    @property
    def skipped(self) -> dict[str, Skipped]:
        """Name of the configuration -> why it was not started."""
        return {entry.name: entry.skipped for entry in self.entries if entry.skipped is not None}

    @property
    def waiting(self) -> tuple[str, ...]:
        """Configurations that are still to run."""
        return tuple(entry.name for entry in self.entries if entry.waiting)

    def entry(self, name: str) -> Listed:
        """What is known of a configuration: nothing, of one that is not listed."""
        return next((entry for entry in self.entries if entry.name == name), Listed(name=name))


def read(root: Path) -> Listing | None:
    """The list of a folder; None when it has none. RecordError when it cannot be read."""
    path = root / CAMPAIGN
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text("utf-8"))
        schema, entries = int(data["schema"]), tuple(_entry(run) for run in data["runs"])
        campaign, about = str(data["campaign"]), str(data.get("about", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RecordError(f"{path}: not readable ({error}).\nDelete it: the runs are then listed by name.") from None
    if schema > _SCHEMA:
        raise RecordError(f"{path}: schema {schema} was written by a later specbench.\nUpdate specbench to read it.")
    return Listing(campaign=campaign, entries=entries, about=about)


def plan(
    root: Path,
    campaign: str,
    to_run: Mapping[str, bool],
    *,
    skipped: Mapping[str, Skipped] | None = None,
    about: str = "",
) -> None:
    """The configurations of a campaign in its order, and whether each is still to run. Those that are listed beside
    them stay, and so does the newest run of each until it starts again; of one that is skipped it is an earlier run.
    RecordError: not written.
    """
    known = read(root)
    entries = {entry.name: entry for entry in known.entries} if known is not None else {}
    for name, waiting in to_run.items():
        entry = entries.get(name, Listed(name=name))
        skip = (skipped or {}).get(name)
        if skip is not None and entry.folder is not None:  # of another configuration, or without a result
            entry = dataclasses.replace(entry, folder=None, asked=None, earlier=(*entry.earlier, entry.folder))
        entries[name] = dataclasses.replace(entry, waiting=waiting, skipped=skip)
    _write(root, Listing(campaign=campaign, entries=tuple(entries.values()), about=about))


def begin(root: Path, name: str, folder: Path, asked: Mapping[str, Any]) -> None:
    """A configuration starts to run in `folder`, which takes the place of its earlier run. RecordError: not written."""
    known = read(root) or Listing(campaign=root.name, entries=())
    before = known.entry(name)
    earlier = before.earlier if before.folder in (None, folder.name) else (*before.earlier, str(before.folder))
    new = Listed(name=name, folder=folder.name, asked=asked, earlier=earlier)
    entries = tuple(new if entry.name == name else entry for entry in known.entries)
    _write(root, dataclasses.replace(known, entries=entries if new in entries else (*entries, new)))


def run_folders(root: Path) -> tuple[Path, ...]:
    """The listed folders that exist, in the list's order; without a list every sub-folder, by name."""
    known = read(root)
    if known is None:
        return every_folder(root)
    return tuple(folder for name in known.runs.values() if (folder := folder_in(root, name)) is not None)


def every_folder(root: Path) -> tuple[Path, ...]:
    """Every sub-folder, by name: whatever the list says, so with the earlier runs of each configuration."""
    return tuple(entry for entry in sorted(root.iterdir()) if entry.is_dir() and not entry.name.startswith("."))


def folder_in(root: Path, name: str) -> Path | None:
    """A listed folder, if it is there."""
    return root / name if (root / name).is_dir() else None


def _entry(run: Mapping[str, Any]) -> Listed:
    folder, asked = run["folder"], run.get("asked")
    if asked is not None and not isinstance(asked, dict):
        raise ValueError("'asked' holds no sections")
    return Listed(
        name=str(run["name"]),
        folder=None if folder is None else _folder_name(folder),
        waiting=run.get("waiting", folder is None) is True,
        asked=asked,
        earlier=tuple(_folder_name(name) for name in run.get("earlier", ())),
        skipped=_skipped(run.get("skipped")),
    )


def _skipped(said: Any) -> Skipped | None:
    """ValueError, KeyError or TypeError: not as it is written here."""
    if said is None:
        return None
    asked = said["asked_requests"]
    if asked is not None and type(asked) is not int:
        raise ValueError("'asked_requests' is no number")
    texts = {name: said[name] for name in ("predicted", "reason", "what")}
    if not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("'skipped' holds no text")
    return Skipped(
        **texts,
        asked_requests=asked,
        saved_s=float(said["saved_s"]),
        saved_gpu_s=float(said["saved_gpu_s"]),
    )


def _folder_name(said: object) -> str:
    """One that stays in the campaign's folder: the list is a file like any other, and may have been edited."""
    name = str(said)
    leads_out = name in ("", ".", "..") or any(char in name for char in "/\\\0")
    if leads_out or len(name.encode("utf-8", "surrogatepass")) > _LONGEST_NAME_BYTES:
        raise ValueError(f"{name[:60]!r} is no name of a run's folder")
    return name


def _write(root: Path, listing: Listing) -> None:
    document = {
        "schema": _SCHEMA,
        "campaign": listing.campaign,
        "about": listing.about,
        "runs": [dataclasses.asdict(entry) for entry in listing.entries],
    }
    partial = root / f"{CAMPAIGN}.partial"
    try:
        partial.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        partial.replace(root / CAMPAIGN)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise RecordError(
            f"{root / CAMPAIGN}: not written: {error.strerror}.\n"
            "Without it the pages show every run of the folder, in the order of their names."
        ) from None
