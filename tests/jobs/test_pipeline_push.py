"""The push of a pipeline: due whenever queries see another instant than the newest."""

import itertools
from dataclasses import replace

import pyarrow as pa
import pytest

import holdfast
from harness.push_client import Client, make_table
from holdfast.config.pipeline import Destination, Pipeline, Publication, Source
from holdfast.config.push_schema import parse_schema
from holdfast.errors import Conflict, InvalidRequest, TableNotFound
from holdfast.jobs.pipeline import plan_pipeline, run_pipeline
from holdfast.jobs.pipeline_push import push_schema
from holdfast.model.pushes import LAKE_INSTANT, LAKE_TABLE

_numbers = itertools.count()


@pytest.fixture
def pipeline(tmp_path, running):
    """A pipeline into a table of the service that nobody has made yet."""
    (tmp_path / "in").mkdir()
    name = f"piped{next(_numbers)}"

    def make(**publication):
        return Pipeline(
            name="trips",
            source=Source(format="json", path=f"{tmp_path}/in/*.json"),
            destination=Destination(path=str(tmp_path / "lake"), name="trips", record_key=("id",)),
            push=Publication(
                **{"table": name, "controller": running.controller_url, "create": True, **publication}
            ),
        )

    return make


@pytest.fixture
def deliver(tmp_path):
    numbers = itertools.count()

    def deliver(*ids):
        text = "".join(f'{{"id": {number}, "city": "oslo"}}\n' for number in ids)
        (tmp_path / "in" / f"{next(numbers)}.json").write_text(text)

    return deliver


def rows(client: Client, pipeline: Pipeline, *, epoch: str = "0") -> list[int]:
    """What queries see that demand at least an epoch."""
    query = f"SELECT id FROM {pipeline.push.table} ORDER BY id LIMIT 100"
    answer = client.sql(query, queryOptions=f"minSnapshotEpoch={epoch}")
    assert not answer["exceptions"], answer["exceptions"]
    return [int(number) for (number,) in answer["resultTable"]["rows"]]


def snapshot(client: Client, pipeline: Pipeline) -> dict:
    found = client.get(f"/segments/{pipeline.push.table}/snapshots").json()["snapshots"]
    return next(one for one in found if one["isCurrent"])


@pytest.mark.spark
def test_the_newest_snapshot_is_pushed_and_says_where_it_came_from(spark, client, pipeline, deliver):
    deliver(1, 2)

    report = run_pipeline(pipeline(), spark=spark)

    assert report.push.rows == 2
    assert rows(client, pipeline()) == [1, 2]
    served = snapshot(client, pipeline())
    assert served["segmentLineageEntryId"] == report.push.entry_id
    assert served["source"][LAKE_TABLE] == pipeline().destination.path
    assert served["source"][LAKE_INSTANT] == report.commit.instant
    assert served["source"]["input.names"] == "0.json"
    assert "push" in report.seconds


@pytest.mark.spark
def test_a_push_that_a_killed_run_did_not_come_to_is_made_up_for(spark, client, pipeline, deliver):
    """The commit stands, so there is nothing new; queries see something older."""
    deliver(1)
    run_pipeline(pipeline(), spark=spark)
    deliver(2)
    commit = run_pipeline(replace(pipeline(), push=None), spark=spark).commit
    assert plan_pipeline(pipeline()).push == commit.instant

    report = run_pipeline(pipeline(), spark=spark)

    assert (report.commit, report.push.rows) == (None, 2)
    assert rows(client, pipeline()) == [1, 2]
    assert run_pipeline(pipeline(), spark=spark).push is None


