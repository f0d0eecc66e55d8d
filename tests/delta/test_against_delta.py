"""The same statements on a table of Holdfast and on one of Delta Lake leave the same rows.

The statements are random, from a seed: HOLDFAST_SEED. HOLDFAST_DELTA_STATEMENTS says how many for each shape.
"""

import os
import random
from collections.abc import Iterator

import pytest

import holdfast
from holdfast.errors import Refused

pytestmark = pytest.mark.spark

SEED = int(os.environ.get("HOLDFAST_SEED", "20261119"))
STATEMENTS = int(os.environ.get("HOLDFAST_DELTA_STATEMENTS", "150"))
COMPARE_EVERY = 5

COLUMNS = "id INT, n BIGINT, x DOUBLE, s STRING, p STRING"
SHAPES = {
    "partitioned": "PARTITIONED BY (p) TBLPROPERTIES (primaryKey = 'id')",
    "unpartitioned": "TBLPROPERTIES (primaryKey = 'id')",
    "merge-on-read": "PARTITIONED BY (p) TBLPROPERTIES (primaryKey = 'id', type = 'mor')",
}
CONDITIONS = {
    "t": (
        "t.n > 5",
        "t.x < 50",
        "t.s LIKE 'a%'",
        "t.p = 'a'",
        "t.s IS NULL",
        "t.id % 3 = 0",
        "t.n + t.x > 40",
    ),
    "s": ("s.n > 5", "s.x IS NOT NULL", "s.p <> 'b'", "s.id % 2 = 1", "s.s IN ('ab', 'bc')"),
    "ts": ("t.n < s.n", "t.s = s.s", "coalesce(t.x, 0) <> coalesce(s.x, 0)", "t.p = s.p"),
}
VALUES = {
    "t": {
        "n": ("t.n + 1", "NULL", "t.id"),
        "x": ("t.x / 2", "7"),
        "s": ("concat(t.s, 'a')", "upper(t.p)"),
        "p": ("'a'", "'c'"),
    },
    "ts": {
        "n": ("s.n", "t.n + s.n"),
        "x": ("s.x", "greatest(t.x, s.x)"),
        "s": ("concat(t.s, s.s)",),
        "p": ("s.p",),
    },
}


class Author:
    """Writes statements about `{table}`, all of them sound on both sides."""

    def __init__(self, seed: str) -> None:
        self._chance = random.Random(seed)
        self._next_id = 0

    def statements(self, count: int) -> Iterator[str]:
        yield self._insert(20)
        for _ in range(count - 1):
            kind = self._chance.choices(
                (self._merge, self._update, self._delete, self._insert), (6, 3, 1, 1)
            )[0]
            yield kind()

    def _insert(self, count: int = 4) -> str:
        ids = range(self._next_id, self._next_id + count)
        self._next_id += count
        return f"INSERT INTO {{table}} SELECT * FROM VALUES {self._rows(ids)} AS v(id, n, x, s, p)"

    def _rows(self, ids) -> str:
        return ", ".join(f"({number}, {self._row()})" for number in ids)

    def _row(self) -> str:
        one = self._chance
        n = one.choice((str(one.randrange(12)), "CAST(NULL AS INT)"))
        x = one.choice((f"{one.randrange(90)}.5D", "CAST(NULL AS DOUBLE)"))
        s = one.choice(("'ab'", "'bc'", "'a'", "CAST(NULL AS STRING)"))
        return f"{n}, {x}, {s}, '{one.choice('abc')}'"

    def _condition(self, *sides: str) -> str:
        known = [condition for side in sides for condition in CONDITIONS[side]]
        return f" {self._chance.choice(('AND', 'OR'))} ".join(
            self._chance.sample(known, self._chance.randrange(1, 3))
        )

    def _assignments(self, *sides: str) -> str:
        names = self._chance.sample(("n", "x", "s", "p"), self._chance.randrange(1, 4))
        values = {name: [v for side in sides for v in VALUES[side][name]] for name in names}
        return ", ".join(f"{name} = {self._chance.choice(of)}" for name, of in values.items())

    def _update(self) -> str:
        return f"UPDATE {{table}} AS t SET {self._assignments('t')} WHERE {self._condition('t')}"

    def _delete(self) -> str:
        share = f"t.id % 5 = {self._chance.randrange(5)}"
        return f"DELETE FROM {{table}} AS t WHERE ({self._condition('t')}) AND {share}"

    def _merge(self) -> str:
        ids = self._chance.sample(range(self._next_id + 4), min(self._next_id, 8))
        self._next_id += 4
        source = f"(SELECT * FROM VALUES {self._rows(ids)} AS v(id, n, x, s, p)) AS s"
        clauses = [*self._matched(), *self._not_matched(), *self._not_matched_by_source()]
        if not clauses:
            clauses = ["WHEN MATCHED THEN UPDATE SET *", "WHEN NOT MATCHED THEN INSERT *"]
        return f"MERGE INTO {{table}} AS t USING {source} ON t.id = s.id {' '.join(clauses)}"

    def _clauses(self, head: str, actions, *sides: str) -> Iterator[str]:
        count = self._chance.choice((0, 1, 1, 2))
        for number in range(count):
            is_last = number == count - 1
            condition = "" if is_last and self._chance.random() < 0.6 else f" AND ({self._condition(*sides)})"
            yield f"WHEN {head}{condition} THEN {self._chance.choice(actions)()}"

    def _matched(self) -> Iterator[str]:
        actions = (
            lambda: "UPDATE SET *",
            lambda: f"UPDATE SET {self._assignments('t', 'ts')}",
            lambda: "DELETE",
        )
        return self._clauses("MATCHED", actions, "t", "s", "ts")

    def _not_matched(self) -> Iterator[str]:
        actions = (lambda: "INSERT *", lambda: "INSERT (id, s, p) VALUES (s.id, concat(s.s, '!'), s.p)")
        return self._clauses("NOT MATCHED", actions, "s")

    def _not_matched_by_source(self) -> Iterator[str]:
        if self._chance.random() < 0.6:
            return iter(())
        actions = (lambda: f"UPDATE SET {self._assignments('t')}", lambda: "DELETE")
        return self._clauses("NOT MATCHED BY SOURCE AND t.id % 4 = 1", actions, "t")


