"""Which run folders make up a campaign, and what it is about: `campaign.json` beside them.

A folder without it is taken whole, by name.

A configuration that runs again gets a new folder (`name.2`); the list then names the new one, the old stays on disk.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import RecordError

CAMPAIGN = "campaign.json"
_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    campaign: str
    runs: Mapping[str, str]  # name of the configuration -> name of its folder, in the campaign's order
    about: str = ""  # in its author's words


def read(root: Path) -> Listing | None:
    """The list of a folder; None when it has none. RecordError when it cannot be read."""
    path = root / CAMPAIGN
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text("utf-8"))
        schema, runs = int(data["schema"]), {str(run["name"]): str(run["folder"]) for run in data["runs"]}
        campaign, about = str(data["campaign"]), str(data.get("about", ""))
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path}: not readable ({error}).\nDelete it: the runs are then listed by name.") from None
    if schema > _SCHEMA:
        raise RecordError(f"{path}: schema {schema} was written by a later specbench.\nUpdate specbench to read it.")
    return Listing(campaign=campaign, runs=runs, about=about)


def remember(root: Path, campaign: str, runs: Iterable[tuple[str, Path]], *, about: str = "") -> None:
    """Add runs to the list. A configuration that ran again takes the place of its earlier run. RecordError:
    the list cannot be written.
    """
    known = read(root)
    folders = dict(known.runs) if known is not None else {}
    folders |= {name: folder.name for name, folder in runs}
    document = {
        "schema": _SCHEMA,
        "campaign": campaign,
        "about": about,
        "runs": [{"name": name, "folder": folder} for name, folder in folders.items()],
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


def run_folders(root: Path) -> tuple[Path, ...]:
    """The listed folders that exist, in the list's order; without a list every sub-folder, by name."""
    known = read(root)
    if known is None:
        return tuple(entry for entry in sorted(root.iterdir()) if entry.is_dir() and not entry.name.startswith("."))
    # A name with a separator would lead out of the folder; the list is a file like any other.
    inside = (root / folder for folder in known.runs.values() if Path(folder).name == folder)
    return tuple(folder for folder in inside if folder.is_dir())
