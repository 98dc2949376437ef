"""The fourteen starts of params/h200.yaml on an H200, as specbench recorded them: what was predicted is what came out.

Figures are literals that the engine logged. "measured" is predicted from the free memory that NVML saw in the start
itself (or, where NVML could not tell, from the log's figures and the known offsets); "config" from the configuration.
"""

from __future__ import annotations

import pytest

from specbench.campaign.bill import bill
from specbench.host.gpu_use import verdict
from specbench.params import load_campaign
from specbench.reading.freeread import measured_offsets
from specbench.reading.offset_rows import offset_rows
from specbench.show.gpu_use import gpu_use
from specbench.units import GIB, MIB, Interval
from tests.recorded_campaign import ROOT, Recorded, row_of_the_offsets_table

#: Bytes of a token: KV of 16 layers, and of 5 more in a DFLASH draft or 1 in the model's own (NEXTN).
TOKEN = {"none": 65_536, "DFLASH": 86_016, "NEXTN": 69_632}

#: name -> outcome, asked, resolved, served, state slots, tokens
LOGGED = {
    "story-4": ("served", 4, 4, 4, 24, 87_063),
    "story-6": ("capped", 6, 3, 3, 13, 49_479),
    "story-8": ("refused", 8, None, None, 2, 11_895),
    "dflash-4": ("capped", 4, 1, 1, 8, 158_207),
    "dflash-4-no-radix": ("served", 4, 4, 4, 4, 79_459),
    "dflash-4-20-slots": ("served", 4, 4, 4, 20, 50_824),
    "dflash-8": ("capped", 8, 1, 1, 8, 158_207),
    "dflash-8-full-card": ("capped", 8, 7, 7, 37, 580_621),
    "dflash-8-full-card-40-slots": ("served", 8, 8, 8, 40, 546_617),
    "nextn-4-full-card": ("crashed", 4, 4, 1, 85, 841_186),
    "no-speculation-4": ("served", 4, 4, 4, 45, 215_277),
    "no-speculation-8": ("served", 8, 8, 8, 45, 215_277),
    "no-speculation-8-full-card": ("served", 8, 8, 8, 165, 781_442),
    "too-long": ("served", 4, 4, 1, 45, 20_000),
}
SPARSE = "NVML was sampled with gaps of more than 0.1 s when memory was read"
PRE, NO_DRAFT, DFLASH, NEXTN = 149_458_059_264, 94_548_328_448, 90_815_397_888, 88_611_291_136
#: name -> free memory when the pools were sized, by NVML; 0.5.12 loads its draft later. Free before loading: PRE.
SIZED = {
    "story-6": NO_DRAFT,
    "story-8": NO_DRAFT,
    "dflash-4": DFLASH,
    "dflash-4-no-radix": DFLASH,
    "dflash-4-20-slots": DFLASH,
    "dflash-8": DFLASH,
    "dflash-8-full-card": DFLASH,
    "dflash-8-full-card-40-slots": DFLASH,
    "nextn-4-full-card": NEXTN,
    "no-speculation-4": NO_DRAFT,
    "no-speculation-8-full-card": NO_DRAFT,
    "too-long": NO_DRAFT,
}


STARTS = Recorded("h200")
studied, opened, predicted = STARTS.studied, STARTS.opened, STARTS.predicted


def test_every_point_of_the_campaign_is_shipped_as_it_was_asked() -> None:
    STARTS.holds_what_was_asked(set(LOGGED))


@pytest.mark.parametrize("name", LOGGED)
def test_what_came_out(name: str) -> None:
    outcome, asked, resolved, served, slots, tokens = LOGGED[name]
    found = studied(name)
    assert (found.outcome, found.asked, found.resolved, found.served) == (outcome, asked, resolved, served)
    pools = found.diagnosis.pools
    assert (pools.state_slots, pools.kv_tokens) == (slots, tokens)


@pytest.mark.parametrize("name", LOGGED)
def test_from_measured_free_memory_it_is_exact(name: str) -> None:
    _, _, resolved, _, slots, tokens = LOGGED[name]
    assert predicted(name, "measured", "state_slots") == Interval.exact(slots)
    assert predicted(name, "measured", "running_requests") == Interval.exact(resolved or 0)
    found = predicted(name, "measured", "kv_tokens")
    assert found.contains(tokens)
    assert abs(found.point - tokens) <= 3


@pytest.mark.parametrize("name", LOGGED)
def test_from_the_configuration_alone_it_is_close(name: str) -> None:
    _, _, resolved, _, slots, tokens = LOGGED[name]
    assert abs(predicted(name, "config", "state_slots").point - slots) <= 1
    assert predicted(name, "config", "running_requests").point == (resolved or 0)
    allowed = max(0.02 * tokens, 0.05 * GIB / TOKEN[studied(name).record.config.speculative.algorithm])
    off = abs(predicted(name, "config", "kv_tokens").point - tokens)
    assert off <= allowed
    assert off <= 5  # what it is now that the tables are measured on this card


@pytest.mark.parametrize("name", SIZED)
def test_what_the_solver_read_is_known_to_the_byte(name: str) -> None:
    found = measured_offsets(opened(name))
    assert not isinstance(found, str), found
    assert (found.pre, found.post) == (Interval.exact(PRE), Interval.exact(SIZED[name]))
    assert found.difference == Interval.exact(0)
    assert found.checked >= 2


def test_where_it_is_not_known_exactly_or_not_at_all() -> None:
    story = measured_offsets(opened("story-4"))
    assert not isinstance(story, str), story
    assert (story.pre, story.post) == (Interval.exact(PRE), Interval(NO_DRAFT, NO_DRAFT, NO_DRAFT + 20 * MIB))
    assert measured_offsets(opened("no-speculation-8")) == SPARSE


