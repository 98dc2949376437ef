"""Stand-in for the CPU build of sgl_kernel: the few ops that a small hybrid model needs, in plain torch.

Correct, not fast. An op that is not here can be imported and says its name when it is called, so nothing is silently
wrong. `convert_weight_packed` is left out on purpose: SGLang's cpu_has_amx_support() then stays False.
"""

import torch

from .attention import build_draft_decode_metadata_cpu, decode_attention, extend_attention
from .bookkeeping import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
)
from .convolution import causal_conv1d_fn_cpu, causal_conv1d_update_cpu
from .elementwise import (
    fused_qk_gemma_rmsnorm,
    fused_qk_gemma_rmsnorm_with_gate,
    fused_sigmoid_mul,
    split_qkvzba,
)
from .gated_delta import chunk_gated_delta_rule_cpu, gdn_gating, sigmoid_gating_update
from .tree import build_tree_kernel_efficient_cpu, reconstruct_indices_from_tree_mask, verify_tree_greedy_cpu

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "causal_conv1d_fn_cpu",
    "causal_conv1d_update_cpu",
    "chunk_gated_delta_rule_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "reconstruct_indices_from_tree_mask",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]


def _missing(name):
    def op(*args, **kwargs):
        raise NotImplementedError(f"sgl_kernel (live/shims): the op {name!r} is not implemented")

    op.__name__ = name
    return op


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return _missing(name)


#: What SGLang calls as torch.ops.sgl_kernel.<name>.
_OPS = {
    "extend_attention_cpu": extend_attention,
    "decode_attention_cpu": decode_attention,
    "fused_gdn_gating_cpu": gdn_gating,
    "fused_sigmoid_gating_delta_rule_update_cpu": sigmoid_gating_update,
    "fused_qk_gemma_rmsnorm_cpu": fused_qk_gemma_rmsnorm,
    "fused_qk_gemma_rmsnorm_with_gate_cpu": fused_qk_gemma_rmsnorm_with_gate,
    "fused_sigmoid_mul_cpu": fused_sigmoid_mul,
    "fused_qkvzba_split_reshape_cat_contiguous_cpu": split_qkvzba,
    "conv3d_embed_cpu": _missing("conv3d_embed_cpu"),  # looked up when SGLang is imported
}
for _name, _op in _OPS.items():
    setattr(torch.ops.sgl_kernel, _name, _op)
