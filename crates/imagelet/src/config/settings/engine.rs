//! The rows about the embedded engine, and about the log.

use serde_json::json;

use super::{Group, Setting, word};
use crate::config::value::show_bytes;
use crate::config::{Durability, LayerFormat, LogFormat, LogLevel, Resume, SharedContent, Sharing};

/// Largest limit on a layer: what fits a file system.
const MAX_LAYER: u64 = 1 << 60;

const LEAST_MEMORY: u64 = image_service::LEAST_MEMORY as u64;

const SHARED_CONTENTS: [(&str, SharedContent); 2] =
    [("verified", SharedContent::Verified), ("open", SharedContent::Open)];
const RESUMES: [(&str, Resume); 3] = [("auto", Resume::Auto), ("always", Resume::Always), ("off", Resume::Off)];
const DURABILITIES: [(&str, Durability); 2] = [("full", Durability::Full), ("relaxed", Durability::Relaxed)];
const LAYER_FORMATS: [(&str, LayerFormat); 3] =
    [("auto", LayerFormat::Auto), ("erofs", LayerFormat::Erofs), ("dir", LayerFormat::Dir)];
const SHARINGS: [(&str, Sharing); 3] =
    [("off", Sharing::Off), ("reflink", Sharing::Reflink), ("hardlink", Sharing::Hardlink)];
const RANGES: [(&str, bool); 2] = [("auto", true), ("off", false)];
const LOG_FORMATS: [(&str, LogFormat); 2] = [("text", LogFormat::Text), ("json", LogFormat::Json)];
const LOG_LEVELS: [(&str, LogLevel); 5] = [
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("trace", LogLevel::Trace),
];

