"""gpt-oss: every other layer looks back over a window only; attention with sinks and biases, MXFP4 experts.

Shapes from SGLang 0.5.16, models/gpt_oss.py. Its configuration may leave out the type: the checkpoint's is bfloat16.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..hf import HfConfig
from ..layers import FullAttention, Layer, SlidingWindow
from ..weights import Doubt, Part
from . import blocks, kinds
from .contract import Architecture

#: Triton's kernels for Hopper lay MXFP4 values out anew, keep a second set of scales, and leave holes where the first
#: values lay: of gpt-oss-20b 15.02 GiB were taken on an H200 where the shapes give 13.03 (TP2: 8.53 for 6.72; SGLang
#: 0.5.12 and 0.5.16). Other kernels do not. Share of the experts.
_LAID_OUT_ANEW = 0.4


def layers(config: HfConfig) -> tuple[Layer, ...]:
    dim, heads = config.integer("head_dim"), config.integer("num_key_value_heads")
    known: dict[str, Layer] = {
        "full_attention": FullAttention(kv_heads=heads, head_dim=dim, v_head_dim=dim),
        "sliding_attention": SlidingWindow(
            kv_heads=heads, head_dim=dim, v_head_dim=dim, window_tokens=config.integer("sliding_window") - 1
        ),
    }
    return kinds.by_type(config, known)


def tensors(config: HfConfig, tp: int) -> Iterator[Part]:
    sizes = blocks.sizes(config, config, tp)
    yield blocks.vocabulary(sizes, config.integer("vocab_size"))
    heads, experts = config.integer("num_attention_heads"), config.integer("num_local_experts")
    for number, layer in enumerate(layers(config)):
        here = sizes.at("layers", number)
        if isinstance(layer, FullAttention):
            mine, own = heads // tp, layer.kv_heads_per_rank(tp) * layer.head_dim
            yield from blocks.attention(here, layer, heads, gated=False, qk_norm=False)
            yield here.at("self_attn", "qkv_proj").tensor(mine * layer.head_dim + 2 * own)
            yield here.at("self_attn", "o_proj").tensor(sizes.hidden)
            yield here.at("self_attn", "sinks").tensor(mine)
        if number == 0:
            yield blocks.rotary(config, config.integer("head_dim"))
        packed = tuple(here.at("mlp").experts(experts, config.integer("intermediate_size")))
        yield from packed
        if config.section_or_none("quantization_config") is not None:
            size = sum(part.bytes for part in packed)
            yield Doubt(round(size * _LAID_OUT_ANEW), module=here.at("mlp", "experts").module)
        yield here.at("mlp", "router").tensor(experts, sizes.hidden)
        yield here.at("mlp", "router").tensor(experts)
        yield from blocks.norms(here, 2)
    yield from blocks.norms(sizes, 1)
    yield from blocks.head(sizes, config.integer("vocab_size"))


ARCHITECTURE = Architecture(family="gpt_oss", layers=layers, tensors=tensors)
