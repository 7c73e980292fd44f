//! From a resolved document to the one manifest that runs here: index, platform, nested index, and the checks that need
//! no layer. It fetches documents and configs, decides, and touches no disk. Called by pulls and imports.

use std::collections::BTreeSet;

use cri_api::{Error, Kind, Reason, Result};
use futures::future::{BoxFuture, FutureExt as _};
use oci::{Descriptor, Document, ImageConfig, Index, Manifest, ManifestError, Platform, media_type};

use crate::destination::image::ChosenManifest;
use crate::error::{damaged, invalid, is_runtime_only, runtime_only};
use crate::options::{EngineOptions, UnsupportedImages};
use crate::source::{RawDocument, Source};

/// How many indexes may stand above a manifest.
pub(crate) const MAX_DEPTH: usize = 3;
/// How many documents below an index are read: if only configs name the platforms, each takes a request or two.
pub(crate) const MAX_DOCUMENTS: usize = 200;
/// How many platforms an error lists, and how long one may be.
const MAX_OFFERED: usize = 30;
const MAX_PLATFORM: usize = 80;
/// Reason for which the runtime must not pull an image.
const URLS: &str = "unsupportedImages: runtime does not count for an image with urls, which the runtime would request";

/// Follows `root` down to the manifest for a platform. `name` is for messages.
pub(crate) async fn choose(
    source: &dyn Source,
    root: RawDocument,
    options: &EngineOptions,
    platform: &Platform,
    name: &str,
) -> Result<ChosenManifest> {
    match parse(&root, name)? {
        Document::Manifest(manifest) => {
            check_manifest(&manifest, options, name)?;
            Ok(ChosenManifest { manifest, raw: root, indexes: Vec::new(), config: None, platform_known: false })
        }
        Document::Index(index) => {
            let offered = BTreeSet::new();
            let mut search = PlatformSearch { source, options, platform, name, offered, documents: 0, has_urls: false };
            let found = descend(&mut search, index, 1).await?;
            let mut chosen = found.ok_or_else(|| no_match(name, platform, &search.offered))?;
            chosen.indexes.insert(0, root.bytes);
            Ok(chosen)
        }
    }
}

/// The error when nothing that is offered runs here.
pub(crate) fn no_match(name: &str, platform: &Platform, offered: &BTreeSet<String>) -> Error {
    let offered = match offered.len() {
        0 => "it offers no platform at all".to_owned(),
        count => {
            let shown = offered.iter().take(MAX_OFFERED).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if count > MAX_OFFERED { " and others" } else { "" };
            format!("it is for {shown}{more}")
        }
    };
    let message = format!("no matching platform: {name} has nothing for {platform}; {offered}");
    Error::new(Kind::NotFound, message).with_reason(Reason::NoPlatform)
}

/// Checks the platform that a config names.
pub(crate) fn check_platform(config: &ImageConfig, platform: &Platform, name: &str) -> Result<()> {
    if runs_on(config, platform) {
        return Ok(());
    }
    let offered = BTreeSet::from([config.platform.normalized().to_string()]);
    Err(no_match(name, platform, &offered))
}

/// Returns true if an image with this config runs on a node of this platform. A field that the config lacks matches any
/// platform: containerd and skopeo take such images as well.
pub(crate) fn runs_on(config: &ImageConfig, platform: &Platform) -> bool {
    let mut stated = config.platform.clone();
    if stated.os.is_empty() {
        stated.os.clone_from(&platform.os);
    }
    if stated.architecture.is_empty() {
        stated.architecture.clone_from(&platform.architecture);
        stated.variant.clone_from(&platform.variant);
    }
    platform.rank(&stated).is_some()
}

/// A way through indexes.
struct PlatformSearch<'a> {
    source: &'a dyn Source,
    options: &'a EngineOptions,
    platform: &'a Platform,
    name: &'a str,
    /// Platforms that were met.
    offered: BTreeSet<String>,
    /// Documents that were fetched.
    documents: usize,
    /// An index has a descriptor with URLs, which a runtime would request.
    has_urls: bool,
}

