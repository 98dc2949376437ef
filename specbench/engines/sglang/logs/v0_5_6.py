"""SGLang 0.5.6 and what older logs share with it: the base of all formats."""

from __future__ import annotations

from ..form import Form

_MINUTES = "This can take up to several minutes."
_END = "Time elapsed: {elapsed_s:float} s. mem usage={used:gib} GB. avail mem={available:gib} GB"

FORMS: dict[str, Form] = {
    # process start
    "distributed_end": Form("notice:distributed_ready", "Init torch distributed ends. mem usage={used:gib} GB"),
    # weights
    "weights_begin": Form("weights_begin", "Load weight begin. avail mem={available:gib} GB"),
    "weights_end": Form(
        "weights_end",
        "Load weight end. type={model_class:word}, dtype={dtype:word}, "
        "avail mem={available:gib} GB, mem usage={used:gib} GB",
    ),
    # pools
    "kv_dtype": Form("notice:kv_dtype", "Using KV cache dtype: {dtype:word}"),
    "state_pool": Form(
        "state_pool",
        "Mamba Cache is allocated. max_mamba_cache_size: {slots:int}, conv_state size: {conv:gib}GB, "
        "ssm_state size: {ssm:gib}GB[[ intermediate_ssm_state_cache size: {scratch_ssm:gib}GB "
        "intermediate_conv_window_cache size: {scratch_conv:gib}GB]]",
    ),
    "kv_pool": Form("kv_pool", "KV Cache is allocated. #tokens: {tokens:int}, K size: {k:gib} GB, V size: {v:gib} GB"),
    "kv_pool_mla": Form("kv_pool", "KV Cache is allocated. #tokens: {tokens:int}, KV size: {kv:gib} GB"),
    "swa_pool": Form(
        "notice:swa_pool",
        "SWAKVPool mem usage: {used:gib} GB, swa size: {swa_tokens:int}, full size: {full_tokens:int}",
    ),
    "swa_sizes": Form(
        "notice:swa_sizes",
        "Use sliding window memory pool. full_layer_tokens={full_tokens:int}, swa_layer_tokens={swa_tokens:int}",
    ),
    "pool_end": Form("pool_end", "Memory pool end. avail mem={available:gib} GB"),
    # graphs
    "graph_begin": Form(
        "graph_begin", "Capture {device:word} graph begin. " + _MINUTES + " avail mem={available:gib} GB"
    ),
    "graph_sizes": Form("graph_sizes", "Capture {device:word} graph bs {batch_sizes:ints}"),
    "graph_end": Form("graph_end", "Capture {device:word} graph end. " + _END),
    "graph_draft_begin": Form(
        "graph_begin",
        "Capture {role:role}[[ {what:what}]] cuda graph begin[[ (step {step:int})]]. "
        + _MINUTES
        + " avail mem={available:gib} GB",
    ),
    "graph_draft_end": Form("graph_end", "Capture {role:role}[[ {what:what}]] cuda graph end. " + _END),
    "graph_piecewise_begin": Form("graph_begin", "Capture {what:what} CUDA graph begin. avail mem={available:gib} GB"),
    "graph_piecewise_end": Form("graph_end", "Capture {what:what} CUDA graph end. " + _END),
    "graph_frozen_begin": Form("graph_begin", "Capture Frozen-KV MTP {role:role} cuda graph begin"),
    "graph_frozen_end": Form("graph_end", "Capture Frozen-KV MTP {role:role} cuda graph end"),
    # summary
    "resolved": Form(
        "resolved",
        "max_total_num_tokens={kv_tokens:int}, chunked_prefill_size={chunked_prefill_size:int}, "
        "max_prefill_tokens={max_prefill_tokens:int}, max_running_requests={running_requests:int}, "
        "context_len={context_len:int}, available_{*}_mem={available:gib} GB",
    ),
    "ready": Form("ready", "The server is fired up and ready to roll!"),
    # sizing
    "requests_default": Form(
        "notice:requests_default_48", "Max running requests is reset to {requests:int} for speculative decoding."
    ),
    "tokens_above_profile": Form(
        "notice:tokens_above_profile",
        "max_total_tokens={requested:int} is larger than the profiled value {profiled:int}",
    ),
    # pressure
    "retracted": Form(
        "notice:retracted",
        "KV cache pool is full. Retract requests. #retracted_reqs: {requests:int}, "
        "#new_token_ratio: {ratio_before:float} -> {ratio_after:float}",
    ),
    "leak": Form(
        "notice:memory_leak",
        "{pool:text} memory leak detected!{*}",
        ("token_to_kv_pool_allocator memory leak", "req_to_token_pool memory leak", "pool memory leak"),
    ),
    "health": Form(
        "notice:health_check_failed",
        "Health check failed. Server couldn't get a response from detokenizer for last {seconds:float} seconds",
    ),
    # uvicorn's, which the engine gives its own time stamp
    "cannot_bind": Form(
        "failure:port_in_use",
        "ERROR:    [Errno {errno:int}] error while attempting to bind on address ({address:text}): {why:text}",
    ),
    "watchdog": Form("failure:watchdog_timeout", "Watchdog timeout (self.watchdog_timeout={timeout_s:float})"),
    # requests
    "input_above_context": Form(
        "notice:input_above_context",
        "[http_server] Error: The input ({input_tokens:int} tokens) is longer than the model's context length "
        "({context_len:int} tokens)",
    ),
    "request_above_context": Form(
        "notice:request_above_context",
        "[http_server] Error: Requested token count exceeds the model's maximum context length of {context_len:int} "
        "tokens. You requested a total of {total_tokens:int} tokens: {input_tokens:int} tokens from the input messages "
        "and {output_tokens:int} tokens for the completion",
    ),
    "input_above_pool": Form(
        "notice:input_above_pool",
        "[http_server] Error: Input length ({input_tokens:int} tokens) exceeds the maximum allowed length "
        "({max_input_tokens:int} tokens)",
    ),
    "input_above_pool_scheduler": Form(
        "notice:input_above_pool",
        "Input length ({input_tokens:int} tokens) exceeds the maximum allowed length ({max_input_tokens:int} tokens)",
    ),
    "input_truncated_pool": Form(
        "notice:input_truncated",
        "Request length is longer than the KV cache pool size or the max context length. Truncated. "
        "len(req.origin_input_ids)={input_tokens:int}, max_req_input_len={max_input_tokens:int}",
    ),
    "input_truncated_context": Form(
        "notice:input_truncated",
        "The input ({input_tokens:int} tokens) is longer than the model's context length ({context_len:int} tokens). "
        "Truncating the input",
    ),
}

GONE: tuple[str, ...] = ()
