//! From the bytes of a manifest to what is in it: pods that are admitted, ConfigMaps, Secrets, and what is refused. One file
//! may hold several objects, as documents or as a list; it counts as a whole or not at all, except that objects of other
//! kinds are passed over by name. Reads no file; called by the sources, on threads that may block.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::manifest::WorkloadKind;
use serde_json::{Map, Value};

use super::documents::{self, DocumentObject};
use super::options::SourceOptions;
use crate::documents::DocumentKind;
use crate::hash::fnv128a;
use crate::identity::{CONFIG_ORIGIN_ANNOTATION, CONFIG_SEEN_ANNOTATION, Origin, admit, make_static};
use crate::labels::PodOwner;
use crate::pod::{Pod, ProfileKind, SeccompProfile};
use crate::status::api::PodStatus;

#[derive(Debug, Default)]
pub(super) struct ManifestContent {
    /// Hash of the bytes of the manifest; 0 without bytes.
    pub(super) hash: u128,
    /// Pods, ready to be run.
    pub(super) pods: Vec<Arc<Pod>>,
    /// Statuses that pods begin with, by uid.
    pub(super) statuses: BTreeMap<String, Arc<PodStatus>>,
    /// ConfigMaps and Secrets.
    pub(super) documents: Vec<Arc<DocumentObject>>,
    /// Objects that were ignored, with the reasons.
    pub(super) passed_over: Vec<String>,
    /// Objects that hold no pod, as kubectl names objects.
    pub(super) others: Vec<String>,
}

impl ManifestContent {
    /// Returns true if there is a Secret in the manifest.
    pub(super) fn has_secrets(&self) -> bool {
        self.documents.iter().any(|object| object.kind == DocumentKind::Secret)
    }
}

/// A problem of a manifest or a source, and the pod that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ManifestProblem {
    pub(super) reason: String,
    pub(super) pod: Option<PodOwner>,
    /// True if the next read may succeed without a change of the manifest.
    pub(super) passing: bool,
    /// True if the problem was reported already.
    pub(super) reported: bool,
    /// True if all objects of the manifest are of kinds that do not run on a node.
    pub(super) skipped: bool,
}

impl ManifestProblem {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), pod: None, passing: false, reported: false, skipped: false }
    }

    pub(super) fn passing(reason: impl Into<String>) -> Self {
        Self { passing: true, ..Self::new(reason) }
    }
}

/// Objects that a source may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpectedObjects {
    /// Pods, and what they need.
    All,
    /// ConfigMaps and Secrets.
    Documents,
}

/// Reads the manifests of one source.
#[derive(Clone)]
pub(super) struct ManifestReader {
    pub(super) options: SourceOptions,
    pub(super) expected: ExpectedObjects,
    /// True if a manifest may have no expected objects. In a watched source, an empty manifest is more likely a mistake.
    pub(super) may_be_empty: bool,
}

impl ManifestReader {
    /// Reads a manifest. `shown` is its origin for messages; `previous` is its last valid content, of which unchanged
    /// objects are kept as they are.
    pub(super) fn read(
        &self,
        origin: Origin<'_>,
        shown: &str,
        bytes: &[u8],
        previous: Option<&Arc<ManifestContent>>,
    ) -> Result<Arc<ManifestContent>, ManifestProblem> {
        let hash = fnv128a(bytes);
        if let Some(previous) = previous.filter(|previous| previous.hash == hash) {
            return Ok(Arc::clone(previous));
        }
        if bytes.iter().all(u8::is_ascii_whitespace) && !self.may_be_empty {
            return Err(ManifestProblem::new("it is empty"));
        }
        let parsed =
            (self.options.parse)(bytes).map_err(|error| ManifestProblem::new(self.parse_error(bytes, &error)))?;
        let mut objects = Vec::new();
        for value in parsed {
            flatten(value, None, &mut objects).map_err(ManifestProblem::new)?;
        }
        if objects.is_empty() && !self.may_be_empty {
            return Err(ManifestProblem::new("there is no object in it"));
        }
        let mut content = ManifestContent { hash, ..ManifestContent::default() };
        let (count, mut problems, mut about) = (objects.len(), Vec::new(), None);
        for (index, object) in objects.into_iter().enumerate() {
            let refused = match self.object(object, origin, shown, previous, &mut content) {
                Ok(()) => continue,
                Err(ObjectRefusal::Plain(reason)) => reason,
                Err(ObjectRefusal::Pod(invalid)) => {
                    let (owner, errors) = *invalid;
                    about = about.or(Some(owner));
                    errors
                }
            };
            problems.push(if count > 1 { format!("object {}: {refused}", index + 1) } else { refused });
        }
        if !problems.is_empty() {
            return Err(ManifestProblem { pod: about, ..ManifestProblem::new(problems.join("; ")) });
        }
        if content.pods.is_empty() && content.documents.is_empty() && !self.may_be_empty {
            let reason = match content.passed_over.as_slice() {
                [] => format!("there is no pod in it, only {}", content.others.join(", ")),
                lines => lines.join("; "),
            };
            return Err(ManifestProblem { skipped: true, ..ManifestProblem::new(reason) });
        }
        Ok(Arc::new(content))
    }

