//! Decides whether a pod wants this node, by its `nodeSelector` and the node affinity that it requires, as the scheduler reads them.
//! A term that cannot be read matches nothing. Pure. Called by [`super::admit`].

use std::collections::BTreeMap;

use serde_json::Value;

type NodeLabels = BTreeMap<String, String>;

/// Returns true if `spec` of a pod allows a node of this name with these labels.
pub(super) fn is_wanted(spec: &Value, name: &str, labels: &NodeLabels) -> bool {
    let selects = |(key, value): (&String, &Value)| labels.get(key).map(String::as_str) == value.as_str();
    if !spec["nodeSelector"].as_object().is_none_or(|selector| selector.iter().all(selects)) {
        return false;
    }
    let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    if required.is_null() {
        return true;
    }
    list(&required["nodeSelectorTerms"]).iter().any(|term| {
        let (expressions, fields) = (list(&term["matchExpressions"]), list(&term["matchFields"]));
        let names = NodeLabels::from([("metadata.name".to_owned(), name.to_owned())]);
        // A term without anything in it matches nothing.
        !(expressions.is_empty() && fields.is_empty())
            && expressions.iter().all(|expression| holds(expression, labels))
            && fields.iter().all(|field| holds(field, &names))
    })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn holds(expression: &Value, labels: &NodeLabels) -> bool {
    let Some(key) = expression["key"].as_str() else { return false };
    let label = labels.get(key).map(String::as_str);
    let mut values = list(&expression["values"]).iter().filter_map(Value::as_str);
    let number = |text: &str| text.parse::<i64>().ok();
    match expression["operator"].as_str() {
        Some("In") => label.is_some_and(|label| values.any(|value| value == label)),
        Some("NotIn") => label.is_none_or(|label| values.all(|value| value != label)),
        Some("Exists") => label.is_some(),
        Some("DoesNotExist") => label.is_none(),
        Some(order @ ("Gt" | "Lt")) => {
            let (Some(have), Some(bound)) = (label.and_then(number), values.next().and_then(number)) else {
                return false;
            };
            if order == "Gt" { have > bound } else { have < bound }
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn terms_are_alternatives_and_expressions_are_not() {
        let labels = NodeLabels::from([("disk", "ssd"), ("cores", "8")].map(|(k, v)| (k.to_owned(), v.to_owned())));
        let is = |key: &str, operator: &str, values: Value| json!({"key": key, "operator": operator, "values": values});
        let expressions = |list: Value| json!({"matchExpressions": list});
        let cases = [
            ("in", json!([expressions(json!([is("disk", "In", json!(["hdd", "ssd"]))]))]), true),
            ("not in", json!([expressions(json!([is("disk", "NotIn", json!(["ssd"]))]))]), false),
            ("not in, no label", json!([expressions(json!([is("zone", "NotIn", json!(["a"]))]))]), true),
            ("exists", json!([expressions(json!([is("zone", "Exists", json!(null))]))]), false),
            ("does not exist", json!([expressions(json!([is("zone", "DoesNotExist", json!(null))]))]), true),
            ("greater", json!([expressions(json!([is("cores", "Gt", json!(["7"]))]))]), true),
            ("less", json!([expressions(json!([is("cores", "Lt", json!(["8"]))]))]), false),
            ("no number", json!([expressions(json!([is("disk", "Gt", json!(["1"]))]))]), false),
            ("unknown operator", json!([expressions(json!([is("disk", "Like", json!(["s*"]))]))]), false),
            (
                "both",
                json!([expressions(json!([is("disk", "In", json!(["ssd"])), is("zone", "Exists", json!(null))]))]),
                false,
            ),
            (
                "either",
                json!([expressions(json!([is("zone", "Exists", json!(null))])), {"matchFields": [is("metadata.name", "In", json!(["edge"]))]}]),
                true,
            ),
            ("an empty term", json!([{}]), false),
            ("no term", json!([]), false),
        ];
        for (name, terms, want) in cases {
            let required = json!({"nodeSelectorTerms": terms});
            let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
            assert_eq!(is_wanted(&json!({"affinity": affinity}), "edge", &labels), want, "{name}");
        }
        assert!(is_wanted(&json!({"nodeSelector": {"disk": "ssd"}}), "edge", &labels));
        assert!(!is_wanted(&json!({"nodeSelector": {"disk": "ssd", "zone": ""}}), "edge", &labels));
        assert!(is_wanted(&json!({}), "edge", &labels));
    }
}
