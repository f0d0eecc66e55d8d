"""Replay: have a stream read the batch again whose commit is taken back.

Spark notes in a query's checkpoint which batches are done. If it forgets the
newest ones, the query begins with the first of them when it is started again,
from the offsets that the checkpoint has of it. The commit says which batch it
is, and of which query.

The checkpoint goes first and the commit second. If the process dies in
between, the batch comes again while its commit stands, and is not written twice.
The query must not run meanwhile.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.errors import Refused
from holdfast.model.instant import Action, InstantTime
from holdfast.storage.open import location_of, open_store
from holdfast.storage.store import Store, read_or_none
from holdfast.table.opened import OpenTable
from holdfast.table.streamed import Batch, read_batch

_DONE, _PLANNED = "commits", "offsets"


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """What a checkpoint is to forget."""

    instant: InstantTime
    batch: Batch
    checkpoint: str
    forgotten: tuple[str, ...]
    """Files of the checkpoint, in the order in which they go; what says that the batch is done is last."""


def plan_replay(
    table: OpenTable,
    instant: InstantTime,
    action: Action,
    checkpoint: str = "",
    storage_options: Mapping[str, str] | None = None,
) -> ReplayPlan:
    """What to do so that the batch of a commit is read again. `Refused` if that is not possible."""
    batch = read_batch(table, instant, action)
    if batch is None:
        raise Refused(
            "the commit is no batch of a stream, so nothing can be read again", instant=instant,
            hint="undo it without --replay",
        )  # fmt: skip
    where = checkpoint or batch.checkpoint
    if not where:
        raise Refused(
            "the commit does not say where the checkpoint of its stream is", instant=instant,
            query=batch.query, hint="name it with --checkpoint",
        )  # fmt: skip
    store = open_store(location_of(where, storage_options or {}))
    _check_same_query(store, batch, where)
    planned = read_or_none(store, f"{_PLANNED}/{batch.number}")
    if planned is None or (batch.offsets and planned.decode("utf-8", "replace") != batch.offsets):
        raise Refused(
            "the checkpoint does not have what the batch was read from any more", checkpoint=where,
            query=batch.query, batch=batch.number,
            hint="Spark keeps the last 100 batches; undo it without --replay and load the rows by hand",
        )  # fmt: skip
    later = [
        (number, path)
        for folder in (_DONE, _PLANNED)
        for number, path in _files_by_number(store, folder)
        if number > batch.number or (folder == _DONE and number == batch.number)
    ]
    later.sort(key=lambda each: (-each[0], each[1]))
    return ReplayPlan(instant, batch, where, tuple(path for _, path in later))


def execute_replay(plan: ReplayPlan, storage_options: Mapping[str, str] | None = None) -> None:
    """Let the checkpoint forget. What is left if the process dies is a checkpoint of an earlier moment."""
    store = open_store(location_of(plan.checkpoint, storage_options or {}))
    for path in plan.forgotten:
        folder, _, name = path.rpartition("/")
        store.delete(path)
        store.delete(f"{folder}/.{name}.crc")


def _files_by_number(store: Store, folder: str) -> list[tuple[int, str]]:
    names = [file.path.rpartition("/")[2] for file in store.folder(folder).files]
    return [(int(name), f"{folder}/{name}") for name in names if name.isdigit()]


def _check_same_query(store: Store, batch: Batch, where: str) -> None:
    content = read_or_none(store, "metadata")
    try:
        found = None if content is None else json.loads(content)["id"]
    except (ValueError, KeyError, TypeError):
        found = None
    if found is None or (batch.stream_id and found != batch.stream_id):
        raise Refused(
            "the checkpoint is not that of the stream which wrote the commit", checkpoint=where,
            query=batch.query, id=found, expected=batch.stream_id or None,
            hint="name the checkpointLocation of the query with --checkpoint",
        )  # fmt: skip
