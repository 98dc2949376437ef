"""Every finding by its id: a title, what it means, how grave it usually is, and of what it tells a loss.

In: nothing. Out: `KNOWN`, what is shown beside an id, and docs/findings.md (`make docs`). A rule emits no other id: it
is a type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

Severity = Literal["fatal", "costly", "notice"]

FindingId = Literal[
    # a start that failed
    "refused-arguments",
    "refused-model",
    "bad-environment",
    "port-in-use",
    "refused-weights",
    "refused-state-pool",
    "refused-no-memory",
    "refused-unbalanced",
    "refused-int8-pool",
    "out-of-memory-start",
    "out-of-memory-pools",
    "out-of-memory-graphs",
    "graph-capture-failed",
    "communication-failed",
    "gpu-missing",
    "rank-missing",
    "out-of-host-memory",
    "disk-full",
    "crashed-start",
    "timed-out",
    # a server that died, or is unwell
    "out-of-memory-serving",
    "kv-pool-exhausted",
    "state-slots-exhausted",
    "request-slots-exhausted",
    "memory-leak",
    "watchdog-timeout",
    "health-check-failed",
    "crashed-serving",
    "ended-by-signal",
    "ended-silently",
    "stopped-answering",
    "perhaps-hangs",
    "known-fault-ahead",
    "out-of-memory-ahead",
    # requests
    "context-overflow",
    "pool-overflow",
    "queue-full",
    "input-truncated",
    "output-cut-by-pool",
    "requests-failed",
    # pools
    "capped-by-state-slots",
    "capped-by-kv-tokens",
    "context-above-pool",
    "token-limit-not-binding",
    "token-limit-far-below",
    "scratch-above-pool",
    "slots-beyond-use",
    "tokens-beyond-use",
    "draft-kv-above-target",
    "draft-weights-duplicated",
    "graphs-above-estimate",
    "graphs-grew",
    "starts-differ",
    "memory-taken-by-others",
    "ranks-disagree",
    "negative-figures",
    "state-pool-not-logged",
    # serving
    "slots-idle-while-queueing",
    "queue-with-room",
    "admission-delayed",
    "retraction",
    "acceptance-too-low",
    "acceptance-decays",
    "prefix-cache-hits",
    "custom-allreduce-off",
    "throughput-spans-idle",
    "slow-first-request",
    "bench-queued",
]


@dataclass(frozen=True, slots=True)
class Kind:
    """What every finding of an id has in common."""

    title: str  # a few words, as a person would say it
    means: str  # one or two sentences
    usual: Severity  # as it mostly is; the figures of a case may make it another
    lost: str = ""  # of what `Finding.lost` is the share: "of the requests asked for"; "": it is never set


_ALL: Final = "of everything"
_ASKED: Final = "of the requests asked for"

KNOWN: Final[Mapping[FindingId, Kind]] = {
    "refused-arguments": Kind(
        "Arguments that do not go together",
        "The engine refused its arguments before it loaded anything: a flag that this version does not have, or a "
        "combination that it does not run.",
        "fatal",
    ),
    "refused-model": Kind(
        "A model that cannot be loaded",
        "The model's files were not found, or this version does not know its architecture.",
        "fatal",
    ),
    "bad-environment": Kind(
        "The Python environment lacks something",
        "A package, a kernel or a compiler that the engine needs is missing or does not fit. Not about memory.",
        "fatal",
    ),
    "port-in-use": Kind("The port is taken", "Another process listens where the server was told to listen.", "fatal"),
    "refused-weights": Kind(
        "The weights leave no room for pools",
        "Loading took more than the static fraction allows, whatever pool the engine's text names.",
        "fatal",
        _ALL,
    ),
    "refused-state-pool": Kind(
        "Too few state slots for one request",
        "The state pool holds fewer slots than a single request takes, so no request could run.",
        "fatal",
        _ALL,
    ),
    "refused-no-memory": Kind(
        "Nothing is left for the KV pool",
        "Weights, state slots and speculative scratch took all of the static fraction, or all but a few tokens. Which "
        "of them is in the cause: the engine's text may blame the weights alone.",
        "fatal",
        _ALL,
    ),
    "refused-unbalanced": Kind(
        "Ranks have unequal free memory",
        "The engine refuses to start when one card has much less free memory than the others: mostly another program "
        "is on it.",
        "fatal",
        _ALL,
    ),
    "refused-int8-pool": Kind(
        "The int8 checkpoint pool does not fit",
        "The pool of int8 checkpoints of the recurrent state is larger than what is left.",
        "fatal",
        _ALL,
    ),
    "out-of-memory-start": Kind(
        "Out of GPU memory while starting", "An allocation failed before the pools were made.", "fatal", _ALL
    ),
    "out-of-memory-pools": Kind(
        "Out of GPU memory at the pools",
        "The static fraction allows pools that are larger than what the card has left.",
        "fatal",
        _ALL,
    ),
    "out-of-memory-graphs": Kind(
        "Out of GPU memory at graph capture",
        "The pools left too little for the CUDA graphs.",
        "fatal",
        _ALL,
    ),
    "graph-capture-failed": Kind(
        "The CUDA graphs were not captured",
        "The server ended while it captured graphs, for another reason than memory, or for one that is not in the log.",
        "fatal",
    ),
    "communication-failed": Kind(
        "The ranks could not communicate",
        "A collective operation failed, and no rank names another cause.",
        "fatal",
    ),
    "gpu-missing": Kind(
        "A GPU is not there",
        "A rank has no card: fewer are visible than the server has ranks, or one cannot be used.",
        "fatal",
    ),
    "rank-missing": Kind(
        "A rank never came",
        "Ranks waited for one that did not come to the start of communication, or to a collective operation, until a "
        "time was up. A notice where a log merely ends while they wait.",
        "fatal",
    ),
    "out-of-host-memory": Kind(
        "Out of host memory", "The host, not the GPU, has no memory left, or a container's limit is reached.", "fatal"
    ),
    "disk-full": Kind("No space on a disk", "Nothing can be written where the server writes.", "fatal"),
    "crashed-start": Kind(
        "It failed while starting", "An error of another kind, in the engine's own words.", "fatal"
    ),
    "timed-out": Kind(
        "Not ready in time", "The server was neither ready nor gone when its time was up.", "fatal"
    ),
    "out-of-memory-serving": Kind(
        "Out of GPU memory while serving",
        "Activations, mostly of a long prefill, did not fit beside the pools.",
        "fatal",
        _ALL,
    ),
    "kv-pool-exhausted": Kind(
        "No KV token was free",
        "A running batch needed a token more than the pool had, and retraction could not help.",
        "fatal",
    ),
    "state-slots-exhausted": Kind(
        "No state slot was free",
        "A request needed a slot more than the state pool had, also after cached prefixes were evicted.",
        "fatal",
    ),
    "request-slots-exhausted": Kind(
        "No place in the request table was free", "More requests were to run than the table of running requests holds.",
        "fatal",
    ),
    "memory-leak": Kind(
        "A pool does not add up",
        "With nothing running, the engine's own check finds entries of a pool that nobody holds: a fault of the "
        "engine.",
        "fatal",
    ),
    "watchdog-timeout": Kind(
        "A step hung",
        "The engine's watchdog saw no progress for its time, and ended the server (a soft one only says so).",
        "fatal",
    ),
    "health-check-failed": Kind(
        "A health check failed", "The model gave nothing back in the time that a health check has.", "costly"
    ),
    "crashed-serving": Kind(
        "It failed while serving", "An error of another kind, in the engine's own words.", "fatal"
    ),
    "ended-by-signal": Kind(
        "Ended by a signal",
        "A process of the server was ended from outside, or only what followed is in the log.",
        "fatal",
        _ALL,
    ),
    "ended-silently": Kind("It ended without a word", "The server is gone, and its log names no error.", "fatal"),
    "stopped-answering": Kind(
        "It stopped answering",
        "Its processes went on without an answer until they were ended, and its log names no error.",
        "fatal",
    ),
    "perhaps-hangs": Kind(
        "It may hang",
        "The log ends with requests that began, and no line shows that one went on: the server hangs, or the log was "
        "cut there.",
        "notice",
    ),
    "known-fault-ahead": Kind(
        "A known fault lies ahead",
        "It has not happened in this log: a fault of this engine version, known from recordings or its source, ends a "
        "server with these settings.",
        "costly",
    ),
    "out-of-memory-ahead": Kind(
        "Memory may not suffice for a full prefill",
        "It has not happened in this log: what graphs left beside the pools is less than a full prefill is estimated "
        "to take.",
        "notice",
    ),
    "context-overflow": Kind(
        "Requests longer than the context",
        "Input and output together exceed the context length; the engine answers with an error.",
        "costly",
        "of the requests sent",
    ),
    "pool-overflow": Kind(
        "Inputs longer than the KV pool",
        "A single input does not fit the pool; the engine answers with an error.",
        "costly",
        "of the requests sent",
    ),
    "queue-full": Kind(
        "The queue was full",
        "More requests waited than max_queued_requests allows; the others were answered with 503.",
        "costly",
        "of the requests sent",
    ),
    "input-truncated": Kind(
        "Inputs were cut",
        "With --allow-auto-truncate the engine kept the beginning of what did not fit, and answered that.",
        "costly",
        "of the longest input",
    ),
    "output-cut-by-pool": Kind(
        "Answers ended early",
        "The engine lowered max_new_tokens to what the pool holds, without a word; the finish reason is length.",
        "costly",
        "of the output tokens of these answers",
    ),
    "requests-failed": Kind(
        "Requests failed", "Requests without an answer, for another reason than their length.", "costly",
        "of the requests sent",
    ),
    "capped-by-state-slots": Kind(
        "State slots cap the running requests",
        "The state pool holds fewer slots than the requests asked for need; the engine lowers their number and goes "
        "on.",
        "costly",
        _ASKED,
    ),
    "capped-by-kv-tokens": Kind(
        "KV tokens cap the running requests",
        "The engine runs at most half as many requests as the KV pool has tokens.",
        "costly",
        _ASKED,
    ),
    "context-above-pool": Kind(
        "The context is longer than the KV pool",
        "No request can use the whole context: long inputs are refused, and long answers end early without a warning. "
        "A notice where nobody asked for so long a context, or where the requests that met it are told above.",
        "costly",
        "of the context",
    ),
    "token-limit-not-binding": Kind(
        "max_total_tokens does not bind",
        "It is above what the memory gave. It is an upper limit and no reservation.",
        "notice",
    ),
    "token-limit-far-below": Kind(
        "max_total_tokens gives memory away", "The memory would hold at least twice as many tokens.", "notice"
    ),
    "scratch-above-pool": Kind(
        "Speculative scratch larger than its pool",
        "Verifying drafts keeps a recurrent state for each draft token of each request. Costly where KV tokens lack.",
        "notice",
    ),
    "slots-beyond-use": Kind(
        "More state slots than requests can hold",
        "The ratio of state to KV knows nothing of the number of requests. What they cannot hold serves only cached "
        "prefixes. Costly where KV tokens lack.",
        "notice",
    ),
    "tokens-beyond-use": Kind(
        "More KV tokens than requests can hold",
        "All requests with whole contexts leave most of the pool empty, and no prefix cache uses it.",
        "notice",
    ),
    "draft-kv-above-target": Kind(
        "The draft's KV is larger than the target's",
        "A token costs more in the draft's layers than in the model that it helps. Costly where KV tokens lack.",
        "notice",
    ),
    "draft-weights-duplicated": Kind(
        "The draft loads the target's embedding again",
        "A draft of the target's own checkpoint builds an embedding and a head, and drops them when the pools are "
        "sized already. Costly where KV tokens lack.",
        "notice",
    ),
    "graphs-above-estimate": Kind(
        "CUDA graphs took much memory", "More than was estimated, or most of what the pools left.", "notice"
    ),
    "graphs-grew": Kind(
        "CUDA graphs grew since the last start",
        "In a log of several starts with the same arguments the last one's graphs took more than those before.",
        "notice",
    ),
    "starts-differ": Kind(
        "This start had other memory than the last",
        "In a log of several starts with the same arguments another amount was free before loading. Costly from one KV "
        "token in twenty on.",
        "costly",
        "of the KV tokens of the start before",
    ),
    "memory-taken-by-others": Kind(
        "Something else uses the card",
        "Less memory was free before loading than an idle card has. Costly from one KV token in twenty on.",
        "costly",
        "of the KV tokens that there would be",
    ),
    "ranks-disagree": Kind(
        "Ranks differ",
        "One rank has less free memory, by which all are sized, or ranks logged pools of different sizes.",
        "notice",
        "of the KV tokens that there would be",
    ),
    "negative-figures": Kind(
        "Memory came back while it was measured",
        "What a step \"used\" is negative, or far less than what was loaded: a difference of free memory that another "
        "program changed meanwhile.",
        "notice",
    ),
    "state-pool-not-logged": Kind(
        "The state pool is not in the log",
        "The model keeps recurrent state, and no line tells its pool: not logged is not zero.",
        "notice",
    ),
    "slots-idle-while-queueing": Kind(
        "State slots idle while requests queue",
        "The engine reserves more slots for a running request than it holds while it decodes.",
        "costly",
        _ASKED,
    ),
    "queue-with-room": Kind(
        "A queue beside a pool with room",
        "The limit of running requests holds the queue, not the memory. A notice where that limit was asked for.",
        "costly",
    ),
    "admission-delayed": Kind(
        "Admissions are batched",
        "With some speculative algorithms the engine admits several requests at once or none.",
        "costly",
    ),
    "retraction": Kind(
        "Running requests were thrown out",
        "The KV pool was full while they decoded, so some lost their tokens and were computed again. A notice where "
        "it was rare.",
        "costly",
        "of the prefilled tokens",
    ),
    "acceptance-too-low": Kind(
        "Acceptance too low to pay",
        "A round gives hardly more than its bonus token; against the same server without speculation (--against) an "
        "output token takes longer. A notice without that comparison, and with random weights.",
        "notice",
        "of the speed without speculation",
    ),
    "acceptance-decays": Kind(
        "Acceptance falls", "Drafts are accepted less as requests grow, or as time goes by.", "costly",
        "of the tokens per round",
    ),
    "prefix-cache-hits": Kind(
        "Prompts came from the prefix cache",
        "Their time to first token says nothing about a prefill.",
        "notice",
    ),
    "custom-allreduce-off": Kind(
        "All-reduce by NCCL alone",
        "The engine gave up its own all-reduce, which is faster for the small tensors of decoding: cards without "
        "NVLink or peer access, a number of ranks that it does not know, several nodes.",
        "notice",
    ),
    "throughput-spans-idle": Kind(
        "Throughput lines count idle time",
        "The engine divides by the time since its last decode line, in which nothing ran.",
        "notice",
    ),
    "slow-first-request": Kind(
        "The first request was slow",
        "Kernels are compiled on first use. Costly where that is in the measured part.",
        "notice",
    ),
    "bench-queued": Kind(
        "A benchmark measured its queue",
        "Requests of a benchmark in the log waited longer than they were served.",
        "notice",
    ),
}  # fmt: skip

_PARTS: Final[tuple[tuple[str, FindingId], ...]] = (
    ("A start that failed", "refused-arguments"),
    ("A server that died, or is unwell", "out-of-memory-serving"),
    ("Requests", "context-overflow"),
    ("Pools", "capped-by-state-slots"),
    ("Serving", "slots-idle-while-queueing"),
)

_HEAD: Final = """\
# Findings