fn descend<'a>(
    search: &'a mut PlatformSearch<'_>,
    index: Index,
    depth: usize,
) -> BoxFuture<'a, Result<Option<ChosenManifest>>> {
    async move {
        let (source, options, platform, name) = (search.source, search.options, search.platform, search.name);
        if depth > MAX_DEPTH {
            return Err(invalid(format!("{name}: more than {MAX_DEPTH} indexes within one another")));
        }
        search.offered.extend(index.manifests.iter().filter_map(|d| d.platform.as_ref()).filter_map(spelled));
        search.has_urls |= index.manifests.iter().any(|descriptor| !descriptor.urls.is_empty());
        for descriptor in platform.select(&index.manifests) {
            if !is_document(descriptor) {
                // An artifact listed next to the images.
                continue;
            }
            search.documents += 1;
            if search.documents > MAX_DOCUMENTS {
                return Err(invalid(format!(
                    "{name}: more than {MAX_DOCUMENTS} manifests below its index might run here"
                )));
            }
            let raw = source.document(descriptor).await?;
            match parse_as(&raw, descriptor, name)? {
                Document::Index(inner) => {
                    if let Some(mut found) = descend(search, inner, depth + 1).await? {
                        found.indexes.insert(0, raw.bytes);
                        return Ok(Some(found));
                    }
                }
                Document::Manifest(manifest) => {
                    if has_platform(descriptor) {
                        match check_manifest(&manifest, options, name) {
                            Err(error) if is_runtime_only(&error) && search.has_urls => {
                                return Err(invalid(format!("{name}: {}; {URLS}", error.message())));
                            }
                            checked => checked?,
                        }
                        let chosen =
                            ChosenManifest { manifest, raw, indexes: Vec::new(), config: None, platform_known: true };
                        return Ok(Some(chosen));
                    }
                    // Only the config gives the platform. A manifest that is no image (an attestation) is skipped.
                    if check_manifest(&manifest, options, name).is_err() {
                        continue;
                    }
                    let bytes = source.small_blob(&manifest.config, options.limits.config_bytes).await?;
                    let config = parse_config(&bytes, &manifest.config)?;
                    if runs_on(&config, platform) {
                        let config = Some(bytes);
                        return Ok(Some(ChosenManifest {
                            manifest,
                            raw,
                            indexes: Vec::new(),
                            config,
                            platform_known: true,
                        }));
                    }
                    search.offered.extend(spelled(&config.platform));
                }
            }
        }
        Ok(None)
    }
    .boxed()
}

fn has_platform(descriptor: &Descriptor) -> bool {
    descriptor.platform.as_ref().is_some_and(|p| !(p.os.is_empty() && p.architecture.is_empty()))
}

/// The platform in its normal form; attestations (`unknown/unknown`) are never listed.
fn spelled(platform: &Platform) -> Option<String> {
    let text = platform.normalized().to_string();
    // It stands in a line for people.
    let plain = text.len() <= MAX_PLATFORM && text.chars().all(|c| c.is_ascii_graphic());
    (plain && !text.starts_with("unknown/") && text != "/").then_some(text)
}

/// Parses a document as what it came as.
pub(crate) fn parse(raw: &RawDocument, name: &str) -> Result<Document> {
    Document::parse(&raw.bytes, Some(&raw.media_type)).map_err(|error| {
        let kind = match error {
            ManifestError::Json(_) => Kind::DataLoss,
            _ => Kind::InvalidArgument,
        };
        Error::from_source(kind, &error).context(name)
    })
}

/// The same, and the descriptor that led here must agree as well.
pub(crate) fn parse_as(raw: &RawDocument, descriptor: &Descriptor, name: &str) -> Result<Document> {
    let document = parse(raw, name)?;
    let is_index = matches!(document, Document::Index(_));
    let declared = &descriptor.media_type;
    if media_type::is_index(declared) && !is_index || media_type::is_manifest(declared) && is_index {
        let got = if is_index { "an index" } else { "a manifest" };
        return Err(invalid(format!(
            "{name}: ambiguous manifest: {} is said to be {declared:?} and is {got}",
            raw.digest
        )));
    }
    Ok(document)
}

/// Checks of a manifest that need no fetching: it is an image, and its layers are of known types.
pub(crate) fn check_manifest(manifest: &Manifest, options: &EngineOptions, name: &str) -> Result<()> {
    if !media_type::is_config(&manifest.config.media_type) {
        let what = artifact(manifest).unwrap_or_default();
        return Err(invalid(format!("{name} is not a container image: {what}")));
    }
    let (seen, most) = (manifest.layers.len(), options.limits.image_layers);
    if seen > most {
        return Err(invalid(format!("{name}: the limit of layers in an image is {most}, and it has {seen}")));
    }
    for (number, layer) in manifest.layers.iter().enumerate() {
        if media_type::is_layer(&layer.media_type) {
            continue;
        }
        let hint = if layer.media_type.contains("encrypted") { " (encrypted layers are not supported)" } else { "" };
        let what = format!(
            "layer {} of {} ({}) has the unsupported media type {:?}{hint}",
            number + 1,
            manifest.layers.len(),
            layer.digest,
            layer.media_type
        );
        return Err(match hand_over(manifest, options) {
            HandOver::NoRuntime => invalid(format!("{name}: {what}")),
            HandOver::Refused(why) => invalid(format!("{name}: {what}; {why}")),
            HandOver::Allowed => runtime_only(what),
        });
    }
    Ok(())
}

