"""Pending table services: the file slices that compactions and clusterings are yet to read.

Their plans wait on the timeline, and whoever carries one out relies on every
file that it names.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from holdfast.errors import TableDamaged
from holdfast.format.compaction_plans import decode_compaction_plan
from holdfast.format.malformed import Malformed
from holdfast.format.replace_requests import decode_replace_request
from holdfast.model.instant import Action, Instant, InstantTime, State, end_of
from holdfast.model.names import in_partition, instant_file, is_data_file
from holdfast.storage.store import Store
from holdfast.table.slices import named_files, slice_keys
from holdfast.timeline.timeline import Timeline

_COMPACTIONS = (Action.COMPACTION, Action.LOGCOMPACTION)
_ALL_SLICES = InstantTime("0")


@dataclass(frozen=True)
class PendingServices:
    planned: frozenset[InstantTime] = frozenset()
    """The services whose plans say what they need."""
    compactions: frozenset[InstantTime] = frozenset()
    """Compactions: log files may carry their instants, and continue the slices to be merged."""
    needed_since: Mapping[str, InstantTime] = field(default_factory=dict)
    """File group, as `partition/file id` → the instant of the first slice that is needed, with all later."""
    needed: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))
    """Single slices that are needed, as `partition/file id@instant`."""


NO_SERVICES = PendingServices()


def pending_services(store: Store, timeline: Timeline) -> PendingServices:
    """What the plans of services say that are not finished. `TableDamaged` if one cannot be read."""
    pending = [i for i in timeline.instants if not i.is_completed]
    compactions = [i for i in pending if i.action in _COMPACTIONS]
    replacements = [i for i in pending if i.action is Action.REPLACECOMMIT]
    if not compactions and not replacements:
        return NO_SERVICES
    since: dict[str, InstantTime] = {}
    inputs: list[str] = []
    planned: set[InstantTime] = set()
    for instant, path, content in _requests(store, compactions):
        try:
            operations = decode_compaction_plan(content).operations
        except Malformed as error:
            raise TableDamaged("a compaction plan cannot be read", file=path, cause=error) from error
        planned.add(instant.time)
        for one in operations:
            _need(since, in_partition(one.partition, one.file_id), one.base_instant or _ALL_SLICES)
    for instant, path, content in _requests(store, replacements):
        try:
            request = decode_replace_request(content)
        except Malformed as error:
            raise TableDamaged("a replacecommit's request cannot be read", file=path, cause=error) from error
        if request.is_clustering and request.inputs:
            planned.add(instant.time)
        for each in request.inputs:
            inputs += each.paths
            if not each.files or not all(map(is_data_file, each.files)):
                _need(since, in_partition(each.partition, each.file_id), _ALL_SLICES)
    return PendingServices(
        frozenset(planned),
        frozenset(i.time for i in compactions if i.action is Action.COMPACTION),
        since,
        slice_keys(named_files(pa.array(inputs, pa.string()))).combine_chunks(),
    )


def _need(since: dict[str, InstantTime], group: str, base: InstantTime) -> None:
    known = since.get(group)
    if known is None or end_of(base) < end_of(known):
        since[group] = base


def _requests(store: Store, instants: Iterable[Instant]) -> Iterable[tuple[Instant, str, bytes]]:
    """The services' plans; one that is empty or not there was never whole, and nothing was done by it."""
    listed = list(instants)
    paths = [instant_file(i.time, i.action, State.REQUESTED) for i in listed]
    for instant, path, content in zip(listed, paths, store.read_all(paths), strict=True):
        if content:
            yield instant, path, content
