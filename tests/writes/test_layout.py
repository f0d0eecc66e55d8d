"""Where new rows go."""

import pytest

from holdfast.config.choices import IndexType
from holdfast.config.write import WriteSettings
from holdfast.errors import InvalidOption, TableDamaged
from holdfast.model.slices import FileSlice
from holdfast.writes.layout import Room, check_index, insertion_targets, rows_taken

SETTINGS = WriteSettings(max_file_bytes=10_000, small_file_bytes=5_000, record_bytes=100)
BUCKETS = WriteSettings(index_type=IndexType.BUCKET, bucket_count=4)


def group(path, size=None, file_id="a0000000-x-0"):
    return FileSlice("p", file_id, "20240101000000000", path, size)


def taken(rooms, new_rows, *, row_bytes=100.0, settings=SETTINGS):
    return rows_taken(rooms, new_rows, settings, row_bytes=row_bytes)


def test_file_groups_that_are_written_anyway_take_rows_before_smaller_ones():
    rooms = [Room(1_000, 10, is_rewritten=False), Room(4_000, 40, is_rewritten=True)]

    assert taken(rooms, 50) == [0, 50]


def test_the_smallest_file_group_is_filled_before_the_next():
    rooms = [Room(4_000, 40, is_rewritten=False), Room(1_000, 10, is_rewritten=False)]

    assert taken(rooms, 100) == [10, 90]


def test_rows_beyond_all_room_are_left_for_new_file_groups():
    assert taken([Room(4_000, 40, is_rewritten=True)], 1_000) == [60]


@pytest.mark.parametrize("size", [5_000, 20_000, None], ids=["at the limit", "full", "of unknown size"])
def test_a_file_group_that_is_not_small_takes_nothing_even_if_it_is_written_anyway(size):
    assert taken([Room(size, 40, is_rewritten=True)], 10) == [0]


def test_a_file_of_some_size_tells_how_long_its_rows_are():
    settings = WriteSettings(max_file_bytes=100_000_000, small_file_bytes=90_000_000)

    assert taken([Room(50_000_000, 50_000, is_rewritten=True)], 10**9, settings=settings) == [50_000]


def test_an_empty_file_group_takes_rows_as_long_as_said():
    assert taken([Room(1_000, 0, is_rewritten=False)], 1_000) == [90]


def test_a_limit_of_zero_leaves_all_rows_to_new_file_groups():
    settings = WriteSettings(max_file_bytes=10_000, small_file_bytes=0)

    assert taken([Room(1, 1, is_rewritten=True)], 10, settings=settings) == [0]


def test_new_rows_go_to_the_smallest_files_and_then_to_new_ones():
    groups = [group("large", 9_000), group("small", 4_000), group("smaller", 100), group("unknown")]

    assert insertion_targets(groups, 250, SETTINGS) == ["smaller", "small", ""]
    assert insertion_targets(groups, 1, SETTINGS) == ["smaller"]
    assert insertion_targets([], 0, SETTINGS) == [""]


def test_a_table_of_buckets_takes_no_other_index():
    buckets = {"p": (group("f", file_id="00000003-x-0"), group("g", file_id="00000000-y-0"))}

    check_index(buckets, BUCKETS)
    with pytest.raises(InvalidOption, match="buckets"):
        check_index(buckets, WriteSettings())


def test_a_bucket_beyond_the_number_of_buckets_is_refused():
    with pytest.raises(InvalidOption, match="not made with this many buckets"):
        check_index({"p": (group("f", file_id="00000004-x-0"),)}, BUCKETS)


def test_a_bucket_that_is_there_twice_is_damage():
    twice = {"p": (group("f", file_id="00000003-x-0"), group("g", file_id="00000003-y-0"))}

    with pytest.raises(TableDamaged, match="two file groups"):
        check_index(twice, BUCKETS)
