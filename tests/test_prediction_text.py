"""How many figures of a prediction are off, which of them lead, and the likely cause in one line."""

from __future__ import annotations

from pathlib import Path

from specbench.cli.prediction_text import prediction_lines
from specbench.diagnose.diagnosis import of_path

SGLANG = Path(__file__).parent / "logs" / "sglang"


def lines(file: str, *, better: bool = False, everything: bool = False) -> list[str]:
    found = of_path(SGLANG / file)
    return list(prediction_lines(found, "config", "from the configuration", better=better, everything=everything))


EXPLAINED = (
    "  slack, state_slots, kv_tokens: free memory: -4.51 GiB against the GPU table's 138.21 GiB; the 6 others follow "
    "from these (each figure: --all)"
)


def test_free_memory_that_another_program_took_explains_all_that_is_off() -> None:
    """133.70 - 138.21 = -4.51 GiB. Off: slots, tokens and slack of two ranks, and conv, ssm and KV that follow."""
    assert lines("provoked/0.5.16-tp2-card-shared.log") == [
        "prediction from the configuration: 5 figures as logged, 12 off",
        EXPLAINED,
    ]


def test_a_prediction_that_is_right_has_nothing_to_explain() -> None:
    assert lines("provoked/0.5.16-others.log") == ["prediction from the configuration: 10 figures as logged, 0 off"]


def test_each_figure_is_told_where_it_is_asked_for() -> None:
    told = lines("one_rank/0.5.16-tp4-dflash-32.log.gz", everything=True)
    assert told[0] == "prediction from the configuration: 7 figures as logged, 7 off"
    assert len(told) == 8
    assert "  state_slots TP0: off by 1; free memory: +1.13 GiB against the GPU table's 137.99 GiB" in told
    assert "  kv TP0: off by 0.29 GiB; follows from kv_tokens" in told
    leading = lines("one_rank/0.5.16-tp4-dflash-32.log.gz", better=True)
    assert [line.split(":")[0].strip() for line in leading[1:]] == ["slack TP0", "state_slots TP0", "kv_tokens TP0"]
