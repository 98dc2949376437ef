"""How long a start took on recorded servers: the row of data/durations.yaml that is most like one that is to come.

In: what kind of start it is. Out: the row, and its words. A recorded one comes before an estimated one that is as like.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..configuration import yamltext
from ..configuration.config import RunConfig
from ..engines.sglang.given import server_args
from ..paths import DATA
from ..records.caveats import on_cpu
from ..versions import at_least, version_key


class Kind(NamedTuple):
    """Starts of one kind take as long as one another, but for kernels that are to be compiled."""

    version: str
    gpus: int  # on the CPU: ranks, which share it
    graphs: bool  # CUDA graphs are captured
    on_cpu: bool = False  # no kernels are compiled

    @property
    def compiled(self) -> tuple[str, int]:
        """What kernels are compiled for, the shapes of a rank: those of one GPU are not those of two."""
        return self.version, self.gpus


def kind_of(config: RunConfig) -> Kind:
    """Of the engine that would be started."""
    version, parallel = config.engine.version, config.parallel
    if on_cpu(config):
        return Kind(version, parallel.tp_size * parallel.pp_size, graphs=False, on_cpu=True)
    return Kind(version, config.gpu.count, server_args(config).get("disable_cuda_graph") is not True)


@functools.cache
def durations() -> Mapping[str, Any]:
    """The table of recorded and estimated starts, in seconds (data/durations.yaml)."""
    return dict(yamltext.written((DATA / "durations.yaml").read_text(encoding="utf-8")))


def nearest(kind: Kind, cold: bool) -> Mapping[str, Any]:
    """The start that is most like it: GPUs and compiled kernels matter most, then graphs, then the version. A recorded
    one before an estimated one that is as like."""
    version, gpus, graphs, _ = kind
    rows: Sequence[Mapping[str, Any]] = [*durations()["starts"], *durations()["estimated"]]

    def far(row: Mapping[str, Any]) -> tuple[Any, ...]:
        earlier = at_least(version, row["version"])
        distance = [abs(a - b) for a, b in zip(version_key(version)[:3], version_key(row["version"])[:3], strict=False)]
        return (
            row["cold"] != cold,
            abs(row["gpus"] - gpus),
            row["cuda_graphs"] != graphs,
            row["version"] != version,
            not earlier,
            distance,
        )

    return min(rows, key=far)


def on_the_cpu(ranks: int) -> Mapping[str, Any]:
    """The recorded server on the CPU whose number of ranks is nearest; of two the larger."""
    return min(durations()["cpu"], key=lambda row: (abs(row["ranks"] - ranks), -row["ranks"]))


def in_words(version: str, gpus: int, graphs: bool, cold: bool) -> str:
    """'0.5.16 on 2 GPUs with compiled kernels and CUDA graphs'."""
    several = "" if gpus == 1 else f" on {gpus} GPUs"
    kernels = "kernels to compile" if cold else "compiled kernels"
    return f"{version}{several} with {kernels} and {'' if graphs else 'no '}CUDA graphs"
