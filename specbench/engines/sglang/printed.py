"""The server's arguments as it prints them -> sections of a RunConfig.

In: ServerArgs fields by name. Out: plain sections: fields that have a key of ours under it, those further ones that
decide memory under `engine.args`. The non-obvious thing: the engine prints what it resolved, so a default that it took
stands there like a value that was given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .arguments import decides_memory
from .flags import key_of_flag

_SECTIONS = ("parallel", "speculative", "memory")
#: Read elsewhere (the model), or of the machine.
_NOT_FLAGS = frozenset({"model_path", "host", "port", "enable_metrics", "device"})
#: Of the speculation: printed with defaults where there is none.
_SPECULATIVE = "speculative_"
#: Up to 0.5.13 the list of batches is printed with its default beside the largest, from which it follows.
_LISTED, _LARGEST = "cuda_graph_bs", "cuda_graph_max_bs"
_TYPES = (bool, int, float, str)


def sections_of_printed(arguments: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """`{"parallel": {…}, "speculative": {…}, "memory": {…}, "args": {…}}`; what is None or no plain value is left out.

    The draft's path stays as printed.
    """
    sections: dict[str, dict[str, Any]] = {name: {} for name in (*_SECTIONS, "args")}
    speculates = arguments.get("speculative_algorithm") is not None
    for name, value in _plain(arguments):
        if name.startswith(_SPECULATIVE) and not speculates:
            continue
        section, _, key = (key_of_flag(name) or "").partition(".")
        if section in _SECTIONS:
            sections[section][key] = value
        elif not section and decides_memory(name, value):
            sections["args"][name] = value
    sections["speculative"].setdefault("algorithm", "none")
    largest = arguments.get(_LARGEST)
    listed = sections["args"].get(_LISTED)
    if isinstance(listed, list) and largest in listed and largest == max(listed):
        del sections["args"][_LISTED]
    return sections


def _plain(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in arguments.items():
        if name in _NOT_FLAGS:
            continue
        if isinstance(value, _TYPES) or (
            isinstance(value, list) and value and all(isinstance(x, _TYPES) for x in value)
        ):
            yield name, value
