"""What containers, journals, launchers and mail programs put around the lines of a log: told by form, taken off.

In: whole lines of bytes. Out: as many lines, without it. Wraps lie in one another (a container's time around a
launcher's label), so they are taken off one by one. A line that is not wrapped like most of its log stays as it is.

No engine's wording here, and no option: what the first lines have in common decides for the whole log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .logclean import clean

#: So much of a log is looked at.
SAMPLE_BYTES = 1 << 16
#: The share of its lines that must have a form: of a paste the half may be somebody's prose.
_SHARE = 0.2
_MOST_LAYERS = 4
_LONGEST_LINE = 1 << 20

_TIME = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
_HOST_UNIT = rb"[\w.:-]{1,64} [\w./@:-]{1,64}(?:\[\d{1,10}\])?: "
_PREFIXES = (
    # Kubernetes' container runtime interface: time, stream, full or partial line.
    _TIME + rb" std(?:out|err) [FP](?::[^ \n]{0,40})? ",
    # journalctl -o short, short-precise, short-iso, short-full, short-unix, short-monotonic; syslog.
    rb"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,6})? " + _HOST_UNIT,
    _TIME + rb" " + _HOST_UNIT,
    rb"[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})? [\w+-]{1,8} " + _HOST_UNIT,
    rb"\d{10}\.\d{6} " + _HOST_UNIT,
    rb"\[ {0,10}\d{1,10}\.\d{6}\] " + _HOST_UNIT,
    rb"<\d{1,3}>1 " + _TIME + rb" [\w.-]{1,64} [\w./-]{1,64} [\w-]{1,32} [\w-]{1,32} - ",
    rb" {4}MESSAGE=",  # journalctl -o verbose
    # docker logs -t, kubectl logs --timestamps, CI systems (GitLab adds the number and kind of the stream).
    _TIME + rb" (?:\d\d[OE][ +])?",
    rb"\[pod/[^\]\n]{1,200}\] ",  # kubectl logs --prefix
    # Ray, with what it calls the process.
    rb"\([A-Za-z_][\w.:<>-]{0,80}(?: rank=\d{1,5})? pid=\d{1,10}(?:, ip=[\w.:]{1,60})?\) ?",
    # docker compose, foreman (with a time), pm2 (with a number).
    rb"(?:\d\d:\d\d:\d\d |\d{1,4}\|)?[A-Za-z0-9][\w.-]{0,80} {0,80}\| ?",
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


def _is_usual(wrap: Wrap, lines: Sequence[bytes]) -> bool:
    needed = max(1, int(len(lines) * _SHARE))
    return bool(lines) and sum(1 for line in lines if wrap.fits(line)) >= needed


def _prefix(form: bytes, *, tell: bytes = b"") -> Wrap:
    """`tell`: what must follow for a line to count as one of the form."""
    anchored = re.compile(rb"^(?:" + form + rb")", re.MULTILINE)
    return Wrap(re.compile(rb"(?:" + form + rb")" + tell).match, lambda lines: anchored.sub(b"", lines))


def _from_json(lines: bytes) -> bytes:
    return clean(b"\n".join(map(_line_of_json, lines.split(b"\n"))))


def _line_of_json(line: bytes) -> bytes:
    if len(line) > _LONGEST_LINE or not _JSON_LINE.match(line):
        return line
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return line
    said = next((entry[key] for key in _KEYS if key in entry), None) if isinstance(entry, dict) else None
    text = _text_of(said)
    # A message of several lines stays on its line: what follows a carriage return is looked at like a line.
    return line if text is None else text.rstrip(b"\r\n").replace(b"\n", b"\r")


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
_WRAPS = (Wrap(_JSON_LINE.match, _from_json), *map(_prefix, _PREFIXES), _GREP, _prefix(rb"\d{1,9}: "))
