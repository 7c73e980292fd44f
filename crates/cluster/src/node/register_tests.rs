//! Tests of what a registration changes of a Node that exists. The requests are tested with the keeper.

use serde_json::{Value, from_value};

use super::super::{Machine, NodeIdentity};
use super::*;

fn initial() -> Node {
    let identity = NodeIdentity { name: "n".into(), hostname: "n".into(), ..NodeIdentity::default() };
    let clock = std::sync::Arc::new(jiff::Timestamp::now);
    initial_node(&NodeOptions::new(identity, Machine::default(), "i".into(), clock), NodeStatus::default())
}

fn node(value: Value) -> Node {
    from_value(value).expect("a Node")
}

// upstream: nodestatus/TestTryRegisterWithApiServer/success case - existing node - no change in CMAD
// upstream: nodestatus/TestTryRegisterWithApiServer/success case - existing node - CMAD enabled
#[test]
fn only_what_differs_is_changed() {
    let initial = initial();
    assert_eq!(initial.spec, Some(NodeSpec::default()), "no taint and no providerID where none is wanted");
    let mut same = initial.clone();
    same.metadata.uid = Some("u".into());
    same.metadata.labels.get_or_insert_default().insert("more".into(), "stays".into());
    assert_eq!(reconcile(&initial, &same), None);
    let bare = node(json!({"metadata": {"name": "n", "uid": "u"}}));
    let patch = reconcile(&initial, &bare).expect("a change");
    assert_eq!(patch["metadata"]["uid"], "u", "another Node of the name is not changed");
    assert_eq!(patch["metadata"]["labels"].as_object().map(serde_json::Map::len), Some(5));
    assert_eq!(patch["metadata"]["annotations"], json!({ATTACH: "true", INSTANCE: "i"}));
}