@pytest.fixture
def pair(spark, tmp_path, request):
    """Runs a statement on both tables, and says what is in them."""

    class Pair:
        ours, theirs = f"holdfast.`{tmp_path / 'ours'}`", f"delta.`{tmp_path / 'theirs'}`"

        def run(self, text: str) -> None:
            holdfast.sql(spark, text.replace("{table}", self.ours))
            spark.sql(text.replace("{table}", self.theirs)).collect()

        def rows(self) -> tuple[list, list]:
            query = "SELECT id, n, x, s, p FROM {table}"
            found = holdfast.sql(spark, query.replace("{table}", self.ours)).collect()
            expected = spark.sql(query.replace("{table}", self.theirs)).collect()
            return sorted(map(tuple, found), key=repr), sorted(map(tuple, expected), key=repr)

    made = Pair()
    shape = getattr(request, "param", SHAPES["partitioned"])
    holdfast.sql(spark, f"CREATE TABLE {made.ours} ({COLUMNS}) USING holdfast {shape}")
    by = "PARTITIONED BY (p)" if "PARTITIONED" in shape else ""
    spark.sql(f"CREATE TABLE {made.theirs} ({COLUMNS}) USING delta {by}")
    return made


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("pair", "name"), [(shape, name) for name, shape in SHAPES.items()], ids=list(SHAPES), indirect=["pair"]
)
def test_random_statements_leave_the_rows_that_they_leave_in_delta(pair, name):
    done: list[str] = []
    for number, statement in enumerate(Author(f"{SEED} {name}").statements(STATEMENTS), 1):
        done.append(statement)
        pair.run(statement)
        if number % COMPARE_EVERY == 0 or number == STATEMENTS:
            ours, theirs = pair.rows()
            assert ours == theirs, f"seed {SEED}, after statement {number} of:\n" + "\n".join(
                done[-COMPARE_EVERY:]
            )
    assert theirs, "some rows are left to compare"


def test_both_refuse_a_source_that_meets_a_row_twice(pair, spark):
    pair.run("INSERT INTO {table} VALUES (1, 1, 1.0D, 'a', 'a')")
    source = "(SELECT 1 AS id UNION ALL SELECT 1)"
    twice = f"MERGE INTO {{table}} t USING {source} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = 5"

    with pytest.raises(Refused):
        holdfast.sql(spark, twice.replace("{table}", pair.ours))
    with pytest.raises(Exception, match="DELTA_MULTIPLE_SOURCE_ROW_MATCHING"):
        spark.sql(twice.replace("{table}", pair.theirs)).collect()

    ours, theirs = pair.rows()
    assert ours == theirs
