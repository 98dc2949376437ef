"""What a notebook cell shows: HTML for people, plain text for terminals and for nbval. Both from the same cells.

Everything that goes into the HTML is escaped here and nowhere else: names, log lines and error texts are data. The text
form prints whole numbers (bytes, tokens), so that a stored verdict can be compared; the HTML form prints GiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal
from urllib.parse import quote

from ..diagnose.outgoing import safe

#: Tables from this many columns on are wider than a narrow screen.
_MANY_COLUMNS = 7
#: A cell up to this many characters is not broken into lines.
_ONE_LINE = 22
#: MathJax 2 looks for the first, later ones for the second.
_NO_FORMULAS = "tex2jax_ignore mathjax_ignore"

Tone = Literal["good", "warn", "bad", "muted", "plain"]


@dataclass(frozen=True, slots=True)
class Shown:
    """Displayed as HTML where that is possible, printed as text everywhere else."""

    html: str
    text: str

    def _repr_html_(self) -> str:
        """A notebook would set `$…$` of a log line as a formula: MathJax leaves out what has these classes."""
        return f'<div class="{_NO_FORMULAS}">{self.html}</div>' if self.html else ""

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a table. `text` is shown, `plain` (default: the same) is what the text form prints."""

    text: str
    plain: str | None = None
    tone: Tone = "plain"
    href: str | None = None  # relative link; never a scheme
    title: str | None = None
    number: bool = False  # right-aligned
    code: bool = False  # what one types: monospaced
    wide: bool = False  # prose: gets the room
    below: str | None = None  # a second line in small print

    @property
    def html(self) -> str:
        content = escape(self.text)
        if self.code:
            content = f"<code>{content}</code>"
        if self.href is not None:
            content = f'<a href="{escape(quote(self.href, safe="/#."))}">{content}</a>'
        if self.below:
            content += f"<br><small>{escape(self.below)}</small>"
        short = len(self.text) <= _ONE_LINE and not self.below and self.tone != "muted"
        marks = (("num", self.number), ("wide", self.wide), ("short", short), (self.tone, self.tone != "plain"))
        classes = " ".join(name for name, on in marks if on)
        attributes = f' class="{classes}"' if classes else ""
        if self.title:
            attributes += f' title="{escape(self.title)}"'
        return f"<td{attributes}>{content}</td>"

    @property
    def printed(self) -> str:
        text = self.text if self.plain is None else self.plain
        return f"{text} ({self.below})" if self.below else text


Value = Cell | str | int | None


def cell(value: Value, *, unknown: str = "not logged") -> Cell:
    """A cell of anything: whole numbers get thousands separators, None says that it is unknown."""
    if isinstance(value, Cell):
        return value
    if value is None:
        return Cell(text=unknown, tone="muted")
    if isinstance(value, int):
        return Cell(text=f"{value:,}", plain=str(value), number=True)
    return Cell(text=value)


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[Value]],
    *,
    caption: str = "",
    unknown: str = "not logged",
    stack: bool = False,
) -> Shown:
    """A table with one header row. A column of numbers is right-aligned, header included.

    On a narrow screen a table scrolls in its box; with `stack` each row becomes a block of named lines instead.
    """
    cells = [[cell(value, unknown=unknown) for value in row] for row in rows]
    numeric = [
        bool(cells) and all(row[i].number or row[i].tone == "muted" for row in cells) for i in range(len(headers))
    ]
    head = "".join(
        f'<th scope="col"{" class=num" if right else ""}>{escape(text)}</th>'
        for text, right in zip(headers, numeric, strict=True)
    )
    body = "".join(f"<tr>{''.join(_row(row, headers if stack else None))}</tr>" for row in cells)
    title = f"<caption><span>{escape(caption)}</span></caption>" if caption else ""
    inner = f"{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    kind = "stack" if stack else "many" if len(headers) >= _MANY_COLUMNS else ""
    html = f'<div class="{f"table-wrap {kind}".rstrip()}" tabindex="0"><table class="sb">{inner}</table></div>'
    return Shown(html, _text(headers, [[one.printed for one in row] for row in cells], numeric, caption))


def _row(cells: Sequence[Cell], names: Sequence[str] | None) -> Iterator[str]:
    """The cells; with the names of their columns, for the form in which there are no columns."""
    if names is None:
        yield from (one.html for one in cells)
        return
    for one, name in zip(cells, names, strict=True):
        yield f'<td data-label="{escape(name)}"{one.html.removeprefix("<td")}'


def _text(headers: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool], caption: str) -> str:
    widths = [max(len(line[i]) for line in (headers, *rows)) for i in range(len(headers))]

    def line(parts: Sequence[str]) -> str:
        aligned = (
            part.rjust(width) if right else part.ljust(width)
            for part, width, right in zip(parts, widths, numeric, strict=True)
        )
        return "  ".join(aligned).rstrip()

    lines = [line(headers), line(["-" * width for width in widths]), *map(line, rows)]
    return "\n".join([caption, *lines] if caption else lines)


def without_empty(headers: Sequence[str], rows: Sequence[Sequence[Value]]) -> tuple[list[str], list[list[Value]]]:
    """Headers and rows without the columns in which no row says anything."""
    kept = [i for i in range(len(headers)) if any(cell(row[i]).text for row in rows)]
    return [headers[i] for i in kept], [[row[i] for i in kept] for row in rows]


def joined(parts: Iterable[Shown]) -> Shown:
    """Several things one below the other."""
    everything = list(parts)
    return Shown("".join(part.html for part in everything), "\n\n".join(part.text for part in everything if part.text))


def paragraph(text: str, *, tone: Tone = "plain") -> Shown:
    attributes = f' class="{tone}"' if tone != "plain" else ""
    return Shown(f"<p{attributes}>{escape(text)}</p>", text)


def banner(text: str) -> Shown:
    """Something that must not be overlooked."""
    return Shown(f'<p class="caveat">{escape(text)}</p>', text)


def code_lines(lines: Iterable[tuple[int | None, str]], *, label: str) -> Shown:
    """Lines of a log, each with its number in the file; without secrets and home folders, since pages are passed on."""
    rows = [(number, safe(text)) for number, text in lines]
    body = "\n".join(
        (f'<span class="ln">{number}</span> ' if number is not None else "") + escape(text) for number, text in rows
    )
    text = "\n".join((f"  line {number}: " if number is not None else "  ") + line for number, line in rows)
    return Shown(f'<pre class="log" aria-label="{escape(label)}">{body}</pre>' if rows else "", text)
