"""Packages that SGLang imports and that are not installed here: every import of them gives an object without content.

In: nothing. Out: after `install()`, `import triton` and the like succeed. None of them has a part in sizing: they are
kernels, graph compilers, grammars and media readers. What one of them returns is never a number that a pool depends on;
a comparison or an arithmetic with one of its results raises TypeError, so that a leak would be seen.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence
from typing import Any


class Absent:
    """An attribute of a package that is not there: callable, usable as decorator, as base class and in annotations."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = name.rpartition(".")[0]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")

    def __call__(self, *given: Any, **_: Any) -> Any:
        """A decorator gives back what it decorates, everything else one more absent thing."""
        if len(given) == 1 and isinstance(given[0], types.FunctionType | type):
            return given[0]
        return Absent(f"{self.__name__}()")

    def __mro_entries__(self, _: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __instancecheck__(self, _: object) -> bool:
        return False

    def __subclasscheck__(self, _: type) -> bool:
        return False

    def __getitem__(self, _: object) -> Any:
        return self

    def __or__(self, _: object) -> Any:
        return Any

    __ror__ = __or__

    def __iter__(self) -> Any:
        return iter(())

    def __get_pydantic_core_schema__(self, *_: Any) -> Any:
        """As the type of a request's field: any value."""
        from pydantic_core import core_schema

        return core_schema.any_schema()

    def __repr__(self) -> str:
        return f"<absent {self.__name__}>"


class _AbsentModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__") and name != "__version__":
            raise AttributeError(name)
        if name == "__version__":
            return "0.0.0"
        return Absent(f"{self.__name__}.{name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Comes first: a package of these names is not wanted even where it is installed."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> Any:
        if fullname.partition(".")[0] not in self._names:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        return _AbsentModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__path__ = []


#: What SGLang imports of CUDA packages and of others that are large and not needed for sizing.
NAMES = frozenset(
    {
        "triton",
        "triton_kernels",
        "sgl_kernel",
        "flashinfer",
        "deep_gemm",
        "torchvision",
        "torchaudio",
        "torchcodec",
        "torchao",
        "torch_memory_saver",
        "xgrammar",
        "outlines",
        "llguidance",
        "decord",
        "decord2",
        "av",
        "cutlass",
        "cuda",
        "flash_attn",
        "flash_mla",
        "deep_ep",
        "mooncake",
        "nixl",
        "modelscope",
        "timm",
        "apache_tvm_ffi",
        "tvm_ffi",
        "quack",
        "tilelang",
        "kernels",
        "smg_grpc_servicer",
        "smg_grpc_proto",
        "openai_harmony",
        "soundfile",
        "IPython",
        "pynvml",
        "interegular",
        "cuequivariance",
        "scipy",
        "blobfile",
        "anthropic",
        "vllm",
        "aiter",
        "flash_attn_origin",
        "gguf",
    }
)


#: What a CUDA server certainly has: SGLang asks for them before it chooses an attention backend. Of all others
#: `importlib.util.find_spec` says that they are not installed, which is what transformers asks.
SEEN = frozenset({"flashinfer", "sgl_kernel", "triton"})


def install() -> None:
    """From now on the packages of `NAMES` that are not installed can be imported."""
    import torch._inductor.runtime.triton_compat  # torch's own stand-ins, before ours are there

    real = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> Any:
        spec = real(name, package)
        return None if spec is not None and isinstance(spec.loader, _Finder) and name not in SEEN else spec

    importlib.util.find_spec = find_spec
    sys.meta_path.insert(0, _Finder(NAMES))
    _name_the_backend_of_triton()
    _allow_processors_without_images()
    _allow_fakes_of_absent_operators()


def _name_the_backend_of_triton() -> None:
    """Kernels are chosen by it while they are imported."""
    import triton.runtime

    target = types.SimpleNamespace(backend="cuda", arch=90, warp_size=32)
    utils = types.SimpleNamespace(
        get_device_properties=lambda *_: {"max_shared_mem": 232448, "multiprocessor_count": 132}
    )
    active = types.SimpleNamespace(get_current_target=lambda: target, utils=utils)
    triton.runtime.driver = types.SimpleNamespace(active=active)


def _allow_fakes_of_absent_operators() -> None:
    """The oldest releases describe operators of sgl_kernel to torch, which does not know them."""
    import torch

    real = torch.library.register_fake

    def register_fake(name: Any, func: Any = None, /, **given: Any) -> Any:
        if isinstance(name, str) and name.startswith("sgl_kernel::"):
            return func if func is not None else lambda described: described
        return real(name, func, **given)

    torch.library.register_fake = register_fake


def _allow_processors_without_images() -> None:
    """SGLang registers its image processors with classes that transformers leaves out where torchvision is absent."""
    from transformers.utils import import_utils

    def attribute(cls: type, key: str) -> Any:
        return type.__getattribute__(cls, key) if key.startswith("_") else Absent(f"{cls.__name__}.{key}")

    import_utils.DummyObject.__getattribute__ = attribute
