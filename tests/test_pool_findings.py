"""Findings about memory that no error names: each with its arithmetic by hand, and what comes near gives none."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import pytest

from specbench.diagnose.diagnosis import of_log, of_path
from specbench.diagnose.finding import Finding
from specbench.diagnose.told import Told
from specbench.diagnose.types import Diagnosis

RECORDS = Path(__file__).parent / "records"
CASES = Path(__file__).parent / "logs" / "sglang" / "cases"


def paste(*lines: str, **told: Any) -> Diagnosis:
    return of_log(io.BytesIO("\n".join(lines).encode()), name="paste", told=Told(**told))


def case(name: str, **told: Any) -> Diagnosis:
    return of_log(CASES / f"{name}.log", told=Told(**told))


def only(diagnosis: Diagnosis, finding_id: str) -> Finding:
    (found,) = [finding for finding in diagnosis.findings if finding.id == finding_id]
    return found


def ids(diagnosis: Diagnosis) -> list[str]:
    return [finding.id for finding in diagnosis.findings]


# ── requests: a cap without a word, or with a word only ──────────────────────────────────────────────────────────────


def test_a_cap_is_known_from_the_warning_alone():
    """47 slots // 5 per request = 9; of 32 asked 23 are lost: 23 / 32 = 0.71875."""
    found = only(case("qwen36-27b-ada48-cap9", arguments={"max_running_requests": 32}), "capped-by-state-slots")
    assert found.cause == (
        "32 requests asked, 9 can run at once: the state pool is the limit (47 slots // 5 per request = 9)."
    )
    assert (found.severity, found.lost) == ("costly", 0.71875)
    assert [line.line for line in found.evidence] == [1]


def test_a_cap_of_unknown_wish_says_so():
    found = only(case("qwen36-27b-ada48-cap9"), "capped-by-state-slots")
    assert found.cause.startswith("How many requests were asked is not logged; 9 can run at once: ")
    assert found.lost is None


def test_a_cap_that_takes_nothing_of_what_was_asked_is_none():
    """Nine were asked, or none: the engine warns of its own upper bound (2,048 at least) as well."""
    for asked in (9, 8, None):
        assert "capped-by-state-slots" not in ids(
            case("qwen36-27b-ada48-cap9", arguments={"max_running_requests": asked})
        )


def test_a_cap_of_zero_is_fatal():
    """2 slots // 5 per request = 0: nothing runs, all is lost."""
    found = only(case("qwen38-flashnext-kt-g16-cap0", arguments={"max_running_requests": 4}), "capped-by-state-slots")
    assert found.cause == (
        "4 requests asked, 0 can run at once: the state pool is the limit (2 slots // 5 per request = 0): "
        "the engine refuses to start."
    )
    assert (found.severity, found.lost) == ("fatal", 1.0)


def test_a_cap_is_known_from_the_summary_alone():
    """Eight asked (told), six in the summary; 206,635 tokens are enough for 103,317 requests of two tokens."""
    found = only(
        case("qwen38-27b-2x3090-slot-table", arguments={"max_running_requests": 8, "context_length": 262144}),
        "capped-by-state-slots",
    )
    assert found.cause == (
        "8 requests asked, 6 can run at once: the state pool is the limit (its slots are not logged, and 206,635 KV "
        "tokens are enough for more)."
    )
    assert found.lost == 0.25


SUMMARY = (
    "[2026-09-14 10:00:00] max_total_num_tokens={tokens}, chunked_prefill_size=2048, max_prefill_tokens=16384, "
    "max_running_requests={requests}, context_len={context}, available_gpu_mem=1.81 GB"
)


