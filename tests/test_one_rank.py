"""One rank of four and of eight, started alone on an H200: what it loads and allocates is what the formulas say.

How that was done, and what it cannot show, is in tests/logs/sglang/one_rank/README.md. Figures are literals that the
engine logged; a prediction rests on the free memory of the same log.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from specbench.budget.predict import predict
from specbench.configuration.config import RunConfig
from specbench.diagnose.diagnosis import Diagnosis, of_path
from specbench.engines.contract import RankPools
from specbench.params import load_campaign
from specbench.terms import Limit
from specbench.units import GIB, Interval
from tests.recorded_campaign import near, share_of

LOGS = Path(__file__).parent / "logs" / "sglang" / "one_rank"

#: log -> running requests, state slots, tokens; then the GiB of weights, and of the draft's
LOGGED: dict[str, tuple[int, int, int, float, float | None]] = {
    "0.5.12-tp4-dflash-4": (4, 508, 1_821_837, 13.05, 1.13),
    "0.5.12-tp4-dflash-8-full-card": (8, 974, 3_487_891, 13.05, 1.14),
    "0.5.12-tp8-dflash-4": (4, 1155, 2_068_262, 6.79, 0.75),
    "0.5.12-tp8-dflash-8": (8, 1134, 2_029_791, 6.79, 0.75),
    "0.5.12-tp8-dflash-8-full-card": (8, 2108, 3_772_794, 6.79, 0.75),
    "0.5.16-tp4-dflash-4": (4, 123, 2_453_241, 13.05, 1.13),
    "0.5.16-tp4-dflash-8": (8, 123, 2_338_707, 13.05, 1.13),
    "0.5.16-tp4-dflash-32": (24, 123, 1_880_532, 13.05, 1.13),
    "0.5.16-tp4-dflash-32-full-card": (32, 239, 4_058_444, 13.05, 1.13),
    "0.5.16-tp4-nextn-8": (8, 286, 2_891_936, 13.05, 1.46),
    "0.5.16-tp4-nextn-8-full-card": (8, 557, 5_687_029, 13.05, 1.46),
    "0.5.16-tp4-no-speculation-8": (8, 529, 2_492_169, 13.05, None),
    "0.5.16-tp4-no-speculation-8-full-card": (8, 1016, 4_779_871, 13.05, None),
    "0.5.16-tp8-dflash-4": (4, 276, 2_816_905, 6.79, 0.75),
    "0.5.16-tp8-dflash-8": (8, 276, 2_759_634, 6.79, 0.75),
    "0.5.16-tp8-dflash-32": (32, 276, 2_416_009, 6.79, 0.75),
    "0.5.16-tp8-dflash-32-full-card": (32, 508, 4_823_004, 6.79, 0.75),
    "0.5.16-tp8-nextn-8": (8, 645, 3_299_077, 6.79, 0.79),
    "0.5.16-tp8-nextn-8-full-card": (8, 1186, 6_095_348, 6.79, 0.79),
    "0.5.16-tp8-no-speculation-8": (8, 1176, 2_765_098, 6.79, None),
    "0.5.16-tp8-no-speculation-8-full-card": (8, 2150, 5_052_800, 6.79, None),
}

WIDTH = {"dflash": 16, "nextn": 4}


def shape(name: str) -> tuple[int, str]:
    """Ranks, and what speculates."""
    _, ranks, algorithm, *_ = name.split("-")
    return int(ranks.removeprefix("tp")), algorithm


@functools.cache
def diagnosed(name: str) -> Diagnosis:
    return of_path(LOGS / f"{name}.log.gz")


def pools(name: str, role: str = "target") -> RankPools:
    (found,) = [one for one in diagnosed(name).pools.ranks if one.role == role]
    assert found.rank == "TP0"
    return found


def test_every_log_has_its_row() -> None:
    assert {file.name.removesuffix(".log.gz") for file in LOGS.glob("*.gz")} == set(LOGGED)


@pytest.mark.parametrize("name", LOGGED)
def test_slots_and_requests_are_predicted_and_tokens_are_inside(name: str) -> None:
    requests, slots, tokens, _, _ = LOGGED[name]
    assert (pools(name).state_slots, pools(name).kv_tokens) == (slots, tokens)
    budget = diagnosed(name).budgets["measured"]

    def predicted(limit: Limit) -> Interval:
        value = budget.limits[limit].value
        assert value is not None
        return value

    assert predicted("running_requests") == Interval.exact(requests)
    assert diagnosed(name).resolved["running_requests"] == requests
    assert predicted("state_slots").contains(slots)
    assert predicted("state_slots").high - predicted("state_slots").low <= max(2, 0.005 * slots)
    assert predicted("kv_tokens").contains(tokens)
    # the log leaves open what was free to 0.1 GiB: at most 0.5 % of slots and tokens
    assert predicted("kv_tokens").high - predicted("kv_tokens").low <= 0.005 * tokens


@pytest.mark.parametrize("name", LOGGED)
def test_no_figure_of_the_log_is_off(name: str) -> None:
    measured = [row for row in diagnosed(name).reconciliation.rows if row.basis == "measured"]
    assert [row for row in measured if row.verdict == "off"] == []
    assert len([row for row in measured if row.verdict in ("match", "inside")]) >= 10


@pytest.mark.parametrize("name", LOGGED)
def test_a_rank_has_its_share_of_the_state_and_one_kv_head(name: str) -> None:
    """One slot more than logged is kept for padding, and one page of one token; scratch of one request more."""
    requests, slots, tokens, _, _ = LOGGED[name]
    ranks, algorithm = shape(name)
    share = share_of(ranks)
    assert (share.ssm, share.conv, share.k) == {4: (37_748_736, 737_280, 8_192), 8: (18_874_368, 368_640, 8_192)}[ranks]
    own = pools(name)
    near(own.state_ssm, (slots + 1) * share.ssm)
    near(own.state_conv, (slots + 1) * share.conv)
    near(own.k, (tokens + 1) * share.k)
    near(own.v, (tokens + 1) * share.k)
    if algorithm in WIDTH:
        of_draft = {"dflash": share.k_dflash, "nextn": share.k_nextn}[algorithm]
        assert of_draft == {"dflash": {4: 2_560, 8: 1_280}, "nextn": {4: 512, 8: 512}}[algorithm][ranks]
        near(pools(name, "draft").k, (tokens + 1) * of_draft)
        near(own.scratch_ssm, (requests + 1) * WIDTH[algorithm] * share.ssm)


@pytest.mark.parametrize("name", LOGGED)
def test_a_rank_loads_its_share_of_the_weights(name: str) -> None:
    *_, weights, draft = LOGGED[name]
    budget = diagnosed(name).budgets["config"]
    shaped = budget.terms["weights"].bytes
    assert shaped is not None
    assert shaped.low / GIB - 0.01 <= weights <= shaped.high / GIB + 0.01
    assert shaped.point / GIB == pytest.approx(weights, abs=0.01)
    own = budget.terms["draft_weights"].bytes
    assert own is not None
    if draft is None:
        assert own == Interval.exact(0)
    else:
        assert own.point / GIB == pytest.approx(draft, abs=0.02)  # PyTorch's blocks of 2 MiB


@pytest.mark.parametrize("name", LOGGED)
def test_graphs_are_inside_their_estimate(name: str) -> None:
    (row,) = diagnosed(name).reconciliation.of("graphs", "measured")
    assert row.verdict == "estimated" and row.predicted is not None and row.observed is not None
    assert row.predicted.low <= row.observed <= row.predicted.high, (row.predicted, row.observed)


def test_eight_ranks_hold_no_less_kv_of_a_token_than_four() -> None:
    """Only the draft's heads go on halving: 16,384 + 5,120 = 21,504 B with four ranks, 16,384 + 2,560 with eight."""
    of_a_token = {}
    for ranks in (4, 8):
        name = f"0.5.16-tp{ranks}-dflash-8"
        tokens = LOGGED[name][2]
        sizes = [pools(name).kv, pools(name, "draft").kv]
        of_a_token[ranks] = [round(size.bytes / tokens) for size in sizes if size is not None]
    assert of_a_token[4] == pytest.approx([16_384, 5_120], abs=5)
    assert of_a_token[8] == pytest.approx([16_384, 2_560], abs=5)


