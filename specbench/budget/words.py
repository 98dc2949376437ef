"""What a budget says in words: why it comes out so, what the engine would print, what to be careful about."""

from __future__ import annotations

from collections.abc import Iterator

from ..engines.sglang import admission, families, faults, verify_mask
from ..engines.sglang import arguments as engine_arguments
from ..engines.sglang.flags import facts_version
from ..engines.sglang.given import server_args, switched_on
from ..engines.sglang.sizing import caveat, refusals
from ..engines.sglang.sizing.contract import Pools
from ..engines.sglang.sizing.steps import BESIDE_INPUT
from ..gpus import load_gpu
from ..layers import FullAttention, LatentAttention
from ..specs import model_source
from ..terms import Verdict
from ..units import GIB, Interval, counted, format_gib
from .case import Case
from .limits import max_input_tokens

#: Free memory falls by more than the weights: workspaces, and figures read a little earlier or later (offsets.yaml).
_BESIDE_WEIGHTS_BYTES = GIB // 5
#: Refusals that have no other reason where loading leaves less than nothing.
_NO_ROOM = ("no_state", "not_enough_memory", "no_room")
_OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory."


def reason(case: Case, verdict: Verdict, slack: Interval | None) -> str:
    """Why it serves, is capped or is refused at the likely free memory, with figures, in a sentence."""
    pools, per_request, asked = case.span.point.pools, case.settings.slots_per_request, case.asked
    gpu = case.settings.gpu
    of_several = " per rank" if gpu.is_host or gpu.share_of is not None else " per card"
    each = of_several if case.settings.config.parallel.gpus > 1 else ""
    left = f"{case.span.point.rest_gib:z.2f} GiB left for pools{each}"
    if verdict == "refused":
        if case.span.point.rest_gib < 0 and pools.refusal in _NO_ROOM:
            over = f"{-case.span.point.rest_gib:.2f} GiB more{each}"
            return f"Nothing is left for pools: loading the weights takes {over} than the static fraction allows."
        return _refusal_reason(case, pools, left, slack)
    if verdict == "capped":
        if case.slot.layers and pools.slots // per_request == pools.requests:
            return (
                f"{pools.slots:,} state slots at {per_request} per request serve {pools.requests} of the {asked} "
                f"requests asked ({left})."
            )
        return f"{pools.tokens:,} KV tokens serve {pools.requests} of the {asked} requests asked ({left})."
    state = f"{pools.slots:,} state slots, " if case.slot.layers else ""
    return f"{state}{pools.tokens:,} KV tokens, {pools.requests:,} running requests ({left})."


def _refusal_reason(case: Case, pools: Pools, left: str, slack: Interval | None) -> str:
    per_request, width = case.settings.slots_per_request, case.demand.draft_tokens
    scratch = format_gib(pools.scratch_charged_bytes)
    taken = f", of which the speculative scratch takes {scratch}" if width and pools.scratch_charged_bytes else ""
    match pools.refusal:
        case "no_state":
            scratch_too = f" and scratch of {counted(width, 'draft token')}" if width else ""
            return f"No state slot fits: {left}, of which padding{scratch_too} comes first."
        case "state_too_small" | "zero_requests":
            return f"{pools.slots:,} state slots are fewer than the {per_request} of one request: {left}{taken}."
        case "not_enough_memory" | "no_room":
            return f"Nothing remains for KV tokens: {left}{taken}."
        case "pool_too_short":
            if case.demand.context_len <= (pools.tokens or 0):
                return f"A context of {counted(case.demand.context_len, 'token')} has no room for any request."
            return f"{counted(pools.tokens or 0, 'KV token')} are too few for any request: {left}{taken}."
        case "window_too_small":
            return f"{pools.window_tokens:,} tokens in the sliding-window layers hold no request's window: {left}."
        case "window_cap_too_large":
            return f"The sliding-window layers of all asked requests leave nothing for the other layers: {left}."
        case None:
            missing = format_gib(-slack.point) if slack is not None else "memory"
            return f"The pools and the draft overrun the card by {missing}: the static fraction leaves no room outside."


def engine_error(case: Case, verdict: Verdict) -> str | None:
    """The engine's own text when it refuses, as its version words it; None: it does not, or the text is not known."""
    if verdict != "refused":
        return None
    pools, free = case.span.point.pools, case.start.free
    if pools.refusal is None:
        return _OUT_OF_MEMORY
    return refusals.text(
        pools,
        case.settings.rule,
        case.demand,
        fraction=case.settings.fraction,
        pre_bytes=free.pre.point,
        post_bytes=free.post.point,
        graphs=case.settings.graphs,
    )


