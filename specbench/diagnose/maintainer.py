"""What to send to a maintainer: whose fault it is, and a text that can be filed as it is. Out: Markdown.

A fault of the engine is to be reported with everything that its maintainers ask for: version, model, card, flags,
figures, the failing lines with their traceback whole. A fault of a configuration is not, and the text says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..engines.contract import Failure
from ..engines.sglang.argument_defaults import defaults_of
from ..reading.outcome import in_words
from ..terms import Limit
from ..units import GIB, counted, format_count, format_gib, format_range
from .finding import Finding
from .outgoing import fenced, inline, safe, table
from .types import Diagnosis

#: Whom a report concerns. `specbench`: the prediction misses what the log says. `nobody`: there is nothing to report.
Concerns = Literal["engine", "perhaps engine", "specbench", "nobody"]

_ENGINES = {"sglang": "SGLang (https://github.com/sgl-project/sglang/issues)"}
#: Ends of a server that no configuration should be able to bring about.
_OF_ENGINE = ("crashed-serving", "crashed-start", "memory-leak")
#: The engine should have refused, waited or said more; a configuration avoids it all the same.
_PERHAPS = (
    *("kv-pool-exhausted", "state-slots-exhausted", "request-slots-exhausted", "graph-capture-failed"),
    *("health-check-failed", "ended-silently", "stopped-answering"),
)
#: A cause says it itself where it is known: faults_crash.py, faults_running.py, rules_unwell.py.
_ENGINES_OWN = re.compile(r"\b(?:is|: )a fault of the engine\b|a fault of the engine, to be reported")
#: Nothing in a log tells a hang of the engine from a process or a card that stood still.
_HUNG = (
    "perhaps a fault of the engine. A process that was stopped (kill -STOP, a frozen container), a card that is stuck "
    "(dmesg names Xid errors) or a step that is only slow is as likely: worth a report, with the stacks, where it is "
    "none of these."
)
_KNOWN = re.compile(r"\AA fault of the engine: .{1,2000}Known in ", re.DOTALL)
_LIMITS: tuple[Limit, ...] = ("running_requests", "state_slots", "kv_tokens", "context_len", "max_input_tokens")
#: Not worth a line: the engine's arguments are about four hundred, most of them off, or as in every server.
_OFF: tuple[object, ...] = ("", "auto", "none", "null", [], {}, ())
_TITLE = 90
_MOST_EVIDENCE, _MOST_FAILURES, _MOST_ARGUMENTS = 40, 3, 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Whether and where to report, and the text."""

    concerns: Concerns
    project: str  # the name of the project, with the address of its issues; "": nobody's
    title: str  # one line, plain text
    why: str  # one sentence
    text: str  # Markdown, the title its heading


def report(diagnosis: Diagnosis) -> Report:
    """The report of a diagnosis. Secrets and home folders are taken out of it; read it before sending all the same."""
    concerns, why = _concerns(diagnosis)
    title = _title(diagnosis)
    projects = {"nobody": "", "specbench": "specbench"}
    project = projects.get(concerns, _ENGINES.get(diagnosis.engine, diagnosis.engine))
    lead = f"For {project}. " if project else ""
    text = "\n\n".join((f"# {inline(title)}", f"{lead}{why}", *_sections(diagnosis)))
    return Report(concerns=concerns, project=project, title=safe(title), why=why, text=f"{text}\n")


# ── whose it is ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _concerns(diagnosis: Diagnosis) -> tuple[Concerns, str]:
    main = next((one for one in diagnosis.findings if one.severity != "notice"), None)
    if main is not None and _KNOWN.search(main.cause):
        return "nobody", f"{main.id}: a known fault of the engine; its cause names the versions that have it."
    if main is not None and (main.id in _OF_ENGINE or _ENGINES_OWN.search(main.cause)):
        return "engine", f"{main.id}: a fault of the engine, to be reported with the lines below."
    if main is not None and main.id == "watchdog-timeout":
        return "perhaps engine", f"{main.id}: {_HUNG}"
    if main is not None and main.id in _PERHAPS:
        fix = " A change of the configuration that avoids it is known." if main.remedies else ""
        return "perhaps engine", f"{main.id}: worth a report where it persists with another configuration.{fix}"
    if (missed := _missed(diagnosis)) is not None:
        return (
            "specbench",
            f"The prediction misses what the log says ({missed}): a fault of specbench, not the engine's.",
        )
    if main is None and any(finding.id == "perhaps-hangs" for finding in diagnosis.findings):
        return "nobody", "There is nothing to report yet: whether the server hangs is not told by this log."
    if main is None and not diagnosis.judged:
        return "nobody", "There is nothing to report yet: too little was read to say whether anything is wrong."
    if main is None:
        return "nobody", "There is nothing to report: no fault was found."
    return "nobody", f"There is nothing to report: {main.id} is a matter of the configuration, or of the machine."


