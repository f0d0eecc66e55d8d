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


def upgrade(table: Path) -> None:
    """What an upgrade by Hudi 1.x makes of a version-6 table's timeline; commits are written anew."""
    meta, properties = table / ".hoodie", table / ".hoodie/hoodie.properties"
    folder = meta / "timeline"
    (folder / "history").mkdir(parents=True)
    for file in sorted(meta.glob("*.commit")):
        record = json.loads(file.read_bytes())
        shown = json.dumps(dict(sorted(record.items())), separators=(",", ":"))
        (folder / f"{file.stem}_{int(file.stem) + 1}.commit").write_text(shown)
    for file in meta.glob("2*"):
        file.unlink()
    lines = [
        line for line in properties.read_text().splitlines() if not line.startswith("hoodie.table.checksum")
    ]
    text = "\n".join(lines).replace("hoodie.table.version=6", "hoodie.table.version=9")
    text = text.replace("hoodie.timeline.layout.version=1", "hoodie.timeline.layout.version=2")
    properties.write_text(text + "\nhoodie.timeline.path=timeline\nhoodie.timeline.history.path=history\n")
