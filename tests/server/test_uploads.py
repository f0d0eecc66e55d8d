"""Uploads of metadata only, one segment or many, over HTTP."""

import io
import tarfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.push_client import Client, make_table, parquet
from holdfast.config.server import Downloads
from holdfast.format.segments import Creation, SegmentDescription, encode_creation, encode_description


def _archive(files):
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return sink.getvalue()


def _described(name, table, rows):
    description = SegmentDescription(name=name, table=table, docs=rows)
    return encode_description(description), encode_creation(Creation(7, 1_700_000_000_000))


@pytest.fixture
def staged(serve, tmp_path):
    """A service that may fetch from one folder, with two segments in it."""
    staging = tmp_path / "staging"
    staging.mkdir()
    for name, rows in (("a", 2), ("b", 3)):
        (staging / f"{name}.parquet").write_bytes(parquet(rows, snapshot=1))
    client = Client(serve(downloads=Downloads(roots=(str(staging),))))
    table = make_table(client)
    table.staging = staging
    return table


def _upload(table, path, archive, **headers):
    return table.client.call(
        "POST", path, params={"tableName": table.name, "tableType": "OFFLINE"},
        headers={"UPLOAD_TYPE": "METADATA", **headers}, files={"f": ("metadata", archive)},
    )  # fmt: skip


def test_metadata_of_a_segment_is_sent_and_its_bytes_are_copied(staged):
    properties, creation = _described("a", staged.typed, 2)
    archive = _archive({"metadata.properties": properties, "creation.meta": creation})

    answer = _upload(
        staged, "/v2/segments", archive, DOWNLOAD_URI=f"file://{staged.staging}/a.parquet",
        COPY_SEGMENT_TO_DEEP_STORE="true",
    )  # fmt: skip

    assert answer.status_code == 200, answer.text
    assert staged.visible() == {"a"}
    elsewhere = _upload(staged, "/v2/segments", archive, DOWNLOAD_URI="file:///etc/passwd")
    assert (elsewhere.status_code, elsewhere.json()["errorCode"]) == (403, "URI_REFUSED")
    assert _upload(staged, "/v2/segments", archive).status_code == 400


def test_metadata_of_many_segments_is_sent_at_once(staged):
    def batch(*addresses):
        files = {"all_segments_metadata": "\n".join(f"{name}\n{uri}" for name, uri in addresses).encode()}
        for name, _ in addresses:
            properties, creation = _described(name, staged.typed, 2)
            files |= {f"{name}.metadata.properties": properties, f"{name}.creation.meta": creation}
        return _archive(files)

    inside = [(name, f"file://{staged.staging}/{name}.parquet") for name in ("a", "b")]
    outside = [inside[0], ("c", "file:///etc/passwd")]
    for copy in ("true", "false"):
        refused = _upload(staged, "/segments/batchUpload", batch(*outside), COPY_SEGMENT_TO_DEEP_STORE=copy)
        assert (refused.status_code, refused.json()["errorCode"]) == (403, "URI_REFUSED"), refused.text
    assert staged.segments() == set()

    answer = _upload(staged, "/segments/batchUpload", batch(*inside), COPY_SEGMENT_TO_DEEP_STORE="true")

    assert answer.status_code == 200, answer.text
    assert staged.visible() == {"a", "b"}
    wrong = _upload(staged, "/segments/batchUpload", batch(*inside), UPLOAD_TYPE="SEGMENT")
    assert wrong.status_code == 400


@pytest.mark.parametrize("name", ["../evil", "/evil", "x/../../evil"])
def test_an_archive_that_reaches_outside_is_refused(staged, tmp_path, name):
    archive = _archive({name: b"canary"})

    answer = staged.client.call(
        "POST", "/v2/segments", params={"tableName": staged.name}, files={"f": ("s", archive)}
    )

    assert answer.status_code == 400
    assert not (tmp_path / "evil").exists()


def test_custom_values_of_a_segment_are_kept(staged):
    modifier = '{"mapModifyMode": "UPDATE", "map": {"source": "lake@7"}}'

    assert (
        staged.upload("a", headers={"Pinot-SegmentZKMetadataCustomMapModifier": modifier}).status_code == 200
    )
    held = staged.client.get(f"/segments/{staged.name}/a/metadata").json()
    assert held["custom.map"] == {"source": "lake@7"}
    wrong = staged.upload("b", headers={"Pinot-SegmentZKMetadataCustomMapModifier": "["})
    assert wrong.status_code == 400


