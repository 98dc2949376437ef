"""What this machine has and holds: its GPUs, their memory and who uses it, its processes."""
