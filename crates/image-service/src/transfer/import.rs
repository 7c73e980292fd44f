//! Imports the content of an archive, each image through the pipeline of the pulls. All images are chosen before the
//! first one is imported, so that an archive with an image that cannot run here changes nothing.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use cri_api::engine::{ImportOptions, ImportReport, ImportedImage, PassedBy, Platforms};
use cri_api::{BeforeVisible, Result};
use oci::{Digest, Reference};
use signature::Signature;

use super::archive::{Archive, ArchiveSource, ArchivedImage};
use super::input::Copying;
use super::layout::Entry;
use super::platforms::{Alternative, alternatives};
use super::selection::{Labels, Selection};
use super::{directory, docker, layout};
use crate::destination::image::{ChosenManifest, Names, NewImage};
use crate::engine::Engine;
use crate::error::{self, invalid};
use crate::parts::EngineParts;
use crate::progress::Hub;
use crate::pull::choose::{is_document, not_an_image};
use crate::pull::image_job::{ImageJob, ImageState};
use crate::signatures::evidence;
use crate::source::{RawDocument, Source};

/// An image of an archive whose manifest is chosen.
struct ChosenImage {
    source: Arc<dyn Source>,
    manifest: Arc<ChosenManifest>,
    /// For messages.
    name: String,
    names: BTreeSet<Reference>,
    platform: oci::Platform,
    resolved: Digest,
    has_manifest: bool,
    /// How it is recorded, by each of its names, and the signatures which the policy demanded for that.
    records: Vec<NameRecord>,
}

/// An entry of an archive, opened.
struct ImportRoot {
    image: ArchivedImage,
    source: Arc<dyn Source>,
    document: RawDocument,
    /// For messages.
    entry: String,
}

/// A name under which an image is recorded.
struct NameRecord {
    /// `None`: it gets none.
    reference: Option<Reference>,
    names: Names,
    signatures: Vec<Signature>,
}

impl Engine {
    /// Imports the images of an archive: an OCI layout (directory or tar), a docker archive, or a directory as skopeo's
    /// `dir:` writes it. They are verified as pulled ones are. Of an image of several platforms, those that the options
    /// name are imported, by default this engine's; one of them gets the name, and the others are recorded by their
    /// digests. A file may be compressed with gzip, zstd or xz, and may be a pipe. Content that is no image is skipped.
    ///
    /// Names come from the options, from the annotations `io.containerd.image.name` or, where it is a whole name,
    /// `org.opencontainers.image.ref.name`, or from the docker archive's tags. An OCI layout's image is recorded by
    /// digest as well, so that a pod that names the digest finds it.
    ///
    /// A digest in a name must be that of the image's manifest, or of an index which leads to it; a docker archive has neither,
    /// and its images get no name with a digest. What has another one is refused, and nothing of its archive is stored.
    ///
    /// The signature policy decides by each name that an image gets. If it demands signatures, an OCI layout can
    /// contain them, as `cosign save` writes them; those of an image that is already present count as well.
    ///
    /// # Errors
    /// Those of a pull; the caller says of which archive.
    pub async fn import(&self, path: &Path, options: ImportOptions) -> Result<ImportReport> {
        self.0.in_flight.check_running()?;
        self.0.import(path, options).await.map_err(error::one_line)
    }
}

impl EngineParts {
    async fn import(self: &Arc<Self>, path: &Path, options: ImportOptions) -> Result<ImportReport> {
        let ImportOptions { name, images, platforms, progress } = options;
        let (archive, found, signatures) = self.open_archive(path, images.clone(), platforms.clone()).await?;
        let (mut roots, passed_by) = self.roots(&archive, found, !images.is_empty()).await?;
        if let Some(name) = name {
            let [root] = roots.as_mut_slice() else {
                let entries = roots.iter().map(|root| root.entry.as_str()).collect::<Vec<_>>().join(", ");
                return Err(invalid(format!(
                    "it has {} images, and one name was given: {entries} (--image chooses one)",
                    roots.len()
                )));
            };
            let name = name.canonical();
            root.entry = name.to_string();
            root.image.names = BTreeSet::from([name]);
        }
        let mut made_up = roots.iter().map(|root| &root.image).filter(|image| !image.has_manifest);
        if let Some(name) = made_up.find_map(digest_name) {
            return Err(invalid(format!(
                "image name {name} has a digest, and a docker archive brings no manifest which could have it: name the image by a tag"
            )));
        }
        let mut chosen = Vec::with_capacity(roots.len());
        for ImportRoot { image, source, document, entry } in roots {
            let resolved = image.descriptor.digest;
            for alternative in alternatives(source.as_ref(), document, &self.options, &platforms, &entry).await? {
                let Alternative { chosen: manifest, platform } = alternative;
                check_digests(&image.names, &manifest)?;
                chosen.push(ChosenImage {
                    source: Arc::clone(&source),
                    manifest: Arc::new(manifest),
                    name: entry.clone(),
                    names: image.names.clone(),
                    platform,
                    resolved: resolved.clone(),
                    has_manifest: image.has_manifest,
                    records: Vec::new(),
                });
            }
        }
        share_names(&mut chosen, &self.options.platform);
        for image in &mut chosen {
            image.records = self.records(image, &signatures).await?;
        }
        let mut imported = Vec::with_capacity(chosen.len());
        for ChosenImage { source, manifest, name, names, platform, resolved, records, .. } in chosen {
            let mut id = String::new();
            // For every name after the first, all layers are present.
            for NameRecord { reference, names, signatures } in records {
                let (source, token, hub) = (Arc::clone(&source), self.in_flight.child_token(), Hub::default());
                let _seat = hub.join(progress.clone());
                let job = ImageJob { parts: self, before_visible: BeforeVisible::default(), hub: &hub, token: &token };
                let image = NewImage {
                    chosen: Arc::clone(&manifest),
                    name: name.clone(),
                    names,
                    reference,
                    resolved: resolved.clone(),
                    signatures,
                    origin: source.origin().clone(),
                };
                id = job.run(ImageState::Chosen { source, image: Arc::new(image) }).await?.to_string();
            }
            let names = names.iter().map(ToString::to_string).collect();
            imported.push(ImportedImage { id, names, platform: platform.to_string() });
        }
        Ok(ImportReport { images: imported, passed_by })
    }

