"""Settings of a table, as `hoodie.properties` keeps them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from holdfast.config import key_generators, timestamps
from holdfast.config.key_generators import KeyGenerator, PartitionType
from holdfast.config.timestamps import TimestampSettings
from holdfast.errors import InvalidOption, UnsupportedTable

TABLE_VERSION = "6"
LAYOUT_VERSION = "1"
_PAYLOADS = "org.apache.hudi.common.model."
_PAYLOAD_CLASS = "hoodie.compaction.payload.class"
_PARTITION_FIELDS = "hoodie.table.partition.fields"
_PRECOMBINE_FIELD = "hoodie.table.precombine.field"
_ORDERING_FIELDS = "hoodie.table.ordering.fields"
"""What Hudi from 1.1 on writes in place of the other, also into tables of version 6."""
TYPED_PARTITION_FIELDS = "hoodie.datasource.write.partitionpath.field"
"""Keeps the types of a custom generator, which `hoodie.table.partition.fields` has no room for."""
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class TableType(StrEnum):
    COPY_ON_WRITE = "COPY_ON_WRITE"
    MERGE_ON_READ = "MERGE_ON_READ"


class Payload(StrEnum):
    """Which of two records with one key stays: the later written, or that with the greater ordering value."""

    LATEST_WRITE = _PAYLOADS + "OverwriteWithLatestAvroPayload"
    EVENT_TIME = _PAYLOADS + "DefaultHoodieRecordPayload"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    name: str
    table_type: TableType
    record_key: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    ordering: str | None = None
    hive_style: bool = True
    url_encode: bool = False
    create_schema: str | None = None
    properties: Mapping[str, str]
    """Everything the file says, including what Holdfast does not interpret."""

    @classmethod
    def from_properties(cls, values: Mapping[str, str]) -> Self:
        """Read the settings; `UnsupportedTable` if even reading would be wrong."""
        _check_version(values)
        kind = values["hoodie.table.type"]
        if kind not in tuple(TableType):
            raise UnsupportedTable("unknown table type", type=kind)
        base_format = values.get("hoodie.table.base.file.format", "PARQUET")
        if base_format.upper() != "PARQUET":
            raise UnsupportedTable("only Parquet base files are supported", format=base_format)
        if values.get("hoodie.bootstrap.base.path"):
            raise UnsupportedTable("bootstrapped tables are not supported")
        return cls(
            name=values["hoodie.table.name"],
            table_type=TableType(kind),
            record_key=_names(values.get("hoodie.table.recordkey.fields", "")),
            partition_by=tuple(name.partition(":")[0] for name in _names(values.get(_PARTITION_FIELDS, ""))),
            ordering=values.get(_ORDERING_FIELDS) or values.get(_PRECOMBINE_FIELD) or None,
            hive_style=_flag(values, "hoodie.datasource.write.hive_style_partitioning"),
            url_encode=_flag(values, "hoodie.datasource.write.partitionpath.urlencode"),
            create_schema=values.get("hoodie.table.create.schema") or None,
            properties=dict(values),
        )

    @property
    def populates_meta_columns(self) -> bool:
        return self.properties.get("hoodie.populate.meta.fields", "true") == "true"

    @property
    def metadata_partitions(self) -> tuple[str, ...]:
        """Partitions of Hudi's metadata table that readers of this table trust."""
        return _names(self.properties.get("hoodie.table.metadata.partitions", ""))

    @property
    def archive_folder(self) -> str:
        """Where archived instants are, below the folder of the timeline."""
        return self.properties.get("hoodie.archivelog.folder", "").strip("/ ") or "archived"

    @property
    def key_generator(self) -> str:
        """The generator's class: one of `KeyGenerator` if it is known."""
        return key_generators.stored_generator(self.properties)

    @property
    def partition_types(self) -> tuple[PartitionType, ...]:
        """The type of each partition column; `UnsupportedTable` if the table does not tell."""
        types = self.told_partition_types
        if types is None:
            raise UnsupportedTable(
                "the table does not tell the types of its partition columns",
                property=TYPED_PARTITION_FIELDS,
                columns=", ".join(self.partition_by),
                hint="add the property to the table, such as city:SIMPLE,ts:TIMESTAMP",
            )
        return types

    @property
    def told_partition_types(self) -> tuple[PartitionType, ...] | None:
        """The same; None if the table does not tell."""
        if self.key_generator == KeyGenerator.CUSTOM:
            return self._custom_types()
        is_timestamp = self.key_generator == KeyGenerator.TIMESTAMP
        return (PartitionType.TIMESTAMP if is_timestamp else PartitionType.SIMPLE,) * len(self.partition_by)

    @property
    def timestamps(self) -> TimestampSettings:
        """How the columns of type TIMESTAMP become parts of a path."""
        return TimestampSettings.from_properties(self.properties)

    @property
    def has_complex_keys(self) -> bool:
        """Whether a record key is spelled `field:value,field:value`."""
        if len(self.record_key) > 1:
            return True
        return self.key_generator == KeyGenerator.COMPLEX

    @property
    def merges_by_event_time(self) -> bool:
        """Whether, of two records with one key, the greater ordering value stays, not the later write."""
        payload = self.properties.get(_PAYLOAD_CLASS, "")
        return payload in _EVENT_TIME_PAYLOADS and self.ordering is not None

    def _custom_types(self) -> tuple[PartitionType, ...] | None:
        for key in (TYPED_PARTITION_FIELDS, _PARTITION_FIELDS):
            try:
                names, types = key_generators.split_types(_names(self.properties.get(key, "")))
            except InvalidOption:
                continue
            if names == self.partition_by:
                return types
        return None

    @property
    def is_changeable(self) -> bool:
        """Whether `check_changeable` lets it pass."""
        try:
            self.check_changeable()
        except UnsupportedTable:
            return False
        return True

    def check_writable(self) -> None:
        """Refuse rows for a table of which is not known what to make of them."""
        self.check_changeable()
        if self.key_generator == KeyGenerator.TIMESTAMP or PartitionType.TIMESTAMP in self.partition_types:
            self._check_timestamps()

    def check_changeable(self) -> None:
        """Refuse what a program that does not know the feature would break, also without new rows."""
        payload = self.properties.get(_PAYLOAD_CLASS) or Payload.LATEST_WRITE
        for feature, used in (
            ("merge-on-read writes", self.table_type is TableType.MERGE_ON_READ),
            ("tables without meta columns", not self.populates_meta_columns),
            ("change data capture", _flag(self.properties, "hoodie.table.cdc.enabled")),
            (
                "dropped partition columns",
                _flag(self.properties, "hoodie.datasource.write.drop.partition.columns"),
            ),
            ("key generator " + self.key_generator, self.key_generator not in tuple(KeyGenerator)),
            ("payload class " + payload, payload not in KNOWN_PAYLOADS),
            ("generated record keys", not self.record_key),
            ("several ordering columns", len(_names(self.ordering or "")) > 1),
        ):
            if used:
                raise UnsupportedTable("writing to this kind of table is not supported", feature=feature)

    def _check_timestamps(self) -> None:
        if self.key_generator == KeyGenerator.TIMESTAMP and len(self.partition_by) != 1:
            raise UnsupportedTable(
                "the timestamp key generator takes one partition column", columns=", ".join(self.partition_by)
            )
        try:
            _ = self.timestamps
        except InvalidOption as error:
            raise UnsupportedTable(
                "the settings of the table's timestamp key generator cannot be honoured", cause=error
            ) from error


