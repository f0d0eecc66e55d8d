"""Settings of a table, as `hoodie.properties` keeps them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from holdfast.config import key_generators, timestamps
from holdfast.config.choices import ExportFormat, MergeMode, TableType, TimelineZone
from holdfast.config.key_generators import KeyGenerator, PartitionType
from holdfast.config.option import Area, split_names
from holdfast.config.option_table import option_named, options_of
from holdfast.config.options import effective_options
from holdfast.config.timestamps import TimestampSettings
from holdfast.errors import InvalidOption, UnsupportedTable
from holdfast.model.columns import is_column_name

TABLE_VERSION = "6"
LAYOUT_VERSION = "1"
READ_ONLY_VERSIONS = ("8", "9")
READ_ONLY_LAYOUT = "2"
_PAYLOADS = "org.apache.hudi.common.model."
_NAME = "hoodie.table.name"
_TYPE = "hoodie.table.type"
_RECORD_KEY = "hoodie.table.recordkey.fields"
_HIVE_STYLE = "hoodie.datasource.write.hive_style_partitioning"
_URL_ENCODE = "hoodie.datasource.write.partitionpath.urlencode"
TIMELINE_ZONE = "hoodie.table.timeline.timezone"
EXPORT_FORMATS = "holdfast.export.formats"
_PAYLOAD_CLASS = "hoodie.compaction.payload.class"
_MERGER = "hoodie.compaction.record.merger.strategy"
_PAYLOAD_MERGER = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
"""What Hudi 0.14 and 0.15 write into every merge-on-read table: rows are merged as the payload class says."""
_PARTITION_FIELDS = "hoodie.table.partition.fields"
_PRECOMBINE_FIELD = "hoodie.table.precombine.field"
_ORDERING_FIELDS = "hoodie.table.ordering.fields"
"""What Hudi from 1.1 on writes in place of the other, also into tables of version 6."""
TYPED_PARTITION_FIELDS = "hoodie.datasource.write.partitionpath.field"
"""Keeps the types of a custom generator, which `hoodie.table.partition.fields` has no room for."""


MERGE_MODE = "hoodie.record.merge.mode"
"""What Hudi from 1.0 on says instead of a payload class. A table of version 6 keeps the class."""


_PARTIAL_UPDATES = "hoodie.table.partial.update.mode"
_MERGE_PROPERTIES = ("hoodie.record.merge.property.", "hoodie.payload.delete.")
_TABLE_FORMAT = "hoodie.table.format"
_SEVERAL_FORMATS = "hoodie.table.multiple.base.file.formats.enable"


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
        kind = values[_TYPE]
        if kind not in tuple(TableType):
            raise UnsupportedTable("unknown table type", type=kind)
        base_format = values.get("hoodie.table.base.file.format", "PARQUET")
        if base_format.upper() != "PARQUET":
            raise UnsupportedTable("only Parquet base files are supported", format=base_format)
        if _flag(values, _SEVERAL_FORMATS):
            raise UnsupportedTable("only Parquet base files are supported", property=_SEVERAL_FORMATS)
        table_format = values.get(_TABLE_FORMAT) or "native"
        if table_format.lower() != "native":
            raise UnsupportedTable("only Hudi's own table format is supported", format=table_format)
        if values.get("hoodie.bootstrap.base.path"):
            raise UnsupportedTable("bootstrapped tables are not supported")
        zone = values.get(TIMELINE_ZONE, TimelineZone.LOCAL)
        if zone not in tuple(TimelineZone):
            raise UnsupportedTable(
                "the zone of the table's instants is not known",
                property=TIMELINE_ZONE,
                value=zone,
                wanted=" or ".join(TimelineZone),
            )
        return cls(
            name=values[_NAME],
            table_type=TableType(kind),
            record_key=split_names(values.get(_RECORD_KEY, "")),
            partition_by=tuple(
                name.partition(":")[0] for name in split_names(values.get(_PARTITION_FIELDS, ""))
            ),
            ordering=values.get(_ORDERING_FIELDS) or values.get(_PRECOMBINE_FIELD) or None,
            hive_style=_flag(values, _HIVE_STYLE),
            url_encode=_flag(values, _URL_ENCODE),
            create_schema=values.get("hoodie.table.create.schema") or None,
            properties=dict(values),
        )

    @property
    def version(self) -> str:
        return self.properties.get("hoodie.table.version", TABLE_VERSION)

    @property
    def is_read_only(self) -> bool:
        """Whether the table is of a version that is read and not written."""
        return self.version in READ_ONLY_VERSIONS

    @property
    def timeline_folders(self) -> tuple[str, str]:
        """Where a timeline of layout 2 lies in `.hoodie`, and its history in there."""
        timeline = self.properties.get("hoodie.timeline.path", "").strip("/ ") or "timeline"
        return timeline, self.properties.get("hoodie.timeline.history.path", "").strip("/ ") or "history"

    @property
    def timeline_zone(self) -> TimelineZone:
        """Where the table does not tell, it is Hudi's default."""
        return TimelineZone(self.properties.get(TIMELINE_ZONE, TimelineZone.LOCAL))

    @property
    def populates_meta_columns(self) -> bool:
        return self.properties.get("hoodie.populate.meta.fields", "true") == "true"

    @property
    def metadata_partitions(self) -> tuple[str, ...]:
        """Partitions of Hudi's metadata table that readers of this table trust."""
        return split_names(self.properties.get("hoodie.table.metadata.partitions", ""))

    @property
    def export_formats(self) -> tuple[ExportFormat, ...]:
        """The other formats that the table is kept in."""
        return parse_export_formats(split_names(self.properties.get(EXPORT_FORMATS, "")))

    @property
    def archive_folder(self) -> str:
        """Where archived instants are, below the folder of the timeline."""
        return self.properties.get("hoodie.archivelog.folder", "").strip("/ ") or "archived"

    @property
    def key_generator(self) -> str:
        """The generator's class: one of `KeyGenerator` if it is known."""
        return key_generators.generator_class(self.properties)

    @property
    def partition_types(self) -> tuple[PartitionType, ...]:
        """The type of each partition column; `UnsupportedTable` if the table does not tell."""
        types = self.declared_partition_types
        if types is None:
            raise UnsupportedTable(
                "the table does not tell the types of its partition columns",
                property=TYPED_PARTITION_FIELDS,
                columns=", ".join(self.partition_by),
                hint="add the property to the table, such as city:SIMPLE,ts:TIMESTAMP",
            )
        return types

    @property
    def declared_partition_types(self) -> tuple[PartitionType, ...] | None:
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
        return self.payload in _EVENT_TIME_PAYLOADS and self.ordering is not None

    @property
    def payload(self) -> str:
        """The class that says which of two records with one key stays: one of `KNOWN_PAYLOADS`, or another.

        Versions 8 and 9 say it by a merge mode, which counts before a class.
        """
        stored = self.properties.get(_PAYLOAD_CLASS) or Payload.LATEST_WRITE
        if not self.is_read_only:
            return stored
        mode = self.properties.get(MERGE_MODE, "").upper()
        if mode == MergeMode.EVENT_TIME:
            return Payload.EVENT_TIME
        if mode == MergeMode.COMMIT_TIME:
            return Payload.LATEST_WRITE
        if not mode:
            return stored
        return self.properties.get(_PAYLOAD_CLASS) or f"of merge mode {mode}"

    @property
    def deciding_column(self) -> str | None:
        """The column by which an older record may win against a newer one; None if the newer always does."""
        return self.ordering if self.merges_by_event_time else None

    def check_log_merges(self) -> None:
        """Refuse to read log files of which is not known what to make of them."""
        payload = self.payload
        ordering = split_names(self.ordering or "")
        partial = self.properties.get(_PARTIAL_UPDATES, "")
        custom = next((name for name in self.properties if name.startswith(_MERGE_PROPERTIES)), "")
        for feature, used in (
            ("tables without meta columns", not self.populates_meta_columns),
            ("payload class " + payload, payload not in KNOWN_PAYLOADS),
            (f"partial updates ({_PARTIAL_UPDATES}={partial})", partial.upper() not in ("", "NONE")),
            (f"merging with properties of its own ({custom})", bool(custom)),
            ("several ordering columns", self.merges_by_event_time and len(ordering) > 1),
            ("ordering by a field inside of a struct", self.merges_by_event_time and "." in ordering[0]),
        ):
            if used:
                raise UnsupportedTable(
                    "the log files of this kind of table cannot be read",
                    feature=feature,
                    hint="read_optimized=True reads the base files alone",
                )

    @property
    def merge_mode(self) -> str:
        """As Hudi 1.x says it. With an ordering column, the latest write is in no mode of Hudi's."""
        if self.merges_by_event_time:
            return MergeMode.EVENT_TIME
        payload = self.payload
        return MergeMode.COMMIT_TIME if self.ordering is None else f"{payload} with an ordering column"

    def _custom_types(self) -> tuple[PartitionType, ...] | None:
        for key in (TYPED_PARTITION_FIELDS, _PARTITION_FIELDS):
            try:
                names, types = key_generators.split_types(split_names(self.properties.get(key, "")))
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
        inside = [name for name in (*self.record_key, *self.partition_by, self.ordering or "") if "." in name]
        if inside:
            raise UnsupportedTable(
                "writing to this kind of table is not supported",
                feature="keys, partitions or ordering by a field inside of a struct",
                columns=", ".join(inside),
            )
        if self.key_generator == KeyGenerator.TIMESTAMP or PartitionType.TIMESTAMP in self.partition_types:
            self._check_timestamps()

    def check_changeable(self) -> None:
        """Refuse what a program that does not know the feature would break, also without new rows."""
        self.refuse_if_read_only()
        payload = self.properties.get(_PAYLOAD_CLASS) or Payload.LATEST_WRITE
        for feature, used in (
            ("tables without meta columns", not self.populates_meta_columns),
            ("change data capture", _flag(self.properties, "hoodie.table.cdc.enabled")),
            (
                "dropped partition columns",
                _flag(self.properties, "hoodie.datasource.write.drop.partition.columns"),
            ),
            ("key generator " + self.key_generator, self.key_generator not in tuple(KeyGenerator)),
            ("payload class " + payload, payload not in KNOWN_PAYLOADS),
            ("generated record keys", not self.record_key),
            ("several ordering columns", len(split_names(self.ordering or "")) > 1),
        ):
            if used:
                raise UnsupportedTable("writing to this kind of table is not supported", feature=feature)

    def refuse_if_read_only(self) -> None:
        if self.is_read_only:
            raise not_written(self.version)

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
    given = _parse_properties(properties)
    if MERGE_MODE in given:
        _set_payload(given, ordering)
    generator = given.pop(key_generators.CLASS, "")
    columns, types = partition_by, tuple[PartitionType, ...]()
    if generator == KeyGenerator.CUSTOM:
        columns, types = key_generators.split_types(partition_by)
    ordered_by = () if ordering is None else (ordering,)
    for role, names in (("record_key", record_key), ("partition_by", columns), ("ordering", ordered_by)):
        _check_columns(role, names)
    values = {
        _NAME: name,
        "hoodie.database.name": "default",
        _TYPE: table_type,
        "hoodie.table.version": TABLE_VERSION,
        "hoodie.timeline.layout.version": LAYOUT_VERSION,
        _RECORD_KEY: ",".join(record_key),
        key_generators.CLASS: generator or str(key_generators.infer_generator(record_key, columns)),
        "hoodie.table.base.file.format": "PARQUET",
        TIMELINE_ZONE: str(TimelineZone.UTC),
        "hoodie.archivelog.folder": "archived",
        _HIVE_STYLE: "true",
        _URL_ENCODE: "false",
        "hoodie.datasource.write.drop.partition.columns": "false",
        _PAYLOAD_CLASS: str(Payload.EVENT_TIME if ordering else Payload.LATEST_WRITE),
    }
    if table_type == TableType.MERGE_ON_READ:
        values[_MERGER] = _PAYLOAD_MERGER
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