What `specbench diagnose` can find, by the ids that stand in its JSON and beside its titles. A finding has a cause with
figures, the lines that prove it, and remedies that were predicted on the memory of that very start before they are
shown. *fatal*: it did not start, or died. *costly*: it serves less, or slower, than it could. *notice*: figures must be
read with it, nothing is lost. The severity is the usual one; the figures of a case may make it another. This page is
made from `specbench/diagnose/catalogue.py` (`make docs`).
"""


def title(finding_id: FindingId) -> str:
    return KNOWN[finding_id].title


def lost_text(finding_id: FindingId, lost: float) -> str:
    """'Lost: 75% of the requests asked for'; a share that rounds to nothing, or to all, is not said to be that."""
    shown = f"{lost:.0%}"
    if shown == "0%":
        shown = "less than 1%"
    elif shown == "100%" and lost < 1:
        shown = "more than 99%"
    return f"Lost: {shown} {KNOWN[finding_id].lost}"


def markdown() -> str:
    """The whole page."""
    begins = {first: name for name, first in _PARTS}
    lines = [_HEAD]
    for finding_id in get_args(FindingId):
        if finding_id in begins:
            lines.append(f"\n## {begins[finding_id]}\n\n| id | what it is | usually | what it means |\n")
            lines.append("| --- | --- | --- | --- |\n")
        kind = KNOWN[finding_id]
        share = f" The loss is given as a share {kind.lost}." if kind.lost and kind.lost != _ALL else ""
        lines.append(f"| `{finding_id}` | {kind.title} | {kind.usual} | {kind.means}{share} |\n")
    return "".join(lines)
