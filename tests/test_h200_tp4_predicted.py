"""The campaigns on four and on eight H200s, before any machine ran them: what is predicted, and what SGLang's own
sizing code says of the same starts (tests/oracle/campaigns; `python -m oracle.compare.campaigns`).

Everything here is predicted from the configuration alone. When such machines have run them, their records take this
file's place, as tests/test_h200_tp2_campaign.py has them for two.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from oracle.compare.stored import differing, stored
from specbench.budget_types import MemoryBudget
from specbench.campaign.bill import Clock, bill
from specbench.campaign.fitting import calls
from specbench.configuration.config import RunConfig
from specbench.params import load_campaign
from specbench.records.record import RunRecord
from specbench.running.subject import predicted
from specbench.units import GIB, Interval
from tests.recorded_campaign import Recorded, share_of

ROOT = Path(__file__).parent.parent
CAMPAIGNS = {2: "h200-tp2", 4: "h200-tp4", 8: "h200-tp8"}
MULTICAST_OFF = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}

#: ranks -> name -> state slots, requests at once, tokens
EXPECTED = {
    4: {
        "story-8": (487, 8, 1_748_349),
        "dflash-8": (123, 8, 2_342_902),
        "dflash-32": (123, 24, 1_884_735),
        "no-speculation-8": (530, 8, 2_495_977),
        "dflash-8-full-card": (237, 8, 4_700_593),
        "story-8-full-card": (965, 8, 3_455_024),
        "nextn-8-no-graphs": (287, 8, 2_894_052),
        "story-4": (509, 4, 1_823_517),
        "dflash-4": (123, 4, 2_457_444),
        "dflash-32-full-card": (237, 32, 4_013_343),
        "no-speculation-8-full-card": (1_007, 8, 4_737_759),
        "nextn-8": (287, 8, 2_894_052),
    },
    8: {
        "story-8": (1_135, 8, 2_031_413),
        "dflash-8": (277, 8, 2_760_873),
        "dflash-32": (277, 32, 2_417_248),
        "no-speculation-8": (1_177, 8, 2_767_236),
        "dflash-8-full-card": (504, 8, 5_119_591),
        "story-8-full-card": (2_089, 8, 3_740_008),
        "nextn-8-no-graphs": (646, 8, 3_301_088),
        "story-4": (1_156, 4, 2_069_892),
        "dflash-4": (277, 4, 2_818_144),
        "dflash-32-full-card": (504, 32, 4_775_966),
        "no-speculation-8-full-card": (2_131, 8, 5_009_192),
        "nextn-8": (646, 8, 3_301_088),
    },
}
POINTS = [(ranks, name) for ranks, points in EXPECTED.items() for name in points]


@functools.cache
def runs(ranks: int) -> dict[str, RunConfig]:
    return {run.name: run for run in load_campaign(ROOT / "params" / f"{CAMPAIGNS[ranks]}.yaml").runs}


@functools.cache
def budget(ranks: int, name: str) -> MemoryBudget:
    found = predicted(runs(ranks)[name])
    assert found is not None
    return found


def limits(found: MemoryBudget) -> tuple[Interval | None, ...]:
    return tuple(found.limits[limit].value for limit in ("state_slots", "running_requests", "kv_tokens"))


@pytest.mark.parametrize(("ranks", "name"), POINTS)
def test_what_is_predicted(ranks: int, name: str) -> None:
    found = budget(ranks, name)
    assert tuple(value.point for value in limits(found) if value is not None) == EXPECTED[ranks][name]
    assert found.verdict == ("capped" if (ranks, name) == (4, "dflash-32") else "serves")
    assert found.verdicts == (found.verdict,)  # whatever is free before loading
    assert (found.fault is not None) == (name == "nextn-8")
    assert found.out_of_memory is None


def test_both_have_the_same_starts_but_for_the_number_of_cards() -> None:
    assert [*runs(4)] == [*EXPECTED[4]] and [*runs(8)] == [*EXPECTED[8]]
    for name, run in runs(4).items():
        assert (run.parallel.tp_size, run.gpu.count) == (4, 4)
        assert runs(8)[name] == run.replace({"parallel.tp_size": 8, "gpu.count": 8})


@pytest.mark.parametrize(
    "name", ["story-4", "story-8", "dflash-4", "dflash-8", "no-speculation-8", "nextn-8-no-graphs"]
)
def test_they_are_the_starts_of_two_cards_but_for_the_number(name: str) -> None:
    two = runs(2)[name]
    env = {**two.engine.env, **MULTICAST_OFF}
    assert runs(4)[name] == two.replace({"parallel.tp_size": 4, "gpu.count": 4, "engine.env": env})


@pytest.mark.parametrize("ranks", [4, 8])
def test_multicast_is_off_whatever_the_machine_exports(ranks: int) -> None:
    """As the machine of two cards had it exported, whose records are what is compared with."""
    inherited = RunRecord.open(ROOT / "tests" / "records" / "h200-tp2_story-8").env["inherited_environment"]
    assert {name: inherited[name] for name in MULTICAST_OFF} == MULTICAST_OFF
    for run in runs(ranks).values():
        assert {name: run.engine.env[name] for name in MULTICAST_OFF} == MULTICAST_OFF
        assert run.engine.env["SGLANG_ENABLE_JIT_DEEPGEMM"] == "false"  # of the base, beside them


def test_what_the_front_page_expects_is_what_is_predicted() -> None:
    about = {
        ranks: " ".join(load_campaign(ROOT / "params" / f"{CAMPAIGNS[ranks]}.yaml").about.split()) for ranks in (4, 8)
    }
    four, eight = ({name: slots for name, (slots, _, _) in EXPECTED[ranks].items()} for ranks in (4, 8))
    assert f"with {four['story-4']} and {four['story-8']} state slots" in about[4]
    assert (
        f"SGLang 0.5.16 has {four['dflash-8']} slots: it serves 8, and {EXPECTED[4]['dflash-32'][1]} when" in about[4]
    )
    assert f"it has {four['dflash-32-full-card']} and serves all 32" in about[4]
    assert f"Without speculation {four['no-speculation-8']} slots, with NEXTN {four['nextn-8']}" in about[4]
    assert f"with {eight['story-4']:,} and {eight['story-8']:,} state slots (four cards: 509 and 487)" in about[8]
    assert f"SGLang 0.5.16 has {eight['dflash-8']} slots (four cards: 123)" in about[8]
    assert f"on the full cards {eight['dflash-32-full-card']}." in about[8]
    assert f"Without speculation {eight['no-speculation-8']:,} slots, with NEXTN {eight['nextn-8']}" in about[8]
    emulated = [name for name, run in runs(4).items() if run.gpu.emulate is not None]
    grown = [EXPECTED[8][name][2] / EXPECTED[4][name][2] - 1 for name in emulated]
    assert "tokens grow by 11 to 28 %" in about[8]
    assert [round(100 * end) for end in (min(grown), max(grown))] == [11, 28]
    assert all(eight[name] > 2 * four[name] for name in emulated)


@pytest.mark.parametrize(("ranks", "minutes"), [(4, 19), (8, 21)])
def test_the_bill_that_the_file_names(ranks: int, minutes: int) -> None:
    """Twelve starts; the two that compile their kernels come first, and with another fit the first of three calls."""
    text = (ROOT / "params" / f"{CAMPAIGNS[ranks]}.yaml").read_text(encoding="utf-8")
    assert f"about {minutes} minutes by the bill" in text
    costs = bill(runs(ranks).values(), pages_of=12, page_jobs=2)
    assert costs.starts == 12
    assert costs.total_s / 60 == pytest.approx(minutes, abs=0.5)
    starts = [cost.start_s for cost in costs.costs]
    assert max(starts[2:]) < 70 < 150 < min(starts[:2])
    assert sum(starts[:2]) / 60 == pytest.approx(6, abs=0.6)
    three = calls(Clock(), [*runs(ranks).values()], 540, page_jobs=16, before_s=5)
    assert [len(names) for names in three.runs] == [3, 6, 3]
    assert three.runs[0] == ("story-8", "dflash-8", "dflash-32")


# ── SGLang's own sizing code ─────────────────────────────────────────────────────────────────────────────────────────


def answers(ranks: int) -> Path:
    return ROOT / "tests" / "oracle" / "campaigns" / f"{CAMPAIGNS[ranks]}.jsonl.gz"


@pytest.mark.parametrize("ranks", EXPECTED)
def test_the_engine_says_the_same_of_every_start(ranks: int) -> None:
    """It was asked with the fraction that a server with an emulated budget is passed, in 8 digits: a token less or
    more."""
    assert differing(answers(ranks)) == []
    said: dict[str, Any] = {}
    for point, answer in stored(answers(ranks)):
        run = point.config
        assert answer["refused"] is None
        said[run.name] = (answer["slots"], answer["requests"], pytest.approx(answer["tokens"], abs=1))
        asked = runs(ranks)[run.name]
        fraction = run.memory.mem_fraction_static if asked.gpu.emulate else asked.memory.mem_fraction_static
        assert run == asked.replace({"gpu.emulate": None, "memory.mem_fraction_static": fraction})
        assert (answer["slot_bytes"], answer["cell_bytes"]) == (
            {4: 38_486_016, 8: 19_243_008}[ranks],
            {"none": 16_384, "NEXTN": 16_384, "DFLASH": 21_504}[run.speculative.algorithm],
        )
    assert said == EXPECTED[ranks]


# ── by hand ──────────────────────────────────────────────────────────────────────────────────────────────────────────

#: Qwen3.6-27B, bytes on a rank. 48 layers with a state: 48 value heads of 128 × 128 in float32, and the last 3 inputs
#: of a convolution over 10,240 channels in bfloat16.
SSM = {4: 48 * (48 // 4) * 128 * 128 * 4, 8: 48 * (48 // 8) * 128 * 128 * 4}
CONV = {4: 48 * (10_240 // 4) * 3 * 2, 8: 48 * (10_240 // 8) * 3 * 2}
#: 16 layers with KV: one of 4 heads of 256, K and V each, in bfloat16, on four ranks and on eight, where two hold the
#: same. A DFLASH draft has 5 layers with 8 heads of 128: two a rank, and one.
K_AND_V = 2
TARGET = {4: 16 * 1 * 256 * K_AND_V * 2, 8: 16 * 1 * 256 * K_AND_V * 2}
DRAFT = {4: 5 * (8 // 4) * 128 * K_AND_V * 2, 8: 5 * (8 // 8) * 128 * K_AND_V * 2}


def test_what_a_slot_and_a_token_take_of_a_rank() -> None:
    assert (SSM, CONV) == ({4: 37_748_736, 8: 18_874_368}, {4: 737_280, 8: 368_640})
    assert (TARGET, DRAFT) == ({4: 16_384, 8: 16_384}, {4: 5_120, 8: 2_560})
    for ranks in EXPECTED:
        for name in ("story-8", "dflash-8"):
            details = {key: value.point for key, value in budget(ranks, name).details.items()}
            assert (details["slot_ssm_bytes"], details["slot_conv_bytes"]) == (SSM[ranks], CONV[ranks])
            assert (details["cell_bytes"], details["draft_cell_bytes"]) == (TARGET[ranks], DRAFT[ranks])
            # 16 layers' bytes and, of the draft's 5 layers, as much for each: the solver charges the target's size.
            assert details["charged_cell_bytes"] == 16_384 * (16 + 5) // 16 == 21_504


#: B. Weights of a rank by shapes, as PyTorch's allocator rounds them.
WEIGHTS = {4: 14_013_169_664, 8: 7_291_797_504}
DRAFT_WEIGHTS = {4: 1_224_736_768, 8: 824_180_736}


def test_the_weights_of_a_rank() -> None:
    """13.05 and 1.14 GiB on four, as four ranks logged (13.04 and 1.14 with 0.5.16, 13.05 and 1.13 with 0.5.12).

    What is split halves from two ranks to four: 25.63 - 13.05 = 12.58 GiB, so 6.29 from four to eight, but for K and V,
    whose heads stay one a rank: 16 layers × 5,120 × 2 × 256 × 2 B, 0.08 GiB, of which eight ranks keep all instead of
    half. 13.05 - 6.29 + 0.04 = 6.80.
    """
    for ranks in EXPECTED:
        terms = budget(ranks, "dflash-8").terms
        found = [terms[name].bytes for name in ("weights", "draft_weights")]
        assert [size.point for size in found if size is not None] == [WEIGHTS[ranks], DRAFT_WEIGHTS[ranks]]
    assert round(WEIGHTS[4] / GIB, 2) == 13.05 and round(DRAFT_WEIGHTS[4] / GIB, 2) == 1.14
    kept = 16 * 5_120 * 2 * 256 * 2 / GIB / 2
    assert WEIGHTS[8] / GIB == pytest.approx(13.05 - (25.63 - 13.05) / 2 + kept, abs=0.015)
    assert DRAFT_WEIGHTS[8] / GIB == pytest.approx(0.77, abs=0.005)


@pytest.mark.parametrize(
    ("ranks", "left", "after", "slots", "for_kv", "tokens"),
    [
        # (61,265,410,048 - 8 × 16 × 38,486,016) = 56,339,200,000, a third of it // 38,486,016 = 487
        # 56,339,200,000 - 487 × 38,486,016 = 37,596,510,208 // 21,504
        (4, 61_265_410_048, 56_339_200_000, 487, 37_596_510_208, 1_748_349),
        # (67,987,429,376 - 8 × 16 × 19,243,008) = 65,524,324,352, a third of it // 19,243,008 = 1,135
        # 65,524,324,352 - 1,135 × 19,243,008 = 43,683,510,272 // 21,504
        (8, 67_987_429_376, 65_524_324_352, 1_135, 43_683_510_272, 2_031_413),
    ],
)
def test_story_8_step_by_step(ranks: int, left: int, after: int, slots: int, for_kv: int, tokens: int) -> None:
    """0.5.12: the scratch of every request that is asked for comes off first, then the ratio of 0.5 parts the rest."""
    found, slot = budget(ranks, "story-8"), SSM[ranks] + CONV[ranks]
    # 0.75 of what an RTX PRO 6000 has free, less what loading the target took (the draft comes later).
    assert found.left is not None and found.left.bytes.point == left
    assert found.free.pre.point == pytest.approx(93.503 * GIB, abs=1)
    loaded = found.free.pre.point - found.free.post.point
    assert left == pytest.approx(0.75 * found.free.pre.point - loaded, abs=10_000)  # in steps of 2^-17 GiB: 32 bits
    assert loaded == pytest.approx(WEIGHTS[ranks], abs=0.02 * GIB)
    assert after == left - 8 * 16 * slot
    assert slots == int(after * 0.5 / 1.5) // slot
    assert for_kv == after - slots * slot
    assert tokens == for_kv // 21_504
    assert EXPECTED[ranks]["story-8"] == (slots, min(8, slots // 4), tokens)


@pytest.mark.parametrize(
    ("ranks", "left", "slots", "for_kv", "tokens"),
    [
        # a third of 60,041,771,008 // (38,486,016 × (1 + 16 / 5)) = 123; 8 × 16 × 38,486,016 = 4,926,210,048 of scratch
        # 60,041,771,008 - 123 × 38,486,016 - 4,926,210,048 = 50,381,780,992 // 21,504
        (4, 60_041_771_008, 123, 50_381_780_992, 2_342_902),
        # a third of 67,163,248,640 // (19,243,008 × 4.2) = 277; 8 × 16 × 19,243,008 = 2,463,105,024 of scratch
        # 67,163,248,640 - 277 × 19,243,008 - 2,463,105,024 = 59,369,830,400 // 21,504
        (8, 67_163_248_640, 277, 59_369_830_400, 2_760_873),
    ],
)
def test_dflash_8_step_by_step(ranks: int, left: int, slots: int, for_kv: int, tokens: int) -> None:
    """0.5.16: the scratch comes out of the state's third, by the requests that all slots could serve, 5 slots each."""
    found, slot = budget(ranks, "dflash-8"), SSM[ranks] + CONV[ranks]
    assert found.left is not None and found.left.bytes.point == left
    loaded = found.free.pre.point - found.free.post.point
    assert left == pytest.approx(0.75 * found.free.pre.point - loaded, abs=10_000)  # in steps of 2^-17 GiB: 32 bits
    assert loaded == pytest.approx(WEIGHTS[ranks] + DRAFT_WEIGHTS[ranks], abs=0.025 * GIB)
    assert slots == int(left * 0.5 / 1.5) // int(slot * (1 + 16 / 5))
    assert for_kv == left - slots * slot - 8 * 16 * slot
    assert tokens == for_kv // 21_504
    assert EXPECTED[ranks]["dflash-8"] == (slots, min(8, slots // 5), tokens)


@pytest.mark.parametrize(
    ("run", "slots", "tokens"),
    [("0512_dflash_r8", 488, 1_750_910), ("dflash_r8", 123, 2_347_000), ("nospec_r8", 531, 2_499_005)],
)
def test_every_one_of_four_ranks_held_its_share_in_older_starts(run: str, slots: int, tokens: int) -> None:
    """A quarter of a slot's state and one of the four KV heads, on full cards with a fraction of 0.5088."""
    share = share_of(4)
    assert (share.ssm, share.conv) == (SSM[4], CONV[4])
    assert (2 * share.k, 2 * share.k_dflash) == (TARGET[4], DRAFT[4])
    assert (share_of(8).k, share_of(8).k_dflash) == (share.k, share.k_dflash // 2)
    starts = Recorded("tp4")
    assert len(starts.ranks(run)) == 4
    starts.every_rank_holds_its_share(run, slots=slots, tokens=tokens, requests=8)


def test_eight_ranks_do_not_halve_the_kv_of_four() -> None:
    """A token takes as much of a rank for the target, and half for the draft: 18,944 instead of 21,504 B, 12 % less. Of
    all cards together it takes 8 × 18,944 instead of 4 × 21,504 B, 76 % more. What a slot takes of a rank does halve.

    So tokens grow by what the weights leave: 57.06 GiB for the pools become 63.32.
    """
    assert TARGET[8] + DRAFT[8] == 18_944 and TARGET[4] + DRAFT[4] == 21_504
    assert SSM[4] + CONV[4] == 2 * (SSM[8] + CONV[8])
    four, eight = (budget(ranks, "story-8") for ranks in (4, 8))
    assert four.left is not None and eight.left is not None
    assert [round(found.left.bytes.point / GIB, 2) for found in (four, eight) if found.left] == [57.06, 63.32]
    for name, (_, _, tokens) in EXPECTED[4].items():
        grown = EXPECTED[8][name][2] / tokens
        assert 1.05 < grown < 1.30, name
        if not name.endswith("full-card"):
            assert grown > 1.10 and EXPECTED[8][name][0] > 2 * EXPECTED[4][name][0]
    # The solver charges the draft as on four: 2,560 B of each of 2,031,413 tokens stay unused on every rank, 4.84 GiB.
    assert (21_504 - 18_944) * EXPECTED[8]["story-8"][2] / GIB == pytest.approx(4.84, abs=0.005)
