"""Models of latent and sparse attention: pages and types that are fixed.

In: a configuration and its target. Out: refusals. The non-obvious thing: NGRAM drafts a tree by default, and no tree
works over the pages that sparse attention fixes. Sources: arg_groups/ (server_args.py up to 0.5.14).
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
from ..resolve import resolve_strategy
from ..sizing.contract import Rule
from .refusal import Refusal


def refusals(config: RunConfig, version: str, rule: Rule, target: ModelSpec) -> Iterator[Refusal]:
    name = speculative.canonical(config.speculative.algorithm)
    page = fixed_page_size(target, rule)
    if page is not None and name == "NGRAM":
        yield from _branches(config, page)
    elif page is not None and name in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE") and is_sparse_latent(target):
        yield from _tree(config, version)
    yield from _remote_code(config, version, target)
    if page is not None:
        yield from _kv_type(config, version, target)
        yield from _strategy(config, version, rule, target)


def _branches(config: RunConfig, page: int) -> Iterator[Refusal]:
    breadth = server_args(config).get("speculative_ngram_max_bfs_breadth", ngram.DEFAULT_BREADTH)
    if isinstance(breadth, int) and breadth > 1:
        yield Refusal(
            key="engine.args.speculative-ngram-max-bfs-breadth",
            value=breadth,
            reason=f"a tree does not work over pages of {page} tokens, which sparse attention fixes",
            allowed="1",
            engine_error=(
                f"ValueError: speculative_eagle_topk({breadth}) > 1 with page_size({page}) > 1 is unstable and "
                "produces incorrect results for paged attention backends. This combination is only supported for the "
                "'flashinfer' backend."
            ),
        )


def _tree(config: RunConfig, version: str) -> Iterator[Refusal]:
    topk = config.speculative.eagle_topk or 1
    if topk > 1:
        yield Refusal(
            key="speculative.eagle_topk",
            value=topk,
            reason="a tree does not work over the pages that sparse attention fixes",
            allowed="1",
            engine_error=(
                "ValueError: speculative_eagle_topk > 1 with page_size > 1 is only supported on ('flashinfer', 'fa3', "
                "'triton'); got attention_backend='dsa'. Use page_size == 1 or one of those backends."
                if at_least(version, "0.5.13")
                else "ValueError: speculative_eagle_topk > 1 with page_size > 1 is unstable and produces incorrect "
                "results for paged attention backends. This combination is only supported for the 'flashinfer' backend."
            ),
        )


def _remote_code(config: RunConfig, version: str, target: ModelSpec) -> Iterator[Refusal]:
    """SGLang knows Kimi-K2's config itself from 0.5.12 on."""
    known = target.config.data.get("model_type") != "kimi_k2" or at_least(version, "0.5.12")
    if not known and not server_args(config).get("trust_remote_code"):
        yield Refusal(
            key="engine.args.trust-remote-code",
            value=None,
            reason=f"the version reads the config of {target.name} only with the checkpoint's own code",
            allowed="true",
        )


def _kv_type(config: RunConfig, version: str, target: ModelSpec) -> Iterator[Refusal]:
    dtype = config.memory.kv_cache_dtype
    if is_sparse_latent(target) and dtype not in ("auto", "bf16", "bfloat16", "fp8_e4m3"):
        name = "DSA" if at_least(version, "0.5.8") else "NSA"
        yield Refusal(
            key="memory.kv_cache_dtype",
            value=dtype,
            reason="sparse latent attention has no kernels for it",
            allowed="auto, bf16 or fp8_e4m3",
            engine_error=f"AssertionError: DeepSeek {name} only supports bf16/bfloat16 or fp8_e4m3 kv_cache_dtype",
        )


def _strategy(config: RunConfig, version: str, rule: Rule, target: ModelSpec) -> Iterator[Refusal]:
    """Without extra buffers pages are of one token, which sparse attention does not work with."""
    if target.state_layers and resolve_strategy(config, rule, True, version, target) == "no_buffer":
        yield Refusal(
            key="memory.mamba_radix_cache_strategy",
            value=config.memory.mamba_radix_cache_strategy,
            reason="no_buffer keeps pages of one token, and sparse attention fixes longer ones",
            allowed="auto with the triton linear attention backend, or disable_radix_cache: true",
            engine_error="AssertionError: no_buffer only supports page_size=1.",
        )
