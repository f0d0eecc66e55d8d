"""Names that plain pushes overwrite."""

from holdfast.push.stable_names import stable_names


def test_the_time_of_the_push_goes_and_the_number_stays():
    names = ["orders_OFFLINE_1732752000456_0", "orders_OFFLINE_1732752000456_1"]

    assert stable_names(names) == {names[0]: "orders_OFFLINE_0", names[1]: "orders_OFFLINE_1"}


def test_names_without_a_time_stay():
    assert stable_names(["orders_0", "orders_20240101"]) == {}


def test_two_segments_do_not_get_one_name():
    names = ["orders_1732752000456_0", "orders_1732752000457_0", "orders_0"]

    renamed = stable_names(names)

    assert renamed == {names[0]: "orders_0_1", names[1]: "orders_0_2"}
