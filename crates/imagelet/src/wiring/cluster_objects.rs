//! Converts the objects that an API server has for a pod for the crate that runs pods: documents, tokens, pull secrets, the variables by
//! which containers find the server, and the fields of this node's Node object. Holds no rule of its own. Called by
//! [`super::cluster_pods`].

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::object_cache::{Lookup, ObjectCache, ObjectKind, ObjectName};
use cluster::pull_secrets;
use cluster::tokens::{TokenManager, TokenRequest};
use credentials::{Origin, ServiceAccount};
use kuberuntime::pod::Pod;
use kuberuntime::sync::PodCredentials;
use kuberuntime::{Document, DocumentContent, DocumentKind, Documents, NodeCapacity, TokenKey};
use oci::Secret;
use serde_json::Value;

/// Time that a sync waits for the first answer about an object, as in the kubelet.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the service by which containers find the API server.
pub(super) fn api_service() -> ObjectName {
    ObjectName { kind: ObjectKind::Service, namespace: "default".to_owned(), name: "kubernetes".to_owned() }
}

fn object_name(pod: &Pod, kind: DocumentKind, name: String) -> ObjectName {
    let kind = match kind {
        DocumentKind::ConfigMap => ObjectKind::ConfigMap,
        DocumentKind::Secret => ObjectKind::Secret,
    };
    ObjectName { kind, namespace: pod.metadata.namespace.clone(), name }
}

pub(super) fn named(pod: &Pod) -> impl Iterator<Item = ObjectName> {
    pod.documents().into_iter().map(|(kind, name)| object_name(pod, kind, name))
}