ARGUMENTS = frozenset({_NAME, _TYPE, _RECORD_KEY, _PARTITION_FIELDS, _PRECOMBINE_FIELD})
"""Properties that `new_table_settings` takes as arguments. A caller may give all others of the table."""
_EVENT_TIME_PAYLOADS = (Payload.EVENT_TIME, _PAYLOADS + "EventTimeAvroPayload")
KNOWN_PAYLOADS = (Payload.LATEST_WRITE, *_EVENT_TIME_PAYLOADS)


def _check_version(values: Mapping[str, str]) -> None:
    version = values.get("hoodie.table.version")
    layout = values.get("hoodie.timeline.layout.version", LAYOUT_VERSION)
    if version == TABLE_VERSION and layout == LAYOUT_VERSION:
        return
    if version in READ_ONLY_VERSIONS and layout == READ_ONLY_LAYOUT:
        return
    is_newer = version is not None and version.isdigit() and int(version) > int(TABLE_VERSION)
    raise UnsupportedTable(
        "only table versions 6, with timeline layout 1, and 8 and 9, with layout 2, are supported",
        version=version,
        layout=layout,
        hint="let Hudi 1.x write the table with hoodie.write.table.version=6 and"
        " hoodie.write.auto.upgrade=false; call downgrade_table with to_version SIX takes it back"
        if is_newer
        else "upgrade it with Hudi 0.14 or 0.15",
    )


