"""Batches and token counts for which CUDA graphs are captured. In: the largest one. Out: the sizes, ascending.

Sources: _generate_cuda_graph_batch_sizes of server_args.py (up to 0.5.18), arg_groups/cuda_graph_hook.py (from 0.5.19);
get_batch_sizes_to_capture of cuda_graph_runner.py (up to 0.5.13) and runner/base_cuda_graph_runner.py. The non-obvious
thing: what is configured is not what is captured. The runner leaves out what is larger than the requests that the
server resolved, and adds that number.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....versions import at_least


def decode_sizes(version: str, largest: int, *, speculates: bool, padded: bool) -> tuple[int, ...]:
    """Batches configured for decoding (with speculation: for verifying). `padded`: batches between sizes are padded."""
    if not padded:
        return tuple(range(1, largest + 1))
    if speculates:
        steps = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8), *range(272, largest + 1, 16)]
    else:
        steps = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, largest + 1, 32)]
    sizes = [size for size in steps if size <= largest]
    if largest not in sizes and at_least(version, "0.5.10"):
        sizes.append(largest)
    return tuple(sizes)


def captured_sizes(version: str, sizes: Sequence[int], requests: int, *, width: int, ranks: int) -> tuple[int, ...]:
    """Of the configured sizes those that are captured, for a worker that resolved `requests`.

    `width`: tokens of one request in a step. `ranks`: that gather each other's tokens (data-parallel attention): rows
    are a multiple of them.
    """
    most = -(-requests // ranks) * ranks if at_least(version, "0.5.10") else requests
    if not sizes or most <= 0:
        return ()
    added = [most] if max(sizes) > most else []
    return tuple(sorted({size for size in (*sizes, *added) if size * width % ranks == 0 and size <= most}))


def prefill_sizes(largest: int, version: str) -> tuple[int, ...]:
    """Token counts configured for prefill graphs."""
    small = [*range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32)]
    if at_least(version, "0.5.8"):
        begin = 576 if at_least(version, "0.5.9") else 640
        large = [*range(begin, 1025, 64), *range(1280, 4097, 256), *range(4608, largest + 1, 512)]
    else:
        large = [*range(640, 4097, 128), *range(4352, largest + 1, 256)]
    steps = [*small, *large]
    return tuple(size for size in steps if size <= largest)


def in_eights(sizes: Sequence[int]) -> tuple[int, ...]:
    """What prefill graphs with DeepEP make of the sizes, from 0.5.17."""
    return tuple(sorted({-(-size // 8) * 8 for size in sizes}))
