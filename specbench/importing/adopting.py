"""Records of specbench from another machine -> records to keep, without the names of that machine's folders.

In: run folders (`runs/NAME`), and texts to replace. Out: the same records, in which every file reads the new text. The
non-obvious thing: what was derived from the replaced text is derived again (hashes of the command and of the
configuration, where the lines of the log begin); the hashes of the source stay in env.json, and a note says what was
done. What is known to be wrong in env.json is put right, and what was said there stays beside it. A kept record is no
longer measured just now, so its figures are called recorded.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from ..configuration.config import RunConfig, RunName
from ..errors import RecordError
from ..logclean import on_one_line
from ..records.folders import has_record
from ..records.listing import run_folders
from ..records.record import RunRecord
from ..records.types import LogArrival, RunStatus
from ..records.writer import RecordWriter, sha256_bytes, sha256_text

#: Written anew, not copied.
_MADE = ("config.yaml", "command.json", "env.json", "log_times.csv.gz", "status.json")
_NAME: TypeAdapter[str] = TypeAdapter(RunName)
_SPOILT = "{}: {} is none any more with what --rename puts into it.\nReplace longer texts, such as whole folders."
#: Tables larger than this are stored compressed where a record may have them so.
_COMPRESS_FROM = 8_000
_COMPRESSIBLE = ("gpu.csv", "requests.jsonl", "metrics.txt")


def adopt_all(
    source: Path,
    out: Path,
    *,
    prefix: str = "",
    renamed: Mapping[str, str] | None = None,
    reworded: Mapping[str, str] | None = None,
    corrected: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[RunRecord]:
    """Every record of `source`, as `<out>/<prefix><name>`. RecordError when there is none, or one is there already.

    `reworded`: notes; `corrected`: name of a record -> places in its env.json and what belongs there (see `Facts`).
    """
    folders = record_folders(source)
    if not folders:
        raise RecordError(f"{source}: no record of specbench in it.\nExpected a run folder, or a folder of them.")
    found = [RunRecord.open(folder) for folder in folders]
    kept = kept_names(found, prefix)
    out.mkdir(parents=True, exist_ok=True)
    names = _Names(renamed or {})
    records = []
    for record, name in zip(found, kept, strict=True):
        right = (corrected or {}).get(record.name, {})
        records.append(_adopt(record, out / name, names, reworded or {}, right))
    return records


def kept_names(records: Iterable[RunRecord], prefix: str) -> list[str]:
    """What they are to be called. RecordError: one cannot be a record's (it may not lead out of the folder either), or
    two are the same."""
    names = [f"{prefix}{record.name}" for record in records]
    for name in names:
        try:
            _NAME.validate_python(name)
        except ValidationError:
            raise RecordError(
                f"--prefix: {name!r:.160} cannot be a record's name.\n"
                "Expected letters, digits and . _ + = - only, a letter or digit first."
            ) from None
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise RecordError(f"{twice}: two records are called so.\nImport one of them with a --prefix of its own.")
    return names


def record_folders(source: Path) -> list[Path]:
    """The records of specbench in `source`: itself, or those of its runs."""
    if has_record(source):
        return [source]
    return [folder for folder in run_folders(source) if has_record(folder)] if source.is_dir() else []


class _Names:
    """Texts to replace, the longest first, so that one name may begin with another."""

    def __init__(self, renamed: Mapping[str, str]) -> None:
        self._pairs = sorted(renamed.items(), key=lambda pair: -len(pair[0]))
        self.new = tuple(dict.fromkeys(renamed.values()))

    def bytes(self, data: bytes) -> bytes:
        for old, new in self._pairs:
            data = data.replace(old.encode(), new.encode())
        return data

    def text(self, text: str) -> str:
        return self.bytes(text.encode()).decode()


def _adopt(
    record: RunRecord, target: Path, names: _Names, reworded: Mapping[str, str], corrected: Mapping[str, Any]
) -> RunRecord:
    log = record.log_bytes()
    argv = [names.text(word) for word in record.command()]
    config = _config(record, target.name, names)
    with RecordWriter(target) as writer:
        writer.log_path.write_bytes(names.bytes(log))
        writer.config(config)
        writer.command(argv)
        writer.env(_correct(_env(record, config, argv, log, names), corrected, record.name))
        arrivals = record.log_arrivals()
        if arrivals:
            writer.log_arrivals(_moved(arrivals, log, names))
        for file in sorted(record.folder.iterdir()):
            name = file.name.removesuffix(".gz")
            if name == "server.log" or file.name in _MADE:
                continue
            content = names.text(_content(file))
            large = name in _COMPRESSIBLE and len(content) >= _COMPRESS_FROM
            writer.text(name, content, compress=large or file.suffix == ".gz")
        return writer.finish(_status(record.name, record.status, names, reworded))


def _config(record: RunRecord, name: str, names: _Names) -> RunConfig:
    """RecordError: with other names it is none any more."""
    written = names.text((record.folder / "config.yaml").read_text(encoding="utf-8"))
    try:
        return RunConfig.model_validate({**yaml.safe_load(written), "name": name})
    except (ValidationError, yaml.YAMLError, TypeError):
        raise RecordError(_SPOILT.format(record.name, "config.yaml")) from None


def _content(file: Path) -> str:
    """Its text, unpacked. RecordError: it is no text, or no file of its own; a link may lead anywhere."""
    if file.is_symlink() or not file.is_file():
        raise RecordError(f"{file}: a link or a folder, which no record has.\nTake it out of the record.")
    try:
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        return data.decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise RecordError(f"{file}: cannot be read: {on_one_line(str(error))}.\nThe record is damaged.") from None


def _env(record: RunRecord, config: RunConfig, argv: list[str], log: bytes, names: _Names) -> dict[str, Any]:
    try:
        env: dict[str, Any] = json.loads(names.text((record.folder / "env.json").read_text(encoding="utf-8")))
        del env["schema"]
    except (ValueError, KeyError, TypeError):
        raise RecordError(_SPOILT.format(record.name, "env.json")) from None
    hashes = env.get("inputs_sha256")
    env["argv_sha256"] = sha256_text("\0".join(argv))
    env["inputs_sha256"] = (hashes if isinstance(hashes, dict) else {}) | {
        "params": sha256_text(config.model_dump_json())
    }
    env["imported"] = {
        "from": record.name,
        "server_log_sha256": sha256_bytes(names.bytes(log)),
        "put_in_place_of_its_own": list(names.new),
        "source_sha256": {
            "record": record.sha256(),
            "server_log": sha256_bytes(log),
            "argv": record.env.get("argv_sha256"),
        },
    }
    return env


def _correct(env: dict[str, Any], corrected: Mapping[str, Any], name: str) -> dict[str, Any]:
    """`env` with what is right, and under `imported.corrected` what was said there. RecordError: no such place."""
    was = {}
    for place, right in corrected.items():
        *path, last = [int(part) if part.isdigit() else part for part in place.split(".")]
        try:
            holder: Any = env
            for part in path:
                holder = holder[part]
            was[place], holder[last] = holder[last], right
        except (KeyError, IndexError, TypeError):
            raise RecordError(
                f"corrected: {name}: {place}: there is no such place in its env.json.\nExpected keys and places in "
                "lists, with dots between them, such as gpu_memory.after.0.used_bytes."
            ) from None
    return {**env, "imported": {**env["imported"], "corrected": was}} if was else env


def _status(name: str, status: RunStatus, names: _Names, reworded: Mapping[str, str]) -> RunStatus:
    try:
        read = RunStatus.model_validate_json(names.text(status.model_dump_json(by_alias=True)))
    except ValidationError:
        raise RecordError(_SPOILT.format(name, "status.json")) from None
    notes = [reworded.get(note, note) for note in read.notes]
    if names.new:
        notes.append(
            "imported from a record of another machine: names of its folders were replaced "
            f"({', '.join(names.new)} stand for them), in the log too; every figure is as it was recorded"
        )
    return read.model_copy(update={"origin": "recorded", "notes": tuple(note for note in notes if note)})


def _moved(arrivals: Iterable[LogArrival], log: bytes, names: _Names) -> Iterator[LogArrival]:
    """Where the lines begin in the log as it reads now."""
    was = now = 0
    for arrival in arrivals:
        now += len(names.bytes(log[was : arrival.offset]))
        was = arrival.offset
        yield replace(arrival, offset=now)
