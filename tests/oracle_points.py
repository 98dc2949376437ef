"""A configuration as SGLang's own sizing code is asked it, without a start."""

from __future__ import annotations

import math

from oracle.compare.points import Point


def point_of(
    version: str, model: str, card_mib: int, pre_bytes: int, post_bytes: int, **sections: dict[str, object]
) -> Point:
    """The least that is asked; `sections` replace parts of it. Bytes are free before loading, and when sizing."""
    parallel = {"tp_size": 1, "pp_size": 1, "dp_size": 1, **sections.get("parallel", {})}
    gpus = math.prod(int(str(size)) for key, size in parallel.items() if key.endswith("size"))
    return Point(
        sections={
            "name": "found",
            "engine": {"version": version},
            "model": model,
            "gpu": {"name": "h200", "count": gpus},
            "parallel": parallel,
            "speculative": sections.get("speculative", {}),
            "memory": sections.get("memory", {}),
        },
        card_mib=card_mib,
        pre_bytes=pre_bytes,
        post_bytes=post_bytes,
    )
