"""What a notebook cell displays of a what-if: controls where a person can move them, else the state as it is.

In: a study of a record or a log. Out: a `Panel`, whose bundle always has plain text and HTML. The non-obvious thing: no
widget is made where nobody looks. papermill, nbconvert and nbval would store its state, and a page that is read without
a kernel would have a hole in its place.
"""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..diagnose.outgoing import safe
from ..errors import ConfigError
from ..show.shown import Shown, joined, paragraph
from ..studies.opened import LogStudy
from ..studies.study import Study
from ..studies.waterfall import steps
from .figures import figures, headline
from .outlook import Curve, Outlook, WhatIf

#: Of a session that a Jupyter server starts for an open notebook: its file.
_SESSION = "JPY_SESSION_NAME"
_MOST_POINTS = 24


def panel(subject: Study | LogStudy, recordings: str | Path | None = None, *, live: bool | None = None) -> Panel:
    """`recordings`: a folder of records, one of which may be the changed configuration. `live`: whether there are
    widgets; None: where a person has the notebook open."""
    return Panel(subject, recordings, live=is_watched() if live is None else live)


def is_watched() -> bool:
    """Whether this kernel belongs to a notebook that a person has open, as far as it can tell."""
    if _SESSION in os.environ or "google.colab" in sys.modules:
        return True
    shell = sys.modules.get("IPython")
    user = getattr(shell.get_ipython(), "user_ns", {}) if shell is not None else {}
    return "__vsc_ipynb_file__" in user


class Panel:
    """One what-if in a notebook."""

    def __init__(self, subject: Study | LogStudy, recordings: str | Path | None, *, live: bool) -> None:
        self.subject, self.recordings, self._live = subject, recordings, live
        self.board: Any = None  # the widgets, when they are shown
        try:
            self.what: WhatIf | None = WhatIf.of(subject.diagnosis)
            self._why = ""
        except ConfigError as error:
            self.what, self._why = None, str(error)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        if self.what is None or not self._live or self.what.with_({}).budget is None:
            shown = self.static()
            return {"text/plain": shown.text, "text/html": shown.html}
        from .board import Board

        if self.board is None:
            self.board = Board(self.what, self.subject, self.recordings)
        # Without the picture, which the widgets hold: what a viewer shows that has no widgets.
        shown = self.static(picture=False)
        view: dict[str, Any] = self.board.view()
        return {**view, "text/plain": shown.text, "text/html": shown.html}

    def static(self, *, picture: bool = True) -> Shown:
        """The state as it is, with the first remedy as the change where there is one."""
        if self.what is None:
            return paragraph(f"No what-if: {safe(self._why)}", tone="warn")
        before = self.what.with_({})
        if before.budget is None:
            return paragraph(f"No what-if: {safe(before.reason)}", tone="warn")
        after = self._example() or before
        example = paragraph("One change as an example: the first remedy from above. In JupyterLab it can be moved.")
        parts = [*([example] if after.changes else []), headline(self.what, before, after)]
        parts.append(figures(self.what, before, after))
        if picture:
            parts.append(self._picture(before, after))
        return joined(parts)

    def _example(self) -> Outlook | None:
        assert self.what is not None
        for finding in self.subject.diagnosis.findings:
            for remedy in finding.remedies:
                if remedy.verdict is not None:
                    return self.what.with_(dict(remedy.set))
        return None

    def _picture(self, before: Outlook, after: Outlook) -> Shown:
        from .picture import Picture

        assert self.what is not None
        drawn = Picture(self.what, before, steps(self.subject.diagnosis))
        drawn.update(after, curve_of(self.what, after))
        data = base64.b64encode(drawn.png()).decode()
        alt = "Memory of the card, predicted and observed; limits over the requests asked"
        return Shown(f'<img alt="{alt}" src="data:image/png;base64,{data}">', "")


def curve_of(what: WhatIf, outlook: Outlook) -> Curve:
    """The cliff around what is asked."""
    return what.curve(outlook, points(what, outlook))


def points(what: WhatIf, outlook: Outlook) -> Sequence[int]:
    """From one request to beyond what was and is asked, both among them, at most some two dozen."""
    now = None if outlook.config is None else outlook.config.memory.max_running_requests
    marks = {count for count in (now, what.observed.asked) if count is not None}
    last = max(12, *(count + count // 2 for count in marks)) if marks else 12
    step = max(1, last // _MOST_POINTS)
    return sorted({1, *marks, *range(step, last + 1, step)})
