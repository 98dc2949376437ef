"""A record read, judged and explained: what notebooks and pages show of it."""
