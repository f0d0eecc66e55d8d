"""Everything the push service knows, as values: schemas, tables, their segments and their state.

A table's state spans several records. It is read as of one moment and written
in one transaction: every writer changes the table's side record, so a reader
that finds it unchanged around a read has seen one state, and of two writers that
decide on the same state one loses with `LineageChanged`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from holdfast.config.push import PushTable, check_new_name
from holdfast.config.push_schema import Schema
from holdfast.errors import (
    InvalidRequest,
    LineageChanged,
    Refused,
    TableDamaged,
    TableExists,
    TableNotFound,
)
from holdfast.format.lineage import lineage_record
from holdfast.format.malformed import Malformed
from holdfast.format.segments import segment_record
from holdfast.format.table_configs import schema_record, table_config_record
from holdfast.format.znode import encode_record
from holdfast.model.segment import Segment
from holdfast.push.metastore.port import Change, Check, Create, Metastore, Remove, Replace, Versioned
from holdfast.push.state.records import (
    CONFIGS,
    SCHEMAS,
    BrokerEpochs,
    DecodedRecords,
    broker_epoch_path,
    broker_epochs_path,
    config_path,
    decode_epochs,
    empty_external_view,
    empty_ideal_state,
    encode_epochs,
    encode_push_state,
    external_view_path,
    ideal_state_path,
    lineage_path,
    push_state_path,
    schema_path,
    segment_path,
    segments_path,
    with_segments,
)
from holdfast.push.state.table_state import PushState, TableState

_READ_ATTEMPTS = 100
_WRITE_ATTEMPTS = 20
_BATCH = 500
"""Records removed in one write; a ZooKeeper packet holds several thousand paths."""

_Value = TypeVar("_Value")


class Catalog:
    """The records of one cluster."""

    def __init__(self, metastore: Metastore, *, instance: str = "Server_localhost_8098") -> None:
        self.metastore = metastore
        self._instance = instance
        """The server that holds segments, in Pinot's records."""
        self._records = DecodedRecords()

    # Schemas

    def schemas(self) -> tuple[str, ...]:
        return self.metastore.children(SCHEMAS)

    def schema(self, name: str) -> Schema:
        return self._schema(name)[0]

    def create_schema(self, schema: Schema) -> None:
        """By a name that a table can have, too, because a schema is granted like it."""
        check_new_name(f"{schema.name}_OFFLINE")
        alike = [one for one in self.schemas() if one != schema.name and one.lower() == schema.name.lower()]
        if alike:
            raise TableExists(
                "a schema exists whose name differs only by case",
                schema=schema.name,
                other=alike[0],
                code="SCHEMA_EXISTS",
                hint="choose another name",
            )
        try:
            self.metastore.write([Create(schema_path(schema.name), _schema_bytes(schema))])
        except LineageChanged as error:
            raise TableExists(
                "the schema exists already", schema=schema.name, code="SCHEMA_EXISTS"
            ) from error

    def replace_schema(self, schema: Schema) -> None:
        def replace() -> None:
            _, version = self._schema(schema.name)
            self.metastore.write([Replace(schema_path(schema.name), _schema_bytes(schema), version)])

        _until_won(replace)

    def delete_schema(self, name: str) -> None:
        """Refused while a table uses it."""

        def delete() -> None:
            _, version = self._schema(name)
            users = [table for table in self.tables() if self._schema_name(self.table(table)) == name]
            if users:
                raise Refused(
                    "a table uses the schema", schema=name, tables=", ".join(users), code="SCHEMA_IN_USE"
                )
            # A table that is created meanwhile changes the schema's version.
            self.metastore.write([Remove(schema_path(name), version)])

        _until_won(delete)

    def schema_of(self, table: str) -> Schema:
        """The schema of a table."""
        return self.schema(self._schema_name(self.table(table)))

    def users_of_schema(self, name: str) -> tuple[str, ...]:
        """The tables that use a schema, as far as they tell."""
        users: list[str] = []
        for table in self.tables():
            with suppress(TableNotFound, TableDamaged):
                users += [table] if self._schema_name(self.table(table)) == name else []
        return tuple(users)

    # Tables

    def tables(self) -> tuple[str, ...]:
        """Typed names of all tables, those included that are being deleted."""
        return tuple(name for name in self.metastore.children(CONFIGS) if name.endswith("_OFFLINE"))

    def table(self, table: str) -> PushTable:
        found = self.metastore.read(config_path(table))
        if found is None:
            raise _no_table(table)
        return self._records.config(table, found)

    def create_table(self, config: PushTable) -> None:
        """Create the table, empty. Its schema must exist."""
        table = config.table
        check_new_name(table)

        def create() -> None:
            if self.metastore.read(config_path(table)) is not None:
                raise TableExists("the table exists already", table=table, code="TABLE_EXISTS")
            alike = [one for one in self.tables() if one.lower() == table.lower()]
            if alike:
                raise TableExists(
                    "a table exists whose name differs only by case",
                    table=table,
                    other=alike[0],
                    code="TABLE_EXISTS",
                    hint="queries find tables in any case; choose another name",
                )
            found = dict(zip(_state_paths(table), self.metastore.read_all(_state_paths(table)), strict=True))
            former = found.pop(push_state_path(table))
            left = [path for path, record in found.items() if record is not None]
            if left or (former is not None and not self._is_tombstone(table, former)):
                raise TableExists(
                    "an earlier table of this name was not deleted to the end",
                    table=table,
                    left=", ".join(left),
                    code="TABLE_EXISTS",
                    hint="delete the table again, then create it",
                )
            self.metastore.write([*self._bump_schema(config), *self._new_table(config, former)])

        _until_won(create)

    def load(self, table: str) -> TableState:
        """The table as it was at one moment."""
        for _ in range(_READ_ATTEMPTS):
            state = self._load_once(table)
            if state is not None:
                return state
        raise LineageChanged(
            "the table changes faster than it can be read", table=table, code="CAS_EXHAUSTED"
        )

    def save(
        self,
        before: TableState,
        after: TableState,
        *,
        added: Mapping[str, Segment] | None = None,
        forgotten: Iterable[str] = (),
        extra: Sequence[Change] = (),
    ) -> None:
        """Write the step from one state to the next in one transaction, or nothing.

        `added` are segments whose metadata is new or changed, `forgotten` those
        whose metadata goes. `LineageChanged` if any record of the table is not
        as `before` says: load again, decide again.
        """
        changes = self.changes(before, after, added=added, forgotten=forgotten)
        self.metastore.write([*changes, *extra])

    def changes(
        self,
        before: TableState,
        after: TableState,
        *,
        added: Mapping[str, Segment] | None = None,
        forgotten: Iterable[str] = (),
    ) -> list[Change]:
        """What `save` writes."""
        try:
            return self._changes(before, after, added={} if added is None else added, forgotten=forgotten)
        except Malformed as error:
            # Every record that was read is text; this came with the request.
            raise InvalidRequest("the request holds what is not text", cause=str(error)) from error

    def _changes(
        self,
        before: TableState,
        after: TableState,
        *,
        added: Mapping[str, Segment],
        forgotten: Iterable[str],
    ) -> list[Change]:
        assert before.table == after.table, "a step stays in its table"
        assert added.keys() <= after.segments, "a segment that is added is in the table"
        table, versions = after.table, before.versions
        written: dict[str, bytes] = {push_state_path(table): encode_push_state(after.push)}
        if after.lineage != before.lineage:
            written[lineage_path(table)] = encode_record(lineage_record(table, after.lineage))
        if after.config != before.config:
            written[config_path(table)] = _config_bytes(after.config)
        # Mostly they are the same set, which comparing would go through name by name.
        has_moved = after.segments is not before.segments and after.segments != before.segments
        if has_moved or not before.offline.isdisjoint(added):
            written |= self._placements(before, after, renewed=added)
        changes = [_put(path, data, versions[path]) for path, data in written.items()]
        changes += [Check(path, version) for path, version in versions.items() if path not in written]
        return changes + self._metadata_changes(table, added, forgotten)

    def begin_delete(self, table: str, *, now_ms: int) -> frozenset[str]:
        """Make the table unreadable at once, and say which segments' files may be left of it.

        Repeating it is safe. The files go next, then `finish_delete`.
        """

        def begin() -> frozenset[str]:
            found = dict(zip(_all_paths(table), self.metastore.read_all(_all_paths(table)), strict=True))
            names = self._names_left(table, found)
            if not names and self._is_gone(table, found):
                raise _no_table(table)
            self._forbid(table, found, now_ms)
            return names

        return _until_won(begin)

    def finish_delete(self, table: str) -> None:
        """Remove what is left of a table whose files are gone: metadata, then lineage and configuration.

        The side record stays as a tombstone. If a table of this name is created
        again its versions and its epoch go on from there, so a writer that still
        holds the old table loses. Nothing happens to a table that is not being
        deleted: then another caller has finished, and this is a new table.
        """

        def finish() -> None:
            found = dict(zip(_all_paths(table), self.metastore.read_all(_all_paths(table)), strict=True))
            guard = push_state_path(table)
            record = found.pop(guard)
            if record is None or not self._is_tombstone(table, record):
                return
            self._forget(table, self.metastore.children(segments_path(table)), [Check(guard, record.version)])
            removals = [Remove(path, each.version) for path, each in found.items() if each is not None]
            if removals:
                buried = replace(self._records.push_state(table, record), deletions=())
                self.metastore.write([Replace(guard, encode_push_state(buried), record.version), *removals])

        _until_won(finish)

    def is_being_deleted(self, table: str) -> bool:
        """Whether deletion has begun and no other table of this name was created since.

        Files that were listed before the answer yes are the deleted table's.
        """
        found = self.metastore.read(push_state_path(table))
        return found is not None and self._is_tombstone(table, found)

    def watch(self, table: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Be called soon after anything that decides what queries of the table see changes."""
        ends = [
            self.metastore.watch(path, changed)
            for path in (
                push_state_path(table),
                lineage_path(table),
                ideal_state_path(table),
                external_view_path(table),
                config_path(table),
            )
        ]

        def end() -> None:
            for each in ends:
                each()

        return end

    def watch_tables(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Be called soon after a table is created, configured or deleted."""
        return self.metastore.watch(CONFIGS, changed)

    # Segments

    def segment(self, table: str, name: str) -> Segment | None:
        return self.segments(table, [name]).get(name)

    def segments(self, table: str, names: Iterable[str]) -> dict[str, Segment]:
        """The metadata of these segments; those without any are left out."""
        wanted = list(names)
        found = self.metastore.read_all([segment_path(table, name) for name in wanted])
        return {
            name: self._records.segment(table, name, record)
            for name, record in zip(wanted, found, strict=True)
            if record is not None
        }

    def all_segments(self, table: str) -> dict[str, Segment]:
        """Every segment with metadata, whether or not it is in the table any more."""
        found = self.metastore.read_children(segments_path(table))
        return {name: self._records.segment(table, name, record) for name, record in found.items()}

    def forget(self, table: str, names: Iterable[str]) -> None:
        """Remove the metadata of segments that left the table and whose files are gone."""
        _until_won(lambda: self._forget(table, names, []))

    # Brokers

    def announce_epoch(self, table: str, broker: str, epochs: BrokerEpochs) -> None:
        """Say what a broker of this process reads; others see it while this process lives."""
        self.metastore.announce(broker_epoch_path(table, broker), encode_epochs(epochs))

    def withdraw_epoch(self, table: str, broker: str) -> None:
        self.metastore.withdraw(broker_epoch_path(table, broker))

    def broker_epochs(self, table: str) -> dict[str, BrokerEpochs]:
        """What every living broker reads. One that cannot be understood holds everything up."""
        found = self.metastore.read_children(broker_epochs_path(table))
        return {broker: decode_epochs(record.data) for broker, record in found.items()}

    def _schema(self, name: str) -> tuple[Schema, int]:
        found = self.metastore.read(schema_path(name))
        if found is None:
            raise TableNotFound("there is no such schema", schema=name, code="SCHEMA_NOT_FOUND")
        return self._records.schema(name, found), found.version

    @staticmethod
    def _schema_name(config: PushTable) -> str:
        segments = config.raw.get("segmentsConfig")
        named = segments.get("schemaName") if isinstance(segments, Mapping) else None
        return named if isinstance(named, str) and named else config.raw_table

    def _bump_schema(self, config: PushTable) -> list[Change]:
        """Bump the schema's version, so that it is not deleted while the table is created."""
        name = self._schema_name(config)
        try:
            schema, version = self._schema(name)
        except TableNotFound as error:
            raise InvalidRequest(
                "the table's schema does not exist",
                table=config.table,
                schema=name,
                code="SCHEMA_NOT_FOUND",
                hint="create the schema first",
            ) from error
        return [Replace(schema_path(name), _schema_bytes(schema), version)]

    def _new_table(self, config: PushTable, former: Versioned | None) -> list[Change]:
        table = config.table
        epoch = 0 if former is None else self._records.push_state(table, former).epoch + 1
        return [
            Create(config_path(table), _config_bytes(config)),
            Create(ideal_state_path(table), encode_record(empty_ideal_state(config))),
            Create(external_view_path(table), encode_record(empty_external_view(config))),
            _put(push_state_path(table), encode_push_state(PushState(epoch=epoch)), _version(former)),
        ]

    def _load_once(self, table: str) -> TableState | None:
        """The state, or None if it changed while it was read."""
        guard = push_state_path(table)
        # Segments before lineage: entries hide new segments before these appear.
        paths = (ideal_state_path(table), external_view_path(table), lineage_path(table), config_path(table))
        first, *found, last = self.metastore.read_all([guard, *paths, guard])
        if _version(first) != _version(last):
            return None
        ideal, view, lineage, config = found
        if config is None:
            raise _no_table(table)
        push = self._records.push_state(table, first)
        if push.deleting_since_ms is not None:
            raise _no_table(table, hint="it is being deleted; delete it again to finish")
        placed = self._records.placement(ideal_state_path(table), ideal)
        return TableState(
            table=table,
            config=self._records.config(table, config),
            segments=placed.segments,
            lineage=self._records.lineage(table, lineage),
            push=push,
            versions={
                guard: _version(first),
                **{path: _version(record) for path, record in zip(paths, found, strict=True)},
            },
            offline=self._records.offline(placed, self._records.placement(external_view_path(table), view)),
        )

    def _placements(
        self, before: TableState, after: TableState, *, renewed: Mapping[str, Segment]
    ) -> dict[str, bytes]:
        """Ideal state and external view with the segments of `after`."""
        table = after.table
        placements = {}
        for path, empty in (
            (ideal_state_path(table), empty_ideal_state(after.config)),
            (external_view_path(table), empty_external_view(after.config)),
        ):
            found = self.metastore.read(path)
            if _version(found) != before.versions[path]:
                raise LineageChanged("a record changed in the meantime", path=path, hint="decide again")
            known = empty if found is None else self._records.placement(path, found).record
            placed = with_segments(known, after.segments, instance=self._instance, renewed=renewed)
            placements[path] = encode_record(placed)
        return placements

    def _metadata_changes(
        self, table: str, added: Mapping[str, Segment], forgotten: Iterable[str]
    ) -> list[Change]:
        gone = [name for name in forgotten if name not in added]
        paths = [segment_path(table, name) for name in (*added, *gone)]
        versions = dict(zip(paths, map(_version, self.metastore.read_all(paths)), strict=True))
        changes: list[Change] = []
        for name, segment in added.items():
            path = segment_path(table, name)
            changes.append(_put(path, encode_record(segment_record(segment)), versions[path]))
        for name in gone:
            path = segment_path(table, name)
            version = versions[path]
            if version is not None:
                changes.append(Remove(path, version))
        return changes

    def _names_left(self, table: str, found: Mapping[str, Versioned | None]) -> frozenset[str]:
        """Every name that a record of the table tells; one that cannot be read tells none."""
        names = set(self.metastore.children(segments_path(table)))
        with suppress(TableDamaged):
            names |= self._records.placement(ideal_state_path(table), found[ideal_state_path(table)]).segments
        with suppress(TableDamaged):
            for entry in self._records.lineage(table, found[lineage_path(table)]).entries:
                names.update(entry.segments_from, entry.segments_to)
        with suppress(TableDamaged):
            for pending in self._records.push_state(table, found[push_state_path(table)]).deletions:
                names.update(pending.segments)
        return frozenset(names)

    def _forbid(self, table: str, found: Mapping[str, Versioned | None], now_ms: int) -> None:
        """Take the table away from queries and from every other writer, in one write."""
        guard = push_state_path(table)
        record = found[guard]
        try:
            push = self._records.push_state(table, record)
        except TableDamaged:
            push = PushState()
        placements = [found[path] for path in (ideal_state_path(table), external_view_path(table))]
        if push.deleting_since_ms is not None and not any(placements):
            return
        doomed = PushState(epoch=push.epoch + 1, deletions=push.deletions, deleting_since_ms=now_ms)
        changes = [_put(guard, encode_push_state(doomed), _version(record))]
        for path in (ideal_state_path(table), external_view_path(table)):
            placed = found[path]
            if placed is not None:
                changes.append(Remove(path, placed.version))
        self.metastore.write(changes)

    def _forget(self, table: str, names: Iterable[str], checks: Sequence[Change]) -> None:
        wanted = [segment_path(table, name) for name in names]
        for at in range(0, len(wanted), _BATCH):
            paths = wanted[at : at + _BATCH]
            found = zip(paths, self.metastore.read_all(paths), strict=True)
            removals = [Remove(path, record.version) for path, record in found if record is not None]
            if removals:
                self.metastore.write([*checks, *removals])

    def _is_gone(self, table: str, found: Mapping[str, Versioned | None]) -> bool:
        """Whether of all records at most a tombstone is left."""
        guard = push_state_path(table)
        if any(record is not None for path, record in found.items() if path != guard):
            return False
        record = found[guard]
        return record is None or self._is_tombstone(table, record)

    def _is_tombstone(self, table: str, record: Versioned) -> bool:
        try:
            return self._records.push_state(table, record).deleting_since_ms is not None
        except TableDamaged:
            return False


def _until_won(attempt: Callable[[], _Value]) -> _Value:
    """Read, decide and write again as long as another writer was faster."""
    for _ in range(_WRITE_ATTEMPTS - 1):
        try:
            return attempt()
        except LineageChanged:
            continue
    return attempt()


def _state_paths(table: str) -> tuple[str, ...]:
    return (ideal_state_path(table), external_view_path(table), lineage_path(table), push_state_path(table))


def _all_paths(table: str) -> tuple[str, ...]:
    return (*_state_paths(table), config_path(table))


def _put(path: str, data: bytes, version: int | None) -> Change:
    """The first write of a record is a creation: a version that means "any" would erase another's."""
    return Create(path, data) if version is None else Replace(path, data, version)


def _version(record: Versioned | None) -> int | None:
    return None if record is None else record.version


def _config_bytes(config: PushTable) -> bytes:
    return encode_record(table_config_record(config.table, config.raw))


def _schema_bytes(schema: Schema) -> bytes:
    return encode_record(schema_record(schema.name, schema.raw))


def _no_table(table: str, *, hint: str = "") -> TableNotFound:
    return TableNotFound("there is no such table", table=table, code="TABLE_NOT_FOUND", hint=hint)