def _missed(diagnosis: Diagnosis) -> str | None:
    """A figure that is off on the measured basis, of a release, a model and a card that are known, not assumed."""
    if diagnosis.version is None or any("assumed" in one for one in diagnosis.assumptions):
        return None
    if any(finding.id == "negative-figures" for finding in diagnosis.findings):  # the log's figures are not its own
        return None
    off = [row for row in diagnosis.reconciliation.off if row.basis == "measured"]
    return None if not off else f"{off[0].term}{f' of {off[0].rank}' if off[0].rank else ''}"


def not_asked(diagnosis: Diagnosis) -> str:
    """Why a limit has no asked value: nobody gave it, or nothing tells what was given."""
    known = diagnosis.config is not None or diagnosis.log.server_args is not None
    return "not given" if known else "not told"


def _title(diagnosis: Diagnosis) -> str:
    failure = diagnosis.log.failures[0] if diagnosis.log.failures else None
    main = diagnosis.main_finding
    what = in_words(diagnosis.outcome)
    if failure is not None:
        said = " ".join(failure.text.split())
        what = f"{failure.exception or failure.kind}: {_short(said)}"
    elif main is not None:
        what = main.id
    about = [_model(diagnosis).rpartition("/")[2], _argument(diagnosis, "speculative_algorithm")]
    ranks = len({pools.rank for pools in diagnosis.pools.ranks})
    about += [counted(ranks, "rank") if ranks > 1 else "", *_card(diagnosis)[:1]]
    known = ", ".join(one for one in about if one)
    return f"{diagnosis.engine} {diagnosis.version_text}: {what}{f' ({known})' if known else ''}"


def _short(said: str) -> str:
    """Ended between two words, so that no figure is cut."""
    return said if len(said) <= _TITLE else f"{said[:_TITLE].rpartition(' ')[0]} …"


def _argument(diagnosis: Diagnosis, name: str) -> str:
    value = (diagnosis.log.server_args or {}).get(name)
    return "" if value is None else str(value)


def _model(diagnosis: Diagnosis) -> str:
    return _argument(diagnosis, "model_path") or (diagnosis.config.model if diagnosis.config is not None else "")


def _card(diagnosis: Diagnosis) -> tuple[str, ...]:
    return () if diagnosis.config is None else (diagnosis.config.gpu.name,)


# ── sections ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _sections(diagnosis: Diagnosis) -> Iterator[str]:
    yield "## What happened"
    for number, finding in enumerate(diagnosis.findings, start=1):
        yield f"{number}. {inline(finding.severity)}: **{inline(finding.id)}**. {inline(finding.cause)}"
    if not diagnosis.findings:
        yield f"{inline(in_words(diagnosis.outcome))}; no finding."
    yield "## Where it runs"
    yield table(("what", "value"), _environment(diagnosis))
    if diagnosis.log.server_args:
        told = inline(diagnosis.log.where(diagnosis.log.server_args_line))
        known = _defaults(diagnosis)
        left_out = "those that are off"
        if known:
            left_out = f"the defaults of {inline(f'{diagnosis.engine} {diagnosis.version_text}')}"
        yield f"Arguments as the engine printed or a person told them ({told}), without {left_out}:"
        yield fenced(_arguments(diagnosis, known))
    yield "## Asked, predicted, resolved, served"
    yield table(("limit", "asked", "predicted", f"resolved ({diagnosis.origin})", "served"), _limits(diagnosis))
    yield from _memory(diagnosis)
    yield "## Where the prediction differs"
    yield from _differences(diagnosis)
    yield "## The lines"
    yield from _lines(diagnosis)
    yield "## Assumed, or not known"
    yield "\n".join(f"- {inline(one)}" for one in _unknown(diagnosis)) or "Nothing that was looked for."


