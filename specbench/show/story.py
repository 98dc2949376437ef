"""The beginning of the front page: what the campaign shows, how many ended how, and what each shortfall needs.

In: a `Collection`. Out: `Shown`. Every configuration that did not get what was asked is listed, whether or not anything
is known to help it: a list of successes would tell less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from ..diagnose.finding import Finding, Remedy
from ..diagnose.outgoing import safe
from ..reading.outcome import in_words
from ..records.caveats import PASSED, caveats, marks
from ..records.listing import read, saved
from ..records.record import RunRecord
from ..studies.proofs import Proof, proofs
from ..studies.study import Collection, Missing, Study
from ..terms import OUTCOMES, Outcome
from ..units import counted
from .figures import asked_text, change_text, effect_text, falls_short, is_overflow
from .findings import differences, reached
from .shown import Shown, banner, joined, paragraph

#: Nothing was amiss, as far as anybody looked.
_AS_ASKED: tuple[Outcome, ...] = ("served", "started")
_MAX_CAUSE = 150


def opening(collection: Collection) -> Shown:
    """What the campaign is about, the outcomes counted, what limits the worth of the figures, and the shortfalls."""
    parts = (about, unfinished, counts, not_started, warnings, shortfalls)
    return joined([part(collection) for part in parts])


def about(collection: Collection) -> Shown:
    """The words of the campaign's author, as text: a paragraph for each that an empty line ends."""
    known = read(collection.folder)
    said = known.about.split("\n\n") if known is not None else []
    paragraphs = [" ".join(one.split()) for one in said if one.strip()]
    html = "".join(f'<p class="about">{escape(one)}</p>' for one in paragraphs)
    return Shown(html, "\n\n".join(paragraphs))


def unfinished(collection: Collection) -> Shown:
    """Which configurations have not run yet, or not to their end. Nothing of a campaign that is complete."""
    again = [study.name for study in collection.studies if study.record.status.cut_short]
    again += [missing.name for missing in collection.missing]
    parts = []
    if collection.waiting:
        parts.append(
            f"{counted(len(collection.waiting), 'configuration')} still to run: {', '.join(collection.waiting)}"
        )
    if again and (collection.waiting or any(study.record.status.cut_short for study in collection.studies)):
        parts.append(f"interrupted, and to run again: {', '.join(again)}")
    if not parts:
        return Shown("", "")
    return banner(f"This campaign is not complete. {'; '.join(parts)}. 'specbench run … --resume' goes on with them.")


def counts(collection: Collection) -> Shown:
    """'15 configurations: 5 served (…), 3 capped (…).'"""
    if not collection.entries:
        return paragraph("No configuration has run.")
    found = Counter(outcome_of(entry) for entry in collection.entries)
    parts = [
        f"{found[outcome]} {in_words(outcome)} ({meaning})" for outcome, meaning in OUTCOMES.items() if found[outcome]
    ]
    return paragraph(f"{counted(len(collection.entries), 'configuration')}: {', '.join(parts)}.")


def not_started(collection: Collection) -> Shown:
    """'2 more were not started: they are predicted to be refused. About 3.1 GPU minutes saved.' Nothing of none."""
    skipped = collection.skipped.values()
    if not skipped:
        return Shown("", "")
    words = " or ".join(sorted({one.predicted for one in skipped}, reverse=True))
    were = "was" if len(skipped) == 1 else "were"
    count = f"{len(skipped)} more" if collection.entries else counted(len(skipped), "configuration")
    told = f"{count} {were} not started, predicted to be {words} with any memory that may be free:"
    return paragraph(
        f"{told} {', '.join(collection.skipped)}. {saved(sum(one.saved_gpu_s for one in skipped))}".rstrip()
    )


def outcome_of(entry: Study | Missing) -> Outcome:
    return entry.outcome if isinstance(entry, Study) else "no_record"


