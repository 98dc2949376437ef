"""What must fit outside the budget: estimates against what recorded and public starts logged, and their alarm."""

from __future__ import annotations

from typing import Any

import pytest

from specbench.budget.outside import (
    Captured,
    activations_of,
    draft_graphs,
    estimate,
    graphs_of,
    prefill_graphs,
    target_graphs,
)
from specbench.budget.predict import predict
from specbench.configuration import yamltext
from specbench.configuration.config import RunConfig
from specbench.engines.sglang.sizing.fraction import prefill_sizes
from specbench.engines.sglang.sizing.graph_sizes import captured_sizes, decode_sizes
from specbench.paths import DATA
from specbench.units import GIB, Interval

TABLE: dict[str, Any] = dict(yamltext.written((DATA / "outside.yaml").read_text(encoding="utf-8")))
ROUNDING = round(0.005 * GIB)
LIKELY = "Likely out of memory"


def captured_up_to(requests: int, *, speculates: bool) -> tuple[int, ...]:
    """By the engine's lists, of batches up to 512."""
    sizes = decode_sizes("0.5.16", 512, speculates=speculates, padded=True)
    return captured_sizes("0.5.16", sizes, requests, width=1, ranks=1)


def captured(row: dict[str, Any], **more: Any) -> Captured:
    """A row of data/outside.yaml; recorded ones are of Qwen3.6-27B, whose draft reads five layers."""
    sizes = row.get("sizes") or (
        captured_up_to(row["requests"], speculates=row["family"] != "none") if "requests" in row else ()
    )
    return Captured(
        family=row["family"],
        before_0_5_14=row["before_0_5_14"],
        tp=row["tp"],
        width=row["width"],
        sizes=tuple(sizes),
        hidden=row.get("hidden", 5120),
        vocabulary=row.get("vocabulary", 248_320),
        read=row.get("read", 5 if row["family"] == "dflash" else 0),
        prefill=tuple(prefill_sizes(row["prefill_largest"], "0.5.16")) if "prefill_largest" in row else (),
        **more,
    )


def test_an_estimate_by_hand() -> None:
    """DFLASH 16 on two GPUs, batches of 1 to 8: 16 × 36 = 576 tokens. The target keeps 576 × (248,320 × 2 + 5 × 5,120 ×
    2) B = 315,555,840 B = 0.2939 GiB and 0.12; the draft 0.42 × 576 × 248,320 × 2 / 2 B = 60,073,574 B = 0.0559 and
    0.06. Logged: 0.43 and 0.12. A prefill of 8,192 tokens: 8,192 × 5,120 × 2 × 34 B = 2.6563 GiB, and 8 × 16 × 248,320
    × 4 × 2 B = 0.2368 of logits."""
    found = captured({"family": "dflash", "before_0_5_14": False, "tp": 2, "width": 16, "sizes": range(1, 9)})
    target, draft = target_graphs(found), draft_graphs(found)
    assert target is not None and draft is not None and prefill_graphs(found) is None
    assert target.point == 315_555_840 + round(0.12 * GIB)
    assert draft.point == 124_498_084  # 64,424,509.44 + 60,073,574.4
    assert graphs_of(found).bytes.point == target.point + draft.point
    assert round(graphs_of(found).bytes.point / GIB, 2) == 0.53
    assert round(activations_of(found, 8192, 8).bytes.point / GIB, 4) == round(2.65625 + 0.23682, 4)


@pytest.mark.parametrize("row", TABLE["recorded"], ids=lambda row: row["record"])
def test_recorded_graphs_lie_within_the_interval(row: dict[str, Any]) -> None:
    found = captured(row)
    for name, size in (("target", target_graphs(found)), ("draft", draft_graphs(found))):
        if size is None:
            assert row[name] == 0.0
        else:
            assert size.contains(round(row[name] * GIB), slop=ROUNDING)


def test_how_well_the_estimate_fits() -> None:
    """Of target and draft together, GiB: 0.10 off at most, 0.03 in the mean."""
    off = [abs(graphs_of(captured(row)).bytes.point / GIB - row["target"] - row["draft"]) for row in TABLE["recorded"]]
    assert len(off) == 22
    assert max(off) < 0.11
    assert sum(off) / len(off) < 0.035


@pytest.mark.parametrize("row", TABLE["peaks"], ids=lambda row: row["record"])
def test_recorded_peaks_lie_within_the_interval(row: dict[str, Any]) -> None:
    plain = captured({"family": "none", "before_0_5_14": False, "tp": 1, "width": 1, "sizes": [1]})
    assert activations_of(plain, row["tokens"], 1).bytes.contains(round(row["rise"] * GIB), slop=ROUNDING)


