//! Environment variables of a container, as they are written; [`crate::environment`] gives them their values. Read by
//! [`super::Container`].

use std::fmt;

use oci::Quantity;
use serde_json::{Map, Value};

use super::macros::object;
use super::read::{Json, ManifestField, ManifestFields, ManifestObject};

/// An environment variable of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvVar {
    /// Name: printable ASCII without `=`.
    pub name: String,
    /// Source of the value.
    pub source: EnvSource,
}

/// Source of a variable's value. `Debug` shows no value: people write secrets there.
#[derive(Clone, PartialEq, Eq)]
pub enum EnvSource {
    /// The literal value, with `$(VAR)` for other variables.
    Literal(String),
    /// A field of the pod, by the downward API (`fieldRef`).
    Field(FieldRef),
    /// An amount of a container.
    Resource(ResourceFieldRef),
    /// The value of a key of a ConfigMap.
    ConfigMapKey(KeyRef),
    /// The value of a key of a Secret.
    SecretKey(KeyRef),
    /// Nowhere, or from more than one place: the number of places. It does not pass validation.
    Unclear(usize),
}

impl fmt::Debug for EnvSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(_) => f.write_str("Literal(…)"),
            Self::Field(field) => field.fmt(f),
            Self::Resource(resource) => resource.fmt(f),
            Self::ConfigMapKey(key) => write!(f, "ConfigMapKey({key:?})"),
            Self::SecretKey(key) => write!(f, "SecretKey({key:?})"),
            Self::Unclear(places) => write!(f, "Unclear({places})"),
        }
    }
}

impl Default for EnvSource {
    fn default() -> Self {
        Self::Literal(String::new())
    }
}

object! {
    /// A field of the pod.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct FieldRef {
        /// `v1` unless said.
        pub api_version: String = "apiVersion",
        /// The way to the field.
        pub field_path: String = "fieldPath",
    }
}

object! {
    /// An amount of a container.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct ResourceFieldRef {
        /// The container; that of the variable unless said.
        pub container_name: String = "containerName",
        /// `limits.cpu` and the like.
        pub resource: String = "resource",
        /// Unit of the value; 1 by default.
        pub divisor: Quantity = "divisor",
    }
}

object! {
    /// A key of a document.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct KeyRef {
        /// Name of the ConfigMap or Secret, in the pod's namespace.
        pub name: String = "name",
        /// Key in the document.
        pub key: String = "key",
        /// True if document and key may be missing.
        pub optional: bool = "optional",
    }
}

object! {
    /// All keys of a document as variables.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct EnvFromSource {
        /// Prefix of the keys.
        pub prefix: String = "prefix",
        /// ConfigMap whose keys become variables.
        pub config_map: Option<DocumentRef> = "configMapRef",
        /// Secret whose keys become variables; exactly one of the two is set.
        pub secret: Option<DocumentRef> = "secretRef",
    }
}

object! {

    /// A ConfigMap or a Secret of the pod's namespace.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct DocumentRef {
        /// Name of the document.
        pub name: String = "name",
        /// True if the document may be missing.
        pub optional: bool = "optional",
    }
}

object! {
    /// `valueFrom` of a variable, in which one field should be set.
    #[derive(Clone, Default)]
    struct ValueFrom (unsupported_in_value_from) {
        field: Option<FieldRef> = "fieldRef",
        resource: Option<ResourceFieldRef> = "resourceFieldRef",
        config_map_key: Option<KeyRef> = "configMapKeyRef",
        secret_key: Option<KeyRef> = "secretKeyRef",
    }
}

fn unsupported_in_value_from(fields: &mut ManifestFields<'_>) {
    fields.not_supported("fileKeyRef", "variables are not read from files of volumes");
}

impl ManifestObject for EnvVar {
    fn read(fields: &mut ManifestFields<'_>) -> Self {
        let (name, value) = (ManifestField::read(fields, "name"), String::read(fields, "value"));
        let Some(from) = fields.get::<ValueFrom>("valueFrom") else {
            return Self { name, source: EnvSource::Literal(value) };
        };
        let sources = [
            from.field.map(EnvSource::Field),
            from.resource.map(EnvSource::Resource),
            from.config_map_key.map(EnvSource::ConfigMapKey),
            from.secret_key.map(EnvSource::SecretKey),
        ];
        let mut sources: Vec<EnvSource> = sources.into_iter().flatten().collect();
        let source = match (sources.len(), value.is_empty()) {
            (1, true) => sources.remove(0),
            (places, no_value) => EnvSource::Unclear(places + usize::from(!no_value)),
        };
        Self { name, source }
    }

    fn write(&self, object: &mut Map<String, Value>) {
        self.name.write("name", object);
        let mut from = ValueFrom::default();
        match self.source.clone() {
            EnvSource::Literal(value) => return value.write("value", object),
            EnvSource::Field(field) => from.field = Some(field),
            EnvSource::Resource(resource) => from.resource = Some(resource),
            EnvSource::ConfigMapKey(key) => from.config_map_key = Some(key),
            EnvSource::SecretKey(key) => from.secret_key = Some(key),
            // It did not pass validation.
            EnvSource::Unclear(_) => return,
        }
        object.insert("valueFrom".to_owned(), from.to_value());
    }
}
