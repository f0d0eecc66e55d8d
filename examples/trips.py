"""Taxi trips as files, the same ones every time: what arrives in the story's inbox."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

CITIES = ("amsterdam", "berlin", "lisbon", "paris", "rome", "vienna")
_MONDAY = 1_760_313_600
_DAY = 86_400
_FILES = 4


def trips(first: int, count: int, *, day: int, seed: int = 0) -> pa.Table:
    """Trips numbered from `first`, as they were known on a day of the week."""
    chance = np.random.default_rng(first + seed)
    kilometres = chance.gamma(2.0, 2.5, count).round(1) + 0.5
    numbers = np.arange(first, first + count)
    return pa.table(
        {
            "trip_id": [f"trip-{number:07}" for number in numbers],
            "city": np.array(CITIES)[numbers % len(CITIES)],
            "ts": _MONDAY + day * _DAY + chance.integers(0, _DAY, count),
            "km": kilometres,
            "fare": (3.2 + 1.9 * kilometres).round(2),
        }
    )


def deliver(inbox: Path, name: str, rows: pa.Table) -> None:
    """Put rows into the inbox as a few files."""
    inbox.mkdir(parents=True, exist_ok=True)
    size = -(-rows.num_rows // _FILES)
    for number in range(_FILES):
        part = rows.slice(number * size, size)
        pyarrow.csv.write_csv(part, inbox / f"{name}-{number}.csv")


def withdraw(inbox: Path, name: str) -> None:
    """Take a delivery out of the inbox again."""
    for file in inbox.glob(f"{name}-*.csv"):
        file.unlink()


def at_fare(rows: pa.Table, fare: object) -> pa.Table:
    """The same trips at another fare: a number, or a column."""
    column = fare if isinstance(fare, pa.ChunkedArray) else pa.array([fare] * rows.num_rows)
    return rows.set_column(rows.column_names.index("fare"), "fare", column)
