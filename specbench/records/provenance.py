"""Where the figures of a record come from, in words: who made them, which engine, which model, which machine."""

from __future__ import annotations

from .. import __version__
from .caveats import on_cpu
from .record import RunRecord


def provenance(record: RunRecord) -> tuple[str, ...]:
    """recorded: replay of a recording | SGLang 0.5.12 | Qwen/Qwen3.6-27B | on 1 × NVIDIA H200 | specbench 0.1.0."""
    config = record.config
    return (
        f"{record.origin}: {_origin_words(record)}",
        f"SGLang {config.engine.version}",
        config.model,
        _machine_words(record),
        f"specbench {__version__}",
    )


def _machine_words(record: RunRecord) -> str:
    """The cards that were seen where the figures come from; what was only asked for is named so."""
    if on_cpu(record.config):
        return "on the CPU"
    seen = record.recorded_machine if record.origin == "recorded" else record.this_machine
    if seen is not None and seen.gpus:
        return "on " + ", ".join(f"{seen.gpus.count(name)} × {name}" for name in dict.fromkeys(seen.gpus))
    return f"asked for {record.config.gpu.count} × {record.config.gpu.name}, which no record confirms"


def _origin_words(record: RunRecord) -> str:
    if record.origin == "measured":
        engine = record.config.engine
        return "a real engine ran" if engine.attach is None else "a real engine that somebody else started"
    by = ", by a server that somebody else started" if record.config.engine.attach is not None else ""
    return f"{'replay of a' if record.replayed else 'an imported'} recording{by}"
