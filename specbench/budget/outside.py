"""What must fit outside the budget: CUDA graphs, and what a full prefill takes on top. Estimates, never exact.

In: what is captured, and the sizes of the model. Out: intervals in bytes per rank, by the laws of `data/outside.yaml`,
which were fitted to what recorded starts logged. The non-obvious thing: a graph keeps its own outputs, so graphs of
verified drafts grow with the sum of the batch sizes, times the vocabulary, not with the largest batch.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..architectures.dflash import target_layers
from ..configuration import yamltext
from ..engines.sglang.given import server_args
from ..engines.sglang.resolve import Settings
from ..engines.sglang.sizing.fraction import max_prefill_tokens
from ..errors import SpecError
from ..paths import DATA
from ..units import GIB, Interval, format_gib

_FAMILIES = ("none", "ngram", "dflash", "eagle")


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """What graphs are captured for, and of which model. Counts and elements."""

    family: str  # none, ngram, dflash, eagle
    before_0_5_14: bool  # the draft loads after the target's graphs
    tp: int
    width: int  # tokens of a request in a verified batch; 1 without speculation
    sizes: tuple[int, ...]  # batch sizes of the decoding graphs; none: none captured
    hidden: int
    vocabulary: int
    read: int = 0  # the target's layers whose hidden states the draft reads
    prefill: tuple[int, ...] = ()  # tokens of the prefill graphs
    beyond: tuple[str, ...] = ()  # what of it was not recorded, in words

    @property
    def tokens(self) -> int:
        return self.width * sum(self.sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Bytes per rank, with the arithmetic."""

    bytes: Interval
    formula: str
    numbers: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """Both estimates, and what is left of the slack when both are taken."""

    graphs: Estimate
    activations: Estimate
    left: Interval
    warning: str | None = field(default=None)  # a likely out-of-memory, with its arithmetic


def outside(settings: Settings, slack: Interval | None, requests: int | None, tokens: int | None) -> Outside | None:
    """None where nothing is estimated: a host, an algorithm whose graphs were never recorded, pools that do not stand.

    `requests`, `tokens`: that run at once, and of the KV pool; `slack`: free when all pools stand.
    """
    if settings.gpu.is_host or slack is None or not requests or not tokens or settings.family not in _FAMILIES:
        return None
    try:
        captured = _captured(settings, requests)
    except SpecError:  # the config does not tell its vocabulary or width
        return None
    return estimate(captured, slack, chunk=min(_chunk(settings), tokens), requests=requests)


def estimate(captured: Captured, slack: Interval, *, chunk: int, requests: int) -> Outside:
    """`slack`: bytes free when all pools stand. `chunk`: tokens of a full prefill. `requests`: that run at once."""
    graphs = graphs_of(captured)
    activations = activations_of(captured, chunk, requests)
    left = Interval(
        slack.low - graphs.bytes.high - activations.bytes.high,
        slack.point - graphs.bytes.point - activations.bytes.point,
        slack.high - graphs.bytes.low - activations.bytes.low,
    )
    warning = _warning(slack, graphs, activations, chunk)
    return Outside(graphs=graphs, activations=activations, left=left, warning=warning)


def graphs_of(captured: Captured) -> Estimate:
    """CUDA graphs of target and draft."""
    if not captured.sizes and not captured.prefill:
        return Estimate(bytes=Interval.exact(0), formula="no CUDA graphs: they are turned off", numbers="0 B")
    every = {
        "target": target_graphs(captured),
        "draft": draft_graphs(captured),
        "prefill": prefill_graphs(captured),
    }
    parts = {name: part for name, part in every.items() if part is not None}
    size = Interval.total(parts.values())
    numbers = " + ".join(f"{name} {format_gib(part.point)}" for name, part in parts.items())
    if captured.sizes:
        numbers += f"; batch sizes up to {max(captured.sizes)}, {captured.tokens:,} tokens in all"
    rests = "recordings of this model and card"
    if captured.prefill:
        rests += ", of prefill graphs from public logs"
    if captured.beyond:
        rests = f"recordings, widened, as not recorded: {', '.join(captured.beyond)}"
    return Estimate(
        bytes=size,
        formula=f"estimated: workspaces, and the outputs that each graph keeps (logits, hidden states); from {rests}",
        numbers=f"{numbers} = {format_gib(size.point)}",
    )


def target_graphs(captured: Captured) -> Interval | None:
    """Decoding graphs of the target; verified drafts keep logits and what the draft reads."""
    if not captured.sizes:
        return None
    if captured.family == "none":
        buffer = max(captured.sizes) * captured.vocabulary * 4
        return _widened(captured, _based("decode", buffer))
    name = "verify_before_0_5_14" if captured.before_0_5_14 else "verify"
    kept = captured.tokens * (captured.vocabulary * 2 + captured.read * captured.hidden * 2)
    return _widened(captured, _based(name, kept))


