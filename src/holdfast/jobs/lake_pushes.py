"""Pushes and the commits they came from: recorded with the lake table, and taken back with it.

    record ─► the commit is still there? ─► end ─► confirmed

A push is recorded before it is published, and looks at the lake table after
that. Taking a commit back looks for records after the commit is gone. So one of
the two sees the other: the push is given up, or it is reverted.
"""

import datetime as dt
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from holdfast.errors import (
    Conflict,
    HoldfastError,
    OutcomeUnknown,
    StorageUnavailable,
    TableNotFound,
)
from holdfast.jobs.revert_steps import NOT_RETAINED, Revert, Steps, fate_of, plan_steps
from holdfast.jobs.service_client import (
    CONTROLLER,
    DEFAULT_CONTROLLER,
    WAITING_FOR_BROKERS,
    ServiceClient,
    late_brokers,
    segments_path,
)
from holdfast.model.instant import InstantTime
from holdfast.model.pushes import LAKE_INSTANT, LAKE_TABLE, Fate, Push
from holdfast.services.pushes import find_undone_commits, forget_pushes, push_records, pushes, write_push
from holdfast.table.opened import OpenTable

_TYPE = "OFFLINE"
_ASK_TIMEOUT_S = 3
_RECORDS_MAX = 100
"""Of one served table: more commits are not taken back to revert a push."""


@contextmanager
def record_push(lake: OpenTable, push: Push, client: ServiceClient) -> Iterator[list[str]]:
    """Record a push around the block that publishes it; what could not be recorded is in the list.

    `Conflict` if the commit was taken back meanwhile: nothing is published then.
    """
    warnings: list[str] = []
    try:
        write_push(lake, push)
    except StorageUnavailable as error:
        # The user who pushes may be allowed to read the lake table only.
        warnings.append(f"the lake table cannot tell later that it is served here: {error}")
        yield warnings
        return
    try:
        if find_undone_commits(lake, [push.instant]):
            raise Conflict(
                "the commit was taken back while it was pushed",
                instant=push.instant,
                hint="run the push again",
            )
        yield warnings
    except (OutcomeUnknown, StorageUnavailable):
        raise
    except HoldfastError:
        with suppress(StorageUnavailable):
            forget_pushes(lake, [push])
        raise
    now = dt.datetime.fromtimestamp(lake.clock.now_ms() / 1000, dt.UTC)
    try:
        write_push(lake, replace(push, published_at=now))
        forget_pushes(lake, _records_to_forget(push, push_records(lake).pushes, _lineage(client, push.table)))
    except HoldfastError as error:
        warnings.append(f"the push is published, but its record in the lake table is not up to date: {error}")