def test_a_cap_is_known_from_the_pool_line_and_what_was_told():
    """8 slots // 5 per request (extra_buffer, overlap) = 1 of 8: 7 / 8 = 0.875. Of an unknown model one slot each."""
    line = (
        "Mamba Cache is allocated. max_mamba_cache_size: 8, conv_state size: 0.02GB, ssm_state size: 1.27GB "
        "intermediate_ssm_state_cache size: 4.50GB intermediate_conv_window_cache size: 0.03GB"
    )
    asked = {"max_running_requests": 8, "speculative_algorithm": "DFLASH", "speculative_num_draft_tokens": 16}
    asked |= {"speculative_draft_model_path": "z-lab/Qwen3.6-27B-DFlash", "mem_fraction_static": 0.5}
    model = {"model": "Qwen/Qwen3.6-27B", "gpu": "h200", "version": "0.5.16"}
    found = only(paste(line, **model, arguments=asked), "capped-by-state-slots")
    assert found.cause == (
        "8 requests asked, 1 can run at once: the state pool is the limit (8 slots // 5 per request = 1) (computed "
        "from the pool's line: the summary is not logged)."
    )
    assert found.lost == 0.875
    unknown = only(paste(line, arguments={"max_running_requests": 10}), "capped-by-state-slots")
    assert "10 requests asked, 8 can run at once: the state pool is the limit (8 slots, at least one per request)" in (
        unknown.cause
    )
    assert "capped-by-state-slots" not in ids(paste(line, arguments={"max_running_requests": 8}))


def test_a_cap_by_tokens_is_half_as_many_requests_as_tokens():
    """0.5.14 on: 100 tokens // 2 = 50 requests of the 64 asked; 14 / 64 = 0.21875 are lost."""
    line = SUMMARY.format(tokens=100, requests=50, context=100)
    found = only(paste(line, arguments={"max_running_requests": 64}), "capped-by-kv-tokens")
    assert found.cause == "64 requests asked, 50 can run at once: the KV pool of 100 tokens is the limit."
    assert found.lost == 0.21875


def test_requests_are_asked_of_all_data_parallel_workers():
    """16 asked of 4 workers are 4 of each."""
    line = SUMMARY.format(tokens=206635, requests=4, context=4096)
    assert ids(paste(line, arguments={"max_running_requests": 16, "dp_size": 4})) == []
    found = only(paste(line, arguments={"max_running_requests": 32, "dp_size": 4}), "capped-by-state-slots")
    assert found.cause.startswith("8 requests asked, 4 can run at once")


# ── tokens: a context, or a limit, above the pool ────────────────────────────────────────────────────────────────────


def test_a_context_above_the_pool_names_the_longest_request():
    """max_req_len = 206,635 - 1, inputs below 206,635 - 6; 1 - 206,635 / 262,144 = 0.2118 is lost."""
    found = only(case("qwen38-27b-2x3090-slot-table", arguments={"context_length": 262144}), "context-above-pool")
    assert found.cause == (
        "The context is 262,144 tokens, the KV pool only 206,635: inputs must be shorter than 206,629 tokens, and "
        "outputs end early without a warning once a request has 206,633 tokens, input and output together."
    )
    assert found.severity == "costly"
    assert found.lost == pytest.approx(0.2118, abs=5e-5)


def test_a_context_that_nobody_asked_for_is_a_notice():
    """Told that nothing was asked, the context is the model's own default."""
    found = only(case("qwen38-27b-2x3090-slot-table", arguments={"context_length": None}), "context-above-pool")
    assert found.severity == "notice"
    assert "(nobody asked for it)" in found.cause


def test_a_context_is_known_from_what_was_asked():
    """The pool's line alone, with the context told: 131,072 asked, 91,867 there."""
    line = "KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 91867, K size: 1.40 GB, V size: 1.40 GB"
    found = only(paste(line, arguments={"context_length": 131072}), "context-above-pool")
    assert found.cause == (
        "The context is 131,072 tokens, the KV pool only 91,867: outputs end early without a warning once a request "
        "has 91,865 tokens, input and output together."
    )
    assert [shown.line for shown in found.evidence] == [1]
    assert ids(paste(line, arguments={"context_length": 91867})) == []


def test_a_pool_that_was_limited_by_hand_says_so():
    """max_total_tokens=20000, a context of 32,768; of the three requests one fits the context and not the pool."""
    found = of_path(RECORDS / "h200_too-long")
    pool = only(found, "context-above-pool")
    assert "the KV pool only 20,000, as max_total_tokens asks: inputs must be shorter than 19,994 tokens" in pool.cause
    # The request that met it tells what is lost and how it is mended: once.
    assert (pool.severity, pool.lost, pool.remedies) == ("notice", None, ())
    met = only(found, "pool-overflow")
    assert (met.severity, met.lost, len(met.remedies)) == ("costly", pytest.approx(1 / 3), 1)


