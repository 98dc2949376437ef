"""The diagnosis notebook in JupyterLab, in a real browser: a control is moved, the figures change, the fix is proven.

One JupyterLab for all checks: it takes most of the time. Screenshots are kept in runs/browser.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).parent.parent
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SHOTS = ROOT / "runs" / "browser"
TOKEN = "of-this-test-alone"
#: In the log, and in an argument of the server: markup that would tell if it were taken as such.
EVIL = '<img src=x onerror="window.harmed=1">'
PATIENCE_MS = 60_000

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]


def collapsed(folder: Path) -> Path:
    """The recording of the start that was left with 2 state slots, with hostile text in log and arguments."""
    record = folder / "collapsed"
    shutil.copytree(ROOT / "tests" / "records" / "0512_dflash_r8_exact", record)
    for name, before, after in (
        ("config.yaml", "served-model-name: qwen36-27b", f"served-model-name: '{EVIL}'"),
        ("server.log", "Mamba Cache is allocated.", f"Mamba Cache is allocated. {EVIL}"),
        ("server.log", "max_running_requests is adjusted", f"{EVIL} max_running_requests is adjusted"),
    ):
        text = (record / name).read_text("utf-8")
        (record / name).write_text(text.replace(before, after), encoding="utf-8")
    return record


def notebook(path: Path, record: Path) -> None:
    """The shipped notebook, of that record or log."""
    found = json.loads((ROOT / "notebooks" / "3_diagnose.ipynb").read_text("utf-8"))
    cell = next(one for one in found["cells"] if "parameters" in one["metadata"].get("tags", []))
    source = "".join(cell["source"])
    changed = source.replace('"tests/records/dflash_r8"', repr(str(record)), 1)
    assert changed != source
    cell["source"] = changed.replace('"tests/records"', repr(str(ROOT / "tests" / "records")))
    path.write_text(json.dumps(found), encoding="utf-8")


def settings(folder: Path) -> None:
    """Cells that are out of sight exist too; no question about news, and no request for them."""
    for plugin, values in (
        ("@jupyterlab/notebook-extension/tracker", {"windowingMode": "none"}),
        ("@jupyterlab/apputils-extension/notification", {"fetchNews": "false", "checkForUpdates": False}),
    ):
        path = folder / f"{plugin}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values), encoding="utf-8")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a JupyterLab with settings of its own; all of it is ended afterwards."""
    home = tmp_path_factory.mktemp("lab")
    root = home / "root"
    root.mkdir()
    record = collapsed(home)
    alone = Path(shutil.copy(record / "server.log", home / "server.log"))
    notebook(root / "record.ipynb", record)
    notebook(root / "log.ipynb", alone)
    settings(home / "settings")
    port = free_port()
    told = {
        **{name: str(home / name.lower()) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR")},
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "SPECBENCH_RUNS": str(home / "runs"),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
    }
    options = ["--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}"]
    options += ["--no-browser", "--allow-root", f"--ServerApp.root_dir={root}"]
    with (home / "lab.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options],
            env=os.environ | told,
            cwd=home,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        answers(f"http://127.0.0.1:{port}/api/status?token={TOKEN}", process, home / "lab.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        end(process)


def answers(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.1)
    pytest.fail(f"JupyterLab does not answer:\n{log.read_text('utf-8', 'replace')[-2000:]}")


def end(process: subprocess.Popen[bytes]) -> None:
    """The server and its kernels, which are in sessions of their own; the last ones by force."""
    family: list[Any] = []
    with contextlib.suppress(psutil.Error):
        family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    process.kill()
    process.wait(10)
    for child in family:
        with contextlib.suppress(psutil.Error):
            child.kill()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []


@pytest.fixture(scope="module")
def browser(lab: str) -> Iterator[Any]:
    """A browser with a clipboard."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield started.new_context(
                viewport={"width": 1500, "height": 1250}, permissions=["clipboard-read", "clipboard-write"]
            )
        finally:
            started.close()


def executed(browser: Any, lab: str, name: str) -> Any:
    """A notebook, open, with all its cells executed."""
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{lab}/lab/tree/{name}.ipynb?token={TOKEN}")
    page.locator(".jp-Notebook").wait_for()
    page.get_by_text("| Idle").wait_for()  # the kernel of this notebook, in the status bar
    page.locator(".lm-MenuBar-itemLabel", has_text="Run").first.click()
    page.get_by_text("Run All Cells", exact=True).click()
    try:
        page.locator(".sb-whatif table").first.wait_for()
        page.get_by_text("| Idle").wait_for()  # the cells below it too
    finally:
        shot(page, f"{name}-0-executed")
    return page


@pytest.fixture(scope="module")
def page(browser: Any, lab: str) -> Any:
    """The record of the collapsed start."""
    return executed(browser, lab, "record")


def shot(page: Any, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(SHOTS / f"{name}.png"))
    print(f"screenshot: {SHOTS / name}.png")


#: When a key went down, and when figures and picture were others after it: milliseconds of the page's clock.
_WATCH = """([figures, image]) => {
    window.times = {};
    document.addEventListener('keydown', () => { window.times = {key: performance.now()}; }, true);
    const seen = (name) => () => { window.times[name] ??= performance.now(); };
    new MutationObserver(seen('figures')).observe(figures, {childList: true, subtree: true, characterData: true});
    new MutationObserver(seen('picture')).observe(image, {attributes: true});
}"""


def waits(page: Any) -> str:
    """How long after the last key figures and picture were there, for whoever reads it: no clock is judged."""
    times = page.evaluate("window.times")
    return ", ".join(f"{name} {times[name] - times['key']:.0f} ms" for name in ("figures", "picture"))


def figures(page: Any) -> list[list[str]]:
    """The rows of the table of figures, as text."""
    rows = page.locator(".sb-whatif table").first.locator("tr").all()
    return [[cell.inner_text() for cell in row.locator("td").all()] for row in rows]


def row(page: Any, name: str) -> list[str]:
    return next(cells[1:] for cells in figures(page) if cells and cells[0] == name)


def test_a_control_is_moved_and_the_fix_is_proven(page: Any) -> None:
    board = page.locator(".sb-whatif").first
    board.scroll_into_view_if_needed()
    assert row(page, "running_requests") == ["not logged", "0"]
    picture = page.locator(".widget-image").first
    before = picture.get_attribute("src")
    shot(page, "record-1-as-it-was")

    handle = page.locator(".widget-slider .noUi-handle").first
    handle.focus()
    page.evaluate(_WATCH, [page.locator(".widget-html-content").first.element_handle(), picture.element_handle()])
    for _ in range(3):  # 8 → 5
        handle.press("ArrowLeft")
    page.locator(".sb-whatif", has_text="memory.max_running_requests=5").first.wait_for()
    page.wait_for_timeout(500)
    handle.press("ArrowLeft")
    page.locator(".sb-whatif", has_text="memory.max_running_requests=4").first.wait_for()
    assert row(page, "running_requests") == ["not logged", "0", "4"]
    assert row(page, "state_slots") == ["2", "2", "24"]
    tokens = row(page, "kv_tokens")
    assert tokens[0] == "11,893" and tokens[2].startswith("87,062 ")
    page.wait_for_function(
        "([image, before]) => image.getAttribute('src') !== before", arg=[picture.element_handle(), before]
    )
    page.wait_for_function("window.times.figures && window.times.picture")
    print(f"after a key: {waits(page)}")
    shot(page, "record-2-moved")

    cells = tried(page)
    assert cells["kv_tokens"][0] == "11,893" and cells["kv_tokens"][2:] == ["87,063", "match"]
    assert cells["outcome"] == ["refused", "serves", "served", "match"]
    shot(page, "record-3-proven")


def tried(page: Any) -> dict[str, list[str]]:
    """What "run this" leads to: the rows of predicted → tried → proven."""
    page.get_by_role("button", name="run this", exact=True).click()
    proof = page.locator(".sb-whatif table", has_text="proven")
    proof.wait_for()
    picture = page.locator(".widget-image").nth(1)  # of the new record
    picture.wait_for()
    said = page.locator(".sb-whatif", has_text="done:").last.inner_text()
    assert "recorded (replayed)" in said and "h200_story-4" in said
    picture.scroll_into_view_if_needed()
    return {line[0]: line[1:] for one in proof.locator("tr").all() if (line := one.locator("td").all_inner_texts())}


def test_the_changed_configuration_can_be_copied(page: Any) -> None:
    page.get_by_text("Params file and command line of this").click()
    command = page.locator("textarea[aria-label='command line']")
    command.wait_for()
    page.locator(".sb-whatif button").nth(1).click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == command.input_value()
    assert "--max-running-requests" in copied and EVIL in copied
    shot(page, "record-4-to-copy")


def test_what_a_log_says_stays_text(page: Any) -> None:
    assert EVIL in page.locator(".jp-Notebook").inner_text()
    assert page.locator(".jp-Notebook img[src=x]").count() == 0
    assert page.evaluate("window.harmed") is None


def test_reset_goes_back_to_the_runs_own_values(page: Any) -> None:
    page.get_by_role("button", name="reset", exact=True).click()
    page.locator(".sb-whatif", has_text="as it was started").first.wait_for()
    assert row(page, "running_requests") == ["not logged", "0"]


def test_the_log_alone_leads_to_the_same_proof(browser: Any, lab: str) -> None:
    """Nothing but server.log: cause, one control, and the new record that shows the fix."""
    page = executed(browser, lab, "log")
    assert EVIL in page.locator(".jp-Notebook").inner_text() and page.evaluate("window.harmed") is None
    handle = page.locator(".widget-slider .noUi-handle").first
    handle.focus()
    for _ in range(4):
        handle.press("ArrowLeft")
    page.locator(".sb-whatif", has_text="memory.max_running_requests=4").first.wait_for()
    assert row(page, "running_requests") == ["not logged", "0", "4"]
    cells = tried(page)
    assert (cells["state_slots"][2:], cells["kv_tokens"][2:]) == (["24", "match"], ["87,063", "match"])
    shot(page, "log-3-proven")
