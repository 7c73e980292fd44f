//! [`Volume`]: what a container can see beside its image. Read by [`super::PodSpec`].

use image_manager::PullPolicy;
use oci::Quantity;

use super::read::{Fields, Read};
use super::variable::{FieldRef, ResourceFieldRef};
use super::words::words;

words! {
    /// Check of a path on the node.
    HostPathType {
        /// A directory; it is made where it is missing.
        DirectoryOrCreate = "DirectoryOrCreate",
        Directory = "Directory",
        /// A file; it is made where it is missing.
        FileOrCreate = "FileOrCreate",
        File = "File",
        Socket = "Socket",
        /// A character device.
        CharDevice = "CharDevice",
        BlockDevice = "BlockDevice",
    }
}

words! {
    /// Where an empty directory lies.
    Medium {
        Memory = "Memory",
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Name within the pod.
    pub name: String,
    pub source: VolumeSource,
    /// Fields of further sources, of which there must be none.
    pub(crate) further: Vec<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeSource {
    /// A path of the node.
    HostPath {
        path: String,
        /// Check of the path; `None`: no check.
        kind: Option<HostPathType>,
    },
    /// A directory that lives as long as the pod.
    EmptyDir {
        /// Where it lies; `None`: on the node's disk.
        medium: Option<Medium>,
        /// How large it may become.
        size_limit: Option<Quantity>,
    },
    /// A ConfigMap as files.
    ConfigMap(DocumentVolume),
    /// A Secret as files.
    Secret(DocumentVolume),
    /// Fields of the pod as files.
    DownwardApi {
        /// The files.
        items: Vec<DownwardItem>,
        /// Mode of the files.
        default_mode: Option<i32>,
    },
    /// Several of those in one directory.
    Projected {
        /// The parts.
        sources: Vec<ProjectedSource>,
        /// Mode of the files.
        default_mode: Option<i32>,
    },
    /// The content of an image, to be read only.
    Image {
        /// The image as written.
        reference: String,
        /// When to pull it.
        pull_policy: Option<PullPolicy>,
    },
}

impl Default for VolumeSource {
    fn default() -> Self {
        Self::EmptyDir { medium: None, size_limit: None }
    }
}

/// A document as files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocumentVolume {
    /// Name of the document.
    pub name: String,
    /// The keys that become files; none: all.
    pub items: Vec<KeyToPath>,
    /// Mode of the files.
    pub default_mode: Option<i32>,
    /// True if document and keys may be missing.
    pub optional: bool,
}

/// A key that becomes a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyToPath {
    pub key: String,
    /// The file, below the volume.
    pub path: String,
    /// Mode of the file.
    pub mode: Option<i32>,
}

/// A field of the pod that becomes a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DownwardItem {
    /// The file, below the volume.
    pub path: String,
    pub field_ref: Option<FieldRef>,
    /// An amount.
    pub resource_field_ref: Option<ResourceFieldRef>,
    /// Mode of the file.
    pub mode: Option<i32>,
}

/// A part of a projected volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProjectedSource {
    ConfigMap(DocumentVolume),
    Secret(DocumentVolume),
    /// Fields of the pod.
    DownwardApi(Vec<DownwardItem>),
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

impl Read for Volume {
    fn read(fields: &mut Fields<'_>) -> Self {
        for (field, reason) in NOT_SUPPORTED {
            fields.not_supported(field, reason);
        }
        let name = fields.string("name");
        let mut sources: Vec<(&'static str, VolumeSource)> = Vec::new();
        let mut found = |field, source: Option<VolumeSource>| sources.extend(source.map(|source| (field, source)));
        found("hostPath", fields.object::<HostPath>("hostPath").map(|HostPath(source)| source));
        found("emptyDir", fields.object::<EmptyDir>("emptyDir").map(|EmptyDir(source)| source));
        found("configMap", fields.object("configMap").map(VolumeSource::ConfigMap));
        found("secret", fields.object::<SecretVolume>("secret").map(|s| VolumeSource::Secret(s.0)));
        found("downwardAPI", fields.object::<Downward>("downwardAPI").map(|Downward(source)| source));
        found("projected", fields.object::<Projected>("projected").map(|Projected(source)| source));
        found("image", fields.object::<ImageVolume>("image").map(|ImageVolume(source)| source));
        let mut sources = sources.into_iter();
        let source = sources.next().map(|(_, source)| source).unwrap_or_default();
        Self { name, source, further: sources.map(|(field, _)| field).collect() }
    }
}

struct HostPath(VolumeSource);

impl Read for HostPath {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self(VolumeSource::HostPath { path: fields.string("path"), kind: fields.word("type") })
    }
}

