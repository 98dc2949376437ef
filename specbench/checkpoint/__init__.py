"""Weights of a checkpoint that lies here: what its safetensors files say of themselves, and what a rank loads of it."""
