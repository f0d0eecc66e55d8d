import io
import json

import fastavro
import pytest

from holdfast.format.avro import encode_container
from holdfast.format.malformed import Malformed
from holdfast.format.replace_requests import (
    ClusteringInput,
    ReplaceRequest,
    decode_replace_request,
    encode_replace_request,
)

OVERWRITE = ReplaceRequest(operation_type=None, is_clustering=False)
BASE = "a-0_0-1-1_20240707001301554.parquet"
LOG = ".b-0_20240707001301554.log.1_0-2-2"


def clustering_request(operation_type):
    """A request with a plan, written under the schema that our own requests embed."""
    schema = json.loads(fastavro.reader(io.BytesIO(encode_replace_request())).metadata["avro.schema"])
    slices = [
        {"fileId": "a-0", "dataFilePath": f"file:/t/{BASE}"},
        {"fileId": "b-0", "dataFilePath": "", "deltaFilePaths": [f"p/{LOG}"], "partitionPath": "p"},
    ]
    group = {"slices": slices, "metrics": {"TOTAL_IO_MB": 1.0}, "numOutputFileGroups": 1}
    plan = {
        "inputGroups": [group],
        "strategy": {"strategyParams": {"a": "b"}},
        "preserveHoodieMetadata": True,
    }
    return encode_container(schema, {"operationType": operation_type, "clusteringPlan": plan, "version": 1})


def test_the_request_of_an_overwrite_is_read_back():
    assert decode_replace_request(encode_replace_request()) == OVERWRITE


def test_the_request_of_an_overwrite_has_only_nulls():
    (record,) = fastavro.reader(io.BytesIO(encode_replace_request()))

    assert record == {"operationType": None, "clusteringPlan": None, "extraMetadata": None, "version": None}


def test_an_empty_file_is_the_request_of_an_overwrite():
    assert decode_replace_request(b"") == OVERWRITE


def test_the_request_of_a_clustering_tells_what_it_clusters():
    inputs = ClusteringInput("a-0", "", (BASE,)), ClusteringInput("b-0", "p", (LOG,))

    assert decode_replace_request(clustering_request("CLUSTER")) == ReplaceRequest(
        "CLUSTER", is_clustering=True, inputs=inputs
    )
    assert [path for one in inputs for path in one.paths] == [BASE, f"p/{LOG}"]


def test_a_plan_without_operation_is_still_a_clustering():
    assert decode_replace_request(clustering_request(None)).is_clustering


@pytest.mark.parametrize("field_type", ["string", {"type": "map", "values": "int"}])
def test_a_record_of_another_kind_is_refused(field_type):
    schema = {"type": "record", "name": "Other", "fields": [{"name": "operationType", "type": field_type}]}
    value = "CLUSTER" if field_type == "string" else {}

    with pytest.raises(Malformed, match="replace request"):
        decode_replace_request(encode_container(schema, {"operationType": value}))


def test_a_record_with_an_unspeakable_field_name_is_refused():
    fields = [("\ud800", "int"), ("operationType", "null"), ("clusteringPlan", "null")]
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, kind in fields],
    }

    with pytest.raises(Malformed, match="replace request"):
        decode_replace_request(
            encode_container(schema, {name: 1 if kind == "int" else None for name, kind in fields})
        )


@pytest.mark.timeout(60)
@pytest.mark.parametrize("content", [encode_replace_request(), clustering_request("CLUSTER")])
def test_a_damaged_request_is_read_or_refused(damaged, content):
    refused = 0

    for copy in damaged(content):
        try:
            decode_replace_request(copy)
        except Malformed:
            refused += 1

    assert refused >= len(content) - 1


@pytest.mark.parametrize(
    "table",
    [
        "cow_v6_simplekeygen_nonhivestyle_overwritetable",
        "mor_parquet_v6_simplekeygen_nonhivestyle_overwritetable",
    ],
)
def test_our_request_differs_from_one_of_hudi_in_the_sync_marker_only(hudi_fixture, table):
    (file,) = (hudi_fixture(table) / ".hoodie").glob("*.replacecommit.requested")
    theirs = file.read_bytes()
    ours = encode_replace_request()

    assert decode_replace_request(theirs) == OVERWRITE
    assert ours.replace(ours[-16:], theirs[-16:]) == theirs