def warnings(collection: Collection) -> Shown:
    """Marks and caveats of the runs, each once, with the runs that it holds for."""
    return joined(
        [
            *_held(collection, lambda study: marks(study.record), lambda mark, which: f"{mark}: in {which} runs."),
            *_held(
                collection,
                lambda study: caveats(study.record.config),
                lambda caveat, which: f"In {which} runs {caveat}.",
            ),
        ]
    )


def _held(
    collection: Collection, of: Callable[[Study], Iterable[str]], sentence: Callable[[str, str], str]
) -> Iterator[Shown]:
    holders: dict[str, list[str]] = {}
    fractions: dict[str, set[str]] = {}  # the one figure in which marks of several runs may differ
    for study in collection.studies:
        for text in of(study):
            alike = PASSED.sub("\0", text)
            fractions.setdefault(alike, set()).update(PASSED.findall(text))
            holders.setdefault(alike, []).append(study.name)
    everyone = len(collection.studies)
    for alike, names in holders.items():
        text = alike.replace("\0", ", ".join(sorted(fractions[alike])))
        which = f"all {everyone}" if len(names) == everyone else f"{len(names)} of {everyone}"
        told = "" if len(names) == everyone else f" These are: {', '.join(names)}."
        yield banner(sentence(text, which) + told)


# ── what did not get what was asked ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A remedy for a shortfall and the runs that tried it, closest first; none: not tried in this campaign."""

    remedy: Remedy
    finding: Finding
    tried: tuple[Proof, ...]

    def short(self, study: Study) -> bool:
        """Whether it gives less than was asked for. Requests that were too long need length, not company."""
        return not is_overflow(self.finding) and falls_short(self.remedy, study.wanted)

    @property
    def answered(self) -> bool:
        return any(request.ok for one in self.tried for request in one.record.requests())


def shortfalls(collection: Collection) -> Shown:
    """One entry each: the cause in a line, the best remedy with its predicted effect, and what proves it."""
    linked = read(collection.folder) is not None
    entries = [entry for entry in collection.entries if outcome_of(entry) not in _AS_ASKED]
    items = [
        _study_item(entry, collection, linked) if isinstance(entry, Study) else _missing_item(entry, linked)
        for entry in entries
    ]
    if not items:
        return Shown("", "")
    title = f"{counted(len(items), 'configuration')} did not get what was asked"
    html = f'<h3>{title}</h3><ul class="story">{"".join(item.html for item in items)}</ul>'
    return Shown(html, "\n".join([f"{title}:", *(item.text for item in items)]))


def _study_item(study: Study, collection: Collection, linked: bool) -> Shown:
    others = [other.record for other in collection.studies if other is not study]
    ways = list(best_ways(study, others))
    beside = [one for finding in study.diagnosis.beside for one in _ranked(finding, study, others)[:1]]
    came = reached(study)
    figures = asked_text(study.asked) if came == in_words(study.outcome) else came
    cause = short_cause(study) or "The log names no cause."
    lines = [_way(way, study, collection, linked) for way in ways]
    if not lines:
        lines = [paragraph("Remedy: none that the prediction shows to help.")]
    lines += [_way(way, study, collection, linked) for way in beside]
    return _item(study.name, study.outcome, figures, cause, lines, linked)


def _missing_item(missing: Missing, linked: bool) -> Shown:
    return _item(missing.name, "no_record", "", first_sentence(safe(missing.error)), [], linked)


def _item(name: str, outcome: Outcome, figures: str, cause: str, lines: Sequence[Shown], linked: bool) -> Shown:
    word = in_words(outcome)
    html = (
        f'<li class="{escape(outcome)}"><p>{_link(name, linked)} <span class="badge">{escape(word)}</span> '
        f"{escape(figures)}</p><p>{escape(cause)}</p>{''.join(line.html for line in lines)}</li>"
    )
    text = f"- {name}: {word}" + (f" ({figures})" if figures else "") + f". {cause}"
    return Shown(html, "\n".join([text, *(f"  {line.text}" for line in lines)]))


