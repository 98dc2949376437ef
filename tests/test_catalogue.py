"""Every finding id is in the catalogue with its words, every rule's is one of them, and the page says the same."""

from __future__ import annotations

import ast
import io
from pathlib import Path
from typing import get_args

from rich.console import Console

from specbench.cli.diagnosis_text import render
from specbench.diagnose.catalogue import KNOWN, FindingId, lost_text, markdown, title
from specbench.diagnose.diagnosis import of_path
from specbench.diagnose.document import to_document

ROOT = Path(__file__).parent.parent
DIAGNOSE = ROOT / "specbench" / "diagnose"


def strings() -> set[str]:
    """Every literal text in the rules. That a rule emits nothing but a `FindingId` is what mypy checks."""
    files = [file for file in DIAGNOSE.glob("*.py") if file.name != "catalogue.py"]
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text("utf-8"))))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_every_id_has_its_words_and_a_rule() -> None:
    assert tuple(KNOWN) == get_args(FindingId)
    assert set(KNOWN) - strings() == set()


def test_titles_are_short_and_their_own() -> None:
    titles = [kind.title for kind in KNOWN.values()]
    assert len(set(titles)) == len(titles)
    assert [one for one in titles if len(one) > 48 or one.endswith(".")] == []
    assert [one.means for one in KNOWN.values() if not one.means.endswith(".")] == []


def test_the_page_is_made_from_the_catalogue() -> None:
    assert (ROOT / "docs" / "findings.md").read_text(encoding="utf-8") == markdown(), "run `make docs`"


def test_a_loss_says_of_what() -> None:
    assert lost_text("capped-by-state-slots", 0.75) == "Lost: 75% of the requests asked for"
    assert lost_text("memory-taken-by-others", 0.004) == "Lost: less than 1% of the KV tokens that there would be"
    assert lost_text("context-overflow", 0.999) == "Lost: more than 99% of the requests sent"


def test_title_and_share_stand_beside_the_id() -> None:
    found = of_path(ROOT / "tests" / "records" / "dflash_r8" / "server.log")
    first = to_document(found)["findings"][0]
    assert (first["id"], first["title"]) == ("capped-by-state-slots", title("capped-by-state-slots"))
    assert (first["lost"], first["lost_of"]) == (0.875, "of the requests asked for")
    told = [finding for finding in found.findings if finding.lost is not None]
    assert [finding.id for finding in told if not KNOWN[finding.id].lost] == []


def test_a_fix_that_leaves_a_flag_out_says_so() -> None:
    found = of_path(ROOT / "tests" / "logs" / "sglang" / "provoked" / "0.5.16-truncate.log")
    text = Console(width=100, record=True, file=io.StringIO())
    render(found, text)
    lines = [line.strip() for line in text.export_text().splitlines()]
    fix = lines.index("fix: start the server without (it had max_total_tokens 8000)")
    assert lines[fix + 1] == "--max-total-tokens"
    assert "1. costly: Inputs were cut (input-truncated)" in lines
