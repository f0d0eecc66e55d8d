import pytest

from holdfast.config.datasource import Operation, QueryType, SourceRead, SourceWrite
from holdfast.config.table import TableSettings
from holdfast.errors import InvalidOption

QUERY = "hoodie.datasource.query.type"
BEGIN = "hoodie.datasource.read.begin.instanttime"
END = "hoodie.datasource.read.end.instanttime"


def test_the_winning_spelling_of_an_option_is_the_first_listed():
    both = {"hoodie.table.precombine.field": "old", "hoodie.table.ordering.fields": "new"}

    assert SourceWrite.from_options(both).properties == {"hoodie.table.precombine.field": "new"}


def test_an_option_agrees_with_the_ordering_column_under_either_of_its_names():
    write = SourceWrite.from_options({"hoodie.table.name": "t", "hoodie.table.precombine.field": "ts"})
    stored = {"hoodie.table.name": "t", "hoodie.table.type": "COPY_ON_WRITE", "hoodie.table.version": "6"}

    write.check_agrees(TableSettings.from_properties(stored | {"hoodie.table.ordering.fields": "ts"}))
    with pytest.raises(InvalidOption, match="given: ts, table: seq"):
        write.check_agrees(TableSettings.from_properties(stored | {"hoodie.table.ordering.fields": "seq"}))


def test_options_of_the_write_are_passed_on_and_others_are_not():
    write = SourceWrite.from_options(
        {"hoodie.datasource.write.operation": "Insert", "hoodie.parquet.max.file.size": 4096}
    )

    assert write.operation is Operation.INSERT
    assert write.options == {"hoodie.parquet.max.file.size": "4096"}


@pytest.mark.parametrize("begin", ["earliest", "0", "000"])
def test_a_beginning_before_every_commit_has_the_names_that_hudis_jobs_use(begin):
    read = SourceRead.from_options({QUERY: "incremental", BEGIN: begin})

    assert (read.query, read.since, read.until) == (QueryType.INCREMENTAL, "19700101000000000", None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({QUERY: "incremental"}, "beginning"),
        ({BEGIN: "20240101000000000"}, "beginning"),
        ({END: "20240101000000000"}, "beginning"),
        ({QUERY: "incremental", BEGIN: "0", "as.of.instant": "20240101000000000"}, "as of"),
        ({QUERY: "cdc"}, "read_optimized"),
        ({"as.of.instnt": "20240101000000000"}, r"did you mean as\.of\.instant"),
        ({"meta_columns": "yes"}, "true or false"),
        ({"hoodie.metadata.enable": "true"}, "unknown option of a read"),
    ],
)
def test_a_read_that_cannot_be_meant_is_refused(options, said):
    with pytest.raises(InvalidOption, match=said):
        SourceRead.from_options(options)
