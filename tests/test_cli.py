"""The command line: JSON forms, messages, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .command_line import specbench

ROOT = Path(__file__).parent.parent


def test_predict_json_has_the_promised_form_and_the_storys_figures():
    done = specbench("predict", "params/story/tp1-8.yaml", "--pre-gib", "94.4", "--post-gib", "43.1911", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert set(document) >= {
        *("schema", "name", "engine", "rule", "basis", "requested", "limits", "bytes", "verdict", "reason"),
        "engine_error",
    }
    assert document["schema"] == 1
    assert document["engine"] == {"name": "sglang", "version": "0.5.12"}
    assert document["basis"] == "measured"
    assert document["requested"] == {"running_requests": 8}
    # 0.75 × 94.4 - (94.4 - 43.1911) = 19.5911 GiB left for the pools.
    assert document["limits"]["state_slots"] == 2
    assert document["limits"]["kv_tokens"] == 11_893
    assert document["limits"]["running_requests"] == 0
    assert document["limits"]["slots_per_request"] == 4
    assert document["verdict"] == "refused"
    assert document["engine_error"].startswith("AssertionError")
    assert document["bytes"]["state_ssm"] == 3 * 48 * 3_145_728
    assert document["bytes"]["graphs"] is None


def test_four_requests_serve_with_the_same_memory():
    done = specbench("predict", "params/story/tp1-4.yaml", "--pre-gib", "94.4", "--post-gib", "43.1911", "--json")
    document = json.loads(done.stdout)
    assert (document["limits"]["state_slots"], document["limits"]["kv_tokens"]) == (24, 87_061)
    assert document["verdict"] == "serves"
    assert document["engine_error"] is None


def test_the_asymmetric_answer_from_the_configuration_alone():
    verdicts = {
        name: json.loads(specbench("predict", f"params/story/{name}.yaml", "--json").stdout)["verdict"]
        for name in ("tp1-4", "tp1-8", "tp2-8", "tp2-8-0516", "tp4-8", "tp8-8")
    }
    assert verdicts.pop("tp1-8") == "refused"
    assert set(verdicts.values()) == {"serves"}


def test_strict_turns_an_answer_into_an_exit_code():
    assert specbench("predict", "params/story/tp1-8.yaml", "--strict").returncode == 1
    assert specbench("predict", "params/story/tp1-4.yaml", "--strict").returncode == 0
    assert specbench("diagnose", "tests/records/oom_r8", "--strict").returncode == 1
    assert specbench("diagnose", "tests/records/nospec_r4", "--strict").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        (("predict", "params/none.yaml"), "error: params file: 'params/none.yaml' does not exist."),
        (("predict", "params/demo.yaml"), "error: demo.yaml: this is a campaign"),
        (("predict", "params/story/tp1-8.yaml", "--set", "memory.x=1"), "error: tp1-8.yaml: memory.x: no such key"),
        (("run", "params/story"), "error: "),
        (("diagnose", "README.md"), "error: README.md: "),
        (("diagnose", "notebooks"), "error: "),
        (("report", "params"), "error: "),
    ],
)
def test_bad_input_is_answered_in_two_lines(arguments, first):
    done = specbench(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(first)
    assert len(done.stderr.strip().splitlines()) <= 2
    assert "Traceback" not in done.stderr


def test_a_start_to_which_nothing_was_sent_is_not_said_to_have_served():
    said = specbench("diagnose", "tests/records/0512_dflash_r4_exact").stdout
    assert "No finding: it started, and nothing in it is known to be wrong." in said
    (line,) = (line for line in said.splitlines() if line.split()[:1] == ["running_requests"])
    assert line.split() == ["running_requests", "4", "4", "4", "nothing", "sent"]


@pytest.mark.parametrize(
    ("record", "rests_on"),
    [("h200_dflash-8", "free memory that NVML measured in this start"), ("dflash_r8", "logged free memory")],
)
def test_what_a_measured_prediction_rests_on_is_said(record: str, rests_on: str):
    said = specbench("diagnose", f"tests/records/{record}").stdout
    assert f"prediction with the {rests_on}: " in said
    assert ("logged free memory" in said) == (rests_on == "logged free memory")


def test_a_paste_is_diagnosed():
    log = (ROOT / "tests" / "records" / "dflash_r8" / "server.log").read_bytes()
    document = json.loads(specbench("diagnose", "-", "--json", stdin=log).stdout)
    assert document["source"] == "standard input"
    ids = [finding["id"] for finding in document["findings"]]
    assert ids == ["capped-by-state-slots", "slots-idle-while-queueing", "acceptance-too-low"]
    assert document["requested"]["running_requests"] == 8
    assert document["resolved"]["running_requests"] == 1


def test_log_text_never_becomes_markup(tmp_path):
    log = (ROOT / "tests" / "records" / "oom_r8" / "server.log").read_text()
    hostile = tmp_path / "[red]x.log"
    hostile.write_text(log.replace("CUDA out of memory", "[bold]CUDA[/bold] out of memory [/nonsense]"))
    done = specbench("diagnose", str(hostile))
    assert done.returncode == 0, done.stderr
    assert "[bold]CUDA[/bold]" in done.stdout


def test_doctor_says_what_is_missing():
    document = json.loads(specbench("doctor", "--json").stdout)
    assert document["schema"] == 1
    assert set(document["can"]) == {"predict, diagnose, replay", "notebooks and reports", "start real servers"}
    assert document["gpus"] or document["gpu_reason"]
    assert document["engine"]["version"] or document["engine"]["reason"]


def test_a_reader_that_leaves_early_is_no_error():
    command = f"{sys.executable} -m specbench diagnose tests/records/dflash_r8 --json | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{\n", "")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("predict params/story/tp1-8.yaml", 0),
        ("predict params/story/tp1-8.yaml --json", 0),
        ("diagnose tests/records/dflash_r8", 0),
        ("diagnose tests/records/dflash_r8 --json", 0),
        ("doctor", 0),
        ("--help", 0),
        ("predict params/none.yaml", 2),  # said on stderr, which is still read
    ],
)
def test_a_reader_that_is_gone_before_the_first_line_is_no_error(arguments, code):
    # true ends at once: every write of specbench fails.
    command = f"{sys.executable} -m specbench {arguments} | true"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize(
    "arguments", ["predict params/story/tp1-8.yaml", "predict params/story/tp1-8.yaml --json", "doctor", "--help"]
)
def test_output_that_does_not_fit_is_two_lines(arguments):
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "specbench", *arguments.split()]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "error: output: No space left on device.\nMake room, or write elsewhere.\n"


def test_the_version_is_told():
    assert specbench("--version").stdout == "specbench 0.1.0\n"


@pytest.mark.parametrize(
    "key", ["engine.version", "gpu.name", "model", "memory.kv_cache_dtype", "speculative.algorithm", "memory.{}", "{}"]
)
def test_a_value_of_thousands_of_characters_is_not_repeated(key):
    done = specbench("predict", "params/story/tp1-8.yaml", "--set", f"{key.format('a' * 5_000)}={'a' * 5_000}")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 2
    assert len(done.stderr) < 1_500


def test_a_report_needs_a_folder():
    done = specbench("report", "README.md")
    assert done.returncode == 2
    assert "README.md: no folder.\nExpected a folder of runs" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "params/demo.yaml", "--skip", "foo"), "error: --skip: 'foo' is not one of 'refused', 'capped'."),
        (("predict",), "error: Missing argument 'PARAMS'."),
        (("predict", "x.yaml", "--bla"), "error: No such option: --bla"),
        (("report", "x", "--jason"), "error: No such option: --jason"),
        (("run", "params/demo.yaml", "--retry", "failed"), "error: --retry: only what is resumed can be retried"),
        (("bla",), "error: No such command 'bla'."),
    ],
)
def test_wrong_options_are_answered_in_two_lines(words: tuple[str, ...], said: str) -> None:
    done = specbench(*words)
    first, second = done.stderr.splitlines()
    assert done.returncode == 2 and done.stdout == ""
    assert (
        first.startswith(said)
        and second == f"'specbench{'' if words == ('bla',) else f' {words[0]}'} -h' lists what it takes."
    )


def test_without_a_command_the_help_is_the_answer() -> None:
    done = specbench()
    assert done.returncode == 2 and "Commands:" in done.stdout + done.stderr and "error:" not in done.stderr


def test_a_usage_that_the_log_rounds_to_nothing_is_not_said_to_be_nothing():
    """h200-tp2_nextn-8 has one decode line, of one request: 'token usage: 0.00' in hundredths, '#queue-req: 0'."""
    log = (ROOT / "tests" / "records" / "h200-tp2_nextn-8" / "server.log").read_text(encoding="utf-8")
    assert "token usage: 0.00" in log
    said = " ".join(specbench("diagnose", "tests/records/h200-tp2_nextn-8").stdout.split())
    assert "no request queued; KV pool at most 1% full." in said
