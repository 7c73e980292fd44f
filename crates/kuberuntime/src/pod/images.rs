//! [`PodImage`]: every image that a pod needs, in the order of use, so that all of them can be made present ahead of
//! their turn. Called by the sync of a pod.

use image_manager::PullPolicy;

use super::{ContainerKind, Pod, VolumeSource, Word as _};

/// Use of an image in a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImageRole {
    /// The image is a volume.
    Volume,
    /// A container is made of it.
    Container(ContainerKind),
}

/// An image that a pod needs, and the container or volume that needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodImage<'a> {
    /// Use of the image: by a volume, or by a container of which kind.
    pub role: ImageRole,
    /// Name of the container or volume.
    pub name: &'a str,
    /// Image as written.
    pub image: &'a str,
    /// Pull policy of the image.
    pub policy: PullPolicy,
}

impl PodImage<'_> {
    /// `spec.containers{main}`, as events name it.
    #[must_use]
    pub fn field_path(&self) -> String {
        let field = match self.role {
            ImageRole::Volume => "volumes",
            ImageRole::Container(kind) => kind.field(),
        };
        format!("spec.{field}{{{}}}", self.name)
    }
}

impl Pod {
    /// Returns every image that the pod needs: those of volumes, of ephemeral, init and normal containers.
    #[must_use]
    pub fn images(&self) -> Vec<PodImage<'_>> {
        let spec = &self.spec;
        let policy = |policy: Option<PullPolicy>, image: &str| policy.unwrap_or_else(|| PullPolicy::default_for(image));
        let volumes = spec.volumes.iter().filter_map(|volume| match VolumeSource::of(volume) {
            VolumeSource::Image(source) => {
                let image = source.reference.as_deref().unwrap_or_default();
                let policy = policy(PullPolicy::of(source.pull_policy.as_deref()), image);
                Some(PodImage { role: ImageRole::Volume, name: &volume.name, image, policy })
            }
            _ => None,
        });
        let containers = |wanted: ContainerKind| {
            self.all_containers().filter(move |(kind, _)| *kind == wanted).map(move |(kind, container)| PodImage {
                role: ImageRole::Container(kind),
                name: &container.name,
                image: &container.image,
                policy: policy(container.image_pull_policy, &container.image),
            })
        };
        volumes
            .chain(containers(ContainerKind::Ephemeral))
            .chain(containers(ContainerKind::Init))
            .chain(containers(ContainerKind::Normal))
            .collect()
    }
}
