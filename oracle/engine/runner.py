"""SGLang's own ModelRunner, constructed without a GPU up to the sizes of its pools.

In: the server's command line, a card, free memory. Out: what it resolved, or the error with which it stops. Of
`ModelRunner` only two methods are replaced: the one that starts process groups (it tells the free memory before loading
instead) and the one that loads weights (it tells which layers this stage has instead). Everything else that `__init__`
does is SGLang's, and so are the arguments' resolution, the configurations and the solver.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import inspect
import re
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

import groups
import msgspec
import torch
from device import CARD
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.model_executor import model_runner as module
from sglang.srt.server_args import prepare_server_args
from sglang.srt.utils.common import get_available_gpu_memory

_GIB = 1 << 30


class PoolsSized(Exception):
    """The pools would be allocated now."""

    def __init__(self, requests: int) -> None:
        super().__init__()
        self.requests = requests


class _Model(torch.nn.Module):
    """What sizing asks of a loaded model: its layers on this stage, how its checkpoint is quantized."""

    def __init__(self, layers: tuple[int, int] | None, quantization: Any) -> None:
        super().__init__()
        self.quant_config = quantization
        if layers is not None:
            self.start_layer, self.end_layer = layers

    def forward(self, pp_proxy_tensors: Any = None) -> None:
        raise NotImplementedError


class Runner(module.ModelRunner):
    """One rank of one pipeline stage."""

    question: dict[str, Any]
    stage: int

    def init_torch_distributed(self) -> float:
        self.pp_group = self.question["pipeline"]
        self.tp_group = self.attention_tp_group = groups.Group(self.question["tp"])
        self.pp_size = self.question["pp"]  # which 0.5.21 sets here
        CARD.free_bytes = self.question["pre_bytes"]
        world = self.question["tp"] * self.question["pp"]
        self.pre_model_load_memory = get_available_gpu_memory("cuda", 0, distributed=world > 1)
        CARD.free_bytes = self.question["post_bytes"]
        return self.pre_model_load_memory

    def load_model(self) -> None:
        config = self.model_config
        self.dtype = config.dtype
        self.sliding_window_size = _window(config)
        self.model = _Model(self.question["layers"], _quantization(config))
        self.weight_load_mem_usage = 0.0
        self.startup_weight_load = None
        self.load_config = None

    def init_routed_experts_capturer(self) -> None:
        """What comes next where the requests are settled after the pools (0.5.8)."""
        raise PoolsSized(self.max_running_requests)

    def get_cell_size_per_token(self, num_layers: int) -> int:
        """Releases before 0.5.11 compute it on the way and keep it nowhere."""
        self.cell_bytes = super().get_cell_size_per_token(num_layers)
        return self.cell_bytes

    def _init_pools(self, *_: Any, **__: Any) -> None:
        raise PoolsSized(self.max_running_requests)

    # What follows __init__ of a GPU and of serving: no part in sizing.
    def _nothing(self, *_: Any, **__: Any) -> None:
        return None

    init_weight_updater = init_weight_exporter = check_quantized_moe_compatibility = _nothing
    maybe_init_expert_location_metadata = maybe_init_eplb_manager = init_token_oracle = _nothing
    init_shared_mooncake_transfer_engine = init_mindspore_runner = model_specific_adjustment_of_device = _nothing
    maybe_init_expert_backup_client = maybe_apply_post_load_model_transforms = maybe_init_dwdp = _nothing
    _prepare_moe_topk = init_memory_saver_adapter = _nothing


#: Names of the ModelRunner's module that start something on a GPU, and have no part in sizing.
_UNSTARTED = (
    "create_sampler", "compute_initial_expert_location_metadata", "set_global_expert_location_metadata",
    "get_global_expert_location_metadata", "set_global_expert_distribution_recorder", "ExpertDistributionRecorder",
    "ExpertLocationUpdater", "TorchMemorySaverAdapter", "set_offloader", "create_offloader",
    "create_offloader_from_server_args", "WeightChecker", "apply_torchao_config_to_model", "prepare_moe_topk",
    "install_megakernel", "maybe_init_shared_mooncake_transfer_engine", "RemoteInstanceWeightTransporter",
    "sanity_check_mm_pad_shift_value", "maybe_torch_compile", "SamplingPrewarmResult",
)  # fmt: skip


def prepare() -> None:
    """Once, after the imports."""
    from stand_ins import Absent

    for name in _UNSTARTED:
        if hasattr(module, name):
            setattr(module, name, Absent(name))
    _stop_at_first_pool()
    _keep_the_parser()
    deep_gemm = getattr(module, "deep_gemm_wrapper", None)
    if deep_gemm is not None:
        deep_gemm.ENABLE_JIT_DEEPGEMM = False


def _keep_the_parser() -> None:
    """SGLang builds its argument parser, of hundreds of arguments, for every command line: once is enough here."""
    from sglang.srt import server_args as arguments

    parser = argparse.ArgumentParser(prog="sglang serve")
    arguments.ServerArgs.add_cli_args(parser)
    arguments.ServerArgs.add_cli_args = staticmethod(lambda _: None)
    arguments.argparse = types.SimpleNamespace(**{**vars(argparse), "ArgumentParser": lambda *_, **__: parser})
    msgspec.structs.fields = functools.cache(msgspec.structs.fields)


def _quantization(config: Any) -> Any:
    """SGLang's own reading of the checkpoint's quantization; it may ask for a type of the KV cache."""
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.model_loader.weight_utils import get_quant_config

    return None if config.quantization is None else get_quant_config(config, LoadConfig(), {})


def _window(config: Any) -> int | None:
    """Tokens that layers with a window look back: as the model says (its class is asked, not built), else config.json.

    gpt-oss takes one off: the token itself.
    """
    name = config.hf_config.architectures[0]
    place = _models().get(name)
    if place is not None and "def get_attention_sliding_window_size(self" in place.read_text(encoding="utf-8"):
        folder = Path(sys.modules["sglang.srt.models"].__path__[0])
        path = ".".join(("sglang.srt.models", *place.relative_to(folder).with_suffix("").parts))
        model = getattr(importlib.import_module(path), name)
        if hasattr(model, "get_attention_sliding_window_size"):
            return model.get_attention_sliding_window_size(types.SimpleNamespace(config=config.hf_config))
    return getattr(config, "sliding_window_size", None)


def served() -> tuple[str, ...]:
    """Architectures that this release has a model for, as its model files name them."""
    return tuple(sorted(_models()))


@functools.cache
def _models() -> dict[str, Path]:
    """Architecture -> its file. (They are not imported: some need a GPU for that. For other architectures SGLang would
    try a model of transformers.)"""
    import sglang.srt.models

    named = re.compile(r"^EntryClass\b[^=]*=\s*(\[[^\]]*\]|[\w.]+)", re.MULTILINE)
    files = sorted(Path(sglang.srt.models.__path__[0]).rglob("*.py"))
    found = ((file, named.search(file.read_text(encoding="utf-8"))) for file in files)
    return {name: file for file, match in found if match for name in re.findall(r"\w+", match[1])}


def _stop_at_first_pool() -> None:
    """Releases whose sizing runs into the allocation without a call of its own.

    0.5.8 settles the requests after its pools: they are passed over. 0.5.6 settles them in its worker: it stops.
    """
    runner = module.ModelRunner
    if hasattr(runner, "_init_pools") or hasattr(runner, "init_kv_cache_configurator"):
        return
    goes_on = runner.init_memory_pool.__module__ != module.__name__

    def pool(*_: Any, size: int, **__: Any) -> Any:
        if not goes_on:
            raise PoolsSized(size)
        return types.SimpleNamespace(size=size, mamba_pool=None)

    for where in {module, sys.modules[runner.init_memory_pool.__module__]}:
        for name in vars(where).copy():
            if name in ("ReqToTokenPool", "HybridReqToTokenPool"):
                setattr(where, name, pool)
            elif goes_on and name.endswith(("KVPool", "KVPoolAllocator", "KVPoolFP4")):
                unallocated = {"__new__": lambda *_, **__: None}  # its constants are asked for
                setattr(where, name, type(name, (vars(where)[name],), unallocated))


def resolved(server_args: Any, stage: int) -> Any:
    """Resolve the arguments, and publish them where this version does; returns a view with the resolved values."""
    try:
        import sglang.srt.runtime_context as context
    except ImportError:
        context = None
    if context is None or not hasattr(context, "publish"):
        from sglang.srt import server_args as arguments

        arguments.set_global_server_args_for_scheduler(server_args)
        return server_args
    view = server_args
    if hasattr(server_args, "resolve_once"):
        server_args.resolve_once()
        view = types.SimpleNamespace(**server_args.resolved_dict())
    if hasattr(context, "SpawnRanks"):
        world = view.tp_size * stage
        context.reset_context()
        context.publish(
            server_args, role="scheduler", ranks=context.SpawnRanks(world_rank=world, dp_rank=None, gpu_id=0)
        )
        return view
    context.publish(server_args, role="scheduler")
    return view


def refused(where: str, error: Any) -> dict[str, Any]:
    """A start that ends with an error: where, and its last line as a traceback shows it."""
    if isinstance(error, list):
        return {"error": {"where": where, "text": " ".join(error)}}
    import traceback

    frame = traceback.extract_tb(error.__traceback__)[-1]
    return {
        "error": {
            "where": where,
            "text": f"{type(error).__name__}: {error}",
            "at": f"{frame.filename.rpartition('site-packages/')[2].rpartition('/sglang/')[2]}:{frame.lineno}",
        }
    }


def size(
    question: dict[str, Any], server_args: Any, view: Any, config: Any, stage: int, layers: tuple[int, int] | None
) -> dict[str, Any]:
    """Construct the runner of one rank, and let it size its pools."""
    tp, pp, dp = view.tp_size, view.pp_size, view.dp_size
    pipeline = groups.join(tp=tp, pp=pp, dp=dp, dp_attention=view.enable_dp_attention, stage=stage)
    made = object.__new__(Runner)
    made.question = {**question, "tp": tp, "pp": pp, "layers": layers, "pipeline": pipeline}
    requests = None
    try:
        made.__init__(**_given(server_args, view, config, stage))
        if hasattr(made, "alloc_memory_pool"):
            _solve(made)
    except PoolsSized as sized:
        requests = sized.requests if hasattr(made, "max_running_requests") else _of_worker(made, sized.requests)
    except Exception as error:
        return refused("pools", error)
    return _read(made, server_args, requests)


def _of_worker(made: Runner, rows: int) -> int:
    """0.5.6 settles requests in its worker, from the pools: the one statement of its constructor that does."""
    from sglang.srt.managers import tp_worker

    constructor = ast.parse(textwrap.dedent(inspect.getsource(tp_worker.TpModelWorker.__init__)))
    settles = next(
        node
        for node in ast.walk(constructor)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "self.max_running_requests"
    )
    made.req_to_token_pool = types.SimpleNamespace(size=rows)
    worker = types.SimpleNamespace(model_runner=made, max_total_num_tokens=made.max_total_num_tokens)
    code = compile(ast.Module(body=[settles], type_ignores=[]), tp_worker.__file__, "exec")
    exec(code, vars(tp_worker), {"self": worker, "server_args": made.server_args})  # SGLang's own, unmodified
    return worker.max_running_requests


def _given(server_args: Any, view: Any, config: Any, stage: int) -> dict[str, Any]:
    """Of this version's `ModelRunner.__init__` the parameters that it has."""
    attention = view.tp_size // (view.dp_size if view.enable_dp_attention else 1)
    known = inspect.signature(module.ModelRunner.__init__).parameters
    everything = {
        "model_config": config,
        "mem_fraction_static": view.mem_fraction_static,
        "gpu_id": 0,
        "tp_rank": 0,
        "tp_size": view.tp_size,
        "moe_ep_rank": 0,
        "moe_ep_size": 1,
        "pp_rank": stage,
        "pp_size": view.pp_size,
        "nccl_port": 1,
        "server_args": server_args,
        "dp_rank": None,
    }
    if "ps" in known:
        everything["ps"] = _parallel_state(
            tp_size=view.tp_size,
            pp_rank=stage,
            pp_size=view.pp_size,
            dp_size=view.dp_size,
            attn_tp_size=attention,
            attn_dp_size=view.tp_size // attention,
        )
    return {name: value for name, value in everything.items() if name in known}


