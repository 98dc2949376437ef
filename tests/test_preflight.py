"""Before a real start: an engine that is not there, another version, missing GPUs and another card. No GPU needed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from specbench.configuration.config import RunConfig
from specbench.diagnose import diagnosis
from specbench.errors import LaunchError
from specbench.host import machine, nvml
from specbench.host.machine import Gpu, GpuState
from specbench.lifecycle.preflight import preflight, unusable, without_gpus

MIB = 1024 * 1024
H200 = ("NVIDIA H200", 143771)
ELSEWHERE = "Run it on a machine that has them"

#: A server's argument definitions, in the form of the releases up to 0.5.12.
SERVER_ARGS = """
BACKENDS = ["triton", "flashinfer", "fa3"]
class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--model-path", "--model", type=str)
        parser.add_argument("--host", type=str)
        parser.add_argument("--port", type=int)
        parser.add_argument("--tp-size", "--tensor-parallel-size", type=int)
        parser.add_argument("--mem-fraction-static", type=float)
        parser.add_argument("--speculative-algorithm", type=str)
        parser.add_argument("--attention-backend", choices=BACKENDS)
        parser.add_argument("--cuda-graph-bs", type=int, nargs="+")
        parser.add_argument("--enable-metrics", action="store_true")
        parser.add_argument("--enable-metrics-for-all-schedulers", action="store_true")
        parser.add_argument("--disable-piecewise-cuda-graph", action="store_true")
        parser.add_argument("--device", type=str)
        parser.add_argument("--nnodes", type=int)
"""
ALGORITHMS = """
class SpeculativeAlgorithm(Enum):
    DFLASH = auto()
    EAGLE = auto()
    NGRAM = auto()
    NONE = auto()
    aliases = {"NEXTN": EAGLE}
"""


def engine_folder(folder: Path, version: str | None, *, written: str | None = None) -> Path:
    """A site folder with a package of the engine's name, its metadata, and the file that its build writes."""
    package = folder / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "launch_server.py").touch()
    (package / "srt" / "speculative").mkdir(parents=True)
    (package / "srt" / "server_args.py").write_text(SERVER_ARGS)
    (package / "srt" / "speculative" / "spec_info.py").write_text(ALGORITHMS)
    if version is not None:
        (folder / "sglang.dist-info").mkdir()
        (folder / "sglang.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n"
        )
    if written is not None:
        (package / "_version.py").write_text(f"__version__: str\n__version__ = version = '{written}'\n")
    return folder


def cards(monkeypatch: pytest.MonkeyPatch, *found: tuple[str, int]) -> None:
    state = GpuState(
        gpus=tuple(
            Gpu(index=index, name=name, total_bytes=mib * MIB, free_bytes=mib * MIB)
            for index, (name, mib) in enumerate(found)
        ),
        driver="580.0",
        reason=None if found else "no NVML on this machine: NVML Shared Library Not Found",
    )
    monkeypatch.setattr(machine, "gpus", lambda: state)


def config(site: Path, version: str = "0.5.16", *, count: int = 1, gpu: str = "h200", **engine: Any) -> RunConfig:
    env = {"PYTHONPATH": str(site), **engine.pop("env", {})}
    data = {
        "name": "p",
        "engine": {"version": version, "env": env, **engine},
        "model": "m",
        "gpu": {"name": gpu, "count": count},
    }
    return RunConfig.model_validate(data)


def refused(asked: RunConfig) -> str:
    with pytest.raises(LaunchError) as raised:
        preflight(asked)
    assert len(str(raised.value).splitlines()) == 2
    return str(raised.value)


def test_the_configured_engine_on_the_configured_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards(monkeypatch, H200)
    checked = preflight(config(engine_folder(tmp_path, "0.5.16")))
    assert (checked.installed, checked.notes) == ("0.5.16", ())


def test_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards(monkeypatch, H200)
    (tmp_path / "sglang").mkdir()  # a folder of that name alone (a clone beside the notebooks) is no package
    text = refused(config(tmp_path))
    assert text.startswith(f"engine.python: sglang is not installed for {sys.executable}.\n")
    assert "(engine.python)" in text and "(engine.replay)" in text and "specbench doctor" in text


