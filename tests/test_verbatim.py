"""engine.python, engine.env and engine.args reach the engine's process exactly as they are written."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from specbench.configuration.config import RunConfig
from specbench.lifecycle.launch import launch

#: Says what it was given, and ends.
ENGINE = """
import json, os, pathlib, sys
said = {"argv": sys.argv[1:], "env": dict(os.environ), "shell": os.environ.get("THROUGH")}
pathlib.Path(os.environ["SAY_INTO"]).write_text(json.dumps(said))
"""


def test_interpreter_variables_and_flags_are_passed_as_written(tmp_path: Path) -> None:
    package = tmp_path / "site" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text(ENGINE)
    python = tmp_path / "an interpreter"
    python.write_text(f'#!/bin/sh\nTHROUGH=it exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    env = {
        "PYTHONPATH": str(tmp_path / "site"),
        "SAY_INTO": str(tmp_path / "said.json"),
        "ODD": "a b;$HOME `id` \"'\n=ü",
        "EMPTY": "",
    }
    args = {
        "json-model-override-args": '{"a": [1, "$HOME"]}',
        "cuda_graph_bs": [1, 2, 4],
        "--log-level": "info; true",
        "log_requests": True,
        "off": False,
        "left_out": None,
        "watchdog-timeout": 1.5,
    }
    config = RunConfig.model_validate(
        {
            "name": "verbatim",
            "engine": {"version": "0.5.16", "python": str(python), "env": env, "args": args},
            "model": "m",
            "gpu": {"name": "h200"},
        }
    )
    with launch(config, log_path=tmp_path / "server.log") as server:
        assert server.argv[:3] == (str(python), "-m", "sglang.launch_server")
    said = json.loads((tmp_path / "said.json").read_text())
    assert said["argv"] == [
        *("--model-path", "m", "--host", "127.0.0.1", "--port", str(server.port), "--enable-metrics"),
        *("--json-model-override-args", '{"a": [1, "$HOME"]}', "--cuda-graph-bs", "1", "2", "4"),
        *("--log-level", "info; true", "--log-requests", "--watchdog-timeout", "1.5"),
    ]
    assert said["shell"] == "it"
    assert {name: said["env"].get(name) for name in env} == env
    inherited = {name: value for name, value in os.environ.items() if name not in {*env, "PYTHONPATH"}}
    assert {name: said["env"].get(name) for name in inherited} == inherited
