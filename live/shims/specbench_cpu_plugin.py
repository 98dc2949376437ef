"""SGLang plugin (entry point group sglang.srt.plugins): what SGLang 0.5.23's CPU engine still calls of Triton and CUDA.

Everything goes through SGLang's own hook registry, by the function's name; the wheel itself is not changed. README.md
beside this file lists what is replaced and why.
"""

import torch
import torch.nn.functional as F  # noqa: N812

_SCATTER = "sglang.kernels.ops.mamba.mamba_state_scatter_triton"
_kept = []  # a context that stays entered as long as the process lives


def register():
    from sglang.srt.arg_groups.choices import add_draft_attention_backend_choices
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    from sglang.srt.runtime_context import override_platform

    # While arguments are resolved only: the backend intel_amx, the one for CPUs that can verify drafts, is otherwise
    # swapped for torch_native. cpu_has_amx_support() stays False, so no weights are packed for AMX.
    _kept.append(override_platform(has_amx=True))
    _kept[-1].__enter__()
    add_draft_attention_backend_choices(["intel_amx"])
    _ignore_streams_of_cpu_tensors()
    for name, replacement in {
        "sglang.kernels.ops.attention.table_qk_norm_rope.table_qk_norm_rope_": table_qk_norm_rope,
        "sglang.kernels.ops.attention.fla.layernorm_gated.layernorm_fn": layernorm_gated,
        f"{_SCATTER}.fused_mamba_state_scatter_with_mask": scatter_states,
        f"{_SCATTER}.fused_conv_window_scatter_with_mask": scatter_states,
        f"{_SCATTER}._conv_multi_eligible": lambda pairs: False,
    }.items():
        HookRegistry.register(name, replacement, HookType.REPLACE)
    for name, around in {
        "sglang.srt.layers.attention.intel_amx_backend.IntelAMXAttnBackend._build_extend_metadata": verify_a_chain,
        "sglang.srt.arg_groups.speculative_hook._handle_dflash": allow_dflash,
        "sglang.srt.model_executor.model_runner.adjust_config_with_unaligned_cpu_tp": keep_the_heads,
    }.items():
        HookRegistry.register(name, around, HookType.AROUND)


def layernorm_gated(
    x, weight, bias, z=None, eps=1e-6, group_size=None, norm_before_gate=True, is_rms_norm=False, activation="swish"
):
    """The gated RMS norm of the linear layers; SGLang has a CPU version for AMX only."""
    if not is_rms_norm or group_size not in (None, x.shape[-1]):
        raise NotImplementedError("specbench_cpu_plugin: only the RMS norm over whole rows")
    wide = x.float()
    gate = None if z is None else (torch.sigmoid(z.float()) if activation == "sigmoid" else F.silu(z.float()))
    if gate is not None and not norm_before_gate:
        wide = wide * gate
    said = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * weight.float()
    if bias is not None:
        said = said + bias.float()
    if gate is not None and norm_before_gate:
        said = said * gate
    return said.to(x.dtype)


def table_qk_norm_rope(qkv, positions, q_weight, k_weight, cos_sin, q_heads, k_heads, width, eps):
    """Norm and rotary embedding of query and key, in place: the DFLASH draft's."""
    heads = q_heads + k_heads
    part = qkv[:, : heads * width]
    x = part.view(qkv.shape[0], heads, width).float()
    weights = torch.cat([q_weight.float().expand(q_heads, width), k_weight.float().expand(k_heads, width)])
    x = (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weights).to(qkv.dtype).float()
    cos, sin = (half[:, None] for half in cos_sin[positions.long()].float().chunk(2, -1))
    first, second = x.chunk(2, -1)
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
    qkv[:, : heads * width] = turned.to(qkv.dtype).reshape(qkv.shape[0], -1)


def scatter_states(target, source, target_index, step_index, source_index=None):
    """After verification: the state of the last accepted token becomes the request's."""
    slots, steps = target_index.long(), step_index.long()
    rows = torch.arange(steps.numel()) if source_index is None else source_index.long()
    real = (steps >= 0) & (slots >= 0) & (slots < target.shape[1]) & (steps < source.shape[2])
    if real.any():
        target[:, slots[real]] = source[:, rows[real], steps[real]]


def verify_a_chain(original, self, forward_batch):
    """DFLASH verifies a chain and has no tree_topk, which the CPU backend asks for: a tree of one branch."""
    spec = forward_batch.spec_info
    if spec is not None and not hasattr(spec, "tree_topk"):
        try:
            spec.tree_topk = 1
        except AttributeError:  # a class with slots
            type(spec).tree_topk = 1
    return original(self, forward_batch)


def keep_the_heads(original, model_config, load_config, tp_size):
    """More ranks than KV heads: replicated, as on GPUs. For CPUs SGLang would invent heads, of the query too."""
    return original(model_config, load_config, 1)


def allow_dflash(original, server_args):
    """SGLang admits DFLASH on CUDA, NPU and XPU, or where an out-of-tree platform says it can: this says so, here."""
    import sglang.srt.arg_groups.speculative_hook as hook

    real = hook.current_platform

    class Admitting:
        def __getattr__(self, name):
            return getattr(real, name)

        def is_out_of_tree(self):
            return True

        def supports_speculative_algorithm(self, algorithm):
            return True

        def supports_speculative_draft_attention_backend(self, algorithm, backend):
            return backend in ("intel_amx", "torch_native")

        def get_default_speculative_draft_attention_backend(self, algorithm):
            return "intel_amx"

    hook.current_platform = Admitting()
    try:
        return original(server_args)
    finally:
        hook.current_platform = real


def _ignore_streams_of_cpu_tensors():
    """DFLASH calls record_stream on CPU tensors too, for which torch raises; it has no meaning there."""
    real = torch.Tensor.record_stream
    torch.Tensor.record_stream = lambda tensor, stream: None if tensor.device.type == "cpu" else real(tensor, stream)
