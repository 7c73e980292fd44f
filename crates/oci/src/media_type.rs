//! Media types of manifests, indexes, configs and layers. Parameters such as `; charset=utf-8` are ignored.

/// OCI image manifest.
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// OCI image index.
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// OCI image config.
pub const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// OCI layer, uncompressed tar.
pub const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// OCI layer, gzip.
pub const OCI_LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// OCI layer, zstd.
pub const OCI_LAYER_ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
/// Docker schema 2 manifest.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Docker schema 2 manifest list.
pub const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// Docker image config.
pub const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
/// Docker layer, gzip (the type may lie: the magic bytes decide).
pub const DOCKER_LAYER_GZIP: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
/// Docker layer, uncompressed tar.
pub const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar";
/// Docker schema 1 manifest, signed.
pub const DOCKER_SCHEMA1_SIGNED: &str = "application/vnd.docker.distribution.manifest.v1+prettyjws";
/// Docker schema 1 manifest.
pub const DOCKER_SCHEMA1: &str = "application/vnd.docker.distribution.manifest.v1+json";

/// The types that are asked for when a manifest is resolved, most wanted first.
pub const MANIFEST_ACCEPT: [&str; 4] = [OCI_INDEX, OCI_MANIFEST, DOCKER_INDEX, DOCKER_MANIFEST];

/// The type without its parameters and in lower case.
#[must_use]
pub fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Returns true if the type is one of an image manifest.
#[must_use]
pub fn is_manifest(media_type: &str) -> bool {
    matches!(essence(media_type).as_str(), OCI_MANIFEST | DOCKER_MANIFEST)
}

/// Returns true if the type is one of an index (manifest list).
#[must_use]
pub fn is_index(media_type: &str) -> bool {
    matches!(essence(media_type).as_str(), OCI_INDEX | DOCKER_INDEX)
}

/// Returns true if the type is Docker's schema 1, which is not supported.
#[must_use]
pub fn is_schema1(media_type: &str) -> bool {
    matches!(essence(media_type).as_str(), DOCKER_SCHEMA1 | DOCKER_SCHEMA1_SIGNED)
}

/// Returns true if the type is one of an image config. `application/octet-stream` is accepted because an old registry
/// wrote it into manifests that are otherwise whole.
#[must_use]
pub fn is_config(media_type: &str) -> bool {
    matches!(essence(media_type).as_str(), OCI_CONFIG | DOCKER_CONFIG | "application/octet-stream")
}

/// Returns true if the type is one of a file system layer that can be unpacked. The compression is detected by the
/// blob's magic bytes, not by this type.
#[must_use]
pub fn is_layer(media_type: &str) -> bool {
    let essence = essence(media_type);
    let Some(rest) = ["application/vnd.oci.image.layer.v1.", "application/vnd.oci.image.layer.nondistributable.v1."]
        .iter()
        .find_map(|prefix| essence.strip_prefix(prefix))
    else {
        let docker = ["application/vnd.docker.image.rootfs.diff.", "application/vnd.docker.image.rootfs.foreign.diff."];
        return docker
            .iter()
            .find_map(|prefix| essence.strip_prefix(prefix))
            .is_some_and(|rest| matches!(rest, "tar" | "tar.gzip" | "tar.zstd"));
    };
    matches!(rest, "tar" | "tar+gzip" | "tar+zstd")
}

/// Returns true if the type is one of an image's layer, also where it cannot be unpacked: encrypted, or of another compression.
#[must_use]
pub fn is_of_image(media_type: &str) -> bool {
    let prefixes = ["application/vnd.oci.image.layer.", "application/vnd.docker.image.rootfs."];
    let essence = essence(media_type);
    prefixes.iter().any(|prefix| essence.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_by_type() {
        for yes in [
            OCI_LAYER,
            OCI_LAYER_GZIP,
            OCI_LAYER_ZSTD,
            DOCKER_LAYER_GZIP,
            "application/vnd.docker.image.rootfs.diff.tar",
            "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
            "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
        ] {
            assert!(is_layer(yes) && is_of_image(yes), "{yes}");
        }
        for no in [
            OCI_CONFIG,
            "application/vnd.oci.image.layer.v1.tar+encrypted",
            "application/vnd.erofs.layer.v1",
            "application/vnd.oci.image.layer.v1.tar+xz",
            "",
        ] {
            assert!(!is_layer(no), "{no}");
        }
    }

    #[test]
    fn unknown_layer_types_are_layers_of_images() {
        assert!(is_of_image("application/vnd.oci.image.layer.v1.tar+encrypted"));
        for no in ["application/vnd.cncf.helm.chart.content.v1.tar+gzip", "application/vnd.dsse.envelope.v1+json", ""] {
            assert!(!is_of_image(no), "{no}");
        }
    }

    #[test]
    fn parameters_and_case_are_ignored() {
        assert!(is_manifest("Application/vnd.oci.image.manifest.v1+JSON; charset=utf-8"));
        assert!(is_index(" application/vnd.docker.distribution.manifest.list.v2+json "));
    }
}
