"""Starts that the sizing of pools ended: what was needed, what there was, and which pool took it.

In: a case and its failure. Out: a fault with its arithmetic and remedies that were tried by prediction. The engine's
advice is not repeated unchecked: "Loaded weights leave no GPU memory" is printed after state slots and scratch were
taken off too, and often it is they (kv_cache_configurator.py, _profile_available_bytes, of 0.5.14 to 0.5.23).
"""

from __future__ import annotations

from collections.abc import Iterable

from ..engines.contract import Failure, Line
from ..planning import changes as candidates
from ..units import Quantity, format_gib, gib
from ..versions import at_least
from .case import Case
from .fault import Fault, said, sourced
from .finding import Remedy
from .trying import Change, Goal
from .weight_share import weight_share


def state_pool(case: Case, failure: Failure) -> Fault:
    """Fewer state slots than one request takes, or none."""
    if (heavy := _too_heavy(case, failure)) is not None:
        return heavy
    logged = failure.values.get("state_slots")
    slots = logged if isinstance(logged, int) else case.pools.state_slots
    told = failure.values.get("slots_per_request")
    per_request = told if isinstance(told, int) else case.limit("slots_per_request")
    if slots is not None and slots > 0 and per_request:
        cause = (
            f"The state pool got {slots} slots and one request needs {per_request}: {slots} // {per_request} = "
            f"{slots // per_request} requests can run, so the server refuses to start.{_asked_slots(case, per_request)}"
            f"{_scratch(case)}"
        )
    else:
        rest = failure.values.get("rest")
        none_left = isinstance(rest, Quantity) and rest.bytes < 0
        head = "Nothing is left for the state pool" if none_left else "The state pool is too small for a single request"
        cause = (
            f"{head}.{_slot_arithmetic(case, failure)}{_scratch(case)}"
            f"{_predicted(case)} The engine says: {said(failure)}"
        )
    agree = told is None or case.limit("slots_per_request") in (None, told)
    return Fault(
        id="refused-state-pool",
        cause=cause,
        remedies=(_start(case) if agree else ()) or _more_slots(case, slots, per_request),
        evidence=case.pool_lines(),
        lost=1.0,
    )


def _start(case: Case) -> tuple[Remedy, ...]:
    """Changes by which what was asked starts; a larger fraction with slots by number where one alone does not do."""
    found = case.remedies()
    fraction, wanted, per_request = case.asked_fraction, case.wanted_requests, case.limit("slots_per_request")
    if found or fraction is None or wanted is None or not per_request:
        return found
    slots = candidates.slots(per_request, wanted)
    both = tuple(
        Change({**larger.set, **slots.set}, f"{larger.note}; {slots.note}")
        for larger in candidates.fractions(fraction)
        if float(larger.value) > fraction
    )
    remedy = case.tried(both, Goal(requests=wanted))
    return () if remedy is None else (remedy,)


def _asked_slots(case: Case, per_request: int) -> str:
    asked, wanted = case.pools.requested.get("state_slots"), case.wanted_requests
    if not isinstance(asked, int) or wanted is None:
        return ""
    whole = f"{wanted} × {per_request} = {wanted * per_request}"
    return f" max_mamba_cache_size asks for so many; {wanted} requests take {whole}."


def _too_heavy(case: Case, failure: Failure) -> Fault | None:
    """By the log's own figures the weights exceed the budget, whatever pool the engine's text names."""
    share = weight_share(case)
    if share is None or not share.exceeded:
        return None
    return Fault(
        id="refused-weights",
        cause=(
            f"The weights take more than the static fraction allows: nothing is left for pools.{share.words}"
            f"{_slot_arithmetic(case, failure)} The engine says: {said(failure)}"
        ),
        remedies=_start(case),
        evidence=_weight_lines(case),
        lost=1.0,
    )


def _slot_arithmetic(case: Case, failure: Failure) -> str:
    """The engine's own figures of a pool without a slot: what was left, and what one slot takes."""
    rest, slot = failure.values.get("rest"), failure.values.get("slot")
    if not isinstance(rest, Quantity) or not isinstance(slot, Quantity):
        return ""
    slot_size = f" One slot takes {slot.bytes / 2**20:.2f} MiB."
    # Without a slot the scratch that was taken off is one of fewer than no requests: then the figure says nothing.
    if rest.bytes < 0 and _and_scratch(case):
        return slot_size
    left = f"{gib(rest.bytes):.2f} GiB are left" if rest.bytes >= 0 else f"{gib(-rest.bytes):.2f} GiB are missing"
    return f" After the weights{_and_scratch(case)} {left} (the engine's figure).{slot_size}"


def _and_scratch(case: Case) -> str:
    """Speculation takes its scratch off first; a log that tells that there is none has none."""
    arguments = case.log.server_args
    without = arguments is not None and "speculative_algorithm" in arguments and not arguments["speculative_algorithm"]
    return "" if without else " and the speculative scratch"


def _more_slots(case: Case, slots: int | None, per_request: int | None) -> tuple[Remedy, ...]:
    """Where nothing can be predicted: as many slots as the wanted requests take, or fewer requests."""
    wanted = case.wanted_requests
    if case.budget is not None and case.config is not None:
        return ()
    if slots is None or not per_request:
        return ()
    enough = (wanted or 1) * per_request
    return sourced(
        case,
        {"memory.max_mamba_cache_size": enough},
        f"{per_request} slots for each of {wanted or 1}; whether the memory suffices is not known",
        version="0.5.18",
    )


