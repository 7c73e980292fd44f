//! [`resolve`]: resolves a container's variables from the pod, its context and the given documents;
//! and [`Environment`], with which commands and paths are then filled in. Of services there is the API server's alone
//! (`enableServiceLinks` is not followed); a node on its own has none. Reads nothing, and shows no value: any of them may be, or
//! hold, a secret. Called when a container is made.

mod downward;
mod expand;

use oci::Secret;

use crate::documents::{Document, DocumentContent, DocumentKind, Documents, MissingDocument};
use crate::pod::{Container, EnvSource, KeyRef, Pod};
pub use downward::PodContext;
pub(crate) use downward::{ContainerAmount, FieldUse, PodField, amount};
pub(crate) use expand::expand;
pub(crate) use expand::names as names_in;

/// The variables of a container, each once, in the order in which their names first occurred.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    variables: Vec<(String, Secret)>,
    /// Keys that were left out, for an event.
    pub skipped: Vec<SkippedKeys>,
}

/// Keys of a document that are no names of variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SkippedKeys {
    /// `configMap` or `secret`.
    pub kind: &'static str,
    /// Namespace and name of the document.
    pub document: String,
    /// The keys, with their prefix.
    pub keys: Vec<String>,
}

/// Writes the message of the event `InvalidEnvironmentVariableNames`.
impl std::fmt::Display for SkippedKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, document, keys } = self;
        write!(
            f,
            "Keys [{}] from the EnvFrom {kind} {document} were skipped since they are considered invalid environment \
             variable names.",
            keys.join(", ")
        )
    }
}

/// Failure to resolve variables. The container waits with `CreateContainerConfigError` and this text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct EnvironmentError(String);

impl Environment {
    /// Returns the variables, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Secret)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Returns the value of a variable.
    #[must_use]
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.expose())
    }

    /// Returns a command or its arguments with `$(VAR)` expanded.
    #[must_use]
    pub(crate) fn filled_in(&self, texts: &[String]) -> Vec<String> {
        texts.iter().map(|text| expand(text, |name| self.get(name))).collect()
    }

    /// Expands the variables of a sub-path. Unlike in a command, every variable must exist.
    ///
    /// # Errors
    /// A variable is missing, or the path leads out of the volume.
    pub(crate) fn path(&self, text: &str) -> Result<String, EnvironmentError> {
        if let Some(name) = names_in(text).into_iter().find(|name| self.get(name).is_none()) {
            return Err(EnvironmentError(format!("missing value for {name:?}")));
        }
        let path = expand(text, |name| self.get(name));
        let leads_out = path.starts_with('/') || path.split('/').any(|part| part == "..");
        if leads_out {
            let what = format!("the sub-path {text:?} is absolute or holds \"..\", once its variables are filled in");
            return Err(EnvironmentError(what));
        }
        Ok(path)
    }

    fn set(&mut self, name: &str, value: Secret) {
        match self.variables.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.variables.push((name.to_owned(), value)),
        }
    }
}

