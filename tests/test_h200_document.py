"""The tables of docs/h200.md that no recording makes: every figure is predicted by the code, or logged in a record."""

from __future__ import annotations

import functools
import re

import pytest

from specbench.budget_types import MemoryBudget
from specbench.configuration.config import RunConfig
from specbench.engines.sglang.logs import read as read_log
from specbench.params import load_run
from specbench.reading.pools import report
from specbench.records.record import RunRecord
from specbench.running.subject import predicted
from specbench.units import GIB
from tests.recorded_campaign import RECORDS, ROOT

TEXT = (ROOT / "docs" / "h200.md").read_text(encoding="utf-8")
WORDS = " ".join(TEXT.split())
PERCENT = WORDS.replace(" %", "%")  # as Python prints it
VERSIONS = ("0.5.12", "0.5.16")
ASKED = (4, 8, 32)
CARDS = (1, 2, 4, 8)


def table(first: str) -> list[list[str]]:
    """The rows of the table whose head begins so, cell by cell."""
    lines = TEXT[TEXT.index(first) :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def of(version: str, cards: int, asked: int, *, full: bool, **more: object) -> RunConfig:
    base = load_run(ROOT / "params" / "h200" / f"{version}.yaml")
    changes: dict[str, object] = {"parallel.tp_size": cards, "gpu.count": cards, "memory.max_running_requests": asked}
    return base.replace(changes | ({"gpu.emulate": None, "memory.mem_fraction_static": 0.88} if full else {}) | more)


@functools.cache
def budget(version: str, cards: int, asked: int, full: bool) -> MemoryBudget:
    found = predicted(of(version, cards, asked, full=full))
    assert found is not None
    return found


CELLS = [
    (version, int(row[0].split(",")[0]), asked, row[0].endswith("full"), cell)
    for row in table("| cards | 0.5.12, 4 asked |")
    for (version, asked), cell in zip([(v, a) for v in VERSIONS for a in ASKED], row[1:], strict=True)
]
#: Of the campaigns on one and on two cards.
RECORDED = {
    **{("0.5.12", 1, asked, False): f"h200_story-{asked}" for asked in (4, 8)},
    **{("0.5.16", 1, asked, False): f"h200_dflash-{asked}" for asked in (4, 8)},
    ("0.5.16", 1, 8, True): "h200_dflash-8-full-card",
    **{("0.5.12", 2, asked, False): f"h200-tp2_story-{asked}" for asked in (4, 8)},
    ("0.5.12", 2, 8, True): "h200-tp2_story-8-full-card",
    **{("0.5.16", 2, asked, False): f"h200-tp2_dflash-{asked}" for asked in ASKED},
    **{("0.5.16", 2, asked, True): f"h200-tp2_dflash-{asked}-full-card" for asked in (8, 32)},
}


def logged(name: str) -> tuple[int | None, int | None, int | None]:
    record = RunRecord.open(RECORDS / name)
    pools = report(read_log(record.log_path, name=name, version=record.config.engine.version))
    return pools.running_requests, pools.state_slots, pools.kv_tokens


def test_the_rule_has_a_cell_for_every_start() -> None:
    assert [cell[:4] for cell in CELLS] == [
        (version, cards, asked, full)
        for full in (False, True)
        for cards in CARDS
        for version in VERSIONS
        for asked in ASKED
    ]
    assert {cell[:4] for cell in CELLS if cell[4].startswith("R ")} == set(RECORDED)


@pytest.mark.parametrize(("version", "cards", "asked", "full", "cell"), CELLS)
def test_a_cell_of_the_rule(version: str, cards: int, asked: int, full: bool, cell: str) -> None:
    found = re.fullmatch(r"([RP]) (\d+|refused) \(([\d,]+)\)", cell)
    assert found is not None
    requests = None if found[2] == "refused" else int(found[2])
    slots = int(found[3].replace(",", ""))
    if found[1] == "R":
        name = RECORDED[version, cards, asked, full]
        config = RunRecord.open(RECORDS / name).config
        assert (config.engine.version, config.parallel.tp_size, config.gpu.emulate is None) == (version, cards, full)
        assert config.memory.max_running_requests == asked
        assert logged(name)[:2] == (requests, slots)
    here = budget(version, cards, asked, full)
    running, state = here.limits["running_requests"].value, here.limits["state_slots"].value
    assert running is not None and state is not None
    assert (here.verdict == "refused", running.point, state.point) == (requests is None, requests or 0, slots)


def test_the_most_that_the_emulated_budget_serves() -> None:
    assert "0.5.12 serves by prediction at most 4, 22, 56 and 126 on one, two, four and eight cards, 0.5.16 at" in WORDS
    for cards, most in zip(CARDS, (4, 22, 56, 126), strict=True):
        assert budget("0.5.12", cards, most, False).verdict == "serves"
        assert budget("0.5.12", cards, most + 1, False).verdict == "capped"
    assert "0.5.16 at most 1, 9, 24 and 55 (slots // 5)" in WORDS
    for cards, most in zip(CARDS, (1, 9, 24, 55), strict=True):
        running = budget("0.5.16", cards, 126, False).limits["running_requests"].value
        assert running is not None and running.point == most


def test_older_starts_on_four_full_cards() -> None:
    assert (
        "488 slots and 1,750,910 tokens (0.5.12, 8 asked), 123 and 2,347,000 (0.5.16), 531 and 2,499,005 (0.5.16 "
        "without speculation)"
    ) in WORDS
    none = {"speculative": {"algorithm": "none"}}
    for name, version, more, told in (
        ("tp4_0512_dflash_r8", "0.5.12", {}, (8, 488, 1_750_910)),
        ("tp4_dflash_r8", "0.5.16", {}, (8, 123, 2_347_000)),
        ("tp4_nospec_r8", "0.5.16", none, (8, 531, 2_499_005)),
    ):
        assert logged(name) == told
        found = predicted(of(version, 4, 8, full=True, **{"memory.mem_fraction_static": 0.5088}, **more))
        assert found is not None
        values = [found.limits[limit].value for limit in ("running_requests", "state_slots", "kv_tokens")]
        requests, slots, tokens = (value.point for value in values if value is not None)
        assert (requests, slots) == told[:2]
        assert tokens - told[2] in (0, 1)


def test_what_a_rank_holds() -> None:
    rows = table("| cards | 1 | 2 | 4 | 8 |")
    assert [row[0] for row in rows] == [
        *("weights of the target", "weights of the draft", "state of a slot"),
        *("KV of a token, target", "KV of a token, draft", "KV of a token, as the solver charges it"),
    ]
    for column, cards in enumerate(CARDS, start=1):
        written = [int(row[column].replace(",", "")) for row in rows]
        for version in VERSIONS:
            found = budget(version, cards, 8, False)
            weights = [found.terms[term].bytes for term in ("weights", "draft_weights")]
            details = [
                found.details[name].point
                for name in ("slot_bytes", "cell_bytes", "draft_cell_bytes", "charged_cell_bytes")
            ]
            assert [size.point for size in weights if size is not None] + details == written


def test_eight_do_not_halve_the_kv_of_four() -> None:
    """The sentences about it, with the figures as predicted; by hand they are in test_h200_tp4_predicted."""
    found = [budget("0.5.12", cards, 8, False) for cards in (4, 8)]
    four, eight = (sum(one.details[name].point for name in ("cell_bytes", "draft_cell_bytes")) for one in found)
    assert f"a token takes {eight:,} instead of {four:,} bytes of a rank, {1 - eight / four:.0%} less" in PERCENT
    assert (
        f"8 × {eight:,} = {8 * eight:,} instead of 4 × {four:,} = {4 * four:,}, {8 * eight / (4 * four) - 1:.0%} more"
    ) in PERCENT
    fewer, more = (value.point for one in found if (value := one.limits["kv_tokens"].value) is not None)
    less, left = (one.left.bytes.point / GIB for one in found if one.left is not None)
    assert (
        f"tokens grow by {more / fewer - 1:.0%} ({fewer:,} to {more:,}): {left:.2f} instead of {less:.2f} GiB are left"
    ) in PERCENT


@pytest.mark.parametrize("cards", [4, 8])
def test_the_story_of_0_5_16_has_its_files(cards: int) -> None:
    """The budget that is emulated, on the card itself: the same slots and requests."""
    story = load_run(ROOT / "params" / "story" / f"tp{cards}-8-0516.yaml")
    assert (story.engine.version, story.gpu.count, story.parallel.tp_size) == ("0.5.16", cards, cards)
    own, emulated = predicted(story), budget("0.5.16", cards, 8, False)
    assert own is not None and own.verdict == "serves"
    for limit in ("state_slots", "running_requests"):
        one, other = own.limits[limit].value, emulated.limits[limit].value
        assert one is not None and other is not None and one.point == other.point


@pytest.mark.parametrize(("cards", "of_story", "full"), [(4, 197, 237), (8, 424, 504)])
def test_a_file_of_the_story_on_h200s_has_another_fraction_than_the_full_rows(
    cards: int, of_story: int, full: int
) -> None:
    file = ROOT / "params" / "story" / f"tp{cards}-8-0516.yaml"
    for fraction, slots in ((0.75, of_story), (0.88, full)):
        found = predicted(load_run(file, ["gpu.name=h200", f"memory.mem_fraction_static={fraction}"]))
        assert found is not None and found.limits["state_slots"].value is not None
        assert found.limits["state_slots"].value.point == slots
    assert load_run(file).memory.mem_fraction_static == 0.75
    assert f"`tp{cards}-8-0516`: {of_story}" in WORDS and "the table's 237 and 504" in WORDS