def known_fault(case: Case, verdict: Verdict) -> str | None:
    """What ends a server although memory suffices, of the versions whose source was read for it."""
    running = case.span.point.pools.requests or 0
    version = case.settings.config.engine.version
    fault = None if verdict == "refused" else faults.of(case.settings)
    if fault is not None:
        return f"Memory suffices, but SGLang {version} {fault}"
    if verdict == "refused" or not verify_mask.ends_at_full_batch(case.settings, running):
        return None
    return (
        f"Memory suffices, but SGLang {version} ends at its first full batch (of {running}), as recorded: the "
        f"attention mask of its CUDA graphs is too small. --{verify_mask.AVOIDED_BY} avoids it."
    )


def _loaded_otherwise(case: Case) -> str | None:
    """A sentence when measured free memory fell by another amount than the weights explain."""
    weights, draft = case.start.weights, case.start.draft_weights
    if case.start.basis != "measured" or weights is None or draft is None or case.settings.gpu.is_host:
        return None
    first = case.settings.rule.draft_loads_first
    expected = Interval(*(w + (d if first else 0) for w, d in zip(_bounds(weights), _bounds(draft), strict=True)))
    fell = case.start.free.pre.point - case.start.free.post.point
    if expected.contains(fell, slop=_BESIDE_WEIGHTS_BYTES):
        return None
    what = "weights and draft" if first and case.settings.draft is not None else "weights"
    return (
        f"Free memory fell by {format_gib(fell)} while loading, but the {what} of this configuration take "
        f"{format_gib(expected.low)} to {format_gib(expected.high)}: the measurement is of something else, or a flag "
        "changes the weights."
    )


def split(case: Case) -> str | None:
    """'the server, not to be multiplied: each rank holds 1/2 of every slot's state and 2 of the 4 KV heads of every
    token'. None: one rank."""
    resolved = case.settings
    tp, workers = resolved.attention_tp, resolved.config.parallel.dp_size
    if tp == 1:
        return None
    whose = "the server" if workers == 1 else f"one of {workers} data-parallel workers"
    held = [f"1/{tp} of every slot's state"] if case.slot.layers else []
    layers_with_kv = resolved.target.attention_layers
    heads = sorted({layer.kv_heads for layer in layers_with_kv if isinstance(layer, FullAttention)})
    held += [_heads(count, tp) for count in heads]
    if any(isinstance(layer, LatentAttention) for layer in layers_with_kv):
        held.append("all of every token's latent vector")
    layers = " in its layers" if resolved.config.parallel.pp_size > 1 else ""
    return f"{whose}, not to be multiplied: each rank holds {' and '.join(held)}{layers}"


