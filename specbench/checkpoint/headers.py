"""Names, types and sizes of the tensors of a folder of safetensors files. Headers only: no weight is read.

A file is eight bytes with the length of its header (little endian), the header (JSON: name -> dtype, shape,
data_offsets) and the data. `model.safetensors.index.json` maps names to files; without it every `*.safetensors` counts.
Format: github.com/huggingface/safetensors. Everything in it is untrusted: bounded, and refused in two lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import SpecError

INDEX = "model.safetensors.index.json"

#: Bits of a value.
_BITS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
#: Weights that are no numbers of a quantization: loaded in the model's type, whatever the file's.
FLOATS = frozenset({"F64", "F32", "F16", "BF16"})

_MOST_HEADER = 100_000_000  # bytes, as the format's own readers accept
_MOST_INDEX = 200_000_000
_MOST_FILES = 10_000
_MOST_TENSORS = 2_000_000
_MOST_VALUES = 2**50
_SHOWN = 90
_LONGEST_NAME = 255  # bytes


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor in a file."""

    name: str
    dtype: str
    values: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """All tensors of a folder, by name."""

    files: int
    tensors: tuple[Stored, ...]

    @property
    def bytes(self) -> int:
        return sum(stored.bytes for stored in self.tensors)


def read(folder: Path) -> Checkpoint | None:
    """The tensors of a folder. None: no safetensors files lie there, or not all that the index names.

    SpecError for a file that is none, and for numbers that contradict each other.
    """
    names = _files(folder)
    if len(names) > _MOST_FILES:
        raise _wrong(folder.name, f"{len(names):,} safetensors files", f"{_MOST_FILES:,} at most")
    if not names or not all((folder / name).is_file() for name in names):
        return None
    found: dict[str, Stored] = {}
    for name in names:
        for stored in _header(folder / name):
            if stored.name in found:
                raise _wrong(name, f"{stored.name!r:.{_SHOWN}} is in another file, too", "each tensor once")
            found[stored.name] = stored
            if len(found) > _MOST_TENSORS:
                raise _wrong(name, f"more than {_MOST_TENSORS:,} tensors", "fewer")
    return Checkpoint(files=len(names), tensors=tuple(found[name] for name in sorted(found)))


def state(folder: Path) -> int:
    """A number that changes with the files of the folder: what was read before is then out of date."""
    told = [(file.name, file.stat()) for file in folder.glob("*.safetensors*") if file.is_file()]
    return hash(tuple(sorted((name, stat.st_mtime_ns, stat.st_size) for name, stat in told)))


def _files(folder: Path) -> tuple[str, ...]:
    index = folder / INDEX
    if not index.is_file():
        return tuple(sorted(file.name for file in folder.glob("*.safetensors") if file.is_file()))
    weights = _json(index, _read(index, _MOST_INDEX)).get("weight_map")
    if not isinstance(weights, dict) or not weights:
        raise _wrong(INDEX, f"weight_map: {weights!r:.{_SHOWN}}", "tensors and the files that hold them")
    names = set()
    for name in weights.values():
        if not isinstance(name, str) or not _is_file_name(name):
            raise _wrong(INDEX, f"weight_map names {name!r:.{_SHOWN}}", "a .safetensors file beside the index")
        names.add(name)
    return tuple(sorted(names))


def _is_file_name(name: str) -> bool:
    """Of a safetensors file in the same folder; longer ones no file system has."""
    size = len(name.encode("utf-8", "surrogatepass"))
    return Path(name).name == name and name.endswith(".safetensors") and size <= _LONGEST_NAME


def _read(file: Path, most: int) -> bytes:
    try:
        if file.stat().st_size > most:
            raise _wrong(file.name, f"{file.stat().st_size:,} bytes", f"{most:,} at most")
        return file.read_bytes()
    except OSError as error:
        raise _wrong(file.name, f"it cannot be read ({error.strerror})", "a readable file") from None


def _header(file: Path) -> Iterator[Stored]:
    try:
        size = file.stat().st_size
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            if size < 8 or not 2 <= length <= min(_MOST_HEADER, size - 8):
                raise _wrong(file.name, f"a header of {length:,} bytes in {size:,}", "a safetensors file")
            text = opened.read(length)
    except OSError as error:
        raise _wrong(file.name, f"it cannot be read ({error.strerror})", "a readable file") from None
    room, taken = size - 8 - length, 0
    for name, told in _json(file, text).items():
        if name != "__metadata__":
            stored = _stored(file, name, told, room)
            taken += stored.bytes
            if taken > room:
                raise _wrong(file.name, f"tensors of more than its {room:,} bytes", "tensors beside each other")
            yield stored


def _stored(file: Path, name: str, told: Any, room: int) -> Stored:
    where = f"{name!r:.{_SHOWN}}"
    if not isinstance(told, dict):
        raise _wrong(file.name, f"{where} is {told!r:.40}", "dtype, shape and data_offsets")
    dtype, shape, offsets = told.get("dtype"), told.get("shape"), told.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise _wrong(file.name, f"{where}: dtype {dtype!r:.40}", ", ".join(_BITS))
    values = 1
    for count in shape if isinstance(shape, list) else [None]:
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count * values <= _MOST_VALUES:
            raise _wrong(file.name, f"{where}: shape {shape!r:.60}", "a list of whole numbers, not too large")
        values *= count
    taken = -(-values * _BITS[dtype] // 8)
    first, end = offsets if isinstance(offsets, list) and len(offsets) == 2 else (None, None)
    inside = (
        isinstance(first, int)
        and isinstance(end, int)
        and not isinstance(first, bool)
        and not isinstance(end, bool)
        and 0 <= first <= end <= room
        and end - first == taken
    )
    if not inside:
        raise _wrong(file.name, f"{where}: data_offsets {offsets!r:.60}", f"{taken:,} bytes within {room:,}")
    return Stored(name, dtype, values, taken)


class _TwiceError(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _TwiceError(name)
            seen.add(name)
    return found


def _json(file: Path, text: bytes) -> Mapping[str, Any]:
    try:
        data = json.loads(text, object_pairs_hook=_each_once)
    except _TwiceError as error:
        raise _wrong(file.name, f"{error.name!r:.{_SHOWN}} stands in it twice", "each name once") from None
    except (ValueError, RecursionError):  # no JSON, no UTF-8, nested too deeply, a number of thousands of digits
        raise _wrong(file.name, "no JSON where its header should be", "a safetensors file or index") from None
    if not isinstance(data, dict):
        raise _wrong(file.name, "no JSON object where its header should be", "a safetensors file or index")
    return data


def _wrong(name: str, came: str, expected: str) -> SpecError:
    return SpecError(
        f"{name!r:.{_SHOWN}}: {came}.\n"
        f"Expected {expected}; fetch the file again, or give a folder with config.json alone."
    )
