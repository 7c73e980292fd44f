//! Contents of an OCI image layout: the entries of its `index.json`, by name. Which of several entries of one name is
//! meant is decided by platform. Pure but for reading two small files. Called by the import.

use std::collections::{BTreeMap, HashMap};

use cri_api::engine::Platforms;
use cri_api::{Error, Kind, Result};
use oci::{Descriptor, Document, Index, Platform, Reference};
use signature::Signature;

use super::archive::{Archive, ArchivedImage};
use crate::error::{damaged, invalid};
use crate::pull::choose::no_match;
use crate::signatures::{MAX_SIGNATURES, with_payloads};

/// containerd's annotation with the whole name.
pub(crate) const CONTAINERD_NAME: &str = "io.containerd.image.name";
/// The specification's annotation: a tag, or with some tools a whole name.
pub(crate) const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// The file that says that a directory is a layout.
pub(crate) const OCI_LAYOUT: &str = "oci-layout";
/// The file with the entries.
pub(crate) const INDEX: &str = "index.json";

/// An entry of `index.json`.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) descriptor: Descriptor,
    /// The name that the annotations give, in canonical form.
    pub(crate) name: Option<Reference>,
    /// The annotation as it is: a name, or a tag alone.
    pub(crate) label: Option<String>,
}

/// The entries of the layout; `None` when the archive is no layout. Signatures are none.
pub(crate) fn entries(archive: &Archive) -> Result<Option<Vec<Entry>>> {
    Ok(index_of(archive)?.map(|index| {
        let entries = index.manifests.into_iter().filter(|descriptor| !is_signature(descriptor));
        entries
            .map(|descriptor| Entry { name: name_of(&descriptor), label: label_of(&descriptor), descriptor })
            .collect()
    }))
}

/// Returns the signatures that a layout has in addition to its images, the newest first; none if it is no layout.
pub(crate) fn signatures(archive: &Archive) -> Result<Vec<Signature>> {
    let mut found = Vec::new();
    let Some(index) = index_of(archive)? else { return Ok(found) };
    for descriptor in index.manifests.iter().rev().filter(|descriptor| is_signature(descriptor)) {
        let bytes = archive.verified(descriptor)?;
        let place = || format!("{}: {}", archive.path().display(), descriptor.digest);
        match Document::parse(&bytes, Some(&descriptor.media_type)) {
            Ok(Document::Manifest(manifest)) => {
                let mut signatures = with_payloads(manifest, |payload| archive.verified(payload))?;
                signatures.reverse();
                found.extend(signatures);
            }
            Ok(Document::Index(_)) => return Err(damaged(format!("{}: signatures in an index", place()))),
            Err(error) => return Err(damaged(format!("{}: {error}", place()))),
        }
        if found.len() >= MAX_SIGNATURES {
            break;
        }
    }
    Ok(found)
}

/// The entry of a layout by its name, its tag or its digest; without any, the only one.
pub(crate) fn entry(archive: &Archive, name: Option<&str>) -> Result<Descriptor> {
    let place = archive.path().display().to_string();
    let index = index_of(archive)?.ok_or_else(|| invalid(format!("{place} is no OCI layout")))?;
    let images = index.manifests.into_iter().filter(|descriptor| !is_signature(descriptor));
    let Some(name) = name else {
        let mut images: Vec<Descriptor> = images.collect();
        images.dedup_by(|a, b| a.digest == b.digest);
        return match images.len() {
            1 => Ok(images.remove(0)),
            count => Err(invalid(format!("{place} has {count} images: say which one, by its name or digest"))),
        };
    };
    let whole = Reference::parse(name).map(Reference::canonical).ok();
    let fits = |descriptor: &Descriptor| {
        descriptor.digest.to_string() == name
            || descriptor.annotations.get(REF_NAME).is_some_and(|text| text == name)
            || whole.is_some() && name_of(descriptor) == whole
    };
    let mut found = images.filter(fits);
    let absent = || Error::new(Kind::NotFound, format!("{place} has no image {name:?}"));
    found.next().ok_or_else(absent)
}

/// Returns true if an entry holds signatures: as `cosign save` marks them, or by the tag that cosign gives them.
fn is_signature(descriptor: &Descriptor) -> bool {
    let is =
        |key: &str, wanted: &dyn Fn(&str) -> bool| descriptor.annotations.get(key).is_some_and(|text| wanted(text));
    is("kind", &|text| text == "dev.cosignproject.cosign/sigs")
        || is(REF_NAME, &|text| text.starts_with("sha256-") && text.ends_with(".sig"))
}

fn index_of(archive: &Archive) -> Result<Option<Index>> {
    let Some(index) = archive.find(INDEX)? else { return Ok(None) };
    let place = archive.path().display().to_string();
    let version = archive.find(OCI_LAYOUT)?.map(|extent| archive.read(&extent, OCI_LAYOUT)).transpose()?;
    let Some(version) = version else { return Ok(None) };
    let version: serde_json::Value =
        oci::json::from_slice(&version).map_err(|e| damaged(format!("{place}: {OCI_LAYOUT}: {e}")))?;
    let version = version.get("imageLayoutVersion").and_then(|v| v.as_str()).unwrap_or_default();
    if version != "1.0.0" {
        return Err(invalid(format!("{place}: image layout version {version:?} is not supported, only 1.0.0")));
    }
    let bytes = archive.read(&index, INDEX)?;
    match Document::parse(&bytes, None) {
        Ok(Document::Index(index)) => Ok(Some(index)),
        Ok(Document::Manifest(_)) => Err(damaged(format!("{place}: {INDEX} is a manifest and not an index"))),
        Err(error) => Err(damaged(format!("{place}: {INDEX}: {error}"))),
    }
}

