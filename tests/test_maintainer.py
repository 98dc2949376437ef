"""What is sent to a maintainer: whether anything is, the traceback whole, no secret, nothing that becomes markup."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from oracle.defaults import defaults, rows
from specbench.cli import app
from specbench.diagnose.diagnosis import of_log, of_path
from specbench.diagnose.document import to_document
from specbench.diagnose.maintainer import report
from specbench.diagnose.outgoing import fenced, inline, safe
from specbench.diagnose.told import Told
from specbench.engines.sglang.argument_defaults import defaults_of

RECORDS = Path(__file__).parent / "records"


@pytest.mark.parametrize(
    ("record", "concerns", "why"),
    [
        # Memory is a matter of the configuration; a server that works gives nothing to report.
        ("oom_r8", "nobody", "There is nothing to report: out-of-memory-pools is a matter of the configuration"),
        ("0512_dflash_r8_exact", "nobody", "There is nothing to report: refused-state-pool is a matter"),
        ("nospec_r4", "nobody", "There is nothing to report: no fault was found."),
        # A mask that is too small, which later versions mend: a known fault.
        ("h200-tp2_nextn-8", "nobody", "crashed-serving: a known fault of the engine"),
    ],
)
def test_only_a_fault_of_the_engine_is_to_be_reported(record: str, concerns: str, why: str) -> None:
    found = report(of_path(RECORDS / record))
    assert found.concerns == concerns and found.project == ""
    assert found.why.startswith(why)


def _crash(
    text: str, frame: str = 'File "/home/ada/sglang/srt/managers/scheduler.py", line 12, in event_loop_normal'
) -> list[bytes]:
    """A server that became ready and died by an error that nobody knows."""
    log = f"""[2026-05-20 10:11:12] server_args=ServerArgs(model_path='/home/ada/m', api_key='k-1234567890', tp_size=1)
[2026-05-20 10:11:13] Load weight begin. avail mem=78.00 GB
[2026-05-20 10:11:20] Load weight end. elapsed=7.00 s, type=LlamaForCausalLM, avail mem=63.00 GB, mem usage=15.00 GB.
[2026-05-20 10:11:21] KV Cache is allocated. #tokens: 1000, K size: 20.00 GB, V size: 20.00 GB
[2026-05-20 10:11:21] Memory pool end. avail mem=22.90 GB
[2026-05-20 10:11:30] The server is fired up and ready to roll!
[2026-05-20 10:12:00] Scheduler hit an exception: Traceback (most recent call last):
  {frame}
    self.process_batch_result(batch, result)
ValueError: {text}

