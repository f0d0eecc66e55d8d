"""Archives of segments: what Pinot's tools send is read, what attackers send is refused."""

import gzip
import io
import random
import tarfile
import tracemalloc

import pytest

from holdfast.errors import InvalidRequest
from holdfast.format.segments import (
    ColumnDescription,
    Creation,
    SegmentDescription,
    encode_creation,
    encode_description,
)
from holdfast.push.uploads.archives import (
    ArchiveLimits,
    pack_segment,
    segment_crc,
    unpack_batch,
    unpack_segment,
)

DESCRIPTION = SegmentDescription(
    name="s1",
    table="orders",
    docs=3,
    columns=(ColumnDescription(name="city", type="STRING", kind="DIMENSION"),),
)
PROPERTIES = encode_description(DESCRIPTION)
CREATION = encode_creation(Creation(7, 8))
COLUMNS = b"PAR1" + random.Random(1).randbytes(5000) + b"PAR1"
GOOD = {
    "s1/v3/metadata.properties": PROPERTIES,
    "s1/v3/creation.meta": CREATION,
    "s1/v3/columns.parquet": COLUMNS,
}


def member(name, content=b"", **facts):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for fact, value in facts.items():
        setattr(info, fact, value)
    return info, content


def archive(*members, form=tarfile.PAX_FORMAT, files=GOOD):
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=form) as tar:
        for info, content in [*members, *(member(name, content) for name, content in files.items())]:
            tar.addfile(info, io.BytesIO(content))
    return io.BytesIO(gzip.compress(plain.getvalue()))


@pytest.fixture
def target():
    return io.BytesIO()


@pytest.fixture(autouse=True)
def nothing_outside(tmp_path, monkeypatch):
    """Whatever an archive holds, no file appears."""
    monkeypatch.chdir(tmp_path)
    yield
    assert list(tmp_path.rglob("*")) == []


def refused(source, target, match, **limits):
    with pytest.raises(InvalidRequest, match=match) as refusal:
        unpack_segment(source, target, limits=ArchiveLimits(**limits))
    assert refusal.value.facts["code"] == "INVALID_ARCHIVE"


def test_what_is_packed_is_unpacked(target):
    packed = io.BytesIO()
    pack_segment(packed, DESCRIPTION, Creation(7, 8), io.BytesIO(COLUMNS), size_bytes=len(COLUMNS))
    packed.seek(0)

    unpacked = unpack_segment(packed, target)

    assert unpacked.description == DESCRIPTION
    assert unpacked.creation == Creation(7, 8)
    assert unpacked.has_columns
    assert not unpacked.is_opaque
    assert target.getvalue() == COLUMNS
    with tarfile.open(fileobj=io.BytesIO(packed.getvalue())) as tar:
        assert tar.getnames() == [
            "s1",
            "s1/v3",
            "s1/v3/metadata.properties",
            "s1/v3/creation.meta",
            "s1/v3/columns.parquet",
        ]


def test_equal_segments_pack_to_equal_bytes():
    packed = [io.BytesIO(), io.BytesIO()]
    for each in packed:
        pack_segment(each, DESCRIPTION, Creation(7, 8), io.BytesIO(COLUMNS), size_bytes=len(COLUMNS))

    assert packed[0].getvalue() == packed[1].getvalue()


def test_the_checksum_covers_rows_and_properties():
    crc = segment_crc(DESCRIPTION, io.BytesIO(COLUMNS))

    assert crc == segment_crc(DESCRIPTION, io.BytesIO(COLUMNS))
    assert crc != segment_crc(DESCRIPTION, io.BytesIO(COLUMNS[:-1]))
    assert 0 <= crc < 2**32


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize("prefix", ["s1/v3/", "s1/", "./s1/v3/", ""])
def test_every_usual_layout_and_form_of_tar_is_read(form, prefix, target):
    files = {name.replace("s1/v3/", prefix): content for name, content in GOOD.items()}

    unpacked = unpack_segment(archive(form=form, files=files), target)

    assert unpacked.description.name == "s1"
    assert target.getvalue() == COLUMNS


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_names_are_read(form, target):
    name = "s" * 150
    description = SegmentDescription(name=name, table="orders", docs=1)
    files = {
        f"{name}/v3/metadata.properties": encode_description(description),
        f"{name}/v3/creation.meta": CREATION,
        f"{name}/v3/columns.parquet": COLUMNS,
    }

    assert unpack_segment(archive(form=form, files=files), target).description == description


def test_an_archive_of_metadata_has_no_rows(target):
    files = {"metadata.properties": PROPERTIES, "creation.meta": CREATION}

    unpacked = unpack_segment(archive(files=files), target)

    assert not unpacked.has_columns
    assert not unpacked.is_opaque
    assert not target.getvalue()


