"""The releases of SGLang side by side, each unmodified in a folder of its own, with the transformers it was made for.

Example: python -m oracle.install oracle/.venv

Without their requirements, which are CUDA wheels of several GB. What is there already is kept.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .compare.engines import RELEASES


def main(venv: Path) -> None:
    for version, (transformers, tokenizers, hub) in RELEASES.items():
        _install(venv, venv / "releases" / version, f"sglang=={version}")
        _install(
            venv,
            venv / "transformers" / transformers,
            f"transformers=={transformers}",
            f"tokenizers=={tokenizers}",
            f"huggingface-hub=={hub}",
        )


def _install(venv: Path, folder: Path, *wanted: str) -> None:
    if folder.is_dir():
        return
    print(f"oracle: {' '.join(wanted)}", flush=True)
    pip = [venv / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    unfinished = folder.with_name(folder.name + ".unfinished")
    subprocess.run([*pip, "--upgrade", "--target", unfinished, *wanted], check=True)
    unfinished.rename(folder)


main(Path(sys.argv[1]))
