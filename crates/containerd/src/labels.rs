//! Labels of objects in containerd's store: those that containerd knows, and our own.

use cri_api::engine::runtime_store::{LayerFacts, StackedLayer};
use oci::{Digest, Reference};

use crate::Labels;

/// Labels that containerd 2.3 and later give to the snapshot of a layer: by the first, a layer is found on other chains.
pub(crate) const DIFF_ID: &str = "containerd.io/snapshot/diff-id";
const PARENT_CHAIN_ID: &str = "containerd.io/snapshot/parent-chain-id";
/// Labels by which blobs keep the objects that they refer to.
pub(crate) const KEEPS_MANIFEST: &str = "containerd.io/gc.ref.content.m.0";
pub(crate) const KEEPS_CONFIG: &str = "containerd.io/gc.ref.content.config";
pub(crate) const KEEPS_LAYER: &str = "containerd.io/gc.ref.content.l.";
pub(crate) const KEEPS_SNAPSHOT: &str = "containerd.io/gc.ref.snapshot.";
/// Label of a blob with the repositories that it was fetched from, separated by commas; the host follows. Written for other clients of
/// containerd and never read: the host has no port, so that registries on two ports of a machine have the same label.
const SOURCE: &str = "containerd.io/distribution.source.";
/// Label of a blob with the diff id that containerd found when it unpacked it.
const UNCOMPRESSED: &str = "containerd.io/uncompressed";
/// Label of the records that the CRI plugin manages.
pub(crate) const MANAGED: (&str, &str) = ("io.cri-containerd.image", "managed");

/// Label of a record by which the CRI plugin reports the image as pinned. One such record of an image is enough.
pub(crate) const PINNED: (&str, &str) = ("io.cri-containerd.pinned", "pinned");

/// Our label of an image's record that we pinned: the root of the imagelet that did it.
pub(crate) const PINNED_BY: &str = "imagelet.io/pinned-by";
/// Our labels of a snapshot: the blob that it was unpacked from, the origin of that blob, and a mark that its files do not depend on its
/// parents.
pub(crate) const BLOB: &str = "imagelet.io/blob";
pub(crate) const ORIGIN: &str = "imagelet.io/origin";
pub(crate) const INDEPENDENT: &str = "imagelet.io/independent";
/// Our label of a snapshot whose layer is an EROFS file: the name of its directory.
pub(crate) const DIRECTORY: &str = "imagelet.io/directory";
/// Our label of an image's record: the lease under which the record was written last.
pub(crate) const LEASE: &str = "imagelet.io/lease";
/// Our labels of a lease: the staging slot where its layers are unpacked, its manifest, and its start in seconds since 1970. The
/// label of the slot keeps its first name, by which later versions find interrupted images.
pub(crate) const STAGING_SLOT: &str = "imagelet.io/workplace";
pub(crate) const MANIFEST: &str = "imagelet.io/manifest";
pub(crate) const BEGUN: &str = "imagelet.io/begun";
/// Our labels of an image's record: the pieces of its evidence, each with its number as suffix.
const EVIDENCE: &str = "imagelet.io/evidence.";
/// Longest piece. containerd limits a label to 4096 bytes, key included.
const EVIDENCE_PIECE: usize = 3072;

/// Labels of a layer's snapshot.
pub(crate) fn of_layer(layer: StackedLayer<'_>, facts: &LayerFacts) -> Labels {
    let mut labels = Labels::from([(DIFF_ID.to_owned(), layer.diff_id.to_string())]);
    let mut put = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            labels.insert(key.to_owned(), value);
        }
    };
    put(PARENT_CHAIN_ID, layer.parent.map(ToString::to_string));
    put(BLOB, facts.blob.as_ref().map(ToString::to_string));
    put(ORIGIN, facts.origin.clone());
    put(INDEPENDENT, facts.is_independent.then(|| "true".to_owned()));
    labels
}

/// Label of a snapshot whose layer is an EROFS file.
pub(crate) fn of_directory(name: &str) -> (String, String) {
    (DIRECTORY.to_owned(), name.to_owned())
}

/// Labels of an image's record that is written under this lease.
pub(crate) fn of_record(lease: &str) -> Labels {
    Labels::from([(MANAGED.0.to_owned(), MANAGED.1.to_owned()), (LEASE.to_owned(), lease.to_owned())])
}

