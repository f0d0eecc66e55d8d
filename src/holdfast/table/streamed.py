"""Streamed commits: what a commit keeps of the batch of a stream that it is.

    holdfast.stream.query        the name under which the batches are numbered
    holdfast.stream.batch        the number
    holdfast.stream.id           Spark's id of the query, which lives as long as its checkpoint
    holdfast.stream.checkpoint   where the checkpoint is, and
    holdfast.stream.offsets      what it says the batch was read from, if that is known

So the batch can be read again after the commit was taken back, and another
stream that took the same name is found out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from holdfast.errors import Refused, TableDamaged
from holdfast.format.commits import decode_extra_metadata
from holdfast.format.malformed import report_damage
from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import instant_file
from holdfast.storage.open import location_of, open_store
from holdfast.storage.store import read_or_none
from holdfast.table.archive import read_archive
from holdfast.table.opened import OpenTable

_QUERY, _BATCH, _ID = "holdfast.stream.query", "holdfast.stream.batch", "holdfast.stream.id"
_CHECKPOINT, _OFFSETS = "holdfast.stream.checkpoint", "holdfast.stream.offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch of a stream. What is not known is empty."""

    query: str
    number: int
    stream_id: str = ""
    checkpoint: str = ""
    offsets: str = ""

    def extra_metadata(self) -> dict[str, str]:
        """What the commit of the batch says of it."""
        said = {
            _QUERY: self.query,
            _BATCH: str(self.number),
            _ID: self.stream_id,
            _CHECKPOINT: self.checkpoint,
            _OFFSETS: self.offsets,
        }
        return {name: text for name, text in said.items() if text}

    def with_offsets(self) -> "Batch":
        """The same with what its checkpoint says it was read from, where that is known."""
        if not self.checkpoint:
            return self
        content = read_or_none(open_store(location_of(self.checkpoint, {})), f"offsets/{self.number}")
        return self if content is None else replace(self, offsets=content.decode("utf-8", "replace"))

    @classmethod
    def of_commit(cls, said: Mapping[str, str | None]) -> "Batch | None":
        """The batch that a commit is; None if it is none."""
        query, number = said.get(_QUERY), said.get(_BATCH)
        if not query or not number or not number.isdigit():
            return None
        rest = {field: said.get(name) or "" for field, name in _REST.items()}
        return cls(query=query, number=int(number), **rest)


_REST = {"stream_id": _ID, "checkpoint": _CHECKPOINT, "offsets": _OFFSETS}


def read_batch(table: OpenTable, instant: InstantTime, action: Action) -> Batch | None:
    """The batch that a commit is, archived or not; None if it is none."""
    content = read_or_none(table.store, instant_file(instant, action, State.COMPLETED))
    if content is None:
        content = read_archive(table.store, table.settings).content(instant, action)
    if content is None:
        raise TableDamaged("the metadata of a commit is gone", instant=instant)
    with report_damage("commit metadata cannot be read", instant=instant):
        return Batch.of_commit(decode_extra_metadata(content))


def refuse_other_stream(found: Batch | None, batch: Batch, instant: InstantTime) -> None:
    """`Refused` if the commit that a batch repeats is that of another stream with the same name."""
    if found is None:
        raise Refused(
            "the name of this stream numbers other writes",
            query=batch.query,
            instant=instant,
            hint="nothing was written; give the stream a name of its own in the option query",
        )
    is_known = bool(found.stream_id and batch.stream_id)
    is_other = found.stream_id != batch.stream_id if is_known else found.number != batch.number
    if is_other:
        raise Refused(
            "another stream with this name, or another checkpoint of it, has written batches already",
            query=batch.query,
            batch=batch.number,
            committed=found.number,
            instant=instant,
            hint="nothing was written; use the checkpoint that it had, or another name in the option query",
        )