struct EmptyDir(VolumeSource);

impl Read for EmptyDir {
    fn read(fields: &mut Fields<'_>) -> Self {
        let path = fields.path().child("medium");
        let medium = match fields.string("medium").as_str() {
            "" => None,
            "Memory" => Some(Medium::Memory),
            huge if huge == "HugePages" || huge.starts_with("HugePages-") => {
                fields.errors().not_supported(path, "volumes of huge pages are not made");
                None
            }
            other => {
                fields.errors().unsupported(path, other, &["", "Memory"]);
                None
            }
        };
        Self(VolumeSource::EmptyDir { medium, size_limit: fields.quantity("sizeLimit") })
    }
}

impl Read for DocumentVolume {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            name: fields.string("name"),
            items: fields.list("items"),
            default_mode: fields.int("defaultMode"),
            optional: fields.flag("optional"),
        }
    }
}

/// A Secret as a volume, which calls its name otherwise.
struct SecretVolume(DocumentVolume);

impl Read for SecretVolume {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self(DocumentVolume {
            name: fields.string("secretName"),
            items: fields.list("items"),
            default_mode: fields.int("defaultMode"),
            optional: fields.flag("optional"),
        })
    }
}

impl Read for KeyToPath {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self { key: fields.string("key"), path: fields.string("path"), mode: fields.int("mode") }
    }
}

struct Downward(VolumeSource);

impl Read for Downward {
    fn read(fields: &mut Fields<'_>) -> Self {
        let default_mode = fields.int("defaultMode");
        Self(VolumeSource::DownwardApi { items: fields.list("items"), default_mode })
    }
}

impl Read for DownwardItem {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            path: fields.string("path"),
            field_ref: fields.object("fieldRef"),
            resource_field_ref: fields.object("resourceFieldRef"),
            mode: fields.int("mode"),
        }
    }
}

struct Projected(VolumeSource);

impl Read for Projected {
    fn read(fields: &mut Fields<'_>) -> Self {
        let default_mode = fields.int("defaultMode");
        Self(VolumeSource::Projected { sources: fields.list("sources"), default_mode })
    }
}

/// The fields of a pod that are a part of a projected volume.
struct DownwardItems(Vec<DownwardItem>);

impl Read for DownwardItems {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self(fields.list("items"))
    }
}

/// A document that is a part of a projected volume: without a mode of its own.
struct ProjectedDocument(DocumentVolume);

impl Read for ProjectedDocument {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self(DocumentVolume {
            name: fields.string("name"),
            items: fields.list("items"),
            default_mode: None,
            optional: fields.flag("optional"),
        })
    }
}

impl Read for ProjectedSource {
    fn read(fields: &mut Fields<'_>) -> Self {
        fields.not_supported("serviceAccountToken", "tokens of service accounts come from an API server");
        fields.not_supported("clusterTrustBundle", "trust bundles come from an API server");
        fields.not_supported("podCertificate", "certificates of pods come from an API server");
        let mut sources: Vec<Self> = [
            fields.object::<ProjectedDocument>("configMap").map(|document| Self::ConfigMap(document.0)),
            fields.object::<ProjectedDocument>("secret").map(|document| Self::Secret(document.0)),
            fields.object::<DownwardItems>("downwardAPI").map(|items| Self::DownwardApi(items.0)),
        ]
        .into_iter()
        .flatten()
        .collect();
        if sources.len() == 1 { sources.remove(0) } else { Self::Unclear(sources.len()) }
    }
}

struct ImageVolume(VolumeSource);

impl Read for ImageVolume {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self(VolumeSource::Image { reference: fields.string("reference"), pull_policy: fields.word("pullPolicy") })
    }
}
