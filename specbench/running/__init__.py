"""One configuration, run: from its params to its record."""
