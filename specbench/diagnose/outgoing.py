"""Text that leaves this machine: without secrets and home folders, and as Markdown that stays what it is.

In: text of a log, which anybody may have written. Out: the same without keys, tokens and passwords; escaped for a
sentence or a cell of a table, or fenced so that nothing in it ends the fence. No HTML is written, none is passed on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ..configuration.secret_names import HIDDEN, is_secret, is_secret_flag
from ..logclean import without_controls
from ..records.redaction import REMOVED, Redaction

if TYPE_CHECKING:
    from ..engines.contract import Line
    from .finding import Finding
    from .types import Diagnosis

#: Kinds of keys that are told by their form.
_KEYS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,200}|sk-[A-Za-z0-9_-]{16,200}|gh[opsur]_[A-Za-z0-9]{16,200}|github_pat_\w{16,200}"
    r"|xox[abpr]-[A-Za-z0-9-]{10,200}|AKIA[A-Z0-9]{16}|eyJ[A-Za-z0-9_-]{10,2000}\.[A-Za-z0-9_-]{10,2000}\.[\w-]{5,2000})"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic|authorization:)(\s{1,4})(?!\[removed)[A-Za-z0-9._~+/=-]{8,2000}")
#: https://user:password@host, and keys among the values of an address.
_USERINFO = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]{1,20}://)[^\s/@'\"<>]{1,400}@")
_QUERY = re.compile(r"(?i)([?&](?:api[-_]?key|key|token|access_token|sig|signature|password)=)[^&\s'\"<>]{1,2000}")
#: NAME=value of an environment, name='value' of printed arguments, "name": "value" of JSON.
_NAMED = re.compile(
    r"""(?P<lead>(?<![\w-])(?P<name>[A-Za-z_][\w-]{1,80})['"]?\s?[=:]\s?)(?P<quote>['"]?)(?P<value>[^\s'",)}\]]{1,2000})"""
)
#: --flag value, --flag=value.
_FLAG = re.compile(r"(?P<lead>(?<![\w-])(?P<name>--[A-Za-z][A-Za-z0-9-]{1,60})[= ])(?P<value>(?!-)[^\s'\",)]{1,2000})")
_HOMES = re.compile(
    r"(?<![\w./])(?:/home/[^/\s'\":]{1,80}|/Users/[^/\s'\":]{1,80}|/root|[A-Za-z]:\\Users\\[^\\\s'\":]{1,80})(?=[/\\])"
)
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&$])")
#: What issue trackers make a link or a call of by themselves; a joiner without width in it hinders that.
_LINKS = re.compile(r"(?i)(@|\b(?:https?|ftp):(?=//)|\bwww(?=\.))")
#: What begins a list, a heading or a rule where it is the first of a line.
_FIRST = re.compile(r"\A([-+=]|\d{1,9}(?=[.)]))")
#: In names that are about tokens of text, not about keys.
_OF_TEXT = re.compile(r"(?i)num|max|min|chunk|new|total|input|output|draft|cached|swa|full|layer|usage|pool|map|ratio")
#: A line of code, as a traceback shows it: what is assigned is computed.
_CODE = re.compile(r"\s=\s")
_CALL = re.compile(r"(?:await )?[A-Za-z_][\w.]{0,200}[(\[]")


def safe(text: str) -> str:
    """Without secrets, home folders and control characters."""
    text = Redaction().text(without_controls(text))
    text = _KEYS.sub(REMOVED, text)
    text = _BEARER.sub(rf"\1\2{REMOVED}", text)
    text = _USERINFO.sub(rf"\1{REMOVED}@", text)
    text = _QUERY.sub(rf"\1{REMOVED}", text)
    text = _FLAG.sub(_without_flag, text)
    text = _NAMED.sub(_without_named, text)
    return _HOMES.sub("~", text)


def safe_lines(lines: Iterable[Line]) -> tuple[Line, ...]:
    """Lines of a log with their texts made safe."""
    return tuple(replace(line, text=safe(line.text)) for line in lines)


def without_secrets(diagnosis: Diagnosis) -> Diagnosis:
    """The same diagnosis as it may be shown: everything in it that quotes the log or its arguments made safe. What a
    terminal or a program prints is copied into issues as a page is passed on.
    """
    pools = diagnosis.pools
    return replace(
        diagnosis,
        findings=tuple(_safe_finding(finding) for finding in diagnosis.findings),
        unread=safe_lines(diagnosis.unread),
        assumptions=tuple(map(safe, diagnosis.assumptions)),
        questions=tuple(
            replace(one, missing=safe(one.missing), why=safe(one.why), answer=safe(one.answer))
            for one in diagnosis.questions
        ),
        pools=replace(pools, disagreements=tuple(map(safe, pools.disagreements))),
    )


def _safe_finding(finding: Finding) -> Finding:
    return replace(
        finding, cause=safe(finding.cause), beside=safe(finding.beside), evidence=safe_lines(finding.evidence)
    )


def _without_flag(found: re.Match[str]) -> str:
    hidden = not found["value"].startswith("[removed") and is_secret_flag(found["name"], found["value"])
    return f"{found['lead']}{HIDDEN}" if hidden else found[0]


def _without_named(found: re.Match[str]) -> str:
    name, value = found["name"], found["value"]
    if value.startswith("[removed") or value in ("None", "null", "''", '""'):
        return found[0]
    if _CODE.search(found["lead"]) and _CALL.match(value):
        return found[0]
    words = "tokens" in name.lower() or ("token" in name.lower() and _OF_TEXT.search(name) is not None)
    secret = not words and is_secret(name.replace("-", "_"), value)
    return f"{found['lead']}{found['quote']}{HIDDEN}" if secret else found[0]


def inline(text: str) -> str:
    """For a sentence, a heading or a cell of a table: one line without markup or links, in which nobody is called."""
    escaped = _SPECIAL.sub(r"\\\1", " ".join(safe(text).split()))
    return _LINKS.sub("\\1\u2060", _FIRST.sub(r"\\\1", escaped))


def fenced(lines: Iterable[str]) -> str:
    """Literal lines. The fence is longer than any run of backticks in them, so that none ends it."""
    body = "\n".join(safe(line) for text in lines for line in text.splitlines())
    longest = max((len(run) for run in re.findall("`+", body)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{body}\n{fence}"


def table(headers: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of escaped cells; the first column to the left, the others to the right."""
    titles = list(headers)
    lines = [titles, ["---", *("---:" for _ in titles[1:])], *(list(row) for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
