"""Families that are known and not supported yet: what each needs, so that a message can say so.

To support one: a file beside this one, its names in `ARCHITECTURES`, and its line here removed.
"""

from __future__ import annotations

_SLIDING = "sliding-window attention"

#: Name in config.json -> what of the family is not modelled.
PENDING: dict[str, str] = {
    "GptOssForCausalLM": _SLIDING,
    "Gemma3ForConditionalGeneration": _SLIDING,
    "Gemma3ForCausalLM": _SLIDING,
}

#: Part of a model's name, lower case -> its family.
_NAMED: dict[str, str] = {
    "gpt-oss": "GptOssForCausalLM",
    "gemma-3-": "Gemma3ForConditionalGeneration",
}


def family_of(name: str) -> str | None:
    """The pending family that a model's name tells, if it does."""
    return next((family for part, family in _NAMED.items() if part in name.lower()), None)


def why(family: str) -> str:
    """A clause on a pending family."""
    return f"{family} is not supported yet (not modelled: {PENDING[family]}), so nothing is predicted"