def test_an_archive_that_pinot_built_is_opaque(target):
    files = {**GOOD, "s1/v3/columns.psf": b"x" * 100, "s1/v3/index_map": b"y"}
    del files["s1/v3/columns.parquet"]

    unpacked = unpack_segment(archive(files=files), target)

    assert unpacked.is_opaque
    assert unpacked.expanded_bytes == sum(map(len, files.values()))


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../x", "s1/../../x", "s1//x", "a/./b", "s1/v3/deep/er", "..", "s1\\..\\x", "/", "//x"],
)
@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_j122_names_that_lead_elsewhere_are_refused(name, form, target):
    refused(archive(member(name, b"x"), form=form), target, "leads elsewhere|too deep")


def test_j122_an_absolute_folder_is_refused(target):
    refused(archive(member("/tmp", type=tarfile.DIRTYPE)), target, "leads elsewhere")


def test_j122_a_long_name_that_leads_elsewhere_is_refused(target):
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        refused(archive(member("../" + "x" * 150, b"x"), form=form), target, "leads elsewhere")


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, b"S", b"7", b"Z"],
)
def test_j122_links_devices_and_oddities_are_refused(kind, target):
    info, _ = member("s1/link", type=kind, linkname="/etc/passwd")

    refused(archive((info, b"")), target, "something else than files|damaged")


def test_j122_a_link_under_the_name_that_is_wanted_is_refused(target):
    info, _ = member("s1/v3/columns.parquet", type=tarfile.SYMTYPE, linkname="/etc/passwd")

    refused(archive((info, b"")), target, "something else than files")


@pytest.mark.parametrize("name", GOOD)
def test_a_file_that_comes_twice_is_refused(name, target):
    refused(archive(member(name, GOOD[name])), target, "twice")


@pytest.mark.parametrize("name", ["s1/v3/metadata.properties", "s1/v3/creation.meta"])
def test_an_archive_that_lacks_a_file_is_refused(name, target):
    files = {each: content for each, content in GOOD.items() if each != name}

    refused(archive(files=files), target, "lacks a file")


def test_an_archive_of_two_folders_is_refused(target):
    refused(archive(member("s2/x", b"x")), target, "more than one folder")


def test_an_archive_named_after_another_segment_is_refused(target):
    files = {name.replace("s1", "s2"): content for name, content in GOOD.items()}

    refused(archive(files=files), target, "another segment")


@pytest.mark.parametrize("name", ["../s1", "a,b", "a/b", ""])
def test_a_segment_whose_name_is_none_is_refused(name, target):
    description = encode_description(SegmentDescription(name=name, table="t", docs=1))

    with pytest.raises(InvalidRequest):
        unpack_segment(archive(files={"metadata.properties": description, "creation.meta": CREATION}), target)


@pytest.mark.parametrize(("file", "content"), [("metadata.properties", b"x=1"), ("creation.meta", b"123")])
def test_metadata_that_cannot_be_read_is_refused(file, content, target):
    files = {**GOOD, f"s1/v3/{file}": content}

    refused(archive(files=files), target, "cannot be read")


def test_j122_a_bomb_is_refused_by_its_ratio_before_it_unfolds(target):
    bomb = archive(member("s1/v3/filler", b"\0" * (64 << 20)))
    assert len(bomb.getvalue()) < 100_000

    refused(bomb, target, "expands too far")


def test_j122_a_bomb_in_the_rows_leaves_no_file(target):
    refused(archive(files={**GOOD, "s1/v3/columns.parquet": b"\0" * (64 << 20)}), target, "expands too far")


def test_an_archive_with_too_many_bytes_is_refused(target):
    noise = random.Random(2).randbytes(200_000)

    refused(archive(member("s1/noise", noise)), target, "too many bytes", expanded_bytes=100_000)


def test_a_batch_is_in_memory_and_so_has_a_limit_of_its_own():
    noise = random.Random(2).randbytes(200_000)
    limits = ArchiveLimits(batch_bytes=100_000)

    with pytest.raises(InvalidRequest, match="too many bytes"):
        unpack_batch(archive(member("noise", noise)), limits=limits)


def test_an_archive_with_too_many_entries_is_refused(target):
    many = [member(f"s1/f{number}") for number in range(50)]

    refused(archive(*many), target, "too many entries", entries=40)


def test_metadata_as_large_as_a_table_is_refused(target):
    noise = random.Random(3).randbytes(17 << 20)

    refused(archive(files={**GOOD, "s1/v3/metadata.properties": noise}), target, "metadata file is too large")