@pytest.mark.parametrize("ranks", [4, 8])
@pytest.mark.parametrize("asked", [4, 8, 32])
def test_the_campaign_on_all_cards_expects_what_one_rank_alone_came_to(ranks: int, asked: int) -> None:
    """The same budget per card, from the configuration alone; what is read late differs by a few tokens in 1,000."""
    config = RunConfig.model_validate(
        {
            "name": f"dflash-{asked}",
            "engine": {"version": "0.5.16"},
            "model": "Qwen/Qwen3.6-27B",
            "gpu": {"name": "rtx-pro-6000", "count": ranks},
            "parallel": {"tp_size": ranks},
            "speculative": {
                "algorithm": "DFLASH",
                "draft_model_path": "z-lab/Qwen3.6-27B-DFlash",
                "num_draft_tokens": 16,
            },
            "memory": {
                "mem_fraction_static": 0.75,
                "mamba_full_memory_ratio": 0.5,
                "max_running_requests": asked,
                "context_length": 32768,
            },
        }
    )
    limits = predict(config).limits
    requests, slots, tokens, _, _ = LOGGED[f"0.5.16-tp{ranks}-dflash-{asked}"]
    running, state, kv = (limits[limit].value for limit in ("running_requests", "state_slots", "kv_tokens"))
    assert running is not None and state is not None and kv is not None
    assert running.point == requests
    assert abs(state.point - slots) <= 1
    assert kv.contains(tokens) and kv.point == pytest.approx(tokens, rel=0.005)


