"""Archived timelines: what goes in comes out, and what others wrote is read."""

import datetime as dt
import json
import struct

import pytest

from harness.cleaning import clean
from harness.world import memory_world, rows, table_of
from holdfast.config.cleaning import CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.format.archive import ArchivedFile, decode_archive, encode_archive
from holdfast.format.avro import compile_schema, encode_record
from holdfast.format.cleans import decode_clean_metadata, decode_clean_plan
from holdfast.format.commits import decode_commit
from holdfast.format.log_blocks import MAGIC, BlockHeader, BlockType, LogBlock, decode_blocks, encode_block
from holdfast.format.malformed import Malformed
from holdfast.format.rollbacks import decode_rollback_metadata
from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import META_FOLDER, parse_instant_file
from holdfast.services.rollback.undo import undo

T = InstantTime("20240707001301554")
COMMIT = b'{"partitionToWriteStats":{},"compacted":false,"extraMetadata":{},"operationType":"UPSERT"}'


def _history():
    """Files of a timeline with commits, a replacecommit, a clean and a rollback."""
    world = memory_world()
    world.create()
    by_hand = WriteSettings(clean=CleanSettings(automatic=False))
    for number in range(3):
        world.write("upsert", table_of([("a", "paris", float(number)), ("b", "rome", 1.0)]), by_hand)
    world.write("insert_overwrite", rows("c", city="paris"), by_hand)
    clean(world.open(), CleanSettings(commits_retained=1))
    world.write("upsert", rows("d", city="oslo"), by_hand)
    undo(world.open())
    found = []
    for file in world.store.folder(META_FOLDER).files:
        parsed_name = parse_instant_file(file.path.rpartition("/")[2])
        if parsed_name is not None:
            moment = dt.datetime.fromtimestamp(file.modified_ms / 1000, dt.UTC)
            found.append(ArchivedFile(*parsed_name, world.store.read(file.path), moment))
    return found


@pytest.mark.parametrize("per_block", [1, 4, 100])
def test_what_is_archived_can_be_read_again(per_block):
    files = _history()

    archive = decode_archive(encode_archive(files, per_block=per_block))

    assert archive.is_whole
    assert {file.action for file in files} == {
        Action.COMMIT,
        Action.REPLACECOMMIT,
        Action.CLEAN,
        Action.ROLLBACK,
    }
    assert len(archive.files) == len(files)
    for before, after in zip(files, archive.files, strict=True):
        assert (before.time, before.action, before.state) == (after.time, after.action, after.state)
        assert before.changed_at == after.changed_at
        decode = {
            (Action.CLEAN, State.COMPLETED): decode_clean_metadata,
            (Action.CLEAN, State.REQUESTED): decode_clean_plan,
            (Action.ROLLBACK, State.COMPLETED): decode_rollback_metadata,
            (Action.COMMIT, State.COMPLETED): decode_commit,
            (Action.REPLACECOMMIT, State.COMPLETED): decode_commit,
        }.get((before.action, before.state))
        if decode is not None:
            assert decode(after.content) == decode(before.content)


def test_each_block_has_its_schema_and_so_many_records():
    blocks = list(decode_blocks(encode_archive(_history()[:5], per_block=2)))

    assert [struct.unpack_from(">ii", block.content) for block in blocks] == [(3, 2), (3, 2), (3, 1)]
    for block in blocks:
        assert list(block.header) == [BlockHeader.SCHEMA]
        assert json.loads(block.header[BlockHeader.SCHEMA])["name"] == "HoodieArchivedMetaEntry"


def test_the_frame_is_that_of_the_rollback_block_which_hudi_wrote():
    """The whole file of a command block that Apache Hudi wrote, 105 bytes."""
    written = bytes.fromhex(
        "23485544492300000000000000 5b 00000001 00000000 00000003 00000000 00000011".replace(" ", "")
    )
    written += b"20250126040936578" + bytes.fromhex("0000000300000001") + b"0"
    written += bytes.fromhex("0000000100000011") + b"20250126040826878"
    written += bytes.fromhex("0000000000000000000000000000000000000061")

    block = LogBlock(BlockType.COMMAND, b"", {0: b"20250126040936578", 3: b"0", 1: b"20250126040826878"})

    assert len(written) == 105
    assert encode_block(block) == written
    assert list(decode_blocks(written)) == [block]


