"""A server of eight ranks, shown: what is equal is said once, and where ranks differ, with the one that decides."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from specbench import show
from specbench.cli.diagnosis_text import render
from specbench.diagnose.diagnosis import of_record
from specbench.diagnose.document import to_document
from specbench.diagnose.types import Diagnosis
from specbench.judging.ledger_ranks import others
from specbench.rank_names import in_order, in_words, numbers_in_words
from specbench.records.record import RunRecord
from specbench.studies.study import study
from specbench.units import GIB
from tests.many_ranks import COMMUNICATION, PRE, RANKS, SLOTS, TOKENS, record


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("eight"))


@pytest.fixture(scope="module")
def seen(folder: Path) -> Diagnosis:
    return of_record(RunRecord.open(folder))


def printed(seen: Diagnosis, *, everything: bool = False) -> str:
    console = Console(width=100, file=io.StringIO())
    render(seen, console, everything=everything)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_pools_are_predicted_from_the_card_with_least(seen: Diagnosis) -> None:
    """TP5: 139.29 - 1.32 = 137.97 GiB before loading; what NVML saw of it decides, whatever TP0's card has."""
    assert seen.pools.deciding_rank == "TP5"
    budget = seen.budgets["measured"]
    assert (budget.free.pre.point, budget.free.pre.is_exact) == (PRE[5], True)
    tokens, slots = budget.limits["kv_tokens"].value, budget.limits["state_slots"].value
    assert tokens is not None and slots is not None
    assert (tokens.point, slots.point) == (TOKENS, SLOTS)
    assert {row.verdict for row in seen.reconciliation.rows} == {"match", "estimated", "not logged"}


def test_no_figure_of_a_rank_is_the_sum_of_all(seen: Diagnosis) -> None:
    """(503 + 1) slots × 18,874,368 B = 8.86 GiB on each of eight; 5,116,748 tokens × 16,384 B = 78.08 GiB."""
    document = to_document(seen)
    assert document["free"]["deciding_rank"] == "TP5"
    targets = [pools for pools in document["pools"] if pools["role"] == "target"]
    assert [pools["rank"] for pools in targets] == [f"TP{rank}" for rank in range(RANKS)]
    assert {pools["state_slots"] for pools in targets} == {503}
    assert {round(pools["ssm_bytes"] / GIB, 2) for pools in targets} == {8.86}
    assert {round(pools["kv_bytes"] / GIB, 2) for pools in targets} == {78.08}
    sizes = document["free"]["communication_bytes"]
    assert [round(sizes[f"TP{rank}"] / GIB, 2) for rank in range(RANKS)] == list(COMMUNICATION)
    json.dumps(document)


def test_the_ledger_is_the_deciding_ranks_and_others_are_told_by_what_differs(seen: Diagnosis) -> None:
    assert seen.ledgers[0].rank == "TP5"
    groups = {in_words(group.ranks): sorted(key[0] for key in group.differs) for group in others(seen.ledgers)}
    assert list(groups) == ["TP0", "TP1 to TP4, TP6", "TP7"]
    assert all(differs == ["communication", "left"] for differs in groups.values())
    for everything in (False, True):
        text = printed(seen, everything=everything)
        assert text.count("where the card's memory of") == 1
        assert "TP7: communication 1.06 instead of 1.32; left free 28.00 instead of 27.74" in text
        assert "TP1 to TP4, TP6: communication 1.30 instead of 1.32; left free 27.76 instead of 27.74" in text
    assert "free before loading 137.97 (TP5) to 138.23 (TP7)" in " ".join(text.split())


def test_tables_of_a_page_have_a_row_for_what_is_equal(folder: Path) -> None:
    one = study(folder)
    ledger = show.ledger(one).text
    assert ledger.count("the entries add up to the last line") == 1
    (row,) = [line for line in ledger.splitlines() if line.startswith("TP1 to TP4, TP6")]
    assert [int(cell) / GIB for cell in row.split()[4:]] == pytest.approx([1.30, 27.76])
    lines = show.four_sides(one).text.splitlines()
    named = {
        name: [line for line in lines if line.startswith(f"{name} ")] for name in ("weights", "kv", "before start")
    }
    assert all(len(rows) == 1 and "TP0 to TP7" in rows[0] for rows in named.values())
    free = [re.split(" {2,}", line)[1] for line in lines if line.startswith("free before loading")]
    assert free == ["TP5", "TP0 to TP4, TP6", "TP7"]
    assert any("TP5 has least free before loading (137.97 GiB, recorded)" in line for line in lines)
    assert max(map(len, lines)) < 400  # eight sources in one cell are none


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        (["TP7", "TP0", "TP1", "TP2", "TP3", "TP4", "TP6"], "TP0 to TP4, TP6, TP7"),
        (["TP10", "TP9", "TP11", "TP2"], "TP2, TP9 to TP11"),
        (["DP0 TP6", "DP0 TP7", "DP1 TP0", "DP1 TP1", "DP1 TP2"], "DP0 TP6, DP0 TP7, DP1 TP0 to DP1 TP2"),
        (["TP0 EP0", "TP1 EP1", "TP2 EP2"], "TP0 EP0 to TP2 EP2"),
        (["PP0 TP0", "PP0 TP1", "PP1 TP0"], "PP0 TP0, PP0 TP1, PP1 TP0"),
        (["²", "node TP1"], "node TP1, ²"),
        ([], ""),
    ],
)
def test_ranks_in_words(ranks: list[str], words: str) -> None:
    assert in_words(ranks) == words


def test_numbers_in_words() -> None:
    assert numbers_in_words(range(8)) == "0 to 7"
    assert numbers_in_words([31, 30]) == "30 and 31"
    assert numbers_in_words([34, 24, 30, 31, 32]) == "24, 30 to 32 and 34"
    assert in_order(["TP10", "TP2", ""]) == ["", "TP2", "TP10"]
