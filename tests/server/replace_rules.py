"""The rules of start, end, revert and delete over HTTP, as one suite for every store.

The numbers are those of the catalogue of cases; a module that runs the suite
has the fixtures `client` and `table`.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.push_client import PushedTable, make_table

UNKNOWN = "11111111-2222-4333-8444-555555555555"


def code(answer, status):
    """The code of a refusal that has this status and a whole body."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert body["code"] == status
    assert body["error"]
    assert body["requestId"] == answer.headers["x-request-id"]
    return body["errorCode"]


@pytest.fixture
def loaded(table):
    """The table with one visible segment that was uploaded without the protocol."""
    assert table.upload("a").status_code == 200
    return table


class ReplaceRules:
    # Start

    def test_13_both_lists_empty_is_400(self, table):
        assert code(table.start([], []), 400) == "NOTHING_TO_REPLACE"
        nothing = table.client.post(f"/segments/{table.name}/startReplaceSegments", {}, type="OFFLINE")
        assert nothing.status_code == 400
        assert table.entries() == {}

    def test_a_body_that_is_missing_or_not_json_is_400(self, table):
        path = f"/segments/{table.name}/startReplaceSegments"
        assert code(table.client.post(path, type="OFFLINE"), 400) == "BODY_MISSING"
        for body in (b"{", b"[]", b'{"segmentsTo": "a"}', b'{"segmentsTo": [1]}', b"\xff"):
            answer = table.client.call("POST", path, params={"type": "OFFLINE"}, content=body)
            assert code(answer, 400) == "BODY_INVALID"

    def test_a_missing_list_is_an_empty_one(self, table):
        path = f"/segments/{table.name}/startReplaceSegments"
        answer = table.client.post(path, {"segmentsFrom": None, "segmentsTo": ["b"]}, type="OFFLINE")

        entry = answer.json()["segmentLineageEntryId"]
        assert table.entries()[entry]["segmentsFrom"] == []

    def test_14_an_empty_from_with_new_names_opens_an_entry_and_shows_nothing_new(self, loaded):
        entry = loaded.started([], ["b"])

        assert loaded.entries()[entry] == {
            "segmentsFrom": [],
            "segmentsTo": ["b"],
            "state": "IN_PROGRESS",
            "timestamp": loaded.entries()[entry]["timestamp"],
            "autoCompleteLineageEntry": False,
            "actor": "anonymous",
            "leaseExpiresAt": None,
        }
        assert loaded.upload("b").status_code == 200
        assert loaded.visible() == {"a"}
        assert loaded.segments() == {"a", "b"}

    def test_15_from_must_be_known(self, loaded):
        before = loaded.records()

        assert code(loaded.start(["nobody"], ["b"]), 409) == "FROM_NOT_VISIBLE"
        assert code(loaded.start(["nobody"], ["b"], precise=False), 500) == "FROM_NOT_VISIBLE"
        assert loaded.records() == before

    def test_16_a_replaced_segment_cannot_be_replaced_again(self, loaded):
        loaded.push(["a"], ["b"])

        assert code(loaded.start(["a"], ["c"]), 409) == "FROM_NOT_VISIBLE"

    def test_17_a_hidden_target_cannot_be_replaced(self, loaded):
        loaded.started([], ["b"])
        loaded.upload("b")

        assert code(loaded.start(["b"], ["c"]), 409) == "FROM_NOT_VISIBLE"

    def test_18_a_visible_segment_cannot_be_a_target(self, loaded):
        assert code(loaded.start([], ["a"]), 409) == "TO_ALREADY_VISIBLE"

    def test_19_a_segment_cannot_replace_itself(self, loaded):
        assert code(loaded.start(["a"], ["a"]), 409) == "TO_ALREADY_VISIBLE"

    def test_20_an_open_push_of_the_same_segments_is_in_the_way(self, loaded):
        loaded.started(["a"], ["b"])

        assert code(loaded.start(["a"], ["c"]), 409) == "FROM_ALREADY_REPLACED"
        assert code(loaded.start(["a"], ["c"], precise=False), 500) == "FROM_ALREADY_REPLACED"

    def test_an_open_push_of_the_same_targets_is_in_the_way(self, loaded):
        loaded.started([], ["b"])

        assert code(loaded.start([], ["b"]), 409) == "TO_NAME_CONFLICT"

    def test_21_with_force_it_is_reverted_and_its_uploads_go(self, loaded):
        first = loaded.started(["a"], ["b"])
        loaded.upload("b")

        second = loaded.started(["a"], ["c"], forceCleanup=True)

        states = {entry: one["state"] for entry, one in loaded.entries().items()}
        assert states == {first: "REVERTED", second: "IN_PROGRESS"}
        assert loaded.segments() == {"a"}

    def test_22_with_the_same_targets_it_is_removed_and_nothing_goes(self, loaded):
        first = loaded.started(["a"], ["b"])
        loaded.upload("b")

        second = loaded.started(["a"], ["b"], forceCleanup=True)

        assert list(loaded.entries()) == [second]
        assert first != second
        assert loaded.segments() == {"a", "b"}

    def test_23_only_what_is_not_shared_goes(self, loaded):
        first = loaded.started(["a"], ["s3", "s4"])
        loaded.upload("s3")
        loaded.upload("s4")

        loaded.started(["a"], ["s4", "s5"], forceCleanup=True)

        assert loaded.entries()[first]["segmentsTo"] == ["s3"]
        assert loaded.entries()[first]["state"] == "REVERTED"
        assert loaded.segments() == {"a", "s4"}

    def test_24_two_first_loads_go_side_by_side_unless_the_table_has_consistent_push(self, table, client):
        table.started([], ["x"])
        table.started([], ["y"], forceCleanup=True)
        assert table.states() == ["IN_PROGRESS", "IN_PROGRESS"]

        consistent = make_table(client, consistent=True)
        consistent.started([], ["x"])
        assert consistent.start([], ["y"]).status_code == 409
        assert consistent.start([], ["y"], precise=False).status_code in (409, 500)

    def test_27_on_an_append_table_the_snapshot_before_stays(self, client):
        table = make_table(client, kind="APPEND")
        table.upload("a")
        table.push(["a"], ["b"])

        table.started(["b"], ["c"], forceCleanup=True)

        assert table.segments() == {"a", "b"}

    def test_29_a_name_of_a_reverted_push_is_not_used_again(self, loaded):
        entry = loaded.started(["a"], ["b"])
        assert loaded.revert(entry, force=True).status_code == 200

        assert loaded.start(["a"], ["b"]).status_code == 400
        assert loaded.start(["a"], ["b"], precise=False).status_code == 400
        assert loaded.start(["a"], ["b"], forceCleanup=True).status_code == 200

    def test_30_an_empty_to_takes_segments_away_at_the_end(self, loaded):
        entry = loaded.started(["a"], [])
        assert loaded.visible() == {"a"}

        assert loaded.end(entry).status_code == 200
        assert loaded.visible() == set()

    def test_31_tables_and_types_are_checked(self, table, client):
        unknown = PushedTable(client, "nobody")
        assert code(unknown.start([], ["b"]), 404) == "TABLE_NOT_FOUND"
        assert code(unknown.start([], ["b"], precise=False), 404) == "TABLE_NOT_FOUND"
        assert code(table.start([], ["b"], type="HYBRID"), 400) == "INVALID_TABLE_TYPE"
        assert code(table.start([], ["b"], type=""), 400) == "PARAMETER_MISSING"
        typed = PushedTable(client, table.typed)
        assert code(typed.start([], ["b"], type="REALTIME"), 403) == "TYPE_CONTRADICTION"
        assert typed.start([], ["b"], type="offline").status_code == 200

    def test_32_a_start_that_is_repeated_with_its_key_opens_one_entry(self, loaded):
        first = loaded.started(["a"], ["b"], headers={"Idempotency-Key": "job-7"})

        again = loaded.started(["a"], ["b"], headers={"Idempotency-Key": "job-7"})

        assert again == first
        assert list(loaded.entries()) == [first]

    @pytest.mark.parametrize(
        "name", ["a,b", "a/b", "..\\x", " a", "a ", "", "a:b", "a|b", 'a"b', "a<b", "a*"]
    )
    def test_10_an_odd_segment_name_is_400(self, loaded, name):
        before = loaded.records()

        assert code(loaded.start([], [name]), 400) == "INVALID_SEGMENT_NAME"
        if '"' not in name:  # The client spells it in another way.
            assert loaded.upload(name).status_code == 400
        assert loaded.records() == before

    def test_34_two_first_starts_at_once_both_stand(self, client):
        table = make_table(client)

        with ThreadPoolExecutor(4) as threads:
            entries = list(threads.map(lambda number: table.started([], [f"s{number}"]), range(4)))

        assert set(table.entries()) == set(entries)

    # End

    def test_35_the_entry_must_be_named_and_known(self, table):
        assert code(table.end(None), 400) == "PARAMETER_MISSING"
        assert code(table.end(UNKNOWN), 404) == "ENTRY_NOT_FOUND"
        assert code(table.end(UNKNOWN, precise=False), 500) == "ENTRY_NOT_FOUND"

    def test_36_what_was_not_uploaded_cannot_be_published(self, loaded):
        entry = loaded.started(["a"], ["b", "c"])
        loaded.upload("b")

        assert code(loaded.end(entry), 409) == "TO_NOT_UPLOADED"
        assert loaded.states() == ["IN_PROGRESS"]

    def test_an_end_answers_200_with_an_empty_body_and_the_epoch(self, loaded):
        entry = loaded.started(["a"], ["b"])
        loaded.upload("b")

        answer = loaded.end(entry)

        assert (answer.status_code, answer.content) == (200, b"")
        assert int(answer.headers["x-snapshot-epoch"]) > 0
        assert loaded.visible() == {"b"}

    def test_39_an_end_that_is_repeated_changes_nothing(self, loaded):
        entry = loaded.push(["a"], ["b"])
        before = loaded.records()

        assert loaded.end(entry).status_code == 200
        assert loaded.end(entry, {"segmentsTo": ["stranger"]}).status_code == 200
        assert loaded.records() == before

    def test_40_a_reverted_push_cannot_be_ended(self, loaded):
        entry = loaded.started(["a"], ["b"])
        loaded.revert(entry, force=True)

        assert code(loaded.end(entry), 409) == "ENTRY_REVERTED"

    def test_41_an_end_may_name_fewer_segments_and_the_others_are_never_seen(self, loaded):
        entry = loaded.started(["a"], ["b", "c", "d"])
        loaded.upload("b")
        loaded.upload("c")

        assert loaded.end(entry, {"segmentsTo": ["b"]}).status_code == 200
        assert loaded.entries()[entry]["segmentsTo"] == ["b"]
        assert loaded.visible() == {"b"}

    def test_42_an_end_cannot_name_a_stranger(self, loaded):
        entry = loaded.started(["a"], ["b"])
        loaded.upload("b")

        assert code(loaded.end(entry, {"segmentsTo": ["b", "x"]}), 400) == "TO_NOT_DECLARED"
        assert loaded.states() == ["IN_PROGRESS"]

    def test_45_two_ends_at_once_both_succeed(self, loaded):
        entry = loaded.started(["a"], ["b"])
        loaded.upload("b")

        with ThreadPoolExecutor(4) as threads:
            answers = list(threads.map(lambda _: loaded.end(entry).status_code, range(4)))

        assert answers == [200] * 4
        assert loaded.states() == ["COMPLETED"]

    def test_46_an_end_with_cleanup_still_honours_the_window(self, loaded):
        entry = loaded.started(["a"], ["b"])
        loaded.upload("b")

        assert loaded.end(entry, cleanup=True).status_code == 200
        assert loaded.segments() == {"a", "b"}

    def test_brokers_can_be_waited_for(self, loaded):
        entry = loaded.started(["a"], ["b"])
        loaded.upload("b")

        answer = loaded.end(entry, waitForBrokers=True, brokerTimeoutMs=20_000)

        assert answer.status_code == 200
        epoch = int(answer.headers["x-snapshot-epoch"])
        assert [applied >= epoch for applied in answer.json()["brokers"].values()] == [True]

    # Revert, rollback, redo

    def test_48_an_open_push_is_reverted_only_with_force(self, loaded):
        entry = loaded.started(["a"], ["b"])
        before = loaded.records()

        assert code(loaded.revert(entry), 409) == "REVERT_NEEDS_FORCE"
        assert code(loaded.revert(entry, precise=False), 500) == "REVERT_NEEDS_FORCE"
        assert loaded.records() == before

    def test_49_with_force_what_was_uploaded_goes(self, loaded):
        entry = loaded.started(["a"], ["b", "c"])
        loaded.upload("b")

        answer = loaded.revert(entry, force=True)

        assert (answer.status_code, answer.content) == (200, b"")
        assert loaded.states() == ["REVERTED"]
        assert loaded.segments() == {"a"}

    def test_50_the_newest_push_is_reverted_and_the_old_segments_are_seen(self, loaded):
        entry = loaded.push(["a"], ["b"])

        assert loaded.revert(entry).status_code == 200
        assert loaded.states() == ["REVERTED"]
        assert loaded.visible() == {"a"}

    @pytest.mark.parametrize("completes", [True, False])
    def test_51_a_push_that_a_later_one_builds_on_cannot_be_reverted(self, loaded, completes):
        first = loaded.push(["a"], ["b"])
        if completes:
            loaded.push(["b"], ["c"])
        else:
            loaded.started(["b"], ["c"])

        assert code(loaded.revert(first), 409) == "REVERT_CONSUMED_BY"
        assert code(loaded.revert(first, force=True), 409) == "REVERT_CONSUMED_BY"

    def test_53_a_revert_that_is_repeated_says_so(self, loaded):
        entry = loaded.push(["a"], ["b"])
        loaded.revert(entry)

        answer = loaded.revert(entry)

        assert (answer.status_code, answer.json()) == (200, {"alreadyReverted": True})

    def test_54_the_first_load_can_be_reverted_to_an_empty_table(self, table):
        entry = table.push([], ["a"])

        assert table.revert(entry).status_code == 200
        assert table.visible() == set()

    def test_55_56_a_rollback_goes_several_steps_and_a_redo_comes_back(self, client):
        table = make_table(client, batch={"retainedSnapshots": 4})
        entries = [table.push([], ["s1"])]
        for number in (2, 3, 4):
            entries.append(table.push([f"s{number - 1}"], [f"s{number}"]))

        back = client.post(f"/segments/{table.name}/rollback", steps=2)

        assert back.status_code == 200, back.text
        assert table.visible() == {"s2"}
        assert table.states()[-2:] == ["REVERTED", "REVERTED"]
        assert back.json()["segmentLineageEntryIds"] == [entries[3], entries[2]]
        again = client.post(f"/segments/{table.name}/redo", entryId=entries[3])
        assert again.status_code == 200, again.text
        assert table.visible() == {"s4"}

    @pytest.mark.parametrize("way", ["revert", "rollback", "redo"])
    def test_brokers_can_be_waited_for_on_the_way_back(self, loaded, way):
        entry = loaded.push(["a"], ["b"])
        if way == "redo":
            loaded.revert(entry)
        target = {"revert": {}, "rollback": {"steps": 1}, "redo": {"entryId": entry}}[way]
        waits = {"waitForBrokers": True, "brokerTimeoutMs": 20_000}

        if way == "revert":
            answer = loaded.revert(entry, **waits)
        else:
            answer = loaded.client.post(f"/segments/{loaded.name}/{way}", **target, **waits)

        assert answer.status_code == 200, answer.text
        epoch = int(answer.headers["x-snapshot-epoch"])
        assert answer.json()["epoch"] == epoch
        assert [applied >= epoch for applied in answer.json()["brokers"].values()] == [True]

    def test_what_would_leave_an_empty_table_can_be_refused(self, table):
        entry = table.push([], ["a"])
        before = table.records()
        rollback = f"/segments/{table.name}/rollback"

        planned = table.revert(entry, dryRun=True)
        assert planned.json()["empties"] is True
        assert code(table.revert(entry, toEmpty=False), 409) == "WOULD_BE_EMPTY"
        assert table.client.post(rollback, steps=1, dryRun=True).json()["empties"] is True
        precise = {"X-Lineage-Status": "precise"}
        answer = table.client.post(rollback, steps=1, toEmpty=False, headers=precise)
        assert code(answer, 409) == "WOULD_BE_EMPTY"
        assert table.records() == before

        second = table.push(["a"], ["b"])
        assert table.revert(second, toEmpty=False).status_code == 200
        assert table.visible() == {"a"}
        assert table.revert(entry).status_code == 200
        assert table.visible() == set()

    def test_58_after_a_rollback_a_push_replaces_what_is_seen(self, loaded):
        entry = loaded.push(["a"], ["b"])
        loaded.revert(entry)

        loaded.push(["a"], ["c"], forceCleanup=True)

        assert loaded.visible() == {"c"}

    def test_a_rollback_needs_one_target(self, loaded):
        path = f"/segments/{loaded.name}/rollback"

        assert loaded.client.post(path).status_code == 400
        assert loaded.client.post(path, steps=1, toEpoch=1).status_code == 400
        assert loaded.client.post(path, steps="many").status_code == 400

    def test_a_dry_run_says_what_would_change_and_changes_nothing(self, loaded):
        entry = loaded.started(["a"], ["b"])
        loaded.upload("b")
        before = loaded.records()

        planned = loaded.end(entry, dryRun=True).json()
        assert planned["changes"]["shown"] == ["b"]
        assert planned["changes"]["hidden"] == ["a"]
        assert loaded.revert(entry, force=True, dryRun=True).json()["changes"]["removed"] == ["b"]
        assert loaded.start(["a"], ["c"], forceCleanup=True, dryRun=True).json()["dryRun"] is True
        assert code(loaded.start(["x"], ["c"], dryRun=True), 409) == "FROM_NOT_VISIBLE"
        assert loaded.records() == before

    def test_86_two_tables_are_published_in_one_step_or_not_at_all(self, client):
        first, second = make_table(client), make_table(client)
        entries = [first.started([], ["a"]), second.started([], ["b"])]
        group = [
            {"table": one.name, "segmentLineageEntryId": entry}
            for one, entry in zip((first, second), entries, strict=True)
        ]
        first.upload("a")

        refused = client.post("/lineage/group/end", group, headers={"X-Lineage-Status": "precise"})
        assert code(refused, 409) == "TO_NOT_UPLOADED"
        assert first.states() == ["IN_PROGRESS"]
        second.upload("b")
        assert client.post("/lineage/group/end", group).status_code == 200
        assert (first.visible(), second.visible()) == ({"a"}, {"b"})
        assert client.post("/lineage/group/revert", group).status_code == 200
        assert (first.visible(), second.visible()) == (set(), set())

    # Uploads

    def test_uploading_into_a_reverted_push_is_409(self, loaded):
        entry = loaded.started(["a"], ["b"])
        loaded.revert(entry, force=True)

        assert code(loaded.upload("b"), 409) == "LINEAGE_ENTRY_REVERTED"

    def test_an_upload_must_name_an_existing_table(self, client):
        assert PushedTable(client, "nobody").upload("a").status_code == 404
        assert client.call("POST", "/v2/segments", files={"file": ("a", b"x")}).status_code == 400

    def test_an_upload_that_is_no_segment_is_400(self, table):
        for content in (b"", b"PAR1", b"text", b"\x1f\x8bbroken"):
            answer = table.client.call(
                "POST", "/v2/segments", params={"tableName": table.name}, files={"file": ("s", content)}
            )
            assert answer.status_code == 400, (content, answer.text)
        assert table.segments() == set()

    def test_refresh_only_and_if_match_are_preconditions(self, table):
        assert table.upload("a", headers={"REFRESH_ONLY": "true"}).status_code == 410
        assert table.upload("a").status_code == 200
        assert table.upload("a", rows=3, headers={"If-Match": "12345"}).status_code == 412

    # Delete

    def test_59_60_61_what_a_live_push_needs_cannot_be_deleted(self, loaded):
        entry = loaded.started(["a"], ["b"])
        loaded.upload("b")
        loaded.upload("free")
        before = loaded.records()

        assert code(loaded.delete("a"), 409) == "SEGMENT_LOCKED"
        assert code(loaded.delete("b"), 409) == "SEGMENT_LOCKED"
        assert code(loaded.delete("b", precise=False), 500) == "SEGMENT_LOCKED"
        mixed = loaded.delete("free", "a")
        assert code(mixed, 409) == "SEGMENT_LOCKED"
        assert "free" not in mixed.json()["error"]
        assert loaded.records() == before
        loaded.end(entry)
        assert code(loaded.delete("a"), 409) == "SEGMENT_LOCKED"

    def test_62_63_what_is_seen_and_what_was_reverted_may_be_deleted(self, loaded):
        entry = loaded.push(["a"], ["b"])
        assert loaded.delete("b").status_code == 200
        other = loaded.push([], ["c"])
        loaded.revert(other)
        assert loaded.delete("c").status_code in (200, 404)
        assert loaded.segments() == {"a"}
        assert entry in loaded.entries()

    def test_one_segment_is_deleted_with_pinots_answer(self, loaded):
        answer = loaded.client.delete(f"/segments/{loaded.name}/a")

        assert (answer.status_code, answer.json()) == (200, {"status": "Segment deleted"})
        assert loaded.segments() == set()

    def test_66_with_its_table_the_record_of_an_open_push_goes(self, loaded):
        entry = loaded.started(["a"], ["b"])

        assert loaded.client.delete(f"/tables/{loaded.name}").status_code == 200
        assert code(loaded.end(entry), 404) == "TABLE_NOT_FOUND"
        assert loaded.client.delete(f"/tables/{loaded.name}").status_code == 404
        assert not [path for path in loaded.records() if "AUDIT" not in path and "PUSH_STATE" not in path]

    # Listing

    def test_lineage_is_listed_oldest_first_also_when_there_is_none(self, loaded, client):
        assert loaded.entries() == {}
        first = loaded.push(["a"], ["b"])
        second = loaded.started(["b"], ["c"])

        listed = client.get(f"/segments/{loaded.name}/lineage", type="OFFLINE").json()

        assert list(listed["lineageEntries"]) == [first, second]
        assert listed["tableNameWithType"] == loaded.typed
        assert client.get(f"/segments/{loaded.name}/lineage").status_code == 400
        assert client.get("/segments/nobody/lineage", type="OFFLINE").status_code == 404

    def test_snapshots_and_the_audit_tell_the_story(self, loaded, client):
        entry = loaded.push(["a"], ["b"])
        loaded.revert(entry)

        found = client.get(f"/segments/{loaded.name}/snapshots").json()["snapshots"]
        assert [one["segments"] for one in found] == [["b"], ["a"]]
        assert [one["isCurrent"] for one in found] == [False, True]
        records = client.get(f"/segments/{loaded.name}/lineage/audit").json()["records"]
        assert {one["actor"] for one in records} == {"anonymous"}
        assert len(records) >= 5