def test_equal_files_give_equal_bytes():
    assert encode_archive(_history(), per_block=10) == encode_archive(_history(), per_block=10)


def _entry_of_the_first_releases(**values):
    """A block as releases wrote it that knew neither states nor replacecommits."""
    schema = {
        "type": "record",
        "name": "HoodieArchivedMetaEntry",
        "namespace": "org.apache.hudi.avro.model",
        "fields": [
            {
                "name": "hoodieCommitMetadata",
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "HoodieCommitMetadata",
                        "fields": [
                            {"name": "extraMetadata", "type": ["null", {"type": "map", "values": "string"}]}
                        ],
                    },
                ],
                "default": None,
            },
            {"name": "commitTime", "type": ["null", "string"]},
            {"name": "actionType", "type": ["null", "string"]},
        ],
    }
    record = encode_record(compile_schema(schema), values)
    content = struct.pack(">iii", 1, 1, len(record)) + record
    return encode_block(
        LogBlock(BlockType.AVRO_DATA, content, {2: json.dumps(schema).encode(), 0: T.encode()})
    )


def test_entries_without_a_state_are_completed_ones():
    block = _entry_of_the_first_releases(
        commitTime=T, actionType="commit", hoodieCommitMetadata={"extraMetadata": {"schema": "s"}}
    )

    archive = decode_archive(block)

    assert archive.is_whole
    (file,) = archive.files
    assert (file.time, file.action, file.state, file.changed_at) == (T, Action.COMMIT, State.COMPLETED, None)
    assert decode_commit(file.content).extra_metadata == {"schema": "s"}


def test_kinds_of_entries_that_came_later_are_passed_over():
    archive = decode_archive(_entry_of_the_first_releases(commitTime=T, actionType="clustering"))

    assert archive.files == ()
    assert archive.is_whole


def test_what_is_cut_off_is_left_out_and_said_to_be_missing():
    content = encode_archive(_history(), per_block=3)
    second = content.index(MAGIC, 1)

    torn = decode_archive(content[: second + 40])
    holed = decode_archive(content[:20] + b"\0" * 8 + content[28:])

    assert (len(torn.files), torn.is_whole) == (3, False)
    assert (len(holed.files), holed.is_whole) == (len(_history()) - 3, False)


@pytest.mark.parametrize("garbage", [b"x", MAGIC, MAGIC + b"\xff" * 40, b"\0" * 100])
def test_garbage_is_no_archive(garbage):
    archive = decode_archive(garbage)

    assert archive.files == ()
    assert not archive.is_whole


def test_every_byte_may_be_wrong():
    content = encode_archive(_history()[:3], per_block=10)
    step = max(1, len(content) // 300)

    for at in range(0, len(content), step):
        decode_archive(content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])


def test_a_commit_that_is_none_is_not_archived():
    with pytest.raises(Malformed, match="not commit metadata"):
        encode_archive([ArchivedFile(T, Action.COMMIT, State.COMPLETED, b"[]")], per_block=1)
    wrong = COMMIT.replace(b'"UPSERT"', b"7")
    with pytest.raises(Malformed, match="does not fit"):
        encode_archive([ArchivedFile(T, Action.COMMIT, State.COMPLETED, wrong)], per_block=1)


def test_extra_metadata_that_is_null_is_dropped():
    content = COMMIT.replace(b'"extraMetadata":{}', b'"extraMetadata":{"a":null,"b":"c"}')

    (file,) = decode_archive(
        encode_archive([ArchivedFile(T, Action.COMMIT, State.COMPLETED, content)], per_block=1)
    ).files

    assert decode_commit(file.content).extra_metadata == {"b": "c"}
