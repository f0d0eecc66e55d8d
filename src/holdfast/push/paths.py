"""Where the records of the push service are: Pinot's places, and those of its own beside them."""

CONFIGS = "/PROPERTYSTORE/CONFIGS/TABLE"
SCHEMAS = "/PROPERTYSTORE/SCHEMAS"


def config_path(table: str) -> str:
    return f"{CONFIGS}/{table}"


def schema_path(name: str) -> str:
    return f"{SCHEMAS}/{name}"


def lineage_path(table: str) -> str:
    return f"/PROPERTYSTORE/SEGMENT_LINEAGE/{table}"


def segments_path(table: str) -> str:
    return f"/PROPERTYSTORE/SEGMENTS/{table}"


def segment_path(table: str, segment: str) -> str:
    return f"{segments_path(table)}/{segment}"


def ideal_state_path(table: str) -> str:
    return f"/IDEALSTATES/{table}"


def external_view_path(table: str) -> str:
    return f"/EXTERNALVIEW/{table}"


def push_state_path(table: str) -> str:
    return f"/PROPERTYSTORE/PUSH_STATE/{table}"


def broker_epochs_path(table: str) -> str:
    return f"/PROPERTYSTORE/BROKER_EPOCHS/{table}"


def broker_epoch_path(table: str, broker: str) -> str:
    return f"{broker_epochs_path(table)}/{broker}"