def _parallel_state(**sizes: int) -> Any:
    from sglang.srt.distributed.parallel_state_wrapper import ParallelState

    known = inspect.signature(ParallelState.__init__).parameters
    return ParallelState.trivial(**{name: value for name, value in sizes.items() if name in known})


def _solve(made: Runner) -> None:
    """Versions that load the draft before they size anything: the pools have their own call."""
    if not hasattr(made, "init_kv_cache_configurator"):
        made.alloc_memory_pool()
        return
    made.init_kv_cache_configurator()
    made.pools = made.kv_cache_configurator._resolve_memory_pool_config(made.pre_model_load_memory)


def _read(made: Runner, server_args: Any, requests: int | None) -> dict[str, Any]:
    """What was resolved."""
    solver = getattr(made, "kv_cache_configurator", made)
    pools = getattr(made, "pools", None) or made
    mamba = solver.mambaish_config
    return {
        "tokens": pools.max_total_num_tokens,
        "requests": requests if requests is not None else pools.max_running_requests,
        "slots": _slots(server_args) if mamba is not None else None,
        "slots_per_request": _ratio(solver) if mamba is not None else None,
        "slot_bytes": _slot(made, mamba),
        "cell_bytes": _cell(made, solver),
        "context_len": made.model_config.context_len,
    }


def _ratio(solver: Any) -> int | None:
    return solver._calculate_mamba_ratio() if hasattr(solver, "_calculate_mamba_ratio") else None


def _slots(server_args: Any) -> int | None:
    try:
        from sglang.srt.runtime_context import get_schedule
    except ImportError:
        return server_args.max_mamba_cache_size
    return get_schedule().max_mamba_cache_size


def _slot(made: Runner, mamba: Any) -> int | None:
    """Of all layers; None with pipeline stages, of which each holds a part."""
    if made.question["pp"] > 1:
        return None
    return mamba.mamba2_cache_params.mamba_cache_per_req if mamba is not None else 0


def _cell(made: Runner, solver: Any) -> int | None:
    """As charged, of all layers; None with pipeline stages, and where sliding windows share a pool otherwise."""
    if made.question["pp"] > 1:
        return None
    try:
        from sglang.srt.model_executor.pool_configurator import create_memory_pool_configurator
    except ImportError:
        return None if made.model_config.is_hybrid_swa else getattr(made, "cell_bytes", None)
    made = create_memory_pool_configurator(solver)
    return made._cell_size if type(made).__name__ == "DefaultPoolConfigurator" else None
