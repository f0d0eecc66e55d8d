"""The statements of Hudi's quick start for Spark SQL, with the name of the table changed."""

import pytest

import holdfast
from holdfast.statements.catalog import Catalog

pytestmark = pytest.mark.spark

CREATE = """
CREATE TABLE rides (
    ts BIGINT,
    uuid STRING,
    rider STRING,
    driver STRING,
    fare DOUBLE,
    city STRING
) USING HUDI
PARTITIONED BY (city);
"""
INSERT = """
INSERT INTO rides
VALUES
(1695159649087,'334e26e9-8355-45cc-97c6-c31daf0df330','rider-A','driver-K',19.10,'san_francisco'),
(1695091554788,'e96c4396-3fad-413a-a942-4cb36106d721','rider-C','driver-M',27.70 ,'san_francisco'),
(1695046462179,'9909a8b1-2d15-4d3d-8ec9-efc48c536a00','rider-D','driver-L',33.90 ,'san_francisco'),
(1695332066204,'1dced545-862b-4ceb-8b43-d2a568f6616b','rider-E','driver-O',93.50,'san_francisco'),
(1695516137016,'e3cf430c-889d-4015-bc98-59bdce1e530c','rider-F','driver-P',34.15,'sao_paulo'    ),
(1695376420876,'7a84095f-737f-40bc-b62f-6b69664712d2','rider-G','driver-Q',43.40 ,'sao_paulo'    ),
(1695173887231,'3eeb61f7-c2b0-4636-99bd-5d7a5a1d2c04','rider-I','driver-S',41.06 ,'chennai'      ),
(1695115999911,'c8abbe79-8d89-47ea-b4ce-4d224bae5bfa','rider-J','driver-T',17.85,'chennai');
"""
ADJUSTMENT = """
CREATE TABLE fare_adjustment (ts BIGINT, uuid STRING, rider STRING, driver STRING, fare DOUBLE, city STRING)
USING HUDI;
"""
ADJUST = """
INSERT INTO fare_adjustment VALUES
(1695091554788,'e96c4396-3fad-413a-a942-4cb36106d721','rider-C','driver-M',-2.70 ,'san_francisco'),
(1695530237068,'3f3d9565-7261-40e6-9b39-b8aa784f95e2','rider-K','driver-U',64.20 ,'san_francisco'),
(1695241330902,'ea4c36ff-2069-4148-9927-ef8c1a5abd24','rider-H','driver-R',66.60 ,'sao_paulo'    ),
(1695115999911,'c8abbe79-8d89-47ea-b4ce-4d224bae5bfa','rider-J','driver-T',1.85,'chennai'      );
"""
MERGE = """
MERGE INTO rides AS target
USING fare_adjustment AS source
ON target.uuid = source.uuid
WHEN MATCHED THEN UPDATE SET target.fare = target.fare + source.fare
WHEN NOT MATCHED THEN INSERT *
;
"""


@pytest.fixture
def run(spark, tmp_path):
    catalog = Catalog(warehouse=str(tmp_path))

    def run(text):
        answer = holdfast.sql(spark, text, catalog=catalog)
        return [tuple(row) for row in answer.collect()] if hasattr(answer, "collect") else answer

    return run


def test_the_quick_start_runs_as_it_is_written(run, tmp_path):
    run(CREATE)
    run(INSERT)
    assert len(run("SELECT ts, fare, rider, driver, city FROM  rides WHERE fare > 20.0;")) == 6

    run("UPDATE rides SET fare = 25.0 WHERE rider = 'rider-D';")
    assert run("SELECT fare FROM rides WHERE rider = 'rider-D'") == [(25.0,)]

    run(ADJUSTMENT)
    run(ADJUST)
    run(MERGE)
    fares = dict(run("SELECT rider, fare FROM rides"))
    assert [fares[f"rider-{name}"] for name in "CJK"] == pytest.approx([25.0, 19.7, 64.2])
    assert len(fares) == 10

    run("DELETE FROM rides WHERE uuid = '3f3d9565-7261-40e6-9b39-b8aa784f95e2';")
    assert run("SELECT count(*) FROM rides") == [(9,)]

    first = holdfast.open_table(str(tmp_path / "rides")).timeline()[0].time
    assert run(f"SELECT count(*) FROM rides TIMESTAMP AS OF '{first}' WHERE fare > 20.0") == [(6,)]
    stamp = f"{first[:4]}-{first[4:6]}-{first[6:8]} {first[8:10]}:{first[10:12]}:{first[12:14]}.{first[14:]}"
    assert run(f"SELECT count(*) FROM rides TIMESTAMP AS OF '{stamp}'") == [(8,)]

    changed = f"SELECT * FROM hudi_table_changes('rides', 'latest_state', '{first}')"
    assert len(run(changed)) == 4
    assert run("CALL show_commits(table => 'rides', limit => 1)")[0][2] == "DELETE"
