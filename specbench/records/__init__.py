"""The record of a run: raw files, written once, read by whatever comes later."""
