import pytest

from holdfast.config.choices import CleanPolicy
from holdfast.config.cleaning import CleanSettings
from holdfast.config.option import Area
from holdfast.config.option_table import options_of
from holdfast.config.write import WriteSettings
from holdfast.errors import InvalidOption

COMMITS = "hoodie.clean.commits.retained"
HOURS = "hoodie.clean.hours.retained"
VERSIONS = "hoodie.clean.fileversions.retained"


def clean_settings(options):
    """As every caller gets them: with the options of a write."""
    return WriteSettings.from_options(options).clean


def test_every_spelling_of_an_option_is_accepted():
    values = {
        "policy": ("keep_latest_by_hours", CleanPolicy.KEEP_LATEST_BY_HOURS),
        "commits_retained": ("7", 7),
        "hours_retained": ("7", 7),
        "versions_retained": ("7", 7),
        "automatic": ("False", False),
        "asynchronous": ("true", True),
        "services_enabled": ("false", False),
        "trigger": ("num_commits", "NUM_COMMITS"),
        "max_commits": ("7", 7),
        "incremental": ("false", False),
        "parallelism": ("7", 7),
        "plans_beside_pending": ("true", True),
        "max_commits_to_clean": ("7", 7),
        "empty_clean_hours": ("7", 7),
        "partition_pattern": ("City=.*", "City=.*"),
        "partitions_selected": (" a/b , c ", ("a/b", "c")),
        "cleans_idle_tables": ("false", False),
        "keep_min": ("22", 22),
        "keep_max": ("33", 33),
    }
    assert set(values) == set(options_of(Area.CLEAN))
    for setting, option in options_of(Area.CLEAN).items():
        text, expected = values[setting]
        for name in option.names:
            assert getattr(clean_settings({name: text}), setting) == expected


def test_what_nobody_sets_is_as_in_hudi():
    settings = clean_settings({})

    assert settings == CleanSettings()
    assert settings.policy is CleanPolicy.KEEP_LATEST_COMMITS
    assert (settings.commits_retained, settings.hours_retained, settings.versions_retained) == (10, 24, 3)
    assert settings.is_inline
    assert not settings.is_beside_write


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        ({VERSIONS: "2"}, CleanPolicy.KEEP_LATEST_FILE_VERSIONS),
        ({"hoodie.cleaner.fileversions.retained": "2"}, CleanPolicy.KEEP_LATEST_FILE_VERSIONS),
        ({HOURS: "2"}, CleanPolicy.KEEP_LATEST_BY_HOURS),
        ({COMMITS: "2"}, CleanPolicy.KEEP_LATEST_COMMITS),
        ({HOURS: "2", VERSIONS: "2"}, CleanPolicy.KEEP_LATEST_COMMITS),
        ({HOURS: "2", "hoodie.cleaner.policy": "KEEP_LATEST_COMMITS"}, CleanPolicy.KEEP_LATEST_COMMITS),
    ],
)
def test_the_policy_follows_from_the_only_retention_given(options, policy):
    assert clean_settings(options).policy is policy


def test_the_newer_spelling_wins_and_the_contradiction_is_logged(caplog):
    settings = clean_settings({"hoodie.cleaner.commits.retained": "3", COMMITS: "5"})

    assert settings.commits_retained == 5
    assert [(record.message, record.used) for record in caplog.records] == [
        ("options.contradictory", COMMITS)
    ]


def test_equal_values_under_two_spellings_are_no_contradiction(caplog):
    assert clean_settings({"hoodie.cleaner.commits.retained": "5", COMMITS: "5"}).commits_retained == 5
    assert caplog.records == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({COMMITS: "0"}, "at least 1"),
        ({HOURS: "0"}, "at least 1"),
        ({VERSIONS: "0"}, "at least 1"),
        ({COMMITS: "many"}, "a whole number"),
        ({"hoodie.clean.policy": "KEEP_ALL"}, "KEEP_LATEST_COMMITS, KEEP_LATEST_FILE_VERSIONS"),
        ({"hoodie.clean.automatic": "yes"}, "true or false"),
        ({"hoodie.clean.trigger.strategy": "TIME"}, "NUM_COMMITS"),
        ({"hoodie.clean.max.commits": "0"}, "at least 1"),
        ({"hoodie.clean.max.commits.to.clean": "-1"}, "at least 0"),
        ({"hoodie.clean.partition.filter.regex": "("}, "a pattern"),
        ({"hoodie.clean.commit.retained": "3"}, f"did you mean {COMMITS}"),
        ({"hoodie.clean.delete.bootstrap.base.file": "true"}, "not supported"),
    ],
)
def test_an_option_that_cannot_be_honoured_says_why(options, said):
    with pytest.raises(InvalidOption, match=said):
        clean_settings(options)


@pytest.mark.parametrize(
    ("options", "is_inline", "is_beside_write"),
    [
        ({"hoodie.clean.async": "true"}, False, True),
        ({"hoodie.clean.automatic": "false", "hoodie.clean.async": "true"}, False, False),
        ({"hoodie.table.services.enabled": "false"}, False, False),
    ],
)
def test_a_write_cleans_when_the_options_say(options, is_inline, is_beside_write):
    settings = clean_settings(options)

    assert (settings.is_inline, settings.is_beside_write) == (is_inline, is_beside_write)


def test_all_contradictions_with_archiving_are_in_one_message():
    with pytest.raises(InvalidOption) as refused:
        clean_settings({COMMITS: "25", "hoodie.keep.min.commits": "20", "hoodie.keep.max.commits": "19"})

    assert "hoodie.keep.max.commits=19 is not more than hoodie.keep.min.commits=20" in str(refused.value)
    assert f"hoodie.keep.min.commits=20 is not more than {COMMITS}=25" in str(refused.value)


@pytest.mark.parametrize(
    "options",
    [
        {COMMITS: "20", "hoodie.keep.min.commits": "20"},
        {"hoodie.keep.min.commits": "10"},
        {"hoodie.keep.max.commits": "20"},
    ],
)
def test_archiving_that_would_overtake_cleaning_is_refused(options):
    with pytest.raises(InvalidOption, match="contradict"):
        clean_settings(options)


@pytest.mark.parametrize(
    "options",
    [
        {COMMITS: "40"},
        {COMMITS: "19", "hoodie.keep.min.commits": "20"},
        {VERSIONS: "40", "hoodie.keep.min.commits": "5"},
        {"hoodie.keep.min.commits": "30", "hoodie.keep.max.commits": "31"},
    ],
)
def test_archiving_that_nobody_prescribed_gives_way(options):
    clean_settings(options)
