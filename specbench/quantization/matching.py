"""Whether a checkpoint's config lists a module. In: SGLang's module path. Out: yes or no, by each format's rule.

A checkpoint names the parts that SGLang merges (q_proj, k_proj, v_proj of qkv_proj), and wraps the decoder of a
multimodal model in a prefix of its own. So a module is compared under every name that it may have there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..errors import SpecError

#: Merged projection -> its parts in the checkpoint (packed_modules_mapping of SGLang's models).
MERGED: dict[str, tuple[str, ...]] = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
    "fused_qkv_a_proj_with_mqa": ("q_a_proj", "kv_a_proj_with_mqa"),
    "wqkv_a": ("wq_a", "wkv"),
}
#: Prefixes that checkpoints give what is `model.` here.
_WRAPPED = ("model.language_model.", "language_model.model.", "language_model.", "backbone.", "")
_LONGEST = 2_000  # of a pattern in a config.json; real ones have less than 300 characters
_MOST_STARS = 4
#: What of an expression makes comparing slow: escaped characters and sets are one character each.
_ONE_CHARACTER = re.compile(r"\\.|\[\^?\]?[^\]]*\]", re.DOTALL)
_REPEATED_GROUP = re.compile(r"(\([^()|*+?{]*)?\)[*+{]")  # the first part: of a group that is compared one way only
_MOST_OPTIONAL = 8
_MOST_ENTRIES = 200_000  # of a list that is looked up; those that name each expert have tens of thousands
_MOST_PARTS = 2_000  # of a list of parts of names: each is looked for in every module
_MOST_PATTERNS = 400  # of a list: each is compared with every module
_DEEPEST = 16  # components of a module's path


def parts(module: str) -> tuple[str, ...]:
    """The module's names in the checkpoint: one per merged part, or its own."""
    parent, dot, name = module.rpartition(".")
    return tuple(f"{parent}{dot}{part}" for part in MERGED.get(name, (name,)))


def spellings(module: str) -> tuple[str, ...]:
    """The module under each prefix that checkpoints use. `mtp.layers.0.…` and `lm_head` have no wrapper but one."""
    if module.startswith("model."):
        rest = module.removeprefix("model.")
        return (module, *(f"{prefix}{rest}" for prefix in _WRAPPED))
    return module, f"language_model.{module}"


class Listed:
    """A list of a config: whether it names a module, or every part of a merged one. SGLang refuses some but not all."""

    def __init__(self, entries: Iterable[str]) -> None:
        self.entries = tuple(dict.fromkeys(entry for entry in entries if entry))
        bounded("a list of modules", len(self.entries), _MOST_ENTRIES)
        self._asked: dict[str, bool] = {}  # a model's tensors are gone through several times

    def __contains__(self, module: object) -> bool:
        if not self.entries or not isinstance(module, str):
            return False
        if module not in self._asked:
            self._asked[module] = self._lists(module)
        return self._asked[module]

    def _lists(self, module: str) -> bool:
        return any(map(self.names, spellings(module))) or all(
            any(map(self.names, spellings(part))) for part in parts(module)
        )

    def names(self, name: str) -> bool:
        """Whether one entry names exactly this spelling."""
        raise NotImplementedError


class Paths(Listed):
    """fp8, modelopt: whole components, anywhere in the path (SGLang's _module_path_match)."""

    def __init__(self, entries: Iterable[str]) -> None:
        super().__init__(entries)
        self._known = frozenset(entry.rstrip(".") for entry in self.entries)
        self._last = frozenset(entry.rpartition(".")[2] for entry in self._known)

    def names(self, name: str) -> bool:
        steps = name.split(".")[:_DEEPEST]
        ends = (end for end, step in enumerate(steps, start=1) if step in self._last)
        return any(".".join(steps[start:end]) in self._known for end in ends for start in range(end))


class Substrings(Listed):
    """AWQ: anywhere in the name (is_layer_skipped_awq)."""

    def __init__(self, entries: Iterable[str]) -> None:
        super().__init__(entries)
        bounded("a list of parts of names", len(self.entries), _MOST_PARTS)

    def names(self, name: str) -> bool:
        return any(entry in name for entry in self.entries)


class Globs(Listed):
    """modelopt: * stands for anything; the whole path, or one component of it (is_layer_excluded)."""

    def __init__(self, entries: Iterable[str]) -> None:
        super().__init__(entries)
        self._known = frozenset(entry for entry in self.entries if "*" not in entry)
        starred = [_of_stars(entry) for entry in self.entries if "*" in entry]
        bounded("a list of modules with stars", len(starred), _MOST_PATTERNS)
        self._wanted = re.compile("|".join(starred)) if starred else None

    def names(self, name: str) -> bool:
        wanted = self._wanted
        spelled = (name, *name.split("."))
        return any(part in self._known or (wanted is not None and wanted.fullmatch(part)) for part in spelled)


class RegexesOrEnds(Listed):
    """compressed-tensors: a regular expression after `re:`, else the path or its end (check_equal_or_regex_match)."""

    def __init__(self, entries: Iterable[str]) -> None:
        super().__init__(entries)
        self._wanted = expressions(entry[3:] for entry in self.entries if entry.startswith("re:"))
        self._known = frozenset(entry for entry in self.entries if not entry.startswith("re:"))

    def names(self, name: str) -> bool:
        steps = name.split(".")[-_DEEPEST:]
        ends = (".".join(steps[start:]) for start in range(len(steps)))
        return any(end in self._known for end in ends) or any(wanted.match(name) for wanted in self._wanted)


def _of_stars(entry: str) -> str:
    """The expression of an entry. SpecError for one of so many stars that comparing may take for ever."""
    steps = [re.escape(step) for step in re.split(r"\*+", entry)]
    if len(steps) - 1 > _MOST_STARS:
        raise SpecError(
            f"quantization_config: {entry!r:.90} has more than {_MOST_STARS} stars.\n"
            "Expected a module's path with a few; real lists have two."
        )
    return ".*".join(steps)


def compiled(pattern: str) -> re.Pattern[str]:
    """SpecError for what is no regular expression, or one that may take for ever: with many repetitions (each
    multiplies the ways of comparing by a name's length), or with a repeated group that can be compared in two ways."""
    try:
        if len(pattern) <= _LONGEST and not _slow(pattern):
            return re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        pass
    raise SpecError(
        f"quantization_config: {pattern!r:.90} is no regular expression that is matched here.\n"
        f"Expected a valid one of {_LONGEST:,} characters at most, with {_MOST_STARS} repetitions at most and none of "
        "a group with choices or repetitions."
    )


def expressions(patterns: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    """All of a list's. SpecError for too many of them."""
    listed = tuple(patterns)
    bounded("a list of expressions", len(listed), _MOST_PATTERNS)
    return tuple(map(compiled, listed))


def _slow(pattern: str) -> bool:
    plain = _ONE_CHARACTER.sub("a", pattern).replace("(?:", "(")
    repeated = sum(map(plain.count, "*+{"))
    optional = plain.count("?") - plain.count("(?")
    choices = any(group[1] is None for group in _REPEATED_GROUP.finditer(plain))
    return repeated > _MOST_STARS or optional > _MOST_OPTIONAL or choices


def bounded(what: str, count: int, most: int) -> None:
    """SpecError for more entries than are compared with every module."""
    if count > most:
        raise SpecError(
            f"quantization_config: {what} has {count:,} entries; expected {most:,} at most.\nCorrect the config.json."
        )
