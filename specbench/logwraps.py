"""What containers, journals, launchers and mail programs put around the lines of a log: told by form, taken off.

In: whole lines of bytes. Out: as many lines, without it. Wraps lie in one another (a container's time around a
launcher's label), so they are taken off one by one. A line that is not wrapped like most of its log stays as it is.

No engine's wording here, and no option: what the first lines have in common decides for the whole log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .logclean import as_text, clean, without_controls

#: So much of a log is looked at.
SAMPLE_BYTES = 1 << 16
#: The share of its lines that must have a form: of a paste the half may be somebody's prose.
_SHARE = 0.2
_MOST_LAYERS = 4
_LONGEST_LINE = 1 << 20

_TIME = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
_HOST_UNIT = rb"(?P<name>[\w.:-]{1,64} [\w./@:-]{1,64})(?:\[\d{1,10}\])?: "
#: `name`: what the wrap calls the process, service or container that wrote the line.
_PREFIXES = (
    # Kubernetes' container runtime interface: time, stream, full or partial line.
    _TIME + rb" std(?:out|err) [FP](?::[^ \n]{0,40})? ",
    # journalctl -o short, short-precise, short-iso, short-full, short-unix, short-monotonic; syslog.
    rb"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,6})? " + _HOST_UNIT,
    _TIME + rb" " + _HOST_UNIT,
    rb"[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})? [\w+-]{1,8} " + _HOST_UNIT,
    rb"\d{10}\.\d{6} " + _HOST_UNIT,
    rb"\[ {0,10}\d{1,10}\.\d{6}\] " + _HOST_UNIT,
    rb"<\d{1,3}>1 " + _TIME + rb" (?P<name>[\w.-]{1,64} [\w./-]{1,64}) [\w-]{1,32} [\w-]{1,32} - ",
    rb" {4}MESSAGE=",  # journalctl -o verbose
    # docker logs -t, kubectl logs --timestamps, CI systems (GitLab adds the number and kind of the stream).
    _TIME + rb" (?:\d\d[OE][ +])?",
    rb"\[pod/(?P<name>[^\]\n]{1,200})\] ",  # kubectl logs --prefix
    # Ray, with what it calls the process.
    rb"\((?P<name>[A-Za-z_][\w.:<>-]{0,80}(?: rank=\d{1,5})? pid=\d{1,10}(?:, ip=[\w.:]{1,60})?)\) ?",
    # docker compose, foreman (with a time), pm2 (with a number).
    rb"(?:\d\d:\d\d:\d\d )?(?P<name>(?:\d{1,4}\|)?[A-Za-z0-9][\w.-]{0,80}) {0,80}\| ?",
    rb"\[(?:default)?\d{1,5}\]:",  # torchrun
    rb"\[rank\d{1,5}\]: ?",  # torch's exception hook
    rb" {0,8}\d{1,9}\t",  # cat -n
    rb"(?:> ?){1,6}",  # a mail, or a quotation on a forum
)
#: Where JSON keeps the line: docker's json-file, journald, log shippers of clouds.
_KEYS = ("log", "MESSAGE", "message", "msg", "textPayload")
_JSON_LINE = re.compile(rb'\{.{0,4000}?"(?:log|MESSAGE|message|msg|textPayload)" ?: ?["\[]')


@dataclass(frozen=True, slots=True)
class Wrap:
    """One layer around lines."""

    fits: Callable[[bytes], object]  # whether a line has it
    take_off: Callable[[bytes], bytes]  # of whole lines, each of which may have it
    name: Callable[[bytes], str | None] | None = None  # who wrote a line, as it says; None: it never does
    names: Callable[[bytes], Iterable[str]] | None = None  # the same of whole lines at once; None: it never says


def wraps_of(sample: bytes) -> tuple[Wrap, ...]:
    """The layers around the lines of a log that begins so, the outermost first. `sample`: clean, whole lines."""
    found: list[Wrap] = []
    while len(found) < _MOST_LAYERS:
        lines = [line for line in sample.split(b"\n") if line.strip()]
        wrap = next((wrap for wrap in _WRAPS if _is_usual(wrap, lines)), None)
        if wrap is None:
            break
        found.append(wrap)
        sample = wrap.take_off(sample)
    return tuple(found)


def unwrapped(lines: bytes, wraps: Sequence[Wrap]) -> bytes:
    """Whole, clean lines without these layers. As many newlines as before."""
    for wrap in wraps:
        lines = wrap.take_off(lines)
    return lines


def named(lines: bytes, wraps: Sequence[Wrap]) -> Iterator[tuple[str | None, bytes]]:
    """Every whole, clean line without these layers, and who wrote it, as they say: of several that do, all.

    None: it has no layer that tells.
    """
    ends = lines.endswith(b"\n")
    names: list[str | None] = [None] * (lines.count(b"\n") + (not ends))
    for wrap in wraps:
        if wrap.name is not None:
            told = map(wrap.name, lines.split(b"\n"))
            names = [" / ".join(filter(None, both)) or None for both in zip(names, told, strict=False)]
        lines = wrap.take_off(lines)
    yield from zip(names, lines.split(b"\n"), strict=False)


def _is_usual(wrap: Wrap, lines: Sequence[bytes]) -> bool:
    needed = max(1, int(len(lines) * _SHARE))
    return bool(lines) and sum(1 for line in lines if wrap.fits(line)) >= needed


def _prefix(form: bytes, *, tell: bytes = b"") -> Wrap:
    """`tell`: what must follow for a line to count as one of the form."""
    anchored = re.compile(rb"^(?:" + form + rb")", re.MULTILINE)
    whole = re.compile(rb"(?:" + form + rb")" + tell)
    if "name" not in whole.groupindex:
        return Wrap(whole.match, lambda lines: anchored.sub(b"", lines))

    def name(line: bytes) -> str | None:
        found = whole.match(line)
        return None if found is None else as_text(found["name"])

    def names(lines: bytes) -> Iterable[str]:
        return map(as_text, {found["name"] for found in anchored.finditer(lines)})

    return Wrap(whole.match, lambda lines: anchored.sub(b"", lines), name, names)


def _from_json(lines: bytes) -> bytes:
    return clean(b"\n".join(map(_line_of_json, lines.split(b"\n"))))


def _line_of_json(line: bytes) -> bytes:
    if len(line) > _LONGEST_LINE or not _JSON_LINE.match(line):
        return line
    entry = _entry(line)
    text = _text_of(next((entry[key] for key in _KEYS if key in entry), None))
    # A message of several lines stays on its line: what follows a carriage return is looked at like a line.
    return line if text is None else text.rstrip(b"\r\n").replace(b"\n", b"\r")


def _entry(line: bytes) -> Mapping[str, Any]:
    """Empty: it is no JSON object."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


