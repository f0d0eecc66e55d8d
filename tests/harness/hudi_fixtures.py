"""Tables that Apache Hudi wrote, and the rows that they must read as.

Those in `tests/fixtures` are made by its `make.py`. A folder with more of the same names may judge
too: the one that `HOLDFAST_FIXTURES` names, or `shared/fixtures` beside the repository.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from holdfast.model.instant import moment_of
from holdfast.model.names import parse_instant_file

_REPOSITORY = Path(__file__).resolve().parents[2]
OURS = _REPOSITORY / "tests" / "fixtures"
OTHERS = Path(os.environ.get("HOLDFAST_FIXTURES", _REPOSITORY.parent / "shared" / "fixtures"))
FOLDERS = {"ours": OURS} | ({"others": OTHERS} if OTHERS.is_dir() else {})


@dataclass(frozen=True)
class HudiFixtures:
    folder: Path
    new_folder: Callable[[], Path]

    def __call__(self, name: str) -> Path:
        """Unpack a fresh copy of a table."""
        copy = self.new_folder()
        with zipfile.ZipFile(self.folder / f"{name}.zip") as content:
            content.extractall(copy)
        _keep_times(copy / name / ".hoodie")
        return copy / name

    def expected(self, name: str) -> dict[str, Any]:
        """The rows, the instants, and how many rows there were as of each."""
        expectation: dict[str, Any] = json.loads((self.folder / f"{name}.json").read_text())
        return expectation


def _keep_times(timeline: Path) -> None:
    """Give files of instants the time that they say, as a copy does that keeps times.

    Else what they seem to say of the table's zone would depend on when the test runs.
    """
    for file in timeline.iterdir():
        parsed = parse_instant_file(file.name)
        if parsed is not None:
            began = moment_of(parsed[0], dt.UTC).timestamp()
            os.utime(file, (began + 1, began + 1))


def as_json(value: Any) -> Any:
    """A value in the spelling of the expectations: ISO times, decimals as text, bytes as hex."""
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: as_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return value
