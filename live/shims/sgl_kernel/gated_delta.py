"""The gated delta rule, token by token in float32: prefill, decoding, and verification that keeps every state."""

import itertools

import torch
import torch.nn.functional as F  # noqa: N812


def _normalised(vectors):
    return vectors * torch.rsqrt((vectors * vectors).sum(-1, keepdim=True) + 1e-6)


def _step(state, query, key, value, decay, beta):
    """One token. state: … × heads × value width × key width."""
    state = state * decay[..., None, None]
    error = (value - (state @ key.unsqueeze(-1)).squeeze(-1)) * beta.unsqueeze(-1)
    state = state + error.unsqueeze(-1) * key.unsqueeze(-2)
    return state, (state @ query.unsqueeze(-1)).squeeze(-1)


def _prepared(query, key, heads, norm=True):
    group = heads // query.shape[-2]
    query, key = query.float(), key.float()
    if norm:
        query, key = _normalised(query), _normalised(key)
    query = query * query.shape[-1] ** -0.5
    if group > 1:
        return query.repeat_interleave(group, -2), key.repeat_interleave(group, -2)
    return query, key


def gdn_gating(a_log, a, b, dt_bias, beta=1.0, threshold=20.0):
    gate = -a_log.float().exp() * F.softplus(a.float() + dt_bias.float(), beta, threshold)
    return gate.unsqueeze(0), torch.sigmoid(b.float()).unsqueeze(0)


def chunk_gated_delta_rule_cpu(
    q,
    k,
    v,
    g,
    beta,
    initial_state,
    cu_seqlens,
    head_first=False,
    use_qk_l2norm_in_kernel=True,
    initial_state_indices=None,
    **_,
):
    query, key = _prepared(q[0], k[0], v.shape[2], use_qk_l2norm_in_kernel)
    value, decay, weight = v[0].float(), g[0].exp(), beta[0].float()
    out = torch.empty_like(v)
    bounds = cu_seqlens.tolist()
    for index, (begin, end) in enumerate(itertools.pairwise(bounds)):
        slot = int(initial_state_indices[index])
        if slot < 0:
            continue
        state, said = initial_state[slot].float(), []
        for token in range(begin, end):
            state, now = _step(state, query[token], key[token], value[token], decay[token], weight[token])
            said.append(now)
        if said:
            out[0, begin:end] = torch.stack(said).to(out.dtype)
        initial_state[slot] = state.to(initial_state.dtype)
    return out, None, None


def sigmoid_gating_update(
    A_log,  # noqa: N803  (SGLang passes it by this name)
    dt_bias,
    q,
    k,
    v,
    a,
    b,
    initial_state_source,
    initial_state_indices,
    cu_seqlens=None,
    use_qk_l2norm_in_kernel=True,
    softplus_beta=1.0,
    softplus_threshold=20.0,
    is_kda=False,
    scale=None,
    disable_state_update=False,
    intermediate_states_buffer=None,
    intermediate_state_indices=None,
    cache_steps=None,
    retrieve_parent_token=None,
    **_,
):
    heads = v.shape[2]
    gate, beta = gdn_gating(A_log, a.reshape(-1, heads), b.reshape(-1, heads), dt_bias)
    query, key = _prepared(q[0], k[0], heads, use_qk_l2norm_in_kernel)
    out = torch.empty_like(v)
    indices = initial_state_indices.long()
    requests = (cu_seqlens.numel() - 1) if cu_seqlens is not None else v.shape[1]
    steps = v.shape[1] // requests
    indices = indices[:requests]
    real = indices >= 0
    start = state = initial_state_source[indices.clamp(min=0)].float()
    query, key, value, decay, weight = (
        part.reshape(requests, steps, *part.shape[1:]) for part in (query, key, v[0].float(), gate[0].exp(), beta[0])
    )
    states = []
    for step in range(steps):
        if retrieve_parent_token is not None and step:
            state = _of_parent(retrieve_parent_token[:requests, step].long(), states, start)
        state, now = _step(state, query[:, step], key[:, step], value[:, step], decay[:, step], weight[:, step])
        states.append(state)
        out.view(requests, steps, *out.shape[2:])[:, step] = now.to(out.dtype)
        if intermediate_states_buffer is not None:
            rows = _rows(intermediate_state_indices, requests)
            intermediate_states_buffer[rows[real], step] = state[real].to(intermediate_states_buffer.dtype)
    if not disable_state_update:
        initial_state_source[indices[real]] = state[real].to(initial_state_source.dtype)
    return out


def _of_parent(parents, states, start):
    """In a tree a token goes on from its parent's state, not from that of the token before it."""
    every = torch.stack(states, 1)
    chosen = every[torch.arange(len(parents)), parents.clamp(min=0)]
    return torch.where((parents >= 0)[:, None, None, None], chosen, start)


def _rows(given, requests):
    return (given[:requests] if given is not None else torch.arange(requests)).long()
