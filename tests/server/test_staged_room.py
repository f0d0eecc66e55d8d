"""Everything that an upload takes on disk counts: copies, what is unpacked, what is fetched."""

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.push_client import Client, make_table
from holdfast.config.server import Downloads, Limits
from holdfast.format.segments import Creation, SegmentDescription
from holdfast.push.uploads.archives import BatchSegment, pack_batch, pack_segment

ROWS = 1_000_000
CREATION = Creation(7, 1_700_000_000_000)


def _rows(count=ROWS, *, compression="none"):
    """Some megabytes that pack well."""
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"id": pa.array([7] * count, pa.int64())}),
        sink,
        compression=compression,
        use_dictionary=False,
    )
    return sink.getvalue()


LARGE = _rows()
assert len(LARGE) > 7_000_000


def _archive(name="s1"):
    sink = io.BytesIO()
    description = SegmentDescription(name=name, table="orders", docs=ROWS)
    pack_segment(sink, description, CREATION, io.BytesIO(LARGE), size_bytes=len(LARGE))
    assert len(sink.getvalue()) < len(LARGE) // 50
    return sink.getvalue()


def _batch(*uris):
    return pack_batch(
        BatchSegment(
            description=SegmentDescription(name=f"b{number}", table="orders", docs=ROWS),
            creation=CREATION,
            uri=uri,
        )
        for number, uri in enumerate(uris)
    )


@pytest.fixture
def with_room(serve, tmp_path, monkeypatch):
    """A table of a service whose uploads may take so many bytes; and what they left on disk meanwhile."""
    staging, spool = tmp_path / "from", tmp_path / "spool"
    staging.mkdir()
    spool.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(spool))

    def with_room(size):
        # Nothing is unpacked beyond 200 times the size of an archive.
        limits = Limits(staged_bytes=size, upload_bytes=32 << 20)
        client = Client(serve(limits=limits, downloads=Downloads(roots=(str(staging),))))
        table = make_table(client)
        table.staging = staging
        return table

    return with_room


def _send(table, path, content, **headers):
    return table.client.call(
        "POST", path, params={"tableName": table.name, "tableType": "OFFLINE"},
        headers=headers, files={"f": ("s1", content)},
    )  # fmt: skip


def _refused(answer):
    assert (answer.status_code, answer.json()["errorCode"]) == (429, "NO_ROOM_FOR_UPLOADS"), answer.text
    return True


def _is_usable(table):
    """What was refused took nothing for good."""
    assert table.upload("small").status_code == 200
    return True


def _stored(table):
    root = Path(table.client.running.service.controller.views.deep_store_uri)
    return [path.name for path in root.rglob("*.parquet")]


def test_the_form_and_its_copy_both_count(with_room):
    table = with_room(len(LARGE) * 3 // 2)

    assert _refused(_send(table, "/v2/segments", LARGE))
    assert _is_usable(table)


def test_an_upload_fits_whose_copies_fit(with_room):
    table = with_room(len(LARGE) * 2 + 10_000)

    assert _send(table, "/v2/segments", LARGE).status_code == 200
    assert _send(table, "/v2/segments", LARGE).status_code == 200, "the room was given back"


def test_what_is_unpacked_counts_before_it_is_written(with_room):
    table = with_room(len(LARGE) - 100_000)

    assert _refused(_send(table, "/v2/segments", _archive()))
    assert _is_usable(table)
    assert _stored(table) == [name for name in _stored(table) if name.startswith("small")]


def test_an_archive_fits_that_fits_unpacked(with_room):
    table = with_room(len(LARGE) + 2 * len(_archive()) + 10_000)

    assert _send(table, "/v2/segments", _archive()).status_code == 200


def test_what_is_fetched_by_address_counts(with_room):
    table = with_room(len(LARGE) // 2)
    (table.staging / "s1.parquet").write_bytes(LARGE)
    (table.staging / "s2.parquet").write_bytes(_rows(10_000))
    where = f"file://{table.staging}"

    assert _refused(
        table.client.call(
            "POST", "/v2/segments", params={"tableName": table.name},
            headers={"UPLOAD_TYPE": "URI", "DOWNLOAD_URI": f"{where}/s1.parquet"},
        )
    )  # fmt: skip
    fits = table.client.call(
        "POST", "/v2/segments", params={"tableName": table.name},
        headers={"UPLOAD_TYPE": "URI", "DOWNLOAD_URI": f"{where}/s2.parquet"},
    )  # fmt: skip
    assert fits.status_code == 200, fits.text


def test_what_is_fetched_and_unpacked_counts(with_room):
    table = with_room(len(LARGE) - 100_000)
    (table.staging / "s1.tar.gz").write_bytes(_archive())

    assert _refused(
        table.client.call(
            "POST", "/v2/segments", params={"tableName": table.name},
            headers={"UPLOAD_TYPE": "URI", "DOWNLOAD_URI": f"file://{table.staging}/s1.tar.gz"},
        )
    )  # fmt: skip


def test_the_segments_of_a_batch_count_together(with_room):
    table = with_room(len(LARGE) * 5 // 2)
    for number in range(3):
        (table.staging / f"{number}.parquet").write_bytes(LARGE)
    uris = [f"file://{table.staging}/{number}.parquet" for number in range(3)]
    headers = {"UPLOAD_TYPE": "METADATA", "COPY_SEGMENT_TO_DEEP_STORE": "true"}

    assert _refused(_send(table, "/segments/batchUpload", _batch(*uris), **headers))
    assert _stored(table) == []
    assert _is_usable(table)
    fits = _send(table, "/segments/batchUpload", _batch(*uris[:2]), **headers)
    assert fits.status_code == 200, fits.text


def test_metadata_with_an_address_counts_what_it_fetches(with_room):
    table = with_room(len(LARGE) // 2)
    (table.staging / "s1.parquet").write_bytes(LARGE)
    sink = io.BytesIO()
    pack_segment(
        sink, SegmentDescription(name="s1", table="orders", docs=ROWS), CREATION, io.BytesIO(), size_bytes=0
    )
    headers = {"UPLOAD_TYPE": "METADATA", "DOWNLOAD_URI": f"file://{table.staging}/s1.parquet"}

    assert _refused(_send(table, "/v2/segments", sink.getvalue(), **headers))
