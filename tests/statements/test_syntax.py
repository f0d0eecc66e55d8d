"""What statements say, and where one is wrong: without Spark."""

import pytest

import holdfast
from holdfast.errors import InvalidOption, InvalidRequest
from holdfast.statements.catalog import Catalog, open_catalog
from holdfast.statements.syntax import Call, Describe, ShowTables, parse_statement, split_statements


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("SELEC 1", 1, 7),
        ("SELECT *\nFROM (SELECT 1", 2, 14),
        ("SELECT *\n  FROM trips WHERE 'open", 2, 20),
        ("CALL show_commits(\n  table => trips)", 2, 12),
        ("SHOW TABLES LIKE", 1, 17),
        ("DESCRIBE trips of", 1, 16),
    ],
)
def test_bad_sql_is_one_sentence_with_its_place(text, line, column):
    with pytest.raises(InvalidRequest, match="the statement cannot be read") as refused:
        parse_statement(text)

    assert (refused.value.facts["line"], refused.value.facts["column"]) == (line, column)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    ["", ";", "SELECT 1; SELECT 2", "SET a = b", "EXPLAIN SELECT 1", "SHOW PARTITIONS trips", "USE lake"],
)
def test_what_is_not_one_known_statement_is_refused(text):
    with pytest.raises(InvalidRequest):
        parse_statement(text)


def test_procedures_take_named_or_positional_arguments():
    named = parse_statement("CALL show_commits(table => 'trips', limit => 5);")
    positional = parse_statement("call SHOW_COMMITS('trips', -5, true, null)")

    assert named == Call("show_commits", (), {"table": "trips", "limit": 5})
    assert positional == Call("show_commits", ("trips", -5, True, None))
    with pytest.raises(InvalidRequest, match="all named or all in their order"):
        parse_statement("CALL show_commits('trips', limit => 5)")
    with pytest.raises(InvalidRequest, match="given twice"):
        parse_statement("CALL show_commits(table => 'a', table => 'b')")


def test_show_and_describe_are_read():
    described = parse_statement("DESCRIBE HISTORY holdfast.`lake/trips` LIMIT 3")

    assert parse_statement("SHOW TABLES LIKE 'a*'") == ShowTables("a*")
    assert isinstance(described, Describe)
    assert (described.table.name, described.table.db, described.style, described.limit) == (
        "lake/trips",
        "holdfast",
        "HISTORY",
        3,
    )


def test_semicolons_separate_statements_but_not_in_texts_and_comments():
    text = "SELECT ';'; CALL undo('a;b');\n-- not; this\nSHOW TABLES;;"

    assert split_statements(text) == ["SELECT ';'", "CALL undo('a;b')", "-- not; this\nSHOW TABLES"]


def test_a_catalog_file_names_paths_relative_to_itself(tmp_path):
    (tmp_path / "catalog.yaml").write_text("tables: {trips: lake/trips, raw.rides: s3://b/rides}\n")

    catalog = open_catalog(tmp_path / "catalog.yaml")

    assert catalog.path_of("TRIPS") == str(tmp_path / "lake/trips")
    assert catalog.path_of("raw.rides") == "s3://b/rides"
    assert catalog.path_of("others") is None


@pytest.mark.parametrize(
    "text",
    ["tables: [a]\n", "table: {a: b}\n", "exclusive: perhaps\n", "tables: {a: 1}\n", "tables: {'a/b': c}\n"],
)
def test_a_wrong_catalog_file_is_refused(tmp_path, text):
    (tmp_path / "catalog.yaml").write_text(text)

    with pytest.raises(InvalidOption):
        open_catalog(tmp_path / "catalog.yaml")


def test_names_are_noted_in_the_file_and_forgotten(tmp_path):
    file = tmp_path / "catalog.yaml"
    file.write_text("warehouse: lake\ntables: {trips: lake/trips}\n")

    open_catalog(file).note("rides", "/elsewhere/rides")
    open_catalog(file).forget("Trips")

    assert open_catalog(file).names() == {"rides": "/elsewhere/rides"}
    assert open_catalog(file).warehouse == str(tmp_path / "lake")


def test_registered_names_are_those_of_every_catalog_that_is_not_exclusive():
    holdfast.register("registered_trips", "lake/trips")

    assert open_catalog(None).path_of("Registered_Trips") == "lake/trips"
    assert open_catalog({"a": "b"}).path_of("registered_trips") == "lake/trips"
    assert Catalog(exclusive=True).path_of("registered_trips") is None
    with pytest.raises(InvalidRequest):
        holdfast.register("../trips", "lake/trips")
    open_catalog(None).forget("registered_trips")
    assert open_catalog(None).path_of("registered_trips") is None


@pytest.mark.parametrize("name", ["../secret", "a/b", "..", "a..b", "", "trips\n", "~", "s3://bucket/x"])
def test_no_name_leads_out_of_the_warehouse(tmp_path, name):
    catalog = Catalog(warehouse=str(tmp_path / "lake"))

    assert catalog.path_of(name) is None
    with pytest.raises(InvalidRequest):
        catalog.path_in_warehouse(name)
