"""Pinot's table configurations, read into settings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config.push import check_table_name, name_with_type, parse_table, raw_name, unknown_sections
from holdfast.config.push_support import (
    check_supported,
    check_supported_schema,
    settings_without_effect,
)
from holdfast.config.values import DAY_MS, HOUR_MS, parse_period_ms, parse_size_bytes
from holdfast.errors import InvalidOption, InvalidRequest, UnsupportedTable

WHOLE = {
    "tableName": "orders_OFFLINE",
    "tableType": "OFFLINE",
    "segmentsConfig": {
        "replication": "2",
        "timeColumnName": "order_ts",
        "schemaName": "orders",
        "replacedSegmentsRetentionPeriod": "2d",
        "lineageEntryCleanupRetentionPeriod": "4h30m",
        "deletedSegmentsRetentionPeriod": "0s",
        "retentionTimeUnit": "DAYS",
        "retentionTimeValue": "30",
    },
    "tenants": {"broker": "DefaultTenant", "server": "DefaultTenant"},
    "quota": {"storage": "20G", "maxQueriesPerSecond": "50"},
    "ingestionConfig": {
        "batchIngestionConfig": {
            "segmentIngestionType": "REFRESH",
            "segmentIngestionFrequency": "DAILY",
            "consistentDataPush": True,
            "retainedSnapshots": 4,
        }
    },
    "ours": {"kept": True},
}


def table(**sections):
    return parse_table({"tableName": "orders", "tableType": "OFFLINE", **sections})


def batch(**settings):
    return table(ingestionConfig={"batchIngestionConfig": settings})


def test_a_whole_configuration_is_read():
    settings = parse_table(WHOLE)

    assert settings.table == "orders_OFFLINE"
    assert settings.raw_table == "orders"
    assert settings.refresh
    assert settings.consistent_push
    assert settings.time_column == "order_ts"
    assert settings.replication == 2
    assert settings.replaced_retention_ms == 2 * DAY_MS
    assert settings.entry_retention_ms == 4.5 * HOUR_MS
    assert settings.deleted_retention_ms == 0
    assert settings.time_retention_ms == 30 * DAY_MS
    assert settings.storage_quota_bytes == 20 * 2**30
    assert settings.snapshot_quota_bytes == 40 * 2**30
    assert settings.queries_per_second == 50
    assert settings.retained_snapshots == 4
    assert settings.warnings == ()
    assert settings.raw == WHOLE


def test_a_minimal_configuration_has_pinots_defaults():
    settings = parse_table({"tableName": "orders"})

    assert settings.table == "orders_OFFLINE"
    assert not settings.refresh
    assert not settings.consistent_push
    assert settings.replaced_retention_ms == 4 * HOUR_MS
    assert settings.entry_retention_ms == DAY_MS
    assert settings.deleted_retention_ms == 7 * DAY_MS
    assert settings.retained_snapshots == 2
    assert settings.storage_quota_bytes is None
    assert settings.time_retention_ms is None
    assert settings.checks_segment_times


def test_replaced_segments_of_a_refreshed_table_stay_for_a_day():
    assert batch(segmentIngestionType="REFRESH").replaced_retention_ms == DAY_MS


@pytest.mark.parametrize("kind", ["REFRESH", "refresh", "Refresh"])
def test_the_ingestion_type_is_read_in_any_case_and_from_its_deprecated_place(kind):
    assert batch(segmentIngestionType=kind).refresh
    assert table(segmentsConfig={"segmentPushType": kind}).refresh
    assert not table(
        segmentsConfig={"segmentPushType": kind},
        ingestionConfig={"batchIngestionConfig": {"segmentIngestionType": "APPEND"}},
    ).refresh


@pytest.mark.parametrize("value", ["foo", "1w", "d", "1d1d", "1h1d", 5, "9" * 40 + "d", "1.5d"])
def test_j72_a_retention_period_that_cannot_be_read_costs_a_warning(value, caplog):
    settings = table(segmentsConfig={"replacedSegmentsRetentionPeriod": value})

    assert settings.replaced_retention_ms == 4 * HOUR_MS
    assert settings.warnings
    assert caplog.messages == ["table_config.unreadable_setting"]


@pytest.mark.parametrize("pair", [("FORTNIGHTS", "1"), ("DAYS", "many")])
def test_a_time_retention_that_cannot_be_read_purges_nothing(pair):
    settings = table(segmentsConfig={"retentionTimeUnit": pair[0], "retentionTimeValue": pair[1]})

    assert settings.time_retention_ms is None
    assert settings.warnings


@pytest.mark.parametrize(
    "config",
    [
        None,
        [],
        "orders",
        {},
        {"tableName": ""},
        {"tableName": 5},
        {"tableName": "a/b"},
        {"tableName": "../x"},
        {"tableName": ".hidden"},
        {"tableName": "a.b.c"},
        {"tableName": "x" * 201},
        {"tableName": "Deleted_Segments"},
        {"tableName": "orders", "tableType": "HYBRID"},
        {"tableName": "orders", "tableType": 5},
        {"tableName": "orders", "segmentsConfig": []},
        {"tableName": "orders", "segmentsConfig": {"replication": "two"}},
        {"tableName": "orders", "segmentsConfig": {"replication": 0}},
        {"tableName": "orders", "segmentsConfig": {"replication": True}},
        {"tableName": "orders", "segmentsConfig": {"replication": "٣"}},
        {"tableName": "orders", "segmentsConfig": {"timeColumnName": 5}},
        {"tableName": "orders", "quota": {"storage": "much"}},
        {"tableName": "orders", "quota": {"maxQueriesPerSecond": "0"}},
        {"tableName": "orders", "quota": {"maxQueriesPerSecond": "nan"}},
        {"tableName": "orders", "ingestionConfig": {"batchIngestionConfig": {"consistentDataPush": "yes"}}},
        {"tableName": "orders", "ingestionConfig": {"batchIngestionConfig": {"retainedSnapshots": 51}}},
        {"tableName": "orders", "ingestionConfig": {"batchIngestionConfig": {"retainedSnapshots": 0}}},
        {"tableName": "orders", "ingestionConfig": {"batchIngestionConfig": {"segmentIngestionType": "X"}}},
        {"tableName": "orders", "ours": ["\ud800"]},
        {"tableName": "orders", "ours": float("nan")},
    ],
    ids=str,
)
def test_a_configuration_that_decides_about_data_and_is_malformed_is_refused(config):
    with pytest.raises(InvalidRequest) as refusal:
        parse_table(config)

    assert refusal.value.facts["code"] in ("INVALID_TABLE_CONFIG", "INVALID_TABLE_NAME", "INVALID_JSON")


@pytest.mark.parametrize("config", [{"tableName": "o", "tableType": "REALTIME"}, {"tableName": "o_REALTIME"}])
def test_only_offline_tables_are_served(config):
    with pytest.raises(UnsupportedTable):
        parse_table(config)


def test_flags_may_be_texts():
    assert batch(consistentDataPush="TRUE").consistent_push
    assert not table(ingestionConfig={"segmentTimeValueCheck": "false"}).checks_segment_times


def test_unknown_sections_are_kept_and_named():
    assert unknown_sections(WHOLE) == {"/ours": {"kept": True}}


def test_slips_within_sections_are_named_by_their_path():
    slipped = {
        "tableName": "orders",
        "segmentsConfig": {"replicaton": "1"},
        "quota": {"storge": "1G"},
        "ingestionConfig": {
            "batchIngestionConfig": {"consistantDataPush": True},
            "filterConfg": {},
            "transformConfigs": [{"columnName": "a"}, {"colum": "c"}],
        },
        "tenants": {"brooker": "x"},
    }

    assert unknown_sections(slipped) == {
        "/segmentsConfig/replicaton": "1",
        "/ingestionConfig/filterConfg": {},
        "/ingestionConfig/batchIngestionConfig/consistantDataPush": True,
        "/quota/storge": "1G",
        "/ingestionConfig/transformConfigs/1/colum": "c",
        "/tenants/brooker": "x",
    }


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"enrichmentConfigs": [{"enricherType": "x"}]}, "enrichmentConfigs"),
        ({"aggregationConfigs": [{"columnName": "c"}]}, "aggregationConfigs"),
    ],
)
def test_rows_that_would_be_made_at_ingestion_are_refused_by_name(more, told):
    with pytest.raises(InvalidRequest, match=f"ingestionConfig.{told}") as caught:
        check_supported({"tableName": "orders", "ingestionConfig": more})
    assert caught.value.facts["code"] == "UNSUPPORTED_SETTING"


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"upsertConfig": {"mode": "FULL"}}, "upsertConfig.mode"),
        ({"dedupConfig": {"dedupEnabled": "true"}}, "dedupConfig.dedupEnabled"),
        (
            {"ingestionConfig": {"batchIngestionConfig": {"consistentDataPush": True}}},
            "batchIngestionConfig.consistentDataPush",
        ),
    ],
)
def test_settings_that_contradict_a_table_of_pushes_are_refused(config, told):
    with pytest.raises(InvalidRequest, match=told):
        check_supported({"tableName": "orders", **config})


def test_what_asks_for_nothing_is_taken():
    empty = {"transformConfigs": [], "filterConfig": {"filterFunction": None}, "aggregationConfigs": None}
    check_supported({"ingestionConfig": empty, "upsertConfig": {"mode": "NONE"}, "dedupConfig": {}})
    check_supported(WHOLE)
    check_supported_schema({"dimensionFieldSpecs": [{"name": "c", "transformFunction": None}]})


def test_settings_that_change_nothing_here_are_told_with_the_reason():
    found = settings_without_effect(
        {
            "tenants": {"broker": "DefaultTenant", "server": ""},
            "tableIndexConfig": {"loadMode": "MMAP", "invertedIndexColumns": [], "sortedColumn": ["a"]},
            "ingestionConfig": {"continueOnError": True, "rowTimeValueCheck": "false"},
            "metadata": {"customConfigs": {"a": "b"}},
        }
    )

    assert list(found) == [
        "tenants.broker", "tableIndexConfig.loadMode", "tableIndexConfig.sortedColumn",
        "ingestionConfig.continueOnError",
    ]  # fmt: skip
    assert all(found.values())


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1d", DAY_MS),
        ("4h30m", 4 * HOUR_MS + 30 * 60_000),
        ("0s", 0),
        ("1d2h3m4s", 93_784_000),
        ("-1d", -DAY_MS),
        (" 7d ", 7 * DAY_MS),
    ],
)
def test_periods_combine_days_hours_minutes_and_seconds(text, ms):
    assert parse_period_ms(text) == ms


@pytest.mark.parametrize("text", ["", " ", "1", "d", "1w", "1d 2h", "1D", "1ms", "--1d", "1e3d", None, 5])
def test_what_is_no_period_is_refused(text):
    with pytest.raises(InvalidOption, match="not a period"):
        parse_period_ms(text)


@given(parts=st.tuples(*[st.integers(0, 10**6)] * 4))
def test_every_combination_of_units_is_a_period(parts):
    text = "".join(f"{part}{unit}" for part, unit in zip(parts, "dhms", strict=True))
    d, h, m, s = parts

    assert parse_period_ms(text) == ((d * 24 + h) * 60 + m) * 60_000 + s * 1000


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("10G", 10 * 2**30),
        ("1.5T", 3 * 2**39),
        ("512MB", 512 * 2**20),
        ("1024", 1024),
        ("7b", 7),
        ("2k", 2048),
        ("1P", 2**50),
        (".5 K", 512),
    ],
)
def test_sizes_have_binary_units(text, size):
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "G", "10X", "-1G", "1e9", "10 GiB", "1,5T", "9" * 40, None])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(InvalidOption, match="not a size"):
        parse_size_bytes(text)


def test_names_are_typed_and_raw():
    assert name_with_type("orders") == name_with_type("orders_OFFLINE") == "orders_OFFLINE"
    assert raw_name("orders") == raw_name("orders_OFFLINE") == "orders"
    check_table_name("shop.orders_OFFLINE")