/// Labels with the evidence of an image. The last one is empty, by which containerd removes a piece of longer evidence that the record
/// had before: the rest of a text never continues another one.
pub(crate) fn of_evidence(text: &str) -> Labels {
    let mut pieces = vec![String::new()];
    for character in text.chars() {
        if pieces.last().is_some_and(|piece| piece.len() + character.len_utf8() > EVIDENCE_PIECE) {
            pieces.push(String::new());
        }
        pieces.last_mut().expect("the first piece is there").push(character);
    }
    pieces.push(String::new());
    pieces.into_iter().enumerate().map(|(number, piece)| (format!("{EVIDENCE}{number}"), piece)).collect()
}

/// Returns the evidence in these labels.
pub(crate) fn evidence(labels: &Labels) -> Option<String> {
    let pieces = (0..).map_while(|number| labels.get(&format!("{EVIDENCE}{number}")).filter(|piece| !piece.is_empty()));
    let text: String = pieces.map(String::as_str).collect();
    (!text.is_empty()).then_some(text)
}

/// Returns the blob that the layer with these labels was unpacked from, and its diff ID.
pub(crate) fn blob_of(labels: &Labels) -> Option<(Digest, Digest)> {
    Some((labels.get(BLOB)?.parse().ok()?, labels.get(DIFF_ID)?.parse().ok()?))
}

/// Returns the diff ID that the runtime recorded when it unpacked the blob with these labels.
pub(crate) fn uncompressed(labels: &Labels) -> Option<Digest> {
    labels.get(UNCOMPRESSED)?.parse().ok()
}

/// Returns the recorded origin of the layer with these labels, if the layer was unpacked from this blob.
pub(crate) fn origin(labels: &Labels, blob: &Digest) -> Option<String> {
    let is_of_blob = labels.get(BLOB).is_some_and(|of| *of == blob.to_string());
    labels.get(ORIGIN).filter(|_| is_of_blob).cloned()
}

/// Returns the label with the repository that a blob was fetched from. The host is written without port and brackets.
pub(crate) fn blob_source(image: &Reference) -> (String, String) {
    let domain = image.domain();
    let host = match domain.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => domain.split_once(':').map_or(domain, |(host, _)| host),
    };
    (format!("{SOURCE}{host}"), image.path().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blob_source_label_has_no_port() {
        for (name, host, repository) in [
            ("busybox", "docker.io", "library/busybox"),
            ("registry.example:5000/team/app:1", "registry.example", "team/app"),
            ("[fd00::1]:5000/app:1", "fd00::1", "app"),
        ] {
            let reference = Reference::parse(name).expect("a reference");
            assert_eq!(blob_source(&reference), (format!("{SOURCE}{host}"), repository.to_owned()));
        }
    }

    #[test]
    fn origin_evidence_round_trips_without_mixing() {
        let long: String = "ä{\"b\":1}".chars().cycle().take(10_000).collect();
        for text in ["x", long.as_str()] {
            let mut labels = of_evidence(text);
            assert!(labels.iter().all(|(key, piece)| key.len() + piece.len() <= 4096));
            assert_eq!(evidence(&labels).as_deref(), Some(text));
            // A record keeps the labels that it had, and a label without a value is removed.
            labels = of_evidence(&long).into_iter().chain(labels).filter(|(_, piece)| !piece.is_empty()).collect();
            labels.retain(|key, _| of_evidence(text).get(key).is_none_or(|piece| !piece.is_empty()));
            assert_eq!(evidence(&labels).as_deref(), Some(text));
        }
        assert_eq!(evidence(&of_record("lease")), None);
    }

    #[test]
    fn layer_origin_applies_only_to_its_own_blob() {
        let (blob, other, diff_id) = (Digest::sha256(b"blob"), Digest::sha256(b"other"), Digest::sha256(b"layer"));
        let layer = StackedLayer { diff_id: &diff_id, chain_id: &diff_id, parent: None };
        let facts =
            LayerFacts { blob: Some(blob.clone()), origin: Some("public r/x".to_owned()), is_independent: true };
        let labels = of_layer(layer, &facts);
        assert_eq!(origin(&labels, &blob).as_deref(), Some("public r/x"));
        assert_eq!(origin(&labels, &other), None);
    }

    #[test]
    fn sources_recorded_by_containerd_are_not_an_origin() {
        let (blob, diff_id) = (Digest::sha256(b"blob"), Digest::sha256(b"layer"));
        let labels = Labels::from([
            (UNCOMPRESSED.to_owned(), diff_id.to_string()),
            (format!("{SOURCE}r.example"), "a/b,c".to_owned()),
        ]);
        assert_eq!(origin(&labels, &blob), None);
    }
}
