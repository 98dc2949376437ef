"""Predicted against observed, figure by figure."""
