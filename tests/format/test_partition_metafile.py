import datetime as dt

import pytest

from holdfast.format.malformed import Malformed
from holdfast.format.partition_metafile import (
    PartitionMetafile,
    decode_partition_metafile,
    encode_partition_metafile,
)
from holdfast.model.instant import InstantTime

MOMENT = dt.datetime(2024, 7, 7, 5, 13, 1, tzinfo=dt.UTC)
METAFILE = PartitionMetafile(InstantTime("20240707001301554"), 1)


def test_a_metafile_reads_like_one_of_hudi():
    content = encode_partition_metafile(METAFILE, moment=MOMENT)

    assert content == (
        b"#partition metadata\n#Sun Jul 07 05:13:01 UTC 2024\n"
        b"commitTime=20240707001301554\npartitionDepth=1\n"
    )


def test_a_metafile_is_read_back():
    assert decode_partition_metafile(encode_partition_metafile(METAFILE, moment=MOMENT)) == METAFILE


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"commitTime=20240707001301554\n",
        b"partitionDepth=1\n",
        b"commitTime=\npartitionDepth=1\n",
        b"commitTime=yesterday\npartitionDepth=1\n",
        b"commitTime=20240707001301554\npartitionDepth=-1\n",
        b"commitTime=20240707001301554\npartitionDepth=" + b"1" * 5000,
        b"commitTime=20240707001301554\npartitionDepth=\\u0661",
    ],
)
def test_a_metafile_without_both_facts_is_refused(content):
    with pytest.raises(Malformed):
        decode_partition_metafile(content)


def test_a_damaged_metafile_is_read_or_refused(damaged):
    refused = 0

    for content in damaged(encode_partition_metafile(METAFILE, moment=MOMENT)):
        try:
            decode_partition_metafile(content)
        except Malformed:
            refused += 1

    assert refused > 100


def test_metafiles_of_hudi_survive_a_round_trip(hudi_table):
    files = list(hudi_table.rglob(".hoodie_partition_metadata"))

    for file in files:
        original = file.read_bytes()

        metafile = decode_partition_metafile(original)
        written = encode_partition_metafile(metafile, moment=MOMENT)

        assert metafile.depth == len(file.parent.relative_to(hudi_table).parts)
        assert decode_partition_metafile(written) == metafile
        assert written.splitlines()[2:] == original.splitlines()[2:]

    assert bool(files) == (not hudi_table.name.endswith("_empty"))
