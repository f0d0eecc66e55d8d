"""Spark types and Arrow types: the same columns in two spellings."""

import pyarrow as pa
from pyspark.sql import types as spark

from holdfast.errors import SchemaMismatch

_TO_ARROW: dict[type[spark.DataType], pa.DataType] = {
    spark.BooleanType: pa.bool_(),
    spark.ByteType: pa.int8(),
    spark.ShortType: pa.int16(),
    spark.IntegerType: pa.int32(),
    spark.LongType: pa.int64(),
    spark.FloatType: pa.float32(),
    spark.DoubleType: pa.float64(),
    spark.StringType: pa.string(),
    spark.CharType: pa.string(),
    spark.VarcharType: pa.string(),
    spark.BinaryType: pa.binary(),
    spark.DateType: pa.date32(),
    spark.TimestampType: pa.timestamp("us", "UTC"),
    spark.TimestampNTZType: pa.timestamp("us"),
}


def arrow_schema_of(schema: spark.StructType) -> pa.Schema:
    """The Arrow schema of a DataFrame; `SchemaMismatch` names a column that has none."""
    return pa.schema([pa.field(f.name, _to_arrow(f.dataType, f.name)) for f in schema.fields])


def spark_schema_of(schema: pa.Schema) -> spark.StructType:
    """The Spark schema, everything nullable, in which stored columns are read."""
    return spark.StructType([spark.StructField(field.name, spark_type_of(field.type)) for field in schema])


def spark_type_of(kind: pa.DataType) -> spark.DataType:
    """The Spark type in which a stored type is read."""
    if pa.types.is_decimal(kind):
        return spark.DecimalType(kind.precision, kind.scale)
    if pa.types.is_list(kind):
        return spark.ArrayType(spark_type_of(kind.value_type))
    if pa.types.is_map(kind):
        return spark.MapType(spark_type_of(kind.key_type), spark_type_of(kind.item_type))
    if pa.types.is_struct(kind):
        return spark.StructType([spark.StructField(f.name, spark_type_of(f.type)) for f in kind])
    if pa.types.is_timestamp(kind):
        return spark.TimestampType() if kind.tz else spark.TimestampNTZType()
    if pa.types.is_fixed_size_binary(kind):
        return spark.BinaryType()
    return next(spark_type() for spark_type, arrow in _TO_ARROW.items() if arrow == kind)


def _to_arrow(kind: spark.DataType, path: str) -> pa.DataType:
    if isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, spark.ArrayType):
        return pa.list_(pa.field("element", _to_arrow(kind.elementType, f"{path}.element")))
    if isinstance(kind, spark.MapType):
        return pa.map_(_to_arrow(kind.keyType, f"{path}.key"), _to_arrow(kind.valueType, f"{path}.value"))
    if isinstance(kind, spark.StructType):
        return pa.struct([pa.field(f.name, _to_arrow(f.dataType, f"{path}.{f.name}")) for f in kind.fields])
    arrow = next((arrow for spark_type, arrow in _TO_ARROW.items() if isinstance(kind, spark_type)), None)
    if arrow is None:
        raise SchemaMismatch("this type cannot be stored", column=path, type=kind.simpleString())
    return arrow