def draft_graphs(captured: Captured) -> Interval | None:
    """Decoding graphs of the draft: logits of every token in bfloat16, with DFLASH a rank's share of them.

    None: none are captured."""
    if not captured.sizes or captured.family in ("none", "ngram"):
        return None
    logits = captured.tokens * captured.vocabulary * 2
    if captured.family == "eagle":
        return _widened(captured, _based("draft_eagle", logits))
    name = "draft_dflash_before_0_5_14" if captured.before_0_5_14 else "draft_dflash"
    return _widened(captured, _based(name, logits // captured.tp))


def prefill_graphs(captured: Captured) -> Interval | None:
    """None was recorded, so the interval is always the wider one."""
    if not captured.prefill:
        return None
    kept = sum(captured.prefill) * captured.hidden * 2 * max(1, captured.read)
    return _elsewhere(_based("prefill", kept))


def activations_of(captured: Captured, chunk: int, requests: int) -> Estimate:
    """What a prefill of `chunk` tokens and a full batch take while they run."""
    law, logits = _laws()["activations"], _laws()["verified_logits"]
    unit = chunk * captured.hidden * 2
    full = requests * captured.width * captured.vocabulary * 4 if captured.width > 1 else 0
    size = Interval(*(round(unit * law[end] + full * logits[end]) for end in ("low", "point", "high")))
    return Estimate(
        bytes=_widened(captured, size),
        formula="estimated: a multiple of a prefill's tokens × hidden × 2 B, and logits of a full verified batch",
        numbers=f"{chunk:,} × {captured.hidden:,} × 2 B × {law['point']}"
        + (f" + {requests} × {captured.width} × {captured.vocabulary:,} × 4 B × {logits['point']}" if full else "")
        + f" = {format_gib(size.point)}",
    )


def _warning(slack: Interval, graphs: Estimate, activations: Estimate, chunk: int) -> str | None:
    free, captured = slack.point, graphs.bytes.point
    if free < 0 or free - captured - activations.bytes.point >= 0:
        return None  # pools that overrun the card are refused already
    text = f"{format_gib(free)} are free outside the budget, less {format_gib(captured)} for CUDA graphs (estimated)"
    if free < captured:
        return f"Likely out of memory while graphs are captured: {text} = {format_gib(free - captured)}."
    left = free - captured - activations.bytes.point
    return (
        f"Likely out of memory at a full prefill: {text}, less {format_gib(activations.bytes.point)} for a prefill of "
        f"{chunk:,} tokens (estimated) = {format_gib(left)}."
    )


# ── what is captured ─────────────────────────────────────────────────────────────────────────────────────────────────


def _captured(settings: Settings, requests: int) -> Captured:
    text = settings.target.family.text(settings.target.config)
    width = settings.shape.verify_width or 1
    sizes = settings.captured(requests)
    taken = settings.defaults
    prefill = () if taken is None or taken.prefill_sizes is None else taken.prefill_sizes
    read = 0
    if settings.family == "dflash" and settings.draft is not None and "dflash_config" in settings.draft.config.data:
        read = len(target_layers(settings.draft.config))
    return Captured(
        family=settings.family,
        before_0_5_14=not settings.rule.draft_loads_first,
        tp=settings.attention_tp,
        width=width,
        sizes=sizes,
        hidden=text.integer("hidden_size"),
        vocabulary=text.integer("vocab_size"),
        read=read,
        prefill=prefill,
        beyond=_beyond(settings, sizes),
    )


def _beyond(settings: Settings, sizes: tuple[int, ...]) -> tuple[str, ...]:
    """What of a configuration no recording has."""
    known: Mapping[str, Any] = _table()["experience"]
    found = []
    if settings.target.name not in known["models"]:
        found.append("this model")
    if settings.config.gpu.name not in known["cards"]:
        found.append("this card")
    if settings.version not in known["versions"]:
        found.append(f"SGLang {settings.version}")
    decodes_alone = settings.family == "none"
    if settings.algorithm not in known["algorithms"] or (decodes_alone and not settings.rule.draft_loads_first):
        found.append("this algorithm")
    if settings.config.parallel.gpus > known["tp_size"]:
        found.append(f"{settings.config.parallel.gpus} GPUs")
    if sizes and max(sizes) > known["largest_batch"]:
        found.append(f"a batch of {max(sizes)}")
    return tuple(found)


def _chunk(settings: Settings) -> int:
    """Tokens of a full prefill; unchunked, all that the engine takes at once."""
    chunk = -1 if settings.defaults is None else settings.defaults.chunk_of_worker
    return chunk if chunk > 0 else max_prefill_tokens(server_args(settings.config))


# ── laws ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _based(name: str, kept: int) -> Interval:
    law = _laws()[name]
    more = law.get("share", 1.0) * kept
    return Interval(*(round(law["base"][end] * GIB + more) for end in ("low", "point", "high")))


def _widened(captured: Captured, size: Interval) -> Interval:
    return _elsewhere(size) if captured.beyond else size


def _elsewhere(size: Interval) -> Interval:
    law = _laws()["elsewhere"]
    low, high = round(size.point * law["low"]), round(size.point * law["high"] + law["more"] * GIB)
    return Interval(min(low, size.low), size.point, max(high, size.high))


def _laws() -> Mapping[str, Any]:
    laws: Mapping[str, Any] = _table()["laws"]
    return laws


@functools.cache
def _table() -> Mapping[str, Any]:
    return dict(yamltext.written((DATA / "outside.yaml").read_text(encoding="utf-8")))