def test_a_token_limit_above_the_memory_does_not_bind():
    """The engine's own warning: 262,144 asked, 131,072 profiled. An upper bound that does not bind takes nothing."""
    found = only(
        paste("max_total_tokens=262144 is larger than the profiled value 131072. Use the profiled value instead."),
        "token-limit-not-binding",
    )
    assert found.cause == (
        "max_total_tokens is 262,144, the memory gave 131,072 tokens: the limit does not bind. It is an upper limit, "
        "not a reservation: without it the pool would be the same."
    )
    assert (found.severity, found.lost) == ("notice", None)
    assert [line.line for line in found.evidence] == [1]


def test_a_token_limit_is_one_loss_with_the_context():
    """The same 262,144 asked twice: the context is the finding, the limit a notice beside it."""
    line = SUMMARY.format(tokens=130000, requests=2, context=262144)
    diagnosis = paste(line, arguments={"context_length": 262144, "max_total_tokens": 262144})
    assert [(finding.id, finding.severity) for finding in diagnosis.findings] == [
        ("context-above-pool", "costly"),
        ("token-limit-not-binding", "notice"),
    ]


def test_a_token_limit_that_binds_is_no_finding():
    """Pages of 64 round 100,000 down to 99,968; of three ranks each holds a part of 90,816 (31,229 × 2 + 28,390)."""
    line = SUMMARY.format(tokens=99968, requests=2, context=4096)
    assert ids(paste(line, arguments={"max_total_tokens": 100000})) == []
    split = case("flashnext-3rank-uneven-dcp", arguments={"max_total_tokens": 90816})
    assert "token-limit-not-binding" not in ids(split)


# ── pools out of proportion ──────────────────────────────────────────────────────────────────────────────────────────


def test_scratch_above_its_pools_ends_a_start():
    """48.75 + 0.43 = 49.18 GiB beside 4.52 + 4.52 = 9.04 GiB of KV (5.4 times) and 3.05 + 0.07 = 3.12 GiB of state
    (15.8 times). A state is 3.05 GiB / 65 = 48.05 MiB, and 48.75 GiB hold 1,039 of them: 65 × 16 = 1,040, rounded.
    """
    told = {"max_running_requests": 64, "speculative_num_draft_tokens": 16, "disable_radix_cache": True}
    found = only(case("dflash-b16-oom-48gb-intermediate", arguments=told), "out-of-memory-graphs")
    assert (
        "The speculative scratch alone took 49.18 GiB, more than the KV pool (9.04 GiB): (64 requests + 1) × 16 draft "
        "tokens × 48.05 MiB of state (as logged per slot)."
    ) in found.cause
    untold = only(case("dflash-b16-oom-48gb-intermediate"), "out-of-memory-graphs")
    assert "about 1,039 states of 48.05 MiB (as logged per slot)" in untold.cause


SCRATCH = (
    "Load weight begin. avail mem={free} GB",
    (
        "Mamba Cache is allocated. max_mamba_cache_size: 16, conv_state size: 0.05GB, ssm_state size: 2.39GB "
        "intermediate_ssm_state_cache size: 38.25GB intermediate_conv_window_cache size: 0.28GB"
    ),
    "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 308356, K size: 9.41 GB, V size: 9.41 GB",
)


@pytest.mark.parametrize(("free", "told"), [("139.12", True), ("154.12", True), ("154.13", False)])
def test_scratch_of_a_server_that_serves_as_asked_is_told_from_a_quarter_of_the_card_on(free: str, told: bool):
    """38.25 + 0.28 = 38.53 GiB = 154.12 / 4, twice the 18.82 GiB of KV."""
    summary = SUMMARY.format(tokens=308356, requests=16, context=32768)
    found = paste(*(line.format(free=free) for line in SCRATCH), summary, arguments={"max_running_requests": 16})
    assert [(one.id, one.severity) for one in found.findings] == [("scratch-above-pool", "notice")] * told