    /// Reads the documents of entries, and sets those aside that are of no image. `is_asked`: each was asked for, so that this is an
    /// error.
    async fn roots(
        &self,
        archive: &Arc<Archive>,
        found: ImportSelection,
        is_asked: bool,
    ) -> Result<(Vec<ImportRoot>, Vec<PassedBy>)> {
        let ImportSelection { images, mut passed_by } = found;
        let mut roots = Vec::with_capacity(images.len());
        for image in images {
            let source: Arc<dyn Source> = Arc::new(ArchiveSource {
                archive: Arc::clone(archive),
                background: self.content.background.clone(),
                elsewhere: image.layers.clone(),
                made_up: image.documents.clone(),
            });
            let entry = image.names.first().map_or_else(|| image.descriptor.digest.to_string(), ToString::to_string);
            let document = source.document(&image.descriptor).await?;
            match not_an_image(&document, &entry)? {
                Some(why) if is_asked => return Err(invalid(format!("{entry} is not a container image: {why}"))),
                Some(why) => passed_by.push(PassedBy { entry, why }),
                None => roots.push(ImportRoot { image, source, document, entry }),
            }
        }
        if roots.is_empty() {
            let what: Vec<String> = passed_by.iter().map(|entry| format!("; {}: {}", entry.entry, entry.why)).collect();
            return Err(invalid(format!("there is no container image in it{}", what.concat())));
        }
        Ok((roots, passed_by))
    }

    /// Opens an archive and finds the wanted images, and the signatures where a policy may demand some.
    async fn open_archive(
        &self,
        path: &Path,
        images: Vec<String>,
        platforms: Platforms,
    ) -> Result<(Arc<Archive>, ImportSelection, Vec<Signature>)> {
        let (path, store, own) = (path.to_owned(), self.content.store.clone(), self.options.platform.clone());
        let (limits, has_policy, token) =
            (self.options.limits.clone(), self.policy.is_set(), self.in_flight.child_token());
        // Dropping the future ends the copying.
        let _guard = token.clone().drop_guard();
        let open = move || {
            let spool = || store.unnamed_file().map_err(|e| error::from_store(store.root(), &e));
            let cancelled = || token.is_cancelled();
            let archive = Archive::open(&path, &Copying { spool: &spool, limits: &limits, cancelled: &cancelled })?;
            let found = find(&archive, &images, &platforms, &own)?;
            let signatures = if has_policy { layout::signatures(&archive)? } else { Vec::new() };
            Ok((Arc::new(archive), found, signatures))
        };
        self.content.background.run(open).await
    }

    /// How an image is recorded, by each of its names, if the policy has nothing against one of them.
    async fn records(self: &Arc<Self>, image: &ChosenImage, archived: &[Signature]) -> Result<Vec<NameRecord>> {
        let digest = image.has_manifest.then_some(&image.resolved);
        let mut names: Vec<Option<&Reference>> = image.names.iter().map(Some).collect();
        if names.is_empty() {
            names.push(None);
        }
        let mut records = Vec::with_capacity(names.len());
        for name in names {
            let signatures = self.demanded(image, name, archived).await;
            let signatures = signatures.map_err(|error| error.context(format_args!("image {}", image.name)))?;
            let names = name.map(|name| record(name, digest)).unwrap_or_default();
            records.push(NameRecord { reference: name.cloned(), names, signatures });
        }
        Ok(records)
    }

    /// Returns the signatures that the policy demands of an image by a name, from those in the archive and those that
    /// are present.
    async fn demanded(
        self: &Arc<Self>,
        image: &ChosenImage,
        name: Option<&Reference>,
        archived: &[Signature],
    ) -> Result<Vec<Signature>> {
        let Some(guard) = self.policy.guard(name).await? else { return Ok(Vec::new()) };
        let present = self.content.find(image.manifest.manifest.config.digest.clone().into()).await?;
        let mut signatures = present.map(|image| evidence::of(&image)).unwrap_or_default();
        signatures.extend_from_slice(archived);
        let digests = image.manifest.signed_digests(&image.resolved);
        guard.check_offline(&self.content.background, digests, signatures, "in the archive").await
    }
}

