"""What will fit, from the configuration and the GPU alone: `predict.predict`."""