def test_scratch_above_the_kv_of_a_capped_server_is_a_notice():
    """9.00 + 0.18 = 9.18 GiB beside 1.51 + 1.51 = 3.02: (3 + 1) × 16 × 1.97 GiB / 14 = 144.09 MiB."""
    found = only(of_path(RECORDS / "h200_story-6"), "scratch-above-pool")
    assert found.severity == "notice"
    assert "9.18 GiB, 3.0 times the KV pool (3.02 GiB)" in found.cause
    assert "(3 requests + 1) × 16 draft tokens × 144.09 MiB of state" in found.cause


def test_scratch_of_a_server_that_gives_what_was_asked_is_no_finding():
    """11.47 GiB beside 5.32 GiB of KV: four requests were asked for, four run, and a whole context fits."""
    assert ids(of_path(RECORDS / "0512_dflash_r4_exact")) == []


def test_a_pool_of_no_count_has_no_size_per_slot():
    line = (
        "Mamba Cache is allocated. max_mamba_cache_size: -1, conv_state size: 0.02GB, ssm_state size: 1.27GB "
        "intermediate_ssm_state_cache size: 4.50GB intermediate_conv_window_cache size: 0.03GB"
    )
    diagnosis = paste(line, arguments={"max_running_requests": 4})
    assert "one state for each draft token of each request" in only(diagnosis, "scratch-above-pool").cause
    assert ids(diagnosis) == ["scratch-above-pool"]


def test_scratch_below_the_kv_pool_is_no_finding():
    """6.75 + 0.05 GiB of scratch, 7.46 of KV."""
    assert "scratch-above-pool" not in ids(of_path(RECORDS / "var_ratio09_r4"))


def test_thousands_of_slots_for_a_few_requests():
    """32 requests × 3 to 5 slots: 160 at most of 2,211. 25.28 GiB × 2,051 / 2,212 = 23.44 GiB, and a KV token takes
    28.10 GiB / 19,644,177 = 1,536 B: 16,386,000 tokens.
    """
    found = only(case("nemotron3-nano-omni-4xgb10", arguments={"max_running_requests": 32}), "slots-beyond-use")
    assert found.cause == (
        "The state pool has 2,211 slots, of which 32 requests hold 160 (32 × 5 at most). Only states of cached "
        "prefixes can use the other 2,051: 23.44 GiB, the room of about 16,386,000 KV tokens."
    )
    assert (found.severity, found.lost) == ("notice", None)


def test_more_slots_than_any_number_of_requests_can_hold():
    """Nobody says how many requests run; the engine never runs more than 4,096 by itself: 20,480 slots at most."""
    found = only(case("lfm2-700m-conv-only"), "slots-beyond-use")
    assert "85,292 slots, of which even 4,096 requests, the most, hold 20,480 (4,096 × 5 at most)" in found.cause
    assert "the other 64,812: 3.71 GiB, the room of about 324,000 KV tokens" in found.cause


STATE = "Mamba Cache is allocated. max_mamba_cache_size: {slots}, conv_state size: 0.10GB, ssm_state size: {ssm}GB"
KV = "KV Cache is allocated. #tokens: {tokens}, K size: {size} GB, V size: {size} GB"


def test_idle_slots_cost_where_tokens_are_short():
    """40 slots for 2 × 5: 30 of 41 rows of 8.0 GiB are 5.85 GiB. What is lost is told with the tokens that lack."""
    lines = (STATE.format(slots=40, ssm="7.90"), KV.format(tokens=65536, size="2.00"))
    short = only(paste(*lines, arguments={"max_running_requests": 2, "context_length": 131072}), "slots-beyond-use")
    assert (short.severity, short.lost) == ("costly", None)
    assert "the other 30: 5.85 GiB, the room of about 96,000 KV tokens" in short.cause
    assert ids(paste(*lines, arguments={"max_running_requests": 2, "context_length": 65536})) == []
    by_hand = {"max_running_requests": 2, "context_length": 131072, "max_total_tokens": 65536}
    assert ids(paste(*lines, arguments=by_hand)) == ["context-above-pool"]


