//! [`Origin`]: where content was fetched from, and which other pulls may therefore use it. Content on the node is no
//! secret to a pull that could have fetched it; every other pull has to prove that it could. Diff IDs and layer digests
//! appear in configs, bills of materials and logs, so knowing one proves nothing. Pure values; [`crate::content_hints`] keeps
//! them, the pull and its jobs ask.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use oci::{Digest, Reference, RegistryAuth};
use serde::{Deserialize, Serialize};

/// How a pull uses content that was fetched from other repositories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SharedContent {
    /// After the registry has said, for this pull's credential, that it has the same content.
    #[default]
    Verified,
    /// Without a question: on nodes where all pods may see all images.
    Open,
}

/// Where content came from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum Origin {
    /// An imported file. A caller that may import makes it available to the whole node.
    Archive,
    /// A repository (`host/path`), which answered a pull without a credential.
    Public(String),
    /// A repository, which answered a pull with one.
    Private(String),
}

/// The right of a pull to content of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    /// Nothing: it fetches its own.
    Denied,
    /// Use it if its registry says that it has the same blob.
    Ask,
    /// Use it.
    Granted,
}

impl Origin {
    pub(crate) fn of_pull(reference: &Reference, auth: Option<&RegistryAuth>) -> Self {
        match auth.filter(|auth| !auth.is_anonymous()) {
            Some(_) => Self::Private(reference.repository()),
            None => Self::Public(reference.repository()),
        }
    }

    fn repository(&self) -> Option<&str> {
        match self {
            Self::Archive => None,
            Self::Public(repository) | Self::Private(repository) => Some(repository),
        }
    }

    fn host(&self) -> Option<&str> {
        self.repository()?.split('/').next()
    }

    /// Returns the access of a pull from this origin to a blob that was, or is being, fetched from `other`.
    ///
    /// The registry that answers a pull with a manifest grants the caller all of that repository. For content of
    /// another repository, the registry's answer counts if it is about its own content, or if the content is no secret:
    /// a registry on another host may claim to have anything.
    pub(crate) fn access_to(&self, other: &Self) -> Access {
        if self.repository() == other.repository() {
            return Access::Granted;
        }
        match other {
            Self::Archive | Self::Public(_) => Access::Ask,
            Self::Private(_) if self.host().is_some() && self.host() == other.host() => Access::Ask,
            Self::Private(_) => Access::Denied,
        }
    }

    /// The access of a pull from here to a layer of a runtime's store with this recorded origin. Without one, the layer may
    /// belong to anyone: the pull fetches its own bytes.
    pub(crate) fn access_to_recorded(&self, origin: Option<&str>) -> Access {
        origin.and_then(|text| text.parse().ok()).map_or(Access::Denied, |other| self.access_to(&other))
    }

    /// The best that any of these gives.
    pub(crate) fn access_to_any<'o>(&self, others: impl IntoIterator<Item = &'o Self>) -> Access {
        others.into_iter().map(|other| self.access_to(other)).max().unwrap_or(Access::Denied)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Archive => f.write_str("archive"),
            Self::Public(repository) => write!(f, "public {repository}"),
            Self::Private(repository) => write!(f, "private {repository}"),
        }
    }
}

/// The text is no origin.
#[derive(Debug, thiserror::Error)]
#[error("no origin of content: {0:?}")]
pub(crate) struct OriginError(String);

impl FromStr for Origin {
    type Err = OriginError;

