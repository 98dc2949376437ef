"""What if it were started otherwise? One run or log, changed by hand: predicted at once, tried, proven.

`outlook` predicts a change on the free memory of that very start, `controls` are what can be moved, and `trial` starts
the changed configuration (or plays the recording that is equal to it).
"""

from __future__ import annotations

from .outlook import Outlook, WhatIf

__all__ = ["Outlook", "WhatIf"]
