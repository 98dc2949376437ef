"""What an installed SGLang has, read from its files; and that the flags we write are those that the releases have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from specbench import speculative
from specbench.configuration.config import RunConfig
from specbench.engines.sglang.capabilities import Flag, of_help, read
from specbench.engines.sglang.command import command
from specbench.engines.sglang.command_line import flags_of
from specbench.engines.sglang.fits import lacking
from specbench.engines.sglang.flags import ALGORITHM_SINCE, FLAGS, flag_name, kv_dtypes, released_flags
from specbench.versions import at_least

#: What the source files of nine releases say, read once with this very module (see the file's "about").
RELEASES: dict[str, Any] = json.loads((Path(__file__).parent / "sglang_flags.json").read_text())["releases"]

BASIC = """
    model_path: A[str, Arg(help="Weights.", aliases=["--model"])]
    port: A[int, "The port."] = 30000
    tp_size: A[int, Arg(help="Ranks.", cli_name="--tensor-parallel-size", aliases=["--tp-size"])] = 1
    mem_fraction_static: A[Optional[float], "The share."] = None
    speculative_algorithm: A[Optional[str], "Builtins: EAGLE, NEXTN. Or any name that is " + "registered."] = None
"""


def tree(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        file = folder / "srt" / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def test_annotated_fields_are_flags(tmp_path: Path) -> None:
    fields = f"""
from sglang.srt.arg_groups.choices import BACKENDS, MORE
class Memory(msgspec.Struct):
{BASIC}
    backend: A[Optional[str], Arg(help="Which.", choices=BACKENDS)] = None
    more: A[str, Arg(help="Which.", choices=MORE)] = "c"
    mode: A[Optional[Literal["fast", "slow"]], Arg(help="How.")] = None
    kind: A[Literal[1, 2], "A kind."] = 1
    told: A[bool, f"Help with {{a_value}}."] = False
    hidden: A[str, Arg(help="Python only.", no_cli=True)] = ""
    derived: A[int, Derived(doc="no input")] = 0
    plain: int = 0
"""
    choices = "BACKENDS = ['a', 'b']\nMORE = [*BACKENDS, 'c'] + list(('d',))\n"
    has = read(
        tree(
            tmp_path,
            server_args="class ServerArgs: pass\n",
            arg_groups__fields__memory=fields,
            arg_groups__choices=choices,
            speculative__spec_info="class SpeculativeAlgorithm(Enum):\n    UNO = auto()\n    NONE = auto()\n",
            speculative__extra="@SpeculativeAlgorithm.register('tree', supports_overlap=False)\ndef make(args): ...\n",
        )
    )
    assert has.flags == {
        **dict.fromkeys(("model-path", "model", "port", "tensor-parallel-size", "tp-size"), Flag()),
        **dict.fromkeys(("mem-fraction-static", "speculative-algorithm", "told"), Flag()),
        "backend": Flag(choices=("a", "b")),
        "more": Flag(choices=("a", "b", "c", "d")),
        "mode": Flag(choices=("fast", "slow")),
        "kind": Flag(choices=("1", "2")),
    }
    assert has.algorithms == ("UNO", "TREE")
    assert has.source == f"the source files in {tmp_path}"


def test_choices_that_are_computed_are_unknown(tmp_path: Path) -> None:
    source = f"""
TWICE = ["a"]
if cuda(): TWICE = ["b"]
class ServerArgs:
{BASIC}
    @staticmethod
    def add_cli_args(parser):
        parsers = list(Parsers.keys())
        parser.add_argument("--twice", choices=TWICE)
        parser.add_argument("--parser", choices=["auto"] + parsers)
        parser.add_argument("--mode", choices=[m.name for m in Mode])
        parser.add_argument("--elsewhere", choices=ABSENT)
