"""Remedies: each is predicted again here, on the measured basis of its own log, and has to hold what it promises."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, Group, RenderableType

from specbench.budget.predict import predict
from specbench.budget_types import MemoryBudget
from specbench.cli.findings_text import further_remedies
from specbench.cli.remedies_text import remedies_text
from specbench.diagnose import diagnosis
from specbench.diagnose.case import Case
from specbench.diagnose.finding import Remedy
from specbench.diagnose.remedy_document import remedy_document
from specbench.engines.sglang import logs
from specbench.judging.judge import passed
from specbench.reading.freeread import read_free
from specbench.reading.pools import report
from specbench.records.record import RunRecord
from specbench.units import GIB

RECORDS = Path(__file__).parent / "records"


@functools.cache
def case_of(name: str) -> Case:
    """A record as the rules see it."""
    record = RunRecord.open(RECORDS / name)
    log = logs.read(record.log_path, name=name, version=record.config.engine.version)
    pools = report(log, record.server_info())
    read = read_free(record, log, pools)
    return diagnosis._case(record.config, log, pools, record.status.status, record.requests(), read=read, bare=False)


def predicted_again(case: Case, remedy: Remedy) -> MemoryBudget:
    """Without what the remedies use: the record's configuration, the change, and what this start had free."""
    assert case.config is not None
    config = case.config.replace(remedy.set)
    if remedy.basis == "config":
        return predict(config)
    measured = case.budgets["measured"]
    return predict(config, free=measured.free, passed_fraction=passed(case.config, case.pools))


def point(budget: MemoryBudget, limit: str) -> int:
    value = budget.limits[limit].value  # type: ignore[index]
    assert value is not None
    return value.point


def slack(budget: MemoryBudget) -> int:
    size = budget.terms["slack"].bytes
    assert size is not None
    return size.point


def test_a_larger_pool_for_a_context_keeps_the_requests() -> None:
    """dflash_r8: 158,177 tokens, one request. A larger fraction gives more; fp8 doubles the tokens."""
    case = case_of("dflash_r8")
    found = case.remedies_for_context(200_000)
    assert [dict(remedy.set) for remedy in found] == [
        {"memory.mem_fraction_static": 0.56},
        {"memory.kv_cache_dtype": "fp8_e4m3"},
        {"parallel.tp_size": 2, "gpu.count": 2},
    ]
    assert [remedy.changes_results for remedy in found] == [False, True, False]
    for remedy in found:
        budget = predicted_again(case, remedy)
        assert point(budget, "kv_tokens") >= 200_000 and point(budget, "running_requests") >= 1


def test_a_context_above_the_pool_may_be_stated_as_it_is() -> None:
    """h200_too-long: 20,000 tokens by an upper bound, a context of 32,768."""
    *_, honest = case_of("h200_too-long").remedies_for_context(32_768)
    assert (dict(honest.set), honest.flags) == ({"memory.context_length": 20_000}, "--context-length 20000")
    assert honest.predicted["max_input_tokens"] == 19_994  # 20,000 - 1 - 5


@pytest.mark.parametrize("name", ["dflash_r8", "tp2_dflash_r32_full", "oom_r8", "nospec_defaults"])
def test_less_memory_is_left_free_by_as_much(name: str) -> None:
    case = case_of(name)
    found = case.less_memory(GIB)
    assert found
    assert case.budget is not None
    before = case.budget.details.get("estimated_left_outside_bytes")  # None: the pools overrun the card
    for remedy in found:
        budget = predicted_again(case, remedy)
        assert budget.verdict != "refused" and slack(budget) >= 2 * GIB
        assert point(budget, "running_requests") >= (case.pools.running_requests or case.wanted_requests or 0)
        assert before is None or budget.details["estimated_left_outside_bytes"].point - before.point >= GIB


def test_an_unknown_fraction_is_stated_where_its_default_would_move() -> None:
    """nospec_defaults gives no fraction: a smaller chunk would raise the default, and nothing would be left free."""
    changes = [dict(remedy.set) for remedy in case_of("nospec_defaults").less_memory(GIB)]
    assert {"memory.chunked_prefill_size": 4096, "memory.mem_fraction_static": 0.842} in changes


def test_slots_beyond_use_become_tokens() -> None:
    """tp2_dflash_r32_full: 104 slots, 20 requests of 5 each; 4 slots are given back."""
    case = case_of("tp2_dflash_r32_full")
    (remedy,) = case.give_slots_back()
    assert dict(remedy.set) == {"memory.max_mamba_cache_size": 100}
    budget = predicted_again(case, remedy)
    assert (point(budget, "running_requests"), point(budget, "state_slots")) == (20, 100)
    assert point(budget, "kv_tokens") > (case.pools.kv_tokens or 0)


def test_smaller_scratch_is_below_the_pool() -> None:
    case = case_of("tp2_dflash_r32_full")
    found = case.smaller_scratch(requests=20)
    assert found
    for remedy in found:
        terms = predicted_again(case, remedy).terms
        scratch, kv = (terms["scratch_ssm"].bytes, terms["kv"].bytes)
        assert scratch is not None and kv is not None and scratch.point < kv.point


def test_a_server_that_cannot_be_sized_has_no_remedy() -> None:
    case = case_of("nemo_nano_r32")
    assert case.less_memory(GIB) == case.give_slots_back() == case.smaller_draft_kv() == ()


def test_of_an_older_release_the_draft_has_no_type_of_its_own() -> None:
    """--speculative-draft-kv-cache-dtype is there from 0.5.18; the record is of 0.5.16."""
    assert case_of("dflash_r8").smaller_draft_kv() == ()


def test_the_terminal_and_json_say_what_a_predicted_effect_rests_on() -> None:
    """h200_dflash-8, of the budget of an RTX PRO 6000: a second card is predicted from a table in which that card is
    inferred (data/gpus.yaml), everything else from what NVML saw."""
    remedies = case_of("h200_dflash-8").remedies()
    (more,) = [one for one in remedies if one.set.get("parallel.tp_size") == 2]
    told = {"basis": "inferred", "words": "inferred, not measured on 2 × RTX PRO 6000"}
    assert remedy_document(more)["basis"] == "config" and remedy_document(more)["free_memory"] == told
    others = [one for one in remedies if one is not more]
    assert others and all(remedy_document(one)["free_memory"] is None for one in others)
    source = "from the configuration alone; free memory inferred, not measured on 2 × RTX PRO 6000"
    text = printed(remedies_text(remedies, measured="the logged free memory"))
    assert text.startswith(
        "remedies, each predicted from the logged free memory, where no other source is named in this order: "
    )
    assert text.count("predicted from") == 2 and f" KV tokens (predicted {source}). 2 GPUs: " in text
    assert printed(remedies_text([more], measured="")).startswith(f"remedies, each predicted {source} → --tp-size 2 ")
    table = printed(Group(*further_remedies(remedies, "the logged free memory")))
    assert table.endswith(f" --tp-size 2: predicted {source}")
    # Beside one of which nothing is predicted the head claims nothing, and each says it for itself.
    recorded = replace(others[0], basis="recording", verdict=None)
    text = printed(Group(*further_remedies([recorded, more, *others[1:]], "the logged free memory")))
    assert text.startswith("other fixes for 1 flags") and text.count("predicted from") == 2
    assert "no prediction" not in text and f"--tp-size 2: predicted {source}" in text


def printed(what: RenderableType) -> str:
    console = Console(width=100, color_system=None)
    with console.capture() as shown:
        console.print(what)
    return " ".join(shown.get().split())