def test_idle_slots_are_given_back_by_a_change_that_is_predicted(tmp_path: Path):
    """45 slots for 4 × 5; 262,144 tokens of context and 215,239 in the pool. 25 slots of 153,944,064 B are 58,725
    tokens of 65,536 B: 273,964, so a whole context fits.
    """
    text = (RECORDS / "nospec_r4" / "server.log").read_text(encoding="utf-8")
    log = tmp_path / "server.log"
    log.write_text(
        text.replace("context_length=32768", "context_length=262144").replace("context_len=32768", "context_len=262144")
    )
    diagnosis = of_log(log)
    for finding_id in ("slots-beyond-use", "context-above-pool"):
        remedy = only(diagnosis, finding_id).remedies[0]
        assert (remedy.flags, remedy.verdict, remedy.changes_results) == ("--max-mamba-cache-size 20", "serves", False)
        assert remedy.predicted["kv_tokens"] == pytest.approx(273964, abs=1)
    dtype = [one for one in only(diagnosis, "context-above-pool").remedies if "memory.kv_cache_dtype" in one.set]
    assert [one.changes_results for one in dtype] == [True]


def test_tokens_that_no_request_can_hold():
    """48 requests × 16,384 = 786,432 of 2,618,868 tokens; 1,832,436 of them, 27.96 of 39.96 GiB, are never used."""
    found = only(
        case("hybrid-pdmux-48slots", arguments={"max_running_requests": 48, "disable_radix_cache": True}),
        "tokens-beyond-use",
    )
    assert found.cause == (
        "The KV pool has 2,618,868 tokens, 3.3 times what 48 requests of a whole context hold (48 × 16,384 = 786,432): "
        "1,832,436 tokens (27.96 GiB) are never used, since there is no prefix cache."
    )
    assert found.severity == "notice"
    with_cache = {"max_running_requests": 48, "disable_radix_cache": False}
    assert ids(case("hybrid-pdmux-48slots", arguments=with_cache)) == []


def test_draft_kv_above_the_targets():
    """The target's 65,536 tokens take 2.00 GiB (32,768 B each), the draft's two pools 1.50 + 1.50 (24,576 B each)."""
    load = "Load weight end. type={name}, dtype=torch.bfloat16, avail mem=60.00 GB, mem usage=5.00 GB."
    lines = (
        load.format(name="Qwen3ForCausalLM"),
        load.format(name="LlamaForCausalLMEagle3"),
        KV.format(tokens=65536, size="1.00"),
        KV.format(tokens=65536, size="0.75"),
    )
    found = only(paste(*lines, KV.format(tokens=65536, size="0.75")), "draft-kv-above-target")
    assert found.cause == (
        "The draft's KV takes 3.00 GiB in 2 pools (24,576 B per token, 24,576 B per token), the target's 2.00 GiB: "
        "49,152 B per token for the draft against 32,768 B per token for the target."
    )
    assert (found.severity, found.lost) == ("notice", None)
    assert ids(paste(*lines)) == []


@pytest.mark.parametrize(
    ("draft", "said"),
    [
        # 2 × 0.06 GiB, each within 0.005: 2,048 B per token, of which two decimals tell 1,966 ± 164; and 983 ± 164
        ("0.06", "about 1,966 B per token for the draft against about 983 B per token for the target."),
        ("0.04", None),  # 0.08 ± 0.01 and 0.06 ± 0.01
    ],
)
def test_small_pools_are_told_apart_as_far_as_two_decimals_go(draft: str, said: str | None):
    load = "Load weight end. type={name}, dtype=torch.bfloat16, avail mem=60.00 GB, mem usage=5.00 GB."
    lines = [load.format(name=name) for name in ("Qwen3_5ForCausalLM", "DFlashDraftModel")]
    log = paste(*lines, KV.format(tokens=65536, size="0.03"), KV.format(tokens=65536, size=draft))
    assert ids(log) == ([] if said is None else ["draft-kv-above-target"])
    if said is not None:
        assert only(log, "draft-kv-above-target").cause.endswith(said)


# ── what else is on the card ─────────────────────────────────────────────────────────────────────────────────────────


def test_graphs_that_took_most_of_what_was_left():
    """3.85 + 6.13 + 2.17 = 12.15 GiB of 14.77: 82.26%."""
    found = only(case("dflash-b16-oom-48gb-intermediate"), "out-of-memory-graphs")
    assert "CUDA graphs took 12.15 GiB of the 14.77 GiB that were free when the pools stood (82%)." in found.cause


