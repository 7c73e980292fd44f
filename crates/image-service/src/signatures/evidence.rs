//! Signatures that are kept with an image: those by which a pull or an import met its policy's demands. They are looked at
//! again, with the policy of that moment, before the image is used, so that a node without a network goes on working and a key
//! that was taken out of the policy counts no more. What is kept is evidence and not a verdict: nothing is gained by writing
//! it into the database. Called by the guard and by commits.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use oci::Digest;
use serde::{Deserialize, Serialize};
use signature::Signature;
use store::ImageRecord;

/// The image's annotation in the store.
const KEY: &str = "signatures";
/// So many are kept, the newest ones. An image with more names than that is verified again at its registry.
pub(super) const MAX_KEPT: usize = 16;

/// A signature as it is written down.
#[derive(Serialize, Deserialize)]
pub(super) struct KeptSignature {
    payload: String,
    signature: String,
}

impl KeptSignature {
    pub(super) fn write(signature: &Signature) -> Self {
        Self { payload: BASE64_STANDARD.encode(&signature.payload), signature: signature.signature.clone() }
    }

    /// `None`: the payload cannot be read.
    pub(super) fn read(self) -> Option<Signature> {
        Some(Signature { payload: BASE64_STANDARD.decode(self.payload).ok()?, signature: self.signature })
    }
}

/// The signatures that are kept with an image. What cannot be read is not there.
pub(crate) fn of(image: &ImageRecord) -> Vec<Signature> {
    read(&image.annotations)
}

fn read(annotations: &BTreeMap<String, String>) -> Vec<Signature> {
    let Some(text) = annotations.get(KEY) else { return Vec::new() };
    let kept: Vec<KeptSignature> = serde_json::from_str(text).unwrap_or_default();
    kept.into_iter().take(MAX_KEPT).filter_map(KeptSignature::read).collect()
}

/// Returns true if all of these are kept with an image.
pub(crate) fn has_all(image: &ImageRecord, signatures: &[Signature]) -> bool {
    signatures.is_empty() || {
        let kept = of(image);
        signatures.iter().all(|signature| kept.contains(signature))
    }
}

/// The annotations of an image that had those `before`, if it was there, and was found to have these signatures.
pub(crate) fn merged(before: Option<&ImageRecord>, signatures: &[Signature]) -> BTreeMap<String, String> {
    let mut annotations = before.map(|image| image.annotations.clone()).unwrap_or_default();
    if signatures.is_empty() {
        return annotations;
    }
    let mut kept = signatures.to_vec();
    for signature in read(&annotations) {
        if !kept.contains(&signature) {
            kept.push(signature);
        }
    }
    kept.truncate(MAX_KEPT);
    let kept: Vec<KeptSignature> = kept.iter().map(KeptSignature::write).collect();
    annotations.insert(KEY.to_owned(), serde_json::to_string(&kept).expect("texts serialise"));
    annotations
}

/// Signatures that are kept with an image, and the digests by which it may have been signed.
pub(crate) struct Evidence {
    pub(crate) digests: Vec<Digest>,
    pub(crate) signatures: Vec<Signature>,
}

impl Evidence {
    /// The evidence that the store has with an image.
    pub(crate) fn of(image: &ImageRecord) -> Self {
        Self { digests: digests(image), signatures: of(image) }
    }
}

/// The digests that an image which is here goes by: its manifest's, its index's, and those that it was recorded under.
fn digests(image: &ImageRecord) -> Vec<Digest> {
    let mut digests = vec![image.manifest_digest.clone()];
    let recorded = image.references().filter_map(|name| name.digest().cloned());
    for digest in image.index_digest.iter().cloned().chain(recorded) {
        if !digests.contains(&digest) {
            digests.push(digest);
        }
    }
    digests
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(text: &str) -> Signature {
        Signature { payload: text.as_bytes().to_vec(), signature: text.to_owned() }
    }

    #[test]
    fn the_newest_are_kept() {
        let (a, b) = (signature("a"), signature("b"));
        let annotations = merged(None, &[a.clone(), b.clone()]);
        assert_eq!(read(&annotations), [a, b]);
        assert!(merged(None, &[]).is_empty(), "nothing is written for nothing");
        let many: Vec<Signature> = (0..40).map(|n| signature(&n.to_string())).collect();
        assert_eq!(read(&merged(None, &many)), many[..MAX_KEPT]);
    }

    #[test]
    fn what_cannot_be_read_is_not_there() {
        for text in ["", "null", "{}", r#"[{"payload":"?","signature":"x"}]"#, r#"[{"payload":"YQ=="}]"#] {
            assert_eq!(read(&BTreeMap::from([(KEY.to_owned(), text.to_owned())])), [], "{text}");
        }
    }
}
