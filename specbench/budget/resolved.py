"""Arguments that may be left out, as the engine resolves them: fraction, chunk, requests, graphs. In: a solved case."""

from __future__ import annotations

from ..budget_types import ResolvedArgument
from ..engines.sglang.given import server_args
from ..engines.sglang.resolve import Settings
from .case import Case


def resolved_arguments(case: Case) -> tuple[ResolvedArgument, ...]:
    """In the order in which they follow from each other; graphs for a worker that runs what is predicted."""
    settings = case.settings
    memory, taken = settings.config.memory, settings.defaults
    default = f"default of {settings.rule.label}"
    found = [
        ResolvedArgument(name="mem_fraction_static", value=settings.fraction, source=settings.fraction_source),
        _requests(settings, default),
    ]
    if taken is None:
        return tuple(found)
    chunk_source = "given" if memory.chunked_prefill_size is not None else f"{default}, by the card"
    if taken.chunk_of_worker != taken.chunked_prefill_size:
        chunk_source += f"; {taken.chunked_prefill_size} over {settings.attention_dp} data-parallel ranks"
    found.append(ResolvedArgument(name="chunked_prefill_size", value=taken.chunk_of_worker, source=chunk_source))
    found.append(_decode_graphs(case, default))
    if taken.prefill_sizes is not None:
        source = f"token counts up to {max(taken.prefill_sizes, default=0)}; {default}"
        found.append(ResolvedArgument(name="prefill_graphs", value=len(taken.prefill_sizes), source=source))
    return tuple(found)


def _requests(settings: Settings, default: str) -> ResolvedArgument:
    """As asked of the whole server: what the pools allow is a limit of its own."""
    given = settings.config.memory.max_running_requests
    if given is not None:
        return ResolvedArgument(name="max_running_requests", value=given, source="given")
    if settings.requests is None:
        return ResolvedArgument(name="max_running_requests", value=None, source="not set: what the pools allow")
    source = f"{default} with {settings.algorithm}"
    return ResolvedArgument(name="max_running_requests", value=settings.requests, source=source)


def _decode_graphs(case: Case, default: str) -> ResolvedArgument:
    taken, requests = case.settings.defaults, case.span.point.pools.requests
    memory, args = case.settings.config.memory, server_args(case.settings.config)
    name = "cuda_graph_bs"
    if taken is None or not taken.decode_sizes:
        return ResolvedArgument(name=name, value=None, source="no CUDA graphs for decoding")
    named = bool({"cuda_graph_bs", "cuda_graph_bs_decode"} & args.keys())
    source = "given" if named or memory.cuda_graph_max_bs is not None else default
    if not requests:
        return ResolvedArgument(name=name, value=taken.decode_sizes, source=f"configured; {source}")
    sizes = case.settings.captured(requests)
    return ResolvedArgument(
        name=name, value=sizes, source=f"captured, of {len(taken.decode_sizes)} up to {taken.graph_batch}; {source}"
    )
