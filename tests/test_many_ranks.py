# ruff: noqa: E501  (lines of logs)
"""A server of eight ranks, shown: what is equal is said once, and where ranks differ, with the one that decides."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import random
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from rich.console import Console

from specbench import frames, plots, show
from specbench.cli.diagnosis_text import render
from specbench.diagnose.diagnosis import of_path, of_record
from specbench.diagnose.document import to_document
from specbench.diagnose.types import Diagnosis
from specbench.engines.sglang import logs
from specbench.judging.ledger_ranks import others
from specbench.rank_names import in_order, in_words, is_first, numbers, numbers_in_words
from specbench.reading.pools import report
from specbench.reading.rank_gpus import UnknownError, gpu_of_rank
from specbench.records.record import RunRecord
from specbench.show.gpu_use import gpu_use
from specbench.studies.study import study
from specbench.units import GIB
from tests.many_ranks import COMMUNICATION, PRE, RANKS, SLOTS, TOKENS, TOTAL, record


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("eight"))


@pytest.fixture(scope="module")
def seen(folder: Path) -> Diagnosis:
    return of_record(RunRecord.open(folder))


def printed(seen: Diagnosis, *, everything: bool = False) -> str:
    out = io.StringIO()
    render(seen, Console(width=100, file=out), everything=everything)
    return out.getvalue()


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
        assert "shown: TP5; no rank has less free before loading, and the least decides the pools of all" in text
        assert text.index("TP1 to TP4, TP6: ") < text.index("TP7: ")
        assert "TP7: communication 1.06 GiB (TP5: 1.32); left free 28.00 GiB (TP5: 27.74)" in text
        assert "TP1 to TP4, TP6: communication 1.30 GiB (TP5: 1.32); left free 27.76 GiB (TP5: 27.74)" in text
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


# ── cards that differ ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        # a program of 4 GiB on one card: the init took as much as elsewhere
        ({5: (133.97, 1.32)}, "TP5 has 133.97 GiB free before loading, every other rank 137.99 GiB or more: 4.02 GiB less, held by something else on that card (a display, another program)."),
        # two cards of eight, which are alike: the least and the next are no difference
        ({5: (133.97, 1.32), 6: (133.99, 1.30)}, "TP5, TP6 have 133.97 GiB free before loading, every other rank 137.99 GiB or more: 4.02 GiB less"),
        # seven contexts of the other ranks
        ({0: (134.49, 1.25)}, "TP0 has 134.49 GiB free before loading, every other rank 137.97 GiB or more: 3.48 GiB less, held by something else on that card (a display, another program, CUDA contexts of the other ranks)."),
        # its own init took more
        ({3: (136.79, 2.50)}, "TP3 has 136.79 GiB free before loading, every other rank 137.97 GiB or more: 1.18 GiB less, taken by its own distributed init: 2.50 GiB, where the others' took 1.32 GiB at most."),
        # 0.35 GiB, not explained by the init, is beyond what four cards differed in
        ({2: (137.64, 1.30)}, "TP2 has 137.64 GiB free before loading, every other rank 137.97 GiB or more: 0.33 GiB less, held by something else"),
        ({}, ""),  # 137.97 to 138.22 GiB by the inits alone: as on four cards
    ],
)  # fmt: skip
def test_cards_that_differ(tmp_path: Path, folder: Path, figures: dict[int, tuple[float, float]], words: str) -> None:
    text = (folder / "server.log").read_text(encoding="utf-8")
    for rank, (free, taken) in figures.items():
        text = re.sub(rf"(TP{rank}\] Load weight begin\. avail mem=)1[\d.]+", rf"\g<1>{free}", text, count=1)
        text = re.sub(
            rf"(TP{rank}\] Init torch distributed ends\. .*mem usage=)[\d.]+", rf"\g<1>{taken}", text, count=1
        )
    log = tmp_path / "server.log"
    log.write_text(text, encoding="utf-8")
    causes = [finding.cause for finding in of_path(log).findings if finding.id == "ranks-disagree"]
    assert len(causes) == (1 if words else 0)
    assert all(words in cause for cause in causes)


def test_nvml_names_the_card_that_others_use(tmp_path: Path, folder: Path) -> None:
    """4 GiB more in use before the start on GPU 5, and as much less free: one finding, with its proof."""
    used = tmp_path / "used"
    shutil.copytree(folder, used)
    rows = gzip.decompress((used / "gpu.csv.gz").read_bytes()).decode()
    held = 644_939_776 + 4 * GIB
    rows = re.sub(r"(?m)^([\d.]+,before,5,)644939776,\d+", rf"\g<1>{held},{TOTAL - held}", rows)
    (used / "gpu.csv.gz").write_bytes(gzip.compress(rows.encode()))
    text = (used / "server.log").read_text(encoding="utf-8")
    (used / "server.log").write_text(
        text.replace("begin. avail mem=137.97", "begin. avail mem=133.97"), encoding="utf-8"
    )
    found = {finding.id: finding for finding in of_path(used).findings}
    assert "memory-taken-by-others" not in found
    cause = found["ranks-disagree"].cause
    assert "TP5 has 133.97 GiB free before loading" in cause
    assert "NVML saw 4.60 GiB in use there before the start, 0.60 GiB elsewhere." in cause


def test_ranks_whose_lines_are_missing_are_not_logged(tmp_path: Path, folder: Path) -> None:
    """TP5 had least, and its line is not there: unknown is not 0, and nobody decides for sure."""
    lines = (folder / "server.log").read_text(encoding="utf-8").split("\n")
    log = tmp_path / "server.log"
    log.write_text("\n".join(line for line in lines if "TP5] Load weight begin" not in line), encoding="utf-8")
    found = of_path(log)
    assert found.pools.deciding_rank is None
    assert "free before loading 137.99 (TP1 to TP4, TP6) to 138.23 (TP7)" in " ".join(
        printed(found, everything=True).split()
    )
    assert "TP5 not logged" in printed(found, everything=True)


# ── which card a rank has ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("rank", "parallel", "gpu"),
    [
        ("TP7", {"tp_size": 8}, 7),
        ("TP7 EP7", {"tp_size": 8}, 7),
        ("PP1 TP0", {"tp_size": 4, "pp_size": 2}, 4),  # the second stage has the second four
        ("DP1 TP2", {"tp_size": 4, "dp_size": 2}, 6),  # so has the second replica
        ("DP1", {"tp_size": 1, "dp_size": 8}, 1),
        ("DP3 TP6", {"tp_size": 8, "dp_size": 4, "enable_dp_attention": True}, 6),  # one server of eight ranks
        ("DP1 PP1 TP1", {"tp_size": 2, "pp_size": 2, "dp_size": 2}, 7),  # (1 × 2 + 1) × 2 + 1
    ],
)
def test_the_card_of_a_rank(folder: Path, rank: str, parallel: dict[str, Any], gpu: int) -> None:
    """SGLang 0.5.16: gpu_id = replica × pp × tp + stage × tp + tp_rank."""
    of = RunRecord.open(folder)
    config = of.config.replace({f"parallel.{name}": value for name, value in parallel.items()})
    assert gpu_of_rank(cast(RunRecord, SimpleNamespace(config=config, env=of.env)), range(RANKS), rank) == gpu


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [
        ("7,6,5,4,3,2,1,0", [7, 6, 5, 4, 3, 2, 1, 0]),
        (",".join(f"GPU-{gpu:08x}" for gpu in (3, 2, 1, 0, 7, 6, 5, 4)), [3, 2, 1, 0, 7, 6, 5, 4]),
        ("MIG-GPU-1", None),
    ],
)
def test_the_order_that_cuda_was_told(folder: Path, visible: str, gpus: list[int] | None) -> None:
    """A record that does not name its GPUs: by the variable, whose UUIDs NVML knows."""
    of = RunRecord.open(folder)
    env = {name: value for name, value in of.env.items() if name != "server_gpus"}
    env["inherited_environment"] = {"CUDA_VISIBLE_DEVICES": visible}
    record = cast(RunRecord, SimpleNamespace(config=of.config, env=env))
    if gpus is None:
        with pytest.raises(UnknownError, match="in another way than by number"):
            gpu_of_rank(record, range(RANKS), "TP0")
    else:
        assert [gpu_of_rank(record, range(RANKS), f"TP{rank}") for rank in range(RANKS)] == gpus


def test_the_rank_that_answers() -> None:
    assert [is_first(rank) for rank in ("", "TP0", "DP0 TP0 EP0", "PP0 TP0", "TP1", "DP1 TP0", "node1.log")] == [
        *[True] * 4,
        *[False] * 3,
    ]
    assert numbers("DP1 PP0 TP3 EP3") == {"DP": 1, "PP": 0, "TP": 3, "EP": 3}


# ── eight cards ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_cards_that_cannot_be_told_apart_are_one_line(folder: Path) -> None:
    """Levels of 137.97 to 138.22 GiB; a card that others use has a line of its own."""
    samples = frames.gpu([study(folder)])
    assert labels(samples) == ["GPU 0 to 7", "card"]
    samples["used_bytes"] = samples["used_bytes"] + samples["gpu"].eq(5).astype("Int64") * 4 * GIB
    assert labels(samples) == ["GPU 0 to 4, 6 and 7", "GPU 5", "card"]


def labels(samples: pd.DataFrame) -> list[str]:
    figure, ax = plt.subplots()
    legend = plots.gpu_memory(samples, ax=ax).get_legend()
    plt.close(figure)
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def test_idle_cards_are_one_row(folder: Path) -> None:
    """Before and after the server 615 MiB were in use on every card."""
    rows = gpu_use(RunRecord.open(folder)).text.splitlines()
    assert [row.split()[:4] for row in rows if "615" in row] == [["0", "to", "7", "615"]]


@pytest.mark.parametrize("seed", range(3))
def test_lines_of_ranks_that_write_at_once(folder: Path, seed: int) -> None:
    """A rank's line is printed before the end of another's: one physical line, two messages; every figure is read."""
    order = random.Random(seed)
    lines = (folder / "server.log").read_text(encoding="utf-8").split("\n")
    ends = ["" if re.match(r"\[2026\S* \S+ TP\d\]", line) and order.random() < 0.25 else "\n" for line in lines]
    torn = "".join(f"{line}{end}" for line, end in zip(lines, ends, strict=True))
    assert torn.count("\n") < len(lines) - 40
    whole, read = report(logs.read(lines)), report(logs.read(torn.split("\n")))
    assert (read.pre, read.post, read.communication) == (whole.pre, whole.post, whole.communication)
    assert [dataclasses.replace(pools, lines={}) for pools in read.ranks] == [
        dataclasses.replace(pools, lines={}) for pools in whole.ranks
    ]
