"""Names that SGLang imports from sgl_kernel.speculative."""

from .tree import reconstruct_indices_from_tree_mask

__all__ = ["reconstruct_indices_from_tree_mask"]
