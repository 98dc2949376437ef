"""What one record says, without any prediction: pools, latencies, outcome, free memory, time spent."""
