//! Images that containers see as volumes: made sure of when the first container needs one, and refused where the runtime has
//! no such mounts, since it would pass them over. Called by [`super::start`].

use cri_api::{ContainerConfig, Error, VersionInfo};

use super::failure::{IMAGE_VOLUME_MOUNT_FAILED, StartFailure, StartResult};
use super::images::EnsureOutcome;
use super::pod_sync::{PodSync, ReadySandbox};
use crate::pod::{Container, ImageRole, Pod, PodImage};

/// Support of a runtime for image volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ImageVolumeSupport {
    Yes,
    /// Not supported by the runtime of this name and version.
    No(String),
    /// Unknown: the container has to show the mount.
    NotKnown,
}

/// The first versions that have them: the name of the runtime, major and minor.
const FIRST: [(&str, (u32, u32)); 2] = [("containerd", (2, 1)), ("cri-o", (1, 31))];

fn takes(version: &VersionInfo) -> ImageVolumeSupport {
    let VersionInfo { runtime_name, runtime_version, .. } = version;
    let Some((_, first)) = FIRST.iter().find(|(name, _)| name == runtime_name) else {
        return ImageVolumeSupport::NotKnown;
    };
    let mut numbers = runtime_version.trim_start_matches('v').split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|number| number.parse::<u32>().ok());
    match (number(), number()) {
        (Some(major), Some(minor)) if (major, minor) < *first => {
            ImageVolumeSupport::No(format!("{runtime_name} {runtime_version}"))
        }
        (Some(_), Some(_)) => ImageVolumeSupport::Yes,
        _ => ImageVolumeSupport::NotKnown,
    }
}

/// Returns the image volumes that a container mounts, each once.
pub(super) fn of_container<'p>(pod: &'p Pod, container: &Container) -> Vec<PodImage<'p>> {
    let sees = |name: &str| container.volume_mounts.iter().any(|mount| mount.name == name);
    pod.images().into_iter().filter(|image| image.role == ImageRole::Volume && sees(image.name)).collect()
}

impl PodSync<'_> {
    /// Makes sure of the images that a container sees, as far as no container before it needed them.
    pub(super) async fn ensure_image_volumes(&mut self, sandbox: &ReadySandbox, container: &Container) -> StartResult {
        let pod = self.pod;
        let wanted = of_container(pod, container);
        if wanted.is_empty() {
            return Ok(());
        }
        if let ImageVolumeSupport::No(runtime) = self.takes_image_volumes().await? {
            return Err(StartFailure::config(format!("image volumes are not supported by {runtime}")).into());
        }
        for image in wanted {
            if !self.image_volumes.contains_key(image.name) {
                let EnsureOutcome { answer, .. } = self.ensure(&image, Some(&sandbox.config)).await?;
                let answer = answer.map(|image| image.image_ref).map_err(|error| StartFailure::from(&error));
                self.image_volumes.insert(image.name.to_owned(), answer);
            }
            if let Some(Err(failure)) = self.image_volumes.get(image.name) {
                return Err(failure.clone().into());
            }
        }
        Ok(())
    }

    /// Removes a new container again if it lacks an image that it should see.
    pub(super) async fn check_image_volumes(&self, config: &ContainerConfig, id: &str) -> StartResult {
        let images = || config.mounts.iter().filter(|mount| mount.image.is_some());
        if images().next().is_none() || self.takes_image_volumes().await? == ImageVolumeSupport::Yes {
            return Ok(());
        }
        let failed = |error: Error| StartFailure::new("CreateContainerError", error.message());
        let status = self.pod_runtime.parts().runtime.container_status(id, false).await.map_err(failed)?;
        let shows = |path: &str| status.mounts.iter().any(|is| is.container_path == path && is.image.is_some());
        let Some(lacking) = images().find(|mount| !shows(&mount.container_path)) else { return Ok(()) };
        self.remove(&config.metadata.name, id).await?;
        let text = format!("{IMAGE_VOLUME_MOUNT_FAILED}: the runtime made no mount at {}", lacking.container_path);
        Err(StartFailure::new("CreateContainerError", text).into())
    }

    async fn takes_image_volumes(&self) -> Result<ImageVolumeSupport, StartFailure> {
        let version = self.pod_runtime.parts().runtime.version().await;
        version.map(|version| takes(&version)).map_err(|error| StartFailure::config(error.message()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_volume_support_follows_the_runtime_version() {
        let of = |name: &str, version: &str| {
            takes(&VersionInfo { runtime_name: name.into(), runtime_version: version.into(), ..VersionInfo::default() })
        };
        for (name, version) in [("containerd", "1.6.20~ds1"), ("containerd", "v2.0.5"), ("cri-o", "1.30.1")] {
            assert_eq!(of(name, version), ImageVolumeSupport::No(format!("{name} {version}")));
        }
        for (name, version) in [("containerd", "v2.1.0-rc.1"), ("containerd", "3.0"), ("cri-o", "1.31.0")] {
            assert_eq!(of(name, version), ImageVolumeSupport::Yes, "{name} {version}");
        }
        assert_eq!(
            (of("containerd", "dev"), of("fake", "1.0.0")),
            (ImageVolumeSupport::NotKnown, ImageVolumeSupport::NotKnown)
        );
    }
}
