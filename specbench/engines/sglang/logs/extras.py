"""Lines of forks, plug-ins and benchmark scripts that stand in server logs and name memory. Not tied to a version."""

from __future__ import annotations

from ..form import Form

FORMS: dict[str, Form] = {
    "ddtree_worker": Form(
        "notice:draft_runner",
        "Initialized {algorithm:word} worker. block_size={block_size:word}, tree_budget={tree_budget:word}, "
        "max_tree_nodes={max_tree_nodes:word}",
    ),
    "kv_pool_sizing": Form(
        "notice:kv_pool_sizing",
        "KV pool sizing: available_bytes={available_bytes:int} ({available:gib} GiB), cell_size={cell_size:int}, "
        "page_size={page_size:int} -> max_total_num_tokens={kv_tokens:int}",
    ),
    "host_kv_pool": Form(
        "notice:host_kv_pool",
        "Allocating kv hierarchical KV host pool: {tokens:int} tokens, {size:gib} GB host memory",
    ),
    "host_state_pool": Form(
        "notice:host_state_pool", "Allocating {size:gib} GB host memory for hierarchical Mamba cache"
    ),
    "elastic_state_cell": Form(
        "notice:elastic_state_cell",
        "[kvcached] Elastic mamba cell padded: raw={raw_bytes:int}B -> {padded_bytes:int}B",
    ),
    # Alike in all versions. Early ones print it for any model with state beside attention.
    "hybrid_backend": Form("notice:hybrid_backend", "Using hybrid linear attention backend for hybrid GDN models."),
    # Not looked for in versions before 0.5.12, so it says nothing about the version.
    "process_died": Form(
        "notice:process_died", "Subprocess {name:word} (pid={pid:int}) crashed with exit code {exit_code:int}"
    ),
    # What is printed when a child has failed: the cause stands above. Alike in all versions that have them.
    "child_sent_sigquit": Form("notice:ended_by_signal", "Received sigquit from a child process."),
    "sigquit": Form("notice:ended_by_signal", "SIGQUIT received."),
    # From outside (tokenizer_manager.py, 0.5.10 on); what the server then says of its children is no failure.
    "stop_asked": Form("notice:stop_asked", "SIGTERM received."),
    "tree_killed": Form("notice:process_tree_killed", "kill_process_tree called: parent_pid={pid:int}"),
    # Alike in all versions that print it; of 0.5.22 and later the second.
    "distributed_begin": Form("notice:distributed_begin", "Init torch distributed begin."),
    "parallel_begin": Form("notice:distributed_begin", "Init parallel begin."),
    # torch's: of a rank that waited in vain for another one (ProcessGroupNCCL.cpp).
    "collective_timeout": Form(
        "failure:collective_timeout",
        "[E{*} ProcessGroupNCCL.cpp:{*}] {*}[Rank {rank:int}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum={sequence:int}, OpType={operation:word}, {*}Timeout(ms)={timeout_ms:int}) ran for",
    ),
    # NCCL's own; found wherever it stands in a line (see `scan`).
    "nccl_warning": Form("notice:nccl_warning", "NCCL WARN {said:text}{$}"),
    # All-reduce of SGLang's own is given up, and NCCL's taken (device_communicators/custom_all_reduce*.py).
    "custom_allreduce_failed": Form(
        "notice:custom_allreduce_off", "Setup Custom allreduce failed with {why:text}. To silence this"
    ),
    **{
        f"{name}_off": Form("notice:custom_allreduce_off", f"{name} is disabled {{why:text}}.[[ {{*}}]]{{$}}")
        for name in ("Custom allreduce", "CustomAllreduce", "CustomAllReduceV2")
    },
    # With its check turned off the engine goes on.
    "memory_unbalanced": Form("notice:memory_unbalanced", "The memory capacity is unbalanced."),
    # Of its own watchdog, before the line that says so; alike in 0.5.6 to 0.5.23 (pyspy_dump_schedulers).
    "stacks_dumped": Form("notice:stacks_dumped", "Pyspy dump for PID {pid:int} ("),
    "stacks_refused": Form("notice:stacks_refused", "Pyspy failed ({*}). Error: {why:text}{$}"),
    "warmup_failed": Form("failure:warmup_failed", "Initialization failed. warmup error:"),
    # Spelled like the pool lines, but by hand or by a fork; no version prints them so.
    "kv_pool_short": Form(
        "kv_pool",
        "KV Cache is allocated. dtype: {dtype:word}, #tokens: {tokens:int}, K {k:gib} GB, V {v:gib} GB",
    ),
    "swa_sizes_alone": Form(
        "notice:swa_sizes", "full_layer_tokens={full_tokens:int}, swa_layer_tokens={swa_tokens:int}"
    ),
    "kv_tokens_alone": Form("resolved", "max_total_num_tokens={kv_tokens:int}{$}"),
}