def test_no_interpreter(tmp_path: Path) -> None:
    assert refused(config(tmp_path, python="/absent/python")).startswith("engine.python: /absent/python: FileNotFound")


def test_an_interpreter_that_fails_says_why_in_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho one >&2\necho libpython.so is missing >&2\nexit 1\n")
    broken.chmod(0o755)
    assert refused(config(tmp_path, python=str(broken))).startswith(
        f"engine.python: {broken}: libpython.so is missing.\n"
    )


def test_what_an_interpreter_prints_by_itself_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards(monkeypatch, H200)
    site = engine_folder(tmp_path, "0.5.16")
    (site / "sitecustomize.py").write_text(
        "import atexit\nprint('[3]\\nWelcome', end='')\natexit.register(print, '{}\\nspecbench')\n"
    )
    assert preflight(config(site)).installed == "0.5.16"


@pytest.mark.parametrize("answer", ["", "[]", "{}", "specbench probe: []", "specbench probe: {}", "specbench probe: {"])
def test_an_interpreter_that_is_none_says_so(tmp_path: Path, answer: str) -> None:
    other = tmp_path / "python"
    other.write_text(f"#!/bin/sh\necho '{answer}'\n")
    other.chmod(0o755)
    assert refused(config(tmp_path, python=str(other))).startswith(f"engine.python: {other}: ")