def new_table_settings(
    *,
    name: str,
    record_key: tuple[str, ...],
    partition_by: tuple[str, ...],
    ordering: str | None,
    table_type: str,
    properties: Mapping[str, str],
) -> TableSettings:
    """Settings of a table to be created, checked."""
    if not isinstance(name, str) or not name.isprintable() or not name or name != name.strip():
        raise InvalidOption("a table needs a printable name without surrounding blanks", name=repr(name))
    if not record_key:
        raise InvalidOption("a table needs at least one record key column", hint="give record_key")
    if table_type not in tuple(TableType):
        raise InvalidOption("unknown table type", type=table_type, hint="use " + " or ".join(TableType))
    given = _given(properties)
    generator = given.pop(key_generators.CLASS, "")
    columns, types = partition_by, tuple[PartitionType, ...]()
    if generator == KeyGenerator.CUSTOM:
        columns, types = key_generators.split_types(partition_by)
    ordered_by = () if ordering is None else (ordering,)
    for role, names in (("record_key", record_key), ("partition_by", columns), ("ordering", ordered_by)):
        _check_columns(role, names)
    values = {
        "hoodie.table.name": name,
        "hoodie.database.name": "default",
        "hoodie.table.type": table_type,
        "hoodie.table.version": TABLE_VERSION,
        "hoodie.timeline.layout.version": LAYOUT_VERSION,
        "hoodie.table.recordkey.fields": ",".join(record_key),
        key_generators.CLASS: generator or str(key_generators.inferred_generator(record_key, columns)),
        "hoodie.table.base.file.format": "PARQUET",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.archivelog.folder": "archived",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.partitionpath.urlencode": "false",
        "hoodie.datasource.write.drop.partition.columns": "false",
        _PAYLOAD_CLASS: str(Payload.EVENT_TIME if ordering else Payload.LATEST_WRITE),
    }
    if columns:
        values[_PARTITION_FIELDS] = ",".join(columns)
    if types:
        pairs = zip(columns, types, strict=True)
        values[TYPED_PARTITION_FIELDS] = ",".join(f"{name}:{kind}" for name, kind in pairs)
    if ordering:
        values[_PRECOMBINE_FIELD] = ordering
    settings = TableSettings.from_properties(values | given)
    key_generators.check_columns(settings.key_generator, record_key, columns)
    _check_payload(settings)
    return TableSettings.from_properties(values | given | _timestamp_properties(settings))


