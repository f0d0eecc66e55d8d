"""Datasource options: a write or a read as users of Hudi's Spark datasource spell it.

Some names say what the table is: they make it, or are compared with it. Some
say what this one write or read does. What remains are options of the write.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from holdfast.config import key_generators, timestamps
from holdfast.config.key_generators import KeyGenerator, PartitionType
from holdfast.config.table import (
    KNOWN_PAYLOADS,
    TYPED_PARTITION_FIELDS,
    Payload,
    TableSettings,
    new_table_settings,
)
from holdfast.config.write import WriteSettings
from holdfast.errors import InvalidOption

OptionValue = str | bool | int | float

_NAME = "hoodie.table.name"
_TYPE = "hoodie.table.type"
_KEY = "hoodie.table.recordkey.fields"
_PARTITION = "hoodie.table.partition.fields"
_ORDERING = "hoodie.table.precombine.field"
_PAYLOAD = "hoodie.compaction.payload.class"
_HIVE_STYLE = "hoodie.datasource.write.hive_style_partitioning"
_URL_ENCODE = "hoodie.datasource.write.partitionpath.urlencode"

TABLE_OPTIONS: Mapping[str, tuple[str, ...]] = {
    _NAME: ("hoodie.table.name", "hoodie.datasource.write.table.name"),
    _TYPE: ("hoodie.datasource.write.table.type", "hoodie.table.type"),
    _KEY: ("hoodie.datasource.write.recordkey.field", "hoodie.table.recordkey.fields"),
    _PARTITION: ("hoodie.datasource.write.partitionpath.field", "hoodie.table.partition.fields"),
    _ORDERING: (
        "hoodie.table.ordering.fields",
        "hoodie.datasource.write.precombine.field",
        "hoodie.table.precombine.field",
    ),
    key_generators.CLASS: (
        "hoodie.datasource.write.keygenerator.class",
        "hoodie.datasource.write.keygenerator.type",
        "hoodie.table.keygenerator.class",
        "hoodie.table.keygenerator.type",
    ),
    _PAYLOAD: ("hoodie.datasource.write.payload.class", "hoodie.compaction.payload.class"),
    _HIVE_STYLE: (_HIVE_STYLE,),
    _URL_ENCODE: (_URL_ENCODE,),
    "hoodie.database.name": ("hoodie.database.name",),
    "hoodie.table.create.schema": ("hoodie.table.create.schema",),
    **{
        name: tuple(given for given, stored in timestamps.NEW_NAMES.items() if stored == name)
        for name in timestamps.NAMES
    },
}
"""Property of a table → the options that say it, the one that wins first."""

OPERATION = "hoodie.datasource.write.operation"
PARTITIONS_TO_DELETE = "hoodie.datasource.write.partitions.to.delete"

_ARGUMENTS = frozenset({_NAME, _TYPE, _KEY, _PARTITION, _ORDERING})
"""Properties that `new_table_settings` takes as arguments of their own."""

_KNOWN_ONLY = frozenset(
    {
        "hoodie.datasource.compaction.async.enable",
        "hoodie.datasource.hive_sync.enable",
        "hoodie.datasource.insert.dup.policy",
        "hoodie.datasource.meta.sync.enable",
        "hoodie.datasource.write.commitmeta.key.prefix",
        "hoodie.datasource.write.drop.partition.columns",
        "hoodie.datasource.write.insert.drop.duplicates",
        "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled",
        "hoodie.datasource.write.reconcile.schema",
        "hoodie.datasource.write.record.merger.impls",
        "hoodie.datasource.write.record.merger.strategy",
        "hoodie.datasource.write.row.writer.enable",
        "hoodie.datasource.write.schema.allow.auto.evolution.column.drop",
        "hoodie.datasource.write.streaming.ignore.failed.batch",
        "hoodie.populate.meta.fields",
        "hoodie.record.merge.mode",
        "hoodie.table.cdc.enabled",
        "hoodie.write.record.merge.mode",
        "hoodie.write.table.version",
    }
)


class Operation(StrEnum):
    UPSERT = "upsert"
    INSERT = "insert"
    BULK_INSERT = "bulk_insert"
    DELETE = "delete"
    INSERT_OVERWRITE = "insert_overwrite"
    INSERT_OVERWRITE_TABLE = "insert_overwrite_table"
    DELETE_PARTITION = "delete_partition"

    @property
    def is_delete(self) -> bool:
        """Whether it only takes away, so that there is nothing to create or to replace."""
        return self in (Operation.DELETE, Operation.DELETE_PARTITION)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceWrite:
    """A write, as Hudi's options describe it."""

    operation: Operation | None
    """None if no option names one."""
    properties: Mapping[str, str]
    """What the options say about the table, by the names of `hoodie.properties`."""
    partitions: tuple[str, ...]
    """The partitions that `delete_partition` deletes."""
    options: Mapping[str, str]
    """What is left: options of the write itself."""

    @classmethod
    def from_options(cls, options: Mapping[str, OptionValue]) -> Self:
        """Everything the options say, or `InvalidOption` before anything is done."""
        given = {name: _text(value) for name, value in options.items()}
        properties = _properties(given)
        operation = given.pop(OPERATION, None)
        partitions = _names(given.pop(PARTITIONS_TO_DELETE, ""))
        for name in given:
            _check_known(name)
        WriteSettings.from_options(given)
        return cls(
            operation=None if operation is None else _operation(operation),
            properties=properties,
            partitions=partitions,
            options=given,
        )

    @classmethod
    def to_table(
        cls,
        *,
        record_key: Sequence[str],
        partition_by: Sequence[str],
        ordering: str | None,
        options: Mapping[str, OptionValue],
    ) -> Self:
        """A write to a table that is described beside the options. What is left out is not compared."""
        described = {_KEY: record_key, _PARTITION: partition_by, _ORDERING: [ordering] if ordering else []}
        said = {name: ",".join(columns) for name, columns in described.items() if columns}
        return cls.from_options(said | dict(options))

    def creating(self, *, name: str, table_type: str) -> Self:
        """The same, with what a table that is not there yet has to be told, too."""
        made = {_NAME: name, _TYPE: table_type, _HIVE_STYLE: "true"}
        return replace(self, properties=made | dict(self.properties))

    def new_settings(self) -> TableSettings:
        """Settings of the table that these options make; what they leave out is as in Hudi."""
        given = self.properties
        others = {name: text for name, text in given.items() if name not in _ARGUMENTS}
        return new_table_settings(
            name=given.get(_NAME, ""),
            record_key=_names(given.get(_KEY, "")),
            partition_by=_names(given.get(_PARTITION, "")),
            ordering=given.get(_ORDERING) or None,
            table_type=given.get(_TYPE, "COPY_ON_WRITE"),
            properties={_HIVE_STYLE: "false"} | others,
        )

    def check_agrees(self, table: TableSettings) -> None:
        """`InvalidOption` with both values if an option contradicts the table."""
        for name, given in self.properties.items():
            existing = _stored(table, name)
            if existing is None or _agree(name, given, existing):
                continue
            raise InvalidOption(
                "the option contradicts the table",
                option=TABLE_OPTIONS[name][0],
                given=given or "nothing",
                table=existing or "nothing",
                hint="leave the option out, or write to another path",
            )

    def completed(self, table: TableSettings) -> TableSettings:
        """The settings of a table, with what it does not tell and the options do.

        Hudi 0.15 keeps some of them nowhere: each of its writes is told them again.
        `InvalidOption` if one of them cannot be honoured.
        """
        untold = _untold_timestamps(table) | ({_PAYLOAD} if _stored(table, _PAYLOAD) is None else set())
        told = {name: text for name, text in self.properties.items() if name in untold}
        columns = self.properties.get(_PARTITION, "")
        if table.told_partition_types is None and ":" in columns:
            told[TYPED_PARTITION_FIELDS] = columns
        settings = TableSettings.from_properties({**table.properties, **told})
        _check_told(settings, told)
        return settings


