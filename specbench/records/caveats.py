"""What a configuration and a record say about the worth of their figures. Out: notes and marks for their reader.

A caveat is said once on a page; a mark is said wherever a figure of the run stands, in capitals: another card's budget,
cards that several ranks share, or an acceptance that nobody measured.
"""

from __future__ import annotations

import re

from ..configuration.config import RunConfig
from ..engines.sglang.acceptance import LENGTH, honoured, simulated
from ..engines.sglang.given import server_args
from ..errors import SpecbenchError
from ..gpus import load_gpu, parts_of_a_card
from ..units import counted, format_gib
from .record import RunRecord

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
SIMULATED = "SIMULATED ACCEPTANCE"
_PARTS = {2: "A HALF", 3: "A THIRD", 4: "A QUARTER"}


def caveats(config: RunConfig) -> tuple[str, ...]:
    """Notes in the words of a record; empty: nothing to say."""
    said = ((ON_CPU, on_cpu(config)), (RANDOM_WEIGHTS, random_weights(config)))
    return tuple(text for text, applies in said if applies)


def on_cpu(config: RunConfig) -> bool:
    """Whether the server has no GPU to run on."""
    return server_args(config).get("device") == "cpu"


def random_weights(config: RunConfig) -> bool:
    """Whether the server fills its weights with random numbers instead of loading them."""
    return server_args(config).get("load_format") == "dummy"


def marks(record: RunRecord) -> tuple[str, ...]:
    """What has to stand beside every figure of a run; empty: nothing. A run without an answer has no figure of
    acceptance or speed, whatever was set (see `marks_set`); a warm-up is in no figure.
    """
    answered = any(request.ok and request.phase == "measured" for request in record.requests())
    return tuple(mark for mark in marks_set(record) if answered or not mark.startswith(SIMULATED))


def marks_set(record: RunRecord) -> tuple[str, ...]:
    """The marks of what was asked of a run, whatever came of it."""
    length = simulated_length(record)
    found = [] if length is None else [_simulated(length, record.config)]
    return (*found, *_shared(record.config), *_emulated(record.config, record.env.get("emulation")))


#: The static fraction in a mark: that which the server was passed for an emulated card.
PASSED = re.compile(r"(?<=was passed as )0\.\d{8}")


def marks_of(config: RunConfig) -> tuple[str, ...]:
    """The same of a run that is still to come."""
    wished = _length(simulated(config))
    return (*([] if wished is None else [_simulated(wished, config)]), *_shared(config), *_emulated(config, None))


def simulated_length(record: RunRecord) -> str | None:
    """The acceptance length that was simulated, as it was written; None: the drafts' own."""
    recorded = record.env.get("simulated_acceptance")
    told = {str(name): str(value) for name, value in recorded.items()} if isinstance(recorded, dict) else {}
    return _length(told or simulated(record.config))


def _length(variables: dict[str, str]) -> str | None:
    """The engine's own variable first; of a patch the only one."""
    return variables.get(LENGTH) or next(iter(variables.values()), None)


def _simulated(length: str, config: RunConfig) -> str:
    mark = f"{SIMULATED} {length}: speed is a cost model, not a result"
    version, algorithm = config.engine.sizing or config.engine.version, config.speculative.algorithm
    if LENGTH in simulated(config) and not honoured(version, algorithm):
        mark += f" ({LENGTH} is set, but sglang {version} does not look at it with {algorithm})"
    return mark


def _shared(config: RunConfig) -> tuple[str, ...]:
    """Of ranks that share cards: they look like as many cards of their own in every other figure."""
    try:
        share = load_gpu(config.gpu.name)
        whole = None if share.share_of is None else load_gpu(share.share_of)
    except SpecbenchError:
        return ()
    if whole is None:
        return ()
    ranks, each = config.gpu.count, parts_of_a_card(share)
    cards = f"{-(-ranks // each)} × {whole.words}"
    mark = f"{counted(ranks, 'rank').upper()} ON {cards}, {_PARTS.get(each, f'1/{each}')} OF A CARD EACH"
    memory = f"pools, limits and failures are those of {counted(ranks, 'card')} of {format_gib(share.total_bytes)}"
    return (f"{mark}: {memory}; speed is that of ranks that share {cards}",)


def _emulated(config: RunConfig, recorded: object) -> tuple[str, ...]:
    if config.gpu.emulate is None:
        return ()
    try:
        card, host = load_gpu(config.gpu.emulate).words, load_gpu(config.gpu.name).words
    except SpecbenchError:
        card, host = config.gpu.emulate, config.gpu.name
    mark = f"EMULATED BUDGET OF {card} ON {host}"
    if isinstance(recorded, dict) and isinstance(recorded.get("passed"), float):
        mark += f": mem_fraction_static {recorded.get('asked')} of {card} was passed as {recorded['passed']:.8f}"
    return (f"{mark}; room outside the budget and speed are those of {host}",)
