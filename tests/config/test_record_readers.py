"""Formats of files, as Pinot's jobs describe them."""

import pytest

from holdfast.config.documents import Section
from holdfast.config.record_readers import RecordReader, parse_reader
from holdfast.errors import InvalidOption


def reader(**spec) -> RecordReader:
    found = Section({"recordReaderSpec": spec}, "/").section("recordReaderSpec", parse_reader)
    assert found is not None
    return found


@pytest.mark.parametrize("written", ["parquet", "CSV", "Json", "avro", "ORC"])
def test_formats_are_known_in_whatever_case(written):
    assert reader(dataFormat=written).format == written.lower()


def test_a_csv_file_has_its_names_in_the_first_line():
    assert reader(dataFormat="csv").options == {"header": "true"}
    assert reader(dataFormat="csv", configs={"header": True}).options == {"header": "true"}


@pytest.mark.parametrize(
    ("configs", "header", "is_first_line"),
    [
        ({"header": "id,city"}, ("id", "city"), "false"),
        ({"header": "id| city", "delimiter": "|"}, ("id", "city"), "false"),
        ({"header": "id,city", "skipHeader": True}, ("id", "city"), "true"),
    ],
)
def test_the_names_of_a_csv_file_without_any_can_be_given(configs, header, is_first_line):
    found = reader(dataFormat="csv", configs=configs)

    assert (found.header, found.options["header"]) == (header, is_first_line)


def test_names_of_csv_options_are_those_of_spark():
    found = reader(
        dataFormat="csv",
        configs={
            "delimiter": ";", "quoteCharacter": "'", "escapeCharacter": "\\", "commentMarker": "#",
            "nullStringValue": "-", "ignoreSurroundingSpaces": True, "multiValueDelimiter": "|",
        },
    )  # fmt: skip

    assert found.options == {
        "header": "true", "sep": ";", "quote": "'", "escape": "\\", "comment": "#", "nullValue": "-",
        "ignoreLeadingWhiteSpace": "true", "ignoreTrailingWhiteSpace": "true",
    }  # fmt: skip
    assert found.list_separator == "|"


@pytest.mark.parametrize("written", ["||", "", ", "])
def test_what_stands_between_several_values_is_one_character(written):
    with pytest.raises(InvalidOption, match="not one character") as refused:
        reader(dataFormat="csv", configs={"multiValueDelimiter": written})

    assert refused.value.facts["key"] == "recordReaderSpec.configs.multiValueDelimiter"


def test_a_dialect_sets_what_it_stands_for_and_options_win_over_it():
    assert reader(dataFormat="csv", configs={"fileFormat": "TDF"}).options["sep"] == "\t"
    assert reader(dataFormat="csv", configs={"fileFormat": "tdf", "delimiter": ","}).options["sep"] == ","


def test_classes_are_told_and_configs_of_formats_with_a_schema_have_no_effect():
    found = reader(dataFormat="avro", className="a.B", configClassName="c.D", configs={"x": 1})

    assert found == RecordReader(format="avro", classes=("a.B", "c.D"))
