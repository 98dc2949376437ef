"""The GPU table (`data/gpus.yaml`) as it was written, checked: anybody may add rows. In: the file's mapping. SpecError,
in two lines, names the card, the number of GPUs, what came and what was expected.

The non-obvious thing: which row holds for a version is decided by order (the newest first, one without versions last),
so a row that could never be read is refused, not passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from .configuration.explain import listed, near_miss, shown
from .errors import ConfigError, SpecError
from .units import GIB, MIB
from .versions import VersionKey, version_key

_CARD_KEYS = ("title", "share_of", "total_mib", "compute_capability", "idle_free_mib", "free_gib")
_SIZES = ("low", "point", "high")
_COMMUNICATION_KEYS = (*_SIZES, "source")
_ROW_KEYS = (*_COMMUNICATION_KEYS, "versions", "communication_gib")
#: No memory is as large, in MiB or GiB.
_MOST = 2**40


def check_table(table: Mapping[str, Any]) -> None:
    """SpecError at the first thing that is wrong."""
    for name, card in table.items():
        _check_card((name,), card)
        if (whole := card.get("share_of")) is not None:
            _check_share((name, "share_of"), whole, card["total_mib"], table)


def _check_card(place: tuple[str, ...], card: Any) -> None:
    _check_keys(place, card, _CARD_KEYS, needed=("title", "total_mib"))
    _check_text((*place, "title"), card["title"])
    total = card["total_mib"]
    if total is not None and not _is_count(total):
        _refuse((*place, "total_mib"), total, "MiB as nvidia-smi shows, a whole number; null for a host")
    idle = card.get("idle_free_mib")
    if idle is not None and (total is None or not _is_count(idle) or idle > total):
        most = "nothing: a host is no card" if total is None else f"MiB, a whole number up to total_mib ({total:,})"
        _refuse((*place, "idle_free_mib"), idle, most)
    capability = card.get("compute_capability")
    if capability is not None and (total is None or not _is_capability(capability)):
        _refuse((*place, "compute_capability"), capability, "major.minor as NVIDIA lists it, e.g. 9.0; none for a host")
    if "free_gib" not in card:
        return
    by_ranks = card["free_gib"]
    if not isinstance(by_ranks, Mapping) or not by_ranks:
        _refuse((*place, "free_gib"), by_ranks, f"number of GPUs: {{{listed(_COMMUNICATION_KEYS)}}}")
    for ranks, rows in by_ranks.items():
        if not _is_count(ranks):
            _refuse((*place, "free_gib"), ranks, "a number of GPUs as key: 1, 2, 4, …")
        _check_rows((*place, "free_gib", str(ranks)), rows, total, idle)


def _check_rows(place: tuple[str, ...], rows: Any, total_mib: int | None, idle_mib: int | None) -> None:
    """Of one number of GPUs: a row, or a list of rows by version."""
    if rows == [] or not isinstance(rows, (Mapping, list)):
        _refuse(place, rows, f"{{{listed(_COMMUNICATION_KEYS)}}}, or a list of such rows with versions")
    every = rows if isinstance(rows, list) else [rows]
    for row in every:
        _check_row(place, row, total_mib, idle_mib)
    newest: VersionKey | None = None
    seen: set[VersionKey] = set()
    for number, row in enumerate(every, start=1):
        if "versions" not in row:
            if number < len(every):
                _refuse(
                    place, row, "rows with versions before it: one without versions holds for all others, as the last"
                )
            continue
        keys = {version_key(version) for version in row["versions"]}
        if twice := keys & seen:
            version = next(version for version in row["versions"] if version_key(version) in twice)
            _refuse((*place, "versions"), version, "each version in one row only, it is in an earlier one too")
        if newest is not None and max(keys) > newest:
            _refuse(
                (*place, "versions"), row["versions"], "the newest versions first, these are newer than the row before"
            )
        newest, seen = max(keys), seen | keys


def _check_row(place: tuple[str, ...], row: Any, total_mib: int | None, idle_mib: int | None) -> None:
    _check_keys(place, row, _ROW_KEYS, needed=_COMMUNICATION_KEYS)
    total = None if total_mib is None else total_mib * MIB / GIB
    _check_interval(place, row, total, "the card's total")
    if idle_mib is not None and row["point"] > idle_mib * MIB / GIB:
        _refuse((*place, "point"), row["point"], f"at most what the idle card has: {idle_mib * MIB / GIB:.2f} GiB")
    if "versions" in row:
        _check_versions((*place, "versions"), row["versions"])
    if "communication_gib" in row:
        taken, inside = row["communication_gib"], (*place, "communication_gib")
        _check_keys(inside, taken, _COMMUNICATION_KEYS, needed=_COMMUNICATION_KEYS)
        _check_interval(inside, taken, None if total is None else total - row["low"], "the card's total less low")


def _check_versions(place: tuple[str, ...], versions: Any) -> None:
    expected = 'a list of versions in quotes, e.g. ["0.5.16"]'
    if not isinstance(versions, list) or not versions:
        _refuse(place, versions, expected)
    for version in versions:
        try:
            if not isinstance(version, str):
                _refuse(place, version, expected)
            version_key(version)
        except ConfigError:
            _refuse(place, version, expected)


def _check_interval(place: tuple[str, ...], row: Mapping[str, Any], most: float | None, words: str) -> None:
    """0 < low <= point <= high <= most, in GiB."""
    for key in _SIZES:
        size = row[key]
        if isinstance(size, bool) or not isinstance(size, (int, float)) or not 0 < size < _MOST:
            _refuse((*place, key), size, "GiB, a number above 0; leave out what was not measured")
    if not row["low"] <= row["point"] <= row["high"]:
        _refuse(place, {key: row[key] for key in _SIZES}, "low <= point <= high")
    if most is not None and row["high"] > most:
        _refuse((*place, "high"), row["high"], f"at most {words}: {most:.2f} GiB")
    _check_text((*place, "source"), row["source"])


def _check_share(place: tuple[str, ...], whole: Any, total_mib: int | None, table: Mapping[str, Any]) -> None:
    """Of a card that is none itself a share or a host, and that is larger."""
    card = table.get(whole) if isinstance(whole, str) else None
    if card is None:
        _refuse(place, whole, "the name of a card of this table")
    if "share_of" in card or card["total_mib"] is None:
        _refuse(place, whole, "a whole card: no share of one, and no host")
    if total_mib is None or total_mib >= card["total_mib"]:
        _refuse(place, whole, f"a card with more memory than its share; {whole} has {card['total_mib']:,} MiB")


def _check_keys(place: tuple[str, ...], row: Any, allowed: tuple[str, ...], *, needed: tuple[str, ...]) -> None:
    if not isinstance(row, Mapping):
        _refuse(place, row, f"a mapping of {listed(needed)}")
    for key in row:
        if key not in allowed:
            raise SpecError(
                f"{_where(place)}: {shown(key)}: no such key{near_miss(str(key), allowed)}.\n"
                f"Allowed here: {listed(allowed)}."
            )
    for key in needed:
        if key not in row:
            raise SpecError(f"{_where(place)}: {key}: missing.\nExpected {listed(needed)}.")


def _check_text(place: tuple[str, ...], text: Any) -> None:
    if not isinstance(text, str) or not text.strip():
        _refuse(place, text, "text")


def _is_capability(value: Any) -> bool:
    return isinstance(value, float) and 1 <= value < 100


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MOST


def _refuse(place: tuple[str, ...], value: Any, expected: str) -> NoReturn:
    raise SpecError(f"{_where(place)}: got {shown(value)}.\nExpected {expected}.")


def _where(place: tuple[str, ...]) -> str:
    return f"data/gpus.yaml: {': '.join(place)}"
