//! A kubelet's own configuration file (KubeletConfiguration of kubelet.config.k8s.io/v1beta1). Takes the fields that settings declare as
//! the kubelet's, with the kubelet's meaning. Fields that concern neither images nor pods are ignored and named in one line; a name that
//! the kubelet does not have is an error. Called by [`super::Config::load`].

mod fields;
mod migration;

use std::path::Path;

use manifest::yaml::{Node, Value};

use super::document::Document;
use super::error::{ConfigError, Origin};
use super::model::Config;
use super::removed;
use super::setting::{Setting, Zero, of_field};
use super::value::Raw;
use fields::{FIELDS, Shape};
pub(crate) use migration::migrate;

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KIND: &str = "KubeletConfiguration";

/// The setting that is nested in a map of the kubelet's file.
const RESTARTS: &str = "crashLoopBackOff.maxContainerRestartPeriod";
const POLICY: &str = "imagePullCredentialsVerificationPolicy";
/// Fields that only a kubelet's file has: they are no settings of imagelet.
const MERGE: &str = "mergeDefaultEvictionSettings";
const STATUS_IMAGES: &str = "nodeStatusMaxImages";
/// The feature gate without which the kubelet verifies nothing.
const GATE: &str = "KubeletEnsureSecretPulledImages";

/// Takes the fields that settings declare from the file into `config`, in which nothing else is set yet, and appends errors to `errors`.
pub(super) fn apply(config: &mut Config, path: &Path, errors: &mut Vec<ConfigError>) -> Unused {
    let unused = match Document::read(path, API_VERSION, KIND) {
        Ok(document) => take(config, &document, errors),
        Err(error) => {
            errors.push(error);
            Unused::default()
        }
    };
    // The kubelet's images are behind the endpoint of its containers, unless a separate endpoint is set.
    if config.image_service_endpoint.is_none()
        && let Some(origin) = config.origins.get("containerRuntimeEndpoint").cloned()
    {
        config.image_service_endpoint.clone_from(&config.container_runtime_endpoint);
        config.origins.insert("imageServiceEndpoint", origin);
    }
    unused
}

/// The fields of a kubelet's file that set nothing.
#[derive(Debug, Default)]
pub(super) struct Unused {
    /// Fields that this program does not support.
    pub(super) passed_over: Vec<String>,
    /// Fields whose zero stands for the default.
    pub(super) zero: Vec<String>,
    /// Fields with another value than the constant of imagelet, with the rule that applies.
    pub(super) constants: Vec<(String, &'static str)>,
}

impl Unused {
    /// Returns a log line that names the ignored fields, if there are any.
    pub(super) fn note(&self, path: &Path) -> Option<String> {
        let (path, names) = (path.display(), self.passed_over.join(", "));
        let note = format!("kubelet configuration {path}: passed over, as it does not concern imagelet: {names}");
        (!self.passed_over.is_empty()).then_some(note)
    }

