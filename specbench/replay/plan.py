"""Which recorded request answers an asked one.

Same shape (concurrency or rate, input length, output length) and same index: the recorded request itself, `exact`.
Otherwise the nearest recorded step of the same concurrency, its chunks cut or continued to the asked output: marked.
Nothing of the same concurrency: refused, with what was recorded (a warm-up, which is in no figure, is answered from
another load). A record without requests refuses everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..records.types import RequestTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request as it came. `concurrency` and `index` are told by specbench's client in headers."""

    input_tokens: int
    max_new_tokens: int
    concurrency: int | None = None  # None: the client did not say
    request_rate: float | None = None
    step: str | None = None
    index: int | None = None
    warmup: bool = False  # in no figure: answered from another load rather than refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What to send, in recorded seconds since the request came."""

    chunks: tuple[tuple[float, int], ...]
    end_s: float
    finish_reason: str | None
    meta_info: dict[str, Any]  # of the last chunk
    error: str | None  # recorded failure
    http_status: int
    step: str  # the recorded step it is from
    source: str  # e.g. conc8[3]
    exact: bool
    why_not_exact: str | None

    @property
    def mark(self) -> dict[str, Any]:
        """What every answer says about itself."""
        told = {"exact": self.exact, "from": self.source}
        return told if self.exact else {**told, "because": self.why_not_exact}


@dataclass(frozen=True, slots=True)
class NotRecorded:
    """Refused: the text says what was asked and what there is."""

    text: str


@dataclass(frozen=True, slots=True)
class RecordedStep:
    name: str
    concurrency: int | None
    request_rate: float | None
    input_tokens: int
    max_new_tokens: int
    measured: bool
    traces: tuple[RequestTrace, ...]

    @property
    def words(self) -> str:
        load = f"{self.concurrency} clients" if self.concurrency is not None else f"{self.request_rate:g} requests/s"
        return f"{load} {self.input_tokens}+{self.max_new_tokens}"


class Plan:
    """The recorded steps, and where the recorded run crashed (if it did while serving)."""

    def __init__(self, traces: Sequence[RequestTrace], *, crashed: bool) -> None:
        answered = [trace for trace in traces if trace.http_status is not None]
        self.steps = tuple(
            _step([trace for trace in answered if trace.step == name])
            for name in dict.fromkeys(trace.step for trace in answered)
        )
        # The last step that the server still answered is the one that brought it down.
        self.crash_step = self.steps[-1].name if crashed and self.steps else None
        self.crash_after_s = 0.0
        self.crash_batch = 0
        if self.crash_step is not None:
            self.crash_batch = len(self.steps[-1].traces)
            self.crash_after_s = max(trace.sent_s + (trace.end_s or 0.0) for trace in self.steps[-1].traces)
        self._taken: dict[str, int] = {}

    def answer(self, ask: Ask) -> Answer | NotRecorded:
        """Raises nothing: what was not recorded is an answer too."""
        if not self.steps:
            return NotRecorded(
                "load-only recording: the recorded run started this server and sent it no request, "
                "so there are no latencies to replay"
            )
        steps = self._of_the_same_load(ask)
        if not steps and ask.warmup and (served := [s for s in self.steps if s.name != self.crash_step]):
            step = min(served, key=lambda s: (abs((s.concurrency or 0) - (ask.concurrency or 1)), _distance(s, ask)))
            return self._of_step(step, ask, f"a warm-up by {_load(ask)} was not recorded, {step.words} is nearest")
        if not steps:
            return NotRecorded(f"{_load(ask)} was not recorded; recorded: {', '.join(s.words for s in self.steps)}")
        same = [s for s in steps if (s.input_tokens, s.max_new_tokens) == (ask.input_tokens, ask.max_new_tokens)]
        # A step of the same name first, then measured before warm-up.
        if same:
            step = min(same, key=lambda s: (s.name != ask.step, not s.measured))
            return self._of_step(step, ask, None)
        step = min(steps, key=lambda s: _distance(s, ask))
        why = f"{ask.input_tokens}+{ask.max_new_tokens} tokens were not recorded, {step.words} is nearest"
        return self._of_step(step, ask, why)

    def failure(self, ask: Ask) -> Answer | None:
        """How this very request failed when it was recorded; None: it did not, or it was not recorded."""
        if ask.index is None:  # another client: to ask would be to take the next recorded one
            return None
        answer = self.answer(ask)
        return answer if isinstance(answer, Answer) and answer.exact and answer.error is not None else None

    def _of_the_same_load(self, ask: Ask) -> list[RecordedStep]:
        if ask.request_rate is not None:
            return [s for s in self.steps if s.request_rate == ask.request_rate]
        if ask.concurrency is not None:
            return [s for s in self.steps if s.concurrency == ask.concurrency]
        return list(self.steps)

    def _of_step(self, step: RecordedStep, ask: Ask, why: str | None) -> Answer:
        index = ask.index
        if index is None:  # another client: the recorded requests in turn
            index = self._taken.get(step.name, 0)
            self._taken[step.name] = index + 1
        by_index = {trace.index: trace for trace in step.traces}
        trace = by_index.get(index)
        if trace is None:
            trace = step.traces[index % len(step.traces)]
            why = why or f"request {index} of this step was not recorded, request {trace.index} is repeated"
        answer = Answer(
            chunks=trace.chunks,
            end_s=trace.end_s if trace.end_s is not None else (trace.chunks[-1][0] if trace.chunks else 0.0),
            finish_reason=trace.finish_reason,
            meta_info=dict(trace.meta_info),
            error=trace.error,
            http_status=trace.http_status or 200,
            step=step.name,
            source=f"{step.name}[{trace.index}]",
            exact=why is None,
            why_not_exact=why,
        )
        if trace.output_tokens and (step.input_tokens, step.max_new_tokens) != (ask.input_tokens, ask.max_new_tokens):
            return _fitted(answer, ask)
        return answer


