"""The COMMIT of a write: what it says and relies on, its place in the ledger, and what follows it.

After COMMIT the write stands. What fails behind it is done by the next write.
"""

import logging
from collections.abc import Callable, Sequence

from msgspec import UNSET

from holdfast.concurrency.locks.lock import Hold, Lock
from holdfast.config.choices import Operation
from holdfast.config.write import WriteSettings
from holdfast.errors import HoldfastError, Refused, StorageUnavailable, WriteConflict
from holdfast.exports.follow import follow
from holdfast.format.commits import (
    IN_PLACE,
    WRITE_APPLICATION,
    WRITE_NUMBER,
    CommitMetadata,
    WriteStat,
    encode_sealed_commit,
)
from holdfast.format.field_ids import field_id_facts
from holdfast.format.ledger_entries import EntryKind
from holdfast.model.instant import InstantTime
from holdfast.model.names import heartbeat_path, in_partition
from holdfast.services.sweep import surplus_files
from holdfast.table.markers import delete_markers
from holdfast.table.opened import OpenTable
from holdfast.table.properties_file import drop_metadata_table, has_settings, read_current_settings
from holdfast.table.publish import checkpoint_if_due, publish_decided
from holdfast.timeline.after_decision import after_decision
from holdfast.timeline.ledger import Decision, LedgerState
from holdfast.timeline.timeline import load_timeline
from holdfast.writes.background import BackgroundServices
from holdfast.writes.conflicts import Claim, Footprint, group_of
from holdfast.writes.plan import CommitDraft, WritePlan
from holdfast.writes.repeats import refuse_repeat
from holdfast.writes.validation import Validation, refuse_if_fenced

log = logging.getLogger(__name__)

_PUBLISH_ATTEMPTS = 3


def build_payload(table: OpenTable, plan: WritePlan, instant: InstantTime, draft: CommitDraft) -> bytes:
    """Remove files of attempts that do not count, and build what will be committed."""
    # Another program may have upgraded the table, or built a metadata table, since the write began.
    read_current_settings(table).check_changeable()
    drop_metadata_table(table)
    _delete_surplus(table, instant, draft.written.stats, refuses=plan.settings.refuses_duplicates)
    by_partition: dict[str, list[WriteStat]] = {}
    for stat in draft.written.stats:
        by_partition.setdefault(stat.partition_path or "", []).append(stat)
    replaced = UNSET if draft.replaced is None else {p: list(i) for p, i in draft.replaced.items()}
    return encode_sealed_commit(
        CommitMetadata(
            by_partition,
            extra_metadata={
                **plan.origin.extra_metadata,
                **_number(plan.settings),
                IN_PLACE: _in_place(plan),
                **field_id_facts(draft.field_ids),
                "schema": draft.schema,
            },
            operation_type=plan.operation.name_in_commits,
            partition_to_replace_file_ids=replaced,
        ),
        instant,
    )


def _number(settings: WriteSettings) -> dict[str, str]:
    """What the commit says; the ledger is what counts, unless it is older than the commit, as in a copy."""
    if not settings.application:
        return {}
    return {
        WRITE_APPLICATION: settings.application,
        WRITE_NUMBER: str(settings.batch_number),
    }


def _in_place(plan: WritePlan) -> str:
    """`true` if the write puts every row into the partition that its columns name."""
    # A record that is found in another one, and is not to follow its columns, stays there.
    may_stay = plan.operation is Operation.UPSERT and plan.settings.index_type.is_global
    return "false" if may_stay and not plan.settings.moves_records else "true"


def claim_of(plan: WritePlan, draft: CommitDraft, payload: bytes) -> Claim:
    """What the write relies on that others might have changed since it began."""
    footprint, unchanged = Footprint.of(payload), draft.written.unchanged
    replaces: frozenset[str] = frozenset()
    if draft.replaced is not None:
        replaces = footprint.partitions | frozenset(draft.replaced) | draft.covers
    return Claim(
        footprint=footprint,
        schema_before=draft.schema_before,
        replaces=replaces,
        replaces_all=plan.operation is Operation.INSERT_OVERWRITE_TABLE,
        has_unique_keys=plan.operation is Operation.UPSERT,
        is_global=plan.settings.index_type.is_global,
        absent_from=unchanged.absent_from,
        kept=frozenset(group_of(*group) for group in unchanged.kept),
        appended=frozenset(
            in_partition(stat.partition_path or "", stat.file_id)
            for stat in draft.written.stats
            if stat.log_version is not UNSET
        ),
        origin=plan.origin,
    )


