"""Merge-on-read tables as Hudi leaves them: names, commits, plans and heads of blocks are real, rows are not.

Beside the table stands a plain account of what it consists of, so that what
readers need is known without asking the code under test.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass, field

from harness.world import LOCATION, World, memory_world
from holdfast.config.table import new_table_settings
from holdfast.format.avro import encode_container
from holdfast.format.avro_payloads import hudi_schema
from holdfast.format.commits import CommitMetadata, WriteStat, encode_commit
from holdfast.format.compaction_plans import CompactionOperation, CompactionPlan, encode_compaction_plan
from holdfast.format.log_blocks import BlockHeader, BlockType, LogBlock, encode_block
from holdfast.format.replace_requests import encode_replace_request
from holdfast.format.savepoints import encode_savepoint, savepoint_of
from holdfast.model.instant import Action, InstantTime, State, time_at
from holdfast.model.names import in_partition, instant_file, marker_path, partition_of
from holdfast.table.opened import create_new

Group = tuple[str, str]
"""Partition and file id."""


@dataclass
class Slice:
    instant: InstantTime
    base: str | None = None
    logs: list[str] = field(default_factory=list)

    @property
    def files(self) -> set[str]:
        return {*self.logs, *([] if self.base is None else [self.base])}


@dataclass
class Planned:
    """A compaction, log compaction or clustering that is not finished, and the slices it is to read."""

    action: Action
    inputs: dict[Group, Slice]


@dataclass
class HudiTable:
    world: World = field(default_factory=memory_world)
    groups: dict[Group, list[Slice]] = field(default_factory=dict)
    """Live file groups, each with its slices, oldest first; that of a pending compaction is among them."""
    pending: dict[InstantTime, Planned] = field(default_factory=dict)
    number: int = 0
    marked: InstantTime | None = None
    """The write that leaves markers."""

    def __post_init__(self) -> None:
        settings = new_table_settings(
            name="trips", record_key=("id",), partition_by=("city",), ordering=None,
            table_type="MERGE_ON_READ", properties={},
        )  # fmt: skip
        create_new(self.world.store, LOCATION, settings, clock=self.world.clock, host=self.world.host)

    # What there is.

    def compacting(self, group: Group) -> InstantTime | None:
        found = (t for t, p in self.pending.items() if p.action is Action.COMPACTION and group in p.inputs)
        return next(found, None)

    def is_claimed(self, group: Group) -> bool:
        return any(group in planned.inputs for planned in self.pending.values())

    def snapshot(self) -> set[str]:
        """The files that a query reads that begins now."""
        files: set[str] = set()
        for group, slices in self.groups.items():
            files |= slices[-1].files
            if slices[-1].instant == self.compacting(group) and len(slices) > 1:
                files |= slices[-2].files
        return files

    # What a writer does.

    def deltacommit(
        self,
        *,
        logs: Iterable[Group] = (),
        base: Iterable[Group] = (),
        cdc: bool = False,
        finish: bool = True,
        markers: bool = False,
    ) -> InstantTime:
        """Write a log file for each group of the one, a base file for each new group of the other."""
        time = self._begin(Action.DELTACOMMIT)
        self.marked = time if markers else None
        stats = [self._log(group, time, ".cdc" if cdc else "", is_shown=finish) for group in logs]
        stats += [self._base(group, time, is_shown=finish) for group in base]
        if finish:
            self._complete(time, Action.DELTACOMMIT, stats, "UPSERT")
        return time

    def append(self, group: Group, *, finish: bool = True, markers: bool = False) -> InstantTime:
        """Add a block to the newest log file of a slice, as releases before 0.15 do where files can grow."""
        time = self._begin(Action.DELTACOMMIT)
        slice_ = self.groups[group][-1]
        path = slice_.logs[-1]
        if markers:
            self._put(marker_path(time, path, "APPEND"))
        self.world.store.put(path, self.world.store.read(path) + block_of(time))
        if finish:
            stat = WriteStat(
                group[1], path=path, prev_commit=slice_.instant, partition_path=group[0], num_writes=1,
                file_size_in_bytes=len(self.world.store.read(path)),
            )  # fmt: skip
            self._complete(time, Action.DELTACOMMIT, [stat], "UPSERT")
        return time

    def replace(self, groups: Iterable[Group]) -> InstantTime:
        """Overwrite the groups with a new one in each partition."""
        time = self._begin(Action.REPLACECOMMIT, encode_replace_request())
        self._replace(time, list(groups), "INSERT_OVERWRITE")
        return time

    def schedule_compaction(self, groups: Iterable[Group], *, of_logs: bool = False) -> InstantTime:
        action = Action.LOGCOMPACTION if of_logs else Action.COMPACTION
        inputs = {group: self.groups[group][-1] for group in groups}
        operations = tuple(
            CompactionOperation(
                file_id, partition, one.instant, _name(one.base) or None, tuple(map(_name, one.logs))
            )
            for (partition, file_id), one in inputs.items()
        )
        return self._schedule(action, inputs, encode_compaction_plan(CompactionPlan(operations)))

    def schedule_clustering(self, groups: Iterable[Group]) -> InstantTime:
        inputs = {group: self.groups[group][-1] for group in groups}
        slices = [
            {
                "dataFilePath": "" if one.base is None else f"file:/moved/{one.base}",
                "deltaFilePaths": [f"file:/moved/{path}" for path in one.logs],
                "fileId": file_id,
                "partitionPath": partition,
            }
            for (partition, file_id), one in inputs.items()
        ]
        plan = {"inputGroups": [{"slices": slices, "numOutputFileGroups": 1}]}
        request = {"operationType": "CLUSTER", "clusteringPlan": plan}
        return self._schedule(
            Action.REPLACECOMMIT,
            inputs,
            encode_container(hudi_schema("HoodieRequestedReplaceMetadata"), request),
        )

    def finish(self, time: InstantTime) -> None:
        """Carry out what was scheduled."""
        planned = self.pending.pop(time)
        self.world.clock.now += 1000
        self._put(instant_file(time, planned.action, State.INFLIGHT))
        match planned.action:
            case Action.COMPACTION:
                stats = [self._base(group, time) for group in planned.inputs]
                self._complete(time, planned.action, stats, "COMPACT")
            case Action.LOGCOMPACTION:
                stats = [self._log(group, time) for group in planned.inputs]
                self._complete(time, planned.action, stats, "LOG_COMPACT")
            case _:
                self._replace(time, list(planned.inputs), "CLUSTER")

    def savepoint(self, time: InstantTime, files: Iterable[str]) -> None:
        """Protect a commit, as Hudi does: base and log files by their names."""
        named: dict[str, tuple[str, ...]] = {}
        for path in sorted(files):
            named[partition_of(path)] = (*named.get(partition_of(path), ()), _name(path))
        self._put(instant_file(time, Action.SAVEPOINT, State.INFLIGHT))
        content = encode_savepoint(savepoint_of("user", 0, "", named))
        self._put(instant_file(time, Action.SAVEPOINT, State.COMPLETED), content)

    # How.

    def _now(self) -> InstantTime:
        self.world.clock.now += 1000
        return time_at(self.world.clock.now_ms(), dt.UTC)

    def _begin(self, action: Action, request: bytes = b"") -> InstantTime:
        time = self._now()
        self._put(instant_file(time, action, State.REQUESTED), request)
        self._put(instant_file(time, action, State.INFLIGHT), encode_commit(CommitMetadata({})))
        return time

    def _schedule(self, action: Action, inputs: dict[Group, Slice], plan: bytes) -> InstantTime:
        time = self._now()
        self._put(instant_file(time, action, State.REQUESTED), plan)
        self.pending[time] = Planned(action, inputs)
        return time

    def _complete(
        self, time: InstantTime, action: Action, stats: list[WriteStat], operation: str, **more: object
    ) -> None:
        written: dict[str, list[WriteStat]] = {}
        for stat in stats:
            written.setdefault(stat.partition_path or "", []).append(stat)
        content = encode_commit(CommitMetadata(written, operation_type=operation, **more))
        self.world.clock.now += 1000
        self._put(instant_file(time, action, State.COMPLETED), content)

    def _replace(self, time: InstantTime, groups: list[Group], operation: str) -> None:
        replaced: dict[str, list[str]] = {}
        for partition, file_id in groups:
            replaced.setdefault(partition, []).append(file_id)
            del self.groups[partition, file_id]
        self.number += 1
        stats = [self._base((partition, f"r{self.number}-0"), time) for partition in replaced]
        self._complete(time, Action.REPLACECOMMIT, stats, operation, partition_to_replace_file_ids=replaced)

    def _base(self, group: Group, time: InstantTime, *, is_shown: bool = True) -> WriteStat:
        partition, file_id = group
        path = in_partition(partition, f"{file_id}_0-1-1_{time}.parquet")
        slices = self.groups.get(group, [])
        previous = next((one.instant for one in reversed(slices) if one.base is not None), None)
        if is_shown:
            if not slices or slices[-1].instant != time:
                slices = [*slices, Slice(time)]
            slices[-1].base = path
            self.groups[group] = slices
        return self._stat(group, path, previous, "CREATE" if previous is None else "MERGE")

    def _log(self, group: Group, time: InstantTime, suffix: str = "", *, is_shown: bool = True) -> WriteStat:
        partition, file_id = group
        slices = self.groups.get(group, [])
        target = self.compacting(group) or (slices[-1].instant if slices else time)
        if not slices or slices[-1].instant != target:
            slices = [*slices, Slice(target)]
        self.number += 1
        name = f".{file_id}_{target}.log.{len(slices[-1].logs) + 1}_0-{self.number}-1{suffix}"
        path = in_partition(partition, name)
        if is_shown or group in self.groups:
            # What a write left that did not finish is in the slice, too; readers skip its blocks.
            slices[-1].logs.append(path)
            self.groups[group] = slices
        return self._stat(group, path, target, "APPEND", block_of(time, 100 + self.number))

    def _stat(
        self, group: Group, path: str, previous: InstantTime | None, kind: str, content: bytes = b""
    ) -> WriteStat:
        partition, file_id = group
        self.number += 1
        if self.marked is not None:
            self._put(marker_path(self.marked, path, kind))
        content = content or b"x" * (100 + self.number)
        size = len(content)
        self._put(path, content)
        return WriteStat(
            file_id, path=path, prev_commit=previous or "null", partition_path=partition,
            file_size_in_bytes=size, num_writes=1,
        )  # fmt: skip

    def _put(self, path: str, content: bytes = b"") -> None:
        assert self.world.store.create(path, content), path


def block_of(time: InstantTime, size: int = 100) -> bytes:
    """A block of rows that nobody reads."""
    return encode_block(
        LogBlock(BlockType.PARQUET_DATA, b"x" * size, {BlockHeader.INSTANT_TIME: time.encode()})
    )


def _name(path: str | None) -> str:
    return (path or "").rpartition("/")[2]
