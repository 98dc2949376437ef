"""Rules about how ranks exchange tensors. In: a case. Out: findings, notices all: their cost was not measured."""

from __future__ import annotations

from ..rank_names import in_words
from .case import Case
from .finding import Finding


def slow_allreduce(case: Case) -> tuple[Finding, ...]:
    """The engine's own all-reduce was given up: NCCL's is slower for the few tokens of a decode step."""
    said = [notice for notice in case.log.notices if notice.kind == "custom_allreduce_off"]
    if not said:
        return ()
    why = str(said[0].values["why"]).rstrip(".")
    ranks = in_words(notice.rank for notice in said if notice.rank)
    whose = f" by {ranks}" if ranks else ""
    numbers = (
        " CUDA_VISIBLE_DEVICES names cards by their UUID; SGLang reads numbers alone there: name them by number."
        if "invalid literal for int()" in why
        else ""
    )
    return (
        Finding(
            id="custom-allreduce-off",
            cause=(
                f"The engine's own all-reduce was given up{whose}: {why}.{numbers} Ranks then exchange by NCCL alone, "
                "which takes longer for the small tensors of decoding (by how much was not measured here), so times of "
                "this server are not those of one that has it; memory and limits are."
            ),
            severity="notice",
            evidence=case.line(said[0].line),
        ),
    )
