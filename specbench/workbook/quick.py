"""What a process that executes notebooks, and does nothing else, need not import.

nbformat imports jsonschema, which takes rfc3987-syntax where it is installed (JupyterLab brings it along): that builds
the parser of a whole grammar when it is imported, for a second of every process, to check the form of international
addresses (jsonschema/_format.py). The schema of notebooks has none.
"""

from __future__ import annotations

import sys


def only_notebooks() -> None:
    """For a process of our own, before nbformat is imported: to import the other is then an ImportError, as if it
    were not installed."""
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
