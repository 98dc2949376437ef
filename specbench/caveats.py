"""What a configuration itself says about the worth of its figures. In: a RunConfig. Out: notes for their reader."""

from __future__ import annotations

from .config import RunConfig

#: Said of every run whose weights are not the model's.
RANDOM_WEIGHTS = (
    "the weights are random (--load-format dummy): memory, limits and queueing are real; acceptance, and so TPOT and "
    "throughput with speculation, say nothing about a trained draft model"
)


def caveats(config: RunConfig) -> tuple[str, ...]:
    """Notes in the words of a record; empty: nothing to say."""
    return (RANDOM_WEIGHTS,) if random_weights(config) else ()


def random_weights(config: RunConfig) -> bool:
    """Whether the server fills its weights with random numbers instead of loading them."""
    flags = {name.lstrip("-").replace("_", "-"): value for name, value in config.engine.args.items()}
    return flags.get("load-format") == "dummy"
