//! Two-way strategic merge patches of a Node's status: only what changed, conditions by their type, addresses as a whole. Pure.
//! Called by [`super::NodeKeeper`].

use k8s_openapi::api::core::v1::{NodeCondition, NodeStatus};
use serde_json::{Map, Value, json};

/// Fields of a status that old servers do not know and refuse in a patch.
const NEWER: [&str; 2] = ["features", "runtimeHandlers"];

/// Returns the status without fields that old servers refuse.
pub(super) fn without_newer_fields(status: &NodeStatus) -> NodeStatus {
    let mut status = NodeStatus { features: None, runtime_handlers: None, ..status.clone() };
    if let Some(info) = &mut status.node_info {
        info.swap = None;
    }
    status
}

/// Returns true if the message means that the server does not know a field of a patch.
pub(super) fn is_unknown_field(message: &str) -> bool {
    message.contains("unable to find api field")
        && (NEWER.iter().any(|field| message.contains(field)) || message.contains("swap"))
}

/// Returns true if more than the times of heartbeats differs. The order of conditions does not count.
#[must_use]
pub fn has_changed(old: &NodeStatus, new: &NodeStatus) -> bool {
    let comparable = |status: &NodeStatus| {
        let mut status = status.clone();
        let conditions = status.conditions.get_or_insert_default();
        for condition in conditions.iter_mut() {
            condition.last_heartbeat_time = None;
        }
        conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
        status
    };
    comparable(old) != comparable(new)
}

/// Returns the patch from `old` to `new` for the Node with this UID, or `None` if they are the same.
#[must_use]
pub fn status_patch(uid: &str, old: &NodeStatus, new: &NodeStatus) -> Option<Value> {
    let object = |status: &NodeStatus| match serde_json::to_value(status) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    };
    let (mut before, mut after) = (object(old), object(new));
    // Merged by type, since other clients may have changed them meanwhile.
    before.remove("conditions");
    after.remove("conditions");
    let addresses = after.remove("addresses").filter(|addresses| before.get("addresses") != Some(addresses));
    before.remove("addresses");
    let mut patch = merge(&before, &after);
    if let Some(Value::Array(mut addresses)) = addresses {
        addresses.push(json!({"$patch": "replace"}));
        patch.insert("addresses".to_owned(), Value::Array(addresses));
    }
    let new_conditions = new.conditions.as_deref().unwrap_or_default();
    let changed = conditions(old.conditions.as_deref().unwrap_or_default(), new_conditions);
    if !changed.is_empty() {
        let order: Vec<Value> = new_conditions.iter().map(|condition| json!({"type": condition.type_})).collect();
        patch.insert("$setElementOrder/conditions".to_owned(), Value::Array(order));
        patch.insert("conditions".to_owned(), Value::Array(changed));
    }
    (!patch.is_empty()).then(|| json!({"metadata": {"uid": uid}, "status": patch}))
}

/// Returns the differences: removed fields are null, lists are replaced as a whole.
fn merge(old: &Map<String, Value>, new: &Map<String, Value>) -> Map<String, Value> {
    let mut patch = Map::new();
    for (key, value) in new {
        match (old.get(key), value) {
            (Some(before), after) if before == after => {}
            (Some(Value::Object(before)), Value::Object(after)) => {
                patch.insert(key.clone(), Value::Object(merge(before, after)));
            }
            _ => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    let removed = old.keys().filter(|key| !new.contains_key(*key));
    patch.extend(removed.map(|key| (key.clone(), Value::Null)));
    patch
}

/// Returns the changed conditions: their type, and the changed fields.
fn conditions(old: &[NodeCondition], new: &[NodeCondition]) -> Vec<Value> {
    let object = |condition: &NodeCondition| match serde_json::to_value(condition) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    };
    let changed = new.iter().filter_map(|condition| {
        let before = old.iter().find(|before| before.type_ == condition.type_).map(object).unwrap_or_default();
        let mut patch = merge(&before, &object(condition));
        if patch.is_empty() {
            return None;
        }
        patch.insert("type".to_owned(), json!(condition.type_));
        Some(Value::Object(patch))
    });
    changed.collect()
}

#[cfg(test)]
#[path = "patch_tests.rs"]
mod tests;
