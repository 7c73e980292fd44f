//! Import: what an archive holds, each image of it through the pipeline of the pulls. All images are chosen before the
//! first is brought in, so that an archive with an image that cannot run here changes nothing.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use cri_api::{BeforeVisible, Result};
use engine_api::{ImportOptions, ImportedImage};
use oci::{Digest, Reference};
use signature::Signature;

use super::archive::{Archive, ArchiveSource, ArchivedImage};
use super::{docker, layout};
use crate::engine::Engine;
use crate::error::{self, invalid};
use crate::progress::Hub;
use crate::pull::choose::{Chosen, choose};
use crate::pull::key::Names;
use crate::pull::{Incoming, digests};
use crate::shared::Shared;
use crate::signatures::evidence;
use crate::source::Source;

/// An image of an archive whose manifest is chosen.
struct ChosenImage {
    source: Arc<dyn Source>,
    manifest: Chosen,
    /// For messages.
    name: String,
    names: BTreeSet<Reference>,
    resolved: Digest,
    has_manifest: bool,
    /// How it is recorded, by each of its names, and the signatures which the policy demanded for that.
    records: Vec<NameRecord>,
}

/// A name under which an image is recorded.
struct NameRecord {
    /// `None`: it gets none.
    reference: Option<Reference>,
    names: Names,
    signatures: Vec<Signature>,
}

impl Engine {
    /// Imports every image of an archive: an OCI layout (directory or tar) or a docker archive. They are verified as
    /// pulled ones are. Images of many platforms are brought in for this engine's platform.
    ///
    /// Names come from the options, from the annotations `io.containerd.image.name` or, where it is a whole name,
    /// `org.opencontainers.image.ref.name`, or from the docker archive's tags. An OCI layout's image is recorded by
    /// digest as well, so that a pod that names the digest finds it.
    ///
    /// A digest in a name must be that of the image's manifest, or of an index which leads to it; a docker archive has neither,
    /// and its images get no name with a digest. What has another one is refused, and nothing of its archive is stored.
    ///
    /// The signature policy decides by each name that an image gets. Where it demands signatures, an OCI layout can bring
    /// them, as `cosign save` writes them; those of an image that is here already count as well.
    ///
    /// # Errors
    /// Those of a pull; the caller says of which archive.
    pub async fn import(&self, path: &Path, options: ImportOptions) -> Result<Vec<ImportedImage>> {
        self.0.check_running()?;
        self.0.import(path, options).await.map_err(error::one_line)
    }
}

impl Shared {
    async fn import(self: &Arc<Self>, path: &Path, options: ImportOptions) -> Result<Vec<ImportedImage>> {
        let (path, platform) = (path.to_owned(), self.options.platform.clone());
        let has_policy = self.policy.is_some();
        let (archive, mut found, signatures) = self
            .background
            .run(move || {
                let archive = Archive::open(&path)?;
                let found = find(&archive, &platform)?;
                let signatures = if has_policy { layout::signatures(&archive)? } else { Vec::new() };
                Ok((Arc::new(archive), found, signatures))
            })
            .await?;
        if let Some(name) = options.name {
            let [image] = found.as_mut_slice() else {
                return Err(invalid(format!("it has {} images, and one name was given", found.len())));
            };
            image.names = BTreeSet::from([name.canonical()]);
        }
        if let Some(name) = found.iter().filter(|image| !image.has_manifest).find_map(digest_name) {
            return Err(invalid(format!(
                "image name {name} has a digest, and a docker archive brings no manifest which could have it: name the image by a tag"
            )));
        }
        let mut chosen = Vec::with_capacity(found.len());
        for image in found {
            let source: Arc<dyn Source> = Arc::new(ArchiveSource {
                archive: Arc::clone(&archive),
                background: self.background.clone(),
                elsewhere: image.layers,
                made_up: image.documents,
            });
            let name = image.names.first().map_or_else(|| image.descriptor.digest.to_string(), ToString::to_string);
            let root = source.document(&image.descriptor).await?;
            let manifest = choose(source.as_ref(), root, &self.options, &name).await?;
            let (names, resolved, has_manifest) = (image.names, image.descriptor.digest, image.has_manifest);
            check_digests(&names, &manifest)?;
            chosen.push(ChosenImage { source, manifest, name, names, resolved, has_manifest, records: Vec::new() });
        }
        for image in &mut chosen {
            image.records = self.records(image, &signatures).await?;
        }
        let mut imported = Vec::with_capacity(chosen.len());
        for ChosenImage { source, manifest, name, names, resolved, records, .. } in chosen {
            let mut id = String::new();
            // Every name after the first finds all layers here.
            for NameRecord { reference, names, signatures } in records {
                let (source, token, hub) = (Arc::clone(&source), self.token.child_token(), Hub::default());
                let _seat = hub.join(options.progress.clone());
                let (shared, name) = (self, name.as_str());
                let image = Incoming {
                    shared,
                    source,
                    chosen: &manifest,
                    name,
                    names,
                    reference: reference.as_ref(),
                    digests: digests(&resolved, &manifest),
                    signatures,
                    before_visible: BeforeVisible::default(),
                    hub: &hub,
                    token: &token,
                };
                id = image.bring(resolved.clone()).await?.id.to_string();
            }
            imported.push(ImportedImage { id, names: names.iter().map(ToString::to_string).collect() });
        }
        Ok(imported)
    }

