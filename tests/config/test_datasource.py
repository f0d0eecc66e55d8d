import pytest

from holdfast.config.choices import Operation, QueryType
from holdfast.config.datasource import SourceRead, SourceWrite
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


STORED = {"hoodie.table.name": "t", "hoodie.table.type": "COPY_ON_WRITE", "hoodie.table.version": "6"}
MODE = "hoodie.write.record.merge.mode"
PAYLOAD = "hoodie.compaction.payload.class"
LATEST = "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"
EVENT_TIME = "org.apache.hudi.common.model.DefaultHoodieRecordPayload"


def described(**more):
    given = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}
    return SourceWrite.from_options(given | more)


@pytest.mark.parametrize(
    ("more", "payload"),
    [
        ({MODE: "event_time_ordering", "hoodie.table.ordering.fields": "ts"}, EVENT_TIME),
        ({MODE: "COMMIT_TIME_ORDERING"}, LATEST),
        ({MODE: "COMMIT_TIME_ORDERING", "hoodie.datasource.write.payload.class": LATEST}, LATEST),
    ],
)
def test_a_merge_mode_makes_a_table_with_the_payload_that_merges_so(more, payload):
    settings = described(**more).new_settings()

    assert settings.properties[PAYLOAD] == payload
    assert "hoodie.record.merge.mode" not in settings.properties
    described(**more).check_agrees(settings)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({MODE: "CUSTOM"}, "EVENT_TIME_ORDERING, COMMIT_TIME_ORDERING"),
        ({MODE: "EVENT_TIME_ORDERING"}, "needs an ordering column"),
        ({MODE: "COMMIT_TIME_ORDERING", "hoodie.table.ordering.fields": "ts"}, "takes no ordering column"),
        (
            {MODE: "COMMIT_TIME_ORDERING", "hoodie.datasource.write.payload.class": EVENT_TIME},
            "contradict each other",
        ),
    ],
)
def test_a_merge_mode_that_no_table_here_has_is_refused(more, said):
    with pytest.raises(InvalidOption, match=said):
        described(**more).new_settings()


@pytest.mark.parametrize(
    ("table", "mode"),
    [
        ({PAYLOAD: LATEST}, "EVENT_TIME_ORDERING"),
        ({PAYLOAD: EVENT_TIME, "hoodie.table.ordering.fields": "ts"}, "COMMIT_TIME_ORDERING"),
        ({PAYLOAD: LATEST, "hoodie.table.ordering.fields": "ts"}, "COMMIT_TIME_ORDERING"),
    ],
)
def test_a_merge_mode_is_compared_with_the_table(table, mode):
    settings = TableSettings.from_properties(STORED | table)

    with pytest.raises(InvalidOption, match=f"contradicts the table.*given: {mode}"):
        SourceWrite.from_options({MODE: mode}).check_agrees(settings)


def test_a_merge_mode_counts_for_a_table_that_does_not_tell_its_payload():
    write = SourceWrite.from_options({MODE: "EVENT_TIME_ORDERING"})
    table = TableSettings.from_properties(STORED | {"hoodie.table.ordering.fields": "ts"})

    write.check_agrees(table)

    assert write.complete(table).merges_by_event_time


def test_the_ordering_column_of_the_payload_must_be_the_tables():
    same = {"hoodie.datasource.write.precombine.field": "ts", "hoodie.payload.ordering.field": "ts"}

    assert SourceWrite.from_options(same).properties == {"hoodie.table.precombine.field": "ts"}
    with pytest.raises(InvalidOption, match="different ordering columns"):
        SourceWrite.from_options(same | {"hoodie.payload.ordering.field": "seq"})


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
        ({"hoodie.parquet.page.size": "1"}, "only tunes Apache Hudi"),
        ({"hoodie.datasource.read.paths": "a"}, "filter the rows"),
        ({"hoodie.table.name": "trips"}, "for what a table is"),
    ],
)
def test_a_read_that_cannot_be_meant_is_refused(options, said):
    with pytest.raises(InvalidOption, match=said):
        SourceRead.from_options(options)