def test_graphs_above_the_estimate_of_a_server_that_serves(tmp_path: Path):
    """0.14 GiB of graphs as recorded lie within the estimate (0.10 to 0.16); ten times as much does not."""
    assert "graphs-above-estimate" not in ids(of_path(RECORDS / "nospec_r8"))
    grown = tmp_path / "record"
    shutil.copytree(RECORDS / "nospec_r8", grown)
    text = (grown / "server.log").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if "Capture target decode CUDA graph end" in line]
    larger = line.replace("mem usage=0.14 GB", "mem usage=1.40 GB")
    (grown / "server.log").write_text(text.replace(line, larger), encoding="utf-8")
    found = only(of_path(grown), "graphs-above-estimate")
    assert found.severity == "notice"
    assert (
        "CUDA graphs took 1.40 GiB of the 68.27 GiB" in found.cause
        and "0.10 GiB to 0.16 GiB were estimated" in found.cause
    )
    assert found.remedies[0].set["memory.cuda_graph_max_bs"] == 4


def test_a_negative_figure_is_of_somebody_else():
    begin = "Load weight begin. avail mem=60.00 GB"
    load = "Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=61.25 GB, mem usage={used} GB."
    found = only(paste(begin, load.format(used="-1.25")), "negative-figures")
    assert found.cause.startswith("By the log, the weights of the target used -1.25 GiB: ")
    assert (found.severity, [line.line for line in found.evidence]) == ("notice", [2])
    assert ids(paste(begin, load.format(used="0.00"))) == []


#: A server on an idle H200 logs 139.10 GiB at least (the GPU table).
@pytest.mark.parametrize(("free", "post", "missing"), [("137.10", "86.03", "1.99"), ("138.70", "87.63", None)])
def test_memory_that_others_hold(tmp_path: Path, free: str, post: str, missing: str | None):
    """139.10 - (137.10 + half a digit, 0.005) = 1.995 GiB, of which the pools get 0.508 times: 16,605 tokens of 65,536
    B, less two more slots of 2,349 tokens each: 11,907."""
    text = (RECORDS / "nospec_r8" / "server.log").read_text(encoding="utf-8")
    log = tmp_path / "server.log"
    log.write_text(
        text.replace("avail mem=139.13", f"avail mem={free}").replace("avail mem=88.07", f"avail mem={post}")
    )
    told = of_log(log, told=Told(gpu="h200"))
    if missing is None:
        assert "memory-taken-by-others" not in ids(told)
        return
    found = only(told, "memory-taken-by-others")
    assert (
        f"137.10 GiB were free before loading; an idle H200 has 139.10 GiB at least. Other programs hold {missing}"
        in (found.cause)
    )
    assert "about 11,911 KV tokens (predicted on this log's memory)" in found.cause
    assert (found.severity, found.lost) == ("costly", pytest.approx(11911 / (215239 + 11911)))
    assert "Load weight begin. avail mem=137.10" in found.evidence[0].text
    assert "memory-taken-by-others" not in ids(of_log(log))  # the card is a guess: by its free memory


def test_memory_that_nvml_saw_in_use_before_the_start(tmp_path: Path):
    """5,648,019,968 B = 5.26 GiB in use, of which an idle H200 keeps 143,771 - 143,152 = 619 MiB."""
    record = tmp_path / "record"
    shutil.copytree(RECORDS / "nospec_r8", record)
    rows = (record / "gpu.csv").read_text(encoding="utf-8")
    assert "0.0,before,0,648019968," in rows
    (record / "gpu.csv").write_text(rows.replace("0.0,before,0,648019968,", "0.0,before,0,5648019968,"))
    found = only(of_path(record), "memory-taken-by-others")
    assert found.cause.startswith(
        "5.26 GiB were in use before the server started (NVML), 0.60 GiB of them the driver's own. Other programs hold "
        "4.66 GiB, which costs about "
    )
    assert "memory-taken-by-others" not in ids(of_path(RECORDS / "nospec_r8"))


