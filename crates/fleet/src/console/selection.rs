//! Why a set selects a node or does not, in words. Pure. Agrees with [`crate::selection::selects`], which decides. Called by
//! [`super::explanation`].

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

use crate::api::ImageSetSpec;
use crate::selection::{Labels, meets};

/// Returns the reason for which the set selects the node, or `Err` with everything that is missing.
pub(super) fn reason(set: &ImageSetSpec, node: &str, labels: &Labels) -> Result<String, String> {
    if set.node_names.iter().any(|name| name == node) {
        return Ok("nodeNames has this node".to_owned());
    }
    let Some(selector) = &set.node_selector else {
        return Err(match set.node_names.is_empty() {
            true => "the set has neither nodeSelector nor nodeNames".to_owned(),
            false => "nodeNames does not have this node, and there is no nodeSelector".to_owned(),
        });
    };
    let equal = selector.match_labels.iter().flatten();
    let wrong = equal.clone().filter(|(key, value)| labels.get(*key) != Some(value)).map(|(key, value)| {
        let found =
            labels.get(key).map_or_else(|| "has no such label".to_owned(), |found| format!("has {key}={found}"));
        format!("{key}={value} is required, and the node {found}")
    });
    let requirements = selector.match_expressions.iter().flatten();
    let unmet = requirements.clone().filter(|requirement| !meets(requirement, labels)).map(|requirement| {
        let found = labels.get(&requirement.key);
        let found =
            found.map_or_else(|| "has no such label".to_owned(), |found| format!("has {}={found}", requirement.key));
        format!("{} is required, and the node {found}", shown(requirement))
    });
    let problems: Vec<String> = wrong.chain(unmet).collect();
    if !problems.is_empty() {
        return Err(problems.join("; "));
    }
    let met: Vec<String> = equal.map(|(key, value)| format!("{key}={value}")).chain(requirements.map(shown)).collect();
    Ok(if met.is_empty() { "the empty nodeSelector matches every node".to_owned() } else { met.join(", ") })
}

/// Returns a requirement as kubectl writes it: `zone in (a,b)`.
fn shown(requirement: &LabelSelectorRequirement) -> String {
    let key = &requirement.key;
    let values = requirement.values.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(",");
    match requirement.operator.as_str() {
        "In" => format!("{key} in ({values})"),
        "NotIn" => format!("{key} notin ({values})"),
        "Exists" => key.clone(),
        "DoesNotExist" => format!("!{key}"),
        other => format!("{key} {other} ({values})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::selects;

    #[test]
    fn the_missing_label_is_named() {
        let labels: Labels =
            [("role", "db"), ("gpu", "")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let expression = |key: &str, operator: &str, values: &[&str]| serde_json::json!({"nodeSelector": {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}});
        for (json, want) in [
            (serde_json::json!({}), "the set has neither nodeSelector nor nodeNames"),
            (
                serde_json::json!({"nodeNames": ["n2"]}),
                "nodeNames does not have this node, and there is no nodeSelector",
            ),
            (serde_json::json!({"nodeNames": ["n1"]}), "nodeNames has this node"),
            (serde_json::json!({"nodeSelector": {}}), "the empty nodeSelector matches every node"),
            (serde_json::json!({"nodeSelector": {"matchLabels": {"role": "db"}}}), "role=db"),
            (
                serde_json::json!({"nodeSelector": {"matchLabels": {"role": "web", "zone": "a"}}}),
                "role=web is required, and the node has role=db; zone=a is required, and the node has no such label",
            ),
            (expression("zone", "In", &["a", "b"]), "zone in (a,b) is required, and the node has no such label"),
            (expression("role", "NotIn", &["db"]), "role notin (db) is required, and the node has role=db"),
            (expression("gpu", "DoesNotExist", &[]), "!gpu is required, and the node has gpu="),
            (expression("gpu", "Exists", &[]), "gpu"),
        ] {
            let mut object = serde_json::json!({"images": [{"name": "app:1"}]});
            object.as_object_mut().expect("an object").extend(json.as_object().expect("an object").clone());
            let set: ImageSetSpec = serde_json::from_value(object).expect("a spec");
            let reason = reason(&set, "n1", &labels);
            assert_eq!(reason.is_ok(), selects(&set, "n1", &labels), "{json}");
            assert_eq!(reason.unwrap_or_else(|problem| problem), want, "{json}");
        }
    }
}
