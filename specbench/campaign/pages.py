"""Executed notebooks -> HTML pages that need nothing but the file: no script, no font, no request to any host.

In: an executed notebook. Out: one page under 1.5 MB with the code folded away, pictures embedded. Everything that comes
from outside (names, log text, errors) is escaped: by `show` in tables, by the template everywhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import SpecbenchError
from ..paths import TEMPLATES, write_whole

if TYPE_CHECKING:
    from ..show.shown import Shown

MAX_PAGE_BYTES = 1_500_000
#: Cells that set things up; on a page they come last, folded.
SETUP = "setup"
#: A widget is shown as what it brings along for viewers without widgets.
_WIDGET = "application/vnd.jupyter.widget-view+json"
_SETUP_TAGS = frozenset({SETUP, "parameters", "injected-parameters"})
LEGEND = "In every figure: predicted is hollow, observed is filled; GiB is 2^30 bytes; memory is per rank."


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What stands around the notebook's cells. Plain text; the template escapes it."""

    title: str
    provenance: str = ""
    links: tuple[tuple[str, str], ...] = ()  # (text, relative address)
    legend: str = LEGEND


def read(notebook: Path) -> Any:
    """A notebook as nbformat's node."""
    import nbformat

    return nbformat.read(notebook, as_version=4)


def shown_cell(shown: Shown) -> Any:
    """A code cell without code whose output is `shown`: for pages that no notebook could make."""
    from nbformat.v4 import new_code_cell, new_output

    output = new_output("display_data", data={"text/html": shown._repr_html_(), "text/plain": shown.text})
    return new_code_cell("", outputs=[output])


def notebook_of(cells: list[Any]) -> Any:
    """A notebook of these cells."""
    from nbformat.v4 import new_notebook

    return new_notebook(cells=cells, metadata={"language_info": {"name": "python"}})


def write(notebook: Path, target: Path, page: Page) -> Path:
    """Convert an executed notebook. The page appears whole or not at all."""
    return write_node(read(notebook), target, page)


def write_node(notebook: Any, target: Path, page: Page) -> Path:
    """Like `write`, from a notebook in memory. SpecbenchError: it cannot be written, or would be too large to mail."""
    text = render(notebook, page)
    data = text.encode()
    if len(data) > MAX_PAGE_BYTES:
        raise SpecbenchError(
            f"{target}: the page would have {len(data):,} bytes; at most {MAX_PAGE_BYTES:,}.\n"
            "Fewer runs in one campaign, or fewer figures in the notebook, make it smaller."
        )
    try:
        write_whole(target, data)
    except OSError as error:
        raise SpecbenchError(
            f"{target.name}: not written: {error.strerror}.\n"
            "Make room, or name a folder that can be written; 'specbench report' makes the pages of a campaign anew."
        ) from None
    return target


def render(notebook: Any, page: Page) -> str:
    """The HTML text."""
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(template_name="page", extra_template_basedirs=[str(TEMPLATES)], exclude_anchor_links=True)
    exporter.log.setLevel("ERROR")
    exporter.exclude_input_prompt = exporter.exclude_output_prompt = True
    resources: Mapping[str, Any] = {
        "page": {
            "title": page.title,
            "provenance": page.provenance,
            "links": page.links,
            "legend": page.legend,
            "generator": f"specbench {__version__}",
            "footer": f"Written by specbench {__version__} from an executed notebook; this file needs no network.",
            "css": stylesheet(),
        }
    }
    html, _ = exporter.from_notebook_node(arranged(notebook), resources=dict(resources))
    return str(html)


def stylesheet() -> str:
    """The page's style, with the colours of code for light and dark."""
    from pygments.formatters import HtmlFormatter

    light = HtmlFormatter(style="xcode").get_style_defs(".highlight")
    dark = HtmlFormatter(style="github-dark").get_style_defs(".highlight")
    background = ".highlight, .highlight pre { background: var(--panel); }"
    own = (TEMPLATES / "page" / "page.css").read_text("utf-8")
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n{background}\n{own}"


def arranged(notebook: Any) -> Any:
    """A copy whose set-up cells come last and folded, and whose figures carry their description."""
    import copy

    result = copy.deepcopy(notebook)
    result.metadata.pop("widgets", None)  # their state: scripts and megabytes, for a page that has no kernel
    main: list[Any] = []
    setup: list[Any] = []
    heading = ""
    for cell in result.cells:
        tags = set(cell.metadata.get("tags", ()))
        if cell.cell_type == "markdown":
            heading = described(cell.source) or heading
        else:
            cell.metadata["alt"] = heading or "figure"
            cell.outputs = [output for output in cell.outputs if not _is_bare_repr(output)]
            for output in cell.outputs:
                output.get("data", {}).pop(_WIDGET, None)
        (setup if tags & _SETUP_TAGS else main).append(cell)
    if setup:
        setup[0].metadata["fold"] = "begin"
        setup[-1].metadata["fold_end"] = True
    result.cells = [*main, *setup]
    return result


def described(markdown: str) -> str:
    """The first sentence of a markdown cell, without marks: what a picture below it shows."""
    lines = [line.strip("#> ").strip() for line in markdown.splitlines() if line.strip()]
    text = re.sub(r"[*_`]", "", " ".join(lines))
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return text if len(text) <= 200 else text[:197].rsplit(" ", 1)[0] + " …"


def _is_bare_repr(output: Any) -> bool:
    """An object's address beside its figure ('<Axes: …>', '<Figure size …>') tells a reader nothing."""
    data = output.get("data", {})
    text = data.get("text/plain", "")
    return set(data) == {"text/plain"} and bool(re.fullmatch(r"<(?:Axes|Figure)[^>]*>", text))
