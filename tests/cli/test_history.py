"""`timeline`, `commits`, `commit` and `fsview`."""

import json

import holdfast


def _columns(text):
    """The rows of a printed table, by header; columns are found by the dashes under the header."""
    header, dashes, *lines = text.splitlines()
    spans, at = [], 0
    for dash in dashes.split("  "):
        spans.append((at, at + len(dash)))
        at += len(dash) + 2
    names = [header[a:b].strip() for a, b in spans]
    return [dict(zip(names, [line[a:b].strip() for a, b in spans], strict=True)) for line in lines]


def test_the_timeline_is_shown_newest_first(run, table, times):
    rows = _columns(run("timeline", "show", table).stdout)

    assert [row["Instant"] for row in rows] == times[::-1]
    assert [row["No."] for row in rows] == ["0", "1"]
    assert {(row["Action"], row["State"], row["Notes"]) for row in rows} == {("commit", "COMPLETED", "")}
    assert all(row["Completed Time (UTC)"] for row in rows)


def test_the_timeline_as_a_document_can_be_limited(run, table, times):
    document = json.loads(run("timeline", "show", table, "--limit", 1, "--json").stdout)

    completed_at = document["instants"][0].pop("completed_at")
    assert document == {
        "instants": [
            {
                "instant": times[1],
                "action": "commit",
                "state": "COMPLETED",
                "rolls_back": [],
                "rolled_back_by": None,
                "is_unreadable": False,
                "is_archived": False,
            }
        ]
    }
    assert completed_at.endswith("Z")


def test_the_timeline_says_what_a_rollback_removed(run, table, failed_write):
    [report] = holdfast.open_table(str(table)).roll_back_failed_writes()

    rows = _columns(run("timeline", "show", table).stdout)

    assert (rows[0]["Instant"], rows[0]["Action"]) == (report.instant, "rollback")
    assert rows[0]["Notes"] == f"rolls back {failed_write}"


def test_the_timeline_links_a_running_rollback_and_its_write(run, table, failed_write):
    [report] = holdfast.open_table(str(table)).roll_back_failed_writes()
    meta = table / ".hoodie"
    (meta / f"{report.instant}.rollback").unlink()
    (meta / f"{failed_write}.commit.requested").touch()
    (meta / f"{failed_write}.inflight").touch()

    rollback, write = json.loads(run("timeline", "show", table, "--json", "--limit", 2).stdout)["instants"]

    assert (rollback["state"], rollback["rolls_back"]) == ("INFLIGHT", [failed_write])
    assert (write["state"], write["rolled_back_by"]) == ("INFLIGHT", report.instant)


def test_the_timeline_of_a_table_with_a_broken_rollback_is_still_shown(run, table, failed_write):
    [report] = holdfast.open_table(str(table)).roll_back_failed_writes()
    (table / ".hoodie" / f"{report.instant}.rollback").write_bytes(b"nonsense")

    rows = _columns(run("timeline", "show", table).stdout)

    assert rows[0]["Notes"] == "cannot be read"


def test_an_empty_timeline_is_said_in_words(run, empty_table):
    assert run("timeline", "show", empty_table).stdout == "no instants yet\n"
    assert json.loads(run("timeline", "show", empty_table, "--json").stdout) == {"instants": []}


def test_commits_are_shown_in_the_columns_of_hudi(run, table, times):
    newest, oldest = _columns(run("commits", "show", table).stdout)

    size = newest.pop("Total Bytes Written")
    assert newest == {
        "CommitTime": times[1],
        "Total Files Added": "2",
        "Total Files Updated": "0",
        "Total Partitions Written": "2",
        "Total Records Written": "6",
        "Total Update Records Written": "0",
        "Total Errors": "0",
    }
    assert size.endswith(" KB")
    assert oldest["Total Records Written"] == "10"


