//! Import: what an archive holds, each image of it through the pipeline of the pulls. All images are chosen before the
//! first is brought in, so that an archive with an image that cannot run here changes nothing.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use cri_api::Result;
use oci::{Descriptor, Digest, Reference};

use super::archive::{Archive, ArchiveSource, Extent};
use super::{ImportOptions, ImportedImage, docker, layout};
use crate::engine::{Engine, Shared};
use crate::error::{self, invalid};
use crate::progress::Hub;
use crate::pull::choose::choose;
use crate::pull::{Incoming, Names};
use crate::source::Source;

/// An image of any kind of archive.
struct Found {
    descriptor: Descriptor,
    names: BTreeSet<Reference>,
    layers: HashMap<Digest, Extent>,
    documents: HashMap<Digest, Bytes>,
    /// Whether the manifest is the archive's own, so that its digest is worth recording.
    has_manifest: bool,
}

impl Engine {
    /// Imports every image of an archive: an OCI layout (directory or tar) or a docker archive. They are verified as
    /// pulled ones are. Images of many platforms are brought in for this engine's platform.
    ///
    /// Names come from the options, from the annotations `io.containerd.image.name` or, where it is a whole name,
    /// `org.opencontainers.image.ref.name`, or from the docker archive's tags. An OCI layout's image is recorded by
    /// digest as well, so that a pod that names the digest finds it.
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
        let (archive, mut found) = self
            .background
            .run(move || {
                let archive = Archive::open(&path)?;
                let found = find(&archive, &platform)?;
                Ok((Arc::new(archive), found))
            })
            .await?;
        if let Some(name) = options.name {
            let [image] = found.as_mut_slice() else {
                return Err(invalid(format!("it has {} images, and one name was given", found.len())));
            };
            image.names = BTreeSet::from([name.canonical()]);
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
            chosen.push((source, manifest, name, image.names, image.descriptor.digest, image.has_manifest));
        }
        let mut imported = Vec::with_capacity(chosen.len());
        for (source, manifest, name, names, resolved, has_manifest) in chosen {
            let digest = has_manifest.then_some(&resolved);
            let mut records: Vec<Names> = names.iter().map(|name| record(name, digest)).collect();
            if records.is_empty() {
                records.push(Names::default());
            }
            let mut id = String::new();
            // Every name after the first finds all layers here.
            for names in records {
                let (source, token, hub) = (Arc::clone(&source), self.token.child_token(), Hub::default());
                let _seat = hub.join(options.progress.clone());
                let (shared, name) = (self, name.as_str());
                let image = Incoming { shared, source, chosen: &manifest, name, names, hub: &hub, token: &token };
                id = image.bring(resolved.clone()).await?.id.to_string();
            }
            imported.push(ImportedImage { id, names: names.iter().map(ToString::to_string).collect() });
        }
        Ok(imported)
    }
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
fn find(archive: &Archive, platform: &oci::Platform) -> Result<Vec<Found>> {
    let of_layout = |entry: layout::Entry| Found {
        descriptor: entry.descriptor,
        names: entry.names,
        layers: HashMap::new(),
        documents: HashMap::new(),
        has_manifest: true,
    };
    let of_docker = |entry: docker::Entry| Found {
        descriptor: entry.descriptor,
        names: entry.names,
        layers: entry.layers,
        documents: entry.documents,
        has_manifest: false,
    };
    let layout = layout::entries(archive, platform)?;
    if let Some(entries) = layout.as_ref()
        && entries.iter().any(|entry| !entry.names.is_empty())
    {
        return Ok(layout.into_iter().flatten().map(of_layout).collect());
    }
    if let Some(entries) = docker::entries(archive)? {
        return Ok(entries.into_iter().map(of_docker).collect());
    }
    match layout {
        Some(entries) => Ok(entries.into_iter().map(of_layout).collect()),
        None => {
            Err(invalid("it is neither an OCI layout (oci-layout, index.json) nor a docker archive (manifest.json)"))
        }
    }
}
