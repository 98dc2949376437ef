"""The budget of an RTX PRO 6000 on an H200: the fraction that is passed, and what it leaves for the pools."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from specbench import gpus, show
from specbench.budget.predict import predict
from specbench.configuration.config import RunConfig
from specbench.diagnose.diagnosis import of_record
from specbench.diagnose.document import to_document
from specbench.engines.sglang.offsets import measured_free
from specbench.engines.sglang.resolve import settings
from specbench.errors import ConfigError
from specbench.host import machine
from specbench.host.gpu_use import InUse, Probe
from specbench.host.machine import Gpu, GpuState
from specbench.lifecycle.emulating import emulating
from specbench.records.caveats import marks_set
from specbench.records.record import RunRecord
from specbench.running.recorded import as_recorded
from specbench.running.run import run as run_once
from specbench.studies.study import study
from specbench.units import GIB, MIB, gib_text_to_quantity

RECORDS = Path(__file__).parent / "records"
TOTAL = 143_771 * MIB
IDLE = 143_152 * MIB  # NVML on an idle H200


def run(requests: int = 4, *, fraction: float | None = 0.75, gpu: dict[str, object] | None = None) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "emulated",
            "engine": {"version": "0.5.12"},
            "model": "Qwen/Qwen3.6-27B",
            "gpu": gpu or {"name": "h200", "emulate": "rtx-pro-6000"},
            "speculative": {
                "algorithm": "DFLASH",
                "draft_model_path": "z-lab/Qwen3.6-27B-DFlash",
                "num_draft_tokens": 16,
            },
            "memory": {
                "mem_fraction_static": fraction,
                "mamba_full_memory_ratio": 0.5,
                "max_running_requests": requests,
                "mamba_radix_cache_strategy": "extra_buffer",
                "context_length": 32768,
            },
        }
    )


def seen(*free: int, total: int = TOTAL) -> Probe:
    uses = [
        InUse(gpu=index, used_bytes=total - one, free_bytes=one, total_bytes=total) for index, one in enumerate(free)
    ]
    return lambda: uses


@pytest.fixture(autouse=True)
def _all_gpus_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def limits(budget) -> tuple[int, int, str]:
    return budget.limits["state_slots"].value.point, budget.limits["kv_tokens"].value.point, budget.verdict


@pytest.mark.parametrize(
    ("requests", "slots", "tokens", "verdict"), [(4, 24, 87_061, "serves"), (8, 2, 11_893, "refused")]
)
def test_the_story_on_paper(requests: int, slots: int, tokens: int, verdict: str) -> None:
    """What a server with 0.50814 of an H200 logged (0512_dflash_r4_exact, 0512_dflash_r8_exact)."""
    assert limits(predict(run(requests))) == (slots, tokens, verdict)
    assert limits(predict(run(requests, gpu={"name": "rtx-pro-6000"}))) == (slots, tokens, verdict)


@pytest.mark.parametrize(("requests", "slots", "tokens"), [(4, 24, 87_061), (8, 2, 11_893)])
def test_the_story_from_the_memory_that_an_h200_logs(requests: int, slots: int, tokens: int) -> None:
    logged = (gib_text_to_quantity("139.13"), gib_text_to_quantity("88.07"))
    free = measured_free("0.5.12", "DFLASH", 1, "h200", *logged)
    found = predict(run(requests), free=free)
    assert limits(found)[0] == slots
    assert limits(found)[1] == pytest.approx(tokens, abs=3)
    assert "(1 - 0.50814)" in found.left.numbers
    # a log shows another fraction than computed: that one counts
    told = predict(run(requests), free=free, passed_fraction=0.6)
    assert "(1 - 0.6)" in told.left.numbers


def test_both_bases_leave_the_same_for_the_pools() -> None:
    logged = (gib_text_to_quantity("139.13"), gib_text_to_quantity("88.07"))
    measured = predict(run(), free=measured_free("0.5.12", "DFLASH", 1, "h200", *logged))
    assert predict(run()).left.bytes.point / GIB == pytest.approx(19.5912, abs=0.0002)
    assert measured.left.bytes.point / GIB == pytest.approx(19.5912, abs=0.0002)


def test_the_passed_fraction_by_the_table_and_by_an_idle_card_are_the_same() -> None:
    found = emulating(run(), seen(IDLE))
    assert found is not None
    assert found.emulation.passed == settings(run()).emulation.passed == pytest.approx(0.50814, abs=1e-6)
    assert "139.80 GiB free by NVML now, as on that card" in found.emulation.host_source


def test_a_few_mib_by_which_an_idle_card_reads_differently_move_nothing() -> None:
    """Seen on an H200: 4 MiB more free by NVML, the engine found what it always finds, and 22 tokens were missing."""
    found = emulating(run(), seen(IDLE + 4 * MIB))
    assert found is not None
    assert found.emulation.passed == settings(run()).emulation.passed
    assert "139.80 GiB free by NVML now, as on that card" in found.emulation.host_source
    assert found.emulation.arithmetic == "0.75 × 94.3065 GiB = 70.7299 GiB = 0.50814012 × 139.1937 GiB"
    assert found.notes[0].startswith("EMULATED BUDGET OF RTX PRO 6000 ON H200: mem_fraction_static 0.75 (given)")
    assert "speed: every time is that of H200" in found.notes[0]


def test_a_card_with_a_little_less_is_passed_a_little_more() -> None:
    # 70.7299 GiB of 139.1937 GiB less 50 MiB
    found = emulating(run(), seen(IDLE - 50 * MIB)).emulation
    assert found.passed == pytest.approx(70.7299 / (139.1937 - 50 / 1024), abs=1e-6)


def test_the_fullest_of_the_gpus_used_decides() -> None:
    config = run().replace({"gpu.count": 2, "parallel.tp_size": 2})
    found = emulating(config, seen(IDLE, IDLE - 30 * MIB, IDLE - 60 * MIB)).emulation
    assert "-30 MiB" in found.host_source
    assert found.ranks == 2


def test_a_card_in_use_is_told_and_not_taken_as_measured() -> None:
    found = emulating(run(), seen(IDLE - 3 * GIB))
    assert found.emulation == settings(run()).emulation
    # 0.50814 × 3 GiB: the budget is a share of what is free
    assert found.notes[1] == (
        "other processes hold 3.00 GiB of a GPU before the start: the budget is 1.52 GiB smaller than that of "
        "RTX PRO 6000 (0.5081 of it)"
    )


@pytest.mark.parametrize(("free", "total"), [((), TOTAL), ((90 * GIB,), 97_887 * MIB)])
def test_without_the_card_the_table_is_used(free: tuple[int, ...], total: int) -> None:
    assert emulating(run(), seen(*free, total=total)).emulation == settings(run()).emulation


def test_a_hidden_gpu_is_not_looked_at() -> None:
    config = run().replace({"engine.env": {"CUDA_VISIBLE_DEVICES": "1"}})
    assert len(emulating(config, seen(IDLE - 3 * GIB, IDLE)).notes) == 1


def test_a_card_without_a_row_goes_by_nvml() -> None:
    config = run(gpu={"name": "h100", "emulate": "l40s"})
    found = emulating(config, seen(round(79.1 * GIB), total=81_559 * MIB)).emulation
    # 139.796875 - 139.13 GiB are the engine's own, on the H200; 0.06366 are the offset of the solver
    assert found.host_free_bytes / GIB == pytest.approx(79.1 - 0.666875 + 0.06366, abs=1e-6)
    assert found.host_source == (
        "79.10 GiB free by NVML now, less 0.67 GiB that the engine's processes take, as measured with 1 GPU on H200"
    )


@pytest.mark.parametrize(
    ("ranks", "own_gib", "words"),
    [
        (2, 139.796875 - 138.28, "1.52 GiB that the engine's processes take, as measured with 2 GPUs on H200"),
        (4, 139.796875 - 138.00, "1.80 GiB that the engine's processes take, as measured with 4 GPUs on H200"),
        (8, 139.796875 - 138.00, "1.80 GiB that the engine's processes take, as measured with 4 GPUs on H200"),
    ],
)
def test_what_the_engine_takes_of_it_depends_on_the_number_of_gpus(ranks: int, own_gib: float, words: str) -> None:
    """Of the logs of 0.5.12 on an H200, whose idle card shows 143,152 MiB."""
    config = run(gpu={"name": "h100", "emulate": "l40s", "count": ranks}).replace({"parallel.tp_size": ranks})
    found = emulating(config, seen(*[round(79.1 * GIB)] * ranks, total=81_559 * MIB)).emulation
    assert found.host_free_bytes / GIB == pytest.approx(79.1 - own_gib + 0.003, abs=1e-6)
    assert found.host_source.endswith(words)


@pytest.mark.parametrize("free", ["", ", free_gib: {2: {low: 138, point: 138.2, high: 139, source: a log}}"])
def test_what_the_engine_takes_of_it_is_not_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: str) -> None:
    """No card of the table was measured with that many GPUs."""
    (tmp_path / "gpus.yaml").write_text(
        f"h200: {{title: A, total_mib: 143771, idle_free_mib: 143152{free}}}\n"
        "h100: {title: B, total_mib: 81559}\nl40s: {title: C, total_mib: 46068}\n"
    )
    monkeypatch.setattr(gpus, "DATA", tmp_path)
    gpus._gpus.cache_clear()
    try:
        with pytest.raises(ConfigError) as caught:
            emulating(run(gpu={"name": "h100", "emulate": "l40s"}), seen(round(79.1 * GIB), total=81_559 * MIB))
    finally:
        gpus._gpus.cache_clear()
    assert str(caught.value) == (
        "gpu.emulate: what the engine's processes take of h100 before they load is not known: no card of "
        "data/gpus.yaml has both idle_free_mib and free_gib for 1 GPU.\n"
        "Add them to the row of h100, or leave gpu.emulate out."
    )


def test_a_measured_offset_is_of_the_card_that_logged_it() -> None:
    """0.5.12, TP2, DFLASH: two H200 log 138.28 and the solver read 0.0004 less (measured). Two RTX PRO 6000 log 93.5
    (inferred); what their solver reads beyond that is not measured, 0.003 by the range over all rows."""
    found = settings(run().replace({"parallel.tp_size": 2, "gpu.count": 2})).emulation
    assert found is not None
    assert found.host_free_bytes / GIB == pytest.approx(138.28 - 0.0004, abs=1e-6)
    assert found.card_free_bytes / GIB == pytest.approx(93.5 + 0.003, abs=1e-6)
    assert found.passed == round(0.75 * 93.503 / 138.2796, 8)


def test_without_a_fraction_the_default_of_the_emulated_card_is_passed() -> None:
    small = settings(run(fraction=None, gpu={"name": "rtx-pro-6000"}))
    emulated = settings(run(fraction=None)).emulation
    assert emulated.asked == small.fraction
    assert emulated.asked_source == "default of sglang 0.5.12"
    # no other fraction leaves as many bytes
    assert emulated.passed * emulated.host_free_bytes == pytest.approx(
        small.fraction * emulated.card_free_bytes, rel=1e-7
    )


def test_the_room_outside_the_budget_is_that_of_the_free_memory() -> None:
    found = settings(run()).emulation
    # 139.1937 - 94.3065; the totals of the two cards differ by 44.81
    assert found.not_emulated[0].startswith(
        "room outside the budget: H200 has 44.89 GiB more for graphs and activations, so that RTX PRO 6000 can run out"
    )
    assert found.room_bytes == pytest.approx(44.8872 * GIB, rel=1e-5)


def test_defaults_that_differ_are_told() -> None:
    same = settings(run()).emulation.not_emulated
    assert not [text for text in same if text.startswith("the default of")]
    other = settings(run(gpu={"name": "h200", "emulate": "l40s"})).emulation.not_emulated
    assert "the default of chunked_prefill_size: 8,192 by the size of H200, 4,096 on L40S" in other


@pytest.fixture
def emulated_record(tmp_path: Path) -> Callable[[str], RunRecord]:
    """A recording with 0.50814 of an H200, as a run that was asked for 0.75 of an RTX PRO 6000 leaves it."""

    def of(name: str) -> RunRecord:
        folder = shutil.copytree(RECORDS / name, tmp_path / name)
        text = (folder / "config.yaml").read_text(encoding="utf-8")
        text = text.replace("emulate: null", "emulate: rtx-pro-6000")
        text = text.replace("mem_fraction_static: 0.50814", "mem_fraction_static: 0.75")
        (folder / "config.yaml").write_text(text, encoding="utf-8")
        return RunRecord.open(folder)

    return of


@pytest.mark.parametrize("name", ["0512_dflash_r4_exact", "0512_dflash_r8_exact"])
def test_a_run_is_reconciled_on_both_bases(emulated_record, name: str) -> None:
    found = of_record(emulated_record(name))
    assert found.reconciliation.off == ()
    assert set(found.budgets) == {"config", "measured"}


def test_the_larger_cards_room_outside_the_budget_is_expected(emulated_record) -> None:
    slack = of_record(emulated_record("0512_dflash_r4_exact")).reconciliation.of("slack", "config")[0]
    # the engine logs 62.47 GiB free when the last pool stands; an RTX PRO 6000 would have 44.89 GiB less
    assert (slack.observed, slack.verdict) == (gib_text_to_quantity("62.47").bytes, "match")


def test_a_prediction_that_is_moved_to_the_larger_card_says_so(emulated_record) -> None:
    table = str(show.reconciliation(study(emulated_record("0512_dflash_r4_exact").folder)))
    (slack,) = [line for line in table.partition("From four sides")[0].splitlines() if line.startswith("slack")]
    assert slack.count("(on the H200 that is there)") == 1
    (taken,) = [line for line in table.splitlines() if line.startswith("communication")]
    assert taken.count("(GPU table, on the H200 that is there)") == 1
    assert table.count("that is there") == 2
    plain = str(show.reconciliation(study(RECORDS / "0512_dflash_r4_exact")))
    assert "that is there" not in plain


def test_remedies_name_the_fraction_of_the_emulated_card(emulated_record) -> None:
    remedies = of_record(emulated_record("0512_dflash_r8_exact")).findings[0].remedies
    fraction = next(one for one in remedies if "memory.mem_fraction_static" in one.set)
    assert fraction.set["memory.mem_fraction_static"] > 0.75
    assert fraction.basis == "measured"
    assert "as on RTX PRO 6000" in fraction.note


def test_a_diagnosis_keeps_the_asked_fraction_and_the_passed_one_apart(emulated_record) -> None:
    two = {"card": "RTX PRO 6000", "host": "H200", "asked": 0.75, "asked_source": "given"}
    imported = RunRecord.open(RECORDS / "h200_story-4")  # env.json has both
    for record, fraction in ((imported, 0.5081403), (emulated_record("0512_dflash_r4_exact"), 0.50814)):
        document = to_document(of_record(record))
        assert document["requested"]["mem_fraction_static"] == 0.75
        assert document["emulation"] == {**two, "passed": fraction}
    plain = to_document(of_record(RunRecord.open(RECORDS / "0512_dflash_r4_exact")))
    assert (plain["requested"]["mem_fraction_static"], plain["emulation"]) == (0.50814, None)


def stand_in(folder: Path) -> Path:
    """A site folder whose engine prints its arguments and variables, and ends."""
    package = folder / "site" / "sglang"
    package.mkdir(parents=True)
    (folder / "site" / "sglang.dist-info").mkdir()
    (folder / "site" / "sglang.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.12\n"
    )
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text(
        "import os, sys\n"
        "print('fraction', sys.argv[sys.argv.index('--mem-fraction-static') + 1])\n"
        "print('acceptance', os.environ['SGLANG_SIMULATE_ACC_LEN'], os.environ['SGLANG_SIMULATE_ACC_METHOD'])\n"
        "sys.exit(3)\n"
    )
    return folder / "site"


def test_a_run_passes_the_fraction_and_records_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = Gpu(index=0, name="NVIDIA H200", total_bytes=TOTAL, free_bytes=IDLE)
    monkeypatch.setattr(machine, "gpus", lambda: GpuState(gpus=(card,), driver="580", reason=None))
    asked = run().replace(
        {
            "engine.env": {"PYTHONPATH": str(stand_in(tmp_path))},
            "speculative": {"algorithm": "NEXTN", "num_steps": 3, "num_draft_tokens": 4, "eagle_topk": 1},
            "workload.simulate_acc_len": 2.5,
            "workload.requests": 0,
        }
    )
    record = run_once(asked, tmp_path / "run")
    lines = record.log_path.read_text(encoding="utf-8").splitlines()
    assert lines == ["fraction 0.50814012", "acceptance 2.5 match-expected"]
    assert record.config.memory.mem_fraction_static == 0.75  # as asked, of the emulated card
    assert "0.50814012" in record.command()
    kept = record.env["emulation"]
    assert (kept["asked"], kept["passed"], kept["card"], kept["host"]) == (0.75, 0.50814012, "RTX PRO 6000", "H200")
    assert kept["arithmetic"] == "0.75 × 94.3065 GiB = 70.7299 GiB = 0.50814012 × 139.1937 GiB"
    assert record.env["simulated_acceptance"] == {"SGLANG_SIMULATE_ACC_LEN": "2.5"}
    simulated, emulated = marks_set(record)
    assert simulated == "SIMULATED ACCEPTANCE 2.5: speed is a cost model, not a result"
    assert emulated == (
        "EMULATED BUDGET OF RTX PRO 6000 ON H200: mem_fraction_static 0.75 of RTX PRO 6000 was passed as 0.50814012; "
        "room outside the budget and speed are those of H200"
    )
    assert simulated in record.status.notes
    assert any(note.startswith("EMULATED BUDGET OF RTX PRO 6000 ON H200") for note in record.status.notes)


def test_a_replay_is_of_the_card_that_was_emulated(emulated_record: Callable[[str], RunRecord]) -> None:
    record = emulated_record("0512_dflash_r4_exact")
    plain = run().replace({"gpu": {"name": "h200"}, "memory.mem_fraction_static": None})
    assert as_recorded(plain, record).config.gpu.emulate == "rtx-pro-6000"
    with pytest.raises(ConfigError, match=r"gpu\.emulate: l40s asked, rtx-pro-6000 recorded"):
        as_recorded(run(gpu={"name": "h200", "emulate": "l40s"}), record)


def test_a_card_does_not_stand_for_itself() -> None:
    with pytest.raises(ConfigError) as raised:
        settings(run().replace({"gpu.name": "rtx-pro-6000", "gpu.emulate": "rtx-pro-6000"}))
    assert str(raised.value) == (
        "gpu.emulate: rtx-pro-6000 is the card of gpu.name itself, so there is nothing to emulate.\n"
        "Leave gpu.emulate out, or name a smaller card."
    )


def test_no_emulation_without_the_key() -> None:
    assert emulating(run(gpu={"name": "h200"}), seen(IDLE)) is None
    budget = predict(run(gpu={"name": "h200"}))
    assert budget.emulation is None
    assert dataclasses.asdict(predict(run()).emulation)["passed"] == pytest.approx(0.50814, abs=1e-6)


def full(fraction: float, *, less: int = 0) -> tuple[RunConfig, Probe]:
    """An H100 that has exactly as much free as an L40S before it loads, or so many bytes less."""
    config, total, free = run(fraction=fraction, gpu={"name": "h100", "emulate": "l40s"}), 81_559 * MIB, 60 * GIB
    found = emulating(config.replace({"memory.mem_fraction_static": 0.75}), seen(free, total=total)).emulation
    return config, seen(free - (found.host_free_bytes - found.card_free_bytes) - less, total=total)


@pytest.mark.parametrize(("fraction", "passed"), [(1e-9, "0"), (0.9999999999, "1")])
def test_a_fraction_that_rounds_to_nothing_or_to_all_is_refused(fraction: float, passed: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"^gpu.emulate: .* would be passed as {passed}, rounded to 8 digits"
    ) as caught:
        emulating(*full(fraction))
    assert len(str(caught.value).splitlines()) == 2


def test_a_card_whose_memory_others_hold_is_not_called_the_smaller_one() -> None:
    assert emulating(*full(0.75)).emulation.passed == 0.75
    with pytest.raises(
        ConfigError, match=r"^gpu.emulate: l40s has [\d.]+ GiB free before loading, of gpu.name, h100, only"
    ):
        emulating(*full(0.75, less=MIB))
