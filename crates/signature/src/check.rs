//! [`Check`]: compares the signatures of an image with the demands of a policy. Signatures are offered one by one, so
//! that no more of them are fetched than are needed. A signature's bytes are verified before its payload is read.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use oci::{Digest, Reference};

use crate::payload::{MAX_PAYLOAD, Payload, QuotedExcerpt};
use crate::policy::{Rule, Signed};

/// A signature with a longer text is skipped: that of the largest RSA key has less than 1,400 characters.
pub const MAX_SIGNATURE_TEXT: usize = 2048;

/// A signature as it was found. Nothing is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Signature {
    /// The signed bytes.
    pub payload: Vec<u8>,
    /// The signature of them, in base64, as cosign annotates it.
    pub signature: String,
}

/// Different reasons that are reported at most.
const MAX_REASONS: usize = 3;

/// A check of one image by one rule.
#[derive(Clone, Debug)]
pub struct Check {
    rule: Rule,
    image: Option<Reference>,
    digests: Vec<Digest>,
    /// For each demand of a signature whether it is met.
    met: Vec<bool>,
    offered: usize,
    reasons: BTreeMap<RefusalReason, usize>,
}

/// The reason why a signature does not count, ordered by how close the signature is to one that counts: the closest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RefusalReason {
    Identity(String),
    Digest(String),
    Payload(String),
    Key,
    Unreadable(&'static str),
}

impl Check {
    /// Starts a check of an image by its name (`None`: it has none) and its digests: that of the manifest or index to which its
    /// name resolves, and that of the manifest for this platform.
    #[must_use]
    pub fn new(rule: Rule, image: Option<Reference>, digests: Vec<Digest>) -> Self {
        let met = vec![false; rule.signed().count()];
        Self { rule, image, digests, met, offered: 0, reasons: BTreeMap::new() }
    }

    /// Offers one more signature. Returns true if it met a demand that was not met before.
    pub fn offer(&mut self, signature: &Signature) -> bool {
        self.offered += 1;
        let mut is_new = false;
        for (signed, met) in self.rule.signed().zip(&mut self.met) {
            if *met {
                continue;
            }
            match verify(signed, self.image.as_ref(), &self.digests, signature) {
                Ok(()) => (*met, is_new) = (true, true),
                Err(reason) => *self.reasons.entry(reason).or_default() += 1,
            }
        }
        is_new
    }

    /// Records a signature that could not be checked, with the reason.
    pub fn pass_over(&mut self, why: &'static str) {
        self.offered += 1;
        *self.reasons.entry(RefusalReason::Unreadable(why)).or_default() += 1;
    }

    /// Returns true if every demand is met.
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.met.iter().all(|met| *met)
    }

    /// The number of signatures that were offered or passed over.
    #[must_use]
    pub fn offered(&self) -> usize {
        self.offered
    }

    /// Returns the reasons why the offered signatures do not count, the most specific first; empty where none was offered.
    #[must_use]
    pub fn reasons(&self) -> String {
        let mut words = Vec::new();
        for (reason, times) in self.reasons.iter().take(MAX_REASONS) {
            let words_of_it = match reason {
                RefusalReason::Identity(text) | RefusalReason::Digest(text) | RefusalReason::Payload(text) => {
                    text.as_str()
                }
                RefusalReason::Key => "it was not made with the key",
                RefusalReason::Unreadable(text) => text,
            };
            words.push(if *times > 1 { format!("{words_of_it} ({times} times)") } else { words_of_it.to_owned() });
        }
        if self.reasons.len() > MAX_REASONS {
            words.push("and more".to_owned());
        }
        words.join("; ")
    }
}

/// Verifies that a signature meets a demand.
fn verify(
    demanded: &Signed,
    image: Option<&Reference>,
    digests: &[Digest],
    signature: &Signature,
) -> Result<(), RefusalReason> {
    if signature.signature.len() > MAX_SIGNATURE_TEXT {
        return Err(RefusalReason::Unreadable("it is longer than any signature"));
    }
    if signature.payload.len() as u64 > MAX_PAYLOAD {
        return Err(RefusalReason::Unreadable("its payload is larger than is looked at"));
    }
    let bytes =
        BASE64_STANDARD.decode(&signature.signature).map_err(|_| RefusalReason::Unreadable("it is not in base64"))?;
    if !demanded.keys.iter().any(|named| named.key.verifies(&signature.payload, &bytes)) {
        return Err(RefusalReason::Key);
    }
    // From this point on the payload is known to be written by a holder of the key.
    let payload = Payload::parse(&signature.payload).map_err(RefusalReason::Payload)?;
    if !digests.contains(&payload.digest) {
        return Err(RefusalReason::Digest(format!("it is for another image, {}", payload.digest)));
    }
    let Some(image) = image else {
        return Err(RefusalReason::Identity("the image has no name that it could be for".to_owned()));
    };
    if !demanded.identity.accepts(image, &payload.reference) {
        let (rule, hint) = (demanded.identity.name(), demanded.identity.hint(image, &payload.reference));
        let name = payload.reference.to_string();
        return Err(RefusalReason::Identity(format!(
            "it is for the name {}, which {rule} does not accept{hint}",
            QuotedExcerpt(&name)
        )));
    }
    Ok(())
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