def test_a_rank_with_a_display_costs_all_ranks():
    """6.23 - 5.46 = 0.77 GiB. A token takes (6.92 + 2.16) GiB / 454,112 = 21,470 B: 38,509; 38,509 / 492,621 = 7.8%."""
    found = only(case("qwen38-27b-2x5090-nvfp4-dflash"), "ranks-disagree")
    assert found.cause == (
        "TP1 has 5.46 GiB free beside the pools, TP0 6.23 GiB: 0.77 GiB less, held by something else on that card (a "
        "display, another program). All ranks are sized by the one with least, which costs about 38,509 KV tokens (at "
        "most, by the "
        "logged size of a token). To have it: end that process (nvidia-smi names it), or give the server other cards "
        "(CUDA_VISIBLE_DEVICES); no flag gives it back."
    )
    assert (found.severity, found.lost) == ("costly", pytest.approx(0.0782, abs=5e-5))
    assert [line.line for line in found.evidence] == [4, 8]


def test_less_on_one_rank_is_one_finding(tmp_path: Path):
    """TP1 1.10 GiB below TP0, which has what an idle H200 has: no further program holds anything."""
    text = (RECORDS / "tp2_dflash_r8" / "server.log").read_text(encoding="utf-8")
    old = "TP1] Load weight begin. avail mem=138.21"
    assert old in text
    log = tmp_path / "server.log"
    log.write_text(text.replace(old, old.replace("138.21", "137.11")), encoding="utf-8")
    diagnosis = of_log(log, told=Told(gpu="h200"))
    found = only(diagnosis, "ranks-disagree")
    assert "TP1 has 137.11 GiB free before loading, TP0 138.21 GiB: 1.10 GiB less" in found.cause
    assert "KV tokens (predicted on this log's memory)" in found.cause
    assert found.severity == "notice"  # 12,184 of 765,810 tokens
    assert "memory-taken-by-others" not in ids(diagnosis)


def test_ranks_that_hold_parts_of_the_tokens():
    """31,229 + 31,229 + 28,390 = 90,848."""
    found = only(case("flashnext-3rank-uneven-dcp", arguments={"max_total_tokens": 90816}), "ranks-disagree")
    assert "31,229 (TP0, TP1), 28,390 (TP2) tokens (together 90,848, max_total_tokens 90,816)" in found.cause
    assert found.severity == "notice"


def test_ranks_that_differ_by_their_buffers_agree():
    """137.99, 137.99, 138.03 and 138.22 GiB: nobody has less than all others."""
    assert "ranks-disagree" not in ids(of_path(RECORDS / "tp4_dflash_r8"))
    assert "ranks-disagree" not in ids(case("deepseekv3-class-8rank"))


def test_limits_beyond_any_memory_are_compared_all_the_same():
    """10^320 is no float: nothing of it may be multiplied by one."""
    line = SUMMARY.format(tokens=1000, requests=2, context=1000)
    huge = paste(line, arguments={"max_total_tokens": 10**320, "max_running_requests": 10**320})
    assert ids(huge) == ["capped-by-state-slots", "token-limit-not-binding"]
    assert [finding.lost for finding in huge.findings] == [1.0, None]
    drafts = case("dflash-b16-oom-48gb-intermediate", arguments={"speculative_num_draft_tokens": 10**320})
    assert "about 1,039 states" in only(drafts, "out-of-memory-graphs").cause


def test_a_token_limit_far_below_the_memory():
    """329,472 / 90,816 = 3.6; the same limit of 164,737 would be less than half of it."""
    found = only(case("flashnext-3rank-uneven-dcp", arguments={"max_total_tokens": 90816}), "token-limit-far-below")
    assert found.cause == (
        "max_total_tokens is 90,816; the memory would hold 329,472 tokens on the rank with least, 3.6 times as many. "
        "An input of 90,816 tokens is refused."
    )
    assert [line.line for line in found.evidence] == [3]
    near = case("flashnext-3rank-uneven-dcp", arguments={"max_total_tokens": 164737})
    assert "token-limit-far-below" not in ids(near)


# ── what the log does not show ───────────────────────────────────────────────────────────────────────────────────────


def test_a_state_pool_that_another_allocator_replaces():
    found = only(case("kvcached-elastic-mamba-9b"), "state-pool-not-logged")
    assert found.cause == (
        "The model keeps state (kvcached sizes its cells), and no line tells its pool: slots, their size and "
        "speculative scratch are not logged, which is not zero (kvcached allocates state on demand, and replaces the "
        "engine's pools and their lines)."
    )
    assert [line.line for line in found.evidence] == [2]