fn digest_name(image: &ArchivedImage) -> Option<&Reference> {
    image.names.iter().find(|name| name.digest().is_some())
}

/// Refuses a name with a digest that is not one of the image's: that of the manifest, or of an index which leads to it.
fn check_digests(names: &BTreeSet<Reference>, chosen: &ChosenManifest) -> Result<()> {
    let documents = || [&chosen.raw.bytes].into_iter().chain(chosen.indexes.iter().rev());
    for name in names {
        let Some(digest) = name.digest() else { continue };
        if !documents().any(|bytes| digest.algorithm().digest(bytes) == *digest) {
            let own: Vec<String> = documents().map(|bytes| Digest::sha256(bytes).to_string()).collect();
            let own = own.join(" and ");
            return Err(invalid(format!("image name {name} has another digest than the image, which has {own}")));
        }
    }
    Ok(())
}

/// Returns the names to record for an image of this name; `None` for `manifest` if its digest is not that of a pulled image.
fn record(name: &Reference, manifest: Option<&Digest>) -> Names {
    match manifest {
        Some(manifest) => Names::of_pull(name, manifest),
        None if name.digest().is_some() => Names { tag: None, repo_digest: Some(name.clone()) },
        None => Names { tag: Some(name.clone()), repo_digest: None },
    }
}

/// Of several images with one name, such as those of several platforms, one has it: the one that runs here best, otherwise the
/// first. The others are recorded by the digests of their manifests.
fn share_names(images: &mut [ChosenImage], own: &oci::Platform) {
    let names: BTreeSet<Reference> = images.iter().flat_map(|image| image.names.iter().cloned()).collect();
    for name in names.into_iter().filter(|name| name.digest().is_none()) {
        let has_it = |image: &&mut ChosenImage| image.names.contains(&name);
        let rank = |image: &&mut ChosenImage| own.rank(&image.platform).unwrap_or(usize::MAX);
        let Some(first) = images.iter_mut().filter(has_it).min_by_key(rank).map(|image| image.digest()) else {
            continue;
        };
        for image in images.iter_mut().filter(has_it).filter(|image| image.digest() != first) {
            image.names.remove(&name);
            if image.has_manifest {
                image.names.insert(name.at_digest(image.digest()));
            }
        }
    }
}

impl ChosenImage {
    fn digest(&self) -> Digest {
        self.manifest.raw.digest.clone()
    }
}

/// The wanted images of an archive, and content that is no image.
#[derive(Default)]
struct ImportSelection {
    images: Vec<ArchivedImage>,
    passed_by: Vec<PassedBy>,
}

/// The wanted images of an archive, whatever it is. An OCI layout that names nothing gives way to a docker archive's tags.
fn find(archive: &Archive, images: &[String], platforms: &Platforms, own: &oci::Platform) -> Result<ImportSelection> {
    let mut selection = Selection::new(images);
    let layout = layout::entries(archive)?;
    let has_names = layout.iter().flatten().any(|entry| entry.name.is_some());
    let mut found = ImportSelection::default();
    let others = match has_names {
        true => None,
        false => directory::entries(archive)?.map_or_else(|| docker::entries(archive), |images| Ok(Some(images)))?,
    };
    match (others, layout) {
        (Some(others), _) => {
            for mut image in others {
                let digests: Vec<String> = image.documents.keys().map(ToString::to_string).collect();
                let by_digest = Labels { digests: &digests, ..Labels::default() };
                let taken = match image.names.is_empty() {
                    true => selection.takes(by_digest),
                    false => {
                        selection.is_wanted(by_digest) || {
                            image
                                .names
                                .retain(|name| selection.takes(Labels { name: Some(name), ..Labels::default() }));
                            !image.names.is_empty()
                        }
                    }
                };
                if taken {
                    found.images.push(image);
                }
            }
        }
        (None, Some(mut entries)) => {
            entries.retain(|Entry { descriptor, name, label }| {
                let digests = [descriptor.digest.to_string()];
                selection.takes(Labels { name: name.as_ref(), text: label.as_deref(), digests: &digests })
            });
            let (entries, artifacts) = entries.into_iter().partition(|entry| is_document(&entry.descriptor));
            let artifacts: Vec<Entry> = artifacts;
            found.passed_by.extend(artifacts.into_iter().map(|Entry { descriptor, label, .. }| PassedBy {
                entry: label.unwrap_or_else(|| descriptor.digest.to_string()),
                why: format!("of media type {:?}", descriptor.media_type),
            }));
            found.images = layout::select(entries, platforms, own, &archive.path().display().to_string())?;
        }
        (None, None) => {
            return Err(invalid(
                "it is neither an OCI layout (oci-layout, index.json) nor a docker archive (manifest.json) nor a directory of skopeo's \
                 (version, manifest.json)",
            ));
        }
    }
    selection.check()?;
    Ok(found)
}