    /// How an image is recorded, by each of its names, if the policy has nothing against one of them.
    async fn records(self: &Arc<Self>, image: &ChosenImage, brought: &[Signature]) -> Result<Vec<NameRecord>> {
        let digest = image.has_manifest.then_some(&image.resolved);
        let mut names: Vec<Option<&Reference>> = image.names.iter().map(Some).collect();
        if names.is_empty() {
            names.push(None);
        }
        let mut records = Vec::with_capacity(names.len());
        for name in names {
            let signatures = self.demanded(image, name, brought).await;
            let signatures = signatures.map_err(|error| error.context(format_args!("image {}", image.name)))?;
            let names = name.map(|name| record(name, digest)).unwrap_or_default();
            records.push(NameRecord { reference: name.cloned(), names, signatures });
        }
        Ok(records)
    }

    /// The signatures which the policy demands of an image by a name, among those that the archive brought and those that
    /// are here.
    async fn demanded(
        self: &Arc<Self>,
        image: &ChosenImage,
        name: Option<&Reference>,
        brought: &[Signature],
    ) -> Result<Vec<Signature>> {
        let Some(guard) = self.guard(name).await? else { return Ok(Vec::new()) };
        let present = self.find(image.manifest.manifest.config.digest.to_string()).await?;
        let mut signatures = present.map(|image| evidence::of(&image)).unwrap_or_default();
        signatures.extend_from_slice(brought);
        let digests = digests(&image.resolved, &image.manifest);
        guard.check_offline(self, digests, signatures, "in the archive").await
    }
}

fn digest_name(image: &ArchivedImage) -> Option<&Reference> {
    image.names.iter().find(|name| name.digest().is_some())
}

/// Refuses a name with a digest that is not one of the image's: that of the manifest, or of an index which leads to it.
fn check_digests(names: &BTreeSet<Reference>, chosen: &Chosen) -> Result<()> {
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

/// How an image is recorded by a name.
fn record(name: &Reference, manifest: Option<&Digest>) -> Names {
    match name.digest() {
        Some(_) => Names { tag: None, repo_digest: Some(name.to_string()) },
        None => Names {
            tag: Some(name.to_string()),
            repo_digest: manifest.map(|digest| name.at_digest(digest.clone()).to_string()),
        },
    }
}

/// The images of an archive, whatever it is. An OCI layout that names nothing gives way to a docker archive's tags.
fn find(archive: &Archive, platform: &oci::Platform) -> Result<Vec<ArchivedImage>> {
    let layout = layout::entries(archive, platform)?;
    let has_names = layout.iter().flatten().any(|image| !image.names.is_empty());
    let images = if has_names { layout } else { docker::entries(archive)?.or(layout) };
    images.ok_or_else(|| {
        invalid("it is neither an OCI layout (oci-layout, index.json) nor a docker archive (manifest.json)")
    })
}
