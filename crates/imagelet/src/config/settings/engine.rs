//! Settings of the embedded engine. The values are fields of [`EngineOptions`] themselves, and so are the defaults. The limits
//! on layers and images, parallel ranges and the check of the disk space are no settings: their defaults are the bounds.

use image_service::{EngineOptions, Resume, SharedContent, UnsupportedImages};
use oci::Platform;
use serde_json::json;
use store::{Durability, LayerFormat};

use crate::config::declare::settings;
use crate::config::kind::{boolean, bytes, choice, count, parsed, path_if_any};

const LEAST_MEMORY: u64 = image_service::LEAST_MEMORY as u64;

const SHARED_CONTENTS: &[(&str, SharedContent)] =
    &[("verified", SharedContent::Verified), ("open", SharedContent::Open)];
const UNSUPPORTED_IMAGES: &[(&str, UnsupportedImages)] =
    &[("refuse", UnsupportedImages::Refuse), ("runtime", UnsupportedImages::Runtime)];
const RESUMES: &[(&str, Resume)] = &[("auto", Resume::Auto), ("always", Resume::Always), ("off", Resume::Off)];
const DURABILITIES: &[(&str, Durability)] = &[("full", Durability::Full), ("relaxed", Durability::Relaxed)];
const LAYER_FORMATS: &[(&str, LayerFormat)] =
    &[("auto", LayerFormat::Auto), ("erofs", LayerFormat::Erofs), ("dir", LayerFormat::Dir)];

settings! {
    impl EngineOptions {
        Engine {
            max_parallel_layers =>
                "maxParallelLayers", "max-parallel-layers", count(1..=256),
                "Number of layers of an image that the embedded engine fetches and unpacks at the same time, \
                 the largest first; four times as many of small ones (256 KiB). pullMemory is a limit of its \
                 own";
            memory =>
                "pullMemory", "pull-memory", bytes(LEAST_MEMORY..=1 << 40),
                "Memory that all pulls of the embedded engine together may use for buffers and decoders. A \
                 layer waits until it has the 1.8 to 2.8 MiB that it needs. A zstd window above a quarter of \
                 the limit is still used, one at a time";
            platform =>
                "platform", "platform", parsed(
                    "OS/ARCH[/VARIANT]",
                    "a platform such as linux/arm64",
                    |text| text.parse::<Platform>().map_err(|error| error.to_string()),
                    |platform| json!(platform.to_string()),
                ),
                "Platform that is chosen from an index [default: the machine's]";
            signature_policy =>
                "signaturePolicy", "signature-policy", path_if_any("FILE"),
                "Which images must be signed, by which keys, and which are rejected: a file in the form of \
                 /etc/containers/policy.json (docs/signatures.md). Read again when it changes. Without one \
                 every image is accepted. Behind a runtime imagelet must pull: not with pullEngine runtime, and auto \
                 is embedded";
            unsupported_images =>
                "unsupportedImages", "unsupported-images", choice(UNSUPPORTED_IMAGES),
                "What becomes of an image with encrypted layers or layers of an unknown type behind a runtime whose \
                 store imagelet fills. refuse: its pull fails; runtime: the runtime pulls it, without imagelet's limits and \
                 checks (docs/threat-model.md). Not with a signaturePolicy or pullEngine embedded, and never for an \
                 image whose descriptors have URLs";
            store.durability =>
                "durability", "durability", choice(DURABILITIES),
                "full: a reported image survives a power cut; relaxed: the last images and their records may \
                 be lost, none is ever incomplete";
            keep_blobs =>
                "keepBlobs", "keep-blobs", boolean(),
                "Keep compressed layers as they were fetched, for exports with the pulled manifest and for \
                 the repair of damaged layers. Takes about a third more disk";
            shared_content =>
                "sharedContent", "shared-content", choice(SHARED_CONTENTS),
                "Whether a pull uses layers that were pulled from another repository. verified: after a HEAD \
                 request for each, with the pull's own credential, to the pull's own registry; open: without \
                 a request, for nodes on which every pod may have every image";
            resume =>
                "resumeTransfers", "resume-transfers", choice(RESUMES),
                "What an interrupted pull leaves for the next one, for a day or until the space is needed. \
                 auto: complete layers, and of the others what came over a slow line; always: of the others \
                 everything that came; off: nothing";
            store.layer_format =>
                "layerFormat", "layer-format", choice(LAYER_FORMATS),
                "Shape of new layers on disk: one EROFS file, or a directory tree; auto: an EROFS file if the \
                 kernel mounts them, or without root, and a directory otherwise";
        }
    }
}
