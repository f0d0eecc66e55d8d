"""Every option of Hudi 0.15 and 1.2 is known by name, and answered by that name."""

import warnings

import pytest

from config.hudi_jobs import JOBS, KEEPS, REFUSES, TUNES
from holdfast.config.datasource import SourceRead, SourceWrite
from holdfast.config.hudi_options import Answer, hudi_option, hudi_options
from holdfast.config.option import Area
from holdfast.config.option_table import IGNORE_TUNING, OPTIONS, option_named
from holdfast.config.options import effective_options, nearest_name
from holdfast.config.table import new_table_settings
from holdfast.config.write import WriteSettings
from holdfast.errors import InvalidOption, OptionsIgnored

KNOWN = hudi_options()
ANSWERED = sorted(name for name, option in KNOWN.items() if option.answer is not Answer.SUPPORTED)
SUPPORTED = sorted(KNOWN.keys() - set(ANSWERED))
NOT_HUDIS = {
    "hoodie.bloom.index.filter.error.rate",
    "hoodie.cleaner.incremental.enabled",
    "hoodie.cleaner.max.commits.clean",
    "hoodie.cleaner.trigger.max.commits",
    "hoodie.cleaner.trigger.strategy",
}
"""Spellings of other releases of Hudi."""
SETTINGS = [(job, *setting) for job, settings in JOBS.items() for setting in settings]


def create(properties):
    return new_table_settings(
        name="t",
        record_key=("id",),
        partition_by=(),
        ordering=None,
        table_type="COPY_ON_WRITE",
        properties=properties,
    )


TAKERS = [WriteSettings.from_options, SourceWrite.from_options, SourceRead.from_options, create]
"""Everything that takes options takes them alike."""


def refusal(take, options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InvalidOption) as refused:
            take(options)
    return refused.value


@pytest.mark.parametrize("name", ANSWERED)
def test_every_known_option_is_accepted_ignored_or_refused_by_its_own_name(name):
    option = KNOWN[name]
    for take in TAKERS:
        for value in option.accepted:
            take({name: "whatever" if value == "*" else value})
        if option.accepts_all:
            continue
        error = refusal(take, {name: "no value of it"})
        assert error.facts["option"] == name
        assert "did you mean" not in str(error)
        assert error.hint
        if option.answer is Answer.TUNING:
            assert IGNORE_TUNING in error.hint
            with pytest.warns(OptionsIgnored, match=name):
                take({name: "no value of it", IGNORE_TUNING: "true"})
        else:
            assert refusal(take, {name: "no value of it", IGNORE_TUNING: "true"}).facts["option"] == name


@pytest.mark.parametrize("name", SUPPORTED)
def test_every_supported_option_of_hudi_is_in_the_option_table(name):
    option = option_named(name)

    assert option is not None
    for alternative in KNOWN[name].alternatives:
        assert alternative in option.names


def test_every_option_of_the_table_is_one_of_hudis_or_ours():
    names = {name for option in OPTIONS for name in option.names if name.startswith("hoodie.")}

    unknown = {name for name in names if hudi_option(name) is None}
    assert unknown == NOT_HUDIS
    assert {name for name in names - NOT_HUDIS if KNOWN[name].answer is not Answer.SUPPORTED} == set()


def test_no_option_that_changes_rows_counts_as_tuning():
    changing = [
        "hoodie.bootstrap.base.path", "hoodie.bucket.index.partition.expressions",
        "hoodie.combine.before.upsert", "hoodie.datasource.insert.dup.policy",
        "hoodie.datasource.merge.type", "hoodie.datasource.overwrite.mode",
        "hoodie.datasource.query.incremental.format", "hoodie.datasource.read.incr.filters",
        "hoodie.datasource.read.incr.path.glob", "hoodie.datasource.read.paths",
        "hoodie.datasource.write.drop.partition.columns", "hoodie.datasource.write.insert.drop.duplicates",
        "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled",
        "hoodie.datasource.write.reconcile.schema", "hoodie.datasource.write.record.merger.impls",
        "hoodie.datasource.write.schema.allow.auto.evolution.column.drop", "hoodie.index.class",
        "hoodie.merge.allow.duplicate.on.inserts", "hoodie.metadata.dir.filter.regex",
        "hoodie.parquet.outputtimestamptype", "hoodie.partition.ttl.inline", "hoodie.payload.delete.field",
        "hoodie.payload.delete.marker", "hoodie.populate.meta.fields", "hoodie.precommit.validators",
        "hoodie.read.timeline.holes.resolution.policy", "hoodie.schema.on.read.enable",
        "hoodie.table.cdc.enabled", "hoodie.table.partial.update.mode", "hoodie.table.timeline.timezone",
        "hoodie.write.auto.upgrade", "hoodie.write.complex.keygen.new.encoding", "hoodie.write.ignore.failed",
        "hoodie.write.record.merge.strategy.id", "hoodie.write.schema", "hoodie.write.table.version",
    ]  # fmt: skip

    assert [name for name in changing if KNOWN[name].answer is Answer.TUNING] == []


