//! [`VolumeSource`], [`ProjectedSource`] and [`EnvSource`]: the one field that is set of the many that the API's types have
//! next to each other. Borrowed from those types. Called by everything that makes volumes and variables.

use k8s_openapi::api::core::v1::{
    ConfigMapProjection, ConfigMapVolumeSource, DownwardAPIVolumeFile, DownwardAPIVolumeSource, EmptyDirVolumeSource,
    EnvVar, HostPathVolumeSource, ImageVolumeSource, KeyToPath, ObjectFieldSelector, ProjectedVolumeSource,
    ResourceFieldSelector, SecretProjection, SecretVolumeSource, ServiceAccountTokenProjection, Volume,
    VolumeProjection,
};
use oci::Quantity;

use crate::documents::{DocumentKind, TokenKey};

/// Lifetime of a token in seconds where none is set.
pub(crate) const TOKEN_LIFETIME: i64 = 3600;

/// An empty directory without limits, on the node's disk.
static PLAIN_DIRECTORY: EmptyDirVolumeSource = EmptyDirVolumeSource { medium: None, size_limit: None };

/// Source of the content of a volume; an empty directory unless one is set.
#[derive(Clone, Copy)]
pub(crate) enum VolumeSource<'a> {
    /// A path of the node.
    HostPath(&'a HostPathVolumeSource),
    /// A directory that lives as long as the pod.
    EmptyDir(&'a EmptyDirVolumeSource),
    /// Keys of a ConfigMap as files.
    ConfigMap(DocumentFiles<'a>),
    /// Keys of a Secret as files, in memory only.
    Secret(DocumentFiles<'a>),
    /// Fields of the pod as files.
    DownwardApi(&'a DownwardAPIVolumeSource),
    /// Several of those in one directory.
    Projected(&'a ProjectedVolumeSource),
    /// The content of an image, to be read only.
    Image(&'a ImageVolumeSource),
}

/// A document as files.
#[derive(Clone, Copy)]
pub(crate) struct DocumentFiles<'a> {
    /// Name of the ConfigMap or Secret, in the pod's namespace.
    pub(crate) name: &'a str,
    /// The keys that become files; none: all.
    pub(crate) items: &'a [KeyToPath],
    /// Mode of the files.
    pub(crate) default_mode: Option<i32>,
    /// True if document and keys may be missing.
    pub(crate) optional: bool,
}

impl<'a> VolumeSource<'a> {
    /// Returns the source of a volume; the first one if several are set.
    pub(crate) fn of(volume: &'a Volume) -> Self {
        all_sources(volume).next().map_or(Self::EmptyDir(&PLAIN_DIRECTORY), |(_, source)| source)
    }

    /// Fields of the sources that a volume has in addition to its source.
    pub(crate) fn further_fields(volume: &Volume) -> Vec<&'static str> {
        all_sources(volume).skip(1).map(|(field, _)| field).collect()
    }

    /// Kinds and names of the documents that the volume is made of.
    pub(crate) fn documents(self) -> impl Iterator<Item = (DocumentKind, &'a str)> {
        let own = match self {
            Self::ConfigMap(document) => Some((DocumentKind::ConfigMap, document.name)),
            Self::Secret(document) => Some((DocumentKind::Secret, document.name)),
            _ => None,
        };
        let parts = self.parts().filter_map(|part| match part {
            ProjectedSource::ConfigMap(document) => Some((DocumentKind::ConfigMap, document.name)),
            ProjectedSource::Secret(document) => Some((DocumentKind::Secret, document.name)),
            ProjectedSource::DownwardApi(_) | ProjectedSource::ServiceAccountToken(_) | ProjectedSource::Unclear(_) => {
                None
            }
        });
        own.into_iter().chain(parts)
    }

    /// Returns the tokens of the pod's service account in the volume.
    pub(crate) fn tokens(self) -> impl Iterator<Item = &'a ServiceAccountTokenProjection> {
        self.parts().filter_map(|part| match part {
            ProjectedSource::ServiceAccountToken(token) => Some(token),
            _ => None,
        })
    }

    fn parts(self) -> impl Iterator<Item = ProjectedSource<'a>> {
        let parts = if let Self::Projected(projected) = self { projected.sources.as_deref() } else { None };
        parts.unwrap_or_default().iter().map(ProjectedSource::of)
    }
}

fn all_sources(volume: &Volume) -> impl Iterator<Item = (&'static str, VolumeSource<'_>)> {
    let sources = [
        ("hostPath", volume.host_path.as_ref().map(VolumeSource::HostPath)),
        ("emptyDir", volume.empty_dir.as_ref().map(VolumeSource::EmptyDir)),
        ("configMap", volume.config_map.as_ref().map(|source| VolumeSource::ConfigMap(source.into()))),
        ("secret", volume.secret.as_ref().map(|source| VolumeSource::Secret(source.into()))),
        ("downwardAPI", volume.downward_api.as_ref().map(VolumeSource::DownwardApi)),
        ("projected", volume.projected.as_ref().map(VolumeSource::Projected)),
        ("image", volume.image.as_ref().map(VolumeSource::Image)),
    ];
    sources.into_iter().filter_map(|(field, source)| Some((field, source?)))
}

impl<'a> From<&'a ConfigMapVolumeSource> for DocumentFiles<'a> {
    fn from(source: &'a ConfigMapVolumeSource) -> Self {
        let ConfigMapVolumeSource { default_mode, items, name, optional } = source;
        Self::new(name, items, *default_mode, *optional)
    }
}

impl<'a> From<&'a SecretVolumeSource> for DocumentFiles<'a> {
    fn from(source: &'a SecretVolumeSource) -> Self {
        let SecretVolumeSource { default_mode, items, optional, secret_name } = source;
        Self::new(secret_name.as_deref().unwrap_or_default(), items, *default_mode, *optional)
    }
}