def weights(case: Case, failure: Failure) -> Fault:
    """Nothing left for KV after weights, state slots and scratch; the engine's text names the weights alone."""
    if (heavy := _too_heavy(case, failure)) is not None:
        return heavy
    return Fault(
        id="refused-weights" if _heavier(failure) else "refused-no-memory",
        cause=(
            f"Weights, state slots and speculative scratch leave nothing for KV.{_not_the_weights(case, failure)}"
            f"{_fixed_slots(case)}{_scratch(case)}{_predicted(case)} The engine blames the weights, and proposes a "
            "larger mem_fraction_static."
        ),
        remedies=_start(case),
        evidence=_weight_lines(case),
        lost=1.0,
    )


def _heavier(failure: Failure) -> bool:
    """Whether by the text's own figures the weights alone are more than the fraction."""
    fraction, minimum = failure.values.get("mem_fraction_static"), failure.values.get("minimum")
    return isinstance(fraction, float) and isinstance(minimum, float) and fraction <= minimum


def _not_the_weights(case: Case, failure: Failure) -> str:
    """The text's own figures: 1 - available/pre is the share that the weights take."""
    fraction, minimum = failure.values.get("mem_fraction_static"), failure.values.get("minimum")
    if not isinstance(fraction, float) or not isinstance(minimum, float):
        return ""
    pre = max((quantity.bytes for quantity in case.pools.pre.values()), default=None)
    if _heavier(failure):
        return f" The weights take {minimum:.4f} of the free memory, more than the fraction {fraction:g} allows."
    left = "" if pre is None else f" × {format_gib(pre)} = {format_gib(round((fraction - minimum) * pre))}"
    return (
        f" It is not the weights: they take {minimum:.4f} of the free memory, and {fraction:g} - {minimum:.4f} = "
        f"{fraction - minimum:.4f}{left} are left for pools."
    )


def _fixed_slots(case: Case) -> str:
    """State slots that were asked for by number: they are taken whole, before KV gets anything."""
    asked = case.pools.requested.get("state_slots")
    if not isinstance(asked, int) or asked <= 0:
        return ""
    slot = case.budget.details.get("slot_bytes") if case.budget is not None else None
    size = (
        ""
        if slot is None
        else f": {asked + 1:,} rows × {slot.point / 2**20:.2f} MiB = {format_gib((asked + 1) * slot.point)} (predicted)"
    )
    rest = case.budget.details.get("rest_bytes") if case.budget is not None else None
    of = "" if rest is None or rest.point <= 0 else f", out of {format_gib(rest.point)} that the weights leave"
    return f" {asked:,} state slots are asked for by max_mamba_cache_size, and taken before KV gets anything{size}{of}."


def nothing_left(case: Case, failure: Failure) -> Fault:
    """The KV pool would have no token, or too few for a single request."""
    if (heavy := _too_heavy(case, failure)) is not None:
        return heavy
    return Fault(
        id="refused-no-memory",
        cause=(
            "Nothing is left for the KV "
            f"pool.{_fixed_slots(case)}{_scratch(case)}{_predicted(case)}{_draft_outside(case)} "
            f"The engine says: {said(failure)}"
        ),
        remedies=_start(case),
        evidence=(*_weight_lines(case), *case.pool_lines()),
        lost=1.0,
    )


def _draft_outside(case: Case) -> str:
    """Before 0.5.14 a draft's weights come on top: then a larger fraction may fail the other way."""
    version = case.rules_version
    if not _and_scratch(case) or (version is not None and at_least(version, "0.5.14")):
        return ""
    return (
        " With speculation, before 0.5.14 the draft's weights and pools have to fit beside this budget: where a larger "
        "fraction runs out of memory instead, no fraction serves, and fewer tokens (--max-total-tokens), fewer "
        "requests or more GPUs do."
    )


def _scratch(case: Case) -> str:
    """The arithmetic that explains most collapses: scratch of the requested requests against what there is."""
    budget = case.budget
    if budget is None or case.wanted_requests is None:
        return ""
    per_request = budget.details.get("scratch_per_request_bytes")
    rest = budget.details.get("rest_bytes")
    if per_request is None or rest is None or per_request.point == 0 or rest.point <= 0:
        return ""
    total = per_request.point * case.wanted_requests
    return (
        f" Speculation alone would take {case.wanted_requests} × {gib(per_request.point):.2f} = {format_gib(total)} of "
        f"scratch out of the {format_gib(rest.point)} that are left for pools after the weights (predicted)."
    )


def _predicted(case: Case) -> str:
    """Why the prediction refuses too, where it is the weights that take all."""
    rest = case.budget.details.get("rest_bytes") if case.budget is not None else None
    if case.budget is None or rest is None or rest.point > 0 or case.budget.verdict != "refused":
        return ""
    return f" By the prediction: {case.budget.reason}"


def _weight_lines(case: Case) -> tuple[Line, ...]:
    return _lines(case, (loaded.line for loaded in case.log.weights))


def _lines(case: Case, numbers: Iterable[int]) -> tuple[Line, ...]:
    return tuple(line for number in numbers for line in case.line(number))