def test_the_offsets_table_has_what_these_starts_measured() -> None:
    told = offset_rows(opened(name) for name in LOGGED)
    assert told.without == (("h200_no-speculation-8", SPARSE),)
    for row in (proposal.row for proposal in told.proposals):
        known = row_of_the_offsets_table(row)
        assert (known["pre"], known["post"], known["exact"]) == (row["pre"], row["post"], True)
        assert known["source"].startswith("measured by NVML in h200_")


def test_the_crash_and_the_refusal_in_the_engines_words() -> None:
    crashed, refused = opened("nextn-4-full-card"), opened("story-8")
    assert (crashed.status.status, crashed.status.exit_code) == ("crashed", -9)
    assert crashed.status.reason == (
        "ended while serving (signal 9): RuntimeError: The expanded size of the tensor (524288) must match the "
        "existing size (524352) at non-singleton dimension 0. Target sizes: [524288]. Tensor sizes: [524352]"
    )
    assert [trace.error for trace in crashed.requests() if trace.step == "conc4-in1024"] == [
        "the connection broke after 1 tokens: the server closed or refused it",
        *["the connection broke after 0 tokens: the server closed or refused it"] * 3,
    ]
    assert (refused.status.status, refused.status.reason) == (
        "refused",
        "refused to start (signal 9): AssertionError: capture_bs=[0]",
    )
    assert refused.requests() == ()


def test_prompts_that_are_too_long_in_the_engines_words() -> None:
    fits, pool, context = opened("too-long").requests()
    assert (fits.input_tokens, fits.output_tokens, fits.error) == (19_934, 64, None)
    assert (pool.input_tokens, pool.http_status) == (19_994, 200)
    assert pool.error == (
        "aborted by the engine: Input length (19994 tokens) exceeds the maximum allowed length (19994 tokens). Use a "
        "shorter input or enable --allow-auto-truncate."
    )
    assert (context.input_tokens, context.http_status, context.output_tokens) == (32_705, 200, 0)
    assert context.error == (
        "error event in the stream: Requested token count exceeds the model's maximum context length of 32768 tokens. "
        "You requested a total of 32769 tokens: 32705 tokens from the input messages and 64 tokens for the completion. "
        "Please reduce the number of tokens in the input messages or the completion to fit within the limit."
    )


def test_what_is_found_about_them() -> None:
    """19,993 tokens would have been accepted: the engine refuses what is not shorter than its limit."""
    assert [finding.cause for finding in studied("too-long").diagnosis.findings] == [
        "1 request refused, too long for the context length: 32,705 input + 64 output = 32,769 tokens against 32,768.",
        "1 request refused, too long for the KV pool: 19,994 input tokens, which must be fewer than 19,994.",
        (
            # 19,934 + 64 = 19,998 was answered whole
            "The context is 32,768 tokens, the KV pool only 20,000, as max_total_tokens asks: inputs must be shorter "
            "than 19,994 tokens, and outputs end early without a warning once a request has 19,998 tokens, input and "
            "output together."
        ),
    ]


@pytest.mark.parametrize("name", LOGGED)
def test_records_are_small_and_name_no_folder_of_a_person(name: str) -> None:
    STARTS.is_small_and_names_no_folder_of_a_person(name)


def test_every_start_found_the_memory_as_the_first_did() -> None:
    for name in LOGGED:
        memory = opened(name).gpu_memory
        assert memory is not None
        assert [(use.used_bytes, use.holders) for use in memory.before] == [(615.0625 * MIB, ())]


def test_the_memory_was_back_after_every_start_but_one_that_was_read_too_soon() -> None:
    """NEXTN's crash left 3.25 MiB more. story-8 was read while its scheduler was ending, and not waited for."""
    left = {"nextn-4-full-card": 618.3125}
    for name in LOGGED:
        memory = opened(name).gpu_memory
        assert memory is not None
        if name != "story-8":
            assert memory.is_back is True, name
            assert [(use.used_bytes, use.holders) for use in memory.after] == [(left.get(name, 615.0625) * MIB, ())]
    story = opened("story-8")
    assert story.gpu_memory is not None
    assert story.gpu_memory.is_back is False
    (after,) = story.gpu_memory.after
    assert after.holders is not None
    assert [(one.pid, one.ours, one.used_bytes) for one in after.holders] == [(819, True, 56_626 * MIB)]
    assert story.env["gpu_memory_after"] == verdict(story.gpu_memory)
    assert story.env["imported"]["corrected"]["gpu_memory.is_back"] is True  # what was said on the machine
    page = gpu_use(story).text
    assert "GPU memory by NVML (recorded)" in page
    assert "not of this server" not in page


@pytest.mark.parametrize("name", sorted(set(LOGGED) - {"story-8"}))
def test_the_prefix_cache_was_flushed_before_every_measured_step(name: str) -> None:
    STARTS.was_flushed_before_every_measured_step(name)


def test_an_emulated_budget_is_told_and_the_full_card_is_not() -> None:
    for name in LOGGED:
        notes = " ".join(opened(name).status.notes)
        assert ("EMULATED BUDGET OF RTX PRO 6000 ON H200" in notes) is ("full-card" not in name), name


def test_the_bill_is_near_what_the_campaign_took() -> None:
    """15 min 10 s by the clock of the two commands, with all pages, kernels compiled before (the records span 14 min
    45 s). The bill has two first starts that compile: 137.5 and 116.1 s instead of 44.5 and 48.8 in durations.yaml."""
    told = bill(load_campaign(ROOT / "params" / "h200.yaml").runs, pages_of=14, page_jobs=8)
    warm_s = told.total_s - (137.5 - 44.5) - (116.1 - 48.8)
    assert warm_s == pytest.approx(15 * 60 + 10, rel=0.1)