@pytest.mark.parametrize("kind", [b"x", b"L", b"g"])
def test_a_huge_extended_header_takes_no_memory(kind, target):
    info, _ = member("header", type=kind)
    info.size = 512 << 20
    plain = info.tobuf(tarfile.USTAR_FORMAT) + b"a" * 100_000
    source = io.BytesIO(gzip.compress(plain))
    tracemalloc.start()

    refused(source, target, "extended header of the archive is too large")

    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    "headers",
    [
        {"path": "../x"},
        {"path": "/x"},
        {"size": "-1"},
        {"size": "999999999999999"},
        {"size": "x"},
        {"GNU.sparse.major": "1"},
    ],
)
def test_extended_headers_do_not_get_past_the_checks(headers, target):
    info, content = member("s1/file", b"x")
    info.pax_headers = headers

    refused(archive((info, content)), target, "leads elsewhere|damaged|cut off|sparse")


def test_a_name_for_all_files_is_refused(target):
    plain = io.BytesIO()
    with tarfile.open(
        fileobj=plain, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"path": "../evil"}
    ) as tar:
        info, content = member("s1/file", b"x")
        tar.addfile(info, io.BytesIO(content))

    refused(io.BytesIO(gzip.compress(plain.getvalue())), target, "one name or size")


def test_a_name_that_is_not_utf_8_is_refused(target):
    info, content = member("s1/caf\udce9", b"x")

    refused(archive((info, content), form=tarfile.GNU_FORMAT), target, "not UTF-8")


@pytest.mark.parametrize(
    "content",
    [b"", b"PK\3\4zip", b"\x1f\x8b", gzip.compress(b""), gzip.compress(b"x" * 600)],
    ids=["nothing", "zip", "gzip's magic alone", "nothing in gzip", "no tar in gzip"],
)
def test_what_is_no_archive_is_refused(content, target):
    refused(io.BytesIO(content), target, "not gzip|not a tar|cut off|damaged")


def test_a_header_with_a_wrong_checksum_is_refused(target):
    plain = bytearray(gzip.decompress(archive().getvalue()))
    plain[0:2] = b"S1"

    refused(io.BytesIO(gzip.compress(bytes(plain))), target, "not a tar")


def test_every_truncation_is_refused(target):
    whole = archive().getvalue()
    for size in range(0, len(whole) - 1, 97):
        refused(io.BytesIO(whole[:size]), target, "archive")


def test_a_changed_byte_is_never_taken_for_the_segment(damaged, target):
    """gzip's checksum covers everything but its own header."""
    files = {**GOOD, "s1/v3/columns.parquet": b"PAR1rowsPAR1"}
    whole = archive(files=files).getvalue()
    expected = unpack_segment(io.BytesIO(whole), target)
    for damage in damaged(whole):
        columns = io.BytesIO()
        try:
            unpacked = unpack_segment(io.BytesIO(damage), columns)
        except InvalidRequest:
            continue
        assert unpacked == expected
        assert columns.getvalue() == b"PAR1rowsPAR1"


def batch(**changes):
    files = {
        "s1.metadata.properties": PROPERTIES,
        "s1.creation.meta": CREATION,
        "s2.metadata.properties": encode_description(SegmentDescription(name="s2", table="t", docs=5)),
        "s2.creation.meta": encode_creation(Creation(1, 2)),
        "all_segments_metadata": b"s1\ns3://b/s1\ns2\ns3://b/s2\n",
        **changes,
    }
    return archive(files={name: content for name, content in files.items() if content is not None})


def test_a_batch_lists_segments_and_where_they_are():
    found = unpack_batch(batch())

    assert list(found) == ["s1", "s2"]
    assert found["s1"].description == DESCRIPTION
    assert found["s1"].creation == Creation(7, 8)
    assert (found["s2"].uri, found["s2"].description.docs) == ("s3://b/s2", 5)


@pytest.mark.parametrize(
    "changes",
    [
        {"all_segments_metadata": None},
        {"all_segments_metadata": b""},
        {"all_segments_metadata": b"s1\n"},
        {"all_segments_metadata": b"s1\nu\ns1\nu\n"},
        {"all_segments_metadata": b"s3\nu\n"},
        {"all_segments_metadata": b"../x\nu\n"},
        {"all_segments_metadata": b"\xff\nu\n"},
        {"s1.creation.meta": None},
        {"s1.metadata.properties": encode_description(SegmentDescription(name="s9", table="t", docs=5))},
        {"s1.metadata.properties": b"x"},
    ],
    ids=str,
)
def test_a_batch_that_contradicts_itself_is_refused(changes):
    with pytest.raises(InvalidRequest):
        unpack_batch(batch(**changes))