def _heads(count: int, tp: int) -> str:
    """'2 of the 4 KV heads of every token', 'one of the 4 … (each head is kept twice)'."""
    per_rank = max(1, count // tp)
    copies = max(1, tp // count)
    kept = {1: "", 2: " (each head is kept twice)"}.get(copies, f" (each head is kept {copies} times)")
    return f"{'one' if per_rank == 1 else per_rank} of the {count} KV heads of every token{kept}"


def _idle(case: Case) -> str | None:
    """A sentence when there are more GPUs than ranks."""
    config = case.settings.config
    parallel, gpus = config.parallel, config.gpu.count
    idle = gpus - parallel.gpus
    if idle <= 0:
        return None
    stay = "1 GPU stays" if idle == 1 else f"{idle} GPUs stay"
    return (
        f"{stay} idle: gpu.count is {gpus}, and the server uses {gpus - idle} "
        f"(tp {parallel.tp_size} × pp {parallel.pp_size} × dp {parallel.replicas})."
    )


def _on_one_host(case: Case) -> str | None:
    """Ranks on a CPU have no card each: all of them are told the same free memory, and take their pools of it."""
    pools, ranks = case.span.point.pools, case.settings.config.parallel.gpus
    if not case.settings.gpu.is_host or ranks == 1 or pools.refusal is not None:
        return None
    each = case.allocation(pools).total_bytes
    return (
        f"{ranks} ranks share the host's memory: their pools take {format_gib(ranks * each)} of it, {ranks} × "
        f"{format_gib(each)}, beside the weights and the processes themselves."
    )


def _of_algorithm(case: Case) -> Iterator[str]:
    """What an algorithm's figures rest on, where it is no release's own."""
    resolved = case.settings
    section, rules = resolved.config.speculative, resolved.rule.version
    if section.custom is not None:
        yield f"{resolved.algorithm} is an algorithm of a plug-in, sized as speculative.custom describes it."
    elif resolved.algorithm == "DDTREE":
        yield (
            "DDTREE is in no SGLang release up to 0.5.23: it is sized as the open pull request 29907 has it, by the "
            f"rules of {rules}."
        )
    draft = resolved.draft
    if draft is not None and not draft.is_builtin_draft and draft.state_layers:
        yield f"{draft.name} keeps a state per request; a draft's states are not predicted."


def _bounds(value: Interval) -> tuple[int, int, int]:
    return value.low, value.point, value.high


def _no_input(case: Case) -> str | None:
    pools = case.span.point.pools
    longest = max_input_tokens(case.demand)(pools)
    if longest is None or longest > 1:  # an input is shorter than that, and not empty
        return None
    held = min(case.demand.context_len, pools.tokens or 0)
    return (
        f"the server starts and takes no request: one can have {counted(held, 'token')}, of which {BESIDE_INPUT} are "
        "kept beside its input."
    )


def admission_note(case: Case) -> str | None:
    """That as many run as have places at times only: the engine may wait for several free places before it admits."""
    pools, config = case.span.point.pools, case.settings.config
    if pools.refusal is not None or not pools.requests:
        return None
    arguments = server_args(config) | {
        "speculative_algorithm": case.settings.algorithm,
        "pp_size": config.parallel.pp_size,
    }
    least = admission.least_free_slots(facts_version(config.engine), arguments, pools.requests)
    if least is None:
        return None
    asked = admission.asked_free_slots(arguments)
    why = admission.formula(pools.requests) if asked is None else f"--{admission.FLAG} is {asked}"
    return (
        f"while requests run, a server with {pools.requests:,} places admits nothing before {least} are free ({why}), "
        f"so that at times fewer than {pools.requests:,} run; --{admission.FLAG} 1 turns that off."
    )


def _fp8_by_checkpoint(case: Case) -> str | None:
    """Tokens of half the size that nobody set: a quantized checkpoint may ask for KV in fp8."""
    target = case.settings.target
    if case.settings.config.memory.kv_cache_dtype != "auto" or target.fp8_kv_of is None:
        return None
    if families.obeys_fp8_kv(target, case.settings.rule, case.settings.version):
        return f"KV is kept in fp8: the checkpoint asks for it ({target.fp8_kv_of}), and memory.kv_cache_dtype is auto."
    return (
        f"The checkpoint asks for KV in fp8 ({target.fp8_kv_of}); SGLang {case.settings.version} keeps it in "
        f"{target.dtype}. Set memory.kv_cache_dtype: fp8_e4m3 for fp8."
    )


def _share(case: Case) -> str | None:
    """Else a plan of it would read as one of cards to be bought."""
    gpu = case.settings.gpu
    if gpu.share_of is None:
        return None
    return (
        f"{gpu.words} is no card: it is a share of one {load_gpu(gpu.share_of).words}, shown to a process as the "
        "whole. That many ranks are not that many cards."
    )


def warnings(case: Case) -> tuple[str, ...]:
    """What a reader must know of how it was predicted, a sentence each."""
    resolved = case.settings
    found = [_share(case), caveat(resolved.version)]
    if resolved.config.engine.sizing is not None:
        found.append(f"sglang {resolved.config.engine.version} is sized by the rules of {resolved.version}, as asked.")
    for spec in (resolved.target, resolved.draft):
        source = model_source(spec) if spec is not None else None
        if spec is not None and source is not None and source["reconstructed"]:
            found.append(f"{spec.name}: config.json is a reconstruction ({source['rests_on']}).")
    if switched_on(resolved.config.engine.env, "SGLANG_ENABLE_POST_CAPTURE_KV_SIZING"):
        found.append("post-capture KV sizing is on, which is not modelled: tokens will differ.")
    found.append(_no_input(case))
    found.append(admission_note(case))
    found.append(_fp8_by_checkpoint(case))
    found.extend(_of_algorithm(case))
    found.append(_loaded_otherwise(case))
    found.append(_idle(case))
    found.append(_on_one_host(case))
    found.extend(engine_arguments.notes(resolved.config, resolved.target))
    return tuple(text for text in found if text is not None)
