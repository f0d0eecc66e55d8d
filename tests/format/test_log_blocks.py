"""Log blocks: whole ones, torn ones, and what is known of a torn one."""

import pytest

from holdfast.format.log_blocks import (
    MAGIC,
    BlockHeader,
    BlockType,
    LogBlock,
    TornBlock,
    command_block,
    decode_blocks,
    encode_block,
)


def _block(instant: str, content: bytes = b"rows") -> LogBlock:
    return LogBlock(BlockType.AVRO_DATA, content, {BlockHeader.INSTANT_TIME: instant.encode()})


FIRST, SECOND = "20260101000000000", "20260102000000000"


def test_each_block_says_where_it_begins_and_who_wrote_it():
    one = encode_block(_block(FIRST))
    blocks = list(decode_blocks(one + encode_block(_block(SECOND))))

    assert [(block.at, block.instant) for block in blocks] == [(0, FIRST), (len(one), SECOND)]


@pytest.mark.parametrize("kept", range(1, len(encode_block(_block(FIRST)))))
def test_a_block_that_breaks_off_is_torn_and_the_next_is_read(kept):
    torn = encode_block(_block(FIRST))[:kept]
    found = list(decode_blocks(torn + encode_block(_block(SECOND))))

    assert isinstance(found[0], TornBlock)
    assert found[0].at == 0
    assert found[0].instant in ("", FIRST)
    assert found[-1] == _block(SECOND)
    assert found[-1].at == kept


def test_a_torn_block_tells_its_instant_as_soon_as_its_header_is_there():
    whole = encode_block(_block(FIRST))
    ends_at = whole.index(FIRST.encode()) + len(FIRST)

    assert [torn.instant for torn in decode_blocks(whole[:ends_at])] == [FIRST]
    assert [torn.instant for torn in decode_blocks(whole[: ends_at - 1])] == [""]


def test_a_block_of_a_later_version_is_torn_and_says_so():
    later = bytearray(encode_block(_block(FIRST)))
    later[len(MAGIC) + 8 + 3] = 2

    (found,) = decode_blocks(bytes(later))

    assert isinstance(found, TornBlock)
    assert "version 2" in found.problem
    assert found.instant == FIRST


def test_a_command_names_what_it_takes_back():
    (block,) = decode_blocks(encode_block(command_block(SECOND, FIRST)))

    assert (block.kind, block.instant, block.target) == (BlockType.COMMAND, SECOND, FIRST)


def test_a_block_of_a_log_compaction_names_the_writes_it_stands_for():
    header = {
        BlockHeader.INSTANT_TIME: b"3",
        BlockHeader.COMPACTED_BLOCK_TIMES: f"{FIRST},{SECOND}".encode(),
    }

    (block,) = decode_blocks(encode_block(LogBlock(BlockType.AVRO_DATA, b"", header)))

    assert block.compacted == (FIRST, SECOND)
