"""Params files: what loads, and the two lines that say what is wrong and what to write instead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from specbench.errors import ConfigError
from specbench.gpus import load_gpu
from specbench.params import build_run, dump_run, load_campaign, load_run, load_sections

RUN = """\
name: x
engine: {version: "0.5.16"}
model: Qwen/Qwen3.6-27B
gpu: {name: h200}
"""


@pytest.fixture
def write(tmp_path: Path):
    def _write(text: str, name: str = "x.yaml") -> Path:
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        return file

    return _write


def test_defaults_are_the_engines_own(write):
    run = load_run(write(RUN))
    assert run.memory.mem_fraction_static is None
    assert run.memory.mamba_radix_cache_strategy == "auto"
    assert run.speculative.algorithm == "none"
    assert run.engine.host == "127.0.0.1"
    assert run.workload.concurrency == (1, 4, 8)


def test_overrides_change_keys_and_add_engine_arguments(write):
    run = load_run(
        write(RUN),
        ["memory.max_running_requests=8", "workload.concurrency=[2, 3]", "engine.args.schedule-policy=lpm", "name=y"],
    )
    assert run.memory.max_running_requests == 8
    assert run.workload.concurrency == (2, 3)
    assert run.engine.args == {"schedule-policy": "lpm"}
    assert run.name == "y"


def test_a_dumped_run_loads_back_equal(write):
    run = load_run(write(RUN), ["engine.replay_speed=instant", "memory.mem_fraction_static=0.75"])
    assert load_run(write(dump_run(run), "again.yaml")) == run


@pytest.mark.parametrize(
    ("added", "first", "second"),
    [
        (
            "memory: {mem_fraction_statik: 0.7}",
            "x.yaml: memory.mem_fraction_statik: no such key (did you mean 'mem_fraction_static'?).",
            "Allowed here: mem_fraction_static, mamba_full_memory_ratio,",
        ),
        (
            "memory: {mem_fraction_static: 1e-3}",
            "x.yaml: memory.mem_fraction_static: got '1e-3' (text); expected a number.",
            "YAML reads 1e-3 as text: write it with a point and a sign, e.g. 1.0e-3.",
        ),
        (
            "memory: {mem_fraction_static: '0.7'}",
            "x.yaml: memory.mem_fraction_static: got '0.7' (text); expected a number.",
            "It is text, not a number: remove the quotes.",
        ),
        (
            "memory: {mem_fraction_static: 1.7}",
            "x.yaml: memory.mem_fraction_static: got 1.7 (a number); expected a number < 1.0.",
            "memory.mem_fraction_static is the share (0 to 1) of the memory free before loading; when left out:",
        ),
        (
            "memory: {mamba_radix_cache_strategy: on}",
            "x.yaml: memory.mamba_radix_cache_strategy: got True (true/false); expected one of 'auto', 'no_buffer',",
            "YAML reads on, off, yes and no as true and false: quote",
        ),
        (
            "memory: {max_running_requests: true}",
            "x.yaml: memory.max_running_requests: got True (true/false); expected a whole number.",
            "YAML reads on, off, yes and no",
        ),
        (
            "workload: {concurrency: [1, x]}",
            "x.yaml: workload.concurrency: got 'x' (text); expected a whole number.",
            "workload.concurrency is a list of numbers of clients (closed loop)",
        ),
        (
            "workload: {concurrency: 4}",
            "x.yaml: workload.concurrency: got 4 (a whole number); expected a list, e.g. [1, 4, 8].",
            "workload.concurrency is a list",
        ),
        ("on: 1", "x.yaml: key True: YAML read it as true/false.", "Quote it; expected the sections name, engine,"),
        ("memori: {}", "x.yaml: memori: no such key (did you mean 'memory'?).", "Allowed here: name, engine, model,"),
        (
            "name: again",
            "x.yaml: not valid YAML: key 'name' is given twice",
            "Check indentation, colons and quotes there.",
        ),
        (
            "workload: !!python/object/apply:os.system ['true']",
            "x.yaml: not valid YAML: could not determine a constructor for the tag",
            "Check indentation",
        ),
        (
            "memory: {mem_fraction_static: 75}",
            "x.yaml: memory.mem_fraction_static: got 75 (a whole number); expected a number < 1.0.",
            "It is a share, not a percentage: did you mean 0.75?",
        ),
        (
            "memory: {max_running_requests: many}",
            "x.yaml: memory.max_running_requests: got 'many' (text); expected a whole number.",
            "memory.max_running_requests is the most requests that run at once; when left out: 48 with speculation",
        ),
        (
            "memory: {max_running_requests: 1" + "0" * 400 + "}",
            "x.yaml: memory.max_running_requests: got 1000000000",
            "memory.max_running_requests is the most requests",
        ),
        (
            "memory: {mamba_full_memory_ratio: 1.0e+308}",
            "x.yaml: memory.mamba_full_memory_ratio: got 1e+308 (a number); expected a number ≤ 1000000.0.",
            "memory.mamba_full_memory_ratio is the ratio of state pool to KV pool; when left out: 0.9.",
        ),
        (
            "workload: {requests: [1, 2], concurrency: [1, 2, 4]}",
            "x.yaml: workload: requests has 2 figures, concurrency has 3.",
            "Give one figure per load, or a single one for all.",
        ),
        (
            "speculative: DFLASH",
            "x.yaml: speculative: got 'DFLASH' (text); expected a mapping",
            "Write speculative: {algorithm: DFLASH}.",
        ),
        (
            "workload: [1, 2",
            "x.yaml: not valid YAML: while parsing a flow sequence, expected ',' or ']', but got '<stream end>'",
            "Check indentation",
        ),
        (
            "max_running_requests: 4",
            "x.yaml: max_running_requests: no such key (did you mean 'memory.max_running_requests'?).",
            "Allowed here: name, engine,",
        ),
        ("tp: 4", "x.yaml: tp: no such key (did you mean 'parallel.tp_size'?).", "Allowed here: name, engine,"),
        (
            "workload: &a [*a]",
            "x.yaml: not valid YAML: an anchor contains itself.",
            "Check indentation",
        ),
        (
            "workload: {input_tokens: []}",
            "x.yaml: workload.input_tokens: got [] (a list); expected a list with at least one value.",
            "workload.input_tokens is a list of prompt lengths in tokens; each is a step of its own.",
        ),
        (
            "workload: {concurrency: []}",
            "x.yaml: workload.concurrency: got [] (a list); expected a list with at least one value.",
            "workload.concurrency is a list",
        ),
        (
            "workload: {request_rate: []}",
            "x.yaml: workload.request_rate: got [] (a list); expected a list with at least one value.",
            "workload.request_rate is a list",
        ),
        (
            "workload: {request_rate: [1.0e+308]}",
            "x.yaml: workload.request_rate: got 1e+308 (a number); expected a number ≤ 1000000.0.",
            "workload.request_rate is a list",
        ),
        (
            "parallel: {tp_size: 0}",
            "x.yaml: parallel.tp_size: got 0 (a whole number); expected a number ≥ 1.",
            "parallel.tp_size is the number of tensor parallel ranks.",
        ),
    ],
)
def test_messages_have_two_lines(write, added, first, second):
    with pytest.raises(ConfigError) as caught:
        load_run(write(RUN + added + "\n"))
    one, two = str(caught.value).split("\n")
    assert one.startswith(first)
    assert two.startswith(second)


@pytest.mark.parametrize(
    ("old", "new", "first", "second"),
    [
        (
            '"0.5.16"',
            "0.5",
            "x.yaml: engine.version: got 0.5 (a number); expected text.",
            # pasted into a shell as it stands: the shell takes the outer quotes off, YAML the inner ones
            """YAML reads it as a number: put it in quotes, "0.5" (--set 'engine.version="0.5"').""",
        ),
        (
            "name: x",
            "name: 2026-11-29",
            "x.yaml: name: got datetime.date(2026, 11, 29) (date); expected text.",
            "YAML reads 2026-11-29 as a date: put it in quotes.",
        ),
        ("name: x", "name: ../x", "x.yaml: name: got '../x' (text); expected a name of letters,", "name is what the"),
        (
            "gpu: {name: h200}",
            "gpu: h200",
            "x.yaml: gpu: got 'h200' (text); expected a mapping",
            "Write gpu: {name: h200}.",
        ),
        ("model: Qwen/Qwen3.6-27B", "", "x.yaml: model: missing.", "Expected:"),
    ],
)
def test_messages_of_replaced_lines(write, old, new, first, second):
    with pytest.raises(ConfigError) as caught:
        load_run(write(RUN.replace(old, new)))
    one, two = str(caught.value).split("\n")
    assert one.startswith(first)
    assert two.startswith(second)


@pytest.mark.parametrize(
    ("override", "first"),
    [
        ("memory.max_running_requests", "--set 'memory.max_running_requests': no '='."),
        (
            "mem.max_running_requests=8",
            "x.yaml: --set: 'mem.max_running_requests': no section 'mem' (did you mean 'memory'?).",
        ),
        (
            "memory.max_running_requests=[",
            "--set 'memory.max_running_requests=[': the value is no YAML (while parsing a flow node, expected the node",
        ),
        (
            "max_running_requests=4",
            "x.yaml: --set: 'max_running_requests': no section 'max_running_requests' (did you mean 'memory.max_",
        ),
        (
            "max-runing-requests=4",
            "x.yaml: --set: 'max-runing-requests': no section 'max-runing-requests' (did you mean 'memory.max_",
        ),
        ("tp=4", "x.yaml: --set: 'tp': no section 'tp' (did you mean 'parallel.tp_size'?)."),
        ("engine.version.x=1", "x.yaml: --set: 'engine.version.x': engine.version has no keys, it is '0.5.16' (text)."),
        ("model.x=1", "x.yaml: --set: 'model.x': model has no keys"),
    ],
)
def test_messages_of_overrides(write, override, first):
    with pytest.raises(ConfigError) as caught:
        load_run(write(RUN), [override])
    assert str(caught.value).split("\n")[0].startswith(first)


def test_what_this_version_refuses_is_named_with_the_way_out(write):
    text = (
        RUN.replace("0.5.16", "0.5.10")
        + "speculative: {algorithm: DFLASH, draft_model_path: z-lab/Qwen3.6-27B-DFlash}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_run(write(text))
    one, two = str(caught.value).split("\n")
    assert "speculative.algorithm" in one and "0.5.10" in one and "DFLASH" in one
    assert "engine.allow_refused" in two
    allowed = load_run(write(text), ["engine.allow_refused=true"])
    assert allowed.speculative.algorithm == "DFLASH"


def test_missing_files_folders_and_binary_files_are_named(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        load_run(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="this is a folder"):
        load_run(tmp_path)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(bytes(range(256)))
    with pytest.raises(ConfigError, match="not a text file"):
        load_run(binary)


def test_what_is_set_for_all_points_lies_over_the_bases_and_under_the_points(write):
    write(RUN.replace("name: x", "name: base"), "base.yaml")
    write(RUN.replace("name: x", "name: other"), "other.yaml")
    text = "campaign: both\nbase: base.yaml\nset: {parallel.tp_size: 2, gpu.count: 2, memory.max_running_requests: 8}\n"
    campaign = load_campaign(
        write(
            text + "matrix: {memory.mamba_full_memory_ratio: [0.5]}\n"
            "points:\n  - {name: four, memory.max_running_requests: 4}\n  - {params: other.yaml}\n"
        )
    )
    said = {run.name: (run.parallel.tp_size, run.gpu.count, run.memory.max_running_requests) for run in campaign.runs}
    assert said == {"base-mamba_full_memory_ratio=0.5": (2, 2, 8), "four": (2, 2, 4), "other": (2, 2, 8)}
    with pytest.raises(ConfigError, match=r"x\.yaml: set: got 'tp2' \(text\)\.\nExpected SECTION\.KEY: value"):
        load_campaign(write("campaign: both\nbase: base.yaml\nset: tp2\npoints: [{name: a}]\n"))
    with pytest.raises(ConfigError, match=r"x\.yaml: set: 'tp_size': no section .*parallel\.tp_size"):
        load_campaign(write("campaign: both\nbase: base.yaml\nset: {tp_size: 2}\npoints: [{name: a}]\n"))


def test_a_campaign_like_another_has_its_points_and_lays_its_own_set_over(write):
    write(RUN.replace("name: x", "name: base"), "base.yaml")
    two = "base: base.yaml\nset: {parallel.tp_size: 2, gpu.count: 2, memory.max_running_requests: 8}\n"
    points = "points: [{name: four, memory.max_running_requests: 4}, {name: eight}]\n"
    write(f"campaign: two\nabout: Two cards.\n{two}{points}", "two.yaml")
    text = "campaign: eight\nlike: two.yaml\nset: {parallel.tp_size: 8, gpu.count: 8}\n"
    campaign = load_campaign(write(text))
    assert (campaign.name, campaign.about) == ("eight", "")
    said = {run.name: (run.parallel.tp_size, run.gpu.count, run.memory.max_running_requests) for run in campaign.runs}
    assert said == {"four": (8, 8, 4), "eight": (8, 8, 8)}
    assert [run.name for run in load_campaign(write(text), ["memory.page_size=64"]).runs] == ["four", "eight"]


def test_the_other_campaign_finds_what_lies_beside_it(tmp_path: Path):
    folder = tmp_path / "inner"
    folder.mkdir()
    (folder / "base.yaml").write_text(RUN)
    (folder / "one.yaml").write_text(
        "campaign: one\nbase: base.yaml\npoints: [{name: a}, {params: base.yaml, name: b}]\n"
    )
    (tmp_path / "two.yaml").write_text("campaign: two\nlike: inner/one.yaml\n")
    assert [run.name for run in load_campaign(tmp_path / "two.yaml").runs] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "like: one.yaml\npoints: [{name: a}]",
            (
                "x.yaml: points: given beside 'like', which takes it from 'one.yaml' (text).\n"
                "Give 'set' for what differs, or leave 'like' out."
            ),
        ),
        (
            "like: [one.yaml]",
            "x.yaml: like: got ['one.yaml'] (a list).\nExpected a campaign file, e.g. one beside this one.",
        ),
        (
            "like: base.yaml",
            ("x.yaml: like: base.yaml is a single run.\nExpected a campaign file with points or a matrix of its own."),
        ),
        (
            "like: two.yaml",
            (
                "x.yaml: like: two.yaml is itself like 'one.yaml' (text).\n"
                "Expected a campaign file with points or a matrix of its own."
            ),
        ),
        (
            "like: one.yaml\nset: {memory: {page_size: 64}}",
            (
                "x.yaml: one.yaml: point 1: 'memory' is given as a whole, and 'memory' in 'set': that would be lost.\n"
                "Give single keys of memory in the point, e.g. memory.KEY: value."
            ),
        ),
    ],
)
def test_a_campaign_like_what_it_cannot_be_is_two_lines(write, text: str, message: str):
    write(RUN.replace("name: x", "name: base"), "base.yaml")
    write("campaign: one\nbase: base.yaml\npoints: [{name: a, memory: {max_running_requests: 4}}]\n", "one.yaml")
    write("campaign: two\nlike: one.yaml\n", "two.yaml")
    with pytest.raises(ConfigError) as caught:
        load_campaign(write(f"campaign: x\n{text}\n"))
    assert str(caught.value) == message


@pytest.mark.parametrize("key", ["like", "base"])
def test_a_file_beside_that_can_be_none(write, key: str):
    """Longer than a file's name can be, and a zero byte: no file is called so, which is no error of the system's."""
    for name in ("a" * 5000, "a/" * 3000, r"a\0b"):
        with pytest.raises(ConfigError, match=rf"^x.yaml: {key}: 'a.* does not exist\.\nLooked in ") as caught:
            load_campaign(write(f'campaign: x\n{key}: "{name}"\n'))
        assert str(caught.value).count("\n") == 1
        assert len(str(caught.value)) < 1000


def test_a_campaign_like_one_that_is_not_there(write):
    with pytest.raises(ConfigError, match=r"absent\.yaml"):
        load_campaign(write("campaign: x\nlike: absent.yaml\n"))


@pytest.mark.parametrize("key", ["about", "set", "matrix", "points"])
@pytest.mark.parametrize("value", ["false", "0", "''", "null"])
def test_only_null_is_an_absent_key_of_a_campaign(write, key, value):
    write(RUN.replace("name: x", "name: base"), "base.yaml")
    rest = "matrix: {memory.max_running_requests: [4]}\n" if key != "matrix" else "points: [{name: a}]\n"
    text = f"campaign: both\nbase: base.yaml\n{rest}{key}: {value}\n"
    if value == "null" or (key, value) == ("about", "''"):
        assert len(load_campaign(write(text)).runs) == 1
        return
    with pytest.raises(ConfigError, match=rf"^x\.yaml: {key}: got (False|0|'') \(.*\)\.\nExpected .*$"):
        load_campaign(write(text))


@pytest.mark.parametrize(
    ("set_", "message"),
    [
        (
            "{name: foo}",
            (
                "x.yaml: set: name: got 'foo' (text): it would name every point alike.\n"
                "Give a point a name of its own: points: [{name: …}]; a base its name in its file."
            ),
        ),
        (
            "{parallel: null}",
            (
                "x.yaml: set: parallel: got None (nothing); expected a mapping (key: value).\n"
                "Leave it out to change nothing, or write parallel: {} for the defaults of all its keys."
            ),
        ),
        (
            "{memory.max_running_requests: 4, memory: {page_size: 64}}",
            (
                "x.yaml: set: 'memory.max_running_requests' is given, and 'memory' as a whole: one of them "
                "would be lost.\n"
                "Give single keys of memory only, or all of them in one mapping."
            ),
        ),
        (
            "{engine.args: {tokenizer-worker-num: 2}, engine.args.log-level: debug}",
            (
                "x.yaml: set: 'engine.args.log-level' is given, and 'engine.args' as a whole: one of them "
                "would be lost.\n"
                "Give single keys of engine.args only, or all of them in one mapping."
            ),
        ),
    ],
)
def test_what_is_set_for_all_points_is_not_lost(write, set_, message):
    write(RUN.replace("name: x", "name: base"), "base.yaml")
    with pytest.raises(ConfigError) as caught:
        load_campaign(write(f"campaign: both\nbase: base.yaml\nset: {set_}\npoints: [{{name: a}}]\n"))
    assert str(caught.value) == message
    if "name" in set_:
        return
    with pytest.raises(ConfigError) as caught:
        load_campaign(write(f"campaign: both\nbase: base.yaml\npoints: [{set_}]\n"))
    assert str(caught.value) == message.replace("x.yaml: set:", "x.yaml: point 1:")


def test_an_override_is_not_lost_in_another(write):
    with pytest.raises(ConfigError, match=r"^x\.yaml: --set: 'memory\.page_size' is given, and 'memory' as a whole"):
        load_run(write(RUN), ["memory.page_size=64", "memory={max_running_requests: 4}"])
    with pytest.raises(ConfigError, match=r"^x\.yaml: --set: speculative: got None \(nothing\)"):
        load_run(write(RUN), ["speculative=null"])


def test_a_matrix_is_the_product_and_points_are_added(write):
    write(RUN.replace("name: x", "name: base"), "base.yaml")
    write(RUN.replace("name: x", "name: other"), "other.yaml")
    campaign = load_campaign(
        write(
            """\