_FLAGS = frozenset(
    {"hoodie.datasource.write.hive_style_partitioning", "hoodie.datasource.write.partitionpath.urlencode"}
)
_GIVEN = _FLAGS | {
    "hoodie.database.name",
    "hoodie.table.create.schema",
    _PAYLOAD_CLASS,
    key_generators.CLASS,
    *timestamps.NAMES,
}
"""Properties a caller may set; all others follow from the arguments."""
_ACCEPTED = _GIVEN | set(key_generators.NAMES) | set(timestamps.NEW_NAMES)
"""The same with their other spellings."""

_EVENT_TIME_PAYLOADS = (Payload.EVENT_TIME, _PAYLOADS + "EventTimeAvroPayload")
KNOWN_PAYLOADS = (Payload.LATEST_WRITE, *_EVENT_TIME_PAYLOADS)


def _check_version(values: Mapping[str, str]) -> None:
    version = values.get("hoodie.table.version")
    layout = values.get("hoodie.timeline.layout.version", LAYOUT_VERSION)
    if version == TABLE_VERSION and layout == LAYOUT_VERSION:
        return
    is_upgraded = version is not None and version.isdigit() and int(version) > int(TABLE_VERSION)
    raise UnsupportedTable(
        "only table version 6 with timeline layout 1 is supported",
        version=version,
        layout=layout,
        hint="Hudi 1.x upgrades a table unless its writers set hoodie.write.auto.upgrade=false and"
        " hoodie.write.table.version=6; call downgrade_table with to_version SIX takes it back"
        if is_upgraded
        else "upgrade it with Hudi 0.14 or 0.15",
    )


def _given(properties: Mapping[str, str]) -> dict[str, str]:
    """The caller's properties, checked, under the names they are stored by."""
    given: dict[str, str] = {}
    for key, value in properties.items():
        _check_property(key, value)
        name, stored = timestamps.NEW_NAMES.get(key, key), value
        if key in key_generators.NAMES:
            name, stored = key_generators.CLASS, str(key_generators.spelled_generator(value, option=key))
        if given.setdefault(name, stored) != stored:
            raise InvalidOption("two spellings of a property contradict each other", property=name)
    return given


def _timestamp_properties(settings: TableSettings) -> dict[str, str]:
    """The settings of timestamps as they are stored, checked; none if no column needs them."""
    given = {name: settings.properties[name] for name in timestamps.NAMES if name in settings.properties}
    if PartitionType.TIMESTAMP in settings.partition_types:
        return timestamps.stored_properties(given)
    if given:
        raise InvalidOption(
            "only a partition column of type TIMESTAMP has use for this property",
            property=next(iter(given)),
            hint=f"set {key_generators.CLASS} to {KeyGenerator.TIMESTAMP}",
        )
    return given


def _check_payload(settings: TableSettings) -> None:
    payload = settings.properties[_PAYLOAD_CLASS]
    if payload not in tuple(Payload):
        raise InvalidOption(
            "the payload class is not supported",
            property=_PAYLOAD_CLASS,
            value=payload,
            wanted=", ".join(Payload),
        )
    if payload == Payload.EVENT_TIME and settings.ordering is None:
        raise InvalidOption(
            "merging by event time needs an ordering column", property=_PAYLOAD_CLASS, hint="give ordering"
        )


def _check_columns(role: str, names: tuple[str, ...]) -> None:
    for name in names:
        if not isinstance(name, str) or not _COLUMN.fullmatch(name) or name.startswith("_hoodie_"):
            raise InvalidOption(
                "this cannot be the name of a column", role=role, name=repr(name),
                hint=f"types need {key_generators.CLASS} = {KeyGenerator.CUSTOM}" if ":" in str(name)
                else "use letters, digits and underscores",
            )  # fmt: skip
    if len(set(names)) != len(names):
        raise InvalidOption("a column is named twice", role=role, names=", ".join(names))


def _check_property(key: str, value: str) -> None:
    if key not in _ACCEPTED:
        hint = "give one of " + ", ".join(sorted(_GIVEN))
        raise InvalidOption("this property cannot be set at creation", property=key, hint=hint)
    if not isinstance(value, str) or (key in _FLAGS and value not in ("true", "false")):
        wanted = "true or false, as text" if key in _FLAGS else "text"
        raise InvalidOption(
            "property has a value that cannot be used", property=key, value=value, wanted=wanted
        )


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _flag(values: Mapping[str, str], key: str) -> bool:
    return values.get(key, "false").strip().lower() == "true"
