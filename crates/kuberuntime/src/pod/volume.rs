//! [`Volume`]: files that a container gets in addition to its image. Read by [`super::PodSpec`].

use image_manager::PullPolicy;
use oci::Quantity;
use serde_json::{Map, Value};

use super::macros::{object, words};
use super::read::{Json, ManifestField, ManifestFields, ManifestObject};
use super::variable::{FieldRef, ResourceFieldRef};
use crate::documents::{DocumentKind, TokenKey};
use manifest::{FieldErrors, FieldPath};

words! {
    /// Check of a path on the node.
    HostPathType {
        /// A directory; it is made where it is missing.
        DirectoryOrCreate = "DirectoryOrCreate",
        /// A directory, which must be there.
        Directory = "Directory",
        /// A file; it is made where it is missing.
        FileOrCreate = "FileOrCreate",
        /// A file, which must be there.
        File = "File",
        /// A Unix domain socket, which must be there.
        Socket = "Socket",
        /// A character device, which must be there.
        CharDevice = "CharDevice",
        /// A block device, which must be there.
        BlockDevice = "BlockDevice",
    }
}

/// Where an empty directory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// A tmpfs; counts against the memory limits of the pod's containers.
    Memory,
}

impl Json for Medium {
    fn from_value(value: &Value, path: FieldPath, errors: &mut FieldErrors) -> Option<Self> {
        match String::from_value(value, path.clone(), errors)?.as_str() {
            "" => {}
            "Memory" => return Some(Self::Memory),
            huge if huge == "HugePages" || huge.starts_with("HugePages-") => {
                errors.not_supported(path, "volumes of huge pages are not made");
            }
            other => errors.unsupported(path, other, &["", "Memory"]),
        }
        None
    }

    fn to_value(&self) -> Value {
        "Memory".into()
    }
}

/// A volume of a pod, which containers mount by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Name within the pod.
    pub name: String,
    /// Source of the content; an empty directory unless said.
    pub source: VolumeSource,
    /// Fields of further sources, of which there must be none.
    pub(crate) further: Vec<&'static str>,
}

/// Source of the content of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeSource {
    /// A path of the node.
    HostPath(HostPathVolume),
    /// A directory that lives as long as the pod.
    EmptyDir(EmptyDirVolume),
    /// Keys of a ConfigMap as files.
    ConfigMap(DocumentVolume),
    /// Keys of a Secret as files, in memory only.
    Secret(DocumentVolume),
    /// Fields of the pod as files.
    DownwardApi(DownwardApiVolume),
    /// Several of those in one directory.
    Projected(ProjectedVolume),
    /// The content of an image, to be read only.
    Image(ImageVolume),
}

impl VolumeSource {
    /// Kinds and names of the documents that the volume is made of.
    pub(crate) fn documents(&self) -> impl Iterator<Item = (DocumentKind, &str)> {
        let own = match self {
            Self::ConfigMap(document) => Some((DocumentKind::ConfigMap, document)),
            Self::Secret(document) => Some((DocumentKind::Secret, document)),
            _ => None,
        };
        let parts = if let Self::Projected(projected) = self { &projected.sources[..] } else { &[] };
        let parts = parts.iter().filter_map(|part| match part {
            ProjectedSource::ConfigMap(document) => Some((DocumentKind::ConfigMap, document)),
            ProjectedSource::Secret(document) => Some((DocumentKind::Secret, document)),
            ProjectedSource::DownwardApi(_) | ProjectedSource::ServiceAccountToken(_) | ProjectedSource::Unclear(_) => {
                None
            }
        });
        own.into_iter().chain(parts).map(|(kind, document)| (kind, document.name.as_str()))
    }

    /// The tokens of the pod's service account that the volume is made of.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = &TokenProjection> {
        let parts = if let Self::Projected(projected) = self { &projected.sources[..] } else { &[] };
        parts.iter().filter_map(|part| match part {
            ProjectedSource::ServiceAccountToken(token) => Some(token),
            _ => None,
        })
    }
}

impl Default for VolumeSource {
    fn default() -> Self {
        Self::EmptyDir(EmptyDirVolume::default())
    }
}

object! {
    /// A path of the node.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct HostPathVolume {
        /// Path on the node.
        pub path: String = "path",
        /// Check of the path; `None`: no check.
        pub kind: Option<HostPathType> = "type",
    }
}

object! {
    /// A directory that lives as long as the pod.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct EmptyDirVolume {
        /// `None`: on the node's disk.
        pub medium: Option<Medium> = "medium",
        /// How large it may become.
        pub size_limit: Option<Quantity> = "sizeLimit",
    }
}