    fn object(
        &self,
        object: Value,
        origin: Origin<'_>,
        shown: &str,
        previous: Option<&Arc<ManifestContent>>,
        content: &mut ManifestContent,
    ) -> Result<(), ObjectRefusal> {
        let Value::Object(map) = &object else {
            return Err(ObjectRefusal::Plain(format!("an object was expected, not {}", kind_of(&object))));
        };
        let word = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
        match (word("kind"), word("apiVersion")) {
            ("", _) => return Err(ObjectRefusal::Plain("kind is missing".to_owned())),
            ("ConfigMap", "v1") => content.documents.push(self.document(DocumentKind::ConfigMap, map, previous)?),
            ("Secret", "v1") => content.documents.push(self.document(DocumentKind::Secret, map, previous)?),
            // The model reports a wrong version.
            ("Pod", _) if self.expected == ExpectedObjects::All => {
                content.pods.push(self.pod(&object, origin, shown, previous)?);
            }
            ("Pod", _) => content.passed_over.push("a Pod is not run from where documents are kept".to_owned()),
            (kind, version) => self.other(kind, version, &object, content),
        }
        Ok(())
    }

    /// Passes over an object that is not run here. Silently where it holds no pod, as a Service does.
    fn other(&self, kind: &str, version: &str, object: &Value, content: &mut ManifestContent) {
        let name = object.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Value::as_str);
        let known = match (self.expected, WorkloadKind::of(kind, version, object)) {
            (ExpectedObjects::Documents, _) => "ConfigMap, Secret",
            (ExpectedObjects::All, Ok(Some(_))) => "Pod, ConfigMap, Secret",
            (ExpectedObjects::All, Ok(None)) => {
                let name = name.map(|name| format!("/{name}")).unwrap_or_default();
                content.others.push(format!("{}{name}", kind.to_lowercase()));
                return;
            }
            (ExpectedObjects::All, Err(error)) => return content.passed_over.push(error.to_string()),
        };
        let name = name.map(|name| format!(" {name:?}")).unwrap_or_default();
        let line = format!("{kind}{name} ({version}) is passed over: only {known} and lists of them are taken");
        content.passed_over.push(line);
    }

    fn document(
        &self,
        kind: DocumentKind,
        map: &Map<String, Value>,
        previous: Option<&Arc<ManifestContent>>,
    ) -> Result<Arc<DocumentObject>, ObjectRefusal> {
        let read = documents::read(kind, map).map_err(ObjectRefusal::Plain)?;
        let same = previous.and_then(|previous| previous.documents.iter().find(|old| ***old == read));
        Ok(same.map_or_else(|| Arc::new(read), Arc::clone))
    }

    fn pod(
        &self,
        object: &Value,
        origin: Origin<'_>,
        shown: &str,
        previous: Option<&Arc<ManifestContent>>,
    ) -> Result<Arc<Pod>, ObjectRefusal> {
        let node = &self.options.node;
        let mut pod = admit(object, node, origin).map_err(|errors| {
            let (mut pod, _) = Pod::read_all(object);
            make_static(&mut pod, object, node, origin);
            if pod.metadata.namespace.is_empty() {
                "default".clone_into(&mut pod.metadata.namespace);
            }
            ObjectRefusal::Pod(Box::new((PodOwner::of(&pod), errors.to_string())))
        })?;
        if self.options.seccomp_default {
            let runtimes =
                || SeccompProfile { type_: ProfileKind::RuntimeDefault.as_str().to_owned(), localhost_profile: None };
            pod.spec.security_context.seccomp_profile.get_or_insert_with(runtimes);
        }
        let old = previous.and_then(|previous| previous.pods.iter().find(|old| old.metadata.uid == pod.metadata.uid));
        let seen = old.and_then(|old| old.metadata.annotations.get(CONFIG_SEEN_ANNOTATION).cloned());
        let seen = seen.unwrap_or_else(|| (self.options.wall_clock)().to_string());
        let annotations = &mut pod.metadata.annotations;
        annotations.insert(CONFIG_SEEN_ANNOTATION.to_owned(), seen);
        annotations.insert(CONFIG_ORIGIN_ANNOTATION.to_owned(), shown.to_owned());
        Ok(match old {
            Some(old) if **old == pod => Arc::clone(old),
            _ => Arc::new(pod),
        })
    }

    /// Returns the message about a syntax error. The parser's message may quote the text, which may be a secret: then only the
    /// position is reported.
    fn parse_error(&self, bytes: &[u8], error: &str) -> String {
        let secret = self.expected == ExpectedObjects::Documents || bytes.windows(6).any(|window| window == b"Secret");
        if !secret {
            return error.to_owned();
        }
        match error.split_once(": ") {
            Some((place, _)) if place.starts_with("line ") && place.len() < 20 => {
                format!("{place}: it is neither YAML nor JSON")
            }
            _ => "it is neither YAML nor JSON".to_owned(),
        }
    }
}

/// Refusal of an object.
enum ObjectRefusal {
    Plain(String),
    /// The pod is not valid; the owner has all names that could be read.
    Pod(Box<(PodOwner, String)>),
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

/// Collects the objects of a list, and of lists in it. Items of a typed list (`PodList`) need no kind.
fn flatten(mut value: Value, inherited: Option<(&str, &str)>, objects: &mut Vec<Value>) -> Result<(), String> {
    if let (Value::Object(map), Some((kind, version))) = (&mut value, inherited) {
        for (key, text) in [("kind", kind), ("apiVersion", version)] {
            if map.get(key).is_none_or(Value::is_null) {
                map.insert(key.to_owned(), Value::from(text));
            }
        }
    }
    let Value::Object(map) = &mut value else {
        objects.push(value);
        return Ok(());
    };
    let word = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, version) = (word("kind"), word("apiVersion"));
    let Some(of) = kind.strip_suffix("List").filter(|_| version == "v1") else {
        objects.push(value);
        return Ok(());
    };
    let items = match map.get_mut("items").map(Value::take) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items,
        Some(other) => return Err(format!("items of {kind} must be a list, not {}", kind_of(&other))),
    };
    for item in items {
        flatten(item, (!of.is_empty()).then_some((of, &*version)), objects)?;
    }
    Ok(())
}