def _properties(given: dict[str, str]) -> dict[str, str]:
    """Take out of the options those that describe the table."""
    found: dict[str, str] = {}
    for name, spellings in TABLE_OPTIONS.items():
        values = {spelling: given.pop(spelling) for spelling in spellings if spelling in given}
        for spelling, value in values.items():
            found.setdefault(name, _spelled(name, value, option=spelling))
    return found


def _spelled(name: str, value: str, *, option: str) -> str:
    if name == key_generators.CLASS:
        return str(key_generators.spelled_generator(value, option=option))
    return value.upper() if name == _TYPE else value


def _stored(table: TableSettings, name: str) -> str | None:
    """What the table says; None if it is of those that do not say it."""
    values = {timestamps.NEW_NAMES.get(key, key): text for key, text in table.properties.items()}
    if name == key_generators.CLASS:
        return table.key_generator if any(key in values for key in key_generators.NAMES) else None
    if name == _ORDERING:
        return table.ordering or ""
    if name == _PARTITION and table.key_generator == KeyGenerator.CUSTOM and table.told_partition_types:
        pairs = zip(table.partition_by, table.told_partition_types, strict=True)
        return ",".join(f"{column}:{kind}" for column, kind in pairs)
    is_told = name != _PAYLOAD and name not in _untold_timestamps(table)
    return values.get(name, "" if is_told else None)