def _way(way: Way, study: Study, collection: Collection, linked: bool) -> Shown:
    change = change_text(dict(way.remedy.set))
    effect = effect_text(way.remedy, study.wanted, way.finding, study.diagnosis.pools.kv_tokens)
    runs = [next(other for other in collection.studies if other.record is one.record) for one in way.tried]
    proved = any(_proves(way.remedy, run) for run in runs)
    also = [f" (with {differences(one)})" if one.other else "" for one in way.tried]
    told = "; ".join(f"{run.name}: {reached(run)}{more}" for run, more in zip(runs, also, strict=True))
    shown = "; ".join(
        f"{_link(run.name, linked)}: {escape(reached(run))}{escape(more)}" for run, more in zip(runs, also, strict=True)
    )
    by = "Proved by " if proved else "Tried by " if runs else "Not tried in this campaign"
    flags = way.remedy.flags
    html = (
        f"<p>Remedy: <code>{escape(change)}</code> ("
        + (f"<code>{escape(flags)}</code>; " if flags else "")
        + f"{escape(effect)}). {by}{shown}.</p>"
    )
    return Shown(html, f"Remedy: {change} ({f'{flags}; ' if flags else ''}{effect}). {by}{told}.")


def _proves(remedy: Remedy, run: Study) -> bool:
    """Served as asked; what is not about memory shows only when all places were taken at once."""
    full = run.served is not None and run.resolved is not None and run.served >= run.resolved
    return run.outcome == "served" and (remedy.verdict is not None or full)


def best_ways(study: Study, records: Iterable[RunRecord]) -> Iterator[Way]:
    """The best remedy for the main cause, and a second one where the first leaves something to be wished.

    What another run tried comes before what is only predicted; then what reaches what was asked; then the order of the
    diagnosis, which is that of the cost. A second one: that reaches what was asked, or that answered requests.
    """
    finding = study.diagnosis.main_finding
    if finding is None:
        return
    ranked = _ranked(finding, study, list(records))
    yield from ranked[:1]
    for way in ranked[1:]:
        better = ranked[0].short(study) and not way.short(study)
        if better or (ranked[0].tried and not ranked[0].answered and way.answered):
            yield way
            return


def _ranked(finding: Finding, study: Study, records: Sequence[RunRecord]) -> list[Way]:
    tried = [proofs(remedy, study.record.config, records) for remedy in finding.remedies]
    ways = [
        Way(remedy=remedy, finding=finding, tried=_closest(runs))
        for remedy, runs in zip(finding.remedies, tried, strict=True)
    ]
    return sorted(ways, key=lambda way: (not way.tried, way.short(study), len(way.tried[0].other) if way.tried else 0))


def _closest(tried: Sequence[Proof]) -> tuple[Proof, ...]:
    if not tried or tried[0].record.requests():
        return tuple(tried[:1])
    return (tried[0], *[one for one in tried[1:] if one.record.requests()][:1])


def short_cause(study: Study) -> str:
    """The first cause that cost something in a sentence, and what is said beside it; "": none is known."""
    finding, beside = study.diagnosis.main_finding, [finding.beside for finding in study.diagnosis.beside]
    return "" if finding is None else safe(" ".join([first_sentence(finding.cause), *beside]))


def first_sentence(text: str) -> str:
    """Enough to tell rows apart; the run's page has the whole text."""
    line = " ".join(text.split())
    sentence, dot, _ = line.partition(". ")
    sentence += "." if dot else ""
    return sentence if len(sentence) <= _MAX_CAUSE else sentence[:_MAX_CAUSE].rsplit(" ", 1)[0] + " …"


def _link(name: str, linked: bool) -> str:
    strong = f"<strong>{escape(name)}</strong>"
    return f'<a href="{escape(name)}/index.html">{strong}</a>' if linked else strong