def test_hudi_options_that_belong_to_other_parts_of_it_are_refused_by_family():
    for name in ("hoodie.streamer.source.kafka.topic", "hoodie.write.lock.dynamodb.billing_mode"):
        error = refusal(WriteSettings.from_options, {name: "x"})

        assert error.facts["option"] == name
        assert "did you mean" not in str(error)


def test_a_name_in_the_lower_case_that_spark_gives_is_still_known():
    name = "hoodie.metrics.cloudwatch.maxdatumsperrequest"

    assert hudi_option(name) is not None
    assert effective_options({name: "20"}, [Area.READ]) == {}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("hoodie.parquet.max.filesize", "hoodie.parquet.max.file.size"),
        ("hoodie.datasource.write.recordkey.fields", "hoodie.datasource.write.recordkey.field"),
        ("hoodie.upsert.shuffle.paralellism", "hoodie.upsert.shuffle.parallelism"),
        ("hoodie.metadata.enabled", "hoodie.metadata.enable"),
        ("hoodie.clean.automatc", "hoodie.clean.automatic"),
        ("hoodie.datasource.write.timeline.mode", None),
        ("hoodie.parquet.max.row.size", None),
        ("hoodie.clean.weeks.retained", None),
        ("spark.sql.shuffle.partitions", None),
        ("path", None),
    ],
)
def test_a_name_is_suggested_only_for_a_slip_of_it(name, meant):
    error = refusal(WriteSettings.from_options, {name: "1"})

    assert error.message == "unknown option"
    assert error.hint == (f"did you mean {meant}?" if meant else "the options there are: docs/options.md")


def test_a_known_name_with_another_word_is_taken_for_none():
    for name in KNOWN:
        assert nearest_name(f"{name}.somewhere.else", KNOWN) is None


def test_all_refusals_of_a_job_come_in_one_error():
    error = refusal(
        WriteSettings.from_options,
        {
            "hoodie.datasource.hive_sync.enable": "true",
            "hoodie.parquet.page.size": "1",
            "hoodie.parquet.block.size": "1",
            "hoodie.index.typ": "BLOOM",
        },
    )

    said = str(error)
    assert "hoodie.datasource.hive_sync.enable: this value of the option is not supported" in said
    assert "hoodie.parquet.page.size, hoodie.parquet.block.size: only tune Apache Hudi" in said
    assert "did you mean hoodie.index.type?" in said


@pytest.mark.parametrize("name", [name for name in ANSWERED if KNOWN[name].answer is Answer.TUNING])
def test_an_option_that_tunes_with_hudis_own_default_is_kept_without_a_word(name):
    """It says nothing: Hudi does the same without it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for default in filter(None, KNOWN[name].defaults):
            SourceWrite.from_options({name: "" if default == '""' else f" {default.upper()} "})


def test_one_warning_lists_every_ignored_option():
    ignored = {"hoodie.parquet.page.size": "1", "hoodie.parquet.block.size": "2", IGNORE_TUNING: "TRUE"}

    with pytest.warns(OptionsIgnored) as caught:
        write = SourceWrite.from_options(ignored | {"hoodie.parquet.max.file.size": "4096"})

    assert [str(one.message) for one in caught] == [
        "options that only tune Apache Hudi are ignored: hoodie.parquet.block.size, hoodie.parquet.page.size"
    ]
    assert write.options == {"hoodie.parquet.max.file.size": "4096"}, "so the verb does not warn again"


@pytest.mark.parametrize(("job", "name", "value", "answer"), SETTINGS)
def test_a_setting_of_a_job_written_for_hudi_is_answered(job, name, value, answer):
    if answer == KEEPS:
        kept(name, value)
        return
    assert refusal(SourceWrite.from_options, {name: value}).facts["option"] == name
    if answer == TUNES:
        with pytest.warns(OptionsIgnored, match=name):
            kept(name, value, IGNORE_TUNING)
    else:
        assert answer == REFUSES


def kept(name, value, switch=None):
    """Accepted beside what it cannot be without."""
    with_it = {"hoodie.write.lock.provider": "InProcessLockProvider"} if ".write.lock." in name else {}
    if name == "hoodie.write.lock.provider":
        with_it = {"hoodie.write.lock.zookeeper.url": "zk", "hoodie.write.lock.zookeeper.base_path": "/hudi"}
    options = with_it | {name: value} | ({switch: "true"} if switch else {})
    if KNOWN.get(name) is not None and "read" in name.split("."):
        SourceRead.from_options(options)
    else:
        SourceWrite.from_options(options)


def test_nearly_every_setting_of_those_jobs_is_kept():
    """Of 118 settings of real jobs 20 were once accepted."""
    answers = [answer for *_, answer in SETTINGS]

    assert len(answers) >= 118
    assert answers.count(KEEPS) / len(answers) >= 0.8
    assert answers.count(REFUSES) == 7


@pytest.mark.parametrize("job", JOBS)
def test_a_whole_job_is_kept_but_for_what_is_refused(job):
    options = {name: value for name, value, answer in JOBS[job] if answer != REFUSES}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OptionsIgnored)
        write = SourceWrite.from_options(options | {IGNORE_TUNING: "true"})

    assert write.properties or write.options or "sync" in job or "merge on read" in job or "dynamodb" in job
