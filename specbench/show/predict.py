"""A prediction: every term and limit with its formula in words and in numbers. In: a budget. Out: `Shown`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from ..budget.predict import predict
from ..budget_types import MemoryBudget
from ..configuration.config import RunConfig, Section
from ..errors import SpecbenchError
from ..planning.underlying import on_ranks
from ..planning.words import bases_of
from ..terms import LIMITS, TERMS, Limit
from .figures import interval_cell, setting_text, verdict_cell, verdict_words
from .shown import Cell, Shown, Value, banner, joined, paragraph, table


def configuration(config: RunConfig) -> Shown:
    """What is set, a key per row; what is left to the engine is not listed."""
    rows: list[list[Value]] = []
    for name in RunConfig.model_fields:
        value = getattr(config, name)
        # Fields that were not given are equal to their defaults: what is left is what a person wrote.
        given = value.model_dump(mode="json", exclude_defaults=True) if isinstance(value, Section) else {"": value}
        keys = list(_flat(given))
        rows += [
            [name if number == 0 else "", Cell(text=key, code=bool(key)), setting_text(inner)]
            for number, (key, inner) in enumerate(keys)
        ]
    return table(["section", "key", "value"], rows)


def other_cards(config: RunConfig) -> Shown:
    """Whether the free memory of 1, 2, 4 and 8 such cards was measured, and the fraction on each."""
    sizes = sorted({1, 2, 4, 8, config.parallel.tp_size})
    return paragraph(f"{bases_of({ranks: on_ranks(config, ranks) for ranks in sizes})}.", tone="muted")


def _flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """{'args': {'load-format': 'dummy'}} as ('args.load-format', 'dummy')."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from ((f"{key}.{inner}", leaf) for inner, leaf in _flat(value))
        else:
            yield key, value


def budget(found: MemoryBudget) -> Shown:
    """The verdict, then limits and terms with how they were computed."""
    head = _verdict_box(found)
    limit_rows: list[list[Value]] = [
        [Cell(text=limit, title=LIMITS[limit]), interval_cell(one.value, "count"), one.formula, one.numbers]
        for limit, one in found.limits.items()
    ]
    term_rows: list[list[Value]] = [
        [
            Cell(text=term, title=TERMS[term]),
            interval_cell(one.bytes, "bytes", estimated=one.estimated),
            one.formula,
            one.numbers,
        ]
        for term, one in found.terms.items()
    ]
    parts = [
        *_emulated(found),
        head,
        *([] if found.predicted_not_multiplied is None else [paragraph(found.predicted_not_multiplied)]),
        table(["limit", "predicted", "rule in words", "in numbers"], limit_rows),
        table(["term, per rank", "predicted", "rule in words", "in numbers"], term_rows),
        *(paragraph(f"Note: {warning}", tone="warn") for warning in found.warnings),
    ]
    return joined(parts)


def _emulated(found: MemoryBudget) -> Iterator[Shown]:
    """Whose budget it is, and what is not that card's."""
    if found.emulation is None:
        return
    yield banner(f"{found.emulation.banner.upper()}: {found.emulation.arithmetic}")
    yield paragraph(f"Not emulated: {'; '.join(found.emulation.not_emulated)}.", tone="warn")


def _verdict_box(found: MemoryBudget) -> Shown:
    word = verdict_words(found.verdicts)
    kind = {"serves": "served", "capped": "capped", "refused": "refused"}[found.verdict]
    source = f"predicted from {found.basis_words} · {found.rule}"
    error = f"{found.engine} {found.version} would stop with: {found.engine_error}" if found.engine_error else ""
    html = (
        f'<div class="verdict {kind}"><p class="word">predicted: {escape(word)}</p>'
        f'<p class="sentence">{escape(found.reason)}</p>'
        + "".join(f'<p class="reason">{escape(text)}</p>' for text in (error, found.fault) if text)
        + f'<p class="provenance">{escape(source)}</p></div>'
    )
    return Shown(html, "\n".join([f"predicted: {word}. {found.reason}", *filter(None, (error, found.fault))]))


def budget_verdict(found: MemoryBudget) -> Shown:
    """Limits and terms as whole numbers: what a test compares."""
    rows: list[list[Value]] = [["verdict", verdict_words(found.verdicts)]]
    rows += [[limit, interval_cell(one.value, "count")] for limit, one in found.limits.items()]
    rows += [
        [f"{term} (B)", interval_cell(one.bytes, "bytes", estimated=one.estimated)] for term, one in found.terms.items()
    ]
    return table(["predicted", found.name], rows)


def what_if(config: RunConfig, key: str, values: Sequence[Any]) -> Shown:
    """One key varied, everything else unchanged: the limits that `predict` gives for each value."""
    names: tuple[Limit, ...] = ("running_requests", "state_slots", "kv_tokens")
    rows: list[list[Value]] = []
    for value in values:
        try:
            found = predict(config.replace({key: value}))
        except SpecbenchError as error:
            rows.append([setting_text(value), Cell(text=error.first_line, tone="bad"), "", "", ""])
            continue
        limits = [found.limits.get(name) for name in names]
        cells = [interval_cell(one.value if one else None, "count") for one in limits]
        rows.append([setting_text(value), verdict_cell(found.verdict), *cells])
    return table([key, "predicted", "requests at once", "state slots", "KV tokens"], rows)
