"""`archive run`, and archived instants in the commands that show history."""

import json

import pytest

import holdfast

NOTHING_BY_ITSELF = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
BOUNDS = (
    "--hoodie-conf",
    "hoodie.clean.policy=KEEP_LATEST_FILE_VERSIONS",
    "--hoodie-conf",
    "hoodie.clean.automatic=false",
    "--hoodie-conf",
    "hoodie.keep.min.commits=2",
    "--hoodie-conf",
    "hoodie.keep.max.commits=3",
)


@pytest.fixture
def aged(empty_table, trips):
    """Six commits, a clean and a rollback."""
    lake = holdfast.open_table(str(empty_table))
    for _ in range(3):
        lake.upsert(trips(0, 4), options=NOTHING_BY_ITSELF)
    lake.clean(options={"hoodie.clean.commits.retained": "1"})
    lake.upsert(trips(0, 4), options=NOTHING_BY_ITSELF)
    lake.undo()
    for _ in range(3):
        lake.upsert(trips(0, 4), options=NOTHING_BY_ITSELF)
    return empty_table


def _document(result):
    assert result.exit_code == 0
    return json.loads(result.stdout)


def test_a_run_says_what_left_the_timeline_and_where_it_is(run, aged):
    result = run("archive", "run", aged, *BOUNDS)

    assert result.exit_code == 0
    assert "archived 4 commits and 2 other instants in .hoodie/archived/" in result.stdout
    assert "2 commits left on the timeline" in result.stdout
    again = run("archive", "run", aged, *BOUNDS).stdout
    assert again.startswith("nothing to archive\nnot more, because the timeline has 2 commits")


def test_a_dry_run_lists_the_instants_and_changes_nothing(run, aged):
    before = sorted(map(str, aged.rglob("*")))

    document = _document(run("archive", "run", aged, *BOUNDS, "--dry-run", "--json"))
    text = run("archive", "run", aged, *BOUNDS, "--dry-run").stdout

    assert [one["action"] for one in document["archived"]].count("commit") == 4
    assert all(one["instant"] in text for one in document["archived"])
    assert sorted(map(str, aged.rglob("*"))) == before


def test_the_document_of_a_run_has_the_report(run, aged):
    document = _document(run("archive", "run", aged, *BOUNDS, "--json"))

    assert document["commits_left"] == 2
    assert document["file"].endswith(".commits_.archive.1_1-0-1")
    assert len(document["archived"]) == 6
    assert document["resumed"] == []


def test_what_is_in_the_way_is_named(run, aged):
    commits = [i.time for i in holdfast.open_table(str(aged)).timeline() if i.action == "commit"]
    holdfast.open_table(str(aged)).savepoint(commits[3])

    stopping = ("--hoodie-conf", "hoodie.archive.beyond.savepoint=false")
    result = run("archive", "run", aged, *BOUNDS, *stopping)

    assert f"not more, because commit {commits[3]} is savepointed" in result.stdout


@pytest.mark.parametrize(
    ("words", "name", "counts"),
    [
        (("timeline", "show"), "instants", (2, 8)),
        (("commits", "show"), "commits", (2, 6)),
        (("rollbacks", "show"), "rollbacks", (0, 1)),
    ],
)
def test_history_has_archived_instants_if_asked_for(run, aged, words, name, counts):
    before = _document(run(*words, aged, "--json"))[name]
    run("archive", "run", aged, *BOUNDS)

    active = _document(run(*words, aged, "--json"))[name]
    everything = _document(run(*words, aged, "--archived", "--json"))[name]

    assert (len(active), len(everything)) == counts
    if name == "instants":
        assert [one["instant"] for one in everything] == [one["instant"] for one in before]
        assert sum(one["is_archived"] for one in everything) == 6
    else:
        assert everything == before


def test_archived_cleans_are_shown_with_the_others(run, aged):
    before = _document(run("cleans", "show", aged, "--json"))["cleans"]
    partitions = run("clean", "showpartitions", aged, "--clean", before[0]["instant"]).stdout
    run("archive", "run", aged, *BOUNDS)

    assert _document(run("cleans", "show", aged, "--json"))["cleans"] == before
    assert run("clean", "showpartitions", aged, "--clean", before[0]["instant"]).stdout == partitions


def test_the_files_of_an_archived_commit_can_be_shown(run, aged):
    first = _document(run("commits", "show", aged, "--json"))["commits"][-1]["commit_time"]
    before = run("commit", "showfiles", aged, "--commit", first).stdout
    run("archive", "run", aged, *BOUNDS)

    assert run("commit", "showfiles", aged, "--commit", first).stdout == before


def test_the_timeline_marks_what_is_archived(run, aged):
    run("archive", "run", aged, *BOUNDS)

    lines = run("timeline", "show", aged, "--archived").stdout.splitlines()

    assert sum("archived" in line for line in lines) == 6
    assert any("rolls back" in line and "archived" in line for line in lines)


def test_an_option_that_is_not_honoured_is_refused_by_name(run, aged):
    result = run("archive", "run", aged, "--hoodie-conf", "hoodie.archive.merge.enable=true")

    assert result.exit_code == 2
    assert "not supported (option: hoodie.archive.merge.enable, value: true, wanted: false)" in result.stderr


def test_bounds_that_contradict_cleaning_are_refused_in_one_message(run, aged):
    result = run(
        "archive",
        "run",
        aged,
        *("--hoodie-conf", "hoodie.keep.min.commits=5"),
        *("--hoodie-conf", "hoodie.keep.max.commits=4"),
    )

    assert result.exit_code == 2
    assert "hoodie.keep.max.commits=4 is not more than hoodie.keep.min.commits=5" in result.stderr
    assert "hoodie.keep.min.commits=5 is not more than hoodie.clean.commits.retained=10" in result.stderr
