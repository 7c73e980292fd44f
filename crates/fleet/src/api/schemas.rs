//! Schemas of fields whose types are those of Kubernetes, in the structural form that API servers require. Every string is
//! bounded and has a pattern where the reader of the type is strict, so that a stored object can always be read.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Go's durations, without signs.
const DURATION: &str = r"^([0-9]{1,9}(\.[0-9]{1,9})?(ns|us|ms|s|m|h))+$";
/// Numbers of bytes, with a suffix of Kubernetes.
const AMOUNT: &str = r"^[0-9]{1,12}(Ki|Mi|Gi|Ti|k|M|G|T)?$";
/// Percentages from 0 to 100.
const PERCENT: &str = r"^(100|[1-9]?[0-9])%$";

pub(super) fn duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "pattern": DURATION, "maxLength": 32})
}

pub(super) fn share(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true, "minimum": 0, "maximum": i32::MAX, "pattern": PERCENT, "maxLength": 4})
}

pub(super) fn optional_share(generator: &mut SchemaGenerator) -> Schema {
    share(generator)
}

pub(super) fn min_free(_: &mut SchemaGenerator) -> Schema {
    let pattern = format!("({PERCENT})|({AMOUNT})");
    json_schema!({
        "x-kubernetes-int-or-string": true, "minimum": 0, "maximum": i32::MAX, "pattern": pattern, "maxLength": 16
    })
}

pub(super) fn optional_rank(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "pattern": "^[0-9a-f]{16}$", "maxLength": 16})
}

pub(super) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

pub(super) fn optional_time(generator: &mut SchemaGenerator) -> Schema {
    time(generator)
}

pub(super) fn count(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "format": "int64", "minimum": 0, "maximum": u32::MAX})
}

pub(super) fn amount_of_bytes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "format": "int64", "minimum": 0})
}

pub(super) fn node_names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "maxItems": 10_000, "x-kubernetes-list-type": "set",
        "items": {"type": "string", "minLength": 1, "maxLength": 253}
    })
}

pub(super) fn namespaces(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "maxItems": 500, "x-kubernetes-list-type": "set",
        "items": {"type": "string", "minLength": 1, "maxLength": 63}
    })
}

pub(super) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "description": "Labels with exactly these values.",
                "type": "object",
                "maxProperties": 64,
                "additionalProperties": {"type": "string", "maxLength": 63}
            },
            "matchExpressions": {
                "description": "Further requirements; a node has to meet all of them.",
                "type": "array",
                "maxItems": 64,
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"description": "Key of the label.", "type": "string", "minLength": 1, "maxLength": 317},
                        "operator": {
                            "description": "Relation of the label to the values.",
                            "type": "string",
                            "enum": ["In", "NotIn", "Exists", "DoesNotExist"]
                        },
                        "values": {
                            "description": "Values for In and NotIn.",
                            "type": "array",
                            "maxItems": 256,
                            "items": {"type": "string", "maxLength": 63}
                        }
                    }
                }
            }
        }
    })
}

pub(super) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {"description": "Name of the condition.", "type": "string", "maxLength": 316},
                "status": {"description": "State of the condition.", "type": "string", "enum": ["True", "False", "Unknown"]},
                "observedGeneration": {
                    "description": "Generation of the object that the condition is for.",
                    "type": "integer", "format": "int64", "minimum": 0
                },
                "lastTransitionTime": {
                    "description": "Time at which the status last changed.", "type": "string", "format": "date-time"
                },
                "reason": {"description": "Reason in one word.", "type": "string", "minLength": 1, "maxLength": 1024},
                "message": {"description": "Explanation for people.", "type": "string", "maxLength": 32_768}
            }
        }
    })
}
