"""Datasource options: a write or a read as users of Hudi's Spark datasource spell it.

Some names say what the table is: they make it, or are compared with it. Some
say what this one write or read does. What remains are options of the write.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from holdfast.config import key_generators, timestamps
from holdfast.config.choices import MergeMode, QueryType
from holdfast.config.key_generators import KeyGenerator, PartitionType
from holdfast.config.option import Area, split_names
from holdfast.config.option_table import ReadOptions, SourceOptions, options_of, parse_settings, spellings
from holdfast.config.options import effective_options
from holdfast.config.table import (
    ARGUMENTS,
    KNOWN_PAYLOADS,
    MERGE_MODE,
    TIMELINE_ZONE,
    TYPED_PARTITION_FIELDS,
    Payload,
    TableSettings,
    new_table_settings,
    payload_of_mode,
)
from holdfast.config.write import WRITE_AREAS, WriteSettings
from holdfast.errors import InvalidOption

OptionValue = str | bool | int | float

_NAME = "hoodie.table.name"
_TYPE = "hoodie.table.type"
_KEY = "hoodie.table.recordkey.fields"
_PARTITION = "hoodie.table.partition.fields"
_ORDERING = "hoodie.table.precombine.field"
_PAYLOAD = "hoodie.compaction.payload.class"
_HIVE_STYLE = "hoodie.datasource.write.hive_style_partitioning"
_PAYLOAD_ORDERING = "hoodie.payload.ordering.field"
"""Hudi's payloads read it beside the ordering column; another column there would be another order."""

OPERATION = options_of(Area.SOURCE)["operation"].name
PARTITIONS_TO_DELETE = options_of(Area.SOURCE)["partitions"].name
QUERY_TYPE = options_of(Area.READ)["query"].name
BEGIN = options_of(Area.READ)["since"].name
END = options_of(Area.READ)["until"].name
META_COLUMNS = options_of(Area.READ)["meta_columns"].name
PARTITIONS = options_of(Area.READ)["partitions"].name

_SOURCE_NAMES = frozenset(spellings([Area.SOURCE]))

