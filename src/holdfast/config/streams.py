"""What options say about a stream that reads a table, or one that appends to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from holdfast.config.datasource import BEGIN, END, QUERY_TYPE, SourceRead
from holdfast.errors import InvalidOption

STARTING_INSTANT = "startingInstant"
QUERY = "query"
LEASE_SECONDS = "leaseSeconds"
AFTER_UNDO = "afterUndo"
MAX_COMMITS = "maxCommitsPerBatch"
LATEST = "latest"
_REFUSE, _CONTINUE = "refuse", "continue"
_WEEK_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRead:
    """How a stream reads a table."""

    read: SourceRead
    """Columns, partitions and where to begin."""
    begins_at_newest: bool
    """Whether only what is committed after the stream began is read."""
    query: str
    """The name of its lease; empty if it is to have a random one."""
    lease_ms: int
    continues_after_undo: bool
    max_commits: int | None

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """The settings; `InvalidOption` names what a stream cannot honour."""
        rest = dict(options)
        start = _take(rest, STARTING_INSTANT)
        query = _take(rest, QUERY) or ""
        lease_ms = 1000 * _number(LEASE_SECONDS, _take(rest, LEASE_SECONDS), _WEEK_SECONDS)
        after_undo = (_take(rest, AFTER_UNDO) or _REFUSE).lower()
        if after_undo not in (_REFUSE, _CONTINUE):
            raise InvalidOption(
                "option has no such value", option=AFTER_UNDO, value=after_undo,
                hint=f"use {_REFUSE} or {_CONTINUE}",
            )  # fmt: skip
        most = _take(rest, MAX_COMMITS)
        for name in (QUERY_TYPE, END, "as.of.instant"):
            if name in rest:
                raise InvalidOption(
                    "a stream reads what is committed, from one commit on", option=name,
                    hint=f"leave it out; {STARTING_INSTANT} says where the stream begins",
                )  # fmt: skip
        begins_at_newest = start is not None and start.lower() == LATEST
        if start is not None and not begins_at_newest:
            rest[BEGIN] = start
        rest.setdefault(BEGIN, "earliest")
        return cls(
            read=SourceRead.from_options({**rest, QUERY_TYPE: "incremental"}),
            begins_at_newest=begins_at_newest,
            query=query,
            lease_ms=lease_ms,
            continues_after_undo=after_undo == _CONTINUE,
            max_commits=None if most is None else _number(MAX_COMMITS, most, 1),
        )


def is_of_stream(options: Mapping[str, str]) -> bool:
    """Whether options that read can only be those of a stream."""
    names = {name.lower() for name in options}
    if names & {name.lower() for name in (STARTING_INSTANT, QUERY, LEASE_SECONDS, AFTER_UNDO, MAX_COMMITS)}:
        return True
    return "deletes" in names and QUERY_TYPE not in names


def take_query(options: dict[str, str]) -> str:
    """Take the name of a writing stream out of its options; empty if there is none."""
    _take(options, "checkpointLocation")
    return _take(options, QUERY) or ""


def find_checkpoint(options: Mapping[str, str]) -> str:
    """Where a writing stream keeps what it has read, if its options say so; empty if not."""
    return _take(dict(options), "checkpointLocation") or ""


def _take(options: dict[str, str], name: str) -> str | None:
    """Take an option out, however its letters are written: Spark makes them all small."""
    found = next((each for each in options if each.lower() == name.lower()), None)
    return None if found is None else options.pop(found)


def _number(name: str, text: str | None, default: int) -> int:
    if text is None:
        return default
    if not text.strip().isdigit() or int(text) < 1:
        raise InvalidOption("option has no such value", option=name, value=text, hint="give a number above 0")
    return int(text)
