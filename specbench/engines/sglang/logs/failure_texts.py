"""The texts of errors, as templates: SGLang's own of all examined versions, torch's, NCCL's and Hugging Face's.

In: nothing. Out: `KNOWN`, the table that `failures.classify` goes through. Sources: the raise statements of SGLang
0.5.6.post2 to 0.5.23 (mem_cache/, managers/, model_executor/, server_args.py and arg_groups/, models/registry.py,
model_loader/loader.py, layers/attention/attention_registry.py); transformers and huggingface_hub for files of models.
"""

from __future__ import annotations

#: A module that SGLang needs, or SGLang itself, cannot be imported.
BAD_ENVIRONMENT = "bad_environment"
#: A context length beyond the model's own, which the engine refuses unless an environment variable allows it.
CONTEXT_ABOVE_MODEL = "context_above_model"

#: A rank without a card: fewer GPUs than ranks, or one that cannot be used.
GPU_MISSING = "gpu_missing"
#: A rank that others waited for, before they could communicate at all, or when they had loaded.
RANK_MISSING = "rank_missing"

#: kind, phase (None: the frames or the log's progress tell), template. The first that fits wins.
KNOWN: tuple[tuple[str, str | None, str], ...] = (
    ("cuda_oom", "graphs", "Capture cuda graph failed: {*}out of memory"),
    ("cuda_oom", "graphs", "Capture cuda graph failed: {*}CUBLAS_STATUS_ALLOC_FAILED"),
    ("cuda_oom", None, "CUDA error: out of memory"),
    ("cuda_oom", None, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED"),
    ("cuda_oom", None, "Triton Error [CUDA]: out of memory"),
    ("graph_capture_failed", "graphs", "Capture cuda graph failed"),
    ("graph_capture_failed", "graphs", "Fail when using backend: {backend:word} for prefill runner"),
    (
        "not_enough_memory",
        "pools",
        (
            "Not enough memory. Please try to increase --mem-fraction-static."
            "[[ Current value: [[self.server_args.]][[mem_fraction_static=]]{mem_fraction_static:float}]]"
        ),
    ),
    (
        "weights_leave_no_room",
        "pools",
        (
            "Loaded weights leave no GPU memory for the KV cache under"
            "[[ --mem-fraction-static={mem_fraction_static:float}]]"
            "[[. Raise --mem-fraction-static above {raise_above:float}"
            "[[ (minimum viable = 1 - available/pre = {minimum:float})]]]]"
        ),
    ),
    (
        "state_pool_too_small",
        "pools",
        (
            "Not enough GPU memory for hybrid (mamba/linear-attention) state cache."
            "[[ Computed max_mamba_cache_size={state_slots:int} "
            "(total_rest_memory={rest:gib} GB, mamba_cache_per_req={slot:mib} MB)]]"
        ),
    ),
    (
        "state_pool_too_small",
        "pools",
        (
            "Hybrid (mamba/linear-attention) state cache is too small to serve any requests."
            "[[ max_mamba_cache_size={state_slots:int}, mamba_ratio={slots_per_request:int}, "
            "resulting max_num_reqs={running_requests:int}]]"
        ),
    ),
    ("zero_requests", "graphs", "capture_bs=[0]"),
    ("zero_requests", "pools", "max_running_request is zero"),
    ("memory_pool_too_small", "pools", "Memory pool size is too small"),
    (
        "memory_unbalanced",
        "load",
        (
            "The memory capacity is unbalanced. Some GPUs may be occupied by other processes."
            "[[ {name:word}={most_gib:float}, local_gpu_memory={local_gib:float}]]"
        ),
    ),
    (
        "int8_pool_too_large",
        "pools",
        (
            "int8 mamba checkpoint pool needs ~{needed:gib}GB but only {free:gib}GB HBM is free."
            "[[ Lower --int8-mamba-ckpt-size (currently {checkpoints:int})]]"
        ),
    ),
    ("kv_pool_exhausted", "serving", "Prefill out of memory."),
    ("kv_pool_exhausted", "serving", "Decode out of memory."),
    ("request_slots_exhausted", "serving", "alloc_req_slots runs out of memory."),
    (
        "state_slots_exhausted",
        "serving",
        (
            "Not enough space for mamba cache, try to increase --mamba-full-memory-ratio or --max-mamba-cache-size."
            "[[ mid={*}, self.mamba_pool.size={state_slots:int}, {*}available_size()={slots_left:int}, "
            "len(reqs)={requests:int}]]"
        ),
    ),
    ("state_slots_exhausted", "serving", "Not enough space for mamba cache, try to increase --max-mamba"),
    ("state_slots_exhausted", "serving", "Can not alloc mamba cache"),  # of a cached prefix that is forked
    ("state_slots_exhausted", "serving", "Not enough space for mamba ping pong idx"),
    ("state_slots_exhausted", "serving", "Can not alloc int8 mamba checkpoint slot"),
    ("memory_leak", "serving", "{pool:text} memory leak detected!{*}"),  # one pool's figures follow without a space
    (
        CONTEXT_ABOVE_MODEL,
        "arguments",
        "Warning: {whose:text} context_length ({asked:int}) is greater than the derived context_length ({longest:int})",
    ),
    # the model, and what runs it
    ("model_not_found", "load", "Cannot find any model weights with"),
    ("model_not_found", "load", "{model:word} is not a local folder and is not a valid model identifier"),
    ("model_not_found", "load", "{model:word} does not appear to have a file named {file:word}"),
    ("model_not_found", "load", "Can't load the configuration of {model:word}"),
    ("model_not_found", "load", "Can't load tokenizer for {model:word}"),
    ("model_not_found", "load", "Incorrect path_or_model_id: {model:word}"),
    ("model_not_found", "load", "Repo id must be in the form"),
    ("model_not_found", "load", "We couldn't connect to 'https://huggingface.co'"),
    ("model_unsupported", "load", "Model architectures {architectures:text} are not supported for now."),
    ("model_unsupported", "load", "Model architectures {architectures:text} failed to be inspected."),
    (
        "model_unsupported",
        "load",
        (
            "The checkpoint you are trying to load has model type `{model_type:text}` but Transformers does not "
            "recognize this architecture"
        ),
    ),
    ("model_unsupported", "load", "Unrecognized model in {model:word} Should have a `model_type` key"),
    ("backend_unsupported", None, "FlashAttention v3 Backend requires {what:text}."),
    ("backend_unsupported", None, "TRTLLM MHA backend"),
    ("backend_unsupported", None, "TRTLLM MLA backend is only supported on"),
    ("backend_unsupported", None, "CuteDSL MLA backend is only supported on"),
    ("backend_unsupported", None, "tokenspeed_mla backend is only supported on"),
    (GPU_MISSING, "load", "CUDA error: invalid device ordinal"),
    (GPU_MISSING, "load", "No CUDA GPUs are available"),
    (GPU_MISSING, "load", "CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
    (GPU_MISSING, "load", "Unexpected error from cudaGetDeviceCount()"),
    ("kernel_missing", None, "CUDA error: no kernel image is available for execution on the device"),
    ("gpu_fault", None, "CUDA error:"),
    # beside the engine
    ("port_in_use", "load", "{name:word} at {port:int} is not available in {seconds:int} seconds."),
    ("port_in_use", "load", "The server socket has failed to listen on any local network address. port: {port:int}"),
    ("host_memory", None, "[Errno 12] Cannot allocate memory"),
    ("host_memory", None, "DefaultCPUAllocator: {*}allocate memory"),
    ("host_memory", None, "DefaultCPUAllocator: not enough memory"),
    ("disk_full", None, "[Errno 28] No space left on device"),
    ("communication_failed", None, "NCCL error"),
    ("communication_failed", None, "NCCL Error"),
    (RANK_MISSING, "load", "TP rank {rank:int} could finish the model loading, but there are other ranks that didn't"),
    (RANK_MISSING, "load", "Timed out after {seconds:int} seconds waiting for clients. {joined:int}/{expected:int}"),
    (RANK_MISSING, "load", "The client socket has timed out after {timeout_ms:int}ms while trying to connect to"),
    (RANK_MISSING, "load", "wait timeout after {timeout_ms:int}ms, keys:"),
    ("communication_failed", None, "[Rank {rank:int}] Watchdog caught collective operation timeout"),
    ("communication_failed", None, "[{*}gloo/{*}Connection closed by peer"),
    ("communication_failed", None, "[{*}gloo/{*}Connection reset by peer"),
    ("communication_failed", None, "[{*}gloo/{*}Connection timed out"),
    ("communication_failed", None, "[{*}gloo/{*}Application timeout caused pair closure"),
    ("communication_failed", None, "Gloo connectFullMesh failed with"),
    ("communication_failed", None, "[{*}gloo/{*}Unable to find address for: {interface:word}"),
    (RANK_MISSING, None, "[{*}gloo/{*}Timed out waiting {waited_ms:int}ms for"),
    # of the parents of processes that ended
    ("child_failed", None, "Initialization failed. Please see the error messages above."),
    ("process_died", "load", "Rank {rank:int} scheduler died during initialization (exit code: {exit_code:int})"),
    # arguments
    ("bad_arguments", "arguments", "Speculative decoding for {architecture:word} is not compatible with radix cache"),
    ("bad_arguments", "arguments", "mamba extra_buffer is not compatible with --disable-radix-cache"),
    ("bad_arguments", "arguments", "mamba_track_interval {interval:int} must be"),
    ("bad_arguments", "arguments", "extra_buffer is not supported for {architecture:word};"),
    ("bad_arguments", "arguments", "mamba extra_buffer is not supported for {architecture:word} model"),
    ("bad_arguments", "arguments", "extra_buffer_lazy is not yet supported with"),
    ("bad_arguments", "arguments", "extra_buffer_lazy unsupported"),
    ("bad_arguments", "arguments", "Lazy extra buffer requires overlap schedule"),
    ("bad_arguments", "arguments", "--mamba-radix-cache-strategy {strategy:word} needs mamba state"),
    ("bad_arguments", "arguments", "no_buffer only supports page_size=1"),
    ("bad_arguments", "arguments", "no_buffer do not support trtllm_mha"),
    ("bad_arguments", "arguments", "no_buffer do not support overlap schedule"),
    ("bad_arguments", "arguments", "--enable-linear-replayssm"),
    ("bad_arguments", "arguments", "--enable-unified-memory +"),
    ("bad_arguments", "arguments", "{architecture:word} does not support {backend:word} attention backend"),
)

#: What a program may try, catch and log: only where it ended a process, or stands alone in a paste, it is a failure.
OFTEN_CAUGHT = frozenset(
    ("model_not_found", "host_memory", "disk_full", "communication_failed", "gpu_fault", GPU_MISSING, RANK_MISSING)
)
#: Kinds that any Python program could have: alone they do not make a log SGLang's.
ANYBODYS = frozenset(
    (
        *("cuda_oom", "runtime_error", "bad_arguments", "port_in_use", BAD_ENVIRONMENT, *OFTEN_CAUGHT),
        *("kernel_missing", "model_unsupported"),
    )
)
