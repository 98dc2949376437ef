"""What is written down while a server runs: log lines with their arrival, GPU samples, metrics, stages."""