def test_the_ranks_that_are_not_in_a_log_are_asked_for() -> None:
    """A log of one node of eight; the log of all four ranks of a server lacks none."""
    (asked,) = [one for one in diagnosed("0.5.16-tp8-dflash-8").questions if one.missing == "the other ranks"]
    assert asked.why.startswith("1 rank of 8 in this log (TP0): ")
    whole = of_path(LOGS.parents[2] / "records" / "tp4_dflash_r8" / "server.log")
    assert {own.rank for own in whole.pools.ranks} == {"TP0", "TP1", "TP2", "TP3"}
    assert [one for one in whole.questions if one.missing == "the other ranks"] == []


@pytest.mark.parametrize("ranks", [4, 8])
def test_the_table_of_the_docs_is_what_was_logged_and_what_the_campaigns_predict(ranks: int) -> None:
    text = (
        (LOGS.parents[3] / "docs" / "h200.md")
        .read_text(encoding="utf-8")
        .partition("### One rank of them")[2]
        .partition("\n### ")[0]
    )
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.split("\n") if "(0.5.1" in line]
    runs = {run.name: run for run in load_campaign(LOGS.parents[3] / "params" / f"h200-tp{ranks}.yaml").runs}
    for start, *cells in rows:
        predicted, logged = cells[:2] if ranks == 4 else cells[2:]
        words, version = start.rstrip(")").split(" (")
        asked = words.rsplit(" ", 1)[1]
        kind = {"D": "dflash", "N": "nextn", "n": "no-speculation"}[words[0]]
        run = {"dflash": f"{'story' if version == '0.5.12' else 'dflash'}-{asked}", "nextn": "nextn-8-no-graphs"}
        limits = predict(runs[run.get(kind, f"no-speculation-{asked}")]).limits
        slots, tokens = limits["state_slots"].value, limits["kv_tokens"].value
        assert slots is not None and tokens is not None
        assert predicted == f"{slots.point:,} / {tokens.point:,}", start
        name = f"{version}-tp{ranks}-{kind}-{asked}"
        if name not in LOGGED:
            assert logged == "not run"
            continue
        _, own, kv, *_ = LOGGED[name]
        assert logged == f"{own:,} / {kv:,}", start
        assert slots.contains(own) and tokens.contains(kv)
        assert abs(slots.point - own) <= 1 and abs(tokens.point - kv) <= 0.0023 * kv
    assert len(rows) == 7


#: GiB of slots that no request can hold, and their share of what state, scratch and KV take together. By the figures
#: of the log: 0.5.12-tp4-dflash-8-full-card has 975 rows of 34.95 GiB for 974 slots, of which 8 × 4 = 32 are held:
#: 942 / 975 × 34.95 = 33.77 GiB of 34.95 + 5.16 + 53.22 = 93.33 GiB, 36 %.
IDLE = {
    "0.5.12-tp4-dflash-4": 17.6,
    "0.5.12-tp4-dflash-8-full-card": 33.8,
    "0.5.12-tp8-dflash-4": 20.4,
    "0.5.12-tp8-dflash-8": 19.7,
    "0.5.12-tp8-dflash-8-full-card": 37.2,
    "0.5.16-tp4-no-speculation-8": 17.5,
    "0.5.16-tp4-no-speculation-8-full-card": 35.0,
    "0.5.16-tp8-no-speculation-8": 20.4,
    "0.5.16-tp8-no-speculation-8-full-card": 37.8,
}


@pytest.mark.parametrize("name", LOGGED)
def test_slots_that_no_request_can_hold_are_told_by_the_memory_they_take(name: str) -> None:
    """Not by their number: of the same share of a card eight ranks have twice as many slots as four."""
    found = [one.cause for one in diagnosed(name).findings if one.id == "slots-beyond-use"]
    assert len(found) == (name in IDLE)
    for cause in found:
        idle = re.search(r"can use the other [\d,]+: ([\d.]+) GiB", cause)
        assert idle is not None and float(idle[1]) == pytest.approx(IDLE[name], abs=0.06)
