"""The wording of batch lines, learned from the lines themselves.

A server prints its decode and prefill lines in one or two shapes: which fields, in which order, depends on version,
kinds of pools, speculation and disaggregation. So the first line of a shape is taken apart and becomes a pattern for
the others; no list of shapes has to be kept, and a field that we do not know costs nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: A field's name on the line -> our column.
FIELDS = {
    "#running-req": "running_requests",
    "#token": "tokens",
    "#full token": "tokens",
    "token usage": "token_usage",
    "full token usage": "token_usage",
    "mamba num": "state_slots_used",
    "mamba usage": "state_usage",
    "accept len": "accept_length",
    "accept rate": "accept_rate",
    "gen throughput (token/s)": "throughput",
    "input throughput (token/s)": "throughput",
    "#queue-req": "queued_requests",
    "#retracted-req": "retracted_requests",
    "#new-seq": "new_requests",
    "#new-token": "new_tokens",
    "#cached-token": "cached_tokens",
    "cuda graph": "graph",
    "cpu graph": "graph",
    "npu graph": "graph",
    "xpu graph": "graph",
}

#: A line of these fields is whole; one that lacks some was cut off or abridged by hand.
_WHOLE = {
    "Decode": frozenset(("running_requests", "token_usage", "throughput", "queued_requests")),
    "Prefill": frozenset(("new_requests", "new_tokens", "cached_tokens", "token_usage", "queued_requests")),
}

_LINE = re.compile(
    rb"(?:\[(?P<bracket>[^\[\]\n]{0,80})\] |\A[ \t>]{0,40})(?P<kind>Decode|Prefill) batch"
    rb"(?P<iteration> \[\d{1,12}\])?(?P<mark>[,.]) (?P<fields>[^\n]{1,4096})"
)
#: docker's json-file writes the newline and its own fields after the line.
_DOCKER_TAIL = re.compile(rb"\\n\",\"(?:stream|time)\"[^\n]*\Z")
_TAIL = rb"(?:, ?| )?\r?(?:\\n\"[^\n]*)?\Z"
_VALUE = re.compile(rb"-?\d{1,15}(?:\.\d{1,6})?|True|False|nan|inf")
_SURELY_WHOLE = re.compile(rb"\d+\.\d\d")
_MOST_FIELDS = 40


@dataclass(frozen=True, slots=True)
class Shape:
    """The wording of one line, as a pattern that fits its like."""

    is_decode: bool  # else a prefill line
    pattern: re.Pattern[bytes]  # fits whole lines only, to their end
    columns: tuple[str, ...]  # of the pattern's groups, the first is the bracket
    whole: bool  # False: the line was cut off or abridged; its pattern is good for itself alone


def shape_of(line: bytes) -> Shape | None:
    """None when the line is no batch line, or holds no figure that is surely whole."""
    found = _LINE.search(line[:65536])
    if found is None:
        return None
    kind = found["kind"].decode()
    parts = _DOCKER_TAIL.sub(b"", found["fields"]).rstrip(b" \r,").split(b", ")[:_MOST_FIELDS]
    columns: list[str] = []
    pattern: list[bytes] = []
    for part in parts[:-1]:
        column = _column(part, columns)
        pattern.append(_field(part, rb"([^,]*)" if column else rb"[^,]*"))
        if column:
            columns.append(column)
    last = _column(parts[-1], columns)
    # The last count of a line may have lost digits, unless it is the field that ends all lines of its kind.
    if last and (last == "queued_requests" or _SURELY_WHOLE.fullmatch(parts[-1].rpartition(b": ")[2])):
        pattern.append(_field(parts[-1], rb"([^,\s\\]*)"))
        columns.append(last)
    else:
        pattern.append(_field(parts[-1], rb"[^,]*"))
    if not columns:
        return None
    begin = rb"\[([^\]]{0,80})\] " if found["bracket"] is not None else rb"\A[ \t>]{0,40}()"
    iteration = rb" \[\d{1,12}\]" if found["iteration"] else b""
    head = begin + kind.encode() + b" batch" + iteration + re.escape(found["mark"]) + b" "
    return Shape(
        is_decode=kind == "Decode",
        pattern=re.compile(head + b", ".join(pattern) + _TAIL),
        columns=("bracket", *columns),
        whole=_WHOLE[kind] <= set(columns),
    )


def _column(part: bytes, taken: list[str]) -> str | None:
    """The column of 'name: value'; None when we do not know the name, have it already, or the value is no figure."""
    name, colon, value = part.rpartition(b": ")
    column = FIELDS.get(name.decode("utf-8", "replace").strip()) if colon and _VALUE.fullmatch(value) else None
    return column if column not in taken else None


def _field(part: bytes, value: bytes) -> bytes:
    name, colon, _ = part.rpartition(b": ")
    return re.escape(name) + b": " + value if colon else rb"[^,]*"