def _untold_timestamps(table: TableSettings) -> frozenset[str]:
    """The settings of timestamps that Hudi may have kept to itself when it made the table."""
    if table.key_generator not in (KeyGenerator.TIMESTAMP, KeyGenerator.CUSTOM):
        return frozenset()
    told = {timestamps.NEW_NAMES[name] for name in table.properties if name in timestamps.NEW_NAMES}
    # With the format it keeps all that were given, but the type.
    return frozenset({timestamps.TYPE} if timestamps.OUTPUT_FORMAT in told else timestamps.NAMES) - told


def _check_told(settings: TableSettings, told: Mapping[str, str]) -> None:
    """Refuse what options told the settings and cannot be honoured: the table has no part in that."""
    if told.get(_PAYLOAD, Payload.LATEST_WRITE) not in KNOWN_PAYLOADS:
        raise _unusable(TABLE_OPTIONS[_PAYLOAD][0], told[_PAYLOAD], ", ".join(KNOWN_PAYLOADS))
    if TYPED_PARTITION_FIELDS in told and settings.told_partition_types is None:
        columns = told[TYPED_PARTITION_FIELDS]
        raise _unusable(TABLE_OPTIONS[_PARTITION][0], columns, "columns such as city:SIMPLE,ts:TIMESTAMP")
    has_timestamps = PartitionType.TIMESTAMP in (settings.told_partition_types or ())
    if has_timestamps and told.keys() & set(timestamps.NAMES):
        _check_told_timestamps(settings, told)


def _check_told_timestamps(settings: TableSettings, told: Mapping[str, str]) -> None:
    try:
        _ = settings.timestamps
    except InvalidOption as error:
        of_table = settings.properties.keys() - told.keys()
        if error.facts["property"] not in {timestamps.NEW_NAMES.get(name) for name in of_table}:
            raise


def _agree(name: str, given: str, existing: str) -> bool:
    if name == _PARTITION:
        return _same_columns(_names(given), _names(existing))
    return _comparable(name, given) == _comparable(name, existing)


def _same_columns(given: tuple[str, ...], existing: tuple[str, ...]) -> bool:
    """Whether the names agree, and the types where both sides have one."""
    if len(given) != len(existing):
        return False
    for one, other in zip(given, existing, strict=True):
        (name, _, kind), (other_name, _, other_kind) = one.partition(":"), other.partition(":")
        if name != other_name or (kind and other_kind and kind.upper() != other_kind.upper()):
            return False
    return True