object! {
    /// Fields of the pod as files.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct DownwardApiVolume {
        /// The files.
        pub items: Vec<DownwardItem> = "items",
        /// Mode of the files.
        pub default_mode: Option<i32> = "defaultMode",
    }
}

object! {
    /// Several sources of files in one directory.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct ProjectedVolume {
        /// Parts, all of which share the directory.
        pub sources: Vec<ProjectedSource> = "sources",
        /// Mode of the files.
        pub default_mode: Option<i32> = "defaultMode",
    }
}

object! {
    /// The content of an image, to be read only.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct ImageVolume {
        /// The image as written.
        pub reference: String = "reference",
        /// When to pull it.
        pub pull_policy: Option<PullPolicy> = "pullPolicy",
    }
}

object! {
    /// A document as files.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct DocumentVolume {
        /// Name of the ConfigMap or Secret, in the pod's namespace.
        pub name: String = "name",
        /// The keys that become files; none: all.
        pub items: Vec<KeyToPath> = "items",
        /// Mode of the files.
        pub default_mode: Option<i32> = "defaultMode",
        /// True if document and keys may be missing.
        pub optional: bool = "optional",
    }
}

object! {
    /// A key that becomes a file.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct KeyToPath {
        /// Key in the document.
        pub key: String = "key",
        /// The file, below the volume.
        pub path: String = "path",
        /// Mode of the file.
        pub mode: Option<i32> = "mode",
    }
}

object! {
    /// A field of the pod that becomes a file.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct DownwardItem {
        /// The file, below the volume.
        pub path: String = "path",
        /// A field of the pod.
        pub field_ref: Option<FieldRef> = "fieldRef",
        /// An amount of a container; exactly one of the two is set.
        pub resource_field_ref: Option<ResourceFieldRef> = "resourceFieldRef",
        /// Mode of the file.
        pub mode: Option<i32> = "mode",
    }
}

object! {
    /// A token of the pod's service account.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct TokenProjection {
        /// Audience of the token; empty: the API server.
        pub audience: String = "audience",
        /// How long it is good, in seconds.
        pub expiration_seconds: Option<i64> = "expirationSeconds",
        /// The file, below the volume.
        pub path: String = "path" always,
    }
}

impl TokenProjection {
    /// Key of the token among those of a pod.
    #[must_use]
    pub fn key(&self) -> TokenKey {
        TokenKey { audience: self.audience.clone(), expiration: self.expiration_seconds.unwrap_or(3600) }
    }
}

/// A part of a projected volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProjectedSource {
    /// Keys of a ConfigMap.
    ConfigMap(DocumentVolume),
    /// Keys of a Secret.
    Secret(DocumentVolume),
    /// Fields of the pod.
    DownwardApi(Vec<DownwardItem>),
    /// A token, which an API server makes.
    ServiceAccountToken(TokenProjection),
    /// Not one of those, but so many. It does not pass validation.
    Unclear(usize),
}

/// Sources that need what a node on its own does not have, and what that is.
const NOT_SUPPORTED: &[(&str, &str)] = &[
    ("persistentVolumeClaim", "claims are bound to volumes by an API server"),
    ("ephemeral", "claims are bound to volumes by an API server"),
    ("csi", "there are no CSI drivers on this node"),
    ("flexVolume", "there are no volume plugins on this node"),
    ("gitRepo", "repositories are not cloned; use an init container"),
    ("nfs", "network storage is not mounted; mount it on the node and use hostPath"),
    ("iscsi", "network storage is not mounted; mount it on the node and use hostPath"),
    ("fc", "network storage is not mounted; mount it on the node and use hostPath"),
    ("glusterfs", "network storage is not mounted; mount it on the node and use hostPath"),
    ("cephfs", "network storage is not mounted; mount it on the node and use hostPath"),
    ("rbd", "network storage is not mounted; mount it on the node and use hostPath"),
    ("quobyte", "network storage is not mounted; mount it on the node and use hostPath"),
    ("awsElasticBlockStore", "disks of a cloud are not attached"),
    ("azureDisk", "disks of a cloud are not attached"),
    ("azureFile", "disks of a cloud are not attached"),
    ("cinder", "disks of a cloud are not attached"),
    ("gcePersistentDisk", "disks of a cloud are not attached"),
    ("photonPersistentDisk", "disks of a cloud are not attached"),
    ("portworxVolume", "disks of a cloud are not attached"),
    ("scaleIO", "disks of a cloud are not attached"),
    ("storageos", "disks of a cloud are not attached"),
    ("vsphereVolume", "disks of a cloud are not attached"),
    ("flocker", "disks of a cloud are not attached"),
];

