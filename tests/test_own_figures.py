"""A log's own figures: what a slot, a request and a token take, whatever the model."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from specbench.cli.diagnosis_text import render
from specbench.diagnose.diagnosis import of_path
from specbench.diagnose.document import to_document
from specbench.diagnose.own_figures import OwnFigure
from specbench.units import Interval

TESTS = Path(__file__).parent
RECORDS = TESTS / "records"
CASES = TESTS / "logs" / "sglang" / "cases"


def of(name: str) -> dict[tuple[str, str], OwnFigure]:
    log = RECORDS / name / "server.log"
    found = of_path(log if log.exists() else CASES / f"{name}.log")
    return {(figure.name, figure.role): figure for figure in found.own_figures}


def test_of_a_model_that_is_not_shipped() -> None:
    """Qwen3.5-35B-A3B: a slot has 30 × (32 × 128 × 128 × 4 + 8,192 × 3 × 2) = 64,389,120 B, a token has
    10 × 2 × 2 × 256 × 2 = 20,480 B, of the draft's one layer 2,048 B; scratch for 4 draft tokens."""
    figures = of("q35b_nextn_r16")
    slot = figures["a state slot", "target"]
    assert slot.numbers == "(0.30 GiB + 12.71 GiB) / (216 + 1)"
    # 13.01 × 2^30 / 217 = 64,375,028.5; each size is rounded to 0.01: ± 0.01 × 2^30 / 217 = 49,481.
    assert slot.value == Interval(64_325_547, 64_375_028, 64_424_510) and slot.value.contains(64_389_120)
    assert figures["a KV token", "target"].value.contains(20_480)
    assert figures["a KV token", "draft"].value.contains(2_048)
    assert figures["draft tokens", "target"].value == Interval.exact(4)
    # (3.98 + 0.05) × 2^30 / 17 = 254,539,973.7
    assert figures["scratch of a running request", "target"].value.point == 254_539_974
    assert [figure.line for figure in figures.values()] == [32, 32, 32, 33, 35]


@pytest.mark.parametrize("name", ["0512_dflash_r4", "tp2_dflash_r32_full", "h200-tp2_nextn-8", "tp4_nospec_r8"])
def test_the_predicted_bytes_lie_within(name: str) -> None:
    figures, predicted = of(name), of_path(RECORDS / name).budgets["measured"].details
    assert figures["a state slot", "target"].value.contains(predicted["slot_bytes"].point)
    assert figures["a KV token", "target"].value.contains(predicted["cell_bytes"].point)
    if ("draft tokens", "target") in figures:
        assert figures["draft tokens", "target"].value == predicted["draft_tokens"]


def test_a_page_that_is_not_known_widens_the_interval() -> None:
    """15.03 GiB and 1,167,552 tokens; with a page of up to 256 tokens there are as many more rows."""
    token = of("b300-tp8-ratio-skill")["a KV token", "target"].value
    rounding = 2**30 // 200  # one size, half of 0.01
    assert token.low == (round(15.03 * 2**30) - rounding) // (1_167_552 + 257)
    assert token.high == -(-(round(15.03 * 2**30) + rounding) // 1_167_553)


def test_they_are_printed_where_nothing_is_predicted() -> None:
    found = of_path(RECORDS / "q35b_nextn_r16" / "server.log")
    console = Console(width=200, file=io.StringIO())
    render(found, console)
    text = console.file.getvalue()
    assert "nothing is predicted from a configuration; this log's own figures (its rounding in brackets):" in text
    assert "a KV token of the target: 20,479 B (20,472 to 20,486): 32.46 GiB / (1,701,906 + 1)" in text
    assert to_document(found)["own_figures"][0]["value"] == {"low": 64325547, "point": 64375028, "high": 64424510}


def test_a_log_without_pools_has_none() -> None:
    assert of("eagle3-speedup-below-paper") == {}
