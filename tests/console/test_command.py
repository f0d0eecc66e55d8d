"""`holdfast console` before it listens."""

from click.testing import CliRunner

from holdfast.cli.main import cli


def test_a_path_without_a_table_is_refused_before_anything_listens(tmp_path):
    ran = CliRunner().invoke(cli, ["console", str(tmp_path / "nowhere"), "--port", "0"])

    assert ran.exit_code == 2
    assert "there is no table here" in ran.stderr
    assert ran.stdout == ""
