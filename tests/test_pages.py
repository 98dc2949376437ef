"""Pages: everything from outside is escaped, nothing is requested from anywhere, the file stays small."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from specbench.campaign import pages
from specbench.errors import SpecbenchError
from specbench.show.shown import Cell, code_lines, table

EVIL = '<script>alert("x")</script><img src="http://example.invalid/x.png" onerror="alert(1)">'
PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360000002000001e221bc330000"
        "000049454e44ae426082"
    )
).decode()


class Elements(HTMLParser):
    """Every start tag with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def notebook(*cells: Any) -> Any:
    return new_notebook(cells=list(cells), metadata={"language_info": {"name": "python"}})


def html_cell(html: str) -> Any:
    return new_code_cell(
        "show.it()", outputs=[new_output("execute_result", data={"text/html": html, "text/plain": "x"})]
    )


@pytest.fixture
def evil_page() -> str:
    """Untrusted text in every place where it can arrive."""
    cells = [
        new_code_cell(f"name = {EVIL!r}  # name", metadata={"tags": ["parameters"]}),
        new_markdown_cell("## Heading"),
        html_cell(
            table(
                [EVIL],
                [
                    [
                        EVIL,
                    ][:1]
                ],
                caption=EVIL,
            ).html
        ),
        html_cell(table(["run"], [[Cell(text=EVIL, href=f"{EVIL}/index.html", title=EVIL)]]).html),
        html_cell(code_lines([(7, EVIL)], label=EVIL).html),
        new_code_cell("print(x)", outputs=[new_output("stream", name="stdout", text=EVIL)]),
        new_code_cell("warn()", outputs=[new_output("stream", name="stderr", text=EVIL)]),
        new_code_cell("x", outputs=[new_output("execute_result", data={"text/plain": EVIL})]),
        new_code_cell("x", outputs=[new_output("display_data", data={"text/markdown": EVIL})]),
        new_code_cell("x", outputs=[new_output("display_data", data={"image/png": PNG})]),
        new_code_cell(
            "1/0", outputs=[new_output("error", ename="E", evalue=EVIL, traceback=[f"\x1b[31m{EVIL}\x1b[0m"])]
        ),
        new_code_cell(
            "v", outputs=[new_output("stream", name="stdout", text=EVIL)], metadata={"tags": ["nbval-check-output"]}
        ),
    ]
    page = pages.Page(title=EVIL, provenance=EVIL, links=((EVIL, "../index.html"),), legend=EVIL)
    return pages.render(notebook(*cells), page)


def test_untrusted_text_makes_no_element(evil_page: str) -> None:
    found = Elements(evil_page).found
    assert [tag for tag, _ in found if tag in ("script", "iframe", "object", "embed", "link", "base", "form")] == []
    assert [attrs["src"][:22] for tag, attrs in found if tag == "img" and attrs["src"]] == ["data:image/png;base64,"]
    handlers = [name for _, attrs in found for name in attrs if name.startswith("on")]
    assert handlers == []
    assert evil_page.count("&lt;script&gt;") >= 14  # it is all there, as text


def test_a_page_names_no_host_and_forbids_requests(evil_page: str) -> None:
    addresses = [
        value
        for _, attrs in Elements(evil_page).found
        for name, value in attrs.items()
        if name in ("src", "href", "srcset", "poster") and value and not value.startswith("data:image/png")
    ]
    assert all(not re.match(r"[a-z+.-]+:|//", address) for address in addresses)
    assert "default-src 'none'" in evil_page
    style = evil_page[evil_page.index("<style>") : evil_page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_links_have_no_scheme() -> None:
    cell = Cell(text="x", href="javascript:alert(1)")
    assert 'href="javascript%3Aalert%281%29"' in cell.html


def test_set_up_comes_last_and_folded() -> None:
    cells = [
        new_markdown_cell("# Title", metadata={"tags": ["setup"]}),
        new_code_cell("a = 1  # x", metadata={"tags": ["parameters"]}),
        new_code_cell("a = 2", metadata={"tags": ["injected-parameters"]}),
        new_markdown_cell("The verdict."),
        html_cell("<p>VERDICT</p>"),
    ]
    text = pages.render(notebook(*cells), pages.Page(title="t"))
    body = text[text.index("<main>") :]
    assert body.index("VERDICT") < body.index('<details class="setup">') < body.index("Title")
    assert body.count("<details") == body.count("</details>") == 4


def test_a_picture_has_the_words_before_it_as_description() -> None:
    cells = [
        new_markdown_cell("## Where the memory went\n\nPredicted (hollow) above *observed*."),
        new_code_cell("plot()", outputs=[new_output("display_data", data={"image/png": PNG})]),
    ]
    images = [
        attrs for tag, attrs in Elements(pages.render(notebook(*cells), pages.Page(title="t"))).found if tag == "img"
    ]
    assert [image["alt"] for image in images] == ["Where the memory went Predicted (hollow) above observed."]


def test_the_repr_of_an_axes_is_not_shown() -> None:
    output = new_output("execute_result", data={"text/plain": "<Axes: xlabel='GiB'>"})
    text = pages.render(notebook(new_code_cell("ax", outputs=[output])), pages.Page(title="t"))
    assert "xlabel" not in text


def test_a_page_that_is_too_large_is_refused_and_not_written(tmp_path: Path) -> None:
    target = tmp_path / "index.html"
    with pytest.raises(SpecbenchError, match=r"at most 1,500,000"):
        pages.write_node(notebook(html_cell("x" * 1_500_000)), target, pages.Page(title="t"))
    assert list(tmp_path.iterdir()) == []


def test_a_page_that_does_not_fit_the_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "index.html.partial").symlink_to("/dev/full")
    with pytest.raises(SpecbenchError, match=r"^index\.html: not written: No space left on device\.\n"):
        pages.write_node(pages.notebook_of([]), tmp_path / "index.html", pages.Page(title="t"))
    assert list(tmp_path.iterdir()) == []


def test_write_reads_a_notebook_file(tmp_path: Path) -> None:
    source = tmp_path / "n.ipynb"
    source.write_text(json.dumps(notebook(new_markdown_cell("Words."))), encoding="utf-8")
    pages.write(source, tmp_path / "n.html", pages.Page(title="A title", links=(("back", "../index.html"),)))
    text = (tmp_path / "n.html").read_text("utf-8")
    assert "<title>A title</title>" in text
    assert '<a href="../index.html">back</a>' in text


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def requested(page: Path, tmp_path: Path) -> tuple[list[str], str]:
    """The addresses that a browser asked for while it showed the page, and the page's text after that."""
    log = tmp_path / "net.json"
    command = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        f"--user-data-dir={tmp_path / 'profile'}",
        f"--log-net-log={log}",
        "--dump-dom",
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    events = json.loads(log.read_text("utf-8"))["events"]
    seen = {str(event.get("params", {}).get("url", "")) for event in events if isinstance(event.get("params"), dict)}
    return sorted(url for url in seen if url), done.stdout


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_browser_requests_nothing_and_runs_nothing(evil_page: str, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    target.write_text(evil_page, encoding="utf-8")
    urls, dom = requested(target, tmp_path)
    assert [url for url in urls if "example.invalid" in url] == []
    assert "Heading" in dom
    # The same address in a page that does ask for it is seen: this test can fail.
    other = tmp_path / "other.html"
    other.write_text('<img src="http://example.invalid/x.png">', encoding="utf-8")
    urls, _ = requested(other, tmp_path)
    assert [url for url in urls if "example.invalid" in url] != []
