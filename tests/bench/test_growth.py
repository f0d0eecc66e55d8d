"""Growth: the fit, what it marks, and a small run of every step."""

import json

import pytest
from bench.growth import Axis, Growth, Point, Shape, axes, fitted_exponent, growth, measured
from bench.workloads.clean import Versions
from click.testing import CliRunner

STEPS = {"open", "timeline", "list files", "plan clean", "plan rollback", "commit"}


def grown(seconds_at):
    sizes = (1_000, 10_000, 100_000, 1_000_000)
    return Growth("files", "step", tuple(Point(size, seconds_at(size), seconds_at(size)) for size in sizes))


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_is_found(power):
    pairs = [(size, 0.003 * size**power) for size in (10, 100, 1_000, 10_000)]

    assert fitted_exponent(pairs) == pytest.approx(power)


def test_the_exponent_is_the_one_of_least_squares():
    pairs = [(1, 1.0), (10, 10.0), (100, 10.0)]

    assert fitted_exponent(pairs) == pytest.approx(0.5)


def test_one_size_has_no_exponent():
    with pytest.raises(ValueError, match="two sizes"):
        fitted_exponent([(10, 1.0)])


def test_what_grows_as_its_size_is_not_marked():
    assert not grown(lambda size: 0.01 + size * 1e-6).is_superlinear
    assert not grown(lambda size: 0.01).is_superlinear


def test_what_grows_faster_is_marked():
    assert grown(lambda size: size**1.5 * 1e-6).is_superlinear


def test_a_fixed_cost_does_not_hide_what_grows_faster_at_last():
    found = grown(lambda size: 1.0 + (size * 1e-5) ** 2)

    assert found.exponent < 1
    assert found.is_superlinear


def test_only_what_is_asked_for_grows():
    files, instants = axes(files=[100, 1_000], instants=[10, 20], written=[10])

    assert files.name == "files of the table"
    assert [shape.versions.files for shape in files.shapes.values()] == [100, 1_000]
    assert len({shape.versions.versions for shape in files.shapes.values()}) == 1
    assert [shape.versions.versions for shape in instants.shapes.values()] == [10, 20]
    assert {shape.versions.files for shape in instants.shapes.values()} == {10_000}


def test_every_step_is_timed_on_every_table(tmp_path):
    shapes = {
        4 * groups: Shape(versions=Versions(partitions=2, groups=groups, versions=4), written=2)
        for groups in (10, 20)
    }
    told = []

    found = measured(Axis("files", shapes), tmp_path, told.append)

    assert {one.step for one in found} == STEPS
    assert all([point.size for point in one.points] == [40, 80] for one in found)
    assert all(point.cpu_seconds > 0 and point.seconds > 0 for one in found for point in one.points)
    assert "files 80: plan clean" in told
    assert list(tmp_path.iterdir()) == []


def test_a_run_prints_stores_and_draws_what_it_found(tmp_path):
    sizes = ["--files", "20", "--files", "40", "--instants", "2", "--written", "2"]
    folders = ["--data", str(tmp_path / "data"), "--results", str(tmp_path / "results")]

    result = CliRunner().invoke(growth, [*sizes, *folders], catch_exceptions=False)

    assert result.exit_code == 0
    assert "plan rollback" in result.output
    (stored,) = (tmp_path / "results").glob("*.json")
    document = json.loads(stored.read_bytes())
    assert {one["step"] for one in document["growth"]} == STEPS
    assert all({"exponent", "last_exponent", "is_superlinear"} <= one.keys() for one in document["growth"])
    assert stored.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
