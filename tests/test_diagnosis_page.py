"""`diagnose --html`: one file made of the notebook, in which text of a log is text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specbench import show
from specbench.cli import app
from specbench.studies.opened import opened

from .test_pages import CHROMIUM, Elements, requested

LOG = Path(__file__).parent / "records" / "h200-tp2_dflash-32-full-card" / "server.log"
#: Of a page, of MathJax, of Markdown, of templates, of a terminal.
EVIL = (
    '<script>fetch("http://example.invalid/a")</script><img src=http://example.invalid/x.png onerror=alert(1)>'
    "{{7*7}}${7*7}$x^2$\\(x\\)[here](http://example.invalid/b)"
)


SECRET = "HF_TOKEN=hf_abcdefghijklmnopqrst /home/ada/models"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real log whose model's path and flags, and whose last lines, are hostile: it served, and died."""
    text = LOG.read_text("utf-8")
    args = re.sub(r"model_path='[^']*'", lambda _: f"model_path={EVIL!r}", text, count=1)
    args = re.sub(r"served_model_name='[^']*'", lambda _: f"served_model_name={EVIL!r}", args, count=1)
    assert args.count("example.invalid/a") == 2
    stamp = "[2026-11-29 23:58:50 TP0] "
    crash = [
        f"{stamp}Scheduler hit an exception: Traceback (most recent call last):",
        '  File "/srv/sglang/srt/managers/scheduler.py", line 100, in run_scheduler_process',
        "    scheduler.event_loop_overlap()",
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. {SECRET} {EVIL}",
        f"{stamp}max_total_num_tokens={EVIL}",
    ]
    file = tmp_path_factory.mktemp("hostile") / "server.log"
    file.write_text("\n".join([args.rstrip("\n"), *crash, ""]), "utf-8")
    return file


@pytest.fixture(scope="module")
def page(log: Path) -> Path:
    """From a paste, as the command makes it."""
    target = log.parent / "folder" / "page.html"
    done = CliRunner().invoke(app, ["diagnose", "-", "--html", str(target)], input=log.read_bytes())
    assert done.exit_code == 0, done.output
    assert done.output.rstrip().endswith(f"page: {target}")
    return target


class Text(HTMLParser):
    """What a reader sees: the text without elements."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.feed(html)

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def inert(html: str) -> bool:
    """No element that runs or asks for anything."""
    found = Elements(html).found
    tags = {tag for tag, _ in found} & {"script", "iframe", "object", "embed", "link", "base", "form", "svg", "video"}
    handlers = [name for _, attributes in found for name in attributes if name.startswith("on")]
    addresses = [
        value
        for _, attributes in found
        for name, value in attributes.items()
        if name in ("src", "href", "srcset") and value and not value.startswith("data:image/png;base64,")
    ]
    return not tags and not handlers and not [one for one in addresses if re.match(r"[a-z+.-]+:|//", one)]


def test_the_notebook_shows_a_hostile_log_as_text(log: Path) -> None:
    this = opened(log)
    shown = [
        show.overview(this),
        show.findings(this),
        show.ledger(this),
        show.reconciliation(this),
        show.latency(this),
        show.to_send(this),
    ]
    for part in shown:
        assert inert(part._repr_html_())
        assert part.html == "" or "mathjax_ignore" in part._repr_html_()
    assert any(EVIL in "".join(Text(part.html).parts) for part in shown)


@pytest.mark.slow
def test_a_page_is_one_inert_file(page: Path) -> None:
    html = page.read_text("utf-8")
    assert inert(html)
    assert "default-src 'none'" in html
    text = "".join(Text(html).parts)
    assert text.count(EVIL) >= 2
    for heading in ("Causes and remedies", "Where the card's memory went", "What happened when", "What to send"):
        assert heading in text
    assert html.count("data:image/png;base64,") >= 3
    assert sorted(file.name for file in page.parent.iterdir()) == ["page.html"]


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_browser_asks_for_nothing_and_runs_nothing(page: Path, tmp_path: Path) -> None:
    urls, dom = requested(page, tmp_path)
    assert [url for url in urls if "example.invalid" in url] == []
    assert inert(dom)
    assert "".join(Text(dom).parts).count(EVIL) >= 2  # as it is, neither 49 nor a formula


def test_a_page_that_cannot_be_written_is_said_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "page.html").mkdir()
    done = CliRunner().invoke(app, ["diagnose", str(LOG), "--html", str(tmp_path / "page.html")])
    assert done.exit_code != 0


def test_a_page_holds_no_secret_and_no_home_folder_of_the_log(page: Path) -> None:
    """Pages are passed on. The terminal of who has the log shows its lines as they are."""
    text = page.read_text("utf-8")
    assert "hf_abcdefghijklmnopqrst" not in text and "/home/ada" not in text
    assert "HF_TOKEN=[removed by specbench] ~/models" in text