def _name_in_json(line: bytes) -> str | None:
    """The container or pod, else host and unit: of docker's journald driver, journald, and shippers of Kubernetes."""
    if len(line) > _LONGEST_LINE or not _JSON_LINE.match(line):
        return None
    entry = _entry(line)
    resource = entry.get("resource")
    for labels in (entry.get("kubernetes"), resource.get("labels") if isinstance(resource, Mapping) else None):
        if isinstance(labels, Mapping) and (pod := _joined(labels, "pod_name", "container_name", by="/")):
            return pod
    return _joined(entry, "CONTAINER_NAME", by="") or _joined(entry, "_HOSTNAME", "_SYSTEMD_UNIT", by=" ")


def _names_in_json(lines: bytes) -> Iterable[str]:
    return filter(None, map(_name_in_json, lines.split(b"\n")))


def _joined(fields: Mapping[str, Any], *names: str, by: str) -> str | None:
    said = [value for name in names if isinstance(value := fields.get(name), str)]
    return without_controls(by.join(said)) or None


def _text_of(said: Any) -> bytes | None:
    """journald gives text that holds control characters as a list of bytes."""
    if isinstance(said, str):
        return said.encode("utf-8", "surrogatepass")
    if isinstance(said, list):
        try:
            return bytes(said)
        except (TypeError, ValueError):
            return None
    return None


#: Of these two only srun's has a space; what follows grep's may be the indented line of a traceback.
_GREP = _prefix(rb"(?:[\w./-]{1,160}[:-])?\d{1,9}[:-]", tell=rb"[^\s\d]")  # grep -n
_WRAPS = (
    Wrap(_JSON_LINE.match, _from_json, _name_in_json, _names_in_json),
    *map(_prefix, _PREFIXES),
    _GREP,
    _prefix(rb"\d{1,9}: "),
)
