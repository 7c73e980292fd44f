//! Environment variables of a container, as they are written; [`crate::environment`] gives them their values. Read by
//! [`super::Container`].

use std::fmt;

use oci::Quantity;

use super::read::{Fields, Read};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvVar {
    pub name: String,
    /// Where its value comes from.
    pub source: EnvSource,
}

/// Where the value of a variable comes from. `Debug` shows no value: people write secrets there.
#[derive(Clone, PartialEq, Eq)]
pub enum EnvSource {
    /// The literal value, with `$(VAR)` for other variables.
    Literal(String),
    Field(FieldRef),
    /// An amount of a container.
    Resource(ResourceFieldRef),
    ConfigMapKey(KeyRef),
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

/// A field of the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldRef {
    /// `v1` unless said.
    pub api_version: String,
    /// The way to the field.
    pub field_path: String,
}

/// An amount of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceFieldRef {
    /// The container; that of the variable unless said.
    pub container_name: String,
    /// `limits.cpu` and the like.
    pub resource: String,
    /// Unit of the value; 1 by default.
    pub divisor: Quantity,
}

/// A key of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRef {
    /// Name of the document.
    pub name: String,
    pub key: String,
    /// True if document and key may be missing.
    pub optional: bool,
}

/// All keys of a document as variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvFromSource {
    /// Prefix of the keys.
    pub prefix: String,
    /// Name of a ConfigMap.
    pub config_map: Option<DocumentRef>,
    /// Name of a Secret.
    pub secret: Option<DocumentRef>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocumentRef {
    /// Name of the document.
    pub name: String,
    /// True if the document may be missing.
    pub optional: bool,
}

impl Read for EnvVar {
    fn read(fields: &mut Fields<'_>) -> Self {
        let name = fields.string("name");
        let value = fields.text("value").filter(|value| !value.is_empty());
        let source = match (fields.object::<ValueFrom>("valueFrom"), value) {
            (None, value) => EnvSource::Literal(value.unwrap_or_default()),
            (Some(ValueFrom(mut sources)), None) if sources.len() == 1 => sources.remove(0),
            (Some(ValueFrom(sources)), value) => EnvSource::Unclear(sources.len() + usize::from(value.is_some())),
        };
        Self { name, source }
    }
}

/// Everything that stands under `valueFrom`.
struct ValueFrom(Vec<EnvSource>);

impl Read for ValueFrom {
    fn read(fields: &mut Fields<'_>) -> Self {
        fields.not_supported("fileKeyRef", "variables are not read from files of volumes");
        let sources = [
            fields.object("fieldRef").map(EnvSource::Field),
            fields.object("resourceFieldRef").map(EnvSource::Resource),
            fields.object("configMapKeyRef").map(EnvSource::ConfigMapKey),
            fields.object("secretKeyRef").map(EnvSource::SecretKey),
        ];
        Self(sources.into_iter().flatten().collect())
    }
}

impl Read for FieldRef {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self { api_version: fields.string("apiVersion"), field_path: fields.string("fieldPath") }
    }
}

impl Read for ResourceFieldRef {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            container_name: fields.string("containerName"),
            resource: fields.string("resource"),
            divisor: fields.quantity("divisor").unwrap_or_default(),
        }
    }
}

impl Read for KeyRef {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self { name: fields.string("name"), key: fields.string("key"), optional: fields.flag("optional") }
    }
}

impl Read for EnvFromSource {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            prefix: fields.string("prefix"),
            config_map: fields.object("configMapRef"),
            secret: fields.object("secretRef"),
        }
    }
}

impl Read for DocumentRef {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self { name: fields.string("name"), optional: fields.flag("optional") }
    }
}
