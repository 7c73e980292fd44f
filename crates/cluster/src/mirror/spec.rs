//! Takes out of the spec of a local pod what its mirror must not have: an API server refuses mirror pods that name its objects.
//! Pure. Called by [`super::mirror_of`].

use serde_json::{Value, json};

/// Sources of volumes that name objects of a server, or are made by one.
const VOLUMES: [&str; 5] = ["configMap", "secret", "projected", "persistentVolumeClaim", "csi"];

/// Takes them out, and answers their paths.
pub(super) fn leave_out(spec: &mut Value) -> Vec<String> {
    let mut left = Vec::new();
    for field in ["serviceAccountName", "serviceAccount", "imagePullSecrets", "resourceClaims"] {
        let taken = spec.as_object_mut().and_then(|spec| spec.remove(field));
        if taken.is_some_and(|value| !value.as_str().is_some_and(str::is_empty)) {
            left.push(format!("spec.{field}"));
        }
    }
    // A pod that only its manifest can end must not be evicted.
    spec["tolerations"] = json!([{"operator": "Exists", "effect": "NoExecute"}]);
    // Otherwise the server gives it a token.
    spec["automountServiceAccountToken"] = json!(false);
    for (index, volume) in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten().enumerate() {
        let named = VOLUMES.iter().find(|source| volume.get(**source).is_some());
        if let Some(source) = named {
            left.push(format!("spec.volumes[{index}].{source}"));
            *volume = json!({"name": volume["name"], "emptyDir": {}});
        }
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for (index, container) in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().enumerate() {
            leave_out_variables(container, &format!("spec.{list}[{index}]"), &mut left);
        }
    }
    // Those of a manifest are not a part of a pod that is created.
    if spec.as_object_mut().and_then(|spec| spec.remove("ephemeralContainers")).is_some() {
        left.push("spec.ephemeralContainers".to_owned());
    }
    left
}

fn leave_out_variables(container: &mut Value, path: &str, left: &mut Vec<String>) {
    let Some(fields) = container.as_object_mut() else { return };
    if fields.remove("envFrom").is_some() {
        left.push(format!("{path}.envFrom"));
    }
    if let Some(Value::Array(variables)) = fields.get_mut("env") {
        variables.retain(|variable| {
            let from = &variable["valueFrom"];
            let named = from.get("configMapKeyRef").is_some() || from.get("secretKeyRef").is_some();
            if named {
                left.push(format!("{path}.env[{}]", variable["name"].as_str().unwrap_or_default()));
            }
            !named
        });
    }
}
