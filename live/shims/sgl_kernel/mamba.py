"""Names that SGLang imports from sgl_kernel.mamba."""

from .convolution import causal_conv1d_fn_cpu, causal_conv1d_update_cpu
from .gated_delta import chunk_gated_delta_rule_cpu

__all__ = ["causal_conv1d_fn_cpu", "causal_conv1d_update_cpu", "chunk_gated_delta_rule_cpu"]