"""
    return log.encode().splitlines(keepends=True)


def test_a_fault_of_the_engine_comes_with_its_traceback_whole() -> None:
    found = report(of_log(_crash("a tensor that is not there"), name="server.log"))
    assert found.concerns == "engine"
    assert found.project == "SGLang (https://github.com/sgl-project/sglang/issues)"
    assert "ValueError: a tensor that is not there" in found.title
    assert (
        "Traceback (most recent call last):\n"
        '  File "~/sglang/srt/managers/scheduler.py", line 12, in event_loop_normal\n'
        "    self.process_batch_result(batch, result)\n"
        "ValueError: a tensor that is not there\n"
    ) in found.text
    # 78.00 - 15.00 - 40.00 - 22.90 = 0.10
    assert "| unexplained | 0.10 |" in found.text
    assert "k-1234567890" not in found.text and "/home/ada" not in found.text
    assert "## Assumed, or not known" in found.text


def test_a_hostile_text_ends_no_fence_and_is_no_markup() -> None:
    hostile = "``` <script>alert(1)</script> `````` # [x](http://e.example) @someone | a\x1b[31m"
    text = report(of_log(_crash(hostile), name="<b>x</b>.log")).text
    fences = [line for line in text.splitlines() if line.startswith("```")]
    # The one around the hostile text is longer than its longest run of six.
    assert "```````text" in fences and len(fences) % 2 == 0
    outside, inside = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = not inside
        elif not inside:
            outside.append(line)
    assert not inside
    assert all("<script" not in line.replace("\\<", "") for line in outside)
    assert all("@someone" not in line and "http://e.example" not in line for line in outside)
    assert "\x1b" not in text


def test_a_fence_is_longer_than_what_it_holds() -> None:
    assert fenced(["a", "````"]) == "`````text\na\n````\n`````"
    assert fenced(["a"]) == "```text\na\n```"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("HF_TOKEN=hf_abcdefghijklmnopqrst", "HF_TOKEN=[removed by specbench]"),
        ("seen hf_abcdefghijklmnopqrst there", "seen [removed by specbench] there"),
        ("--api-key s3cret --tp-size 2", "--api-key [removed by specbench] --tp-size 2"),
        ("api_key='s3cret', admin_api_key=None", "api_key='[removed by specbench]', admin_api_key=None"),
        ("X-Api-Key: abcdef123", "X-Api-Key: set, not recorded"),
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer [removed by specbench]"),
        ("https://ada:pw@proxy.example:80/x", "https://[removed by specbench]@proxy.example:80/x"),
        ("https://h.example/f?token=abcd&n=1", "https://h.example/f?token=[removed by specbench]&n=1"),
        ("AWS_SECRET_ACCESS_KEY=abc/def", "AWS_SECRET_ACCESS_KEY=set, not recorded"),
        ("--ssl-keyfile-password=pw", "--ssl-keyfile-password=[removed by specbench]"),
        ("/home/ada/models/x and /root/y", "~/models/x and ~/y"),
        # What is about tokens of text, and a line of code, is no secret.
        ("max_total_num_tokens=87061, speculative_num_draft_tokens=16", None),
        ("    token_to_kv_pool = self._build_token_to_kv_pool(", None),
        ("full token usage: 0.49, #token: 321920", None),
    ],
)
def test_no_secret_leaves(text: str, expected: str | None) -> None:
    assert safe(text) == (text if expected is None else expected)


#: What an engine's HTTP client writes where a download fails: an address with a password, a token, headers.
_LEAKING = (
    "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: "
    "https://bob:hunter2secret@hub.example/api/models?token=abcdef0123456789 with Authorization: Bearer "
    "abcdefgh12345678, HF_TOKEN=hf_ABCDEFGHIJKLMNOPQRSTUV, cached in /home/alice/.cache"
)
_SECRETS = ("hunter2secret", "abcdef0123456789", "abcdefgh12345678", "hf_ABCDEFGHIJKLMNOPQRSTUV", "alice", "keyof8ch")


def test_terminal_and_json_show_lines_without_secrets_as_pages_do(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "[2026-11-29 13:03:00] server_args=ServerArgs(model_path='Qwen/Qwen3.6-27B', api_key='keyof8ch', tp_size=1)\n"
        "[2026-11-29 13:03:01] Load weight begin. avail mem=138.00 GB\n"
        "[2026-11-29 13:03:01] KV Cache is allocated. #tokens: many, by keyof api_key='keyof8ch' K size: 0 GB\n"
        'Traceback (most recent call last):\n  File "/home/alice/hub.py", line 3, in <module>\n'
        f"{_LEAKING}\n"
        "[2026-11-29 13:03:02] Received sigquit from a child process. It usually means the child failed.\n",
        encoding="utf-8",
    )
    found = of_log(log)
    (finding,) = found.findings
    assert _SECRETS[0] in finding.cause  # what is read is whole; only what is shown is not
    runner = CliRunner()
    for options in ((), ("--all",), ("--json",), ("--report", "-")):
        done = runner.invoke(app, ["diagnose", str(log), *options], env={"COLUMNS": "400"})
        assert done.exit_code == 0 and "hub.example/api/models?token=[removed by specbench]" in done.output
        assert not [secret for secret in _SECRETS if secret in done.output], options
    document = json.loads(runner.invoke(app, ["diagnose", str(log), "--json"]).stdout)
    (shown,) = document["findings"]
    assert shown["evidence"][0]["line"] == 6 and shown["evidence"][0]["text"] == safe(_LEAKING)
    assert document["source"] == str(log)  # the file itself is named as it was given


def test_a_cell_is_one_line_without_markup() -> None:
    assert inline("a|b\n`c` <i> _d_") == "a\\|b \\`c\\` \\<i\\> \\_d\\_"
    assert inline("- a") == "\\- a" and inline("1. a") == "\\1. a"


def test_the_command_writes_or_prints_it(tmp_path: Path) -> None:
    log = RECORDS / "oom_r8" / "server.log"
    printed = CliRunner().invoke(app, ["diagnose", str(log), "--report", "-"])
    assert printed.exit_code == 0 and printed.output.startswith("# sglang 0.5.16: OutOfMemoryError: ")
    target = tmp_path / "report.md"
    written = CliRunner().invoke(app, ["diagnose", str(log), "--report", str(target)])
    assert written.exit_code == 0 and target.read_text(encoding="utf-8") == printed.output
    document = to_document(of_path(log))["report"]
    assert document["concerns"] == "nobody" and printed.output.splitlines()[0].startswith("# sglang 0.5.16")


def test_a_report_that_is_printed_alone_does_not_cost_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[Path] = []
    monkeypatch.setattr("specbench.campaign.diagnosis_page.write_page", lambda page, *_, **__: pages.append(page))
    monkeypatch.setattr("specbench.workbook.quick.only_notebooks", lambda: None)
    page = tmp_path / "page.html"
    log = RECORDS / "oom_r8" / "server.log"
    done = CliRunner().invoke(app, ["diagnose", str(log), "--report", "-", "--html", str(page)])
    assert done.exit_code == 0 and pages == [page]
    assert "page:" not in done.output  # the report alone


def test_addresses_in_a_sentence_do_not_become_links() -> None:
    """An issue tracker links them by itself; in a fence it does not."""
    joiner = "\u2060"
    assert inline("see https://e.example/x or www.e.example") == (
        f"see https:{joiner}//e.example/x or www{joiner}.e.example"
    )
    assert inline("hidden\u200bword") == "hiddenword"
    assert "https://e.example" in fenced(["https://e.example"])


# ── arguments ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _shown(text: str) -> list[str]:
    """The names in the block of arguments."""
    block = text.partition("Arguments as the engine printed")[2].partition("```text\n")[2].partition("```")[0]
    return [line.partition("=")[0] for line in block.splitlines()]


def test_only_arguments_that_are_not_the_releases_defaults_are_listed() -> None:
    """oom_r8 prints 445 of 0.5.16, 138 of them not off; 106 of these are that release's own defaults."""
    text = report(of_path(RECORDS / "oom_r8")).text
    assert "(line 5), without the defaults of sglang 0.5.16:" in text
    shown = _shown(text)
    assert {"model_path", "mem_fraction_static", "max_running_requests", "speculative_algorithm"} <= set(shown)
    assert not {"schedule_policy", "tp_size", "decode_log_interval", "hicache_ratio"} & set(shown)
    assert len(shown) == 138 - 106