def not_written(version: str) -> UnsupportedTable:
    """Why nothing is done to a table that is only read, and which way leads on."""
    return UnsupportedTable(
        "tables of this version are read, and not written",
        version=version,
        hint="holdfast convert PATH --to 6 --into NEWPATH makes a table of it that is written;"
        " Hudi 1.x keeps a table at version 6 with hoodie.write.table.version=6 and"
        " hoodie.write.auto.upgrade=false",
    )


def _parse_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The caller's properties, checked, under the names they are stored by."""
    for key, value in properties.items():
        _check_value(key, value)
    given: dict[str, str] = {}
    for key, value in effective_options(properties, [Area.TABLE]).items():
        option = option_named(key)
        assert option is not None, "only options of the table are left"
        name, stored = option.setting, value
        if name in ARGUMENTS:
            hint = "give one of " + ", ".join(sorted(options_of(Area.TABLE).keys() - ARGUMENTS))
            raise InvalidOption("this property cannot be set at creation", property=key, hint=hint)
        if name == key_generators.CLASS:
            stored = str(key_generators.parse_generator(value, option=key))
        elif name == EXPORT_FORMATS:
            stored = ",".join(parse_export_formats(split_names(value)))
        if given.setdefault(name, stored) != stored:
            raise InvalidOption("two spellings of a property contradict each other", property=name)
    return given