def _records_to_forget(push: Push, known: Iterable[Push], lineage: Mapping[str, Any]) -> list[Push]:
    """Records that are not needed any more, now that a push is published."""
    same = [one for one in known if one.place == push.place and one.entry_id != push.entry_id]
    gone = [one for one in same if push.is_whole and one.entry_id not in lineage]
    return [*gone, *(one for one in same[: -_RECORDS_MAX + 1] if one not in gone)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertPlan:
    """What is to be done about the pushes to one table."""

    controller: str
    table: str
    pushes: tuple[Push, ...]
    """Those of them that the lake table has recorded, oldest first."""
    steps: Steps
    empties: bool = False
    """Queries of the table would see no rows any more."""

    @property
    def reverted(self) -> tuple[str, ...]:
        """The entries that are reverted."""
        return tuple(entry_id for one in self.steps.reverts for entry_id in one.entries)


def plan_reverts(
    lake: OpenTable,
    removing: Collection[InstantTime] = (),
    *,
    table: str | None = None,
    controller: str | None = None,
) -> list[RevertPlan]:
    """What to do about everything that is served from commits that are gone, or will be.

    Asks the services that the lake table has recorded, or the one that is
    given, about all their tables that were pushed to, or the one that is
    given. Nothing is changed; a service that would refuse has refused here.
    """
    found = [one for one in pushes(lake) if table in (None, one.table)]
    # A service may have moved since: then it is asked about all.
    found = [one for one in found if one.controller == controller] or found
    gone = find_undone_commits(lake, {one.instant for one in found}) | set(removing)
    by_place: dict[tuple[str, str], list[Push]] = {}
    for one in found:
        if one.instant in gone:
            by_place.setdefault((controller or one.controller, one.table), []).append(one)
    return [
        _without_impossible(_plan_table(lake, ServiceClient(url), name, some, removing))
        for (url, name), some in by_place.items()
    ]


def ask_services(pushes: Iterable[Push]) -> dict[str, Fate]:
    """What became of each push, by its entry. Nothing fails and nobody waits long for it.

    A table may come from anybody, and with it the addresses of services: only
    the user's own controller is sent credentials.
    """
    own = os.environ.get(CONTROLLER, DEFAULT_CONTROLLER).rstrip("/")
    places: dict[tuple[str, str], list[Push]] = {}
    for push in pushes:
        places.setdefault(push.place, []).append(push)
    fates: dict[str, Fate] = {}
    for (url, table), some in places.items():
        try:
            client = ServiceClient(url, is_trusted=url.rstrip("/") == own)
            fates |= _fates(client, table, some)
        except TableNotFound:
            fates |= {push.entry_id: Fate.GONE for push in some}
        except (HoldfastError, LookupError, TypeError, ValueError, AttributeError):
            # It does not answer, refuses, or is something else that answers JSON.
            fates |= {push.entry_id: Fate.UNKNOWN for push in some}
    return fates


def _fates(client: ServiceClient, table: str, pushes: Sequence[Push]) -> dict[str, Fate]:
    path = segments_path(table, "lineage")
    lineage = client.get(path, type=_TYPE, timeout_s=_ASK_TIMEOUT_S)["lineageEntries"]
    known = client.get(segments_path(table, "snapshots"), type=_TYPE, timeout_s=_ASK_TIMEOUT_S)
    source: Mapping[str, str] = next((one["source"] for one in known["snapshots"] if one["isCurrent"]), {})

    def is_seen(push: Push) -> bool:
        return (source.get(LAKE_TABLE), source.get(LAKE_INSTANT)) == (push.lake, push.instant)

    return {push.entry_id: fate_of(push.entry_id, lineage, is_seen=is_seen(push)) for push in pushes}


def revert(lake: OpenTable, plan: RevertPlan, *, to_empty: bool = False) -> tuple[str, ...]:
    """Carry a plan out, until every broker has switched; those that had not when that took too long.

    What was reverted is no longer recorded. The service refuses what would leave
    queries without rows, unless that is allowed here.
    """
    client = ServiceClient(plan.controller)
    late: set[str] = set()
    for one in plan.steps.reverts:
        # Nobody has seen an open push, so there is nothing to wait for.
        waits = {} if one.is_open else WAITING_FOR_BROKERS
        late.update(late_brokers(_call(client, plan.table, one, toEmpty=to_empty, **waits)))
    forget_pushes(lake, [push for push in plan.pushes if push.entry_id in plan.reverted])
    return tuple(sorted(late))


def _plan_table(
    lake: OpenTable,
    client: ServiceClient,
    table: str,
    gone: Sequence[Push],
    removing: Collection[InstantTime],
) -> RevertPlan:
    here = [push.entry_id for push in gone if push.lake == lake.location.uri]
    left = {p.entry_id: f"it was pushed from {p.lake}" for p in gone if p.entry_id not in here}
    steps = Steps(left={})
    if here:
        lineage = _lineage(client, table)
        snapshots = client.get(segments_path(table, "snapshots"), type=_TYPE)["snapshots"]
        sources = [one.get("source", {}) for one in (*lineage.values(), *snapshots)]
        instants = {s[LAKE_INSTANT] for s in sources if s.get(LAKE_TABLE) == lake.location.uri}
        lost = find_undone_commits(lake, map(InstantTime, instants)) | set(removing)

        def is_gone(entry_id: str, source: Mapping[str, str]) -> bool:
            is_ours = source.get(LAKE_TABLE) == lake.location.uri and source.get(LAKE_INSTANT) in lost
            return is_ours or entry_id in here

        steps = plan_steps(lineage, snapshots, is_gone, here)
    steps = replace(steps, left={**steps.left, **left})
    return RevertPlan(controller=client.url, table=table, pushes=tuple(gone), steps=steps)


def _without_impossible(plan: RevertPlan) -> RevertPlan:
    """The plan without what the service cannot do for good; whatever else it refuses is raised."""
    client = ServiceClient(plan.controller)
    possible: list[Revert] = []
    left = dict(plan.steps.left)
    empties = False
    for one in plan.steps.reverts:
        try:
            empties |= bool(_call(client, plan.table, one, dryRun=True).get("empties"))
        except HoldfastError as error:
            code = error.facts.get("code")
            if code == "REVERT_SOURCE_GONE":
                left |= dict.fromkeys(one.entries, NOT_RETAINED)
                continue
            # What builds on it goes before it.
            if code != "REVERT_CONSUMED_BY" or not possible:
                raise
        possible.append(one)
    return replace(plan, steps=replace(plan.steps, reverts=tuple(possible), left=left), empties=empties)


def _call(client: ServiceClient, table: str, one: Revert, **how: Any) -> Mapping[str, Any]:
    newest = one.entries[0]
    if one.to_epoch is None:
        path = segments_path(table, "revertReplaceSegments")
        how |= {"segmentLineageEntryId": newest, "forceRevert": one.is_open}
    else:
        # A push that was published since is not to be taken back with these.
        path = segments_path(table, "rollback")
        how |= {"toEpoch": one.to_epoch, "fromEntryId": newest}
    answer: Mapping[str, Any] = client.post(path, type=_TYPE, **how)
    return answer


def _lineage(client: ServiceClient, table: str) -> Mapping[str, Mapping[str, Any]]:
    entries: Mapping[str, Mapping[str, Any]] = client.get(segments_path(table, "lineage"), type=_TYPE)[
        "lineageEntries"
    ]
    return entries