/// Gives every variable of `container` its value: whole documents first, in order, then single variables, each of which
/// sees those before it; a later one replaces an earlier one of its name.
///
/// # Errors
/// A document or key that must be there is not.
pub(crate) fn resolve(
    pod: &Pod,
    container: &Container,
    documents: &Documents,
    context: &PodContext,
) -> Result<Environment, EnvironmentError> {
    let namespace = &pod.metadata.namespace;
    let mut environment = Environment::default();
    if documents.services_unknown {
        let text = "services have not yet been read at least once, cannot construct envvars";
        return Err(EnvironmentError(text.to_owned()));
    }
    for (name, value) in &documents.service_variables {
        environment.set(name, Secret::new(value.clone()));
    }
    for from in &container.env_from {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        let config_map = from.config_map_ref.as_ref().map(|from| (DocumentKind::ConfigMap, &from.name, from.optional));
        let secret = from.secret_ref.as_ref().map(|from| (DocumentKind::Secret, &from.name, from.optional));
        for (kind, name, optional) in config_map.into_iter().chain(secret) {
            let Some(document) = find(kind, documents, name, optional.unwrap_or_default())? else { continue };
            whole(&mut environment, kind, document, &format!("{namespace}/{name}"), prefix)?;
        }
    }
    for variable in &container.env {
        let cannot = |what: &str| {
            let name = &variable.name;
            EnvironmentError(format!("failed to resolve the variable {name:?}: {what:?} cannot be shown in a variable"))
        };
        let value = match EnvSource::of(variable) {
            EnvSource::Literal(text) => Some(Secret::new(expand(text, |name| environment.get(name)))),
            EnvSource::Field(field) => {
                let read = PodField::parse(&field.field_path, FieldUse::Variable);
                Some(Secret::new(read.ok_or_else(|| cannot(&field.field_path))?.value(pod, context)))
            }
            EnvSource::Resource(reference) => {
                let value = amount(pod, Some(container), reference, context);
                Some(Secret::new(value.ok_or_else(|| cannot(&reference.resource))?))
            }
            EnvSource::ConfigMapKey(key) => one(DocumentKind::ConfigMap, documents, namespace, key)?,
            EnvSource::SecretKey(key) => one(DocumentKind::Secret, documents, namespace, key)?,
            EnvSource::Unclear(_) => return Err(cannot("valueFrom")),
        };
        if let Some(value) = value {
            environment.set(&variable.name, value);
        }
    }
    Ok(environment)
}

/// Returns the document, or `None` if it is absent and optional.
fn find<'d>(
    kind: DocumentKind,
    documents: &'d Documents,
    name: &str,
    optional: bool,
) -> Result<Option<&'d Document>, EnvironmentError> {
    match (documents.get(kind, name), documents.missing(kind, name)) {
        (Some(found), _) => Ok(Some(found)),
        (None, MissingDocument::Absent(..)) if optional => Ok(None),
        (None, missing) => Err(EnvironmentError(missing.to_string())),
    }
}

fn text(kind: DocumentKind, content: &DocumentContent, document: &str, key: &str) -> Result<Secret, EnvironmentError> {
    let text = content.text().map(Secret::new);
    text.ok_or_else(|| EnvironmentError(format!("key {key} in {kind} {document} is not text in UTF-8")))
}

/// Adds all keys of a document, whose namespace and name are `name`.
fn whole(
    environment: &mut Environment,
    kind: DocumentKind,
    document: &Document,
    name: &str,
    prefix: &str,
) -> Result<(), EnvironmentError> {
    let mut keys = Vec::new();
    for (key, content) in &document.data {
        let variable = format!("{prefix}{key}");
        if is_name(&variable) {
            environment.set(&variable, text(kind, content, name, key)?);
        } else {
            keys.push(variable);
        }
    }
    if !keys.is_empty() {
        let kind = if kind == DocumentKind::ConfigMap { "configMap" } else { "secret" };
        environment.skipped.push(SkippedKeys { kind, document: name.to_owned(), keys });
    }
    Ok(())
}

/// Returns the content of a key of a document, or `None` if it is absent and optional.
fn one(
    kind: DocumentKind,
    documents: &Documents,
    namespace: &str,
    KeyRef { name, key, optional }: KeyRef<'_>,
) -> Result<Option<Secret>, EnvironmentError> {
    let Some(found) = find(kind, documents, name, optional)? else { return Ok(None) };
    let document = format!("{namespace}/{name}");
    match found.data.get(key) {
        Some(content) => text(kind, content, &document, key).map(Some),
        None if optional => Ok(None),
        None => Err(EnvironmentError(format!("couldn't find key {key} in {kind} {document}"))),
    }
}

/// Returns true if a text can name a variable: printable ASCII without `=`.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| (0x20..0x7f).contains(&b) && b != b'=')
}

#[cfg(test)]
#[path = "environment_tests.rs"]
mod tests;