def decide(
    table: OpenTable,
    plan: WritePlan,
    instant: InstantTime,
    payload: bytes,
    claim: Claim,
    validation: Validation,
    *,
    lock: Lock,
) -> LedgerState:
    """Put COMMIT into the ledger and show it, unless the write has lost its right."""

    def decision(state: LedgerState, hold: Hold) -> Decision | None:
        if instant in state.committed:
            return None
        refuse_if_fenced(state, instant)
        refuse_repeat(state, plan.settings)
        validation.check(state, claim)
        if table.is_new and has_settings(table.store):
            raise WriteConflict(
                "a table was created here while its first write ran",
                instant=instant,
                hint="nothing of this write is visible; run it again",
            )
        hold.refuse_if_lost()
        return Decision(
            kind=EntryKind.COMMIT,
            instant=instant,
            action=plan.action,
            operation=plan.operation.name_in_commits,
            properties=table.settings.properties if table.is_new else None,
            application=plan.settings.application,
            number=max(0, plan.settings.batch_number),
            payload=payload,
        )

    with lock.hold() as hold:
        decided = table.ledger.append(lambda state: decision(state, hold))
        show_commit(table, instant, decided)
    return decided


def show_commit(table: OpenTable, instant: InstantTime, decided: LedgerState) -> None:
    """Publish this commit, and before it every other that was decided before it."""
    hint = "the next operation on the table shows it; do not write the rows again"
    with after_decision("the write is committed", instant=instant, hint=hint):
        for attempts_left in range(_PUBLISH_ATTEMPTS - 1, -1, -1):
            try:
                publish_decided(table, decided, load_timeline(table.store), written=instant)
            except StorageUnavailable:
                if attempts_left == 0:
                    raise
            else:
                return


def _delete_surplus(
    table: OpenTable, instant: InstantTime, stats: Sequence[WriteStat], *, refuses: bool
) -> None:
    """Delete files of attempts that do not count; or refuse to commit beside them, if asked to."""
    committed = frozenset(stat.path for stat in stats if stat.path is not None)
    surplus = surplus_files(table, instant, committed=committed)
    present = [path for path in surplus if refuses and table.store.stat(path) is not None]
    if present:
        raise Refused(
            "a task left a file beside the one that counts",
            file=present[0],
            count=len(present),
            hint="nothing of this write is visible; run it again, or allow such files to be deleted",
        )
    stuck = table.store.delete_all(surplus)
    if stuck:
        raise StorageUnavailable("a file of a failed attempt could not be deleted", file=stuck[0])


def _delete_markers(table: OpenTable, instant: InstantTime, stats: Sequence[WriteStat]) -> None:
    """Delete the markers, after another look at what they announce.

    An attempt may have finished a file after the first look and kept it,
    because the commit was not visible yet. From now on it is.
    """
    _delete_surplus(table, instant, stats, refuses=False)
    delete_markers(table.store, instant)


def tidy(
    table: OpenTable,
    instant: InstantTime,
    stats: Sequence[WriteStat],
    decided: LedgerState,
    services: BackgroundServices,
) -> tuple[str, ...]:
    """Remove what the running write needed, and what is not needed any more; what failed of it."""
    steps: tuple[Callable[[], None], ...] = (
        lambda: _delete_markers(table, instant, stats),
        lambda: table.store.delete(heartbeat_path(instant)),
        lambda: checkpoint_if_due(table, decided),
        lambda: follow(table),
        services.finish_clean,
        services.finish_archive,
    )
    problems: list[str] = []
    for step in steps:
        try:
            step()
        except HoldfastError as error:
            log.warning(
                "commit.tidy_failed",
                extra={"table": table.store.uri(""), "instant": instant, "cause": str(error)},
            )
            problems.append(str(error))
    return tuple(problems)
