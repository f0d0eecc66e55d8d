"""Data files, compared with what commits and savepoints say about them.

Files are handled as columns: a table may have a million of them.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import TableDamaged
from holdfast.format.parquet_footer import MAGIC, TAIL_BYTES
from holdfast.format.savepoints import SavepointMetadata
from holdfast.model.instant import InstantTime
from holdfast.model.names import META_FOLDER, PARTITION_METAFILE, in_partition, parse_base_file
from holdfast.model.reports import Finding, FindingKind, Severity
from holdfast.services.verify.instant_outcomes import InstantOutcomes, Outcome
from holdfast.services.verify.log_files import check_compactions, check_log_files, find_lost_logs
from holdfast.storage.store import Store, StoredFile
from holdfast.table.log_files import log_name
from holdfast.table.view import View, parse_base_files, view_of
from holdfast.timeline.timeline import Timeline

_CHUNK_FILES = 65_536
_PIECE_FILES = 256
_READERS = 16
_SHORTEST_PARQUET = 2 * len(MAGIC) + 4
_MAGICS = (MAGIC, b"PARE")
"""How whole files end; those of the second kind have an encrypted footer."""
_METAFILE_FORMS = (PARTITION_METAFILE, f"{PARTITION_METAFILE}.parquet", f"{PARTITION_METAFILE}.orc")

_BRING_BACK = "put a copy back from a backup"
_WHY_ORPHAN = {
    Outcome.COMMITTED: "its commit does not name it",
    Outcome.GONE: "its write was rolled back",
    Outcome.UNKNOWN: "no instant has its time",
}


@dataclass(frozen=True)
class ListedFiles:
    """Everything outside `.hoodie`, as columns."""

    paths: pa.Array
    sizes: pa.Array


def list_files(store: Store) -> ListedFiles:
    chunks: list[tuple[pa.Array, pa.Array]] = []
    paths: list[str] = []
    sizes: list[int] = []

    def close_chunk() -> None:
        chunks.append((pa.array(paths, pa.string()), pa.array(sizes, pa.int64())))
        paths.clear()
        sizes.clear()

    for file in _walk_data(store):
        paths.append(file.path)
        sizes.append(file.size)
        if len(paths) == _CHUNK_FILES:
            close_chunk()
    close_chunk()
    return ListedFiles(*(pa.concat_arrays(column) for column in zip(*chunks, strict=True)))


def check_files(
    store: Store,
    files: ListedFiles,
    outcomes: InstantOutcomes,
    *,
    torn: frozenset[InstantTime],
    readable: Timeline,
    savepoints: Mapping[InstantTime, SavepointMetadata],
    has_logs: bool,
) -> tuple[list[Finding], int]:
    """What is wrong with data files, and how many base files there are.

    `readable` is the timeline without the instants in `torn`, whose content
    cannot be read: their files are taken as the listing has them. A table that
    `has_logs` does not tell what its base files were built on.
    """
    named = parse_base_files(files.paths)
    view = view_of(store, readable, files.paths)
    of_torn = _only(named, "instant", torn)
    unseen = of_torn.filter(pc.invert(pc.is_in(of_torn["base"], view.slices["base"].combine_chunks())))
    slices = pa.concat_tables([view.slices, unseen])
    view = replace(view, slices=slices.take(pc.sort_indices(slices["base"])))
    short = _wrong_sizes(view, files)
    of_logs: list[Finding] = []
    if has_logs:
        sizes = dict(zip(files.paths.to_pylist(), files.sizes.to_pylist(), strict=True))
        of_logs = [
            *check_log_files(store, view, sizes, outcomes),
            *check_compactions(store, readable, view),
        ]
    findings = [
        *_orphans(named, view, outcomes),
        *_find_missing(view, savepoints),
        *(() if has_logs else _find_hidden(view)),
        *short,
        *_without_footer(store, view, files, leave_out={finding.path for finding in short}),
        *of_logs,
    ]
    return findings, named.num_rows


def _walk_data(store: Store) -> Iterator[StoredFile]:
    root = store.folder("")
    yield from root.files
    for folder in root.folders:
        if folder != META_FOLDER:
            yield from store.walk(folder)


def _orphans(named: pa.Table, view: View, outcomes: InstantOutcomes) -> Iterator[Finding]:
    is_seen = pc.is_in(named["base"], view.slices["base"].combine_chunks())
    for files, readers_see in ((named.filter(pc.invert(is_seen)), False), (named.filter(is_seen), True)):
        # Of what is older than the timeline only the ledger remembers that it was rolled back.
        wrong = {Outcome.GONE} if readers_see else _WHY_ORPHAN.keys()
        outcome_of = {time: outcomes.of(InstantTime(time)) for time in files["instant"].unique().to_pylist()}
        reasons = {time: _WHY_ORPHAN[outcome] for time, outcome in outcome_of.items() if outcome in wrong}
        found = _only(files, "instant", reasons)
        for path, time in zip(found["base"].to_pylist(), found["instant"].to_pylist(), strict=True):
            yield _orphan(path, reasons[time], readers_see=readers_see)


def _orphan(path: str, reason: str, *, readers_see: bool) -> Finding:
    return Finding(
        FindingKind.ORPHAN,
        path,
        f"{reason}, and readers see it" if readers_see else reason,
        "repair moves it to quarantine",
        Severity.DAMAGE if readers_see else Severity.WARNING,
    )


def _find_missing(view: View, savepoints: Mapping[InstantTime, SavepointMetadata]) -> Iterator[Finding]:
    """Files and metafiles that must be there."""
    missing: dict[str, str] = {}
    remedies: dict[str, str] = {}
    for time, savepoint in savepoints.items():
        paths = [in_partition(part, name) for part, names in savepoint.files.items() for name in names]
        for path in _absent(pa.array(paths, pa.string()), view.listed):
            missing[path] = f"savepoint {time} needs it"
            remedies[path] = f"{_BRING_BACK}, or give it up: holdfast savepoint delete PATH --commit {time}"
    try:
        newest = view.newest()
    except TableDamaged as error:
        yield Finding(
            FindingKind.CONTRADICTORY,
            str(error.facts["file"]),
            error.message,
            "find out which of the two is right, and move the other out of the table",
            Severity.DAMAGE,
        )
    else:
        needed = dict.fromkeys(
            _absent(newest["base"].drop_null(), view.listed), "the newest snapshot needs it"
        )
        for path, reason in {**needed, **find_lost_logs(view, newest)}.items():
            missing[path] = reason
            remedies[path] = _bring_back(path, view.timeline)
        yield from _without_metafile(newest["partition"].unique().to_pylist(), view.listed)
    for path, reason in missing.items():
        yield Finding(FindingKind.MISSING, path, reason, remedies[path], Severity.DAMAGE)


def _find_hidden(view: View) -> Iterator[Finding]:
    """Files that somebody wrote behind newer ones."""
    try:
        hidden = view.find_hidden()
    except TableDamaged:
        return  # Two files of one instant, which is a finding of its own.
    detail = "a version of its file group with a later time was there already, and its rows are not read"
    remedy = (
        "give all writers one clock and one time zone; write the rows of this file again; a clean removes it"
    )
    for path in hidden["base"].to_pylist():
        yield Finding(FindingKind.HIDDEN, path, detail, remedy, Severity.DAMAGE)


def _without_metafile(partitions: Iterable[str], listed: pa.Array) -> Iterator[Finding]:
    forms = {part: [in_partition(part, form) for form in _METAFILE_FORMS] for part in partitions}
    every = pa.array([path for paths in forms.values() for path in paths], pa.string())
    present = set(every.filter(pc.is_in(every, listed)).to_pylist())
    for paths in forms.values():
        if present.isdisjoint(paths):
            yield Finding(
                FindingKind.METAFILE,
                paths[0],
                "without it Hudi does not find the partition",
                "repair makes it, and so does the next write to the partition",
                Severity.DAMAGE,
            )


def _wrong_sizes(view: View, files: ListedFiles) -> list[Finding]:
    slices = view.slices
    stored = files.sizes.take(pc.index_in(slices["base"].combine_chunks(), files.paths))
    said = slices["size"].combine_chunks()
    is_wrong = pc.fill_null(pc.and_(pc.greater(said, 0), pc.not_equal(said, stored)), False)
    wrong = (column.filter(is_wrong).to_pylist() for column in (slices["base"], stored, said))
    return [
        _truncation(path, f"it has {size} bytes, its commit says {expected}", view.timeline)
        for path, size, expected in zip(*wrong, strict=True)
    ]


def _without_footer(
    store: Store, view: View, files: ListedFiles, *, leave_out: set[str]
) -> Iterator[Finding]:
    present = view.slices["base"].filter(pc.is_in(view.slices["base"], files.paths))
    pieces = [present.slice(at, _PIECE_FILES) for at in range(0, len(present), _PIECE_FILES)]

    def ending_badly(piece: pa.ChunkedArray) -> list[str]:
        return [p for p in piece.to_pylist() if p not in leave_out and not _ends_well(store, p)]

    for paths in _each(ending_badly, pieces):
        for path in paths:
            yield _truncation(path, "it does not end as a Parquet file does", view.timeline)


def _each(
    read: Callable[[pa.ChunkedArray], list[str]], pieces: Sequence[pa.ChunkedArray]
) -> Iterator[list[str]]:
    """Several pieces at a time; a single one needs no threads."""
    if len(pieces) <= 1:
        yield from map(read, pieces)
        return
    with ThreadPoolExecutor(_READERS, thread_name_prefix="holdfast-verify") as readers:
        yield from readers.map(read, pieces)


def _ends_well(store: Store, path: str) -> bool:
    """Whether the file ends with a footer that fits into it; one that vanished is another's finding."""
    try:
        with store.open(path) as file:
            size = file.seek(0, os.SEEK_END)
            if size < _SHORTEST_PARQUET:
                return False
            file.seek(size - TAIL_BYTES)
            tail = file.read(TAIL_BYTES)
    except FileNotFoundError:
        return True
    footer_bytes = int.from_bytes(tail[:-4], "little")
    return tail.endswith(_MAGICS) and 0 < footer_bytes <= size - len(MAGIC) - TAIL_BYTES


def _truncation(path: str, detail: str, timeline: Timeline) -> Finding:
    return Finding(FindingKind.TRUNCATED, path, detail, _bring_back(path, timeline), Severity.DAMAGE)


def _bring_back(path: str, timeline: Timeline) -> str:
    """What to do about a file that is lost: the commit before its own is the newest that does not need it."""
    name = parse_base_file(path.rpartition("/")[2])
    log_file = log_name(path)
    time = name.instant if name is not None else log_file.written_by if log_file is not None else None
    before = [c.time for c in timeline.completed_commits if time is not None and c.time < time]
    return f"{_BRING_BACK}, or give it up: holdfast restore PATH --to {before[-1]}" if before else _BRING_BACK


def _absent(paths: pa.Array, listed: pa.Array) -> list[str]:
    absent: list[str] = paths.filter(pc.invert(pc.is_in(paths, listed))).to_pylist()
    return absent


def _only(table: pa.Table, column: str, values: Iterable[str]) -> pa.Table:
    return table.filter(pc.is_in(table[column], pa.array(list(values), pa.string())))
