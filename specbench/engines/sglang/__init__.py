"""SGLang: flags and refusals by version, pool sizing, log lines."""
