//! `imagelet fleet bake`: pulls the images of sets into a store, without an API server, and writes the pins and the state with which a node
//! that starts on this disk has them. An image that cannot be pulled is named, and the others are kept.

use std::collections::{BTreeMap, BTreeSet};

use cluster::node::Label;
use fleet::api::{ImageSetSpec, ResolvedImage};
use fleet::console::SetManifest;
use fleet::node::{BakedSet, save_baked};
use fleet::selection::selects;
use jiff::Timestamp;
use manifest::{FieldPath, decode};
use oci::Reference;
use serde::Serialize;

use super::manifests::{self, FleetObject};
use crate::app::App;
use crate::args::FleetBake;
use crate::cli::{pull, typed_credential};
use crate::exit::{Code, Failure, Outcome};
use crate::output::{Report, Table, units};
use crate::wiring::image_sets::DIRECTORY;

/// An image that is in the store.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BakedImage {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    id: String,
    bytes: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Baked {
    sets: Vec<String>,
    images: Vec<BakedImage>,
}

impl Report for Baked {
    fn table(&self, _: bool, whole: bool) -> Table {
        let mut table = Table::new(&["IMAGE", "DIGEST", "ON DISK"]);
        for image in &self.images {
            let digest = image.digest.as_deref().map(|digest| units::id(digest, whole)).unwrap_or_default();
            table.row([image.name.clone(), digest, units::bytes(image.bytes)]);
        }
        table
    }

    fn names(&self) -> Vec<String> {
        self.images.iter().map(|image| image.name.clone()).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.images.iter().map(|image| image.id.clone()).collect()
    }
}

pub(super) async fn run(app: &App, args: &FleetBake) -> Outcome {
    let sets = chosen(manifests::read(app, &args.files).await?, &app.config.cluster.labels)?;
    let names: BTreeSet<String> =
        sets.iter().flat_map(|(_, spec)| &spec.images).map(|image| image.name.clone()).collect();
    let names: Vec<String> = names.into_iter().collect();
    let auth = args.creds.as_ref().map(|creds| typed_credential::credential(creds, &names)).transpose()?;
    // A collection that cannot be opened is not one of an agent.
    app.collector().await?;
    let Some(collection) = app.own_collection().await else {
        let line =
            format!("an agent uses {}: bake into a root of its own, or stop the agent", app.config.root.display());
        return Err(Failure::failed(line));
    };
    let (pulled, failures) = pull::pull_all(app, &names, auth).await?;
    app.progress.finish();
    let images = images(app, pulled).await?;
    let state: Vec<BakedSet> = sets.iter().map(|(name, spec)| baked_set(name, spec, &images)).collect();
    let pins = save_baked(&app.config.root.join(DIRECTORY), &state, Timestamp::now()).await;
    let pins = pins.map_err(|error| Failure::caused(Code::Failed, "bake", &error))?;
    collection.pin_for_image_sets(pins).await?;
    let sets = sets.into_iter().map(|(name, _)| name).collect();
    app.printer.report(&Baked { sets, images: images.into_values().collect() })?;
    Failure::all(failures).map_or(Ok(()), |failure| Err(failure.with_code(Code::Failed)))
}

/// Returns the sets of the files; with labels, those that select a node with them.
fn chosen(objects: Vec<FleetObject>, labels: &[Label]) -> Outcome<Vec<(String, ImageSetSpec)>> {
    let labels: BTreeMap<String, String> =
        labels.iter().map(|label| (label.key.clone(), label.value.clone())).collect();
    let sets = objects.into_iter().filter(|object| object.kind == "ImageSet").map(|object| {
        let (set, _) = decode::<SetManifest>(&object.value, &FieldPath::default());
        (object.name, set.spec)
    });
    let sets: Vec<_> = sets.filter(|(_, spec)| labels.is_empty() || selects(spec, "", &labels)).collect();
    if sets.is_empty() {
        return Err(Failure::failed("no set of the files selects a node with these labels"));
    }
    Ok(sets)
}

/// Returns the pulled images by name, with digests and sizes.
async fn images(app: &App, pulled: Vec<pull::Pulled>) -> Outcome<BTreeMap<String, BakedImage>> {
    let listed = app.images().await?.service().list_images(None).await;
    let listed = listed.map_err(|error| Failure::call("list images", &error))?;
    let image = |pulled: pull::Pulled| {
        let found = listed.iter().find(|image| image.id == pulled.image_ref);
        let digest = found.and_then(|image| digest_of(&pulled.image, &image.repo_digests));
        let bytes = found.map_or(0, |image| image.size);
        (pulled.image.clone(), BakedImage { name: pulled.image, digest, id: pulled.image_ref, bytes })
    };
    Ok(pulled.into_iter().map(image).collect())
}

/// Returns the digest under which the image was pulled: that of its name, or that of its repository.
fn digest_of(name: &str, repo_digests: &[String]) -> Option<String> {
    let reference = Reference::parse(name).ok()?;
    if let Some(digest) = reference.digest() {
        return Some(digest.to_string());
    }
    let start = format!("{}@", reference.repository());
    repo_digests.iter().rev().find_map(|name| name.strip_prefix(&start)).map(str::to_owned)
}

fn baked_set(name: &str, spec: &ImageSetSpec, images: &BTreeMap<String, BakedImage>) -> BakedSet {
    let resolved = spec.images.iter().filter_map(|image| {
        let baked = images.get(&image.name)?;
        Some(ResolvedImage {
            name: image.name.clone(),
            digest: baked.digest.clone(),
            pull_policy: image.pull_policy,
            ..ResolvedImage::default()
        })
    });
    BakedSet { name: name.to_owned(), spec: spec.clone(), images: resolved.collect() }
}
