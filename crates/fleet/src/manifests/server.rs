//! The objects for one API server: an older one lacks admission policies, or the functions that validation rules call. Pure.

use serde_json::Value;

use super::install;
use super::names::IMAGE;

/// First minor version of Kubernetes 1 with the functions that the validation rules of the kinds call.
const RULES: u32 = 29;
/// First minor version of Kubernetes 1 with admission policies.
const POLICIES: u32 = 30;
/// Field of a schema with validation rules.
const RULES_FIELD: &str = "x-kubernetes-validations";

/// The objects that one API server takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Installation {
    /// The objects, in the order in which they are applied.
    pub objects: Vec<Value>,
    /// Sentences about what is left out, and what that means.
    pub left_out: Vec<String>,
}

/// Returns the objects for Kubernetes 1.`minor`, with `image` in both workloads.
#[must_use]
pub fn install_on(minor: u32, image: &str) -> Installation {
    let (mut objects, mut left_out) = (install(), Vec::new());
    objects.iter_mut().for_each(|object| set_image(object, image));
    if minor < RULES {
        objects.iter_mut().for_each(remove_rules);
        let meaning = "the server accepts some sets that the controller then refuses";
        left_out.push(format!("validation rules are left out, which need Kubernetes 1.{RULES}: {meaning}"));
    }
    if minor < POLICIES {
        objects.retain(|object| object["apiVersion"] != "admissionregistration.k8s.io/v1");
        let meaning = "a node can write the report of another node";
        left_out.push(format!("admission policies are left out, which need Kubernetes 1.{POLICIES}: {meaning}"));
    }
    Installation { objects, left_out }
}

fn set_image(value: &mut Value, image: &str) {
    each(value, &mut |object| {
        if object.get("image").is_some_and(|found| found == IMAGE) {
            object.insert("image".to_owned(), Value::from(image));
        }
    });
}

fn remove_rules(value: &mut Value) {
    each(value, &mut |object| drop(object.remove(RULES_FIELD)));
}

/// Calls the function with every object inside of the value.
fn each(value: &mut Value, change: &mut dyn FnMut(&mut serde_json::Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            change(object);
            object.values_mut().for_each(|value| each(value, change));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| each(value, change)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_servers_get_the_objects_that_they_take() {
        for (minor, rules, policies) in [(20, false, false), (28, false, false), (29, true, false), (30, true, true)] {
            let installation = install_on(minor, "r.example/imagelet:1");
            let text = serde_json::to_string(&installation.objects).expect("JSON");
            assert_eq!(text.contains(RULES_FIELD), rules, "rules on 1.{minor}");
            assert_eq!(text.contains("ValidatingAdmissionPolicy"), policies, "policies on 1.{minor}");
            assert_eq!(installation.left_out.len(), usize::from(!rules) + usize::from(!policies), "1.{minor}");
            assert_eq!(text.matches("\"image\":\"r.example/imagelet:1\"").count(), 2, "1.{minor}");
            assert!(!text.contains(IMAGE), "1.{minor}");
        }
        assert_eq!(install_on(99, IMAGE).objects, install(), "a new server gets everything");
    }
}