@pytest.mark.spark
def test_what_was_reverted_is_not_pushed_again_before_there_is_a_new_commit(spark, client, pipeline, deliver):
    for number in (1, 2):
        deliver(number)
        entry = run_pipeline(pipeline(), spark=spark).push.entry_id
    name = pipeline().push.table
    answer = client.post(
        f"/segments/{name}/revertReplaceSegments", type="OFFLINE", segmentLineageEntryId=entry
    )
    assert answer.status_code == 200, answer.text

    report = run_pipeline(pipeline(), spark=spark)

    assert report.push is None
    assert "was reverted" in report.warnings[0]
    assert rows(client, pipeline(), epoch=answer.headers["X-Snapshot-Epoch"]) == [1]
    deliver(3)
    assert run_pipeline(pipeline(), spark=spark).push.rows == 3


@pytest.mark.spark
def test_a_gate_that_fails_leaves_queries_where_they_were_and_the_commit_stands(
    spark, client, pipeline, deliver
):
    deliver(1)
    run_pipeline(pipeline(), spark=spark)
    deliver(2)

    with pytest.raises(Conflict, match="gate") as refused:
        run_pipeline(pipeline(gates=({"max_rows": 1},)), spark=spark)

    assert any("stands" in note for note in refused.value.__notes__)
    assert rows(client, pipeline()) == [1]
    assert holdfast.open_table(pipeline().destination.path).to_arrow().num_rows == 2
    assert run_pipeline(pipeline(), spark=spark).push.rows == 2


@pytest.mark.parametrize("settings", [{"kind": "APPEND"}, {"kind": "REFRESH", "consistent": False}])
def test_a_push_table_that_would_keep_the_rows_of_the_last_snapshot_is_refused(pipeline, client, settings):
    """Segments are called by the times of their rows: those of the next snapshot would stand beside them."""
    added = make_table(client, **settings)
    found = pipeline(table=added.name)
    lake = holdfast.create_table(found.destination.path, name="trips", record_key="id")
    lake.insert(pa.table({"id": [1]}))

    with pytest.raises(InvalidRequest, match="not replaced as a whole") as refused:
        plan_pipeline(found)

    assert refused.value.facts["table"] == added.typed


@pytest.mark.spark
def test_a_push_table_that_is_not_there_is_named_unless_it_may_be_made(spark, pipeline, deliver):
    deliver(1)

    with pytest.raises(TableNotFound) as refused:
        run_pipeline(pipeline(create=False), spark=spark)

    assert any("stands" in note for note in refused.value.__notes__)


def test_the_schema_of_a_push_table_has_the_columns_of_the_lake_table():
    columns = pa.schema(
        [
            ("id", pa.int64()), ("n", pa.int32()), ("small", pa.int8()), ("ratio", pa.float32()),
            ("fare", pa.float64()), ("ok", pa.bool_()), ("price", pa.decimal128(10, 2)),
            ("city", pa.string()), ("raw", pa.binary()), ("at", pa.timestamp("us", "UTC")),
            ("day", pa.date32()), ("tags", pa.list_(pa.string())),
        ]
    )  # fmt: skip

    schema = parse_schema(push_schema("trips", columns, (), ("id",)))

    assert {name: (field.type, field.is_array) for name, field in schema.fields.items()} == {
        "id": ("LONG", False), "n": ("INT", False), "small": ("INT", False), "ratio": ("FLOAT", False),
        "fare": ("DOUBLE", False), "ok": ("BOOLEAN", False), "price": ("BIG_DECIMAL", False),
        "city": ("STRING", False), "raw": ("BYTES", False), "at": ("TIMESTAMP", False),
        "day": ("TIMESTAMP", False), "tags": ("STRING", True),
    }  # fmt: skip
    assert schema.primary_key == ("id",)


def test_a_column_that_a_push_table_cannot_have_is_named_unless_others_are_chosen():
    columns = pa.schema([("id", pa.int64()), ("where", pa.struct([("x", pa.float64())]))])

    with pytest.raises(InvalidRequest, match=r"no counterpart in a push table \(column: where"):
        push_schema("trips", columns, (), ("id",))
    assert set(parse_schema(push_schema("trips", columns, ("id",), ("id",))).fields) == {"id"}
