"""Names of tables as requests spell them."""

import pytest

from holdfast.errors import InvalidRequest, TableNotFound
from holdfast.server.errors import NameContradiction
from holdfast.server.table_names import offline_name, parse_type, qualify, raw_name


def test_a_raw_and_a_typed_name_mean_the_same_table():
    assert offline_name("orders", None) == "orders_OFFLINE"
    assert offline_name("orders", "OFFLINE") == "orders_OFFLINE"
    assert offline_name("orders_OFFLINE", "OFFLINE") == "orders_OFFLINE"


def test_a_type_that_contradicts_the_name_is_refused():
    with pytest.raises(NameContradiction):
        offline_name("orders_REALTIME", "OFFLINE")
    with pytest.raises(NameContradiction):
        offline_name("orders_OFFLINE", "REALTIME")


def test_there_are_no_realtime_tables():
    for name, kind in (("orders", "REALTIME"), ("orders_REALTIME", None), ("orders_REALTIME", "REALTIME")):
        with pytest.raises(TableNotFound):
            offline_name(name, kind)


def test_a_type_is_read_in_any_case():
    assert parse_type("offline") == "OFFLINE"
    with pytest.raises(InvalidRequest):
        parse_type("HYBRID")


@pytest.mark.parametrize(
    ("table", "database", "meant"),
    [
        ("orders", None, "orders"),
        ("orders", "", "orders"),
        ("orders", "default", "orders"),
        ("default.orders", None, "orders"),
        ("orders", "sales", "sales.orders"),
        ("sales.orders", "sales", "sales.orders"),
        ("sales.orders", None, "sales.orders"),
        ("orders_OFFLINE", "sales", "sales.orders_OFFLINE"),
    ],
)
def test_the_database_stands_before_the_name(table, database, meant):
    assert qualify(table, database) == meant


@pytest.mark.parametrize(
    ("table", "database"),
    [("sales.orders", "other"), ("a.b.c", None), ("../x", None), ("", None), (".x", None), ("o", "a.b"),
     ("o", "../x"), ("o\n", None), ("o" * 300, None), ("a b", None), ("a/b", None), ("ä", None),
     ("orders", "DEFAULT"), ("Default.orders", None), ("DEFAULT.orders", "DEFAULT")],
)  # fmt: skip
def test_other_names_are_refused(table, database):
    with pytest.raises(InvalidRequest):
        qualify(table, database)


def test_the_raw_name_has_no_type():
    assert [raw_name(name) for name in ("a_OFFLINE", "a_REALTIME", "a", "db.a_OFFLINE")] == [
        "a",
        "a",
        "a",
        "db.a",
    ]
