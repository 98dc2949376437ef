"""A model's config.json: kept here for the files of this folder; it lies in `specbench/hf.py`."""

from ..hf import MOST_LAYERS, HfConfig, read_config

__all__ = ["MOST_LAYERS", "HfConfig", "read_config"]
