import pytest

from holdfast.config.key_generators import KeyGenerator, PartitionType
from holdfast.config.table import TableSettings, new_table_settings
from holdfast.errors import InvalidOption, UnsupportedTable

CLASS = "hoodie.table.keygenerator.class"
TYPES = "hoodie.datasource.write.partitionpath.field"
PAYLOAD = "hoodie.compaction.payload.class"
PAYLOADS = "org.apache.hudi.common.model."
PREFIX = "hoodie.keygen.timebased."
TIMES = {PREFIX + "timestamp.type": "UNIX_TIMESTAMP", PREFIX + "output.dateformat": "yyyy/MM/dd"}


def new(record_key=("id",), partition_by=("ts",), ordering=None, **properties):
    return new_table_settings(
        name="trips",
        record_key=record_key,
        partition_by=partition_by,
        ordering=ordering,
        table_type="COPY_ON_WRITE",
        properties={name.replace("__", "."): value for name, value in properties.items()},
    )


def reopened(settings, **changes):
    return TableSettings.from_properties({**settings.properties, **changes})


@pytest.mark.parametrize(
    ("record_key", "partition_by", "expected"),
    [
        (("id",), (), KeyGenerator.NON_PARTITIONED),
        (("id", "n"), (), KeyGenerator.NON_PARTITIONED),
        (("id",), ("city",), KeyGenerator.SIMPLE),
        (("id", "n"), ("city",), KeyGenerator.COMPLEX),
        (("id",), ("city", "day"), KeyGenerator.COMPLEX),
    ],
)
def test_without_a_class_the_columns_decide(record_key, partition_by, expected):
    assert new(record_key, partition_by).key_generator == expected


@pytest.mark.parametrize(
    "name",
    [
        CLASS,
        "hoodie.table.keygenerator.type",
        "hoodie.datasource.write.keygenerator.class",
        "hoodie.datasource.write.keygenerator.type",
    ],
)
@pytest.mark.parametrize(
    "value",
    [
        "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
        "org.apache.hudi.keygen.TimestampBasedAvroKeyGenerator",
        "TIMESTAMP",
        "timestamp_avro",
    ],
)
def test_every_spelling_of_a_generator_is_stored_as_its_class(name, value):
    settings = new(**{name: value}, **TIMES)

    assert settings.properties[CLASS] == "org.apache.hudi.keygen.TimestampBasedKeyGenerator"
    assert not {"hoodie.table.keygenerator.type", "hoodie.datasource.write.keygenerator.type"} & set(
        settings.properties
    )
    assert settings.partition_types == (PartitionType.TIMESTAMP,)


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({CLASS: "org.apache.hudi.keygen.SimpleAvroKeyGenerator"}, KeyGenerator.SIMPLE),
        ({CLASS: "", "hoodie.table.keygenerator.type": "COMPLEX_AVRO"}, KeyGenerator.COMPLEX),
        ({CLASS: "com.example.Own"}, "com.example.Own"),
    ],
)
def test_the_generator_of_a_foreign_table_is_recognised(stored, expected):
    assert reopened(new(), **stored).key_generator == expected


def test_old_names_of_timestamp_settings_are_stored_as_new_ones():
    old = {
        name.replace("hoodie.keygen", "hoodie.deltastreamer.keygen"): value for name, value in TIMES.items()
    }

    settings = new(**{CLASS: "TIMESTAMP"}, **old)

    assert TIMES.items() <= settings.properties.items()
    assert not any("deltastreamer" in name for name in settings.properties)


def test_a_custom_table_keeps_names_and_types_apart_and_survives_reopening():
    settings = new(("id",), ("city:simple", "ts:TIMESTAMP"), **{CLASS: "CUSTOM"}, **TIMES)

    assert settings.properties["hoodie.table.partition.fields"] == "city,ts"
    assert settings.properties[TYPES] == "city:SIMPLE,ts:TIMESTAMP"
    again = reopened(settings)
    again.check_writable()
    assert again.partition_by == ("city", "ts")
    assert again.partition_types == (PartitionType.SIMPLE, PartitionType.TIMESTAMP)


