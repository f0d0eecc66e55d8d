"""Avro as Hudi reads and writes it: records by the schemas of its own release 0.15."""

import io
import json

import fastavro

NAMESPACE = "org.apache.hudi.avro.model"
INSTANT = {
    "type": "record",
    "name": "HoodieInstantInfo",
    "namespace": NAMESPACE,
    "fields": [{"name": "commitTime", "type": "string"}, {"name": "action", "type": "string"}],
}
_SIZES = ["null", {"type": "map", "values": "long"}]
_ROLLED_BACK_PARTITION = {
    "type": "record",
    "name": "HoodieRollbackPartitionMetadata",
    "fields": [
        {"name": "partitionPath", "type": "string"},
        {"name": "successDeleteFiles", "type": {"type": "array", "items": "string"}},
        {"name": "failedDeleteFiles", "type": {"type": "array", "items": "string"}},
        {"name": "rollbackLogFiles", "type": _SIZES, "default": None},
        {"name": "logFilesFromFailedCommit", "type": _SIZES, "default": None},
    ],
}
ROLLBACK = {
    "type": "record",
    "name": "HoodieRollbackMetadata",
    "namespace": NAMESPACE,
    "fields": [
        {"name": "startRollbackTime", "type": "string"},
        {"name": "timeTakenInMillis", "type": "long"},
        {"name": "totalFilesDeleted", "type": "int"},
        {"name": "commitsRollback", "type": {"type": "array", "items": "string"}},
        {"name": "partitionMetadata", "type": {"type": "map", "values": _ROLLED_BACK_PARTITION}},
        {"name": "version", "type": ["int", "null"], "default": 1},
        {"name": "instantsRollback", "type": {"type": "array", "items": INSTANT}, "default": []},
    ],
}


def read_by_hudi(content, schema):
    (record,) = fastavro.reader(io.BytesIO(content), reader_schema=schema)
    return record


def written_by_hudi(schema, record):
    buffer = io.BytesIO()
    fastavro.writer(buffer, schema, [record])
    return buffer.getvalue()


def embedded_schema(content):
    """The schema in the header of a container."""
    return json.loads(fastavro.reader(io.BytesIO(content)).metadata["avro.schema"])
