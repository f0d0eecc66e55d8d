"""Answers in JSON, made some rows at a time so that other threads have their turn."""

import msgspec
import pytest

from holdfast.server.documents import encode_document


@pytest.mark.parametrize("count", [0, 1, 100, 101, 250])
def test_rows_that_are_written_in_pieces_are_the_same_rows(count):
    rows = [[number, f'"{number}', None, [number]] for number in range(count)]
    document = {
        "resultTable": {"dataSchema": {"columnNames": ['"rows":[]', "]}"]}, "rows": rows},
        "exceptions": [],
        "numRowsResultSet": count,
    }

    assert msgspec.json.decode(bytes(encode_document(document))) == document


@pytest.mark.parametrize(
    "document", [[], {}, "text", {"rows": 1}, {"resultTable": None}, [{"resultTable": 1}]]
)
def test_any_other_document_is_written_as_it_is(document):
    assert bytes(encode_document(document)) == msgspec.json.encode(document)
