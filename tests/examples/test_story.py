"""What `make run` and `make tour` tell is true, and what is not true ends them."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
FROZEN = Path(__file__).with_name("frozen_service.py")

_WITH_A_FROZEN_BROKER = """
import sys
sys.path.insert(0, {examples!r})
import story
from pathlib import Path

story.SERVE[:] = [sys.executable, {service!r}, "serve", "--config", "serve.yaml"]
sys.exit(story.main(Path({home!r})))
"""


def run(*command):
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=900)


@pytest.mark.spark
def test_the_story_holds_in_five_beats_on_a_small_screen(tmp_path):
    ran = run(EXAMPLES / "story.py", tmp_path)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = ran.stdout.splitlines()
    beats = [line for line in lines if line[:1].isdigit()]
    assert [line[0] for line in beats] == list("12345")
    assert "✗" not in ran.stdout
    assert ran.stdout.count("✓") >= 14
    assert len(lines) <= 52
    assert max(map(len, lines[:-2])) <= 80  # The commands to go on with name this folder.
    assert "claims held" in lines[-3]


@pytest.mark.spark
def test_a_broker_that_does_not_switch_is_a_red_line_and_exit_code_1(tmp_path):
    home = tmp_path / "home"
    script = _WITH_A_FROZEN_BROKER.format(examples=str(EXAMPLES), service=str(FROZEN), home=str(home))
    ran = run("-c", script)

    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "✓ queries saw all of the bad publish at once" in ran.stdout
    assert "✗ and all of the good figures again" in ran.stdout
    assert "1 of " in ran.stdout.splitlines()[-1]
    assert "claims did not hold" in ran.stdout.splitlines()[-1]


@pytest.mark.spark
def test_the_tour_runs_to_its_end_and_leaves_everything_to_go_on_with(tmp_path):
    ran = run(EXAMPLES / "tour.py", tmp_path)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "rolled back commit" in ran.stdout
    assert "no negative fare" in ran.stdout + ran.stderr
    assert "reverted push" in ran.stdout
    assert "hudi-rs opens the same folder and counts 540,000 trips" in ran.stdout
    assert "everything held" in ran.stdout
    left = {path.name for path in tmp_path.iterdir()}
    assert {"ingest.yaml", "publish.yaml", "serve.yaml", "lake", "served"} <= left
