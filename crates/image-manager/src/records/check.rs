//! Decides if a record grants an image to a pod. Pure; the order is that of the kubelet's `MustAttemptImagePull` from the
//! point on where the record is known. A name counts in every spelling: what was recorded for `nginx` holds for
//! `docker.io/library/nginx`.

use credentials::{Candidate, SecretCoordinates, ServiceAccountCoordinates, Source};
use oci::{Reference, ReferenceError, bare_name};

use super::pulled::CachedRecord;
use super::record::{RecordedAccount, RecordedCredentials, RecordedSecret};
use crate::requested_name::RequestedName;
use crate::{Access, AccessUnverified, Grant};

/// A check adds no secret to a record that has at least this many.
const GROWS_TO: usize = 100;

/// The credentials recorded for an image under a name and its other spellings.
#[derive(Debug)]
pub(super) struct Named<'a> {
    /// As it is spelled.
    exact: Option<(&'a str, &'a RecordedCredentials)>,
    /// The same repository, spelled otherwise.
    others: Vec<(&'a str, &'a RecordedCredentials)>,
}

/// Result of a check before the pod's credentials are asked for.
#[derive(Debug)]
pub(super) enum Before<'a> {
    Decided(Access),
    Ask(Named<'a>),
}

/// A secret that a record should learn, and the name under which.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lesson {
    pub(super) name: String,
    pub(super) secret: RecordedSecret,
}

/// Searches a record for an image.
pub(super) fn before_asking<'a>(
    held: &'a CachedRecord,
    image: &RequestedName<'_>,
) -> Result<Before<'a>, ReferenceError> {
    let name = bare_name(image.text())?;
    let mapping = &held.record.mapping;
    if mapping.is_empty() {
        return Ok(Before::Decided(Access::MustVerify(AccessUnverified::NoRecord)));
    }
    let exact = mapping.get_key_value(name).map(|(name, recorded)| (name.as_str(), recorded));
    if exact.is_some_and(|(_, recorded)| recorded.node_pods_accessible) {
        return Ok(Before::Decided(Access::Granted(Grant::NodeAccessible)));
    }
    let named = Named { exact, others: other_spellings(held, image, name, exact.is_some()) };
    if named.all().any(|(_, recorded)| recorded.node_pods_accessible) {
        return Ok(Before::Decided(Access::Granted(Grant::NodeAccessible)));
    }
    if named.all().next().is_none() {
        return Ok(Before::Decided(Access::MustVerify(AccessUnverified::NotRecordedByThisName)));
    }
    if named.all().all(|(_, recorded)| recorded.is_empty()) {
        return Ok(Before::Decided(Access::MustVerify(AccessUnverified::NoRecord)));
    }
    Ok(Before::Ask(named))
}

/// Returns the names in the record that mean the repository of `image`, apart from `name`, the spelling of the request.
fn other_spellings<'a>(
    held: &'a CachedRecord,
    image: &RequestedName<'_>,
    name: &str,
    is_recorded: bool,
) -> Vec<(&'a str, &'a RecordedCredentials)> {
    if held.record.mapping.len() == usize::from(is_recorded) {
        return Vec::new();
    }
    let Some(wanted) = image.reference().map(Reference::repository) else { return Vec::new() };
    held.names()
        .filter(|(other, _, repository)| *other != name && *repository == Some(wanted.as_str()))
        .map(|(other, recorded, _)| (other, recorded))
        .collect()
}

impl<'a> Named<'a> {
    fn all(&self) -> impl Iterator<Item = (&'a str, &'a RecordedCredentials)> {
        self.exact.into_iter().chain(self.others.iter().copied())
    }

    /// Compares the pod's credentials with the recorded ones. Returns the access, and a secret that the record should learn.
    pub(super) fn with(&self, candidates: &[Candidate]) -> (Access, Option<Lesson>) {
        for (name, recorded) in self.all() {
            for (coordinates, hash) in secrets(candidates) {
                if let Some(is_known) = by_secret(recorded, coordinates, hash) {
                    let lesson = (!is_known)
                        .then(|| Lesson { name: name.to_owned(), secret: recorded_secret(coordinates, hash) });
                    return (Access::Granted(Grant::CredentialMatches), lesson);
                }
            }
            if account(candidates).is_some_and(|account| recorded.accounts.iter().any(|known| is_same(known, account)))
            {
                return (Access::Granted(Grant::CredentialMatches), None);
            }
        }
        (Access::MustVerify(AccessUnverified::NoMatchingCredential), None)
    }
}

/// Looks for a secret in a record; `Some(true)`: recorded as it is, `Some(false)`: with something that the record should
/// learn. The same content counts wherever it is kept. The same object counts with another content, too, where its source
/// vouches for its coordinates: the change was authorized, and the kubelet does not ask the registry again either. The
/// author of a manifest can write any coordinates, so they prove nothing.
fn by_secret(recorded: &RecordedCredentials, coordinates: &SecretCoordinates, hash: &str) -> Option<bool> {
    let grows = recorded.secrets.len() < GROWS_TO;
    recorded.secrets.iter().find_map(|known| {
        let same_place =
            known.uid == coordinates.uid && known.namespace == coordinates.namespace && known.name == coordinates.name;
        let same_hash = !known.credential_hash.is_empty() && known.credential_hash == hash;
        if same_hash {
            return Some(same_place || !grows);
        }
        // An empty hash is one that could not be made; it is not worth writing the same again.
        (same_place && grows && coordinates.origin.vouches()).then_some(known.credential_hash == hash)
    })
}

fn secrets(candidates: &[Candidate]) -> impl Iterator<Item = (&SecretCoordinates, &str)> {
    candidates.iter().filter_map(|candidate| match &candidate.source {
        Source::Secret(coordinates) => Some((coordinates, candidate.hash.as_str())),
        Source::ServiceAccount { .. } | Source::Node(_) => None,
    })
}

fn account(candidates: &[Candidate]) -> Option<&ServiceAccountCoordinates> {
    candidates.iter().find_map(|candidate| match &candidate.source {
        Source::ServiceAccount { account, .. } => Some(account),
        Source::Secret(_) | Source::Node(_) => None,
    })
}

fn is_same(known: &RecordedAccount, account: &ServiceAccountCoordinates) -> bool {
    known.uid == account.uid && known.namespace == account.namespace && known.name == account.name
}

fn recorded_secret(coordinates: &SecretCoordinates, hash: &str) -> RecordedSecret {
    let SecretCoordinates { namespace, name, uid, origin: _ } = coordinates.clone();
    RecordedSecret { uid, namespace, name, credential_hash: hash.to_owned() }
}

/// The entry that a pull with this credential adds to the record.
pub(super) fn recorded(used: Option<&Candidate>) -> RecordedCredentials {
    match used.map(|candidate| (&candidate.source, &candidate.hash)) {
        None | Some((Source::Node(_), _)) => RecordedCredentials::node(),
        Some((Source::Secret(coordinates), hash)) => {
            RecordedCredentials { secrets: vec![recorded_secret(coordinates, hash)], ..RecordedCredentials::default() }
        }
        Some((Source::ServiceAccount { account, .. }, _)) => {
            let ServiceAccountCoordinates { namespace, name, uid } = account.clone();
            RecordedCredentials {
                accounts: vec![RecordedAccount { uid, namespace, name }],
                ..RecordedCredentials::default()
            }
        }
    }
}
