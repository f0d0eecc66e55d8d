"""Tables of versions 8 and 9 that Apache Hudi wrote, and what it says is in them.

They are made by `tests/fixtures/make_newer.py`. Unlike those of version 6 they need no times of files.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).resolve().parents[1] / "fixtures"


def fixture_names() -> list[str]:
    """Those that can be read."""
    names = [file.stem for file in sorted(_FOLDER.glob("v[89]_*.json"))]
    return [name for name in names if answers_of(name)]


def answers_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((_FOLDER / f"{name}.json").read_text())
    return found


def unpack(name: str, folder: Path) -> Path:
    """A fresh copy of a table."""
    with zipfile.ZipFile(_FOLDER / f"{name}.zip") as content:
        content.extractall(folder)
    return folder / name