pub(super) static ROWS: &[Setting] = &[
    Setting {
        field: "maxParallelLayers",
        flag: "max-parallel-layers",
        variable: "IMAGELET_MAX_PARALLEL_LAYERS",
        short: None,
        value_name: "N",
        list: None,
        group: Group::Engine,
        help: "How many layers of an image the embedded engine fetches and unpacks at the same time, the biggest first; of \
               small ones (256 KiB) four times as many. pullMemory sets a limit of its own",
        apply: |c, raw| raw.count(1..=256).map(|v| c.max_parallel_layers = v),
        show: |c| json!(c.max_parallel_layers),
    },
    Setting {
        field: "pullMemory",
        flag: "pull-memory",
        variable: "IMAGELET_PULL_MEMORY",
        short: None,
        value_name: "BYTES",
        list: None,
        group: Group::Engine,
        help: "How much memory all pulls of the embedded engine use together at most for buffers and decoders. A layer needs \
               1.8 to 2.8 MiB and waits until it has that. A zstd window beyond a quarter of it is used all the same, one \
               at a time",
        apply: |c, raw| raw.bytes(LEAST_MEMORY..=1 << 40).map(|v| c.pull_memory = v),
        show: |c| json!(show_bytes(c.pull_memory)),
    },
    Setting {
        field: "checkDiskSpace",
        flag: "check-disk-space",
        variable: "IMAGELET_CHECK_DISK_SPACE",
        short: None,
        value_name: "BOOL",
        list: None,
        group: Group::Engine,
        help: "Refuse a pull of which the compressed layers alone do not fit on the disk, before they are fetched. false: \
               for a file system that makes layers smaller than their blobs",
        apply: |c, raw| raw.boolean().map(|v| c.check_disk_space = v),
        show: |c| json!(c.check_disk_space),
    },
    Setting {
        field: "parallelRanges",
        flag: "parallel-ranges",
        variable: "IMAGELET_PARALLEL_RANGES",
        short: None,
        value_name: "auto|off",
        list: None,
        group: Group::Engine,
        help: "auto: a large layer comes over several connections where the registry is slow on each and that brings \
               more, as long as there is memory; off: over one",
        apply: |c, raw| raw.choice(&RANGES).map(|v| c.parallel_ranges = v),
        show: |c| word(&RANGES, c.parallel_ranges),
    },
    Setting {
        field: "platform",
        flag: "platform",
        variable: "IMAGELET_PLATFORM",
        short: None,
        value_name: "OS/ARCH[/VARIANT]",
        list: None,
        group: Group::Engine,
        help: "Platform that is taken from an index [default: the machine's]",
        apply: |c, raw| {
            raw.parsed("a platform such as linux/arm64", str::parse::<oci::Platform>).map(|v| c.platform = v)
        },
        show: |c| json!(c.platform.to_string()),
    },
    Setting {
        field: "signaturePolicy",
        flag: "signature-policy",
        variable: "IMAGELET_SIGNATURE_POLICY",
        short: None,
        value_name: "FILE",
        list: None,
        group: Group::Engine,
        help: "Which images must be signed, by which keys, and which are rejected: a file in the form of \
               /etc/containers/policy.json (docs/signatures.md). Read again when it changes. Without one every image is \
               accepted; a remote runtime has a policy of its own",
        apply: |c, raw| raw.optional_path().map(|v| c.signature_policy = v),
        show: |c| json!(c.signature_policy),
    },
    Setting {
        field: "durability",
        flag: "durability",
        variable: "IMAGELET_DURABILITY",
        short: None,
        value_name: "full|relaxed",
        list: None,
        group: Group::Engine,
        help: "full: an image that was reported survives a power cut; relaxed: the last ones and their records may be \
               lost, none is ever half",
        apply: |c, raw| raw.choice(&DURABILITIES).map(|v| c.durability = v),
        show: |c| word(&DURABILITIES, c.durability),
    },
    Setting {
        field: "keepBlobs",
        flag: "keep-blobs",
        variable: "IMAGELET_KEEP_BLOBS",
        short: None,
        value_name: "BOOL",
        list: None,
        group: Group::Engine,
        help: "Keep compressed layers as they came, for exports with the manifest that was pulled and for layers that get \
               damaged. It takes about a third more disk",
        apply: |c, raw| raw.boolean().map(|v| c.keep_blobs = v),
        show: |c| json!(c.keep_blobs),
    },
    Setting {
        field: "sharedContent",
        flag: "shared-content",
        variable: "IMAGELET_SHARED_CONTENT",
        short: None,
        value_name: "verified|open",
        list: None,
        group: Group::Engine,
        help: "Whether layers that another repository brought are used for a pull. verified: after the pull's own registry has said, \
               for the pull's own credential, that it has them, which is a HEAD for each; open: without asking, for nodes on which \
               every pod may have every image",
        apply: |c, raw| raw.choice(&SHARED_CONTENTS).map(|v| c.shared_content = v),
        show: |c| word(&SHARED_CONTENTS, c.shared_content),
    },
    Setting {
        field: "resumeTransfers",
        flag: "resume-transfers",
        variable: "IMAGELET_RESUME_TRANSFERS",
        short: None,
        value_name: "auto|always|off",
        list: None,
        group: Group::Engine,
        help: "What an interrupted pull leaves for the next one, for a day or until the space is needed. auto: layers that were \
               whole, and of others what came over a slow line; always: of others all that came; off: nothing",
        apply: |c, raw| raw.choice(&RESUMES).map(|v| c.resume = v),
        show: |c| word(&RESUMES, c.resume),
    },
    Setting {
        field: "layerFormat",
        flag: "layer-format",
        variable: "IMAGELET_LAYER_FORMAT",
        short: None,
        value_name: "auto|erofs|dir",
        list: None,
        group: Group::Engine,
        help: "What a layer is on the disk: one EROFS file, or a directory tree; auto: an EROFS file where the kernel mounts \
               them, or without root, and a directory otherwise, or with shareFiles. Of layers that are pulled from then on",
        apply: |c, raw| raw.choice(&LAYER_FORMATS).map(|v| c.layer_format = v),
        show: |c| word(&LAYER_FORMATS, c.layer_format),
    },
    Setting {
        field: "shareFiles",
        flag: "share-files",
        variable: "IMAGELET_SHARE_FILES",
        short: None,
        value_name: "off|reflink|hardlink",
        list: None,
        group: Group::Engine,
        help: "Store a file that layers of several images have once: as links to one inode, or by its blocks where the file \
               system can (btrfs, XFS). Of layers that are pulled from then on",
        apply: |c, raw| raw.choice(&SHARINGS).map(|v| c.share_files = v),
        show: |c| word(&SHARINGS, c.share_files),
    },
    Setting {
        field: "limits.layerBytes",
        flag: "limit-layer-bytes",
        variable: "IMAGELET_LIMIT_LAYER_BYTES",
        short: None,
        value_name: "BYTES",
        list: None,
        group: Group::Engine,
        help: "Inflated bytes of a layer at most",
        apply: |c, raw| raw.bytes(1..=MAX_LAYER).map(|v| c.limits.layer_bytes = v),
        show: |c| json!(show_bytes(c.limits.layer_bytes)),
    },
    Setting {
        field: "limits.layerEntries",
        flag: "limit-layer-entries",
        variable: "IMAGELET_LIMIT_LAYER_ENTRIES",
        short: None,
        value_name: "N",
        list: None,
        group: Group::Engine,
        help: "Files, directories and other entries of a layer at most; all layers of an image together have twice as many at most. limits.inflateRatio holds them against the compressed size",
        apply: |c, raw| raw.count(1..=1_000_000_000).map(|v| c.limits.layer_entries = v),
        show: |c| json!(c.limits.layer_entries),
    },
    Setting {
        field: "limits.pathDepth",
        flag: "limit-path-depth",
        variable: "IMAGELET_LIMIT_PATH_DEPTH",
        short: None,
        value_name: "N",
        list: None,
        group: Group::Engine,
        help: "Components of a path in a layer at most",
        apply: |c, raw| raw.count(1..=2048).map(|v| c.limits.path_depth = v),
        show: |c| json!(c.limits.path_depth),
    },
    Setting {
        field: "limits.pathBytes",
        flag: "limit-path-bytes",
        variable: "IMAGELET_LIMIT_PATH_BYTES",
        short: None,
        value_name: "BYTES",
        list: None,
        group: Group::Engine,
        help: "Bytes of a path in a layer at most; a single name has 255 at most, as file systems want it",
        apply: |c, raw| raw.bytes(64..=4096).map(|v| c.limits.path_bytes = v),
        show: |c| json!(show_bytes(c.limits.path_bytes)),
    },
    Setting {
        field: "limits.headerBytes",
        flag: "limit-header-bytes",
        variable: "IMAGELET_LIMIT_HEADER_BYTES",
        short: None,
        value_name: "BYTES",
        list: None,
        group: Group::Engine,
        help: "Bytes of an extended (PAX) header in a layer at most; a record of it has a MiB, and a GNU long name 64 KiB, or less where this is less",
        apply: |c, raw| raw.bytes(1024..=1 << 30).map(|v| c.limits.header_bytes = v),
        show: |c| json!(show_bytes(c.limits.header_bytes)),
    },
    Setting {
        field: "limits.imageBytes",
        flag: "limit-image-bytes",
        variable: "IMAGELET_LIMIT_IMAGE_BYTES",
        short: None,
        value_name: "BYTES",
        list: None,
        group: Group::Engine,
        help: "Bytes of the files of all layers of an image at most",
        apply: |c, raw| raw.bytes(1..=MAX_LAYER).map(|v| c.limits.image_bytes = v),
        show: |c| json!(show_bytes(c.limits.image_bytes)),
    },
    Setting {
        field: "limits.imageLayers",
        flag: "limit-image-layers",
        variable: "IMAGELET_LIMIT_IMAGE_LAYERS",
        short: None,
        value_name: "N",
        list: None,
        group: Group::Engine,
        help: "Layers of an image at most",
        apply: |c, raw| raw.count(1..=100_000).map(|v| c.limits.image_layers = v),
        show: |c| json!(c.limits.image_layers),
    },
    Setting {
        field: "limits.inflateRatio",
        flag: "limit-inflate-ratio",
        variable: "IMAGELET_LIMIT_INFLATE_RATIO",
        short: None,
        value_name: "N",
        list: None,
        group: Group::Engine,
        help: "How many times its compressed size a layer may inflate to; 1Gi is always allowed, and gzip cannot make more than 1032 times. Of more than 200000 entries of a layer or an image, each counts 128Ki of this: with 1500 it has 87 compressed bytes",
        apply: |c, raw| raw.count(1..=1_000_000_000).map(|v| c.limits.inflate_ratio = v),
        show: |c| json!(c.limits.inflate_ratio),
    },
    Setting {
        field: "limits.manifestBytes",
        flag: "limit-manifest-bytes",
        variable: "IMAGELET_LIMIT_MANIFEST_BYTES",
        short: None,
        value_name: "BYTES",
        list: None,
        group: Group::Engine,
        help: "Bytes of an index or a manifest at most",
        apply: |c, raw| raw.bytes(1024..=1 << 30).map(|v| c.limits.manifest_bytes = v),
        show: |c| json!(show_bytes(c.limits.manifest_bytes)),
    },
    Setting {
        field: "limits.configBytes",
        flag: "limit-config-bytes",
        variable: "IMAGELET_LIMIT_CONFIG_BYTES",
        short: None,
        value_name: "BYTES",
        list: None,
        group: Group::Engine,
        help: "Bytes of an image's config at most",
        apply: |c, raw| raw.bytes(1024..=1 << 30).map(|v| c.limits.config_bytes = v),
        show: |c| json!(show_bytes(c.limits.config_bytes)),
    },
    Setting {
        field: "logging.format",
        flag: "log-format",
        variable: "IMAGELET_LOG_FORMAT",
        short: None,
        value_name: "text|json",
        list: None,
        group: Group::Logging,
        help: "Form of the log on stderr",
        apply: |c, raw| raw.choice(&LOG_FORMATS).map(|v| c.log_format = v),
        show: |c| word(&LOG_FORMATS, c.log_format),
    },
    Setting {
        field: "logging.level",
        flag: "log-level",
        variable: "IMAGELET_LOG_LEVEL",
        short: None,
        value_name: "LEVEL",
        list: None,
        group: Group::Logging,
        help: "What is logged: error, warn, info, debug or trace",
        apply: |c, raw| raw.choice(&LOG_LEVELS).map(|v| c.log_level = v),
        show: |c| word(&LOG_LEVELS, c.log_level),
    },
];