def test_commits_as_a_document_have_exact_sizes(run, table, times):
    [commit] = json.loads(run("commits", "show", table, "--json", "--limit", 1).stdout)["commits"]

    files = list(table.glob(f"*/*_{times[1]}.parquet"))
    assert commit == {
        "commit_time": times[1],
        "action": "commit",
        "operation": "BULK_INSERT",
        "total_partitions_written": 2,
        "total_files_added": 2,
        "total_files_updated": 0,
        "total_records_written": 6,
        "total_records_inserted": 6,
        "total_records_updated": 0,
        "total_records_deleted": 0,
        "total_bytes_written": sum(file.stat().st_size for file in files),
        "total_errors": 0,
    }


def test_a_limit_keeps_older_commits_from_being_read(run, table, times):
    (table / ".hoodie" / f"{times[0]}.commit").write_bytes(b"broken")

    assert run("commits", "show", table, "--limit", 1).exit_code == 0
    assert run("commits", "show", table).exit_code == 5


def test_the_partitions_of_a_commit_are_shown(run, table, times):
    rows = _columns(run("commit", "showpartitions", table, "--commit", times[0]).stdout)

    assert [(row["Partition Path"], row["Total Records Inserted"]) for row in rows] == [
        ("city=paris", "5"),
        ("city=rome", "5"),
    ]
    assert {(row["Total Files Added"], row["Total Files Updated"], row["Total Errors"]) for row in rows} == {
        ("1", "0", "0")
    }


def test_the_partitions_of_a_commit_as_a_document(run, table, times):
    document = json.loads(run("commit", "showpartitions", table, "--commit", times[0], "--json").stdout)

    assert document["commit_time"] == times[0]
    assert [(one["partition_path"], one["total_records_inserted"]) for one in document["partitions"]] == [
        ("city=paris", 5),
        ("city=rome", 5),
    ]


def test_the_files_of_a_commit_are_shown(run, table, times):
    rows = _columns(run("commit", "showfiles", table, "--commit", times[1]).stdout)

    assert list(rows[0]) == [
        "Partition Path",
        "File ID",
        "Previous Commit",
        "Total Records Updated",
        "Total Records Written",
        "Total Bytes Written",
        "Total Errors",
        "File Size",
    ]
    assert [(row["Partition Path"], row["Total Records Written"]) for row in rows] == [
        ("city=paris", "3"),
        ("city=rome", "3"),
    ]


def test_the_files_of_a_commit_as_a_document_name_real_files(run, table, times):
    document = json.loads(run("commit", "showfiles", table, "--commit", times[1], "--json").stdout)

    for file in document["files"]:
        assert (table / file["path"]).stat().st_size == file["file_size"]
        assert file["previous_commit"] is None
    assert len(document["files"]) == 2


def test_a_pending_instant_is_not_a_commit_to_show(run, table, failed_write):
    result = run("commit", "showfiles", table, "--commit", failed_write)

    assert result.exit_code == 2
    assert "state: commit inflight" in result.stderr


def test_the_view_shows_the_files_of_the_snapshot(run, table, times, failed_write):
    document = json.loads(run("fsview", table, "--json").stdout)

    assert {slice_["base_instant"] for slice_ in document["file_slices"]} == set(times)
    assert len(document["file_slices"]) == 4
    for one in document["file_slices"]:
        assert (table / one["data_file"]).stat().st_size == one["data_file_size"]
        assert one["data_file"].startswith(f"{one['partition']}/{one['file_id']}_")


def test_the_view_as_of_an_instant_shows_no_later_files(run, table, times):
    rows = _columns(run("fsview", table, "--as-of", times[0]).stdout)

    assert [(row["Partition"], row["Base-Instant"]) for row in rows] == [
        ("city=paris", times[0]),
        ("city=rome", times[0]),
    ]


def test_the_view_before_the_first_commit_is_empty(run, table):
    assert run("fsview", table, "--as-of", "2001-01-01").stdout == "no files\n"
