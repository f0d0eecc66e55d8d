"""`cleans show`, `cleans run`, `clean showpartitions`, and the cleaner as a program of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.cleaner import clean_settings, main
from holdfast.config.choices import CleanPolicy
from holdfast.errors import InvalidRequest, OptionsIgnored

NO_CLEAN = {"hoodie.clean.automatic": "false"}
TWO = ("--hoodie-conf", "hoodie.cleaner.commits.retained=2")


@pytest.fixture
def aged(empty_table, trips):
    """Five commits that all change both partitions."""
    lake = holdfast.open_table(str(empty_table))
    for _ in range(5):
        lake.upsert(trips(0, 4), options=NO_CLEAN)
    return empty_table


@pytest.fixture
def cleaned(aged):
    return holdfast.open_table(str(aged)).clean(options={"hoodie.clean.commits.retained": "2"})


def _files(table):
    return sorted(str(file.relative_to(table)) for file in table.glob("*/*.parquet"))


def _tree(table):
    return sorted(str(file) for file in table.rglob("*"))


def test_a_run_deletes_what_is_not_retained_and_says_how_much(run, aged):
    result = run("cleans", "run", aged, *TWO)

    assert result.exit_code == 0
    assert "4 files deleted" in result.stdout
    assert len(_files(aged)) == 6
    assert run("cleans", "run", aged, *TWO).stdout == "nothing to clean: every file is still needed\n"


IGNORING = ("--hoodie-conf", "holdfast.ignore.tuning.options=true")
TUNING = ("--hoodie-conf", "hoodie.parquet.block.size=1", "--hoodie-conf", "hoodie.parquet.page.size=1")


def test_options_that_only_tune_hudi_are_refused_or_ignored_in_one_line(run, aged):
    refused = run("cleans", "run", aged, *TWO, *TUNING)
    cleaned = run("cleans", "run", aged, *TWO, *TUNING, *IGNORING)

    assert refused.exit_code == 2
    assert "hoodie.parquet.block.size, hoodie.parquet.page.size: only tune Apache Hudi" in refused.stderr
    assert cleaned.exit_code == 0
    assert "4 files deleted" in cleaned.stdout
    assert cleaned.stderr == (
        "holdfast: warning: options that only tune Apache Hudi are ignored:"
        " hoodie.parquet.block.size, hoodie.parquet.page.size\n"
    )


def test_the_cleaner_takes_options_that_say_what_happens_anyway_and_ignores_tuning():
    conf = {"hoodie.metadata.enable": "false", "hoodie.cleaner.commits.retained": "3"}

    assert clean_settings(conf).clean.commits_retained == 3
    with pytest.warns(OptionsIgnored, match="hoodie.parquet.block.size"):
        clean_settings(conf | {"hoodie.parquet.block.size": "1", "holdfast.ignore.tuning.options": "true"})


def test_a_run_that_cleans_nothing_says_why_once(run, table):
    retained = ["--hoodie-conf", "hoodie.clean.commits.retained=10"]
    for more in ([], ["--explain"], ["--dry-run"]):
        shown = run("cleans", "run", table, *retained, *more).stdout
        assert shown.count("nothing to clean: ") == 1, more
        assert "commit" in shown.splitlines()[0], more
    waiting = [
        "--hoodie-conf",
        "hoodie.clean.commits.retained=1",
        "--hoodie-conf",
        "hoodie.clean.max.commits=9",
    ]
    assert "fewer than 9 commits" in run("cleans", "run", table, *waiting).stdout
    off = ["--hoodie-conf", "hoodie.table.services.enabled=false"]
    assert "hoodie.table.services.enabled" in run("cleans", "run", table, *off).stdout


def test_a_dry_run_shows_the_plan_and_changes_nothing(run, aged):
    before = _tree(aged)

    result = run("cleans", "run", aged, *TWO, "--dry-run")

    assert result.exit_code == 0
    assert result.stdout.count("to be deleted: city=") == 4
    assert _tree(aged) == before


def test_an_explanation_gives_each_file_its_fate_and_its_reason(run, aged):
    lines = run("cleans", "run", aged, *TWO, "--explain", "--dry-run").stdout.splitlines()

    of_files = [line for line in lines if line.startswith("city=")]
    assert len(of_files) == 10
    assert sum(line.endswith("deleted  superseded") for line in of_files) == 4
    assert sum("needed-at-window-start" in line for line in of_files) == 2
    forecast = [
        line.split()[:2] for line in lines[lines.index("with other numbers of commits retained:") + 3 :]
    ]
    assert forecast == [["1", "6"], ["5", "0"], ["10", "0"], ["20", "0"], ["50", "0"]]


def test_the_document_of_a_dry_run_is_what_the_run_does(run, aged):
    planned = json.loads(run("cleans", "run", aged, *TWO, "--dry-run", "--json").stdout)
    done = json.loads(run("cleans", "run", aged, *TWO, "--json").stdout)

    assert (planned["dry_run"], planned["cleaned"], done["dry_run"]) == (True, None, False)
    assert [file["path"] for file in planned["planned"]["doomed"]] == done["cleaned"]["deleted"]
    assert planned["planned"]["bytes_freed"] == done["cleaned"]["bytes_freed"] > 0


def test_cleans_are_shown_in_the_columns_of_hudi(run, aged, cleaned):
    header, _, row = run("cleans", "show", aged).stdout.splitlines()

    assert header.split("  ")[0] == "CleanTime"
    assert "EarliestCommandRetained" in header
    assert row.split()[:3] == [cleaned.instant, cleaned.earliest_commit_to_retain, "4"]
    [document] = json.loads(run("cleans", "show", aged, "--json").stdout)["cleans"]
    assert document["total_files_deleted"] == 4


def test_without_a_clean_that_is_said(run, table):
    assert run("cleans", "show", table).stdout == "no cleans\n"


def test_the_partitions_of_a_clean_are_shown(run, aged, cleaned):
    lines = run("clean", "showpartitions", aged, "--clean", cleaned.instant).stdout.splitlines()

    assert [line.split() for line in lines[2:]] == [
        ["city=paris", "KEEP_LATEST_COMMITS", "2", "0"],
        ["city=rome", "KEEP_LATEST_COMMITS", "2", "0"],
    ]


def test_a_clean_that_is_not_there_is_an_error(run, aged):
    result = run("clean", "showpartitions", aged, "--clean", "20200101000000000")

    assert result.exit_code == 2
    assert "no completed clean has this time" in result.stderr


@pytest.mark.parametrize("conf", ["hoodie.clean.commits.retained=0", "hoodie.clean.commit.retained=2"])
def test_options_that_cannot_be_used_are_refused_before_anything_happens(run, aged, conf):
    before = _tree(aged)

    result = run("cleans", "run", aged, "--hoodie-conf", conf)

    assert result.exit_code == 2
    assert _tree(aged) == before


def test_the_cleaner_runs_as_hudis_does(aged, tmp_path):
    props = tmp_path / "ingestion.properties"
    props.write_text(
        "hoodie.datasource.write.recordkey.field=trip_id\n"
        "bootstrap.servers=broker:9092\n"
        "hoodie.cleaner.commits.retained=2\n"
    )
    command = [sys.executable, "-m", "holdfast.cleaner", "--props", props, "--target-base-path", aged]

    result = subprocess.run([*map(str, command), "--spark-master", "local[2]"], timeout=300, check=False)

    assert result.returncode == 0
    assert len(_files(aged)) == 6


@pytest.mark.spark
def test_the_cleaner_runs_under_spark_submit(aged):
    submit = Path(sys.executable).with_name("spark-submit")
    program = Path(holdfast.__file__).with_name("cleaner.py")
    command = [
        submit, "--master", "local[1]", program,
        "--target-base-path", aged, "--hoodie-conf", "hoodie.cleaner.policy=KEEP_LATEST_FILE_VERSIONS",
        "--hoodie-conf", "hoodie.cleaner.fileversions.retained=1",
    ]  # fmt: skip

    ran = subprocess.run(
        [*map(str, command)], timeout=300, check=False, env={**os.environ, "PYSPARK_PYTHON": sys.executable}
    )

    assert ran.returncode == 0
    assert len(_files(aged)) == 2


def test_the_cleaner_says_with_its_exit_code_that_it_failed(tmp_path):
    assert main(["--target-base-path", str(tmp_path / "nothing")]) == 1


def test_an_option_wins_over_the_properties_whatever_its_spelling(tmp_path):
    props = tmp_path / "p.properties"
    props.write_text("hoodie.clean.commits.retained=7\nhoodie.clean.max.commits=4\n")

    settings = clean_settings({"hoodie.cleaner.commits.retained": "3"}, str(props)).clean

    assert (settings.commits_retained, settings.max_commits) == (3, 4)
    assert settings.policy is CleanPolicy.KEEP_LATEST_COMMITS
    with pytest.raises(InvalidRequest, match="no such properties file"):
        clean_settings({}, str(tmp_path / "absent"))
