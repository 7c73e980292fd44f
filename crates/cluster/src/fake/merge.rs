//! Strategic merges of the status of pods and nodes, as far as nodes ask for them.

use serde_json::{Map, Value};

/// Lists whose entries have a key, and the key.
const KEYED: [(&str, &str); 3] = [("conditions", "type"), ("podIPs", "ip"), ("hostIPs", "ip")];

/// Merges `patch` into `value`.
pub(super) fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    // The order of lists is that of a real server's affair.
    for (field, change) in patch.iter().filter(|(field, _)| !field.starts_with("$setElementOrder/")) {
        let key = KEYED.iter().find(|(name, _)| name == field).map(|(_, key)| *key);
        let Some(object) = value.as_object_mut() else { return };
        match (key, change) {
            (_, Value::Null) => drop(object.remove(field)),
            (Some(key), Value::Array(list)) => {
                let entry = object.entry(field.clone()).or_insert_with(|| Value::Array(Vec::new()));
                merge_list(entry, list, key);
            }
            (None, Value::Array(list)) => {
                // The order to replace the whole list is an entry of it.
                let entries = list.iter().filter(|entry| entry["$patch"].is_null()).cloned().collect();
                object.insert(field.clone(), entries);
            }
            (_, Value::Object(_)) => merge(object.entry(field.clone()).or_insert(Value::Null), change),
            (_, other) => drop(object.insert(field.clone(), other.clone())),
        }
    }
}

fn merge_list(value: &mut Value, patch: &[Value], key: &str) {
    let Value::Array(list) = value else { return };
    for entry in patch {
        if entry["$patch"] == "delete" {
            list.retain(|known| known[key] != entry[key]);
            continue;
        }
        match list.iter_mut().find(|known| known[key] == entry[key]) {
            Some(known) => merge(known, entry),
            None => {
                let mut new = Value::Null;
                merge(&mut new, entry);
                list.push(new);
            }
        }
    }
}