/// Returns the capacity of this node from its Node object.
pub(super) fn capacity(node: &Value) -> NodeCapacity {
    let allocatable = node["status"]["allocatable"].as_object();
    let amounts = allocatable.into_iter().flatten();
    let amounts: BTreeMap<_, _> = amounts
        .filter_map(|(name, amount)| Some((name.clone(), amount.as_str()?.parse::<oci::Quantity>().ok()?)))
        .collect();
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    NodeCapacity {
        name: node["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        labels: labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect(),
        pods: amounts.get("pods").and_then(|pods| usize::try_from(pods.value()).ok()),
        allocatable: amounts,
    }
}

/// Returns the documents of a pod that the server has, waiting a moment for the first answer if necessary.
pub(super) async fn documents(
    objects: &ObjectCache,
    tokens: &TokenManager,
    pod: &Pod,
    last: Option<Value>,
) -> Documents {
    let mut documents = Documents::default();
    let looked_up = pod.documents().into_iter().map(|(kind, name)| async move {
        let lookup = objects.get(&object_name(pod, kind, name.clone()), PATIENCE).await;
        (kind, name, lookup)
    });
    let metadata = &pod.metadata;
    let made = pod.tokens().into_iter().map(|key| async move {
        let request = TokenRequest {
            namespace: metadata.namespace.clone(),
            account: account_name(pod),
            account_uid: String::new(),
            pod: metadata.name.clone(),
            pod_uid: metadata.uid.clone(),
            audience: key.audience.clone(),
            expiration: Some(key.expiration),
        };
        (key, tokens.token(&request).await)
    });
    let service = api_service();
    // A service that existed before still exists, so do not wait for it.
    let patience = if last.is_some() { Duration::ZERO } else { PATIENCE };
    let (lookups, made, service) = tokio::join!(
        futures::future::join_all(looked_up),
        futures::future::join_all(made),
        objects.get(&service, patience)
    );
    for (kind, name, lookup) in lookups {
        match lookup {
            Lookup::Present(object) => documents.insert(kind, &name, Document::from_object(kind, &object)),
            Lookup::Absent => {}
            Lookup::Unknown => {
                documents.unknown.insert((kind, name));
            }
        }
    }
    let content = |token: Secret| DocumentContent::new(token.expose());
    let made = made.into_iter().map(|(key, token): (TokenKey, _)| (key, token.map(content).map_err(|e| e.to_string())));
    documents.tokens = made.collect();
    match (service, last) {
        (Lookup::Present(object), _) => documents.service_variables = variables(&object),
        (Lookup::Absent, _) => {}
        (Lookup::Unknown, Some(object)) => documents.service_variables = variables(&object),
        (Lookup::Unknown, None) => documents.services_unknown = true,
    }
    documents
}

fn account_name(pod: &Pod) -> String {
    match pod.spec.service_account_name.as_str() {
        "" => "default".to_owned(),
        name => name.to_owned(),
    }
}

/// Returns the variables of a service, as the kubelet makes them.
fn variables(service: &Value) -> Vec<(String, String)> {
    let name = service["metadata"]["name"].as_str().unwrap_or_default().to_uppercase().replace('-', "_");
    let ip = service["spec"]["clusterIP"].as_str().unwrap_or_default();
    let ports = service["spec"]["ports"].as_array().map_or(&[][..], Vec::as_slice);
    let number = |port: &Value| port["port"].as_u64().unwrap_or(0).to_string();
    let Some(first) = ports.first().filter(|_| !ip.is_empty() && ip != "None") else { return Vec::new() };
    let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
    let mut all =
        vec![(format!("{name}_SERVICE_HOST"), ip.to_owned()), (format!("{name}_SERVICE_PORT"), number(first))];
    for port in ports {
        if let Some(word) = port["name"].as_str().filter(|word| !word.is_empty()) {
            all.push((format!("{name}_SERVICE_PORT_{}", word.to_uppercase().replace('-', "_")), number(port)));
        }
    }
    for (index, port) in ports.iter().enumerate() {
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        let url = format!("{}://{host}:{}", protocol.to_lowercase(), number(port));
        if index == 0 {
            all.push((format!("{name}_PORT"), url.clone()));
        }
        let prefix = format!("{name}_PORT_{}_{}", number(port), protocol.to_uppercase());
        all.push((prefix.clone(), url));
        all.push((format!("{prefix}_PROTO"), protocol.to_lowercase()));
        all.push((format!("{prefix}_PORT"), number(port)));
        all.push((format!("{prefix}_ADDR"), ip.to_owned()));
    }
    all
}

/// Returns the pull secrets of a pod. Those of its service account were copied into the pod when it was created.
pub(super) fn credentials(objects: &ObjectCache, pod: &Pod) -> PodCredentials {
    let account = Some(&pod.spec.service_account_name).filter(|name| !name.is_empty()).map(|name| ServiceAccount {
        namespace: pod.metadata.namespace.clone(),
        name: name.clone(),
        origin: Origin::ApiServer,
        ..ServiceAccount::default()
    });
    let mut credentials = PodCredentials { account, ..PodCredentials::default() };
    for name in &pod.spec.image_pull_secrets {
        let object = objects.known(&object_name(pod, DocumentKind::Secret, name.clone()));
        match object.and_then(|object| pull_secrets::of_object(&object)) {
            Some(secret) => credentials.secrets.push(secret),
            None => credentials.missing.push(name.clone()),
        }
    }
    credentials
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn variables_of_the_api_server_are_the_kubelets() {
        let service = json!({
            "metadata": {"name": "kubernetes"},
            "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443, "protocol": "TCP"}]},
        });
        let made: Vec<String> =
            variables(&service).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            made,
            [
                "KUBERNETES_SERVICE_HOST=10.96.0.1",
                "KUBERNETES_SERVICE_PORT=443",
                "KUBERNETES_SERVICE_PORT_HTTPS=443",
                "KUBERNETES_PORT=tcp://10.96.0.1:443",
                "KUBERNETES_PORT_443_TCP=tcp://10.96.0.1:443",
                "KUBERNETES_PORT_443_TCP_PROTO=tcp",
                "KUBERNETES_PORT_443_TCP_PORT=443",
                "KUBERNETES_PORT_443_TCP_ADDR=10.96.0.1",
            ]
        );
        assert!(variables(&json!({"metadata": {"name": "x"}, "spec": {"clusterIP": "None"}})).is_empty());
    }

    #[test]
    fn a_node_has_what_its_object_says() {
        let node = capacity(&json!({
            "metadata": {"name": "edge", "labels": {"disk": "ssd"}},
            "status": {"allocatable": {"cpu": "1500m", "pods": "110", "odd": "?"}},
        }));
        assert_eq!((&*node.name, node.pods, &*node.labels["disk"]), ("edge", Some(110), "ssd"));
        assert_eq!((node.allocatable["cpu"].milli_value(), node.allocatable.len()), (1500, 2));
    }
}
