"""SGLang's own serving benchmark, unmodified, with the same meter around its requests as specbench's client has.

    python client.py LOAD.json TOKENIZER_FOLDER [arguments of sglang.benchmark.serving]

Runs in an environment that has the sglang wheel without its dependencies. What is stood in for: the initialisers of
`sglang`, `sglang.srt` and `sglang.srt.utils`, which load torch and the whole frontend; one constant of its
disaggregation; and `datasets`, which only loads a set of pictures. What sends, receives and counts is SGLang's.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from specbench.load.client_load import LoadMeter

VOCABULARY = 32_000


def stand_in() -> None:
    """Packages whose initialisers are skipped, and modules of which one name is asked."""
    root = Path(str(importlib.metadata.distribution("sglang").locate_file("sglang")))
    for name in ("sglang", "sglang.srt", "sglang.srt.utils"):
        package = ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    for name, attribute in (("sglang.srt.disaggregation.utils", "FAKE_BOOTSTRAP_HOST"), ("datasets", "load_dataset")):
        module = ModuleType(name)
        setattr(module, attribute, None)
        sys.modules[name] = module
    sys.modules["sglang.srt.disaggregation"] = ModuleType("sglang.srt.disaggregation")


def tokenizer(folder: Path) -> None:
    """A word for every id: prompts of exact lengths, and something to count the answers with."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({f"t{number}": number for number in range(VOCABULARY)}, unk_token="t0"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=made, unk_token="t0").save_pretrained(folder)


class Metered:
    """A request function of the benchmark, measured from the first request to the end of the last."""

    def __init__(self, request: Any, expected: int) -> None:
        self._request, self._left, self._chunks = request, expected, 0
        self._meter: LoadMeter | None = None
        self.load: Any = None

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._meter is None:
            self._meter = LoadMeter()
            self._meter.start()
        output = await self._request(*args, **kwargs)
        self._left -= 1
        if self._left == 0:
            self.load = self._meter.stop(0)
        return output


def main() -> None:
    target, folder, *arguments = sys.argv[1:]
    tokenizer(Path(folder))  # first: transformers looks for the real `datasets`
    stand_in()
    from sglang.benchmark import serving  # type: ignore[import-not-found]

    prompts = int(arguments[arguments.index("--num-prompts") + 1])
    metered = Metered(serving.ASYNC_REQUEST_FUNCS["sglang"], prompts)
    serving.ASYNC_REQUEST_FUNCS["sglang"] = metered
    sys.argv = ["serving", *arguments, "--tokenizer", folder, "--model", folder]
    serving.cli_main()
    load = metered.load
    Path(target).write_text(
        json.dumps(
            {
                "wall_s": load.wall_s,
                "cpu_s": load.cpu_s,
                "lag_p50_s": load.lag_p50_s,
                "lag_p99_s": load.lag_p99_s,
                "lag_max_s": load.lag_max_s,
            }
        )
    )


if __name__ == "__main__":
    main()