def test_a_default_that_was_changed_to_off_is_listed() -> None:
    """0.5.8 has schedule_policy 'fcfs', cpu_offload_gb 0, lora_eviction_policy 'lru' by default."""
    log = _crash("x")
    more = b"tp_size=1, schedule_policy='', cpu_offload_gb=0, lora_eviction_policy='lru', unknown_one=1)"
    log[0] = log[0].replace(b"tp_size=1)", more)
    found = of_log(log, told=Told(version="0.5.8"), name="server.log")
    assert _shown(report(found).text) == ["api_key", "model_path", "schedule_policy", "unknown_one"]


def test_of_a_release_that_was_not_read_its_neighbours_must_agree() -> None:
    """hicache_ratio was 2.0 up to 0.5.17 and is another from 0.5.18; after 0.5.23 nothing is known."""
    assert defaults_of("0.5.17", "0.5.17")["hicache_ratio"] == 2.0
    assert "hicache_ratio" not in defaults_of("0.5.17.post1", "0.5.17.post1")
    assert defaults_of("0.5.17.post1", "0.5.17.post1")["hicache_io_backend"] == "kernel"
    assert "hicache_ratio" not in defaults_of("0.5.16", "0.5.20")
    assert defaults_of("0.5.9", "0.5.9")["hicache_storage_prefetch_policy"] == "best_effort"
    assert "hicache_storage_prefetch_policy" not in defaults_of(None, "0.5.12")
    assert defaults_of("0.5.24", "0.5.24") == defaults_of("0.5.16", None) == defaults_of("0.5.5", "0.5.8") == {}


def test_defaults_are_read_from_the_source_without_running_it(tmp_path: Path) -> None:
    """Literals, constants of the file and simple arithmetic; of two releases an interval each where they differ."""
    source = """
POLICY = "lru"
CHOICES = ["zmq", "mooncake"]
class ServerArgs:
    model_path: str
    schedule_policy: A[str, Arg(help="x")] = POLICY
    transfer: str = CHOICES[0]
    page_size: int = {page}
    limit: int = 2 * 1024
    ratio: float = field(default=0.0)
    names: list = dataclasses.field(default_factory=list)
    off: bool = False
    found: int = os.cpu_count()
"""
    for version, page in (("0.5.9", 1), ("0.5.10", 64)):
        folder = tmp_path / version / "sglang" / "srt"
        folder.mkdir(parents=True)
        (folder / "server_args.py").write_text(source.format(page=page), encoding="utf-8")
    read = {version: defaults(tmp_path / version) for version in ("0.5.9", "0.5.10")}
    assert list(rows(read)) == [
        "limit 0.5.9 0.5.10 2048",
        "page_size 0.5.9 0.5.9 1",
        "page_size 0.5.10 0.5.10 64",
        "ratio 0.5.9 0.5.10 0.0",
        "schedule_policy 0.5.9 0.5.10 'lru'",
        "transfer 0.5.9 0.5.10 'zmq'",
    ]
