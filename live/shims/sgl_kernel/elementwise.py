"""Small fused operations of the Qwen3.5 layers."""

import torch


def _gemma_rms(x, weight, eps):
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * (1 + weight.float())).to(x.dtype)


def fused_qk_gemma_rmsnorm(q, k, q_weight, k_weight, eps, head_dim):
    return _gemma_rms(q.reshape(-1, head_dim), q_weight, eps), _gemma_rms(k.reshape(-1, head_dim), k_weight, eps)


def fused_qk_gemma_rmsnorm_with_gate(q_gate, k, q_weight, k_weight, eps, head_dim, heads):
    q, gate = q_gate.view(q_gate.shape[0], heads, 2 * head_dim).chunk(2, -1)
    return _gemma_rms(q, q_weight, eps), _gemma_rms(k.reshape(-1, head_dim), k_weight, eps), gate.contiguous()


def fused_sigmoid_mul(x, gate):
    x.mul_(torch.sigmoid(gate.reshape(x.shape).float()).to(x.dtype))
    return x


def split_qkvzba(qkvz, ba, key_heads, value_heads, key_dim, value_dim):
    qkv, z = qkvz.split([2 * key_heads * key_dim + value_heads * value_dim, value_heads * value_dim], -1)
    b, a = ba.split([value_heads, value_heads], -1)
    return qkv.contiguous(), z.reshape(qkvz.shape[0], value_heads, value_dim), b.contiguous(), a.contiguous()
