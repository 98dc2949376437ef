"""Import-only stand-in for torchvision: PyPI's wheel is built for CUDA and fails beside a CPU build of torch.

Only SGLang's image processors use it, and a model without a vision tower never reaches them.
"""

import enum
import sys

import triton  # the stand-in: its module type answers every attribute

_StubModule = type(sys.modules[triton.__name__])
_torchvision = _StubModule("torchvision")
_torchvision.__version__ = "0.0.0"
sys.modules["torchvision"] = _torchvision


class _Finder:
    """Any submodule that is asked for."""

    def find_spec(self, fullname, path=None, target=None):
        if not fullname.startswith("torchvision."):
            return None
        module = sys.modules.get(fullname) or _StubModule(fullname)
        sys.modules[fullname] = module
        parent, _, child = fullname.rpartition(".")
        setattr(sys.modules[parent], child, module)
        return module.__spec__


sys.meta_path.insert(0, _Finder())


class InterpolationMode(enum.Enum):
    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


for _name in ("transforms", "transforms.functional", "transforms.v2", "transforms.v2.functional"):
    __import__(f"torchvision.{_name}")
    sys.modules[f"torchvision.{_name}"].InterpolationMode = InterpolationMode
