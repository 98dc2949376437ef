"""Notebooks as programs: parameters, execution, pages, hygiene."""
