"""Families that are known and not supported: what each needs, or that no engine serves it. In: a name. Out: words.

To support one: a file beside this one, its names in `ARCHITECTURES`, and its line here removed.
"""

from __future__ import annotations

_GEMMA = "the tensors of Gemma 3"

#: Name in config.json -> what of the family is not modelled.
PENDING: dict[str, str] = {
    "Gemma3ForConditionalGeneration": _GEMMA,
    "Gemma3ForCausalLM": _GEMMA,
}

#: Linear models that no SGLang version read here has a class for (0.5.6 to 0.5.23): there is nothing to predict.
NOT_SERVED: dict[str, str] = {
    "MiniMaxText01ForCausalLM": "lightning attention of MiniMax-Text-01",
    "MiniMaxM1ForCausalLM": "lightning attention of MiniMax-M1",
    "BailingMoeLinearV2ForCausalLM": "linear attention of Ring-linear 2.0; Ling and Ring 2.5 are served",
}
_SERVED_UP_TO = "0.5.23"

#: Part of a model's name, lower case -> its family.
_NAMED: dict[str, str] = {
    "gemma-3-": "Gemma3ForConditionalGeneration",
    "minimax-text-01": "MiniMaxText01ForCausalLM",
    "minimax-m1": "MiniMaxM1ForCausalLM",
    "ring-mini-linear": "BailingMoeLinearV2ForCausalLM",
    "ring-flash-linear": "BailingMoeLinearV2ForCausalLM",
}

#: What is left to do about a pending family: records and logs of such a model are read all the same.
_HOW_TO_ADD = (
    "It can be run and its log diagnosed. To predict it: a file under specbench/architectures/, its name in "
    "ARCHITECTURES there."
)


def family_of(name: str) -> str | None:
    """The pending family that a model's name tells, if it does."""
    return next((family for part, family in _NAMED.items() if part in name.lower()), None)


def why(family: str) -> str:
    """A clause on a pending family, or on one that is served nowhere."""
    if family in NOT_SERVED:
        return f"{family} is served by no SGLang version up to {_SERVED_UP_TO} ({NOT_SERVED[family]})"
    return f"{family} is not supported yet (not modelled: {PENDING[family]}), so nothing is predicted"


def advice(family: str | None) -> str:
    """What can be done about such a family; None: about one that is not known at all."""
    return "Logs of a build that serves it are read all the same." if family in NOT_SERVED else _HOW_TO_ADD