/// The images of the entries. Entries of one name that all say their platform are one image of many platforms; others are images
/// of their own.
pub(crate) fn select(
    entries: Vec<Entry>,
    platforms: &Platforms,
    own: &Platform,
    place: &str,
) -> Result<Vec<ArchivedImage>> {
    let mut by_name: BTreeMap<Option<Reference>, Vec<Descriptor>> = BTreeMap::new();
    for Entry { descriptor, name, .. } in entries {
        by_name.entry(name).or_default().push(descriptor);
    }
    let mut images: Vec<ArchivedImage> = Vec::new();
    for (name, descriptors) in by_name {
        let of_many = descriptors.len() > 1 && descriptors.iter().all(|d| d.platform.is_some());
        let chosen: Vec<Descriptor> = match platforms {
            Platforms::Own if of_many => best(&descriptors, std::slice::from_ref(own), place)?,
            Platforms::These(these) if of_many => best(&descriptors, these, place)?,
            _ => descriptors,
        };
        for descriptor in chosen {
            match images.iter_mut().find(|e| e.descriptor.digest == descriptor.digest) {
                Some(image) => image.names.extend(name.clone()),
                None => images.push(ArchivedImage {
                    descriptor,
                    names: name.iter().cloned().collect(),
                    layers: HashMap::new(),
                    documents: HashMap::new(),
                    has_manifest: true,
                }),
            }
        }
    }
    Ok(images)
}

/// The best descriptor for each platform.
fn best(descriptors: &[Descriptor], platforms: &[Platform], place: &str) -> Result<Vec<Descriptor>> {
    let offered = || descriptors.iter().flat_map(|d| &d.platform).map(|p| p.normalized().to_string()).collect();
    let best = |platform: &Platform| {
        let best = platform.select(descriptors).first().map(|d| (*d).clone());
        best.ok_or_else(|| no_match(place, platform, &offered()))
    };
    platforms.iter().map(best).collect()
}

/// The name that the annotations give, in canonical form. A word with neither slash nor colon is a tag alone.
fn name_of(descriptor: &Descriptor) -> Option<Reference> {
    let whole = |text: &&String| text.contains(['/', ':']);
    let text = descriptor.annotations.get(CONTAINERD_NAME);
    let text = text.or_else(|| descriptor.annotations.get(REF_NAME).filter(whole))?;
    Reference::parse(text).ok().map(Reference::canonical)
}

/// The specification's annotation, otherwise containerd's, as it is.
fn label_of(descriptor: &Descriptor) -> Option<String> {
    [REF_NAME, CONTAINERD_NAME].iter().find_map(|key| descriptor.annotations.get(*key)).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use oci::Digest;

    fn entry(content: &str, platform: Option<&str>, annotations: &[(&str, &str)]) -> Descriptor {
        Descriptor {
            platform: platform.map(|p| p.parse().unwrap()),
            annotations: annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..Descriptor::new(oci::media_type::OCI_MANIFEST, Digest::sha256(content.as_bytes()), 1)
        }
    }

    fn chosen(manifests: &[Descriptor], platforms: &Platforms) -> Result<Vec<(String, Vec<String>)>> {
        let entry = |descriptor: &Descriptor| Entry {
            descriptor: descriptor.clone(),
            name: name_of(descriptor),
            label: label_of(descriptor),
        };
        let entries = manifests.iter().map(entry).collect();
        let names =
            |e: ArchivedImage| (e.descriptor.digest.to_string(), e.names.iter().map(ToString::to_string).collect());
        Ok(select(entries, platforms, &"linux/amd64".parse().unwrap(), "x")?.into_iter().map(names).collect())
    }

    #[test]
    fn a_word_is_a_tag_and_more_is_a_name() {
        for (text, want) in [
            ("v1", None),
            ("app:v1", Some("docker.io/library/app:v1")),
            ("r.example/app", Some("r.example/app:latest")),
            ("Not A: Name", None),
        ] {
            let name = name_of(&entry("x", None, &[(REF_NAME, text)]));
            assert_eq!(name.map(|name| name.to_string()).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn names_and_platforms() {
        let id = |content: &str| Digest::sha256(content.as_bytes()).to_string();
        let containerd = [(CONTAINERD_NAME, "docker.io/library/a:1"), (REF_NAME, "1")];
        let podman = [(REF_NAME, "docker.io/library/b:2")];
        let both = [entry("arm", Some("linux/arm64"), &containerd), entry("amd", Some("linux/amd64"), &containerd)];
        let entries = [
            both[0].clone(),
            both[1].clone(),
            entry("amd", Some("linux/amd64"), &podman),
            entry("bare", None, &[(REF_NAME, "latest")]),
        ];
        let got = chosen(&entries, &Platforms::Own);
        let want = vec![
            (id("bare"), vec![]),
            (id("amd"), vec!["docker.io/library/a:1".to_owned(), "docker.io/library/b:2".to_owned()]),
        ];
        assert_eq!(got.unwrap(), want);
        let name = || vec!["docker.io/library/a:1".to_owned()];
        let arm = Platforms::These(vec!["linux/arm64".parse().unwrap()]);
        assert_eq!(chosen(&both, &arm).unwrap(), [(id("arm"), name())]);
        assert_eq!(chosen(&both, &Platforms::All).unwrap(), [(id("arm"), name()), (id("amd"), name())]);
        let others = [entry("arm", Some("linux/arm64"), &[]), entry("win", Some("windows/amd64"), &[])];
        let none = chosen(&others, &Platforms::Own);
        let error = none.expect_err("nothing fits").to_string();
        assert!(error.contains("linux/arm64, windows/amd64"), "{error}");
    }
}