@pytest.mark.parametrize("row", TABLE["public"], ids=lambda row: row.get("case") or row["report"])
def test_what_others_logged_lies_within_the_wider_interval_or_says_why_not(row: dict[str, Any]) -> None:
    found = captured(row, beyond=("this model",))
    sizes = {"target": target_graphs(found), "draft": draft_graphs(found), "prefill": prefill_graphs(found)}
    for name, size in sizes.items():
        if name in row:
            assert size is not None
            assert size.contains(round(row[name] * GIB), slop=ROUNDING) == ("beyond" not in row)


# ── the alarm ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_case_of_64_requests_with_16_draft_tokens() -> None:
    """Public case dflash-b16-oom-48gb-intermediate: 14.77 GiB were free when its pools stood, graphs took 12.15, and a
    further 970 MiB failed: 64 × 16 × 248,320 × 4 B, the logits of a full batch."""
    row = next(row for row in TABLE["public"] if row.get("case") == "dflash-b16-oom-48gb-intermediate")
    found = estimate(captured(row), Interval.exact(round(14.77 * GIB)), chunk=8192, requests=64)
    assert found.graphs.bytes.contains(round((6.13 + 2.17 + 3.85) * GIB))
    assert found.warning == (
        "Likely out of memory at a full prefill: 14.77 GiB are free outside the budget, less 11.57 GiB for CUDA graphs "
        "(estimated), less 4.02 GiB for a prefill of 8,192 tokens (estimated) = -0.82 GiB."
    )


def test_the_case_of_two_cards_with_half_a_gib_left() -> None:
    """Public case glm-air-2x3090-tail: 0.49 GiB free after the pools, and the first prefill graph found 0.08."""
    row = {"family": "none", "before_0_5_14": True, "tp": 2, "width": 1, "sizes": [1, 2], "prefill_largest": 2048}
    found = estimate(
        captured(row | {"hidden": 4096, "vocabulary": 151_552}),
        Interval.exact(round(0.49 * GIB)),
        chunk=2048,
        requests=2,
    )
    assert found.warning is not None and found.warning.startswith(f"{LIKELY} while graphs are captured: 0.49 GiB are")


def config(**memory: Any) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "outside",
            "engine": {"version": "0.5.16", "args": {"disable-prefill-cuda-graph": True}},
            "model": "Qwen/Qwen3.6-27B",
            "gpu": {"name": "h200"},
            "memory": {"mem_fraction_static": 0.9, "max_running_requests": 8, "context_length": 32768} | memory,
        }
    )


def test_a_fraction_that_leaves_too_little_is_warned_of_and_one_that_leaves_enough_is_not() -> None:
    """139.19 × (1 - 0.985) = 2.09 GiB stay outside, of which the request table and graphs leave less than a prefill of
    8,192 tokens takes (2.66)."""
    fine, tight = predict(config()), predict(config(mem_fraction_static=0.985))
    assert not [text for text in fine.warnings if text.startswith(LIKELY)]
    (warning,) = [text for text in tight.warnings if text.startswith(LIKELY)]
    assert "at a full prefill" in warning and "for a prefill of 8,192 tokens (estimated)" in warning
    assert tight.verdict == "serves"  # a warning, no refusal


def test_the_term_says_that_it_is_an_estimate_and_on_what_it_rests() -> None:
    graphs = predict(config()).terms["graphs"]
    assert graphs.estimated and graphs.bytes is not None
    assert graphs.formula.startswith("estimated: ")
    assert graphs.formula.endswith("from recordings of this model and card")
    other = predict(
        config().replace({"gpu.name": "h100", "memory.max_running_requests": 24, "memory.max_mamba_cache_size": 130})
    ).terms["graphs"]
    assert other.formula.endswith("widened, as not recorded: this card, a batch of 24")
    assert other.bytes is not None and other.bytes.high > 2 * other.bytes.point
    # of the EAGLE family NEXTN alone was recorded
    drafts = {"speculative.algorithm": "STANDALONE", "speculative.draft_model_path": "Qwen/Qwen3.5-9B"}
    unlike = predict(config().replace(drafts)).terms["graphs"]
    assert unlike.formula.endswith("widened, as not recorded: this algorithm")


def test_without_graphs_none_are_captured() -> None:
    off = predict(config().replace({"engine.args": {"disable-cuda-graph": True}})).terms["graphs"]
    assert off.bytes == Interval.exact(0) and not off.estimated


def test_with_prefill_graphs_the_estimate_grows_and_says_that_none_was_recorded() -> None:
    """58 sizes up to 8,192, together 95,328 tokens: 95,328 × 5,120 × 2 B = 0.909 GiB and 0.5."""
    sizes = prefill_sizes(8192, "0.5.16")
    assert (len(sizes), sum(sizes)) == (58, 95_328)
    without, with_them = predict(config()), predict(config().replace({"engine.args": {}}))
    first, second = without.terms["graphs"], with_them.terms["graphs"]
    assert first.bytes is not None and second.bytes is not None
    assert second.bytes.point - first.bytes.point == 95_328 * 5_120 * 2 + round(0.5 * GIB)
    assert "of prefill graphs from public logs" in second.formula
