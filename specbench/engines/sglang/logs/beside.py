"""What a paste holds beside the server's lines: the command that started it, and the card's name.

In: the first part of a log, cleaned. Out: `contract.Beside`. Only the beginning is looked at: a paste is short, and a
long log has neither. Cards: as nvidia-smi shows them, and as SGLang names them in the files of tuned kernels.
"""

from __future__ import annotations

import re

from ....logtext import as_text
from ...contract import Beside
from ..launch_text import launch_in

#: 'NVIDIA H200', 'NVIDIA GeForce RTX 5090', 'device_name=NVIDIA_RTX_PRO_6000_Blackwell_…'.
_CARD = re.compile(rb"NVIDIA[ _]((?:GeForce[ _])?[A-Z][A-Za-z0-9]{1,20}(?:[ _-][A-Z0-9][A-Za-z0-9]{0,20}){0,6})")
_MOST_CARDS = 64
#: What stands after NVIDIA and is no card.
_NO_CARD = ("Corporation", "Driver", "CUDA", "Container", "Deep", "Software", "Inference", "Release", "Digital")


def beside(text: bytes) -> Beside:
    """The launch command and the cards' names, without repetition. `text`: some whole lines."""
    launch = launch_in(as_text(text)) if b"sglang" in text else None
    names = []
    if b"NVIDIA" in text:
        for count, found in enumerate(_CARD.finditer(text)):
            if count == _MOST_CARDS:
                break
            name = found[1].decode("ascii").replace("_", " ")
            if not name.startswith(_NO_CARD):
                names.append(name)
    return Beside(
        arguments={} if launch is None else launch.arguments,
        env={} if launch is None else launch.env,
        line=None if launch is None else launch.line,
        cards=tuple(dict.fromkeys(names)),
    )