    fn from_str(text: &str) -> Result<Self, OriginError> {
        match text.split_once(' ') {
            None if text == "archive" => Ok(Self::Archive),
            Some(("public", repository)) if !repository.is_empty() => Ok(Self::Public(repository.to_owned())),
            Some(("private", repository)) if !repository.is_empty() => Ok(Self::Private(repository.to_owned())),
            _ => Err(OriginError(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Origin {
    type Error = OriginError;

    fn try_from(text: String) -> Result<Self, OriginError> {
        text.parse()
    }
}

impl From<Origin> for String {
    fn from(origin: Origin) -> Self {
        origin.to_string()
    }
}

/// Origins of an image, and which blobs were found to have which of its layers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Provenance {
    /// Each had, or said that it has, all of the image.
    pub(crate) origins: BTreeSet<Origin>,
    /// Blob and diff id, verified by unpacking the one into the other.
    pub(crate) blobs: BTreeSet<(Digest, Digest)>,
}

/// The annotation of an image in the store.
const KEY: &str = "provenance";
/// More repositories are not remembered of one image; those that are forgotten ask again.
const MAX_ORIGINS: usize = 64;
/// So many compressions of a layer are remembered.
const MAX_BLOBS_PER_LAYER: usize = 4;

impl Provenance {
    /// Returns the provenance recorded with an image. Images of versions that recorded none count as private content of
    /// the repositories in their names, which were pulled with a credential or without; the blobs of their layers are
    /// unknown.
    pub(crate) fn of(image: &store::ImageRecord) -> Self {
        if let Some(text) = image.annotations.get(KEY) {
            // Provenance that cannot be parsed grants access to no pull.
            return serde_json::from_str(text).unwrap_or_default();
        }
        let repositories = image.references().map(|name| Origin::Private(name.repository()));
        Self { origins: repositories.collect(), blobs: BTreeSet::new() }
    }

    /// Returns true if this blob was found to have one of the image's layers.
    pub(crate) fn has_blob(&self, blob: &Digest) -> bool {
        self.blobs.iter().any(|(of, _)| of == blob)
    }

    /// With what a later pull adds.
    pub(crate) fn and(mut self, origin: Origin, blobs: BTreeSet<(Digest, Digest)>) -> Self {
        match &origin {
            Origin::Public(repository) => drop(self.origins.remove(&Origin::Private(repository.clone()))),
            Origin::Private(repository) if self.origins.contains(&Origin::Public(repository.clone())) => {
                return self.and_blobs(blobs);
            }
            Origin::Private(_) | Origin::Archive => {}
        }
        while self.origins.len() >= MAX_ORIGINS && !self.origins.contains(&origin) {
            self.origins.pop_last();
        }
        self.origins.insert(origin);
        self.and_blobs(blobs)
    }

    fn and_blobs(mut self, blobs: BTreeSet<(Digest, Digest)>) -> Self {
        for (blob, diff_id) in blobs {
            let same: Vec<_> = self.blobs.iter().filter(|(b, d)| *d == diff_id && *b != blob).cloned().collect();
            for surplus in same.iter().skip(MAX_BLOBS_PER_LAYER - 1) {
                self.blobs.remove(surplus);
            }
            self.blobs.insert((blob, diff_id));
        }
        self
    }

    /// Writes it into an image's annotations.
    pub(crate) fn write(&self, annotations: &mut std::collections::BTreeMap<String, String>) {
        annotations.insert(KEY.to_owned(), serde_json::to_string(self).expect("texts serialise"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(text: &str) -> Origin {
        text.parse().expect("an origin")
    }

    #[test]
    fn whose_word_counts() {
        use Access::{Ask, Denied, Granted};
        let cases = [
            // The same repository, with or without a credential.
            ("private r.example/team/app", "private r.example/team/app", Granted),
            ("public r.example/team/app", "private r.example/team/app", Granted),
            // A registry about its own content.
            ("public r.example/other", "private r.example/team/app", Ask),
            ("private r.example/team/app/more", "private r.example/team/app", Ask),
            // A registry about the content of another one: only if that is no secret.
            ("private evil.example/team/app", "private r.example/team/app", Denied),
            ("private r.example:5000/team/app", "private r.example/team/app", Denied),
            ("private evil.example/team/app", "public r.example/team/app", Ask),
            ("private evil.example/team/app", "archive", Ask),
            ("archive", "archive", Granted),
            ("archive", "public r.example/app", Ask),
            ("archive", "private r.example/app", Denied),
        ];
        for (mine, other, want) in cases {
            assert_eq!(origin(mine).access_to(&origin(other)), want, "{mine} of {other}");
        }
        for (mine, recorded, want) in [
            ("private r.example/team/app", Some("private r.example/team/app"), Granted),
            ("private r.example/x", Some("private r.example/team/app"), Ask),
            ("private r.example:5000/team/app", Some("private r.example/team/app"), Denied),
            ("private r.example/team/app", Some("private r.example:5000/team/app"), Denied),
            ("private r.example/x", Some("no origin"), Denied),
            ("private r.example/x", None, Denied),
        ] {
            assert_eq!(origin(mine).access_to_recorded(recorded), want, "{mine} of {recorded:?}");
        }
        let mine = origin("public a/x");
        assert_eq!(mine.access_to_any([]), Denied);
        assert_eq!(mine.access_to_any(&[origin("private b/x"), origin("archive")]), Ask);
        assert_eq!(mine.access_to_any(&[origin("private a/x"), origin("private b/x")]), Granted);
    }

    #[test]
    fn texts() {
        for text in ["archive", "public docker.io/library/x", "private r.example:5000/a/b"] {
            assert_eq!(origin(text).to_string(), text);
        }
        for text in ["", "public", "public ", "Archive", "secret a/b", "archive x"] {
            assert!(text.parse::<Origin>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_is_kept_is_bounded_and_public_wins() {
        let blob = |n: usize| (Digest::sha256(&n.to_le_bytes()), Digest::sha256(b"layer"));
        let mut kept = Provenance::default();
        for n in 0..200 {
            kept = kept.and(origin(&format!("private r.example/{n:03}")), BTreeSet::from([blob(n)]));
        }
        assert_eq!((kept.origins.len(), kept.blobs.len()), (MAX_ORIGINS, MAX_BLOBS_PER_LAYER));
        assert!(kept.origins.contains(&origin("private r.example/199")) && kept.blobs.contains(&blob(199)));
        let once = Provenance::default().and(origin("private a/x"), BTreeSet::new());
        let twice = once.and(origin("public a/x"), BTreeSet::new());
        assert_eq!(twice.origins, BTreeSet::from([origin("public a/x")]));
        assert_eq!(twice.clone().and(origin("private a/x"), BTreeSet::new()), twice);
        let mut annotations = std::collections::BTreeMap::new();
        kept.write(&mut annotations);
        assert_eq!(serde_json::from_str::<Provenance>(&annotations[KEY]).expect("reads"), kept);
    }
}
