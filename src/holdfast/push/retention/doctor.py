"""The doctor: what is wrong with a table, and repairs that need no decision of an operator."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from holdfast.errors import TableDamaged
from holdfast.model.lineage import EntryState, LineageEntry
from holdfast.model.segment import Segment
from holdfast.push.audit import check_chain
from holdfast.push.calls import Finding
from holdfast.push.metastore.port import Metastore
from holdfast.push.replacement.decisions import Decision, Draft
from holdfast.push.state.table_state import TableState


def examine(
    state: TableState,
    known: Mapping[str, Segment],
    files: Mapping[str, int],
    *,
    metastore: Metastore,
) -> tuple[Finding, ...]:
    """Everything that is wrong. `known` is all metadata, `files` the sizes of all files of the table."""
    return (
        *_lineage_findings(state),
        *_segment_findings(state, known),
        *_file_findings(state, known, files),
        *_audit_findings(state, metastore),
    )


def repair(state: TableState, known: Mapping[str, Segment], *, now_ms: int) -> Decision:
    """Show what a reverted entry hides although it was published, and let go of metadata without a place."""
    draft = Draft(state, now_ms=now_ms)
    for entry in state.lineage.entries:
        names = _wrongly_hidden(state, entry)
        if not names:
            continue
        rest = tuple(name for name in entry.segments_to if name not in names)
        if rest:
            draft.put(replace(entry, segments_to=rest))
        else:
            draft.drop(entry.id)
    draft.reap(sorted(_segments_without_place(state, known)))
    return draft.decision()


def _lineage_findings(state: TableState) -> Iterator[Finding]:
    replaced = frozenset[str]().union(*(entry.segments_from for entry in state.completed_entries))
    leaving = frozenset(name for pending in state.push.deletions for name in pending.segments)
    for entry in state.lineage.entries:
        # What a later push replaced goes before the entry that brought it: retention drops that next.
        missing = [name for name in entry.segments_to if name not in state.segments | replaced]
        if entry.state is EntryState.COMPLETED and missing:
            yield _finding("TO_MISSING", f"{entry.id} published segments that are not in the table", missing)
        hidden = _wrongly_hidden(state, entry)
        if hidden:
            message = f"{entry.id} was reverted and hides segments that another entry published"
            yield _finding("REVERTED_HIDES", message, sorted(hidden), is_fixable=True)
        sides = frozenset((*entry.segments_from, *entry.segments_to))
        is_over = entry.state is not EntryState.IN_PROGRESS and not sides <= leaving | replaced
        if is_over and not state.segments.intersection(sides):
            yield _finding("EMPTY_ENTRY", f"nothing is left of either side of {entry.id}", [])
    arriving = frozenset[str]().union(*(entry.segments_to for entry in state.open_entries))
    if state.segments - arriving and not state.visible:
        yield _finding("NOTHING_VISIBLE", "the table has segments and queries see none of them", [])


def _segment_findings(state: TableState, known: Mapping[str, Segment]) -> Iterator[Finding]:
    if bare := sorted(state.segments - known.keys()):
        yield _finding("NO_METADATA", "segments have no metadata", bare)
    if unplaced := sorted(_segments_without_place(state, known)):
        yield _finding(
            "NOT_IN_TABLE", "metadata of segments that are not in the table", unplaced, is_fixable=True
        )
    if state.offline:
        yield _finding("NOT_ONLINE", "segments are not online on every replica", sorted(state.offline))
    seen = state.visible
    digests = Counter(known[name].digest for name in seen if name in known and known[name].digest)
    twice = sorted(name for name in seen & known.keys() if digests[known[name].digest] > 1)
    if twice:
        yield _finding("SAME_BYTES", "queries see the same bytes under several names", twice)


def _file_findings(
    state: TableState, known: Mapping[str, Segment], files: Mapping[str, int]
) -> Iterator[Finding]:
    here = {name: known[name] for name in state.segments & known.keys() if "://" not in known[name].uri}
    if lost := sorted(name for name, one in here.items() if one.uri not in files):
        yield _finding("NO_FILE", "the files of segments are missing", lost)
    if wrong := sorted(
        name for name, one in here.items() if files.get(one.uri, one.size_bytes) != one.size_bytes
    ):
        yield _finding("WRONG_SIZE", "the files of segments are not as long as when they came", wrong)
    named = {segment.uri for segment in known.values()}
    named.update(path for pending in state.push.deletions for path in pending.files)
    if unnamed := sorted(files.keys() - named):
        yield _finding("UNNAMED_FILES", "no record names the files; retention removes old ones", unnamed)


def _audit_findings(state: TableState, metastore: Metastore) -> Iterator[Finding]:
    try:
        check_chain(metastore, state.table, state.push)
    except TableDamaged as error:
        yield _finding("AUDIT_BROKEN", str(error), [])


def _wrongly_hidden(state: TableState, entry: LineageEntry) -> frozenset[str]:
    if entry.state is not EntryState.REVERTED:
        return frozenset()
    live = frozenset(name for published in state.completed_entries for name in published.segments_to)
    return live.intersection(entry.segments_to)


def _segments_without_place(state: TableState, known: Mapping[str, Segment]) -> frozenset[str]:
    leaving = {name for pending in state.push.deletions for name in pending.segments}
    return frozenset(known) - state.segments - leaving


def _finding(code: str, message: str, names: Iterable[str], *, is_fixable: bool = False) -> Finding:
    return Finding(code=code, message=message, names=tuple(names), is_fixable=is_fixable)
