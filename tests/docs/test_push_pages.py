"""The pages on the push service are true: the guide runs, and every route and key is described."""

import ast
import re
from dataclasses import fields

import pytest

from harness.guides import ROOT, Guide
from holdfast.config.documents import read_document
from holdfast.config.pipeline import Destination, Publication, Rejects, Source
from holdfast.config.push_rules import Rules
from holdfast.config.server import Downloads, Limits
from holdfast.server.routes import broker_endpoints, controller_endpoints

JOBS = (ROOT / "docs/push-jobs.md").read_text()
CONFIGURATION = (ROOT / "docs/service-configuration.md").read_text()
PINOT = (ROOT / "docs/pinot.md").read_text()


def test_the_guide_runs_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    printed = Guide("docs/push.md").run()

    counts = re.findall(r"n\n-\n(\d+)$", printed, re.MULTILINE)
    assert counts == ["2", "3", "2"], printed
    assert "bergen   20.0" in printed


@pytest.mark.spark
def test_the_page_on_jobs_runs_from_top_to_bottom(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    printed = Guide("docs/push-jobs.md", {"spark": spark}).run()

    assert re.findall(r"n\n-\n(\d+)$", printed, re.MULTILINE) == ["4"], printed


def test_the_page_on_access_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert Guide("docs/access.md").run().startswith("scrypt$")


def test_every_route_is_described_with_its_role():
    page = (ROOT / "docs/rest.md").read_text()
    for one in (*controller_endpoints(), *broker_endpoints()):
        role = "open" if one.access.role is None else f"`{one.access.role.name.lower()}`"
        assert f"| `{one.method} {one.path.replace(':int', '')}` | {role}" in page, one.path
    listed = re.findall(r"^\| `([A-Z]+ /\S*)` \|", page, re.MULTILINE)
    served = [
        f"{one.method} {one.path.replace(':int', '')}"
        for one in (*controller_endpoints(), *broker_endpoints())
    ]
    assert sorted(listed) == sorted(served)


def test_every_key_of_a_job_is_described():
    job = read_document(ROOT / "tests/config/pinot_jobs/spark.yaml", names={})
    ours = (
        "gates",
        "note",
        "columns",
        "lease",
        "allow_empty",
        "source",
        "table",
        "as_of",
        "segments",
        "rows",
    )
    keys = {part for place in job.lines for part in place if isinstance(part, str)} - {
        "scheme", "region", "stagingDir", "dependencyJarDir", "extraConfigs", "connectTimeout", "readTimeout",
        "segmentGenerationJobRunnerClassName", "segmentMetadataPushJobRunnerClassName", "name", "configs",
        "type", "className",
    }  # fmt: skip

    named = {part for key in re.findall(r"`([\w.\[\]]+)`", JOBS) for part in (key, *key.split("."))}
    described = named | {part.removesuffix("[]") for part in named}
    assert sorted({*keys, *ours} - described) == []


def test_every_rule_that_can_be_switched_off_is_described():
    listed = re.findall(
        r"^\| `(\w+)`(?: \(off\))? \|", PINOT.partition("## Where it differs")[2], re.MULTILINE
    )

    assert listed == [one.name for one in fields(Rules) if one.name != "locks_deletes"]


def test_every_key_of_a_pipeline_is_described():
    page = (ROOT / "docs/pipelines.md").read_text()
    renamed = {"table_type": "type", "segment_rows": "segments.rows"}
    for section, values in (
        ("source", Source),
        ("table", Destination),
        ("push", Publication),
        ("rejects", Rejects),
    ):
        for one in fields(values):
            assert f"`{section}.{renamed.get(one.name, one.name)}`" in page, one.name


def test_every_code_of_an_error_is_described():
    page = (ROOT / "docs/rest.md").read_text()
    table = page.partition("### Codes")[2].partition("\n## ")[0]
    listed = [
        code
        for line in table.splitlines()
        if line.startswith("| `")
        for code in re.findall(r"`([A-Z_]+)`", line.split("|")[1])
    ]

    assert sorted(listed) == sorted(_codes_in_the_source())


def _codes_in_the_source():
    """What errors of the service are raised with as `code`."""
    found = set()
    for package in ("push", "server", "config", "storage"):
        for path in (ROOT / "src/holdfast" / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                for keyword in node.keywords if isinstance(node, ast.Call) else ():
                    value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
                    if keyword.arg == "code" and isinstance(value, str):
                        found.add(value)
    return found


def test_every_key_of_the_configuration_is_described():
    renamed = {
        "query_timeout_ms": "query_timeout", "query_memory_bytes": "query_memory", "body_bytes": "body_size",
        "upload_bytes": "upload_size", "query_body_bytes": "query_body_size", "staged_bytes": "staged_size",
        "answer_bytes": "answer_size", "header_timeout_ms": "header_timeout",
        "body_timeout_ms": "body_timeout", "answer_timeout_ms": "answer_timeout",
        "list_body_bytes": "list_body_size", "bodies_bytes": "bodies_size",
        "upload_rate_bytes": "upload_rate", "handshake_timeout_ms": "handshake_timeout",
    }  # fmt: skip
    for section, values in (("limits", Limits), ("downloads", Downloads)):
        for one in fields(values):
            assert f"`{section}.{renamed.get(one.name, one.name)}`" in CONFIGURATION, one.name
    for key in ("cluster", "store", "deep_store", "engine", "delete_lock", "auth.users", "tls.required"):
        assert f"`{key}`" in CONFIGURATION, key
