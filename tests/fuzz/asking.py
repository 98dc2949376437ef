"""What is asked of any text given as a log: an answer, or a refusal in two lines; clean text; no other error.

In: bytes. Out: what was said, as JSON and as terminal text. Used by the tests (hypothesis) and by `fuzz_log.py`.
"""

from __future__ import annotations

import io
import json
import random
import re
from pathlib import Path

from rich.console import Console

from specbench.cli.diagnosis_text import render
from specbench.diagnose.diagnosis import of_log, of_logs
from specbench.diagnose.document import to_document
from specbench.diagnose.types import Diagnosis
from specbench.errors import SpecbenchError

HERE = Path(__file__).parent.parent
SEEDS = (
    *sorted((HERE / "logs" / "sglang" / "cases").glob("*.log")),
    *(HERE / "records" / name / "server.log" for name in ("oom_r8", "dflash_r8", "tp2_dflash_r32_full")),
)
#: What may not reach a terminal, a page or a document: controls but tab and newline, and turned or unseen writing.
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff]")
#: Two files of one server in one input.
NEXT_FILE = b"--- next file ---"

_NUMBER = re.compile(rb"\d+(?:\.\d+)?")
_NUMBERS = (
    *(b"0", b"-1", b"-0", b"0.0000001", b"9" * 18, b"9" * 400),
    *(b"18446744073709551616", b"1e308", b"nan", b"inf"),
)
_CONTROLS = (
    *(b"\x00", b"\x1b[31m", b"\x1b]0;x\x07", b"\r", b"\x9b31m", b"\xff\xfe", b"\x85", b"\\x1b[31m"),
    *("\u202e\u200b".encode(), b"<script>", b"[bold]"),
)


def answered(data: bytes) -> tuple[str, str]:
    """(document as JSON, terminal text) of a text as a log. AssertionError when they are not clean."""
    found = _diagnosis(data)
    return ("", "") if found is None else _said(found)


def _diagnosis(data: bytes) -> Diagnosis | None:
    """None: refused, in two lines."""
    first, separator, second = data.partition(b"\n" + NEXT_FILE + b"\n")
    try:
        if separator:
            return of_logs({"a.log": io.BytesIO(first), "b.log": io.BytesIO(second)})
        return of_log(io.BytesIO(data), name="fuzz.log")
    except SpecbenchError as error:
        said = str(error)
        assert said.count("\n") == 1, said
        assert not FORBIDDEN.search(said), said
        return None


def _said(found: Diagnosis) -> tuple[str, str]:
    text = json.dumps(to_document(found), ensure_ascii=False, allow_nan=False)
    paper = io.StringIO()
    render(found, Console(file=paper, width=120, color_system=None))
    shown = paper.getvalue()
    for said in (text, shown):
        match = FORBIDDEN.search(said)
        assert match is None, f"{match[0]!r} in {said[max(0, match.start() - 60) : match.end() + 20]!r}"
    return text, shown


def mutated(data: bytes, dice: random.Random) -> bytes:
    """A log with something wrong in it: lines cut, shuffled, repeated; numbers that are none; control characters."""
    lines = data.split(b"\n")
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(lines))
        line = lines[at]
        match dice.randrange(9):
            case 0:
                lines[at] = line[: dice.randint(0, len(line))]
            case 1:
                lines[at] = line[dice.randint(0, len(line)) :]
            case 2:
                dice.shuffle(lines)
            case 3:
                lines[at:at] = [line] * dice.randint(1, 40)
            case 4:
                del lines[at : at + dice.randint(1, max(1, len(lines) // 2))]
                lines = lines or [b""]
            case 5:
                lines[at] = _renumbered(line, dice, dice.choice((0.1, 1.0)), _NUMBERS)
            case 6:
                lines = [_renumbered(one, dice, 0.02, (dice.choice(_NUMBERS),)) for one in lines]
            case 7:
                place = dice.randint(0, len(line))
                lines[at] = line[:place] + dice.choice(_CONTROLS) + line[place:]
            case 8:
                lines.insert(at, NEXT_FILE)
    return b"\n".join(lines)


def _renumbered(line: bytes, dice: random.Random, chance: float, numbers: tuple[bytes, ...]) -> bytes:
    return _NUMBER.sub(lambda found: dice.choice(numbers) if dice.random() < chance else found[0], line)