_WRITE_AREAS = (*WRITE_AREAS, Area.TABLE, Area.SOURCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceWrite(SourceOptions):
    """A write, as Hudi's options describe it. Its operation is None if no option names one."""

    properties: Mapping[str, str]
    """What the options say about the table, by the names of `hoodie.properties`."""
    options: Mapping[str, str]
    """What is left: options of the write itself."""

    @classmethod
    def from_options(cls, options: Mapping[str, OptionValue]) -> Self:
        """Everything the options say, or `InvalidOption` before anything is done."""
        texts = {name: _text(value) for name, value in options.items()}
        given = effective_options(texts, _WRITE_AREAS)
        properties = _take_properties(given)
        source = parse_settings(Area.SOURCE, given)
        of_write = {name: text for name, text in given.items() if name not in _SOURCE_NAMES}
        WriteSettings.from_options(of_write)
        return cls(properties=properties, options=of_write, **source)

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
        properties = {name: ",".join(columns) for name, columns in described.items() if columns}
        return cls.from_options(properties | dict(options))

    def for_new_table(self, *, name: str, table_type: str) -> Self:
        """The same write, with the properties that a new table needs, too."""
        defaults = {_NAME: name, _TYPE: table_type, _HIVE_STYLE: "true"}
        return replace(self, properties=defaults | dict(self.properties))

    def new_settings(self) -> TableSettings:
        """Settings of the table that these options make; what they leave out is as in Hudi."""
        given = self.properties
        others = {name: text for name, text in given.items() if name not in ARGUMENTS}
        return new_table_settings(
            name=given.get(_NAME, ""),
            record_key=split_names(given.get(_KEY, "")),
            partition_by=split_names(given.get(_PARTITION, "")),
            ordering=given.get(_ORDERING) or None,
            table_type=given.get(_TYPE, "COPY_ON_WRITE"),
            properties={_HIVE_STYLE: "false"} | others,
        )

    def check_agrees(self, table: TableSettings) -> None:
        """`InvalidOption` with both values if an option contradicts the table."""
        for name, given in self.properties.items():
            existing = _table_value(table, name)
            if existing is None or _agree(name, given, existing):
                continue
            raise InvalidOption(
                "the option contradicts the table",
                option=options_of(Area.TABLE)[name].name,
                given=given or "nothing",
                table=existing or "nothing",
                hint="leave the option out, or write to another path",
            )

    def complete(self, table: TableSettings) -> TableSettings:
        """The settings of a table, completed by the options where its properties say nothing.

        Hudi 0.15 stores some settings nowhere: each of its writes is given them again.
        `InvalidOption` if one of them cannot be honoured.
        """
        unstored = _timestamps_to_add(table) | (
            {_PAYLOAD} if _table_value(table, _PAYLOAD) is None else set()
        )
        added = {name: text for name, text in self.properties.items() if name in unstored}
        if _PAYLOAD in unstored and MERGE_MODE in self.properties:
            mode = MergeMode(self.properties[MERGE_MODE])
            added.setdefault(_PAYLOAD, str(payload_of_mode(mode, table.ordering)))
        columns = self.properties.get(_PARTITION, "")
        if table.declared_partition_types is None and ":" in columns:
            added[TYPED_PARTITION_FIELDS] = columns
        settings = TableSettings.from_properties({**table.properties, **added})
        _check_added(settings, added)
        return settings


def _take_properties(given: dict[str, str]) -> dict[str, str]:
    """Take out of the options those that describe the table."""
    properties: dict[str, str] = {}
    for name, option in options_of(Area.TABLE).items():
        values = {spelling: given.pop(spelling) for spelling in option.names if spelling in given}
        for spelling, value in values.items():
            properties.setdefault(name, _normal_spelling(name, value, option=spelling))
        if values.get(_PAYLOAD_ORDERING, properties.get(name)) != properties.get(name):
            raise InvalidOption(
                "two options name different ordering columns",
                options=", ".join(f"{spelling}={value}" for spelling, value in values.items()),
            )
    return properties


def _normal_spelling(name: str, value: str, *, option: str) -> str:
    if name == key_generators.CLASS:
        return str(key_generators.parse_generator(value, option=option))
    if name == MERGE_MODE:
        return str(options_of(Area.TABLE)[name].parse(value, name=option))
    return value.upper() if name == _TYPE else value


def _table_value(table: TableSettings, name: str) -> str | None:
    """What the table says; None if Hudi may not have stored it."""
    values = {timestamps.NEW_NAMES.get(key, key): text for key, text in table.properties.items()}
    if name == key_generators.CLASS:
        return table.key_generator if any(key in values for key in key_generators.NAMES) else None
    if name == _ORDERING:
        return table.ordering or ""
    if name == TIMELINE_ZONE:
        return table.timeline_zone
    if name == MERGE_MODE:
        return None if _table_value(table, _PAYLOAD) is None else table.merge_mode
    if name == _PARTITION and table.key_generator == KeyGenerator.CUSTOM and table.declared_partition_types:
        pairs = zip(table.partition_by, table.declared_partition_types, strict=True)
        return ",".join(f"{column}:{kind}" for column, kind in pairs)
    may_be_unstored = name == _PAYLOAD or name in _timestamps_to_add(table)
    return values.get(name, None if may_be_unstored else "")


def _timestamps_to_add(table: TableSettings) -> frozenset[str]:
    """The settings of timestamps that Hudi may not have stored when it made the table."""
    if table.key_generator not in (KeyGenerator.TIMESTAMP, KeyGenerator.CUSTOM):
        return frozenset()
    stored = {timestamps.NEW_NAMES[name] for name in table.properties if name in timestamps.NEW_NAMES}
    # With the format it keeps all that were given, but the type.
    return frozenset({timestamps.TYPE} if timestamps.OUTPUT_FORMAT in stored else timestamps.NAMES) - stored


def _check_added(settings: TableSettings, added: Mapping[str, str]) -> None:
    """Refuse what the options add and cannot be honoured. What the table itself says is not judged."""
    if added.get(_PAYLOAD, Payload.LATEST_WRITE) not in KNOWN_PAYLOADS:
        raise _refuse(_PAYLOAD, added[_PAYLOAD], ", ".join(KNOWN_PAYLOADS))
    if TYPED_PARTITION_FIELDS in added and settings.declared_partition_types is None:
        raise _refuse(_PARTITION, added[TYPED_PARTITION_FIELDS], "columns such as city:SIMPLE,ts:TIMESTAMP")
    has_timestamps = PartitionType.TIMESTAMP in (settings.declared_partition_types or ())
    if has_timestamps and added.keys() & set(timestamps.NAMES):
        _check_added_timestamps(settings, added)


def _refuse(name: str, value: str, wanted: str) -> InvalidOption:
    option = options_of(Area.TABLE)[name]
    return option.refuse(value, wanted, name=option.name)


def _check_added_timestamps(settings: TableSettings, added: Mapping[str, str]) -> None:
    try:
        _ = settings.timestamps
    except InvalidOption as error:
        of_table = settings.properties.keys() - added.keys()
        if error.facts["property"] not in {timestamps.NEW_NAMES.get(name) for name in of_table}:
            raise


def _agree(name: str, given: str, existing: str) -> bool:
    if name == _PARTITION:
        return _same_columns(split_names(given), split_names(existing))
    return _comparable(name, given) == _comparable(name, existing)


def _same_columns(given: tuple[str, ...], existing: tuple[str, ...]) -> bool:
    """Whether the names agree, and the types where both sides have one."""
    if len(given) != len(existing):
        return False
    for ours, theirs in zip(given, existing, strict=True):
        (name, _, kind), (its_name, _, its_kind) = ours.partition(":"), theirs.partition(":")
        if name != its_name or (kind and its_kind and kind.upper() != its_kind.upper()):
            return False
    return True


def _comparable(name: str, text: str) -> object:
    if options_of(Area.TABLE)[name].kind is bool:
        return text.lower() == "true"
    return split_names(text) if name in (_KEY, _ORDERING) else text


def _text(value: OptionValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


_EARLIEST = "19700101000000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRead(ReadOptions):
    """A read, as Hudi's options describe it. `partitions` None means all."""

    @classmethod
    def from_options(cls, options: Mapping[str, OptionValue]) -> Self:
        texts = {name: _text(value) for name, value in options.items()}
        given = parse_settings(Area.READ, effective_options(texts, [Area.READ]))
        read = cls(**{**given, "columns": given.get("columns") or None})
        is_incremental = read.query is QueryType.INCREMENTAL
        if (read.since is not None) != is_incremental or (read.until is not None and read.since is None):
            raise InvalidOption(
                "an incremental read needs its beginning, and only it has one",
                hint=f"set {QUERY_TYPE}=incremental and {BEGIN}",
            )
        if read.deletes and not is_incremental:
            raise InvalidOption(
                "deletes are what changed since a commit",
                option=options_of(Area.READ)["deletes"].name,
                hint=f"set {QUERY_TYPE}=incremental and {BEGIN}",
            )
        if read.as_of is not None and is_incremental:
            raise InvalidOption("an incremental read is not as of an instant", hint=f"use {END}")
        return replace(
            read, since=_parse_beginning(read.since), partitions=_parse_partitions(read.partitions)
        )


def _parse_partitions(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if names is None:
        return None
    paths = tuple(path.strip("/") for path in names)
    if not paths or not all(paths):
        option = options_of(Area.READ)["partitions"]
        raise option.refuse(",".join(names), "paths of partitions, separated by commas")
    return paths


def _parse_beginning(text: str | None) -> str | None:
    """Hudi's jobs write `earliest`, or zeroes, for a beginning before every commit."""
    is_earliest = text is not None and (text.lower() == "earliest" or not text.strip("0"))
    return _EARLIEST if is_earliest else text