def parse_export_formats(names: Iterable[str]) -> tuple[ExportFormat, ...]:
    """The formats of these names, each once; `InvalidOption` if one is none."""
    known = {str(form): form for form in ExportFormat}
    for name in names:
        if name.lower() not in known:
            raise InvalidOption(
                "there is no export to this format",
                property=EXPORT_FORMATS,
                value=name,
                wanted=", ".join(known),
            )
    return tuple(dict.fromkeys(known[name.lower()] for name in names))


def payload_of_mode(mode: MergeMode, ordering: str | None) -> Payload:
    """The payload class that merges as the mode does; `InvalidOption` if none does.

    The latest write with an ordering column still orders the rows of one write
    by that column, as in Hudi 0.15; Hudi 1.x in this mode does not.
    """
    if mode is MergeMode.COMMIT_TIME and ordering is not None:
        raise InvalidOption(
            "this merge mode takes no ordering column",
            option=MERGE_MODE,
            value=mode,
            ordering=ordering,
            hint="leave the ordering column out, or merge by " + MergeMode.EVENT_TIME,
        )
    return Payload.EVENT_TIME if mode is MergeMode.EVENT_TIME else Payload.LATEST_WRITE


def _set_payload(given: dict[str, str], ordering: str | None) -> None:
    """Say by the payload class what the merge mode says."""
    mode: MergeMode = options_of(Area.TABLE)[MERGE_MODE].parse(given.pop(MERGE_MODE))
    payload = payload_of_mode(mode, ordering)
    same = _EVENT_TIME_PAYLOADS if mode is MergeMode.EVENT_TIME else (Payload.LATEST_WRITE,)
    if given.setdefault(_PAYLOAD_CLASS, str(payload)) not in same:
        raise InvalidOption(
            "the payload class and the merge mode contradict each other",
            mode=mode,
            payload=given[_PAYLOAD_CLASS],
            hint="leave one of them out",
        )


def _timestamp_properties(settings: TableSettings) -> dict[str, str]:
    """The settings of timestamps as they are stored, checked; none if no column needs them."""
    given = {name: settings.properties[name] for name in timestamps.NAMES if name in settings.properties}
    if PartitionType.TIMESTAMP in settings.partition_types:
        return timestamps.properties_to_store(given)
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
        if isinstance(name, str) and "." in name:
            raise InvalidOption(
                "fields inside of a struct are not supported here",
                role=role,
                name=repr(name),
                hint="copy the field into a column of its own",
            )
        if not isinstance(name, str) or not is_column_name(name) or name.startswith("_hoodie_"):
            raise InvalidOption(
                "this cannot be the name of a column", role=role, name=repr(name),
                hint=f"types need {key_generators.CLASS} = {KeyGenerator.CUSTOM}" if ":" in str(name)
                else "use letters, digits and underscores",
            )  # fmt: skip
    if len(set(names)) != len(names):
        raise InvalidOption("a column is named twice", role=role, names=", ".join(names))


def _check_value(key: str, value: str) -> None:
    """Refuse what could not be stored as it is written."""
    wanted = ""
    if key in (_HIVE_STYLE, _URL_ENCODE) and value not in ("true", "false"):
        wanted = "true or false, as text"
    elif key == TIMELINE_ZONE and value not in tuple(TimelineZone):
        wanted = " or ".join(TimelineZone)
    elif not isinstance(value, str):
        wanted = "text"
    if wanted:
        raise InvalidOption(
            "property has a value that cannot be used", property=key, value=value, wanted=wanted
        )


def _flag(values: Mapping[str, str], key: str) -> bool:
    return values.get(key, "false").strip().lower() == "true"
