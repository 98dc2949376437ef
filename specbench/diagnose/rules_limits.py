"""Rules about servers that run, but smaller than asked: fewer requests, a shorter context, fewer tokens.

None of these is an error for the engine: at most a warning says it. In: a case, also of a paste that lacks the summary
or even the pool lines. Out: one finding per limit, with its arithmetic.
"""

from __future__ import annotations

from ..engines.contract import Line, Notice
from ..units import counted, format_count
from ..versions import at_least
from .case import Case
from .catalogue import Severity
from .finding import Finding

#: Pools are rounded down to whole pages: less than this many percent are not told as lost.
_ROUNDING_PERCENT = 1
#: A limit by hand is told where memory holds so many times as much.
_FAR = 2


def stands(case: Case) -> bool:
    """Whether the pools of the log are those of a server that runs, as far as the log tells."""
    return case.log.ready_line is not None or (case.status is None and not case.log.failures)


def capped(case: Case) -> tuple[Finding, ...]:
    """Fewer running requests than asked, by state slots or by KV tokens."""
    notice = _cap_notice(case)
    asked, logged = _asked(case, notice), case.pools.running_requests
    got = logged if logged is not None else _by_slots(case)
    if got is None or not stands(case) or (asked is None and not _perhaps_asked(case, notice)):
        return ()
    if asked is not None and got >= asked:
        return ()
    who = "How many requests were asked is not logged; " if asked is None else f"{counted(asked, 'request')} asked, "
    cause = f"{who}{got} can run at once"
    warnings = () if notice is None else case.line(notice.line)
    resolved = tuple(line for summary in case.log.resolved[:1] for line in case.line(summary.line))
    by_state = _by_state(case, got, notice)
    limit = _slot_arithmetic(case, got, notice) if by_state else f"the KV pool of {_pool(case)} tokens is the limit"
    refused = ": the engine refuses to start" if got == 0 else ""
    computed = "" if logged is not None else " (computed from the pool's line: the summary is not logged)"
    return (
        Finding(
            id="capped-by-state-slots" if by_state else "capped-by-kv-tokens",
            cause=f"{cause}: {limit}{refused}{computed}.",
            severity="fatal" if got == 0 else "costly",
            evidence=(*warnings, *case.pool_lines()[:1], *resolved),
            remedies=case.remedies(),
            lost=None if not asked else 1 - got / asked,
        ),
    )


def _by_slots(case: Case) -> int | None:
    """What the slots of the log hold, where no line tells how many run. One slot each is the least that they need."""
    slots = case.pools.state_slots
    return None if slots is None or slots < 0 else slots // (case.limit("slots_per_request") or 1)


def _cap_notice(case: Case) -> Notice | None:
    """The engine's own warning; the one that names the slots says more."""
    notices = {notice.kind: notice for notice in reversed(case.log.notices)}
    return notices.get("requests_capped_by_state") or notices.get("requests_reduced")


