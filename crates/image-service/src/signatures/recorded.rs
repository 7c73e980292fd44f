//! Signatures that are kept with the records of a container runtime: those by which a pull of the name met its policy's demands. They
//! are evidence and not a verdict, as in our own store ([`super::evidence`]). The record of a name can be pointed to another image by
//! the runtime's own pull, and keeps the text; so the text says of which image it is, and counts for no other.

use cri_api::engine::runtime_store::NamedImage;
use oci::Digest;
use serde::{Deserialize, Serialize};
use signature::Signature;

use super::evidence::{Evidence, KeptSignature, MAX_KEPT};

#[derive(Serialize, Deserialize)]
struct RecordedEvidence {
    /// Image id.
    image: Digest,
    /// Digest that the name resolved to, then that of the manifest if it is another one.
    digests: Vec<Digest>,
    signatures: Vec<KeptSignature>,
}

/// The text for the records of an image; `None`: no signature was demanded.
pub(crate) fn write(image: &Digest, digests: &[Digest], signatures: &[Signature]) -> Option<String> {
    if signatures.is_empty() {
        return None;
    }
    let signatures = signatures.iter().take(MAX_KEPT).map(KeptSignature::write).collect();
    let evidence = RecordedEvidence { image: image.clone(), digests: digests.to_vec(), signatures };
    Some(serde_json::to_string(&evidence).expect("texts serialise"))
}

/// The evidence in a record that leads to this image. A text that cannot be read, or is of another image, has no signature.
pub(crate) fn read(record: &NamedImage, image: &Digest) -> Evidence {
    let read = record.evidence.as_deref().and_then(|text| serde_json::from_str::<RecordedEvidence>(text).ok());
    let of_image = |read: &RecordedEvidence| read.image == *image && read.digests.first() == Some(&record.target);
    match read.filter(of_image) {
        Some(read) => {
            let signatures = read.signatures.into_iter().take(MAX_KEPT).filter_map(KeptSignature::read).collect();
            Evidence { digests: read.digests, signatures }
        }
        None => Evidence { digests: vec![record.target.clone()], signatures: Vec::new() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_counts_for_the_image_that_it_was_written_for() {
        let [image, index, manifest, other] =
            ["image", "index", "manifest", "other"].map(|t| Digest::sha256(t.as_bytes()));
        let signature = Signature { payload: b"p".to_vec(), signature: "s".to_owned() };
        let text = write(&image, &[index.clone(), manifest.clone()], std::slice::from_ref(&signature));
        let record = |target: &Digest, evidence: Option<String>| NamedImage { target: target.clone(), evidence };
        let found = read(&record(&index, text.clone()), &image);
        assert_eq!((found.digests, found.signatures), (vec![index.clone(), manifest.clone()], vec![signature]));
        for (target, image, evidence) in [
            (&other, &image, text.clone()),
            (&manifest, &image, text.clone()),
            (&index, &other, text.clone()),
            (&index, &image, None),
            (&index, &image, Some("{".to_owned())),
            (&index, &image, text.map(|text| format!("{text}{{}}"))),
        ] {
            let found = read(&record(target, evidence), image);
            assert!(found.signatures.is_empty() && found.digests == [target.clone()]);
        }
        assert_eq!(write(&image, &[index], &[]), None, "nothing is written for nothing");
    }
}
