"""Records that stay the same are decoded once, and those of tables that are gone are forgotten."""

import gc

from holdfast.format.znode import ZNRecord, encode_record
from holdfast.push.decoded import DecodedRecords, Placement
from holdfast.push.metastore.port import Versioned


def placed(name, state="ONLINE"):
    record = ZNRecord(id=name, maps={f"{name}-segment": {"Server_localhost_8098": state}})
    return Versioned(encode_record(record), 1)


def test_what_is_offline_is_worked_out_once_for_the_same_records_and_anew_for_others():
    records = DecodedRecords()
    ideal = records.placement("/ideal", placed("orders"))
    view = records.placement("/view", placed("orders", "OFFLINE"))

    found = records.offline(ideal, view)

    assert found == {"orders-segment"}
    assert records.offline(ideal, view) is found
    assert records.offline(ideal, ideal) == frozenset()


def test_tables_that_come_and_go_do_not_pile_up():
    records, before = DecodedRecords(), _placements()
    for number in range(3000):
        ideal = records.placement("/ideal", placed(f"table{number}"))
        records.offline(ideal, ideal)

    assert _placements() - before < 1500


def _placements():
    return sum(isinstance(one, Placement) for one in gc.get_objects())