def test_a_paste_that_begins_after_the_state_pool():
    found = only(case("qwen38-27b-2x5090-nvfp4-dflash"), "state-pool-not-logged")
    assert "(it runs on the hybrid linear attention backend)" in found.cause
    assert "the first pool line is line 1, a KV pool: the log begins after the state pool, or was cut" in found.cause


def test_a_unified_pool_has_its_slots_in_a_line_of_its_own():
    usage = (
        "[2026-07-04 05:01:33] Decode batch, #running-req: 4, #full token: 3505, full token usage: 0.07, "
        "mamba num: 16, mamba usage: 0.80, cuda graph: True, gen throughput (token/s): 155.34, #queue-req: 0"
    )
    unified = (
        "[unified-memory-pool]   total_bytes=8589934592, max_total_num_tokens=50000, max_mamba_cache_size=20, "
        "max_num_reqs=4, speculative_num_draft_tokens=None"
    )
    kv = KV.format(tokens=50000, size="1.50")
    assert ids(paste(kv, usage)) == ["state-pool-not-logged"]
    assert ids(paste(unified, kv, usage)) == []


def test_a_model_without_state_lacks_no_state_pool():
    assert ids(case("deepseekv3-class-8rank")) == []
    assert ids(case("plain-fp8-heavy-96gb")) == []


NVFP4: dict[str, Any] = {"model": "nvidia/Qwen3.8-27B-NVFP4", "gpu": "rtx-5090", "version": "0.5.18"}


def test_a_draft_that_loads_the_targets_embedding_and_head_again():
    """2 × 248,320 × 5,120 × 2 B = 5,085,593,600 B = 4.74 GiB; a KV token in FP8 takes 32,768 B: 155,200 of them."""
    asked = {"speculative_algorithm": "NEXTN", "kv_cache_dtype": "fp8_e4m3", "mem_fraction_static": 0.94}
    found = only(case("qwen38-27b-nvfp4-nextn-5090-130k", **NVFP4, arguments=asked), "draft-weights-duplicated")
    assert found.cause == (
        "The draft (Qwen3_5ForCausalLMMTP) loads 5.18 GiB; 4.74 GiB of it are a copy of the target's embedding and "
        "head, in 2 B an element. SGLang drops them for the target's own, but after the pools are sized: that memory, "
        "the room of 155,200 KV tokens, is free later and in no pool."
    )
    assert (found.severity, [line.line for line in found.evidence]) == ("notice", [1, 2])


def test_a_heavy_draft_layer_of_an_unknown_model():
    """5.18 of 28.39 GiB: 18% of the target's weights in one layer."""
    found = only(case("qwen38-27b-nvfp4-nextn-5090-130k"), "draft-weights-duplicated")
    assert "5.18 GiB; 18% of the target's for one layer" in found.cause


def test_a_draft_that_loads_after_the_pools_takes_nothing_from_them():
    """Up to 0.5.13, and where the lines stand in that order and nobody knows the release."""
    assert ids(case("qwen38-27b-mtp-5090-rejected")) == []
    assert ids(case("qwen38-27b-mtp-5090-rejected", version="0.5.13", arguments={"model_path": "x"})) == []
    assert ids(case("qwen38-27b-mtp-5090-rejected", **NVFP4, arguments={"speculative_algorithm": "NEXTN"})) == [
        "draft-weights-duplicated"
    ]


@pytest.mark.parametrize("used", ["0.00", "-2.00"])
def test_weights_that_took_nothing_compare_with_no_draft(used: str):
    load = "Load weight end. type={name}, dtype=torch.bfloat16, avail mem=60.00 GB, mem usage={used} GB."
    lines = (
        load.format(name="Qwen3_5ForConditionalGeneration", used=used),
        load.format(name="Qwen3_5ForCausalLMMTP", used="5.53"),
    )
    assert "draft-weights-duplicated" not in ids(paste(*lines))


def test_a_second_embedding_that_the_pools_hardly_miss():
    """2.37 GiB a rank beside 44 GiB of pools (5%), as a server of two H200s logged it."""
    assert "draft-weights-duplicated" not in ids(of_path(RECORDS / "h200-tp2_nextn-8-no-graphs"))