@pytest.fixture
def built(table):
    """A table, and a way to build the file of a segment in the deep store as push jobs do."""
    root = Path(table.client.running.service.controller.views.deep_store_uri) / table.name
    root.mkdir(parents=True, exist_ok=True)

    def build(segment, token="run1-0"):
        path = root / f"{segment}__{token}.parquet"
        path.write_bytes(parquet(2, snapshot=1))
        return path

    table.build = build
    return table


def _register(table, segment, uri):
    properties, creation = _described(segment, table.typed, 2)
    archive = _archive({"metadata.properties": properties, "creation.meta": creation})
    return _upload(table, "/v2/segments", archive, DOWNLOAD_URI=str(uri))


def test_a_file_in_the_deep_store_becomes_the_segment_it_is_named_after(built):
    path = built.build("a")

    assert _register(built, "a", path).status_code == 200
    assert _register(built, "a", path.as_uri()).status_code == 200, "a repeat changes nothing"

    held = built.client.get(f"/segments/{built.name}/a/metadata").json()
    assert held["segment.download.url"] == f"{built.name}/{path.name}"
    assert held["segment.size.in.bytes"] == str(path.stat().st_size)
    built.delete("a")
    again = _register(built, "a", path)
    assert (again.status_code, again.json()["errorCode"]) == (409, "FILE_DOOMED"), "it may be going right now"


def test_no_other_file_of_the_deep_store_can_be_registered(built):
    path = built.build("a")
    missing = path.with_name("b__run1-0.parquet")

    for segment, uri, status, code in (
        ("b", path, 403, "URI_REFUSED"),
        ("a", path.parent.parent / "other" / path.name, 403, "URI_REFUSED"),
        ("b", missing, 400, "FILE_MISSING"),
    ):
        answer = _register(built, segment, uri)
        assert (answer.status_code, answer.json()["errorCode"]) == (status, code), answer.text
    assert built.segments() == set()


def test_files_that_became_no_segment_are_discarded_and_others_stay(built):
    kept, left = built.build("a"), built.build("b")
    assert _register(built, "a", kept).status_code == 200
    path = f"/segments/{built.name}/discardFiles"

    answer = built.client.post(path, {"files": [str(kept), str(left)]})

    assert answer.json() == {"removed": [f"{built.name}/{left.name}"]}
    assert (kept.exists(), left.exists()) == (True, False)
    late = _register(built, "b", left)
    assert (late.status_code, late.json()["errorCode"]) == (409, "FILE_DOOMED")
    elsewhere = built.client.post(path, {"files": ["other/a__t.parquet"]})
    assert (elsewhere.status_code, elsewhere.json()["errorCode"]) == (400, "NOT_A_FILE")


@pytest.mark.parametrize("header", [b"X: " + b"x" * 4_000_000 + b"\r\n", b"X: y\r\n" * 300_000])
def test_a_part_has_small_headers(client, table, header):
    """However large and many they were, each was kept in memory, which took time as well."""
    begun = b'--BB\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n'
    form = begun + header + b"\r\nx\r\n--BB--\r\n"
    began = time.monotonic()
    answer = client.call(
        "POST", "/v2/segments", params={"tableName": table.name}, content=form,
        headers={"Content-Type": "multipart/form-data; boundary=BB"},
    )  # fmt: skip

    assert (answer.status_code, answer.json()["errorCode"]) == (400, "FORM_INVALID"), answer.text
    assert time.monotonic() - began < 5


def test_a_segment_of_other_types_than_the_schema_is_refused_and_the_table_stays_readable(table, client):
    table.upload("good")
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": ["one"], "city": ["oslo"], "snapshot": [1]}), sink)

    answer = client.call(
        "POST", "/v2/segments", params={"tableName": table.name}, files={"file": ("bad", sink.getvalue())}
    )

    assert answer.status_code == 400, answer.text
    assert answer.json()["errorCode"] == "TYPE_MISMATCH"
    for told in ("bad", "id", "string", "LONG"):
        assert told in answer.json()["error"]
    assert table.segments() == {"good"}
