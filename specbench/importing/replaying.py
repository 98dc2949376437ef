"""A params file that plays a record. In: a record that is kept. Out: its configuration as text, as short as it can be.

The non-obvious thing: what says where things lay on the machine that recorded it, and what is the default anyway, is
left out. So the file also starts the real engine, on any machine, when its `engine.replay` is taken out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from ..configuration.config import RunConfig
from ..engines.sglang.logs import read as read_log
from ..errors import RecordError
from ..gpus import load_gpu
from ..paths import workbook_root
from ..reading.pools import report
from ..records.record import RunRecord
from ..running.recorded import without_places
from ..units import counted

#: Of the engine's section: where it lay, how it was reached, how long it was waited for.
_PLACES = ("python", "model_paths", "host", "port", "ready_timeout_s", "attach", "attach_log", "api_key_env")
#: Said even where it is the default: without it the file would not say what was recorded.
_ALWAYS = ("engine.enable_metrics", "gpu.count", "workload.input_tokens")
_ENDS = {"served": "served", "refused": "refused to start", "crashed": "crashed"}


class _Dumper(yaml.SafeDumper):
    """Lists in a line."""


_Dumper.add_representer(
    list, lambda dumper, data: dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True)
)


def make_room(names: Iterable[str], folder: Path) -> None:
    """Before anything is imported. RecordError: the folder cannot be made, or one of the files is there already."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(
            f"{folder}: params files cannot be written there: {error.strerror}.\nName another folder (--replays)."
        ) from None
    for file in (_file(folder, name) for name in names):
        if os.path.lexists(file):  # a link that leads nowhere would be written through
            raise RecordError(f"{file}: is there already.\nMove it away, or name another folder (--replays).")


def write_replays(records: Iterable[RunRecord], folder: Path) -> None:
    """`<folder>/<name>.yaml` for each, in a folder that is there."""
    for record in records:
        _file(folder, record.name).write_text(replay_text(record), encoding="utf-8")


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.yaml"


def replay_text(record: RunRecord) -> str:
    """The params file, with what was recorded in a comment."""
    sections = _short(record.config)
    engine = sections.pop("engine")
    first = {key: engine.pop(key) for key in ("name", "version", "sizing") if key in engine}
    played = {"replay": _from_the_workbook(record.folder), "replay_speed": "instant"}
    whole = {"name": record.name, "engine": first | played | engine} | {
        section: values for section, values in sections.items() if section != "name"
    }
    body = yaml.dump(whole, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)
    return f"# Recorded: {_said(record)}\n# Without engine.replay this file starts the real engine.\n{body}"


def _from_the_workbook(folder: Path) -> str:
    """As short as it is found from there; a folder elsewhere by its whole path."""
    whole, root = folder.resolve(), workbook_root().resolve()
    return (whole.relative_to(root) if whole.is_relative_to(root) else whole).as_posix()


def _short(config: RunConfig) -> dict[str, Any]:
    """Without defaults and places."""
    plain = RunConfig.model_validate(
        {"name": "x", "engine": {"version": config.engine.version}, "model": "x", "gpu": {"name": "x"}}
    ).to_sections()
    found: dict[str, Any] = {}
    for section, values in config.to_sections().items():
        if not isinstance(values, Mapping):
            found[section] = values
            continue
        own = {
            key: value
            for key, value in values.items()
            if (value != plain[section][key] or f"{section}.{key}" in _ALWAYS or key in ("name", "version"))
            and not (section == "engine" and key in _PLACES)
        }
        if section == "engine" and "env" in own:
            own["env"] = without_places(own["env"])
        if own:
            found[section] = own
    return found


def _said(record: RunRecord) -> str:
    """'SGLang 0.5.12, Qwen3.6-27B, DFLASH, 8 requests asked, 2 × h200, with the memory budget of …. It served.'"""
    config = record.config
    algorithm = config.speculative.algorithm
    asked = config.memory.max_running_requests
    parts = [
        f"SGLang {config.engine.version}",
        config.model.rpartition("/")[2],
        "no speculation" if algorithm == "none" else algorithm,
        "no number of requests asked" if asked is None else f"{counted(asked, 'request')} asked",
        f"{config.gpu.count} × {config.gpu.name}",
    ]
    if config.gpu.emulate is not None:
        each = " on each" if config.gpu.count > 1 else ""
        card = load_gpu(config.gpu.emulate).words
        # as their names are spoken: an H200, an RTX, but a B200
        article = "a" if card[0] in "BCDGJKPQTUVWYZ" else "an"
        parts.append(f"with the memory budget of {article} {card}{each}")
    return f"{', '.join(parts)}. It {_ended(record, asked)}."


def _ended(record: RunRecord, asked: int | None) -> str:
    status = record.status.status
    if status == "served" and asked is not None:
        log = read_log(record.log_path, name=record.log_path.name, version=record.config.engine.version)
        running = report(log).running_requests
        if running is not None and running < asked:
            return f"runs {running} at most"
    return _ENDS.get(status, f"ended otherwise: {status}")