"""
    flags = read(tree(tmp_path, server_args=source)).flags
    assert flags
    assert [flags[name] for name in ("twice", "parser", "mode", "elsewhere")] == [Flag()] * 4


def test_a_copy_of_which_files_are_missing_or_broken_is_unknown_not_poor(tmp_path: Path) -> None:
    whole = f"class ServerArgs:\n{BASIC}"
    assert read(tree(tmp_path / "whole", server_args=whole)).flags
    assert read(tree(tmp_path / "a", server_args="class ServerArgs: pass\n")).flags is None
    assert read(tree(tmp_path / "b", server_args=whole, arg_groups__fields__x="def (:\n")).flags is None
    assert read(tmp_path / "absent").flags is None
    assert read(tmp_path / "absent").algorithms is None


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    folder = tree(tmp_path, server_args=f"class ServerArgs:\n{BASIC}")
    assert "more" not in (read(folder).flags or {})
    tree(tmp_path, server_args=f"class ServerArgs:\n{BASIC}    more: A[int, 'More.'] = 0\n")
    assert "more" in (read(folder).flags or {})


def test_the_engines_own_help(tmp_path: Path) -> None:
    script = tmp_path / "engine.py"
    script.write_text(
        "import argparse\n"
        "parser = argparse.ArgumentParser(prog='launch_server.py')\n"
        "parser.add_argument('--model-path', '--model', required=True, help='Weights.')\n"
        "for name in ('port', 'tp-size', 'mem-fraction-static'): parser.add_argument('--' + name, help='-- see docs')\n"
        "parser.add_argument('--speculative-algorithm', help='Builtins: EAGLE, NEXTN, DFLASH. Or use --model')\n"
        "parser.add_argument('--attention-backend', choices=['triton', 'fa3'])\n"
        "parser.add_argument('--enable-metrics', action='store_true')\n"
        "parser.parse_args()\n"
    )
    for columns in ("80", "10000"):
        done = subprocess.run(
            [sys.executable, str(script), "--help"],
            capture_output=True,
            text=True,
            check=True,
            env={"COLUMNS": columns},
        )
        has = of_help(done.stdout)
        assert has.flags == {
            **dict.fromkeys(("help", "model-path", "model", "port", "tp-size", "mem-fraction-static"), Flag()),
            **dict.fromkeys(("speculative-algorithm", "enable-metrics"), Flag()),
            "attention-backend": Flag(choices=("triton", "fa3")),
        }
        assert has.algorithms == ("EAGLE", "NEXTN", "DFLASH")


# ── what nine releases have ──────────────────────────────────────────────────────────────────────────────────────────


def everything(version: str) -> RunConfig:
    """A configuration that states every key which is a flag."""
    memory: dict[str, Any] = {
        "mem_fraction_static": 0.75,
        "mamba_full_memory_ratio": 0.5,
        **dict.fromkeys(("max_running_requests", "max_mamba_cache_size", "max_total_tokens", "page_size"), 8),
        **dict.fromkeys(("context_length", "chunked_prefill_size", "cuda_graph_max_bs"), 8),
        "kv_cache_dtype": "fp8_e4m3",
        "mamba_ssm_dtype": "bfloat16",
        "disable_radix_cache": True,
        "disable_overlap_schedule": True,
    }
    if at_least(version, "0.5.8"):
        memory["mamba_radix_cache_strategy"] = "extra_buffer"
    return RunConfig.model_validate(
        {
            "name": "everything",
            "engine": {"version": version},
            "model": "m",
            "gpu": {"name": "h200"},
            "parallel": {"tp_size": 2, "pp_size": 2, "dp_size": 2, "enable_dp_attention": True},
            "speculative": {
                "algorithm": "EAGLE",
                "draft_model_path": "d",
                **dict.fromkeys(("num_draft_tokens", "num_steps", "eagle_topk"), 2),
            },
            "memory": memory,
        }
    )


@pytest.mark.parametrize("version", RELEASES)
def test_every_flag_that_we_write_is_in_the_release_with_our_value(version: str) -> None:
    has = RELEASES[version]["has"]
    written = flags_of(command(everything(version), model_path="m", draft_path="d", host="h", port=1))
    ours = {flag: values for flag, values in written.items() if flag not in ("model-path", "host", "port")}
    assert len(ours) == len(FLAGS) - (not at_least(version, "0.5.8"))
    for flag, values in ours.items():
        assert flag in has, flag
        assert has[flag] is None or values[0] in has[flag], flag


@pytest.mark.parametrize("version", RELEASES)
def test_the_facts_by_version_are_those_of_the_release(version: str) -> None:
    release = RELEASES[version]
    known = {name for name, since in ALGORITHM_SINCE.items() if at_least(version, since)}
    assert known == set(release["algorithms"])
    # fp4_e2m1 is gone from the choices of later releases; ours are those that any release of the range takes.
    assert set(release["has"]["kv-cache-dtype"]) <= set(kv_dtypes(version))
    for name in release["has"]:
        first, last = released_flags()[name]
        assert at_least(version, first) and at_least(last, version), name


def test_a_flag_that_was_renamed_has_its_name_of_the_version() -> None:
    names = {version: flag_name("memory.mamba_radix_cache_strategy", version) for version in RELEASES}
    assert names == {
        "0.5.6.post2": None,
        **dict.fromkeys(("0.5.8", "0.5.9", "0.5.10", "0.5.12"), "--mamba-scheduler-strategy"),
        **dict.fromkeys(("0.5.14", "0.5.16", "0.5.20", "0.5.23"), "--mamba-radix-cache-strategy"),
    }
    graphs = {version: flag_name("memory.cuda_graph_max_bs", version) for version in RELEASES}
    assert graphs["0.5.12"] == "--cuda-graph-max-bs"
    assert graphs["0.5.14"] == "--cuda-graph-max-bs-decode"
    prefill = {version: "disable-prefill-cuda-graph" in release["has"] for version, release in RELEASES.items()}
    piecewise = {version: "disable-piecewise-cuda-graph" in release["has"] for version, release in RELEASES.items()}
    assert [version for version, has in prefill.items() if has] == ["0.5.14", "0.5.16", "0.5.20", "0.5.23"]
    assert [version for version, has in piecewise.items() if has] == ["0.5.10", "0.5.12", "0.5.14", "0.5.16"]


def test_the_keys_that_an_installation_has_no_flag_for() -> None:
    oldest = {name: Flag() for name in RELEASES["0.5.6.post2"]["has"]}
    assert lacking(oldest) == {"memory.mamba_radix_cache_strategy": "--mamba-radix-cache-strategy"}
    assert lacking({name: Flag() for name in RELEASES["0.5.23"]["has"]}) == {}


def test_the_nearest_algorithm_is_one_that_the_engine_has() -> None:
    assert speculative.nearest("DDTREE", RELEASES["0.5.16"]["algorithms"]) == "DFLASH"
    assert speculative.nearest("dspark", RELEASES["0.5.12"]["algorithms"]) == "DFLASH"
    assert speculative.nearest("DDTREE", RELEASES["0.5.8"]["algorithms"]) is None
    assert speculative.nearest("EAGEL", RELEASES["0.5.8"]["algorithms"]) == "EAGLE"
    assert speculative.nearest("XYZ", ("EAGLE",)) is None


@pytest.mark.parametrize(
    "source",
    [
        "x = " + "-" * 90_000 + "1",
        "x = a" + ".b" * 60_000,
        "x = " + "(" * 100_000,
        "x = " + "+".join(["1"] * 60_000),
        "#" * 4_000_001,
    ],
    ids=["signs", "attributes", "brackets", "sums", "large"],
)
def test_a_source_that_no_parser_takes_is_unknown(tmp_path: Path, source: str) -> None:
    has = read(tree(tmp_path, server_args=f"class ServerArgs:\n{BASIC}\n{source}\n"))
    assert has.flags is None


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    tree(tmp_path, server_args="")
    args = tmp_path / "srt" / "server_args.py"
    args.unlink()
    os.mkfifo(args)  # nobody ever writes into it
    assert read(tmp_path).flags is None
    args.unlink()
    args.symlink_to("/dev/zero")
    assert read(tmp_path).flags is None