def _step(traces: list[RequestTrace]) -> RecordedStep:
    first = traces[0]
    return RecordedStep(
        name=first.step,
        concurrency=first.concurrency,
        request_rate=first.request_rate,
        input_tokens=first.input_tokens,
        max_new_tokens=first.max_new_tokens,
        measured=first.phase == "measured",
        traces=tuple(sorted(traces, key=lambda trace: trace.index)),
    )


def _distance(step: RecordedStep, ask: Ask) -> tuple[int, int, bool]:
    return (
        abs(step.input_tokens - ask.input_tokens),
        abs(step.max_new_tokens - ask.max_new_tokens),
        not step.measured,
    )


def _load(ask: Ask) -> str:
    if ask.request_rate is not None:
        return f"open loop at {ask.request_rate:g} requests/s"
    return f"{ask.concurrency} clients"


def _fitted(answer: Answer, ask: Ask) -> Answer:
    """The recorded chunks, cut after the asked tokens or continued at their own mean pace."""
    chunks: list[tuple[float, int]] = []
    left = ask.max_new_tokens
    for at_s, tokens in answer.chunks:
        if left <= 0:
            break
        chunks.append((at_s, min(tokens, left)))
        left -= tokens
    gap_s, per_chunk = _pace(answer.chunks)
    while left > 0:
        chunks.append((chunks[-1][0] + gap_s, min(per_chunk, left)))
        left -= per_chunk
    after_last_s = max(0.0, answer.end_s - answer.chunks[-1][0])
    recorded_tokens = sum(tokens for _, tokens in answer.chunks)
    kept = ("id", "weight_version", "cached_tokens", "num_retractions")
    meta_info = {key: answer.meta_info[key] for key in kept if key in answer.meta_info}
    meta_info["finish_reason"] = {"type": "length", "length": ask.max_new_tokens}
    meta_info["prompt_tokens"] = ask.input_tokens
    meta_info["completion_tokens"] = ask.max_new_tokens
    rounds = answer.meta_info.get("spec_verify_ct")
    if rounds:
        meta_info["spec_verify_ct"] = max(1, round(rounds * ask.max_new_tokens / recorded_tokens))
        meta_info["spec_accept_length"] = ask.max_new_tokens / meta_info["spec_verify_ct"]
    return replace(
        answer,
        chunks=tuple(chunks),
        end_s=chunks[-1][0] + after_last_s,
        finish_reason="length",
        meta_info=meta_info,
    )


def _pace(chunks: Sequence[tuple[float, int]]) -> tuple[float, int]:
    """Mean seconds between chunks and mean tokens of a chunk (the first, which follows the prefill, left out)."""
    later = chunks[1:]
    if not later:
        return 0.0, max(1, chunks[0][1])
    return (later[-1][0] - chunks[0][0]) / len(later), max(1, round(sum(n for _, n in later) / len(later)))