def test_a_custom_table_may_do_without_partitions_and_timestamps():
    assert new(("id",), (), **{CLASS: "CUSTOM"}).partition_types == ()
    assert new(("id",), ("city:SIMPLE",), **{CLASS: "CUSTOM"}).partition_types == (PartitionType.SIMPLE,)


def test_a_custom_generator_with_one_key_column_keeps_the_plain_key():
    """Hudi's custom generator hands one column to the simple generator, several to the complex one."""
    assert not new(("id",), ("city:SIMPLE",), **{CLASS: "CUSTOM"}).has_complex_keys
    assert new(("id", "n"), ("city:SIMPLE",), **{CLASS: "CUSTOM"}).has_complex_keys


@pytest.mark.parametrize("stored", ["", "city,ts", "town:SIMPLE,ts:TIMESTAMP"])
def test_a_foreign_custom_table_that_does_not_tell_its_types_can_be_opened_but_not_written(stored):
    settings = new(("id",), ("city:SIMPLE", "ts:TIMESTAMP"), **{CLASS: "CUSTOM"}, **TIMES)

    with pytest.raises(UnsupportedTable, match="does not tell the types") as refused:
        reopened(settings, **{TYPES: stored}).check_writable()

    assert refused.value.facts["property"] == TYPES


def test_types_beside_the_names_of_partition_columns_are_understood():
    settings = new(("id",), ("city:SIMPLE", "ts:TIMESTAMP"), **{CLASS: "CUSTOM"}, **TIMES)
    changes = {TYPES: "", "hoodie.table.partition.fields": "city:SIMPLE,ts:TIMESTAMP"}

    again = reopened(settings, **changes)

    assert again.partition_by == ("city", "ts")
    assert again.partition_types == (PartitionType.SIMPLE, PartitionType.TIMESTAMP)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"partition_by": ("ts", "city"), CLASS: "TIMESTAMP", **TIMES}, "one partition column"),
        ({"partition_by": (), CLASS: "TIMESTAMP", **TIMES}, "one partition column"),
        ({"record_key": ("a", "b"), CLASS: "TIMESTAMP", **TIMES}, "one record key column"),
        ({"record_key": ("a", "b"), CLASS: "SIMPLE"}, "one record key column"),
        ({CLASS: "NON_PARTITION"}, "no partition columns"),
        ({CLASS: "TIMESTAMP"}, "needs a property.*timestamp.type"),
        ({CLASS: "TIMESTAMP", PREFIX + "timestamp.type": "SCALAR"}, "needs a property.*output.dateformat"),
        ({CLASS: "TIMESTAMP", **TIMES, PREFIX + "timezone": "Mars/Olympus"}, "timebased.timezone"),
        ({CLASS: "TIMESTAMP", **TIMES, PREFIX + "output.dateformat": "yyyy/QQ"}, "output.dateformat.*QQ"),
        ({CLASS: "CUSTOM"}, "needs a type.*'ts'"),
        ({"partition_by": ("ts:DUMMY",), CLASS: "CUSTOM"}, "needs a type.*ts:DUMMY"),
        ({"partition_by": (7,), CLASS: "CUSTOM"}, "needs a type.*7"),
        ({"partition_by": ("a b:SIMPLE",), CLASS: "CUSTOM"}, "name of a column"),
        ({"partition_by": ("ts:TIMESTAMP",), CLASS: "CUSTOM"}, "needs a property"),
        ({"partition_by": ("ts:TIMESTAMP",)}, "types need hoodie.table.keygenerator.class"),
        (TIMES, "only a partition column of type TIMESTAMP"),
        ({"partition_by": ("ts:SIMPLE",), CLASS: "CUSTOM", **TIMES}, "only a partition column of type"),
        ({CLASS: "GLOBAL_DELETE"}, "key generator is not supported"),
        ({CLASS: "SIMPLE", "hoodie.table.keygenerator.type": "COMPLEX"}, "contradict"),
        ({PAYLOAD: PAYLOADS + "AWSDmsAvroPayload"}, "payload class is not supported"),
        ({PAYLOAD: PAYLOADS + "DefaultHoodieRecordPayload"}, "needs an ordering column"),
    ],
)
def test_what_contradicts_itself_is_refused_with_its_name(arguments, match):
    with pytest.raises(InvalidOption, match=match):
        new(**arguments)


