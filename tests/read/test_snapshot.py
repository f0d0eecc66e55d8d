import datetime as dt

import pytest

from harness.world import memory_world
from holdfast.errors import UnknownInstant
from holdfast.read.snapshot import as_instant

TABLE = memory_world().create()


@pytest.mark.parametrize(
    "moment",
    [
        "20240707001301554",
        "2024-07-07T00:13:01.554+00:00",
        "2024-07-07 00:13:01.554",
        dt.datetime(2024, 7, 7, 0, 13, 1, 554_000, tzinfo=dt.UTC),
        dt.datetime(2024, 7, 7, 0, 13, 1, 554_999),
        dt.datetime(2024, 7, 7, 2, 13, 1, 554_000, tzinfo=dt.timezone(dt.timedelta(hours=2))),
    ],
)
def test_a_moment_can_be_given_in_many_ways(moment):
    assert as_instant(TABLE, moment) == "20240707001301554"


@pytest.mark.parametrize("moment", ["", "yesterday", "2024", "12345"])
def test_what_names_no_moment_is_refused_with_the_forms_that_do(moment):
    with pytest.raises(UnknownInstant, match="ISO"):
        as_instant(TABLE, moment)
