"""environment.yml is the full environment, the extras of pyproject.toml are its parts, and the lock fits both."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
#: What the workbook is made of, by distribution name (the module pynvml comes from nvidia-ml-py).
FIXED = {"jupyterlab", "papermill", "sglang", "pandas", "matplotlib", "seaborn", "nvidia-ml-py", "nbval"}


def dependencies() -> list[str | dict[str, list[str]]]:
    return list(yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"])


def conda_part() -> list[str]:
    return [entry for entry in dependencies() if isinstance(entry, str)]


def pip_part() -> list[str]:
    (part,) = [entry["pip"] for entry in dependencies() if isinstance(entry, dict)]
    return part


def extras() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]


def test_environment_and_extras_name_the_same_packages_and_ranges():
    assert {str(Requirement(line)) for line in pip_part()} == {str(Requirement(line)) for line in extras()}


def test_the_fixed_packages_are_there_with_upper_bounds():
    requirements = {Requirement(line).name: Requirement(line) for line in pip_part()}
    assert set(requirements) >= FIXED
    for name in FIXED:
        assert any(specifier.operator == "<" for specifier in requirements[name].specifier), name


def test_the_lock_pins_exactly_what_the_ranges_allow():
    locked = {}
    for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, _, version = line.partition("==")
            assert version, f"requirements.lock: {line!r} pins no version"
            locked[name.lower().replace("_", "-")] = version
    for line in extras():
        requirement = Requirement(line)
        if requirement.name == "sglang":
            continue  # the engine has an environment of its own; CI has no GPU
        version = locked[requirement.name.lower()]
        assert requirement.specifier.contains(version), f"{requirement} does not allow the locked {version}"


@pytest.fixture
def new_pip(tmp_path):
    """The environment of a process whose pip is one that environment.yml asks for. Python 3.11 brings along 23.2, which
    downloads what it resolves (engine and CUDA, gigabytes) where the newer read its metadata alone."""
    (wanted,) = [entry for entry in conda_part() if entry.startswith("pip>")]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    subprocess.run([*command, "--target", str(tmp_path / "pip"), wanted], check=True, capture_output=True)
    return {**os.environ, "PYTHONPATH": str(tmp_path / "pip")}


@pytest.mark.slow
def test_pip_can_resolve_the_whole_environment(tmp_path, new_pip):
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("\n".join(pip_part()), encoding="utf-8")
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed"]
    done = subprocess.run(
        [*command, "--disable-pip-version-check", "--report", str(tmp_path / "report.json"), "-r", str(requirements)],
        capture_output=True,
        text=True,
        env=new_pip,
    )
    assert done.returncode == 0, done.stderr
    assert '"name": "sglang"' in (tmp_path / "report.json").read_text() or sys.platform != "linux"