@pytest.mark.parametrize(
    ("payload", "ordering", "expected"),
    [
        ("DefaultHoodieRecordPayload", "ts", True),
        ("EventTimeAvroPayload", "ts", True),
        ("DefaultHoodieRecordPayload", "", False),
        ("OverwriteWithLatestAvroPayload", "ts", False),
        (None, "ts", False),
    ],
)
def test_the_payload_class_tells_whether_event_time_decides(payload, ordering, expected):
    values = dict(new().properties) | {"hoodie.table.precombine.field": ordering}
    del values[PAYLOAD]
    settings = TableSettings.from_properties(values | ({PAYLOAD: PAYLOADS + payload} if payload else {}))

    settings.check_writable()
    assert settings.merges_by_event_time is expected


def test_a_payload_class_that_is_not_known_is_not_written_to():
    with pytest.raises(UnsupportedTable, match="AWSDmsAvroPayload"):
        reopened(new(), **{PAYLOAD: PAYLOADS + "AWSDmsAvroPayload"}).check_writable()


def test_an_ordering_column_merges_by_event_time_unless_the_caller_says_otherwise():
    assert new(ordering="ts").merges_by_event_time
    assert not new().merges_by_event_time
    latest = {PAYLOAD: PAYLOADS + "OverwriteWithLatestAvroPayload"}
    assert not new(ordering="ts", **latest).merges_by_event_time


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"hoodie.table.partition.fields": "ts,city"}, "takes one partition column"),
        ({PREFIX + "output.dateformat": "EEE"}, "cannot be honoured.*output.dateformat"),
        ({PREFIX + "timestamp.type": ""}, "cannot be honoured.*timestamp.type"),
        ({PREFIX + "output.timezone": "Mars/Olympus"}, "cannot be honoured.*Mars"),
    ],
)
def test_a_foreign_timestamp_table_that_cannot_be_honoured_is_opened_but_not_written(changes, match):
    with pytest.raises(UnsupportedTable, match=match):
        reopened(new(**{CLASS: "TIMESTAMP"}, **TIMES), **changes).check_writable()


@pytest.mark.parametrize(
    ("version", "layout", "hint"),
    [("7", "2", "hoodie.write.auto.upgrade=false"), ("10", "2", "downgrade_table"), ("5", "1", "0.15")],
)
def test_a_table_of_another_version_is_refused_with_the_way_back(version, layout, hint):
    settings = new()
    with pytest.raises(UnsupportedTable, match="version: " + version) as refused:
        reopened(settings, **{"hoodie.table.version": version, "hoodie.timeline.layout.version": layout})
    assert hint in refused.value.hint


def test_the_newer_name_of_the_ordering_column_is_read_in_tables_of_hudi_1():
    stored = {name: text for name, text in new(ordering="ts").properties.items() if "precombine" not in name}

    settings = TableSettings.from_properties(stored | {"hoodie.table.ordering.fields": "ts"})

    assert settings.ordering == "ts"
    assert settings.merges_by_event_time


def test_a_table_with_several_ordering_columns_is_not_written_to():
    settings = reopened(new(ordering="ts"), **{"hoodie.table.ordering.fields": "ts,seq"})
    with pytest.raises(UnsupportedTable, match="several ordering columns"):
        settings.check_writable()


@pytest.mark.parametrize(
    "name",
    ["hoodie.table.recordkey.fields", "hoodie.table.partition.fields", "hoodie.table.precombine.field"],
)
def test_a_table_whose_key_lies_inside_of_a_struct_is_read_and_cleaned_but_not_written_to(name):
    settings = reopened(new(ordering="ts"), **{name: "trip.id"})

    settings.check_changeable()
    with pytest.raises(UnsupportedTable) as refused:
        settings.check_writable()

    assert refused.value.facts["columns"] == "trip.id"
