"""The one vocabulary: terms of memory and limits of service, with unit and meaning.

Prediction, observation, JSON, tables and plots all use these names, so reconciling is a join.
"""

from __future__ import annotations

from typing import Literal

Term = Literal[
    "weights",
    "draft_weights",
    "state_conv",
    "state_ssm",
    "scratch_ssm",
    "scratch_conv",
    "kv",
    "draft_kv",
    "graphs",
    "slack",
    "unexplained",
]

#: Bytes, per rank. In the order in which a waterfall stacks them.
TERMS: dict[Term, str] = {
    "weights": "weights of the target model",
    "draft_weights": "weights of the draft model",
    "state_conv": "convolution state of every state slot, padding slot included",
    "state_ssm": "recurrent (ssm) state of every state slot, padding slot included",
    "scratch_ssm": "speculative scratch: ssm state after each draft token, per running request, padding row included",
    "scratch_conv": "speculative scratch: convolution windows of the draft tokens, padding row included",
    "kv": "KV cache of the target's full-attention layers",
    "draft_kv": "KV cache of the draft model",
    "graphs": "CUDA graphs of target and draft",
    "slack": "free when all pools stand, for graphs, activations and workspaces",
    "unexplained": "used, but by none of the terms above",
}

Limit = Literal[
    "state_slots",
    "slots_per_request",
    "running_requests",
    "kv_tokens",
    "context_len",
    "max_input_tokens",
]

#: Counts, per rank (every rank of one data-parallel group resolves the same).
LIMITS: dict[Limit, str] = {
    "state_slots": "slots of recurrent state (SGLang: max_mamba_cache_size)",
    "slots_per_request": "state slots that one running request needs (SGLang: mamba ratio)",
    "running_requests": "requests that run at once (SGLang: max_running_requests, resolved)",
    "kv_tokens": "tokens in the KV pool (SGLang: max_total_num_tokens)",
    "context_len": "tokens of context, input and output together",
    "max_input_tokens": "an input must be shorter than this (SGLang: max_req_input_len)",
}

Role = Literal["target", "draft"]
ROLES: tuple[Role, ...] = ("target", "draft")

#: Where a figure comes from. Every figure that is shown names one of these.
Origin = Literal["predicted", "recorded", "measured"]

#: How a run ended.
Status = Literal["served", "refused", "crashed", "timed_out"]

Outcome = Literal[
    "served", "capped", "started", "unanswered", "refused", "crashed", "timed_out", "no_record", "unknown"
]

#: How a run is summed up. JSON has these names; text has them with a space for the underscore.
OUTCOMES: dict[Outcome, str] = {
    "served": "room for as many at once as asked, and answers came",
    "capped": "fewer at once than asked, and no error says so",
    "started": "as asked, but nothing was sent",
    "unanswered": "no request that was sent was answered",
    "refused": "the server did not start",
    "crashed": "the server died",
    "timed_out": "the time was up before it was done",
    "no_record": "the run itself failed",
    "unknown": "the log ends before it tells",
}

#: What the prediction says about a configuration.
Verdict = Literal["serves", "capped", "refused"]

#: What a figure rests on.
Basis = Literal["config", "measured"]