def _environment(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    yield "engine", inline(f"{diagnosis.engine} {diagnosis.version_text}")
    yield "model", inline(_model(diagnosis)) or "not told"
    draft = _argument(diagnosis, "speculative_draft_model_path")
    if draft:
        yield "draft model", inline(draft)
    ledger = diagnosis.ledgers[0] if diagnosis.ledgers else None
    name = " ".join(_card(diagnosis))
    told = ", ".join(one for one in (name, ledger.total_source if ledger is not None else "") if one)
    yield "card", inline(told) or "not told"
    yield "ranks that logged memory", str(len({pools.rank for pools in diagnosis.pools.ranks}))
    yield "outcome", inline(in_words(diagnosis.outcome))
    yield "figures", diagnosis.origin


def _defaults(diagnosis: Diagnosis) -> Mapping[str, Any]:
    """Those of its release, or which all have that it may be."""
    low, high = diagnosis.version_range
    return defaults_of(diagnosis.version or low, diagnosis.version or high)


def _arguments(diagnosis: Diagnosis, known: Mapping[str, Any]) -> Iterator[str]:
    """Those that are not as `known`; of which no default is known, those that are not off."""
    shown = {
        name: value
        for name, value in sorted((diagnosis.log.server_args or {}).items())
        if (value != known[name] if name in known else not _is_off(value))
    }
    for name in list(shown)[:_MOST_ARGUMENTS]:
        yield f"{name}={shown[name]!r}"[:400]


def _is_off(value: object) -> bool:
    return value is None or value is False or value in _OFF


def _limits(diagnosis: Diagnosis) -> Iterator[tuple[str, ...]]:
    budget = diagnosis.budgets.get("measured") or diagnosis.budgets.get("config")
    for limit in _LIMITS:
        asked = diagnosis.requested.get(limit)
        predicted = budget.limits.get(limit) if budget is not None else None
        value = predicted.value if predicted is not None else None
        words = "not predicted"
        if value is not None:
            words = format_range(value)
        yield (
            inline(limit),
            format_count(asked if isinstance(asked, int) else None, unknown=not_asked(diagnosis)),
            words,
            format_count(diagnosis.resolved.get(limit)),
            format_count(diagnosis.served) if limit == "running_requests" else "",
        )


def _memory(diagnosis: Diagnosis) -> Iterator[str]:
    for ledger in diagnosis.shown_ledgers[:1]:
        of = f" of {inline(ledger.rank)}" if ledger.rank else ""
        yield f"## Memory{of}, GiB (2^30 bytes, {diagnosis.origin})"
        rows = [
            (
                inline(f"{entry.term}{' (draft)' if entry.role == 'draft' and 'draft' not in entry.term else ''}"),
                "not logged" if entry.size is None else f"{entry.size.bytes / GIB:z.2f}",
                inline(entry.source),
            )
            for entry in ledger.entries
        ]
        total = ("**total**", f"{ledger.total.bytes / GIB:.2f}", inline(ledger.total_source))
        yield table(("term", "GiB", "from"), [*rows, total])


def _differences(diagnosis: Diagnosis) -> Iterator[str]:
    if not diagnosis.budgets:
        yield "Nothing was predicted."
        return
    off = diagnosis.reconciliation.off
    if not off:
        compared = sum(row.verdict == "match" for row in diagnosis.reconciliation.rows)
        yield f"Nowhere: {counted(compared, 'figure')} compared, none off."
        return
    lines = []
    for row in off:
        delta = format_gib(row.delta) if row.unit == "bytes" else format_count(row.delta)
        name, cause = inline(f"{row.term} {row.rank}"), inline(row.attribution or "")
        lines.append(f"- {name} ({row.basis} basis): off by {delta}; {cause}")
    yield "\n".join(lines)


def _lines(diagnosis: Diagnosis) -> Iterator[str]:
    evidence = list(dict.fromkeys(line for finding in diagnosis.findings for line in _told(finding)))
    if evidence:
        yield fenced(evidence[:_MOST_EVIDENCE])
    for failure in diagnosis.log.failures[:_MOST_FAILURES]:
        yield f"{inline(_whose(failure, diagnosis))}:"
        yield fenced(failure.traceback or (f"{failure.exception or failure.kind}: {failure.text}",))
    if not evidence and not diagnosis.log.failures:
        yield "None: no finding rests on a line."


def _told(finding: Finding) -> Iterator[str]:
    return (f"{line.where}: {line.labelled}" for line in finding.evidence)


def _whose(failure: Failure, diagnosis: Diagnosis) -> str:
    rank = f" of {failure.rank}" if failure.rank else ""
    return f"Failure{rank} ({failure.phase}), {diagnosis.log.where(failure.line)}, with its traceback"


def _unknown(diagnosis: Diagnosis) -> Iterator[str]:
    yield from diagnosis.assumptions
    yield from (f"not told: {question.missing}; {question.why}" for question in diagnosis.questions)
    for ledger in diagnosis.shown_ledgers[:1]:
        terms = ", ".join(entry.term for entry in ledger.not_logged)
        if terms:
            yield f"not logged: {terms}"
    yield from diagnosis.pools.disagreements
    if diagnosis.unread:
        first = diagnosis.unread[0].text[:300]
        yield f"{counted(len(diagnosis.unread), 'line')} that could not be read, the first: {first}"
