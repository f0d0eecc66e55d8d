"""The pages on the push service are true: the guide runs, and every route and key is described."""

import ast
import os
import re
import signal
import socket
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

from holdfast.config.server import Downloads, Limits
from holdfast.server.routes import broker_endpoints, controller_endpoints

ROOT = Path(__file__).resolve().parent.parent.parent
GUIDE = (ROOT / "docs/push.md").read_text()
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"(?:#|//) (\S+\.(?:yaml|json))\n(.*)", re.DOTALL)


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def test_the_guide_runs_from_top_to_bottom(tmp_path, monkeypatch):
    """Files are written, Python and commands run in order; the service of the guide runs beside them."""
    monkeypatch.chdir(tmp_path)
    controller, broker = _free_port(), _free_port()
    text = GUIDE.replace("9000", controller).replace("8099", broker)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "HOLDFAST_CONTROLLER": f"http://127.0.0.1:{controller}",
        "HOLDFAST_BROKER": f"http://127.0.0.1:{broker}",
    }
    serving, script = None, "set -e\n"
    try:
        for language, block in _BLOCK.findall(text):
            named = _NAMED.match(block)
            if named:
                (tmp_path / named[1]).write_text(named[2])
            elif language == "python":
                exec(compile(block, "docs/push.md", "exec"), {})
            elif language == "sh" and block.startswith("holdfast serve --config"):
                serving = subprocess.Popen(block.split(), stdout=subprocess.PIPE, text=True, env=environment)
                while not (line := serving.stdout.readline()).startswith("Ctrl-C"):
                    assert line, "the service did not start"
            elif language == "sh":
                script += block
        ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        counts = re.findall(r"n\n-\n(\d+)$", ran.stdout, re.MULTILINE)
        assert counts == ["2", "3", "2"], ran.stdout
        assert "bergen   20.0" in ran.stdout
    finally:
        if serving is not None:
            serving.send_signal(signal.SIGTERM)
            assert serving.wait(60) == 0


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
        "upload_bytes": "upload_size",
    }  # fmt: skip
    for section, values in (("limits", Limits), ("downloads", Downloads)):
        for one in fields(values):
            assert f"`{section}.{renamed.get(one.name, one.name)}`" in GUIDE, one.name
    for key in ("cluster", "store", "deep_store", "engine", "delete_lock", "auth.users", "tls.required"):
        assert f"`{key}`" in GUIDE, key