def test_each_engine_of_a_campaign_is_asked_once(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    interpreter = tmp_path / "python"
    interpreter.write_text(f'#!/bin/sh\necho x >> {asked}\nexec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    site = engine_folder(tmp_path / "site", "0.5.16")

    def point(name: str, version: str, **engine: Any) -> RunConfig:
        return config(site, version, python=str(interpreter), **engine).replace({"name": name})

    points = [
        *(point("a", "0.5.16"), point("b", "0.5.12"), point("c", "0.5.16"), point("d", "0.5.12")),
        point("attached", "0.5.12", attach="http://127.0.0.1:1"),
    ]
    found = unusable(points)
    assert list(found) == ["b", "d"]
    assert found["b"] == found["d"]
    assert found["b"].startswith(f"engine.version: 0.5.12 is asked for, {interpreter} has sglang 0.5.16.\n")
    assert asked.read_text() == "x\nx\n"


def test_another_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards(monkeypatch, H200)
    site = engine_folder(tmp_path, "0.5.16")
    for asked in (config(site, "0.5.12"), config(site, "0.5.12", sizing="0.5.12"), config(site, "0.5.16.post1")):
        text = refused(asked)
        assert f"engine.version: {asked.engine.version} is asked for" in text
        assert "has sglang 0.5.16.\nSet engine.version: 0.5.16" in text


def test_the_label_of_a_build_is_no_other_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards(monkeypatch, H200)
    checked = preflight(config(engine_folder(tmp_path, "0.5.16+cu130")))
    assert (checked.installed, checked.notes) == ("0.5.16+cu130", ())


def test_a_development_build_needs_the_release_that_it_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards(monkeypatch, H200)
    build = "0.0.0.dev11416+g18cb0ce2f"
    site = engine_folder(tmp_path, build)
    assert f"has the development build {build}.\nName the release that it follows (engine.sizing)" in refused(
        config(site)
    )
    (note,) = preflight(config(site, sizing="0.5.16")).notes
    assert note.startswith(f"sglang {build} ran (a development build), engine.version says 0.5.16")
    assert preflight(config(site, build, sizing="0.5.16")).notes == ()


def test_a_source_tree_without_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards(monkeypatch, H200)
    assert preflight(config(engine_folder(tmp_path / "a", None, written="0.5.16"))).installed == "0.5.16"
    unknown = preflight(config(engine_folder(tmp_path / "b", None)))
    assert unknown.installed is None
    assert "could not be read" in unknown.notes[0] and "0.5.16" in unknown.notes[0]


def test_of_two_releases_on_the_path_the_one_that_would_be_imported_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards(monkeypatch, H200)
    new = engine_folder(tmp_path / "new", "0.5.16", written="0.5.16")
    old = engine_folder(tmp_path / "old", "0.5.12", written="0.5.12")
    both = f"{old}{os.pathsep}{new}"
    assert preflight(config(new)).installed == "0.5.16"
    assert preflight(config(new, "0.5.12", env={"PYTHONPATH": both})).installed == "0.5.12"
    assert "has sglang 0.5.12.\n" in refused(config(new, "0.5.16", env={"PYTHONPATH": both}))


def test_of_two_releases_copied_into_one_folder_the_files_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards(monkeypatch, H200)
    site = engine_folder(tmp_path, "0.5.12", written="0.5.16")
    (site / "sglang-0.5.16.dist-info").mkdir()
    (site / "sglang-0.5.16.dist-info" / "METADATA").write_text("Name: sglang\nVersion: 0.5.16\n")
    assert preflight(config(site)).installed == "0.5.16"
    (site / "sglang" / "_version.py").unlink()  # now nothing says whose files these are
    assert preflight(config(site)).installed is None


def test_an_early_release_writes_its_version_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards(monkeypatch, H200)
    site = engine_folder(tmp_path, None)
    (site / "sglang" / "version.py").write_text('__version__ = "0.5.6.post2"\n')
    assert preflight(config(site, "0.5.6.post2")).installed == "0.5.6.post2"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"speculative": {"algorithm": "ddtree"}},
            (
                "speculative.algorithm: DDTREE is not in ENGINE; it has DFLASH, EAGLE, NEXTN, NGRAM.\n"
                "Nearest: DFLASH, or another engine (engine.python)."
            ),
        ),
        (
            {"args": {"disable_prefill_cuda_graph": True}},
            (
                "engine.args.disable_prefill_cuda_graph: ENGINE has no --disable-prefill-cuda-graph among its 15 "
                "flags.\n"
                "Nearest: --disable-piecewise-cuda-graph."
            ),
        ),
        (
            {"args": {"--attention-backend": "triton_attn"}},
            (
                "engine.args.--attention-backend: 'triton_attn' is no choice of --attention-backend in ENGINE.\n"
                "Choices: triton, flashinfer, fa3. Nearest: triton."
            ),
        ),
        (
            {"args": {"enable-met": True}},
            (
                "engine.args.enable-met: --enable-met could be --enable-metrics, --enable-metrics-for-all-schedulers "
                "of ENGINE.\nWrite the whole name."
            ),
        ),
        (
            {"memory": {"max_mamba_cache_size": 4}},
            (
                "memory.max_mamba_cache_size: ENGINE has no --max-mamba-cache-size among its 15 flags.\n"
                "Nothing there is spelled like it: leave it out."
            ),
        ),
        (
            {"args": {"zzz": 1, "yyy": 2}},
            (
                "engine.args.zzz: ENGINE has no --zzz among its 15 flags.\n"
                "Nothing there is spelled like it: leave it out. And 1 more: engine.args.yyy."
            ),
        ),
    ],
)
def test_what_the_installed_engine_does_not_have_is_refused_with_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], told: str
) -> None:
    cards(monkeypatch, H200)
    site = engine_folder(tmp_path, "0.5.12")
    engine = {"args": changes.pop("args", {})}
    asked = config(site, "0.5.12", **engine).to_sections() | changes
    assert refused(RunConfig.model_validate(asked)) == told.replace("ENGINE", f"sglang 0.5.12 at {site}/sglang")
    asked["engine"]["allow_refused"] = True  # to see the engine's own error
    (note,) = preflight(RunConfig.model_validate(asked)).notes[:1]
    assert note.startswith(told.partition(":")[0])


def test_flags_that_it_has_in_any_spelling_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards(monkeypatch, H200)
    args = {"cuda_graph_bs": [1, 2], "--attention-backend": "fa3", "enable-metrics-for": True, "off": None}
    site = engine_folder(tmp_path, "0.5.12")
    asked = config(site, "0.5.12", args=args).replace({"speculative.algorithm": "nextn", "parallel.tp_size": 2})
    checked = preflight(asked)
    assert checked.notes == ()
    assert checked.engine and checked.engine.has and checked.engine.has.algorithms
    assert checked.engine.has.algorithms == ("DFLASH", "EAGLE", "NGRAM", "NEXTN")


