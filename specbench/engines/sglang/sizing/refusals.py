"""The texts with which SGLang refuses a start, by version. In: what was computed. Out: the last line of its traceback.

Texts are verbatim from the releases and from real logs. From 0.5.11 on, "Not enough memory" is raised where the
fraction is not known yet, so it lacks the "Current value" that the source can add.
"""

from __future__ import annotations

import math

from ....units import GIB, MIB
from ....versions import at_least
from .contract import Demand, Pools, Rule


def text(
    pools: Pools, rule: Rule, demand: Demand, *, fraction: float, pre_bytes: int, post_bytes: int, graphs: bool
) -> str:
    """`pools.refusal` as the engine words it. `pre_bytes`, `post_bytes`: free before loading and when sizing."""
    match pools.refusal:
        case "not_enough_memory":
            current = _current(rule, fraction)
            return f"RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.{current}"
        case "no_room":
            least = 1 - (post_bytes / GIB) / (pre_bytes / GIB)
            suggested = math.ceil(least * 1000) / 1000
            return (
                "ValueError: Loaded weights leave no GPU memory for the KV cache under "
                f"--mem-fraction-static={fraction}. Raise --mem-fraction-static above {suggested:.3f} "
                f"(minimum viable = 1 - available/pre = {least:.4f}). If using speculative decoding, draft weights are "
                "now counted."
            )
        case "no_state":
            return (
                "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache. "
                f"Computed max_mamba_cache_size={pools.slots} (total_rest_memory={pools.left_gib:.2f} GB, "
                f"mamba_cache_per_req={demand.slot_bytes / MIB:.2f} MB). Try: (1) reduce --max-running-requests, "
                "(2) increase --mem-fraction-static, (3) reduce --speculative-num-draft-tokens, or "
                "(4) use GPUs with more memory."
            )
        case "state_too_small":
            fit = pools.slots // demand.slots_per_request
            return (
                "RuntimeError: Hybrid (mamba/linear-attention) state cache is too small to serve any requests. "
                f"max_mamba_cache_size={pools.slots}, mamba_ratio={demand.slots_per_request}, "
                f"resulting max_num_reqs={fit}. Try: (1) reduce --max-running-requests, "
                "(2) increase --mem-fraction-static, or (3) use GPUs with more memory."
            )
        case "zero_requests":
            # graphs are captured before the worker counts the requests
            return "AssertionError: capture_bs=[0]" if graphs else "AssertionError: max_running_request is zero"
        case "window_too_small" if demand.windows is not None:
            return (
                f"ValueError: SWA pool ({pools.window_tokens} tokens) cannot hold even one request: the prefill "
                f"admission floor is sliding_window_size ({demand.windows.tokens}) + page_size ({demand.page_size}). "
                "Increase --swa-full-tokens-ratio or the total KV budget."
            )
        case "window_cap_too_large" if demand.windows is not None and demand.windows.cap is not None:
            capped, available = demand.windows.cap, pools.left_gib
            return (
                f"RuntimeError: SWA pool cap ({capped} tokens, {capped * demand.windows.bytes / GIB:.2f} GiB) leaves "
                f"no room for the full KV pool within the available {available:.2f} GiB. Reduce "
                "--max-running-requests, lower SGLANG_SWA_EVICTION_INTERVAL, or increase --mem-fraction-static."
            )
        case "pool_too_short":
            return "AssertionError: Memory pool size is too small"
        case _:
            raise ValueError("these pools were not refused")


def _current(rule: Rule, fraction: float) -> str:
    if at_least(rule.version, "0.5.11"):
        return ""
    field = "mem_fraction_static" if at_least(rule.version, "0.5.10") else "self.server_args.mem_fraction_static"
    return f" Current value: {field}={fraction}"
