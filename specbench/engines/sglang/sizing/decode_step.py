"""Tokens that one step of decoding allocates for a request. In: settings. Out: tokens of KV.

Without speculation it is one; a chain takes as many as it verifies, a tree whole pages for each of its branches.
Source: get_alloc_len_per_decode of mem_cache/common.py (0.5.13 to 0.5.15) and mem_cache/allocation_sizing.py (from
0.5.16), spec_decode_alloc_len_per_request of utils/common.py, which counts without overlap scheduling.
"""

from __future__ import annotations

from ..resolve import Settings


def allocated(settings: Settings) -> int:
    """With overlap scheduling, which keeps two such steps."""
    shape, page = settings.shape, settings.page_size
    if not shape.verify_width:
        return 1
    if page == 1 or shape.topk == 1 or settings.family == "ngram":
        return max(shape.steps * shape.topk, shape.pool_width)
    pages = (page - 1 + shape.steps + page - 1) // page  # the last page of a branch may be all but full
    return max(pages * page * shape.topk, shape.pool_width)


def allocated_without_overlap(settings: Settings) -> int:
    """Whole pages of what is drafted and of what is verified; of a branch with a page to begin in."""
    shape, page = settings.shape, settings.page_size
    begun = page if page > 1 and shape.topk > 1 else 0
    drafted = _whole_pages(shape.steps + begun, page) * shape.topk
    return max(drafted, _whole_pages(shape.verify_width, page))


def _whole_pages(tokens: int, page: int) -> int:
    return -(-tokens // page) * page
