"""`predict` against stored answers of SGLang's own sizing code (oracle/README.md; renewed by `make oracle-store`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from oracle.compare.stored import differing, stored

ANSWERS = sorted((Path(__file__).parent / "oracle").glob("*.jsonl.gz"))


@pytest.mark.parametrize("file", ANSWERS, ids=lambda file: file.name.removesuffix(".jsonl.gz"))
def test_predict_says_what_the_engine_said(file: Path) -> None:
    assert differing(file) == []


@pytest.mark.parametrize("file", ANSWERS, ids=lambda file: file.name.removesuffix(".jsonl.gz"))
def test_the_stored_answers_are_of_every_kind(file: Path) -> None:
    """Enough of them, small enough to be read at every change, served and refused."""
    outcomes = [said["refused"] for _, said in stored(file)]
    assert len(outcomes) >= 150
    assert file.stat().st_size < 150_000
    assert {None, "arguments"} < set(outcomes)