impl ManifestObject for Volume {
    fn read(fields: &mut ManifestFields<'_>) -> Self {
        for (field, reason) in NOT_SUPPORTED {
            fields.not_supported(field, reason);
        }
        let name = ManifestField::read(fields, "name");
        let sources = [
            ("hostPath", fields.get("hostPath").map(VolumeSource::HostPath)),
            ("emptyDir", fields.get("emptyDir").map(VolumeSource::EmptyDir)),
            ("configMap", fields.get("configMap").map(VolumeSource::ConfigMap)),
            ("secret", fields.get("secret").map(|SecretVolume(secret)| VolumeSource::Secret(secret))),
            ("downwardAPI", fields.get("downwardAPI").map(VolumeSource::DownwardApi)),
            ("projected", fields.get("projected").map(VolumeSource::Projected)),
            ("image", fields.get("image").map(VolumeSource::Image)),
        ];
        let mut sources = sources.into_iter().filter_map(|(field, source)| Some((field, source?)));
        let source = sources.next().map(|(_, source)| source).unwrap_or_default();
        Self { name, source, further: sources.map(|(field, _)| field).collect() }
    }

    fn write(&self, object: &mut Map<String, Value>) {
        let (field, source) = match &self.source {
            VolumeSource::HostPath(source) => ("hostPath", source.to_value()),
            VolumeSource::EmptyDir(source) => ("emptyDir", source.to_value()),
            VolumeSource::ConfigMap(source) => ("configMap", source.to_value()),
            VolumeSource::Secret(source) => ("secret", SecretVolume(source.clone()).to_value()),
            VolumeSource::DownwardApi(source) => ("downwardAPI", source.to_value()),
            VolumeSource::Projected(source) => ("projected", source.to_value()),
            VolumeSource::Image(source) => ("image", source.to_value()),
        };
        self.name.write("name", object);
        object.insert(field.to_owned(), source);
    }
}

/// A Secret as a volume, which calls its name otherwise.
struct SecretVolume(DocumentVolume);

impl ManifestObject for SecretVolume {
    fn read(fields: &mut ManifestFields<'_>) -> Self {
        Self(DocumentVolume {
            name: ManifestField::read(fields, "secretName"),
            items: ManifestField::read(fields, "items"),
            default_mode: ManifestField::read(fields, "defaultMode"),
            optional: ManifestField::read(fields, "optional"),
        })
    }

    fn write(&self, object: &mut Map<String, Value>) {
        self.0.name.write("secretName", object);
        DocumentVolume { name: String::new(), ..self.0.clone() }.write(object);
    }
}

/// A document that is a part of a projected volume: without a mode of its own.
struct ProjectedDocument(DocumentVolume);

impl ManifestObject for ProjectedDocument {
    fn read(fields: &mut ManifestFields<'_>) -> Self {
        Self(DocumentVolume {
            name: ManifestField::read(fields, "name"),
            items: ManifestField::read(fields, "items"),
            default_mode: None,
            optional: ManifestField::read(fields, "optional"),
        })
    }

    fn write(&self, object: &mut Map<String, Value>) {
        self.0.write(object);
    }
}

object! {
    /// Fields of the pod that are a part of a projected volume.
    struct ProjectedItems {
        items: Vec<DownwardItem> = "items",
    }
}

impl ManifestObject for ProjectedSource {
    fn read(fields: &mut ManifestFields<'_>) -> Self {
        fields.not_supported("clusterTrustBundle", "trust bundles come from an API server");
        fields.not_supported("podCertificate", "certificates of pods come from an API server");
        let sources = [
            fields.get("configMap").map(|ProjectedDocument(document)| Self::ConfigMap(document)),
            fields.get("secret").map(|ProjectedDocument(document)| Self::Secret(document)),
            fields.get("downwardAPI").map(|ProjectedItems { items }| Self::DownwardApi(items)),
            fields.get("serviceAccountToken").map(Self::ServiceAccountToken),
        ];
        let mut sources: Vec<Self> = sources.into_iter().flatten().collect();
        if sources.len() == 1 { sources.remove(0) } else { Self::Unclear(sources.len()) }
    }

    fn write(&self, object: &mut Map<String, Value>) {
        let (field, source) = match self {
            Self::ConfigMap(document) => ("configMap", document.to_value()),
            Self::Secret(document) => ("secret", document.to_value()),
            Self::DownwardApi(items) => ("downwardAPI", ProjectedItems { items: items.clone() }.to_value()),
            Self::ServiceAccountToken(token) => ("serviceAccountToken", token.to_value()),
            // It did not pass validation.
            Self::Unclear(_) => return,
        };
        object.insert(field.to_owned(), source);
    }
}