impl<'a> DocumentFiles<'a> {
    fn new(
        name: &'a str,
        items: &'a Option<Vec<KeyToPath>>,
        default_mode: Option<i32>,
        optional: Option<bool>,
    ) -> Self {
        let items = items.as_deref().unwrap_or_default();
        Self { name, items, default_mode, optional: optional.unwrap_or_default() }
    }
}

/// A part of a projected volume.
#[derive(Clone, Copy)]
pub(crate) enum ProjectedSource<'a> {
    /// Keys of a ConfigMap.
    ConfigMap(DocumentFiles<'a>),
    /// Keys of a Secret.
    Secret(DocumentFiles<'a>),
    /// Fields of the pod.
    DownwardApi(&'a [DownwardAPIVolumeFile]),
    /// A token, which an API server makes.
    ServiceAccountToken(&'a ServiceAccountTokenProjection),
    /// None or several of those, with their number. Validation refuses it.
    Unclear(usize),
}

impl<'a> ProjectedSource<'a> {
    pub(crate) fn of(part: &'a VolumeProjection) -> Self {
        let config_map = part.config_map.as_ref().map(|ConfigMapProjection { items, name, optional }| {
            Self::ConfigMap(DocumentFiles::new(name, items, None, *optional))
        });
        let secret = part.secret.as_ref().map(|SecretProjection { items, name, optional }| {
            Self::Secret(DocumentFiles::new(name, items, None, *optional))
        });
        let downward =
            part.downward_api.as_ref().map(|api| Self::DownwardApi(api.items.as_deref().unwrap_or_default()));
        let token = part.service_account_token.as_ref().map(Self::ServiceAccountToken);
        one_of([config_map, secret, downward, token]).unwrap_or_else(Self::Unclear)
    }
}

/// Returns the only source that is set, or how many are.
fn one_of<T: Copy, const N: usize>(sources: [Option<T>; N]) -> Result<T, usize> {
    let mut set = sources.into_iter().flatten();
    match (set.next(), set.count()) {
        (Some(only), 0) => Ok(only),
        (first, others) => Err(others + usize::from(first.is_some())),
    }
}

/// Key of a token among those of a pod.
pub(crate) fn token_key(token: &ServiceAccountTokenProjection) -> TokenKey {
    let audience = token.audience.clone().unwrap_or_default();
    TokenKey { audience, expiration: token.expiration_seconds.unwrap_or(TOKEN_LIFETIME) }
}

/// Source of a variable's value.
#[derive(Clone, Copy)]
pub(crate) enum EnvSource<'a> {
    /// The literal value, with `$(VAR)` for other variables.
    Literal(&'a str),
    /// A field of the pod, by the downward API (`fieldRef`).
    Field(&'a ObjectFieldSelector),
    /// An amount of a container.
    Resource(&'a ResourceFieldSelector),
    /// The value of a key of a ConfigMap.
    ConfigMapKey(KeyRef<'a>),
    /// The value of a key of a Secret.
    SecretKey(KeyRef<'a>),
    /// None of those, or more than one: the number of sources. It does not pass validation.
    Unclear(usize),
}

/// A key of a document.
#[derive(Clone, Copy)]
pub(crate) struct KeyRef<'a> {
    /// Name of the ConfigMap or Secret, in the pod's namespace.
    pub(crate) name: &'a str,
    /// Key in the document.
    pub(crate) key: &'a str,
    /// True if document and key may be missing.
    pub(crate) optional: bool,
}

impl<'a> EnvSource<'a> {
    pub(crate) fn of(variable: &'a EnvVar) -> Self {
        let value = variable.value.as_deref().unwrap_or_default();
        let Some(from) = &variable.value_from else { return Self::Literal(value) };
        let key = |name: &'a str, key: &'a str, optional: Option<bool>| KeyRef {
            name,
            key,
            optional: optional.unwrap_or_default(),
        };
        let of_map = from.config_map_key_ref.as_ref().map(|r| Self::ConfigMapKey(key(&r.name, &r.key, r.optional)));
        let of_secret = from.secret_key_ref.as_ref().map(|r| Self::SecretKey(key(&r.name, &r.key, r.optional)));
        let field = from.field_ref.as_ref().map(Self::Field);
        let resource = from.resource_field_ref.as_ref().map(Self::Resource);
        let literal = (!value.is_empty()).then_some(Self::Literal(value));
        match one_of([field, resource, of_map, of_secret, literal]) {
            // A literal alone leaves the reference without a source.
            Ok(Self::Literal(_)) => Self::Unclear(1),
            Ok(only) => only,
            Err(sources) => Self::Unclear(sources),
        }
    }
}

/// Returns true for an empty directory in memory.
pub(crate) fn is_in_memory(directory: &EmptyDirVolumeSource) -> bool {
    directory.medium.as_deref() == Some("Memory")
}

/// Returns the size limit of an `emptyDir`.
pub(crate) fn size_limit(directory: &EmptyDirVolumeSource) -> Option<Quantity> {
    directory.size_limit.as_ref()?.0.parse().ok()
}

/// Unit of an amount of a container; 1 unless it is set.
pub(crate) fn divisor(amount: &ResourceFieldSelector) -> Quantity {
    let divisor = amount.divisor.as_ref().and_then(|divisor| divisor.0.parse().ok());
    divisor.filter(|divisor: &Quantity| !divisor.is_zero()).unwrap_or(Quantity::milli(1000))
}
