"""What is wrong with a configuration, in two lines: key, what came, what was expected; then what to do.

pydantic knows where a value failed and why; this module turns that into the words of a person who reads YAML. The
non-obvious part is YAML 1.1, which has changed the value before pydantic sees it (`trap`).
"""

from __future__ import annotations

import datetime
import difflib
import re
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails


def problem_text(problem: ErrorDetails, root: type[BaseModel], where: str) -> str:
    """One pydantic problem with a value of `root` in two lines. `where` names the file or the notebook cell."""
    location = [str(part) for part in problem["loc"] if not _is_branch(part)]
    # Positions in lists and the branch names of unions are pydantic's; a reader thinks in keys.
    model, keys = _walk(problem["loc"], root)
    dotted = ".".join(keys) or ".".join(location)
    value = problem.get("input")
    if isinstance(value, tuple):  # a list that our own validator has frozen
        value = list(value)
    if problem["type"] == "extra_forbidden":
        allowed = tuple(model.model_fields)
        return f"{where}: {dotted}: no such key{near_miss(keys[-1], allowed)}.\nAllowed here: {listed(allowed)}."
    description = _description(keys, root)
    if problem["type"] == "missing":
        return f"{where}: {dotted}: missing.\nExpected: {description or 'a value'}."
    if problem["type"] == "value_error":
        return _own_words(f"{where}: {dotted}" if dotted else where, str(problem["ctx"]["error"]), description)
    expected = _expected(problem)
    hint = _trap(value, problem["type"], keys) or _meant(value, problem, keys)
    advice = hint or (f"{dotted} is {description}" if description else f"{dotted}: {expected}")
    return f"{where}: {dotted}: got {shown(value)}; expected {expected}.\n{advice}{'' if advice.endswith('?') else '.'}"


def _own_words(where: str, said: str, description: str | None) -> str:
    """A complaint of one of our validators: what is wrong, and in a second line what to do."""
    wrong, _, advice = said.partition("\n")
    return f"{where}: {wrong.rstrip('.')}.\n{advice or f'Expected {description}'}."


def _walk(location: tuple[int | str, ...], root: type[BaseModel]) -> tuple[type[BaseModel], list[str]]:
    model = root
    keys: list[str] = []
    for part in location:
        if not isinstance(part, str):
            continue
        field = model.model_fields.get(part)
        if field is None:
            if not keys or not _is_branch(part):
                keys.append(part)
            continue
        keys.append(part)
        model = _values_of(field.annotation) or model
    return model, keys


def _values_of(annotation: Any) -> type[BaseModel] | None:
    """The model that a field holds: itself, one that may be left out, or as the values of a mapping."""
    held = get_args(annotation)[-1] if get_origin(annotation) is dict else annotation
    for one in (held, *get_args(held)):
        if isinstance(one, type) and issubclass(one, BaseModel):
            return one
    return None


def _is_branch(part: int | str) -> bool:
    """Names that pydantic adds for the members of a union or a validator."""
    return isinstance(part, int) or bool(
        re.search(r"[\[(]|^(float|int|str|bool|tuple|list)$|literal|function-|constrained-", str(part))
    )


def _description(keys: Sequence[str], root: type[BaseModel]) -> str | None:
    model = root
    text: str | None = None
    for key in keys:
        field = model.model_fields.get(key)
        if field is None:
            return text
        text = field.description
        inner = _values_of(field.annotation)
        if inner is not None and get_origin(field.annotation) is not dict:
            model = inner
            text = text or "a mapping of the keys " + listed(tuple(model.model_fields))
    return text