def _comparable(name: str, text: str) -> object:
    if name in (_HIVE_STYLE, _URL_ENCODE):
        return text.lower() == "true"
    return _names(text) if name in (_KEY, _ORDERING) else text


def _operation(text: str) -> Operation:
    try:
        return Operation(text.lower())
    except ValueError:
        raise _unusable(OPERATION, text, ", ".join(Operation)) from None


def _check_known(name: str) -> None:
    """Refuse what is spelled like a name of this module; others are for the write to judge."""
    if name in _KNOWN_ONLY:
        raise InvalidOption("this option is not implemented", option=name, hint="leave it out")
    known = [OPERATION, PARTITIONS_TO_DELETE, *(s for names in TABLE_OPTIONS.values() for s in names)]
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.9)
    if nearest:
        raise InvalidOption("unknown option", option=name, hint=f"did you mean {nearest[0]}?")


def _unusable(option: str, value: str, wanted: str) -> InvalidOption:
    return InvalidOption("option has a value that cannot be used", option=option, value=value, wanted=wanted)


def _text(value: OptionValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


QUERY_TYPE = "hoodie.datasource.query.type"
BEGIN = "hoodie.datasource.read.begin.instanttime"
END = "hoodie.datasource.read.end.instanttime"
AS_OF = "as.of.instant"
COLUMNS = "columns"
META_COLUMNS = "meta_columns"

_EARLIEST = "19700101000000000"


class QueryType(StrEnum):
    SNAPSHOT = "snapshot"
    READ_OPTIMIZED = "read_optimized"
    INCREMENTAL = "incremental"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRead:
    """A read, as Hudi's options describe it, with two of our own: `columns` and `meta_columns`."""

    query: QueryType = QueryType.SNAPSHOT
    as_of: str | None = None
    since: str | None = None
    until: str | None = None
    columns: tuple[str, ...] | None = None
    meta_columns: bool = False

    @classmethod
    def from_options(cls, options: Mapping[str, OptionValue]) -> Self:
        given = {name.lower(): _text(value) for name, value in options.items()}
        query = _query(given.pop(QUERY_TYPE, QueryType.SNAPSHOT))
        since, until = given.pop(BEGIN, None), given.pop(END, None)
        as_of = given.pop(AS_OF, None)
        meta_columns = given.pop(META_COLUMNS, "false").lower()
        columns = _names(given.pop(COLUMNS, "")) or None
        if given:
            known = [QUERY_TYPE, BEGIN, END, AS_OF, COLUMNS, META_COLUMNS]
            nearest = difflib.get_close_matches(min(given), known, n=1, cutoff=0.75)
            hint = f"did you mean {nearest[0]}?" if nearest else "a read takes " + ", ".join(known)
            raise InvalidOption("unknown option of a read", option=min(given), hint=hint)
        if meta_columns not in ("true", "false"):
            raise _unusable(META_COLUMNS, meta_columns, "true or false")
        if (since is not None) != (query is QueryType.INCREMENTAL) or (until is not None and since is None):
            raise InvalidOption(
                "an incremental read needs its beginning, and only it has one",
                hint=f"set {QUERY_TYPE}=incremental and {BEGIN}",
            )
        if as_of is not None and query is QueryType.INCREMENTAL:
            raise InvalidOption("an incremental read is not as of an instant", hint=f"use {END}")
        return cls(
            query=query,
            as_of=as_of,
            since=None if since is None else _beginning(since),
            until=until,
            columns=columns,
            meta_columns=meta_columns == "true",
        )


def _query(text: str) -> QueryType:
    try:
        return QueryType(text.lower())
    except ValueError:
        raise _unusable(QUERY_TYPE, text, ", ".join(QueryType)) from None


def _beginning(text: str) -> str:
    """Hudi's jobs write `earliest`, or zeroes, for a beginning before every commit."""
    return _EARLIEST if text.lower() == "earliest" or not text.strip("0") else text
