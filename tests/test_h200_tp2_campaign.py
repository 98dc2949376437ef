"""The thirteen starts of params/h200-tp2.yaml on two H200s: what was predicted for two ranks is what came out on both.

Figures are literals that the engine logged. "measured" is predicted from the free memory that NVML saw in the start
itself; "config" from the configuration alone.
"""

from __future__ import annotations

import pytest

from specbench.reading.freeread import measured_offsets
from specbench.reading.offset_rows import offset_rows
from specbench.units import GIB, MIB, Interval
from tests.recorded_campaign import Recorded, row_of_the_offsets_table, share_of

STARTS = Recorded("h200-tp2")
ONE_GPU = Recorded("h200")

#: name -> outcome, asked, resolved, served, state slots, tokens
LOGGED = {
    "story-4": ("served", 4, 4, 4, 185, 664_537),
    "story-8": ("served", 8, 8, 8, 164, 587_579),
    "story-8-full-card": ("served", 8, 8, 8, 403, 1_447_102),
    "dflash-4": ("served", 4, 4, 4, 47, 863_288),
    "dflash-8": ("served", 8, 8, 8, 47, 748_747),
    "dflash-8-full-card": ("served", 8, 8, 8, 104, 1_932_493),
    "dflash-32": ("capped", 32, 9, 9, 47, 720_111),
    "dflash-32-full-card": ("capped", 32, 20, 17, 104, 1_588_868),  # 17: it admits nothing while 3 places are free
    "no-speculation-8": ("served", 8, 8, 8, 206, 973_911),
    "no-speculation-8-full-card": ("served", 8, 8, 8, 446, 2_097_711),
    "nextn-8": ("crashed", 8, 8, 1, 107, 1_039_005),
    "nextn-8-full-card": ("crashed", 8, 8, 2, 240, 2_414_149),
    "nextn-8-no-graphs": ("served", 8, 8, 8, 107, 1_039_005),
}
OLD = ("story-4", "story-8", "story-8-full-card")  # SGLang 0.5.12
CRASHED = ("nextn-8", "nextn-8-full-card")

#: What NVML saw, the same on both ranks: free before loading, by version (two levels 2 MiB apart, the second was read).
PRE = {"0.5.16": 148_405_288_960, "0.5.12": 148_476_592_128}
#: … and when the pools were sized. SGLang 0.5.12 loads its draft later.
SIZED = {"none": 120_875_974_656, "DFLASH": 118_778_822_656, "NEXTN": 117_851_881_472, "0.5.12": 120_926_306_304}


def version(name: str) -> str:
    return STARTS.opened(name).config.engine.version


def test_every_point_of_the_campaign_is_shipped_as_it_was_asked() -> None:
    STARTS.holds_what_was_asked(set(LOGGED))


@pytest.mark.parametrize("name", LOGGED)
def test_what_came_out(name: str) -> None:
    STARTS.came_out(name, LOGGED[name])


@pytest.mark.parametrize("name", LOGGED)
def test_from_measured_free_memory_slots_and_requests_are_exact_and_tokens_are_the_point(name: str) -> None:
    _, _, resolved, _, slots, tokens = LOGGED[name]
    assert STARTS.predicted(name, "measured", "state_slots") == Interval.exact(slots)
    assert STARTS.predicted(name, "measured", "running_requests") == Interval.exact(resolved)
    found = STARTS.predicted(name, "measured", "kv_tokens")
    assert found.point == tokens
    assert found.low == tokens  # what NVML leaves open is above: 2 MiB before loading, 20 MiB in two starts of 0.5.12
    assert found.high - tokens <= (511 if name in OLD else 35)


@pytest.mark.parametrize("name", LOGGED)
def test_from_the_configuration_alone_it_is_close(name: str) -> None:
    """What differs of emulated budgets is the fraction that was passed: it rested on a free-memory figure of the H200
    that was too high, by 0.0034 GiB with 0.5.12: 0.75 × 93.503 / 138.2796 × 0.0034 GiB = 1.8 MB, 42 tokens."""
    _, _, resolved, _, slots, tokens = LOGGED[name]
    assert STARTS.predicted(name, "config", "state_slots").point == slots
    assert STARTS.predicted(name, "config", "running_requests").point == resolved
    found = STARTS.predicted(name, "config", "kv_tokens")
    assert found.contains(tokens)
    assert abs(found.point - tokens) <= (42 if name in OLD else 4)


@pytest.mark.parametrize("name", LOGGED)
def test_free_memory_is_measured_the_same_on_both_ranks(name: str) -> None:
    found = measured_offsets(STARTS.opened(name))
    assert not isinstance(found, str), found
    pre = PRE[version(name)]
    algorithm = STARTS.opened(name).config.speculative.algorithm
    post = SIZED["0.5.12"] if name in OLD else SIZED[algorithm]
    assert found.pre == Interval(pre - 2 * MIB, pre, pre)
    unsure = 20 * MIB if name in ("story-8", "story-8-full-card") else 0
    assert found.post == Interval(post, post, post + unsure)
    assert found.difference == Interval.exact(0)
    assert found.checked >= 8