campaign: story
base: base.yaml
matrix:
  memory.max_running_requests: [4, 8]
  memory.mamba_full_memory_ratio: [0.5]
points:
  - {name: noradix, memory.disable_radix_cache: true}
  - {params: other.yaml}
"""
        )
    )
    assert campaign.name == "story"
    assert [run.name for run in campaign.runs] == [
        "base-max_running_requests=4-mamba_full_memory_ratio=0.5",
        "base-max_running_requests=8-mamba_full_memory_ratio=0.5",
        "noradix",
        "other",
    ]
    assert [run.memory.max_running_requests for run in campaign.runs] == [4, 8, None, None]
    assert campaign.runs[2].memory.disable_radix_cache


def test_every_point_of_a_campaign_is_checked(write):
    text = "campaign: c\nbase: {name: x, engine: {version: '0.5.16'}, model: Qwen/Qwen3.6-27B, gpu: {name: h200}}\n"
    with pytest.raises(ConfigError, match=r"matrix memory.max_running_requests=0: memory.max_running_requests"):
        load_campaign(write(text + "matrix: {memory.max_running_requests: [4, 0]}\n"))
    with pytest.raises(ConfigError, match="two points are called 'x'"):
        load_campaign(write(text + "points: [{}, {}]\n"))
    with pytest.raises(ConfigError, match="has no point"):
        load_campaign(write(text))
    with pytest.raises(ConfigError, match="matrix: got"):
        load_campaign(write(text + "matrix: {memory.max_running_requests: 4}\n"))


@pytest.mark.parametrize(
    ("points", "first", "second"),
    [
        (
            "points: [{parms: other.yaml}]",
            "x.yaml: point 1: 'parms': no section 'parms' (did you mean 'params'?).",
            "Sections: name, engine, model, gpu, parallel, speculative, memory, workload. Beside SECTION.KEY: name,",
        ),
        ("points: [{1: 2}]", "x.yaml: point 1: 1: no section '1'.", "Sections: name,"),
        (
            "matrix: {" + ", ".join(f"memory.k{n}: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]" for n in range(12)) + "}",
            "x.yaml: matrix: 1,000,000,000,000 points.",
            "Expected at most 1,000: shorten a list, or use 'points'.",
        ),
    ],
)
def test_messages_of_campaign_points(write, points, first, second):
    text = "campaign: c\nbase: {name: x, engine: {version: '0.5.16'}, model: Qwen/Qwen3.6-27B, gpu: {name: h200}}\n"
    with pytest.raises(ConfigError) as caught:
        load_campaign(write(text + points + "\n"))
    one, two = str(caught.value).split("\n")
    assert one == first
    assert two.startswith(second)


def test_a_bomb_of_anchors_is_refused_at_once(write):
    # ten levels of nine aliases each: three billion values in 500 bytes
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    with pytest.raises(ConfigError, match="anchors expand to more than 50,000 values"):
        load_run(write("\n".join(lines)))
    inline = ", ".join(line.partition(": ")[2] for line in lines)
    with pytest.raises(ConfigError, match=r"the value is no YAML \(anchors expand"):
        load_run(write(RUN), [f"workload.concurrency=[{inline}]"])


def test_a_file_without_end_is_not_read_to_its_end(write):
    with pytest.raises(ConfigError, match=r"larger than 1,000,000 bytes"):
        load_run(write("#" * 1_000_001))


def test_yaml_is_located_without_its_inner_names(write):
    for text in ("a: [", "a: {b: }c", "a: \x01", "\t- a: 'x", "? [a]: b"):
        with pytest.raises(ConfigError) as caught:
            load_run(write(text))
        assert "unicode string" not in str(caught.value) and "byte string" not in str(caught.value)


def test_a_single_run_is_a_campaign_of_one_but_not_the_other_way_round(write):
    assert [run.name for run in load_campaign(write(RUN)).runs] == ["x"]
    with pytest.raises(ConfigError, match="this is a campaign"):
        load_run(write("campaign: c\nbase: {}\n"))


def test_sections_are_the_notebooks_parameters():
    run = load_sections(name="n", engine={"version": "0.5.16"}, model="Qwen/Qwen3.6-27B", gpu={"name": "h200"})
    assert run.name == "n"
    with pytest.raises(ConfigError, match=r"parameters: worklod: no such key \(did you mean 'workload'\?\)"):
        load_sections(name="n", worklod={})


def test_every_shipped_params_file_loads():
    folder = Path(__file__).parent.parent / "params"
    files = sorted(folder.rglob("*.yaml"))
    assert len(files) >= 40
    for file in files:
        assert load_campaign(file).runs


@given(st.text(max_size=200))
def test_any_text_is_a_run_or_a_two_line_message(tmp_path_factory, text):
    file = tmp_path_factory.mktemp("fuzz") / "f.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        load_campaign(file)
    except ConfigError as error:
        assert str(error).count("\n") <= 1


def test_yaml_aliases_that_stand_for_gigabytes_are_answered_at_once(write):
    levels = ["&a0 [x,x,x,x,x,x,x,x,x,x]"]
    levels += [f"&a{n} [" + ",".join([f"*a{n - 1}"] * 10) + "]" for n in range(1, 9)]
    with pytest.raises(ConfigError) as caught:
        load_run(write(RUN + f"parallel: {{tp_size: [{', '.join(levels)}]}}\n"))
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("path", ["a" * 5_000, "~there-is-no-such-user", "x\0y", "a/" * 5_000])
def test_a_path_that_cannot_be_one_is_a_short_message(path):
    with pytest.raises(ConfigError) as caught:
        load_run(path)
    assert "does not exist.\nLooked in " in str(caught.value)
    assert len(str(caught.value)) < 900


def test_memory_that_cannot_be_read_is_a_message():
    with pytest.raises(ConfigError, match=r"/proc/\d+/mem: cannot be read: .*\nExpected a params file"):
        load_run("/proc/self/mem")


def test_a_params_file_may_come_through_a_pipe():
    """What `predict /dev/stdin` and `predict <(…)` open is a pipe, whose link leads to no path."""
    reading, writing = os.pipe()
    try:
        os.write(writing, RUN.encode())
        os.close(writing)
        assert load_run(f"/dev/fd/{reading}").name == "x"
    finally:
        os.close(reading)


def test_a_version_has_ascii_digits(write):
    text = RUN.replace("0.5.16", "٠.٥.١٦")
    with pytest.raises(ConfigError, match=r"engine\.version: .* is no version"):
        load_run(write(text))


@pytest.mark.parametrize(
    ("common", "point", "key"),
    [
        ("{parallel.tp_size: 2}", "{name: a, parallel: {dp_size: 1}}", "parallel.tp_size"),
        (
            "{engine.args.attention-backend: triton}",
            "{name: a, engine.args: {random-seed: 1}}",
            "engine.args.attention",
        ),
        ("{memory: {page_size: 64}}", "{name: a, memory: {max_running_requests: 4}}", "memory"),
    ],
)
def test_a_point_cannot_drop_what_is_set_for_all(write, common: str, point: str, key: str) -> None:
    write(RUN.replace("name: x", "name: base"), "base.yaml")
    campaign = write(f"campaign: c\nbase: base.yaml\nset: {common}\npoints: [{point}]\n")
    with pytest.raises(ConfigError, match="is given as a whole, and '" + key.replace(".", r"\.")) as raised:
        load_campaign(campaign)
    assert len(str(raised.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("usual", "row"),
    [("5090", "rtx-5090"), ("4090", "rtx-4090"), ("RTX PRO 6000", "rtx-pro-6000"), ("H100", "h100"), ("h200", "h200")],
)
def test_a_card_has_its_usual_name_in_a_params_file_too(write, usual: str, row: str) -> None:
    """YAML reads 5090 as a number, and a shell takes quotes off: both are the card's name."""
    assert load_run(write(RUN.replace("{name: h200}", f"{{name: {usual}}}"))).gpu.name == row
    over = load_run(write(RUN), [f"gpu.name={usual}", f"gpu.emulate={usual}"]).gpu
    assert (over.name, over.emulate) == (row, row)
    loaded = yaml.safe_load(RUN) | {"gpu": {"name": usual}}
    assert build_run(loaded).gpu.name == load_sections(**loaded).gpu.name == row


def test_a_card_whose_usual_name_is_of_several_is_told_not_guessed(write) -> None:
    config = load_run(write(RUN), ["gpu.name=6000"])
    assert config.gpu.name == "6000"
    with pytest.raises(ConfigError, match=r"'6000' is not in the GPU table\. Did you mean 'rtx-pro-6000' or 'a6000'"):
        load_gpu(config.gpu.name)
