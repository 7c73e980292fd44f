//! Which nodes a set selects: those that its selector matches, and those that it names. Pure. Called by the controller and the
//! daemon of a node, which have to agree.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::api::ImageSetSpec;

/// Labels of a node.
pub type Labels = BTreeMap<String, String>;

/// Returns true if the set selects the node. A set without selector and names selects no node.
#[must_use]
pub fn selects(set: &ImageSetSpec, node: &str, labels: &Labels) -> bool {
    set.node_names.iter().any(|name| name == node)
        || set.node_selector.as_ref().is_some_and(|selector| matches(selector, labels))
}

/// Returns true if the labels meet every requirement of the selector; an empty selector has none.
fn matches(selector: &LabelSelector, labels: &Labels) -> bool {
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    equal && selector.match_expressions.iter().flatten().all(|requirement| meets(requirement, labels))
}

/// Returns true if the labels meet the requirement. `NotIn` is met without the label, as in Kubernetes; an unknown operator is
/// never met.
pub(crate) fn meets(requirement: &LabelSelectorRequirement, labels: &Labels) -> bool {
    let value = labels.get(&requirement.key);
    let listed = || value.is_some_and(|value| requirement.values.iter().flatten().any(|listed| listed == value));
    match requirement.operator.as_str() {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(json: serde_json::Value) -> ImageSetSpec {
        let mut object = serde_json::json!({"images": [{"name": "app:1"}]});
        object.as_object_mut().expect("an object").extend(json.as_object().expect("an object").clone());
        serde_json::from_value(object).expect("a spec")
    }

    #[test]
    fn nodes_are_selected_by_labels_or_names() {
        let labels: Labels = [("zone", "a"), ("gpu", "")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let expression = |key: &str, operator: &str, values: &[&str]| serde_json::json!({"nodeSelector": {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}});
        for (name, json, want) in [
            ("no selector and no names", serde_json::json!({}), false),
            ("an empty selector is every node", serde_json::json!({"nodeSelector": {}}), true),
            ("a name", serde_json::json!({"nodeNames": ["n0", "n1"]}), true),
            ("another name", serde_json::json!({"nodeNames": ["n2"]}), false),
            ("a label", serde_json::json!({"nodeSelector": {"matchLabels": {"zone": "a"}}}), true),
            ("another value", serde_json::json!({"nodeSelector": {"matchLabels": {"zone": "b"}}}), false),
            ("no such label", serde_json::json!({"nodeSelector": {"matchLabels": {"arch": "a"}}}), false),
            (
                "name or label",
                serde_json::json!({"nodeNames": ["n1"], "nodeSelector": {"matchLabels": {"zone": "b"}}}),
                true,
            ),
            ("in", expression("zone", "In", &["a", "b"]), true),
            ("not in", expression("zone", "NotIn", &["a"]), false),
            ("not in, without the label", expression("arch", "NotIn", &["a"]), true),
            ("exists, without a value", expression("gpu", "Exists", &[]), true),
            ("does not exist", expression("gpu", "DoesNotExist", &[]), false),
            ("an operator of the future", expression("gpu", "Gt", &["0"]), false),
        ] {
            assert_eq!(selects(&set(json), "n1", &labels), want, "{name}");
        }
    }
}