def _expected(problem: ErrorDetails) -> str:
    context = problem.get("ctx", {})
    match problem["type"]:
        case "literal_error":
            return f"one of {context.get('expected')}"
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            sign = {"greater_than": ">", "greater_than_equal": "≥", "less_than": "<", "less_than_equal": "≤"}[
                problem["type"]
            ]
            bound = next(iter(context.values()))
            return f"a number {sign} {bound}"
        case "int_type" | "int_from_float":
            return "a whole number"
        case "float_type":
            return "a number"
        case "bool_type":
            return "true or false"
        case "string_type" | "string_too_short":
            return "text"
        case "string_pattern_mismatch":
            return "a name of letters, digits and . _ + = - (no spaces, no slashes, at most 121 characters)"
        case "too_short":
            return "a list with at least one value"
        case "tuple_type" | "list_type":
            return "a list, e.g. [1, 4, 8]"
        case "model_type" | "model_attributes_type" | "dict_type":
            return "a mapping (key: value)"
        case _:
            return problem["msg"][:1].lower() + problem["msg"][1:]


def _trap(value: Any, kind: str, keys: Sequence[str]) -> str | None:
    """What YAML made of the text, when that explains the mistake."""
    numeric = kind.startswith(("int", "float"))
    if isinstance(value, str) and numeric:
        if re.fullmatch(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+", value):
            return f"YAML reads {value} as text: write it with a point and a sign, e.g. {_yaml_float(value)}"
        if re.fullmatch(r"\s*[+-]?[\d.]+\s*", value):
            return "It is text, not a number: remove the quotes"
    if isinstance(value, bool):
        return f"YAML reads on, off, yes and no as true and false: quote {keys[-1]}'s value if you meant a word"
    if isinstance(value, (datetime.date, datetime.datetime)):
        return f"YAML reads {value} as a date: put it in quotes"
    if isinstance(value, (int, float)) and kind.startswith("string"):
        return f"""YAML reads it as a number: put it in quotes, "{value}" (--set '{".".join(keys)}="{value}"')"""
    return None


#: The key that a section's bare value most likely stands for.
_MAIN_KEYS = {
    "engine": "version",
    "gpu": "name",
    "parallel": "tp_size",
    "speculative": "algorithm",
    "memory": "mem_fraction_static",
    "workload": "concurrency",
}


def _meant(value: Any, problem: ErrorDetails, keys: Sequence[str]) -> str | None:
    """What was probably meant, when one can tell."""
    if problem["type"].startswith("model") and keys and keys[-1] in _MAIN_KEYS and not isinstance(value, (dict, list)):
        written = f'"{value}"' if keys[-1] == "engine" else value
        return f"Write {keys[-1]}: {{{_MAIN_KEYS[keys[-1]]}: {written}}}"
    if problem["type"] == "less_than" and problem.get("ctx", {}).get("lt") == 1 and _is_percentage(value):
        return f"It is a share, not a percentage: did you mean {value / 100:g}?"
    return None


def _is_percentage(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 5 <= value < 100


def _yaml_float(text: str) -> str:
    mantissa, _, exponent = text.lower().partition("e")
    sign = exponent if exponent[0] in "+-" else "+" + exponent
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{sign}"


def near_miss(word: str, allowed: Iterable[str]) -> str:
    found = difflib.get_close_matches(word, list(allowed), n=1, cutoff=0.6)
    return f" (did you mean {found[0]!r}?)" if found else ""


def listed(words: Iterable[str]) -> str:
    return ", ".join(words)


def kind(value: Any) -> str:
    if value is None:
        return "nothing"
    names = {
        bool: "true/false",
        int: "a whole number",
        float: "a number",
        str: "text",
        dict: "a mapping",
        list: "a list",
    }
    return names.get(type(value), type(value).__name__)


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 3, 80, 80, 40


def shown(value: Any) -> str:
    """The value in at most 80 characters. Never built whole: a few YAML aliases can stand for gigabytes."""
    text = _SHORT.repr(value)
    return f"{text if len(text) <= 80 else text[:77] + '…'} ({kind(value)})"


def one_line(problem: object) -> str:
    return " ".join(str(problem).split()).rstrip(".")
