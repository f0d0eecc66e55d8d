"""Key generators: how Hudi makes record keys and partition paths, by the names it gives them."""

from collections.abc import Mapping
from enum import StrEnum

from holdfast.errors import InvalidOption

_PACKAGE = "org.apache.hudi.keygen."
CLASS = "hoodie.table.keygenerator.class"
NAMES = (
    CLASS,
    "hoodie.table.keygenerator.type",
    "hoodie.datasource.write.keygenerator.class",
    "hoodie.datasource.write.keygenerator.type",
)
"""Properties that name a generator. Only the first is stored."""


class KeyGenerator(StrEnum):
    SIMPLE = _PACKAGE + "SimpleKeyGenerator"
    COMPLEX = _PACKAGE + "ComplexKeyGenerator"
    NON_PARTITIONED = _PACKAGE + "NonpartitionedKeyGenerator"
    TIMESTAMP = _PACKAGE + "TimestampBasedKeyGenerator"
    CUSTOM = _PACKAGE + "CustomKeyGenerator"


class PartitionType(StrEnum):
    """How a column becomes a part of the partition path."""

    SIMPLE = "SIMPLE"
    TIMESTAMP = "TIMESTAMP"


_TYPE_NAMES = {
    "SIMPLE": KeyGenerator.SIMPLE,
    "COMPLEX": KeyGenerator.COMPLEX,
    "NON_PARTITION": KeyGenerator.NON_PARTITIONED,
    "TIMESTAMP": KeyGenerator.TIMESTAMP,
    "CUSTOM": KeyGenerator.CUSTOM,
}
_SPELLINGS: Mapping[str, KeyGenerator] = {
    spelling: generator
    for name, generator in _TYPE_NAMES.items()
    for spelling in (
        name,
        f"{name}_AVRO",
        generator.value,
        generator.value.replace("KeyGenerator", "AvroKeyGenerator"),
    )
}
_ONE_COLUMN = (KeyGenerator.SIMPLE, KeyGenerator.TIMESTAMP)


def generator_class(properties: Mapping[str, str]) -> str:
    """The class of a table's generator: one of `KeyGenerator` if it is known."""
    for name in NAMES:
        if properties.get(name):
            value = properties[name]
            known = _SPELLINGS.get(value) or _SPELLINGS.get(value.upper())
            return value if known is None else known
    return KeyGenerator.SIMPLE


def parse_generator(value: str, *, option: str) -> KeyGenerator:
    """The generator a caller means by its class or by Hudi's short name."""
    generator = _SPELLINGS.get(value.strip()) or _SPELLINGS.get(value.strip().upper())
    if generator is None:
        wanted = ", ".join(KeyGenerator)
        raise InvalidOption("the key generator is not supported", property=option, value=value, wanted=wanted)
    return generator


def infer_generator(record_key: tuple[str, ...], partition_by: tuple[str, ...]) -> KeyGenerator:
    """The plainest generator for these columns."""
    if not partition_by:
        return KeyGenerator.NON_PARTITIONED
    if len(record_key) == 1 and len(partition_by) == 1:
        return KeyGenerator.SIMPLE
    return KeyGenerator.COMPLEX


def check_columns(generator: str, record_key: tuple[str, ...], partition_by: tuple[str, ...]) -> None:
    """Refuse columns that the generator does not take."""
    fault = ""
    if generator in _ONE_COLUMN and (len(partition_by) != 1 or len(record_key) != 1):
        fault = "this key generator takes one record key column and one partition column"
    elif generator == KeyGenerator.NON_PARTITIONED and partition_by:
        fault = "this key generator takes no partition columns"
    if fault:
        raise InvalidOption(
            fault,
            property=CLASS,
            value=generator,
            record_key=", ".join(record_key),
            partition_by=", ".join(partition_by),
        )


def split_types(columns: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[PartitionType, ...]]:
    """Names and types of the partition columns of a custom generator, each given as `name:TYPE`."""
    names: list[str] = []
    types: list[PartitionType] = []
    for column in columns:
        name, _, kind = str(column).partition(":")
        if kind.upper() not in tuple(PartitionType):
            raise InvalidOption(
                "a custom key generator needs a type for each partition column",
                column=repr(column),
                hint="give columns such as city:SIMPLE and ts:TIMESTAMP",
            )
        names.append(name)
        types.append(PartitionType(kind.upper()))
    return tuple(names), tuple(types)
