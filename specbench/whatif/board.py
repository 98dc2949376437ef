"""The widgets of a what-if. In: a `WhatIf` and its study. Out: one ipywidgets box, which the panel displays.

Moving a control writes the figures at once, in the kernel's own thread; the picture follows from a thread of its own,
and one that is stale before it is drawn is not drawn. Whatever is shown was escaped by `show`; the texts to copy are
values of text areas.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

from ..errors import SpecbenchError
from ..show.shown import paragraph
from ..studies.opened import LogStudy
from ..studies.study import Study
from ..studies.waterfall import steps
from .controls import AUTO, Control, Value, changes, controls
from .figures import figures, headline, not_here, proven
from .handing import command_text, params_text, save
from .outlook import Outlook, WhatIf
from .panel import curve_of
from .picture import Picture
from .trial import State, Trial

_STYLE = (
    "<style>.sb-whatif{line-height:1.4}.sb-whatif table{border-collapse:collapse;font-size:13px}"
    ".sb-whatif td,.sb-whatif th{padding:1px 8px;text-align:left;border-bottom:1px solid rgba(128,128,128,.3)}"
    ".sb-whatif td.num,.sb-whatif td.short{white-space:nowrap}"
    ".sb-whatif td.num,.sb-whatif th.num{text-align:right}.sb-whatif p{margin:2px 0}"
    ".sb-whatif .word{font-weight:bold;font-size:15px}.sb-whatif .good{color:#00795a}.sb-whatif .bad{color:#b34700}"
    ".sb-whatif .warn{color:#a36a00}.sb-whatif pre{white-space:pre-wrap;font-size:12px}"
    ".sb-whatif textarea{width:98%;font-family:monospace;font-size:12px}</style>"
)
#: Selects the text beside the button and copies it; without a clipboard (a page over plain http) it stays selected.
_COPY = (
    "var t=this.parentNode.querySelector('textarea');t.select();"
    "if(navigator.clipboard){navigator.clipboard.writeText(t.value)}else{document.execCommand('copy')}"
    "this.textContent='copied'"
)
_SETTLE_S = 0.03


class Painter:
    """Draws what is wanted last. A thread lives as long as there is something to draw."""

    def __init__(self, draw: Callable[[Outlook], bytes], shown: Callable[[bytes], None], settle_s: float = _SETTLE_S):
        self._draw, self._shown, self._settle_s = draw, shown, settle_s
        self._lock = threading.Lock()
        self._wanted: Outlook | None = None
        self._busy = False

    def want(self, outlook: Outlook) -> None:
        """Returns at once."""
        with self._lock:
            self._wanted = outlook
            if self._busy:
                return
            self._busy = True
        threading.Thread(target=self._work, name="what-if picture", daemon=True).start()

    def _work(self) -> None:
        while True:
            time.sleep(self._settle_s)  # a control that is dragged gives a dozen values a second
            with self._lock:
                wanted, self._wanted = self._wanted, None
                if wanted is None:
                    self._busy = False
                    return
            try:
                data = self._draw(wanted)
            except Exception:
                with self._lock:
                    self._busy = False
                raise
            with self._lock:
                stale = self._wanted is not None
            if not stale:
                self._shown(data)


class Board:
    """All widgets of one what-if."""

    def __init__(self, what: WhatIf, subject: Study | LogStudy, recordings: str | Path | None) -> None:
        import ipywidgets as widgets

        self._widgets: Any = widgets
        self._what, self._subject, self._recordings = what, subject, recordings
        self._before = self.after = what.with_({})
        self._controls = controls(what)
        self._inputs = {one.name: self._input(one) for one in self._controls}
        self._picture = Picture(what, self._before, steps(subject.diagnosis))
        self._trial: Trial | None = None
        self._resetting = False
        self._build()
        self._painter = Painter(self._drawn, self._show_picture)
        self._image.value = self._drawn(self.after)
        self._write()

    def view(self) -> dict[str, Any]:
        """The mime bundle of the box."""
        bundle: Any = self._box._repr_mimebundle_()
        return {kind: data for kind, data in bundle.items() if kind.startswith("application/")}

    # ── what is shown ────────────────────────────────────────────────────────────────────────────────────────────────

    def _build(self) -> None:
        made = self._widgets
        self._figures = made.HTML()
        self._image = made.Image(format="png", layout={"max_width": "100%"})
        self._status, self._result = made.HTML(), made.HTML()
        self._proof = made.VBox()  # the picture of the new record, when there is one
        self._texts = made.HTML()
        buttons = [("reset", "", self._reset), ("run this", "primary", self._run), ("stop", "", self._end)]
        buttons.append(("save params file", "", self._save))
        self._buttons = {}
        for words, style, pressed in buttons:
            button = made.Button(description=words, button_style=style)
            button.on_click(lambda _, pressed=pressed: pressed())
            self._buttons[words] = button
        self._buttons["stop"].disabled = True
        inputs = [one for pair in self._inputs.values() for one in pair]
        rows = [made.HBox(list(self._buttons.values())[at : at + 2]) for at in (0, 2)]
        left = made.VBox([*inputs, *rows], layout={"width": "350px", "flex": "0 0 auto"})
        files = made.Accordion(children=[self._texts], titles=("Params file and command line of this",))
        self._box = made.VBox(
            [
                made.HBox([left, self._figures]),
                self._status,
                self._image,
                self._result,
                self._proof,
                files,
            ]
        )

    def _input(self, control: Control) -> list[Any]:
        """The widgets of a control; the last of them has its value."""
        made = self._widgets
        common = {"description": control.label, "tooltip": control.tip, "style": {"description_width": "115px"}}
        if control.options:
            widget = made.Dropdown(options=list(control.options), value=control.start, **common)
        elif control.name == "slots":
            return self._slots(control, common)
        elif control.idle:
            return [made.Text(value=control.note or "not known", disabled=True, **common)]
        elif control.name in ("requests", "draft_tokens"):
            low, high = int(control.low or 1), int(control.high or 1)
            widget = made.IntSlider(value=control.start, min=low, max=high, **common)
        else:
            kind = made.BoundedFloatText if isinstance(control.start, float) else made.BoundedIntText
            widget = kind(value=control.start, min=control.low, max=control.high, step=control.step, **common)
        widget.observe(self._moved, names="value")
        return [widget]

    def _slots(self, control: Control, common: dict[str, Any]) -> list[Any]:
        made, auto = self._widgets, control.start == AUTO
        now = self._before.limit("state_slots") or self._what.observed.resolved.get("state_slots") or 1
        number = made.BoundedIntText(
            value=now if auto else control.start, min=1, max=int(control.high or 1), disabled=auto, **common
        )
        switch = made.Checkbox(value=auto, description="auto (by the ratio)", style=common["style"])
        switch.observe(lambda change: setattr(number, "disabled", change["new"]), names="value")
        for widget in (switch, number):
            widget.observe(self._moved, names="value")
        return [switch, number]

    def values(self) -> dict[str, Value]:
        """Of all controls, as they stand."""
        found: dict[str, Value] = {}
        for control in self._controls:
            made = self._inputs[control.name]
            if control.idle:
                continue
            found[control.name] = AUTO if control.name == "slots" and made[0].value else made[-1].value
        return found

    # ── what moves it ────────────────────────────────────────────────────────────────────────────────────────────────

    def _moved(self, _: Any) -> None:
        if self._resetting:
            return
        self.after = self._what.with_(changes(self._what, self._controls, self.values()))
        self._write()
        self._painter.want(self.after)

    def _write(self) -> None:
        head, body = headline(self._what, self._before, self.after), figures(self._what, self._before, self.after)
        self._figures.value = _wrapped(head.html + body.html)
        config = self.after.config
        texts = [] if config is None else [("params file", params_text(config)), ("command line", command_text(config))]
        self._texts.value = _wrapped("".join(_copyable(name, text) for name, text in texts))
        self._buttons["run this"].disabled = config is None or (self._trial is not None and self._trial.alive)
        self._buttons["save params file"].disabled = config is None

    def _drawn(self, outlook: Outlook) -> bytes:
        self._picture.update(outlook, curve_of(self._what, outlook))
        return self._picture.png()

    def _show_picture(self, data: bytes) -> None:
        self._image.value = data

    def _reset(self) -> None:
        self._resetting = True
        try:
            for control in self._controls:
                made = self._inputs[control.name]
                if control.name == "slots":
                    made[0].value = control.start == AUTO
                if not control.idle and not (control.name == "slots" and control.start == AUTO):
                    made[-1].value = control.start
        finally:
            self._resetting = False
        self._moved(None)

    def _save(self) -> None:
        if self.after.config is None:
            return
        try:
            self._say("good", f"saved: {save(self.after.config)}")
        except SpecbenchError as error:
            self._say("bad", str(error))

    def _say(self, tone: Any, text: str) -> None:
        self._status.value = _wrapped(paragraph(text, tone=tone).html)

    # ── what is tried ────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        outlook = self.after
        if outlook.config is None or (self._trial is not None and self._trial.alive):
            return
        self._buttons["run this"].disabled, self._buttons["stop"].disabled = True, False
        self._result.value, self._proof.children = "", ()

        def told(state: State, text: str) -> None:
            self._told(trial, outlook, state, text)

        trial = Trial(outlook.config, self._recordings, told, from_log=self._subject.record is None)
        self._trial = trial
        trial.start()

    def _end(self) -> None:
        if self._trial is not None:
            self._trial.stop()
            self._say("warn", "stopping")

    def _told(self, trial: Trial, outlook: Outlook, state: State, text: str) -> None:
        """From the trial's thread."""
        tone = {"done": "good", "failed": "bad", "not here": "warn", "stopped": "warn"}.get(state, "plain")
        self._say(tone, f"{state}: {text}")
        if state == "running":
            return
        self._buttons["stop"].disabled = True
        self._buttons["run this"].disabled = self.after.config is None
        if state == "done" and trial.found is not None:
            self._result.value = _wrapped(proven(self._what, outlook, trial.found).html)
            new = WhatIf.of(trial.found.diagnosis)
            drawn = Picture(new, outlook, steps(trial.found.diagnosis))
            drawn.update(outlook, curve_of(new, outlook))
            image = self._widgets.Image(value=drawn.png(), format="png", layout={"max_width": "100%"})
            self._proof.children = (image,)
        elif state == "not here" and trial.way is not None and outlook.config is not None:
            self._result.value = _wrapped(not_here(trial.way, command_text(outlook.config)).html)


def _wrapped(html: str) -> str:
    return f'{_STYLE}<div class="sb-whatif">{html}</div>'


def _copyable(name: str, text: str) -> str:
    rows = min(14, 2 + text.count("\n") + len(text) // 120)
    area = f'<textarea readonly rows="{rows}" aria-label="{escape(name)}">{escape(text)}</textarea>'
    return f'<div><b>{escape(name)}</b> <button onclick="{_COPY}">copy</button>{area}</div>'