    /// Returns a line for the log that names the fields for which imagelet has a constant of another value, if there are any.
    pub(super) fn constants_note(&self, path: &Path) -> Option<String> {
        let rules: Vec<String> = self.constants.iter().map(|(field, rule)| format!("{field} ({rule})")).collect();
        let note = format!(
            "kubelet configuration {}: constants of imagelet hold instead: {}",
            path.display(),
            rules.join(", ")
        );
        (!rules.is_empty()).then_some(note)
    }
}

/// Takes the supported fields, and returns those that set nothing.
fn take(config: &mut Config, document: &Document, errors: &mut Vec<ConfigError>) -> Unused {
    let base = document.base();
    let (mut unused, mut gate, mut merge) = (Unused::default(), None, false);
    for (key, node) in document.fields() {
        if let Err(error) = known(document, "", key, node, FIELDS) {
            errors.push(error);
            continue;
        }
        if node.value == Value::Null {
            continue;
        }
        let mut apply = |setting: &'static Setting, node: &Node| {
            let raw = Raw::Node { value: &node.value, base: &base };
            errors.extend(config.apply(setting, document.origin(node), raw).err());
        };
        match taken(key) {
            Some((setting, zero)) if zero == Zero::Counts || !is_zero(&node.value) => {
                apply(setting, node);
                if key == "evictionHard" {
                    let signals = super::eviction::passed_over(&config.eviction).into_iter();
                    unused.passed_over.extend(signals.map(|signal| format!("evictionHard.{signal}")));
                }
            }
            Some(_) => unused.zero.push(key.to_owned()),
            None if key == "crashLoopBackOff" => {
                if let Some(node) = node.get("maxContainerRestartPeriod").filter(|node| !is_zero(&node.value))
                    && let Some((setting, _)) = taken(RESTARTS)
                {
                    apply(setting, node);
                }
            }
            None if key == "featureGates" && node.get(GATE).is_some() => gate = node.get(GATE),
            None if key == MERGE => match &node.value {
                Value::Bool(value) => merge = *value,
                other => {
                    let message = format!("{MERGE}: {other} is not allowed, must be true or false");
                    errors.extend(document.error::<()>(node, message).err());
                }
            },
            None if key == STATUS_IMAGES => match &node.value {
                Value::Number(number) if number.is_i64() => {
                    config.status_max_images = number.as_i64().unwrap_or_default();
                    config.origins.insert(STATUS_IMAGES, document.origin(node));
                }
                other => {
                    let message = format!("{STATUS_IMAGES}: {other} is not allowed, must be a whole number");
                    errors.extend(document.error::<()>(node, message).err());
                }
            },
            None => match removed::of_field(key).filter(|removed| removed.is_kubelets()) {
                Some(_) if is_zero(&node.value) => unused.zero.push(key.to_owned()),
                Some(removed) if removed.agrees(Raw::Node { value: &node.value, base: &base }) => {}
                Some(removed) => unused.constants.push((key.to_owned(), removed.now)),
                None => unused.passed_over.push(key.to_owned()),
            },
        }
    }
    if merge {
        config.eviction.merge_defaults();
    }
    if let Some(node) = gate {
        errors.extend(self::gate(config, document, node).err());
    }
    unused
}

/// Returns the setting that a field of the kubelet's sets.
fn taken(field: &str) -> Option<(&'static Setting, Zero)> {
    of_field(field).and_then(|setting| Some((setting, setting.kubelet?)))
}

/// Applies the feature gate of credential verification: without it, every pod may use any image on the node.
fn gate(config: &mut Config, document: &Document, node: &Node) -> Result<(), ConfigError> {
    match node.value {
        Value::Bool(true) => Ok(()),
        Value::Bool(false) => {
            for field in [POLICY, "preloadedImagesVerificationAllowlist"] {
                if let Some(origin) = config.origins.get(field) {
                    return Err(ConfigError::Invalid(vec![format!(
                        "invalid configuration: `{field}` must not be set if {GATE} feature gate is not enabled ({origin})"
                    )]));
                }
            }
            "NeverVerify".clone_into(&mut config.verification.policy);
            let Origin::File { path, line } = document.origin(node) else { return Ok(()) };
            config.origins.insert(POLICY, Origin::File { path, line });
            Ok(())
        }
        _ => document.error(node, format!("featureGates.{GATE}: {} is not allowed, must be true or false", node.value)),
    }
}

/// Returns true for Go's zero value of a field.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Text(text) => text.is_empty() || text == "0" || text == "0s",
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.is_empty(),
    }
}

/// Refuses a name that KubeletConfiguration does not have, on every level with a list of names.
fn known(
    document: &Document,
    outer: &str,
    key: &str,
    node: &Node,
    fields: &[(&str, Shape)],
) -> Result<(), ConfigError> {
    let Some((_, shape)) = fields.iter().find(|(name, _)| *name == key) else {
        let names = fields.iter().map(|(name, _)| *name);
        let hint = base::nearest(key, names).map(|name| format!("; did you mean {outer}{name}?")).unwrap_or_default();
        return document.error(node, format!("{KIND} has no field {:?}{hint}", format!("{outer}{key}")));
    };
    let below = format!("{outer}{key}.");
    let inside = |node: &Node, fields: &[(&str, Shape)]| match &node.value {
        Value::Map(entries) => entries.iter().try_for_each(|(k, n)| known(document, &below, k, n, fields)),
        Value::Null => Ok(()),
        other => document.error(node, format!("{outer}{key}: a map was expected, not {other}")),
    };
    match (shape, &node.value) {
        (Shape::Any, _) | (Shape::List(_), Value::Null) => Ok(()),
        (Shape::Map(fields), _) => inside(node, fields),
        (Shape::List(fields), Value::List(list)) => list.iter().try_for_each(|node| inside(node, fields)),
        (Shape::List(_), other) => document.error(node, format!("{outer}{key}: a list was expected, not {other}")),
    }
}

#[cfg(test)]
#[path = "kubelet_tests.rs"]
mod tests;
