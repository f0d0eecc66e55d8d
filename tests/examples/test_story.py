"""What `make run` tells is true."""

import subprocess
import sys
from pathlib import Path

import pytest

STORY = Path(__file__).resolve().parents[2] / "examples" / "story.py"


@pytest.mark.spark
def test_the_story_runs_to_its_end_and_leaves_everything_to_go_on_with(tmp_path):
    told = subprocess.run([sys.executable, STORY, tmp_path], capture_output=True, text=True, timeout=900)

    assert told.returncode == 0, told.stdout + told.stderr
    assert "rolled back commit" in told.stdout
    assert "no negative fare" in told.stdout + told.stderr
    assert "reverted push" in told.stdout
    assert "hudi-rs opens the same folder and counts 540,000 trips" in told.stdout
    assert "everything held" in told.stdout
    left = {path.name for path in tmp_path.iterdir()}
    assert {"ingest.yaml", "publish.yaml", "serve.yaml", "lake", "served"} <= left