def test_what_cannot_be_read_is_a_note_and_refuses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards(monkeypatch, H200)
    site = engine_folder(tmp_path, "0.5.12")
    (site / "sglang" / "srt" / "server_args.py").write_text("class ServerArgs(:\n")
    (site / "sglang" / "srt" / "speculative" / "spec_info.py").unlink()
    asked = config(site, "0.5.12", args={"zzz": 1}).replace({"speculative.algorithm": "DDTREE"})
    assert [note.partition(" could")[0] for note in preflight(asked).notes] == [
        "the flags of the installed sglang",
        "the algorithms of the installed sglang",
    ]


def test_with_a_plug_in_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards(monkeypatch, H200)
    site = engine_folder(tmp_path, "0.5.12")
    plug_in = site / "tree_spec-1.0.dist-info"
    plug_in.mkdir()
    (plug_in / "METADATA").write_text("Name: tree-spec\nVersion: 1.0\n")
    (plug_in / "entry_points.txt").write_text("[sglang.srt.plugins]\ntree = tree_spec:register\n")
    notes = preflight(config(site, "0.5.12").replace({"speculative.algorithm": "DDTREE"})).notes
    assert notes[0] == "plug-ins of sglang are installed (tree), which may add what it lacks"
    assert notes[1].startswith("speculative.algorithm: DDTREE is not in sglang 0.5.12 at ")


def test_missing_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = engine_folder(tmp_path, "0.5.16")
    cards(monkeypatch)
    text = refused(config(site))
    assert text.startswith("gpu.count: 1 × h200 needed, this machine has none (no NVML on this machine: NVML Shared ")
    cards(monkeypatch, H200, H200)
    assert refused(config(site, count=4)).startswith("gpu.count: 4 × h200 needed, this machine has 2 (NVIDIA H200).\n")
    assert preflight(config(site, count=2)).notes == ()
    for spelling in ("nnodes", "--nnodes"):
        assert preflight(config(site, count=4, args={spelling: 2})).notes == ()


@pytest.mark.parametrize(
    ("visible", "fits"),
    [
        *[("0,1", True), ("1", False), ("", False), ("0,-1,1", False), ("0,0", False), ("2,3", False), ("1,2", False)],
        *[("MIG-a,MIG-b", True), ("GPU-1,GPU-2,GPU-3", True)],
    ],
)
def test_gpus_that_are_hidden_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str, fits: bool
) -> None:
    cards(monkeypatch, H200, H200)
    asked = config(engine_folder(tmp_path, "0.5.16"), count=2, env={"CUDA_VISIBLE_DEVICES": visible})
    if fits:
        assert preflight(asked).notes == ()
    else:
        assert "this machine has 2 (NVIDIA H200), CUDA_VISIBLE_DEVICES leaves " in refused(asked)