def _asked(case: Case, notice: Notice | None) -> int | None:
    """Asked of one data-parallel worker. The warning about a reduction repeats it."""
    if case.wanted_requests is None:
        return _whole(notice, "requested")
    workers = (case.log.server_args or {}).get("dp_size")
    if case.config is not None or not isinstance(workers, int) or workers < 2:
        return case.wanted_requests
    return max(1, case.wanted_requests // workers)


def _perhaps_asked(case: Case, notice: Notice | None) -> bool:
    """A cap of which nobody can say that it took nothing that was asked."""
    own_default = any(notice.kind == "requests_default_48" for notice in case.log.notices)
    return notice is not None and not own_default and "max_running_requests" not in (case.log.server_args or {})


def _by_state(case: Case, got: int, notice: Notice | None) -> bool:
    """Whether state slots are what limits.

    The engine runs at most half as many requests as it has tokens (0.5.14 on: _resolve_max_num_reqs) and at most as
    many as its slots hold; there is no third limit below what is asked. Its warning of a reduction named tokens for
    both until 0.5.18 gave the slots their own.
    """
    if notice is not None and notice.kind == "requests_capped_by_state":
        return True
    slots, per_request, tokens = case.pools.state_slots, case.limit("slots_per_request"), case.pools.kv_tokens
    if slots is not None and per_request:
        return slots // per_request <= got
    if tokens is not None:
        return tokens // 2 > got
    since = case.rules_version or case.log.version_range[0]
    return slots is not None or since is None or not at_least(since, "0.5.18")


def _slot_arithmetic(case: Case, got: int, notice: Notice | None) -> str:
    slots = case.pools.state_slots
    per_request = _whole(notice, "slots_per_request") or case.limit("slots_per_request")
    if slots is None:
        half = "" if case.pools.kv_tokens is None else f", and {case.pools.kv_tokens:,} KV tokens are enough for more"
        return f"the state pool is the limit (its slots are not logged{half})"
    if not per_request:
        least = ", at least one per request" if case.pools.running_requests is None else ""
        return f"the state pool is the limit ({slots:,} slots{least})"
    return f"the state pool is the limit ({slots:,} slots // {per_request} per request = {slots // per_request:,})"


def _whole(notice: Notice | None, name: str) -> int | None:
    value = None if notice is None else notice.values.get(name)
    return value if isinstance(value, int) else None


def _pool(case: Case) -> str:
    return format_count(case.pools.kv_tokens)


def context_above_pool(case: Case) -> tuple[Finding, ...]:
    """A context length that no request can use, because the pool is smaller."""
    asked, told = _number(case, "context_len"), "context_length" in (case.log.server_args or {})
    context, tokens = case.pools.context_len or asked, case.pools.kv_tokens
    if context is None or not tokens or tokens >= context or not stands(case):
        return ()
    inputs, default = case.pools.max_input_tokens, "" if asked or not told else " (nobody asked for it)"
    shorter = "" if inputs is None else f"inputs must be shorter than {inputs:,} tokens, and "
    evidence = tuple(line for summary in case.log.resolved[:1] for line in case.line(summary.line))
    return (
        Finding(
            id="context-above-pool",
            cause=(
                f"The context is {context:,} tokens{default}, the KV pool only "
                f"{tokens:,}{_by_hand(case, tokens)}: {shorter}outputs end early without a warning once a request "
                f"has {_longest(tokens):,} tokens, input and output together."
            ),
            severity=_severity(case, tokens, asked is not None or not told),
            evidence=evidence or case.pool_lines()[-1:],
            remedies=case.remedies_for_context(context),
            lost=None if case.requests else 1 - tokens / context,  # requests that met it tell themselves
        ),
    )


def _longest(tokens: int) -> int:
    """Input and output of a request at most, of a pool smaller than the context: its output is cut to
    max_req_len - input - 1, with max_req_len one less than the pool (SGLang: scheduler.py, tp_worker.py).
    """
    return tokens - 2


def _by_hand(case: Case, tokens: int) -> str:
    return ", as max_total_tokens asks" if case.pools.requested.get("kv_tokens") == tokens else ""


def _severity(case: Case, tokens: int, asked: bool) -> Severity:
    """Nothing is lost where nobody asked for so long a context, and nothing so long was sent."""
    longest = max((request.input_tokens + request.max_new_tokens for request in case.requests), default=0)
    return "costly" if asked or longest > _longest(tokens) else "notice"


def token_limit(case: Case) -> tuple[Finding, ...]:
    """`max_total_tokens` above what the memory gave: it limits nothing; who meant a size by it has a smaller pool."""
    notice = next((one for one in case.log.notices if one.kind == "tokens_above_profile"), None)
    asked = _whole(notice, "requested") or _number(case, "kv_tokens")
    got = case.pools.kv_tokens if case.pools.kv_tokens is not None else _whole(notice, "profiled")
    if asked is None or not got or not stands(case) or _split(case, asked):
        return ()
    if got * 100 >= asked * (100 - _ROUNDING_PERCENT):
        return ()
    lines: tuple[Line, ...] = () if notice is None else case.line(notice.line)
    return (
        Finding(
            id="token-limit-not-binding",
            cause=(
                f"max_total_tokens is {asked:,}, the memory gave {got:,} tokens: the limit does not bind. It is an "
                "upper limit, not a reservation: without it the pool would be the same."
            ),
            severity="notice",
            evidence=lines or case.pool_lines()[-1:],
            remedies=() if context_above_pool(case) else case.remedies_for_context(asked),
        ),
    )


def token_limit_far_below(case: Case) -> tuple[Finding, ...]:
    """`max_total_tokens` that gives away most of what the memory would hold, where the log tells how much that is."""
    asked = _number(case, "kv_tokens")
    profiles = [(_whole(one, "kv_tokens"), one) for one in case.log.notices if one.kind == "kv_pool_sizing"]
    known = [(tokens, notice) for tokens, notice in profiles if tokens is not None]
    if asked is None or not known or not stands(case):
        return ()
    least, notice = min(known, key=lambda row: row[0])
    if least < _FAR * asked:
        return ()
    return (
        Finding(
            id="token-limit-far-below",
            cause=(
                f"max_total_tokens is {asked:,}; the memory would hold {least:,} tokens on the rank with least, "
                f"{least / asked:.1f} times as many. An input of {asked:,} tokens is refused."
            ),
            severity="notice",
            evidence=case.line(notice.line),
        ),
    )


def _split(case: Case, asked: int) -> bool:
    """Ranks that hold a part each (context parallelism): together they are what was asked."""
    parts = [pools.kv_tokens for pools in case.pools.ranks if pools.role == "target"]
    known = [part for part in parts if part is not None]
    return len(set(known)) > 1 and abs(sum(known) - asked) * 100 <= asked * _ROUNDING_PERCENT


def _number(case: Case, name: str) -> int | None:
    asked = case.pools.requested.get(name)
    return asked if isinstance(asked, int) and not isinstance(asked, bool) and asked > 0 else None
