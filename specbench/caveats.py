"""What a configuration itself says about the worth of its figures. In: a RunConfig. Out: notes for their reader."""

from __future__ import annotations

from .config import FlagValue, RunConfig

#: Said of every run whose weights are not the model's.
RANDOM_WEIGHTS = (
    "the weights are random (--load-format dummy): memory, limits and queueing are real; acceptance, and so TPOT and "
    "throughput with speculation, say nothing about a trained draft model"
)
#: Said of every run of an engine without a GPU. Loud: such figures look like any other.
ON_CPU = (
    "the engine ran on the CPU, as one does with a tiny model: NOT A PERFORMANCE FIGURE; times and throughput are of "
    "Python on a host and say nothing about a GPU, while logs, answers, limits and failures are the engine's own"
)


def caveats(config: RunConfig) -> tuple[str, ...]:
    """Notes in the words of a record; empty: nothing to say."""
    said = ((ON_CPU, on_cpu(config)), (RANDOM_WEIGHTS, random_weights(config)))
    return tuple(text for text, applies in said if applies)


def on_cpu(config: RunConfig) -> bool:
    """Whether the server has no GPU to run on."""
    return _flags(config).get("device") == "cpu"


def random_weights(config: RunConfig) -> bool:
    """Whether the server fills its weights with random numbers instead of loading them."""
    return _flags(config).get("load-format") == "dummy"


def _flags(config: RunConfig) -> dict[str, FlagValue]:
    return {name.lstrip("-").replace("_", "-"): value for name, value in config.engine.args.items()}
