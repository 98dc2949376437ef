"""The parts of a record as values: JSON, a value per line, tables. RecordError: a part is missing or damaged."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from ..errors import RecordError
from .types import GpuSample, LogArrival, MetricSample

_Row = TypeVar("_Row")


def read_json(file: Path, parse: Callable[[str], Any] = json.loads) -> Any:
    """A JSON file that has to be there."""
    try:
        return parse(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecordError(f"{file.parent}: {file.name} is missing.\nThe record is incomplete.") from None
    except OSError as error:
        raise RecordError(f"{file}: cannot be read: {error.strerror or error}.\nThe record is damaged.") from None
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{file}: not valid JSON: {one_line(error)}.\nThe record is damaged.") from None


def read_lines(file: Path, kind: type[Any]) -> Iterable[Any]:
    """A pydantic value per line of a file, plain or gzip; none where there is no file."""
    if not file.is_file():
        return
    number = 0
    try:
        with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):  # noqa: B007  (told in the message)
                if line.strip():
                    yield kind.model_validate_json(line)
    except UnicodeDecodeError as error:  # told by blocks, so the line is not known
        raise RecordError(f"{file}: not UTF-8: {one_line(error)}.\nThe record is damaged.") from None
    except ValidationError as error:
        raise RecordError(f"{file}: line {number}: {one_line(error)}.\nThe record is damaged.") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise RecordError(f"{file}: cannot be read: {reason}.\nThe record is damaged.") from None


def read_table(file: Path, row: Callable[[Mapping[str, str]], _Row]) -> Iterator[_Row]:
    """A value per row of a CSV file, plain or gzip."""
    try:
        text = read_bytes(file).decode("utf-8")
        yield from map(row, csv.DictReader(io.StringIO(text, newline="")))
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise RecordError(
            f"{file}: not the table that was written: {one_line(error)}.\nThe record is damaged."
        ) from None


def read_bytes(file: Path) -> bytes:
    """The whole file, unpacked."""
    try:
        data = file.read_bytes()
        return gzip.decompress(data) if file.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error) as error:
        raise RecordError(f"{file}: cannot be read: {one_line(error)}.\nThe record is damaged.") from None


def gpu_sample(row: Mapping[str, str]) -> GpuSample:
    """A row of gpu.csv."""
    return GpuSample(
        t_s=float(row["t_s"]),
        phase=row["phase"],
        gpu=int(row["gpu"]),
        used_bytes=int(row["used_bytes"]),
        free_bytes=int(row["free_bytes"]),
        total_bytes=int(row["total_bytes"]),
        utilization_pct=_maybe(row["utilization_pct"]),
        power_w=_maybe(row["power_w"]),
        sm_clock_mhz=_maybe(row.get("sm_clock_mhz")),
        memory_clock_mhz=_maybe(row.get("memory_clock_mhz")),
        temperature_c=_maybe(row.get("temperature_c")),
    )


def log_arrival(row: Mapping[str, str]) -> LogArrival:
    """A row of log_times.csv."""
    return LogArrival(
        line=int(row["line"]), offset=int(row["offset"]), t_s=float(row["t_s"]), within_s=float(row["within_s"])
    )


def metric_sample(row: Mapping[str, str]) -> MetricSample:
    """A row of metrics.csv."""
    return MetricSample(t_s=float(row["t_s"]), phase=row["phase"], name=row["name"], value=float(row["value"]))


def _maybe(text: str | None) -> float | None:
    """Empty, or a column that old records lack: not known."""
    return float(text) if text else None


def one_line(error: Exception) -> str:
    """What an error says, as a part of a sentence."""
    return " ".join(str(error).split())[:300]
