"""What if it were started otherwise? One run or log, changed by hand: predicted at once, tried, proven.

`outlook` predicts a change on the free memory of that very start, `controls` are what can be moved, `trial` starts the
changed configuration (or plays the recording that is equal to it), and `panel` is what a notebook shows of all that.
"""

from __future__ import annotations

from .outlook import Outlook, WhatIf
from .panel import Panel, panel

__all__ = ["Outlook", "Panel", "WhatIf", "panel"]
