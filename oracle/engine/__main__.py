"""Answers questions about one SGLang version, a JSON object a line: what a server with such arguments resolves."""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import device
import groups
import stand_ins

# Answers go where nothing else is printed; SGLang's own output goes to standard error.
_ANSWERS = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)


def main() -> None:
    stand_ins.install()
    device.install()
    groups.install()
    import answer
    import runner

    device.patch_totals()
    runner.prepare()
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.freeze()  # SGLang collects before it measures: not the modules once more for every question
    print(json.dumps({"version": answer.VERSION, "served": runner.served()}), file=_ANSWERS, flush=True)
    for line in sys.stdin:
        print(json.dumps(_answered(answer, json.loads(line))), file=_ANSWERS, flush=True)


def _answered(module: Any, question: dict[str, Any]) -> dict[str, Any]:
    try:
        return module.answer(question)
    except BaseException:
        return {"fault": traceback.format_exc()}


main()
