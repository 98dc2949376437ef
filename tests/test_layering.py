"""Imports go one way. The list is also the reading order of the package."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "specbench"

#: Modules and packages in reading order. Each imports from itself and from those before it, never from a later one.
ORDER = (
    *("errors", "units", "lanes", "terms", "rank_names", "versions", "logclean", "paths", "configuration"),
    *("hf", "layers", "weights", "ranks", "quantization", "checkpoint", "architectures"),
    *("gpu_table", "gpus", "specs", "parameters", "vocabulary", "speculative"),
    *("budget_types", "logwraps", "logtext", "logsources", "engines", "params", "machine_file", "budget", "planning"),
    *("host", "records", "reading"),
    *("replay", "load", "lifecycle", "capture", "running", "importing"),
    *("judging", "diagnose", "studies"),
    *("frames", "plots", "show", "whatif", "workbook", "campaign", "cli"),
)
RANK = {module: rank for rank, module in enumerate(ORDER)}

HEAVY = (
    "numpy",
    "pandas",
    "matplotlib",
    "seaborn",
    "papermill",
    "nbconvert",
    "nbclient",
    "IPython",
    "aiohttp",
    "pynvml",
    "ipywidgets",
)
#: On the way of `specbench --help`, `predict` and `diagnose`: these answer at once.
LIGHT = (
    *(
        "specbench.cli",
        "specbench.budget.predict",
        "specbench.diagnose",
        "specbench.params",
        "specbench.engines.sglang.logs",
    ),
    "specbench.show",  # of the run notebook: every configuration waits for its imports
    "specbench.whatif",  # of the diagnosis notebook, likewise
)


def modules() -> Iterator[tuple[str, Path]]:
    """(top-level module, file) of every source file of the package."""
    for file in sorted(PACKAGE.rglob("*.py")):
        top = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if not top.startswith("__"):
            yield top, file


def imported(file: Path) -> Iterator[str]:
    """Top-level specbench modules that a file imports, lazily or not."""
    package = ["specbench", *file.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1] + (node.module.split(".") if node.module else [])
            yield from base[1:2] or (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("specbench"):
            yield (node.module or "").split(".")[1]


def test_every_module_has_its_place():
    assert {top for top, _ in modules()} == set(RANK)


def test_imports_never_point_to_a_later_one():
    wrong = [
        f"{file.relative_to(PACKAGE)} imports {name}"
        for top, file in modules()
        for name in imported(file)
        if name in RANK and RANK[name] > RANK[top]
    ]
    assert wrong == []


def test_no_file_imports_an_engine():
    for _, file in modules():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert not any(name.split(".")[0] in ("sglang", "torch", "vllm") for name in names), file


@pytest.mark.parametrize("module", LIGHT)
def test_light_modules_import_nothing_heavy(module):
    code = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_prediction_reads_no_log():
    """The reader of logs is a tenth of the time in which `predict` answers."""
    code = "import sys, specbench.budget.predict, specbench.diagnose.remedies, specbench.diagnose.remedy_document; "
    code += "readers = ('specbench.engines.contract', 'specbench.engines.sglang.logs'); "
    code += "print([name for name in sys.modules if name.startswith(readers)])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nvml_is_imported_in_one_place():
    users = {
        str(file.relative_to(PACKAGE)) for _, file in modules() if "import pynvml" in file.read_text(encoding="utf-8")
    }
    assert users == {"host/nvml.py"}
