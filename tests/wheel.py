"""A package to install without a network."""

from __future__ import annotations

import zipfile
from pathlib import Path


def write_wheel(folder: Path, distribution: str = "tinydep") -> Path:
    """Write a minimal wheel with one module, `tinydep`."""
    stem = f"{distribution.replace('-', '_')}-1.0"
    info = f"{stem}.dist-info"
    files = {
        "tinydep.py": "REWARD = 1.0\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(name, text)
    return path
