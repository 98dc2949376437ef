"""An SGLang command line -> sections of a RunConfig: the way back from `command.py`.

In: the argument list of a server somebody started. Out: plain sections, where flags that have a key of their own are
under that key and every other flag is verbatim under `engine.args`. Of a flag given twice the last one counts, as in
SGLang. Addresses and ports are left out: a new run gets its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .flags import key_of_flag

_TEXTS = frozenset(
    {
        "speculative.algorithm",
        "speculative.draft_model_path",
        "memory.kv_cache_dtype",
        "memory.mamba_ssm_dtype",
        "memory.mamba_radix_cache_strategy",
    }
)
_FRACTIONS = frozenset({"memory.mem_fraction_static", "memory.mamba_full_memory_ratio"})
#: Of the machine or of that one start, not of the configuration.
_LEFT_OUT = frozenset({"host", "port", "nccl-port", "dist-init-addr"})


def sections_of(argv: Sequence[str]) -> dict[str, Any]:
    """`{"model": …, "parallel": {…}, "speculative": {…}, "memory": {…}, "engine": {"args": {…}, …}}`; "model" may lack.

    Raises ValueError naming the flag when a value does not have the flag's type.
    """
    sections: dict[str, Any] = {"parallel": {}, "speculative": {}, "memory": {}}
    sections["engine"] = {"enable_metrics": False, "args": {}}  # the flag is one that we give by default
    for flag, values in flags_of(argv).items():
        if flag in ("model-path", "model"):
            sections["model"] = values[0]
        elif (dotted := key_of_flag(flag)) is not None:
            section, _, key = dotted.partition(".")
            sections[section][key] = typed_value(flag, dotted, values)
        elif flag not in _LEFT_OUT:
            sections["engine"]["args"][flag] = verbatim(values)
    return sections


def flags_of(argv: Sequence[str]) -> Mapping[str, list[str]]:
    """flag -> its values; what stands before the first flag (interpreter, module) is skipped."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for word in argv[_first_flag(argv) :]:
        if word.startswith("--"):
            flag, has_value, value = word[2:].partition("=")
            current = [value] if has_value else []
            found[flag.replace("_", "-")] = current
        elif current is not None:
            current.append(word)
    return found


def typed_value(flag: str, key: str, values: list[str]) -> Any:
    """A flag's value as its key has it. ValueError naming the flag when it is no number and should be one."""
    if key in _TEXTS and values:
        return values[0]
    if not values:
        return True
    try:
        return float(values[0]) if key in _FRACTIONS else int(values[0])
    except ValueError:
        raise ValueError(f"--{flag}: got {values[0]!r}, expected a number") from None


def _first_flag(argv: Sequence[str]) -> int:
    return next((place for place, word in enumerate(argv) if word.startswith("--")), len(argv))


def verbatim(values: list[str]) -> Any:
    """Values of a flag without a key: true where there is none, numbers as numbers."""
    if not values:
        return True
    typed = [_number_or_text(value) for value in values]
    return typed[0] if len(typed) == 1 else typed


def _number_or_text(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if str(number) == text:  # keeps what would print differently (007, 1e3) as it was written
            return number
    return text
