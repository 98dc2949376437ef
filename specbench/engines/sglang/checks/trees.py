"""Trees of drafts over pages of more than one token: some attention backends alone can read them.

In: a configuration and its target. Out: refusals. A tree is an EAGLE top-k, or an NGRAM breadth (a tree by default),
above 1, given or by default. Sparse attention fixes its pages, and latent one its backend, too. Elsewhere the backend
counts that is stated: the one that the engine chooses depends on the card and on what is installed, and then nothing is
refused here. Sources: server_args.py of 0.5.6.post2 to 0.5.12 (_handle_speculative_decoding),
arg_groups/speculative_hook.py of 0.5.13 to 0.5.23 (_handle_eagle_family, _handle_ngram).
"""

from __future__ import annotations

from collections.abc import Iterator

from .... import speculative
from ....configuration.config import RunConfig
from ....specs import ModelSpec
from ....speculative import ngram
from ....versions import at_least
from ..families import fixed_page_size, is_sparse_latent
from ..given import server_args
from ..sizing.contract import Rule
from ..widths import with_default_widths
from .refusal import Refusal

_SPARSE = "dsa"  # the backend of sparse latent attention, as the engine names it from 0.5.13 on


def refusals(config: RunConfig, version: str, rule: Rule, target: ModelSpec) -> Iterator[Refusal]:
    name = speculative.canonical(config.speculative.algorithm)
    fixed = fixed_page_size(target, rule)
    if name == "NGRAM":
        yield from _branches(config, fixed, _SPARSE if is_sparse_latent(target) else _stated_backend(config))
    elif name in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE") and (fixed is None or is_sparse_latent(target)):
        topk = with_default_widths(config.speculative, rule, target).eagle_topk or 1
        yield from _tree(config, version, fixed, topk)


def _branches(config: RunConfig, fixed: int | None, backend: str | None) -> Iterator[Refusal]:
    breadth = server_args(config).get("speculative_ngram_max_bfs_breadth", ngram.DEFAULT_BREADTH)
    page = fixed or config.memory.page_size or 1
    if not isinstance(breadth, int) or breadth <= 1 or page <= 1 or backend == "flashinfer":
        return
    error = (
        f"ValueError: speculative_eagle_topk({breadth}) > 1 with page_size({page}) > 1 is unstable and produces "
        "incorrect results for paged attention backends. This combination is only supported for the 'flashinfer' "
        "backend."
    )
    key = "engine.args.speculative-ngram-max-bfs-breadth"
    if fixed is not None:
        yield Refusal(key=key, value=breadth, reason=_fixed(fixed), allowed="1", engine_error=error)
    elif backend is not None:
        yield _over_pages(page, backend, ("flashinfer",), f"{key}: 1", error)


def _tree(config: RunConfig, version: str, fixed: int | None, topk: int) -> Iterator[Refusal]:
    page, backend = config.memory.page_size or 1, _stated_backend(config)
    later = at_least(version, "0.5.13")
    able = ("flashinfer", "fa3", "triton") if later else ("flashinfer", "fa3")
    if topk <= 1:
        return
    got = backend if fixed is None else _SPARSE
    error = (
        f"ValueError: speculative_eagle_topk > 1 with page_size > 1 is only supported on {able}; got "
        f"attention_backend={got!r}. Use page_size == 1 or one of those backends."
        if later
        else "ValueError: speculative_eagle_topk > 1 with page_size > 1 is unstable and produces incorrect results for "
        "paged attention backends. This combination is only supported for the 'flashinfer' backend."
    )
    if fixed is not None:
        yield Refusal(key="speculative.eagle_topk", value=topk, reason=_fixed(fixed), allowed="1", engine_error=error)
    elif page > 1 and backend is not None and backend not in able:
        yield _over_pages(page, backend, able, "speculative.eagle_topk: 1", error)


def _fixed(page: int) -> str:
    return f"a tree does not work over pages of {page} tokens, which sparse attention fixes"


def _over_pages(page: int, backend: str, able: tuple[str, ...], chain: str, error: str) -> Refusal:
    return Refusal(
        key="memory.page_size",
        value=page,
        reason=f"a tree of drafts does not work over pages of {page} tokens with the {backend} attention backend",
        allowed=f"1; or engine.args.attention-backend: {' or '.join(able)}; or {chain}",
        engine_error=error,
    )


def _stated_backend(config: RunConfig) -> str | None:
    """fa3 reads no e5m2: the engine takes triton (_handle_attention_backend_compatibility, 0.5.6.post2 and later)."""
    stated = server_args(config).get("attention_backend")
    if stated == "fa3" and config.memory.kv_cache_dtype == "fp8_e5m2":
        return "triton"
    return stated if isinstance(stated, str) else None