@pytest.mark.parametrize("name", LOGGED)
def test_a_rank_has_half_of_the_state_and_two_of_the_four_kv_heads(name: str) -> None:
    share = share_of(2)
    assert (share.ssm, share.conv, share.k) == (75_497_472, 1_474_560, 16_384)
    assert (share.k_dflash, share.k_nextn) == (5 * 4 * 128 * 2, 2 * 256 * 2)
    _, _, resolved, _, slots, tokens = LOGGED[name]
    STARTS.every_rank_holds_its_share(name, slots=slots, tokens=tokens, requests=resolved)


def test_the_offsets_table_has_what_these_starts_measured() -> None:
    told = offset_rows(STARTS.opened(name) for name in LOGGED)
    assert told.without == ()
    rows = [proposal.row for proposal in told.proposals]
    assert len(rows) == 4
    for row in rows:
        known = row_of_the_offsets_table(row)
        assert [known[key] for key in ("pre", "post", "beside")] == [row[key] for key in ("pre", "post", "beside")]
        assert known["source"].startswith("measured by NVML in h200-tp2_")


@pytest.mark.parametrize(
    ("name", "one_gpu", "two_gpus"),
    [("story-4", 4, 4), ("story-8", 0, 8), ("dflash-4", 1, 4), ("dflash-8", 1, 8), ("dflash-8-full-card", 7, 8)],
)
def test_what_one_card_does_not_serve_two_do(name: str, one_gpu: int, two_gpus: int) -> None:
    """The same configuration but for tp_size: how many of those asked can run at once."""
    assert (ONE_GPU.studied(name).resolved or 0, STARTS.studied(name).resolved) == (one_gpu, two_gpus)
    one, two = (found.opened(name).config for found in (ONE_GPU, STARTS))
    assert (one.parallel.tp_size, two.parallel.tp_size) == (1, 2)
    assert (one.memory, one.speculative, one.engine.args) == (two.memory, two.speculative, two.engine.args)


def test_two_cards_leave_more_than_four_times_as_much_for_the_pools() -> None:
    """Not twice: the weights are split too. 0.5.12, DFLASH, 4 asked."""
    left = []
    for starts in (ONE_GPU, STARTS):
        budget = starts.studied("story-4").diagnosis.budgets["measured"]
        assert budget.left is not None
        left.append(budget.left.bytes.point / GIB)
    assert left == pytest.approx([19.5912, 44.4673], abs=1e-4)  # of each card: 88.93 of both


def test_what_was_allocated_of_both_cards() -> None:
    """Slots, scratch and KV, a slot and a request for padding included. 0.5.12, DFLASH, 4 asked."""

    def bytes_of(starts: Recorded) -> int:
        ranks = starts.studied("story-4").diagnosis.pools.ranks
        sizes = [
            size for own in ranks for size in (own.state_conv, own.state_ssm, own.kv, own.scratch_ssm, own.scratch_conv)
        ]
        return sum(size.bytes for size in sizes if size is not None)

    one, two = bytes_of(ONE_GPU), bytes_of(STARTS)
    assert (one / GIB, two / GIB) == pytest.approx((22.04, 91.38), abs=0.05)


@pytest.mark.parametrize("name", CRASHED)
def test_the_crash_in_the_engines_words(name: str) -> None:
    record = STARTS.opened(name)
    assert (record.status.status, record.status.exit_code) == ("crashed", -9)
    assert record.status.reason == (
        "ended while serving (signal 9): RuntimeError: The expanded size of the tensor (1048576) must match the "
        "existing size (1048704) at non-singleton dimension 0. Target sizes: [1048576]. Tensor sizes: [1048704]"
    )


@pytest.mark.parametrize("name", LOGGED)
def test_both_cards_were_sampled_and_found_and_left_as_they_were(name: str) -> None:
    record = STARTS.opened(name)
    assert {sample.gpu for sample in record.gpu_samples()} == {0, 1}
    memory = record.gpu_memory
    assert memory is not None
    assert memory.is_back is True
    for uses in (memory.before, memory.after):
        assert [(use.gpu, use.used_bytes, use.holders) for use in uses] == [(gpu, 615.0625 * MIB, ()) for gpu in (0, 1)]


@pytest.mark.parametrize("name", sorted(set(LOGGED) - set(CRASHED)))
def test_the_prefix_cache_was_flushed_before_every_measured_step(name: str) -> None:
    STARTS.was_flushed_before_every_measured_step(name)
    requests = STARTS.opened(name).requests()
    assert {trace.step for trace in requests} >= {"conc1-in1024", "conc8-in1024", "conc16-in1024"}
    assert not [trace.error for trace in requests if trace.error]


@pytest.mark.parametrize("name", LOGGED)
def test_records_are_small_and_name_no_folder_of_a_person(name: str) -> None:
    STARTS.is_small_and_names_no_folder_of_a_person(name)
    inherited = STARTS.opened(name).env["inherited_environment"]
    assert inherited["NCCL_NVLS_ENABLE"] == "0"  # its buffers would come off what is free