@pytest.mark.parametrize(
    ("there", "visible", "changes", "told"),
    [
        # Heads that four ranks share are shared by two as well; by three they are not.
        (2, None, {"tp_size": 4}, f"has 2 (NVIDIA H200).\n{ELSEWHERE}, here with 2 (--set parallel.tp_size=2 --"),
        (3, None, {"tp_size": 4}, f"has 3 (NVIDIA H200).\n{ELSEWHERE}, here with 2 (--set parallel.tp_size=2 --"),
        (3, "2", {"tp_size": 4}, f"CUDA_VISIBLE_DEVICES leaves 1.\n{ELSEWHERE}, here with 1 (--set parallel.tp_size=1"),
        (2, "", {"tp_size": 4}, f"CUDA_VISIBLE_DEVICES leaves 0.\n{ELSEWHERE}, or play a recording"),
        (0, None, {"tp_size": 4}, f"has none (no GPU).\n{ELSEWHERE}, or play a recording"),
        # The four are split otherwise than into ranks: which of it to give up is not ours to say.
        (2, None, {"tp_size": 2, "dp_size": 2}, f"has 2 (NVIDIA H200).\n{ELSEWHERE}, or play a recording"),
        # They are there, and hidden.
        (4, "0,1", {"tp_size": 4}, "CUDA_VISIBLE_DEVICES leaves 2.\nUnset CUDA_VISIBLE_DEVICES, or let it name 4"),
    ],
)
def test_too_few_gpus_are_told_in_two_lines_with_what_can_be_done(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    there: int,
    visible: str | None,
    changes: dict[str, int],
    told: str,
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    card = Gpu(index=0, name="NVIDIA H200", total_bytes=143771 * MIB, free_bytes=143000 * MIB)
    state = GpuState(gpus=(card,) * there, driver="580", reason=None if there else "no GPU")
    monkeypatch.setattr(machine, "gpus", lambda: state)
    asked = config(tmp_path, count=4).replace({f"parallel.{key}": value for key, value in changes.items()})
    text = without_gpus([asked])[asked.name]
    assert text.startswith("gpu.count: 4 × h200 needed, this machine has ")
    assert told in text and text.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "mib", "gpu", "same"),
    [
        ("NVIDIA H200", 143771, "h200", True),
        ("NVIDIA H20", 97871, "h200", False),
        ("NVIDIA H200", 143771, "h20", False),
        ("NVIDIA H20", 97871, "rtx-pro-6000", False),  # as much memory, another card
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, "rtx-pro-6000", True),
        ("NVIDIA H100 80GB HBM3", 81559, "h100", True),
        ("NVIDIA H100 NVL", 95830, "h100", False),
        ("NVIDIA A100-SXM4-80GB", 81920, "a100-80", True),
        ("NVIDIA A100-SXM4-40GB", 40960, "a100-80", False),
        ("NVIDIA GeForce RTX 5090", 32607, "rtx-5090", True),
    ],
)
def test_another_card_is_a_loud_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, mib: int, gpu: str, same: bool
) -> None:
    cards(monkeypatch, (name, mib))
    notes = preflight(config(engine_folder(tmp_path, "0.5.16"), gpu=gpu)).notes
    if same:
        assert notes == ()
    else:
        assert len(notes) == 1
        assert notes[0].startswith(f"ANOTHER CARD: this machine has {name} ({mib:,} MiB); ")


def test_a_card_that_the_server_does_not_see_is_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards(monkeypatch, H200, ("NVIDIA T400", 4096))
    site = engine_folder(tmp_path, "0.5.16")
    assert preflight(config(site, env={"CUDA_VISIBLE_DEVICES": "0"})).notes == ()
    for env in ({}, {"CUDA_VISIBLE_DEVICES": "1"}, {"CUDA_VISIBLE_DEVICES": "GPU-1"}):
        (note,) = preflight(config(site, env=env)).notes
        assert note.startswith("ANOTHER CARD: this machine has NVIDIA T400 (4,096 MiB); ")


def test_without_the_nvml_package_gpus_are_unknown_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_connect", lambda: nvml.NOT_INSTALLED)
    (note,) = preflight(config(engine_folder(tmp_path, "0.5.16"))).notes
    assert note == "GPUs could not be checked: no NVML on this machine: nvidia-ml-py is not installed"


def test_a_server_on_the_cpu_needs_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards(monkeypatch)
    (note,) = preflight(config(engine_folder(tmp_path, "0.5.16"), args={"device": "cpu"})).notes
    assert "ran on cpu" in note
    assert preflight(config(tmp_path, gpu="cpu", args={"device": "cpu"})).notes == ()


def test_a_host_as_card_goes_with_the_engine_on_the_cpu_only(tmp_path: Path) -> None:
    text = refused(config(engine_folder(tmp_path, "0.5.16"), gpu="cpu"))
    assert (
        text
        == "gpu.name: cpu is no GPU, and the engine would look for one.\nSet engine.args.device: cpu, or name the card."
    )


def test_the_log_of_a_start_without_the_engine_is_diagnosed(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    missing = "(ModuleNotFoundError: No module named 'sglang')"
    said = f"Error while finding module specification for 'sglang.launch_server' {missing}"
    log.write_text(f"/opt/venv/bin/python: {said}\n")
    found = diagnosis.of_log(log)
    (finding,) = found.findings
    assert (found.status, finding.id, finding.severity) == ("crashed", "bad-environment", "fatal")
    assert said in finding.cause and "engine.python" in finding.cause
    assert [(line.line, said in line.text) for line in finding.evidence] == [(1, True)]
    assert finding.remedies == ()