/// Answer to the question whether a runtime may pull an image with layers that cannot be unpacked.
#[derive(Debug, PartialEq, Eq)]
enum HandOver {
    /// There is no runtime.
    NoRuntime,
    /// The runtime must not, for this reason.
    Refused(&'static str),
    Allowed,
}

/// Decides whether the runtime may pull an image with layers that cannot be unpacked. Only the node's settings can say so; the image
/// can only forbid it.
fn hand_over(manifest: &Manifest, options: &EngineOptions) -> HandOver {
    if options.runtime.is_none() {
        return HandOver::NoRuntime;
    }
    let mut descriptors = manifest.layers.iter().chain([&manifest.config]);
    match options.unsupported_images {
        UnsupportedImages::Refuse => {
            HandOver::Refused("with unsupportedImages: runtime the runtime would pull it, without imagelet's rules")
        }
        UnsupportedImages::Runtime if options.signature_policy.is_some() => HandOver::Refused(
            "unsupportedImages: runtime does not count with a signaturePolicy, which the runtime would not ask",
        ),
        UnsupportedImages::Runtime if descriptors.any(|descriptor| !descriptor.urls.is_empty()) => {
            HandOver::Refused(URLS)
        }
        UnsupportedImages::Runtime => HandOver::Allowed,
    }
}

/// Names the content of a manifest that is of no image, as its config says, or since none of its layers is one of an image.
pub(crate) fn artifact(manifest: &Manifest) -> Option<String> {
    if !media_type::is_config(&manifest.config.media_type) {
        return Some(match &manifest.artifact_type {
            Some(kind) => format!("an artifact of type {kind:?}"),
            None => format!("its config has media type {:?}", manifest.config.media_type),
        });
    }
    let first = manifest.layers.first()?;
    let none = manifest.layers.iter().all(|layer| !media_type::is_of_image(&layer.media_type));
    none.then(|| format!("its layers have media type {:?}", first.media_type))
}

/// Names the content of a document below which there is no image.
pub(crate) fn not_an_image(raw: &RawDocument, name: &str) -> Result<Option<String>> {
    Ok(match parse(raw, name)? {
        Document::Manifest(manifest) => artifact(&manifest),
        Document::Index(index) if index.manifests.is_empty() => Some("an empty index".to_owned()),
        Document::Index(index) => {
            let kind = |descriptor: &Descriptor| {
                let kind =
                    descriptor.other.get("artifactType")?.as_str().filter(|kind| !media_type::is_config(kind))?;
                Some(format!("an index of artifacts, the first of type {kind:?}"))
            };
            let kinds: Option<Vec<String>> = index.manifests.iter().map(kind).collect();
            kinds.and_then(|kinds| kinds.into_iter().next())
        }
    })
}

/// Returns true if a descriptor leads to a manifest or an index, as far as its media type says.
pub(crate) fn is_document(descriptor: &Descriptor) -> bool {
    let kind = &descriptor.media_type;
    kind.is_empty() || media_type::is_index(kind) || media_type::is_manifest(kind) || media_type::is_schema1(kind)
}

/// Checks that a present image runs on this platform, of which the caller knows the config alone.
pub(crate) fn check_present(chosen: &ChosenManifest, config: &[u8], platform: &Platform, name: &str) -> Result<()> {
    if chosen.platform_known {
        return Ok(());
    }
    check_platform(&parse_config(config, &chosen.manifest.config)?, platform, name)
}

/// Parses a config's bytes.
pub(crate) fn parse_config(bytes: &[u8], descriptor: &Descriptor) -> Result<ImageConfig> {
    ImageConfig::parse(bytes)
        .map_err(|error| damaged(error.to_string()).context(format_args!("config {}", descriptor.digest)))
}

/// Checks that config and manifest speak of the same layers.
pub(crate) fn check_layers(config: &ImageConfig, manifest: &Manifest, name: &str) -> Result<()> {
    let (layers, diff_ids) = (manifest.layers.len(), config.rootfs.diff_ids.len());
    if layers == diff_ids {
        return Ok(());
    }
    Err(damaged(format!("{name}: the manifest has {layers} layers and the config has {diff_ids} diff ids")))
}
