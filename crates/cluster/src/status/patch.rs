//! [`patch`]: the two-way merge patch from the status of a pod on its server to the one that it should have, as a strategic merge.
//! Foreign fields and conditions are not in it. Pure. Called by [`super::StatusManager`].

use serde_json::{Map, Value, json};

/// Fields of a pod's status that its node writes. `qosClass` is written once.
const FIELDS: [&str; 15] = [
    "phase",
    "message",
    "reason",
    "conditions",
    "hostIP",
    "hostIPs",
    "podIP",
    "podIPs",
    "startTime",
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
    "observedGeneration",
    "resourceClaimStatuses",
    "qosClass",
];
/// Fields that only other writers set, or that keep their first value.
const KEPT: [&str; 2] = ["resourceClaimStatuses", "qosClass"];
/// Lists that a strategic merge adds to.
const ADDRESSES: [&str; 2] = ["hostIPs", "podIPs"];

/// Returns the patch of `pods/status`, with the uid of the pod as its precondition, or `None` without a change.
pub(crate) fn patch(uid: &str, old: &Value, new: &Value) -> Option<Value> {
    let (old, new) = (without_nulls(old), without_nulls(new));
    let mut status = Map::new();
    for field in FIELDS {
        let (before, after) = (old.get(field), new.get(field));
        if before == after || (before.is_some() && KEPT.contains(&field)) {
            continue;
        }
        let change = match (field, after) {
            ("conditions", after) => match conditions(before, after) {
                list if list.is_empty() => continue,
                list => Value::Array(list),
            },
            (_, None) if before.is_none_or(is_nothing) => continue,
            (_, None) => Value::Null,
            (_, Some(after)) if ADDRESSES.contains(&field) && before.is_some() => {
                status.insert(format!("$setElementOrder/{field}"), after.clone());
                addresses(before, after)
            }
            (_, Some(after)) => after.clone(),
        };
        status.insert(field.to_owned(), change);
    }
    (!status.is_empty()).then(|| json!({"metadata": {"uid": uid}, "status": status}))
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// New addresses, and directives that delete the removed ones.
fn addresses(before: Option<&Value>, after: &Value) -> Value {
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let (before, mut entries) = (list(before), list(Some(after)));
    let removed = before.iter().filter(|old| !entries.contains(old));
    let removed: Vec<Value> = removed.map(|old| json!({"ip": old["ip"], "$patch": "delete"})).collect();
    entries.extend(removed);
    Value::Array(entries)
}

/// Returns the changed conditions, each with nulls for removed fields.
fn conditions(before: Option<&Value>, after: Option<&Value>) -> Vec<Value> {
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let before = list(before);
    let mut changed = Vec::new();
    for condition in list(after) {
        let old = before.iter().find(|old| old["type"] == condition["type"]);
        if old == Some(&condition) {
            continue;
        }
        let mut condition = condition;
        if let (Some(old), Some(new)) = (old.and_then(Value::as_object), condition.as_object_mut()) {
            for key in old.keys().filter(|key| *key != "lastProbeTime") {
                new.entry(key.clone()).or_insert(Value::Null);
            }
        }
        changed.push(condition);
    }
    changed
}

/// Returns the value without nulls: servers write `"startedAt": null` or omit it.
pub(crate) fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let fields = map.iter().filter(|(_, value)| !value.is_null());
            fields.map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        Value::Array(list) => list.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(status: &str) -> Value {
        json!({"type": "Ready", "status": status, "lastTransitionTime": "2026-11-23T10:00:00Z"})
    }

    #[test]
    fn a_patch_says_what_changed_and_nothing_of_others() {
        let foreign = json!({"type": "example.com/gate", "status": "True"});
        let cases = [
            ("nothing", json!({"phase": "Running"}), json!({"phase": "Running"}), None),
            (
                "nulls are nothing",
                json!({"containerStatuses": [{"state": {"running": {"startedAt": null}}}]}),
                json!({"containerStatuses": [{"state": {"running": {}}}], "reason": null}),
                None,
            ),
            (
                "phase, and a reason that is gone",
                json!({"phase": "Pending", "reason": "Odd", "nominatedNodeName": "n"}),
                json!({"phase": "Running"}),
                Some(json!({"phase": "Running", "reason": null})),
            ),
            (
                "a condition of ours beside one of others",
                json!({"conditions": [ready("False"), foreign]}),
                json!({"conditions": [ready("True")]}),
                Some(json!({"conditions": [ready("True")]})),
            ),
            (
                "a reason of a condition goes",
                json!({"conditions": [{"type": "Ready", "status": "False", "reason": "R", "lastProbeTime": "x"}]}),
                json!({"conditions": [{"type": "Ready", "status": "True"}]}),
                Some(json!({"conditions": [{"type": "Ready", "status": "True", "reason": null}]})),
            ),
            (
                "an address instead of another",
                json!({"podIPs": [{"ip": "10.0.0.1"}]}),
                json!({"podIPs": [{"ip": "10.0.0.2"}]}),
                Some(json!({
                    "podIPs": [{"ip": "10.0.0.2"}, {"ip": "10.0.0.1", "$patch": "delete"}],
                    "$setElementOrder/podIPs": [{"ip": "10.0.0.2"}],
                })),
            ),
            // Where there is no list yet, servers take orders in it for entries.
            (
                "the first address",
                json!({}),
                json!({"podIPs": [{"ip": "10.0.0.1"}]}),
                Some(json!({"podIPs": [{"ip": "10.0.0.1"}]})),
            ),
            ("the class stays", json!({"qosClass": "Burstable"}), json!({"qosClass": "BestEffort"}), None),
        ];
        for (name, old, new, want) in cases {
            let want = want.map(|status| json!({"metadata": {"uid": "u"}, "status": status}));
            assert_eq!(patch("u", &old, &new), want, "{name}");
        }
    }
}
