"""Settings of a table, as `hoodie.properties` keeps them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from holdfast.errors import InvalidOption, UnsupportedTable

TABLE_VERSION = "6"
LAYOUT_VERSION = "1"
_KEYGEN = "org.apache.hudi.keygen."
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class TableType(StrEnum):
    COPY_ON_WRITE = "COPY_ON_WRITE"
    MERGE_ON_READ = "MERGE_ON_READ"


class KeyGenerator(StrEnum):
    SIMPLE = _KEYGEN + "SimpleKeyGenerator"
    COMPLEX = _KEYGEN + "ComplexKeyGenerator"
    NON_PARTITIONED = _KEYGEN + "NonpartitionedKeyGenerator"


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
        version = values.get("hoodie.table.version")
        layout = values.get("hoodie.timeline.layout.version", LAYOUT_VERSION)
        if version != TABLE_VERSION or layout != LAYOUT_VERSION:
            raise UnsupportedTable(
                "only table version 6 with timeline layout 1 is supported", version=version, layout=layout
            )
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
            partition_by=_names(values.get("hoodie.table.partition.fields", "")),
            ordering=values.get("hoodie.table.precombine.field") or None,
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
    def key_generator(self) -> str:
        return self.properties.get("hoodie.table.keygenerator.class", KeyGenerator.SIMPLE)

    @property
    def has_complex_keys(self) -> bool:
        """Whether a record key is spelled `field:value,field:value`."""
        if len(self.record_key) > 1:
            return True
        return self.key_generator == KeyGenerator.COMPLEX

    def check_writable(self) -> None:
        """Refuse what a writer that does not know the feature would break."""
        for feature, used in (
            ("merge-on-read writes", self.table_type is TableType.MERGE_ON_READ),
            ("tables without meta columns", not self.populates_meta_columns),
            ("change data capture", _flag(self.properties, "hoodie.table.cdc.enabled")),
            (
                "dropped partition columns",
                _flag(self.properties, "hoodie.datasource.write.drop.partition.columns"),
            ),
            ("key generator " + self.key_generator, self.key_generator not in tuple(KeyGenerator)),
            ("generated record keys", not self.record_key),
        ):
            if used:
                raise UnsupportedTable("writing to this kind of table is not supported", feature=feature)


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
    ordered_by = () if ordering is None else (ordering,)
    for role, names in (("record_key", record_key), ("partition_by", partition_by), ("ordering", ordered_by)):
        _check_columns(role, names)
    for key, value in properties.items():
        _check_property(key, value)
    values = {
        "hoodie.table.name": name,
        "hoodie.database.name": "default",
        "hoodie.table.type": table_type,
        "hoodie.table.version": TABLE_VERSION,
        "hoodie.timeline.layout.version": LAYOUT_VERSION,
        "hoodie.table.recordkey.fields": ",".join(record_key),
        "hoodie.table.keygenerator.class": str(_key_generator(record_key, partition_by)),
        "hoodie.table.base.file.format": "PARQUET",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.archivelog.folder": "archived",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.partitionpath.urlencode": "false",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.compaction.payload.class": "org.apache.hudi.common.model."
        + ("DefaultHoodieRecordPayload" if ordering else "OverwriteWithLatestAvroPayload"),
    }
    if partition_by:
        values["hoodie.table.partition.fields"] = ",".join(partition_by)
    if ordering:
        values["hoodie.table.precombine.field"] = ordering
    return TableSettings.from_properties(values | dict(properties))


_FLAGS = frozenset(
    {"hoodie.datasource.write.hive_style_partitioning", "hoodie.datasource.write.partitionpath.urlencode"}
)
_GIVEN = _FLAGS | {"hoodie.database.name", "hoodie.table.create.schema"}
"""Properties a caller may set; all others follow from the arguments."""


def _check_columns(role: str, names: tuple[str, ...]) -> None:
    for name in names:
        if not isinstance(name, str) or not _COLUMN.fullmatch(name) or name.startswith("_hoodie_"):
            raise InvalidOption(
                "this cannot be the name of a column", role=role, name=repr(name),
                hint="use letters, digits and underscores",
            )  # fmt: skip
    if len(set(names)) != len(names):
        raise InvalidOption("a column is named twice", role=role, names=", ".join(names))


def _check_property(key: str, value: str) -> None:
    if key not in _GIVEN:
        hint = "give one of " + ", ".join(sorted(_GIVEN))
        raise InvalidOption("this property cannot be set at creation", property=key, hint=hint)
    if not isinstance(value, str) or (key in _FLAGS and value not in ("true", "false")):
        wanted = "true or false, as text" if key in _FLAGS else "text"
        raise InvalidOption(
            "property has a value that cannot be used", property=key, value=value, wanted=wanted
        )


def _key_generator(record_key: tuple[str, ...], partition_by: tuple[str, ...]) -> KeyGenerator:
    if not partition_by:
        return KeyGenerator.NON_PARTITIONED
    if len(record_key) == 1 and len(partition_by) == 1:
        return KeyGenerator.SIMPLE
    return KeyGenerator.COMPLEX


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _flag(values: Mapping[str, str], key: str) -> bool:
    return values.get(key, "false").strip().lower() == "true"
