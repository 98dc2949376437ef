"""Import-only stand-in for Triton: kernel definitions parse, nothing can be launched.

Made of the stub classes that SGLang ships for macOS (`sglang/_platform_stubs.py`), which SGLang uses there for the same
purpose. PyPI's Triton would import without a GPU too, but takes 1 GB.
"""

import importlib.machinery
import importlib.util
import sys


def _stubs():
    """SGLang's stub module, loaded without importing the package `sglang` (which imports triton)."""
    package = importlib.machinery.PathFinder.find_spec("sglang")
    folder = next(iter(package.submodule_search_locations or ())) if package else None
    if folder is None:
        raise ImportError("the stand-in for triton needs the package sglang beside it")
    spec = importlib.util.spec_from_file_location("_sglang_platform_stubs", f"{folder}/_platform_stubs.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_stub = _stubs()
sys.meta_path.insert(0, _stub._TritonFinder())
_triton = _stub._make_mock("triton")  # takes this module's place in sys.modules
_triton.__version__ = "3.0.0"
_triton.cdiv = _stub._cdiv
_triton.next_power_of_2 = _stub._next_power_of_2
_triton.Config = _stub._Config


def _module(name, **members):
    made = _stub._make_mock(name)
    for member, value in members.items():
        setattr(made, member, value)
    parent, _, child = name.rpartition(".")
    setattr(sys.modules[parent], child, made)


class _Constexpr:
    def __init__(self, value=None):
        self.value = value


def _class(name, *bases):
    return type(name, bases, {})


_module("triton.language", constexpr=_Constexpr)
_module("triton.language.extra")
_module("triton.language.extra.libdevice")
_module("triton.runtime")
_module(
    "triton.runtime.jit",
    JITFunction=_class("JITFunction"),
    KernelInterface=_class("KernelInterface", _stub._StubBase),
)
_module("triton.runtime.cache", triton_key=_stub._triton_key)
_module(
    "triton.runtime.autotuner",
    OutOfResources=_class("OutOfResources", Exception),
    PTXASError=_class("PTXASError", Exception),
    Autotuner=_class("Autotuner"),
)
_module("triton.runtime.driver")
_module("triton.compiler", CompiledKernel=_class("CompiledKernel", _stub._StubBase))
_module(
    "triton.compiler.compiler",
    ASTSource=_class("ASTSource", _stub._StubBase),
    triton_key=_stub._triton_key,
)
_module("triton.testing")
_module("triton.tools")
_module("triton.tools.tensor_descriptor")
_module("triton.backends")
_module("triton.backends.compiler", GPUTarget=_class("GPUTarget", _stub._StubBase))
