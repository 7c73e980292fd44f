//! [`alternatives`]: the images of one entry of an archive for the platforms that were asked for, each with its config.
//! It reads documents and decides, and imports nothing. Called by the import.

use std::collections::BTreeSet;

use bytes::Bytes;
use cri_api::Result;
use cri_api::engine::Platforms;
use futures::future::{BoxFuture, FutureExt as _};
use oci::{Document, Index, Platform};

use crate::destination::image::ChosenManifest;
use crate::error::invalid;
use crate::options::EngineOptions;
use crate::pull::choose::{
    MAX_DEPTH, MAX_DOCUMENTS, artifact, check_manifest, choose, is_document, no_match, parse, parse_as, parse_config,
    runs_on,
};
use crate::source::{RawDocument, Source};

/// An image of an entry.
#[derive(Debug)]
pub(crate) struct Alternative {
    pub(crate) chosen: ChosenManifest,
    /// As its config names it.
    pub(crate) platform: Platform,
}

/// The images below `root` for these platforms, at least one. `name` is for messages.
pub(crate) async fn alternatives(
    source: &dyn Source,
    root: RawDocument,
    options: &EngineOptions,
    platforms: &Platforms,
    name: &str,
) -> Result<Vec<Alternative>> {
    let own = std::slice::from_ref(&options.platform);
    let asked = match platforms {
        Platforms::Own => own,
        Platforms::These(these) => these,
        Platforms::All => &[],
    };
    let mut found: Vec<ChosenManifest> = Vec::new();
    match parse(&root, name)? {
        Document::Manifest(_) => found.push(choose(source, root, options, &options.platform, name).await?),
        Document::Index(index) if asked.is_empty() => {
            let mut walk = Walk { source, options, name, documents: 0, found: Vec::new() };
            walk.descend(index, vec![root.bytes]).await?;
            found = walk.found;
            if found.is_empty() {
                return Err(no_match(name, &options.platform, &BTreeSet::new()));
            }
        }
        Document::Index(_) => {
            for platform in asked {
                let chosen = choose(source, root.clone(), options, platform, name).await?;
                if found.iter().all(|other| other.raw.digest != chosen.raw.digest) {
                    found.push(chosen);
                }
            }
        }
    }
    let mut images = Vec::with_capacity(found.len());
    for mut chosen in found {
        let descriptor = &chosen.manifest.config;
        let bytes = match &chosen.config {
            Some(bytes) => bytes.clone(),
            None => source.small_blob(descriptor, options.limits.config_bytes).await?,
        };
        let config = parse_config(&bytes, descriptor)?;
        if !chosen.platform_known && !asked.is_empty() && !asked.iter().any(|platform| runs_on(&config, platform)) {
            let offered = BTreeSet::from([config.platform.normalized().to_string()]);
            return Err(no_match(name, &asked[0], &offered));
        }
        chosen.config = Some(bytes);
        chosen.platform_known = true;
        images.push(Alternative { chosen, platform: config.platform.normalized() });
    }
    Ok(images)
}

/// A way through all manifests below an index.
struct Walk<'a> {
    source: &'a dyn Source,
    options: &'a EngineOptions,
    name: &'a str,
    documents: usize,
    found: Vec<ChosenManifest>,
}

impl Walk<'_> {
    /// Collects the images below an index. `indexes` lead to it, the outermost first and itself the last.
    fn descend(&mut self, index: Index, indexes: Vec<Bytes>) -> BoxFuture<'_, Result<()>> {
        async move {
            if indexes.len() > MAX_DEPTH {
                return Err(invalid(format!("{}: more than {MAX_DEPTH} indexes within one another", self.name)));
            }
            for descriptor in &index.manifests {
                // Archives of one platform keep the index of all.
                if !is_document(descriptor) || !self.source.has(descriptor).await {
                    continue;
                }
                self.documents += 1;
                if self.documents > MAX_DOCUMENTS {
                    return Err(invalid(format!("{}: more than {MAX_DOCUMENTS} manifests below its index", self.name)));
                }
                let raw = self.source.document(descriptor).await?;
                match parse_as(&raw, descriptor, self.name)? {
                    Document::Index(inner) => {
                        let indexes = indexes.iter().cloned().chain([raw.bytes]).collect();
                        self.descend(inner, indexes).await?;
                    }
                    Document::Manifest(manifest) => {
                        let known = self.found.iter().any(|other| other.raw.digest == raw.digest);
                        let attests = descriptor.platform.as_ref().is_some_and(|platform| platform.os == "unknown");
                        if known || attests || artifact(&manifest).is_some() {
                            continue;
                        }
                        check_manifest(&manifest, self.options, self.name)?;
                        let indexes = indexes.clone();
                        self.found.push(ChosenManifest { manifest, raw, indexes, config: None, platform_known: true });
                    }
                }
            }
            Ok(())
        }
        .boxed()
    }
}
