//! Invariants of this crate's parsers for any input: run by libFuzzer (`fuzz/` at the top of the repository), and over
//! the committed corpora by a test. Compiled for tests and with the feature `fuzzing` only.

use crate::lenient::{compare_config, compare_document};
use crate::{
    Digest, Document, ImageConfig, Platform, Reference, apply_default_tag, bare_name, media_type, parse_image_name,
};

/// A parser with what it has to keep, by its name.
pub type Harness = (&'static str, fn(&[u8]));

/// The harnesses by name. Each panics where a parser does not keep what it has to.
pub const HARNESSES: &[Harness] = &[
    ("reference", reference),
    ("digest", digest),
    ("manifest", manifest),
    ("index", index),
    ("config", config),
    ("second-reader", second_reader),
];

/// A name that can be read is written so that it reads the same; the three ways to parse a name agree.
fn reference(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let name = parse_image_name(&text);
    if let Ok(parsed) = Reference::parse(&text) {
        let written = parsed.to_string();
        assert_eq!(Reference::parse(&written).as_ref(), Ok(&parsed), "{text:?} is written {written:?}");
        for part in parsed.path().split('/') {
            assert!(!matches!(part, "" | "." | ".."), "{text:?} leads elsewhere");
        }
        let name = name.expect("a reference is an image name");
        assert_eq!(name.repository, parsed.repository());
    }
    if let Ok(tagged) = apply_default_tag(&text) {
        assert!(parse_image_name(&tagged).is_ok(), "{text:?} with its tag is {tagged:?}");
    }
    if let Ok(bare) = bare_name(&text) {
        assert!(text.starts_with(bare) && !bare.is_empty());
    }
}

/// A digest is its algorithm and so many lower-case hexadecimal digits: nothing that leads elsewhere in a path or a URL.
fn digest(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(digest) = text.parse::<Digest>() {
        assert_eq!(digest.to_string(), text);
        assert_eq!(digest.hex().len(), digest.algorithm().hex_len());
        assert!(digest.hex().bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)));
    }
    if let Ok(platform) = text.parse::<Platform>() {
        assert_eq!(platform.to_string().parse(), Ok(platform));
    }
}

const TYPES: &[Option<&str>] = &[
    None,
    Some(media_type::OCI_MANIFEST),
    Some(media_type::OCI_INDEX),
    Some(media_type::DOCKER_MANIFEST),
    Some(media_type::DOCKER_INDEX),
    Some("application/json"),
];

/// A text is one kind of document, under whatever type it came (CVE-2021-41190); and it survives being written.
fn manifest(bytes: &[u8]) {
    let mut first: Option<Document> = None;
    for declared in TYPES {
        let Ok(document) = Document::parse(bytes, *declared) else { continue };
        if let Some(first) = &first {
            assert_eq!(first, &document, "as {declared:?} it is something else");
        }
        let written = match &document {
            Document::Manifest(manifest) => serde_json::to_vec(manifest),
            Document::Index(index) => serde_json::to_vec(index),
        };
        let written = written.expect("has a JSON form");
        assert_eq!(Document::parse(&written, *declared).ok().as_ref(), Some(&document));
        first.get_or_insert(document);
    }
}

/// Choosing from an index answers some of its descriptors, each once.
fn index(bytes: &[u8]) {
    let Ok(Document::Index(index)) = Document::parse(bytes, Some(media_type::OCI_INDEX)) else { return };
    for platform in [Platform::host(), Platform::new("linux", "arm", "v7")] {
        assert!(platform.select(&index.manifests).len() <= index.manifests.len());
    }
    for descriptor in &index.manifests {
        if let Some(platform) = &descriptor.platform {
            let normal = platform.normalized();
            assert_eq!(normal.normalized(), normal);
        }
    }
}

/// A user is a uid that every runtime takes for the same, or a name (CVE-2024-40635); a config survives being written.
fn config(bytes: &[u8]) {
    let Ok(config) = ImageConfig::parse(bytes) else { return };
    let (uid, name) = config.uid_or_username();
    assert!(uid.is_none_or(|uid| (0..=i64::from(i32::MAX)).contains(&uid) && name.is_empty()));
    let written = serde_json::to_vec(&config).expect("has a JSON form");
    assert_eq!(ImageConfig::parse(&written).ok(), Some(config));
}

/// A more lenient reader sees the same content in every document that is accepted.
fn second_reader(bytes: &[u8]) {
    for declared in TYPES {
        if let Ok(document) = Document::parse(bytes, *declared) {
            compare_document(bytes, &document);
        }
    }
    if let Ok(config) = ImageConfig::parse(bytes) {
        compare_config(bytes, &config);
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
#[test]
fn corpora_are_replayed() {
    replay::replay(HARNESSES);
}
