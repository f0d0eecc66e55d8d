"""Files of jobs and pipelines that are wrong: one line that says where, before anything is done."""

import pytest


@pytest.mark.parametrize(
    ("command", "text", "told"),
    [
        (["run"], "sauce: {format: csv}\n", "line: 1, key: sauce); did you mean source?"),
        (
            ["run"],
            "source: {format: csv}\ntable: {path: t, record_key: 5}\n",
            "line: 2, key: table.record_key",
        ),
        (["push", "run"], "tableSpec:\n  tableNaem: t\n", "line: 2, key: tableSpec.tableNaem"),
        (["push", "run"], "a: &x\n  b: *x\n", "line: 1, key: a.b"),
        (["push", "run"], "\tx: 1\n", "line: 1"),
        (["push", "run"], "", "the file is empty"),
    ],
)
def test_a_wrong_file_is_one_line_and_exit_code_2(run, tmp_path, command, text, told):
    file = tmp_path / "wrong.yaml"
    file.write_text(text)

    failed = run(*command, file)

    assert failed.exit_code == 2
    assert failed.stdout == ""
    assert told in failed.stderr
    assert str(file) in failed.stderr
    assert len(failed.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", [["run"], ["push", "run"]])
def test_a_missing_file_is_one_line_and_exit_code_2(run, tmp_path, command):
    failed = run(*command, tmp_path / "absent.yaml")

    assert failed.exit_code == 2
    told = f"the file cannot be read (file: {tmp_path}/absent.yaml, cause: No such file or directory)"
    assert failed.stderr == f"holdfast: {told}\n"
