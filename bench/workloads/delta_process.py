"""A process of its own for deltalake: the memory it takes and keeps is nobody else's.

    python delta_process.py REQUEST    makes ready, says so, acts when told, gives the answer

The request is one JSON object: an action and what it needs. Rows are read
before the process says that it is ready: deltalake gets them as Arrow, in memory.
"""

import json
import sys
from collections.abc import Callable

import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

_KEY = "trip_id"
_PARTITION = "city"
_READ = [_KEY, "ts"]
_SAME = f"old.{_PARTITION} = new.{_PARTITION} AND old.{_KEY} = new.{_KEY}"

Act = Callable[[], object]


def main() -> None:
    request = json.loads(sys.argv[1])
    act = _ACTIONS[request.pop("action")](**request)
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(act()), flush=True)


def _append(table: str, commits: list[str], *, has_changes: bool) -> Act:
    """Each commit adds one file to each partition."""
    configuration = {"delta.enableChangeDataFeed": "true"} if has_changes else None

    def act() -> None:
        for rows in commits:
            new = pq.read_table(rows)
            write_deltalake(table, new, mode="append", partition_by=[_PARTITION], configuration=configuration)

    return act


def _upsert(table: str, rows: str) -> Act:
    new = pq.read_table(rows)

    def act() -> object:
        merger = DeltaTable(table).merge(new, _SAME, source_alias="new", target_alias="old")
        return merger.when_matched_update_all().when_not_matched_insert_all().execute()

    return act


def _delete(table: str, rows: str) -> Act:
    new = pq.read_table(rows)

    def act() -> object:
        merger = DeltaTable(table).merge(new, _SAME, source_alias="new", target_alias="old")
        return merger.when_matched_delete().execute()

    return act


def _overwrite(table: str, rows: str, *, partition: str) -> Act:
    new = pq.read_table(rows)

    def act() -> None:
        write_deltalake(table, new, mode="overwrite", predicate=f"{_PARTITION} = '{partition}'")

    return act


def _count(table: str) -> Act:
    def act() -> int:
        batches = DeltaTable(table).to_pyarrow_dataset().to_batches(columns=_READ)
        return sum(batch.num_rows for batch in batches)

    return act


def _changes(table: str, *, version: int) -> Act:
    def act() -> int:
        changes = DeltaTable(table).load_cdf(version, version, columns=_READ)
        return sum(batch.num_rows for batch in changes)

    return act


def _files(table: str) -> Act:
    return lambda: DeltaTable(table).file_uris()


_ACTIONS: dict[str, Callable[..., Act]] = {
    "append": _append,
    "upsert": _upsert,
    "delete": _delete,
    "overwrite": _overwrite,
    "count": _count,
    "changes": _changes,
    "files": _files,
}

if __name__ == "__main__":
    main()
