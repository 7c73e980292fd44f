//! Scenarios with pull records in real directories. The kubelet's cases carry their names; documents of its test data are
//! rewritten from their content.

mod access;
mod intents;
mod memory;
mod prune;
mod recovery;
mod sharing;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use credentials::{NodeSource, Origin, SecretCoordinates, ServiceAccountCoordinates, Source};
use jiff::Timestamp;
use oci::RegistryAuth;

use super::format::{decode_record, encode_intent, encode_record, file_name};
use super::pulled::Lookup;
use super::record::{PulledRecord, RecordedAccount, RecordedSecret};
use super::*;
use crate::Metrics;

const TEST: &str = "docker.io/testing/test";
const LATEST: &str = "docker.io/testing/test:latest";
/// When the records of the kubelet's test data were written.
const RECORDED: &str = "2024-10-21T12:26:40Z";
/// When our scenes begin.
const NOW: i64 = 1_790_000_000;

/// A directory of records, with a clock that does not advance by itself.
struct Node {
    root: tempfile::TempDir,
    clock: Arc<AtomicI64>,
    metrics: Arc<Metrics>,
}

impl Node {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let node = Self { root, clock: Arc::new(AtomicI64::new(NOW)), metrics: Metrics::new() };
        for directory in ["pulling", "pulled"] {
            let path = node.directory().join(directory);
            fs::DirBuilder::new().recursive(true).mode(0o700).create(path).unwrap();
        }
        node
    }

    fn directory(&self) -> PathBuf {
        self.root.path().join("image_manager")
    }

    fn options(&self) -> RecordsOptions {
        let clock = Arc::clone(&self.clock);
        RecordsOptions {
            metrics: Arc::clone(&self.metrics),
            ..RecordsOptions::new(
                self.directory(),
                Arc::new(move || Timestamp::from_second(clock.load(Ordering::Relaxed)).unwrap()),
            )
        }
    }

    async fn open(&self) -> PullRecords {
        self.open_with(VerificationPolicy::default()).await
    }

    async fn open_with(&self, policy: VerificationPolicy) -> PullRecords {
        PullRecords::open(RecordsOptions { policy, ..self.options() }).await.unwrap()
    }

    fn later(&self, seconds: i64) {
        self.clock.fetch_add(seconds, Ordering::Relaxed);
    }

    fn intent_path(&self, image: &str) -> PathBuf {
        self.directory().join("pulling").join(file_name(image))
    }

    fn record_path(&self, image_ref: &str) -> PathBuf {
        self.directory().join("pulled").join(file_name(image_ref))
    }

    /// Writes an intent of a process that has ended.
    fn left_intent(&self, image: &str) {
        fs::write(self.intent_path(image), encode_intent(image)).unwrap();
    }

    /// A record that was written long ago.
    fn old_record(&self, record: &PulledRecord) {
        let path = self.record_path(&record.image_ref);
        fs::write(&path, encode_record(record)).unwrap();
        age(&path, record.last_updated.unwrap());
    }

    fn record(&self, image_ref: &str) -> PulledRecord {
        let bytes = fs::read(self.record_path(image_ref)).unwrap();
        decode_record(&bytes).unwrap().0
    }

    fn files(&self, directory: &str) -> BTreeSet<String> {
        let names = fs::read_dir(self.directory().join(directory)).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// Files that were copied keep the time at which they were written.
fn age(path: &Path, time: Timestamp) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(time.as_second()).unwrap());
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

fn names(files: &[&str]) -> BTreeSet<String> {
    files.iter().map(|name| file_name(name)).collect()
}

/// A record of the kubelet's test data with one entry.
fn recorded_as(image_ref: &str, name: &str, recorded: RecordedCredentials) -> PulledRecord {
    PulledRecord {
        last_updated: Some(at(RECORDED)),
        image_ref: image_ref.to_owned(),
        mapping: [(name.to_owned(), recorded)].into(),
    }
}

fn with_secret(uid: &str, namespace: &str, name: &str, hash: &str) -> RecordedCredentials {
    RecordedCredentials { secrets: vec![known_secret(uid, namespace, name, hash)], ..RecordedCredentials::default() }
}

fn known_secret(uid: &str, namespace: &str, name: &str, hash: &str) -> RecordedSecret {
    RecordedSecret {
        uid: uid.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        credential_hash: hash.to_owned(),
    }
}

fn known_account(uid: &str, namespace: &str, name: &str) -> RecordedAccount {
    RecordedAccount { uid: uid.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
}

/// `sha256-b3c0…`
fn testimageref() -> PulledRecord {
    recorded_as("testimageref", TEST, with_secret("testsecretuid", "default", "pull-secret", "testsecrethash"))
}

/// `sha256-917e…`
fn testimageref_sa() -> PulledRecord {
    let accounts = vec![known_account("test-sa-uid", "default", "test-sa")];
    recorded_as("testimageref-sa", TEST, RecordedCredentials { accounts, ..RecordedCredentials::default() })
}

/// `sha256-a2ea…`
fn anonpull() -> PulledRecord {
    recorded_as("testimage-anonpull", TEST, RecordedCredentials::node())
}

/// `sha256-38a8…`
fn brokenhash() -> PulledRecord {
    recorded_as("test-brokenhash", TEST, with_secret("testsecretuid", "default", "pull-secret", ""))
}

/// `sha256-f877…`
fn emptycredmapping() -> PulledRecord {
    PulledRecord {
        last_updated: Some(at(RECORDED)),
        image_ref: "testemptycredmapping".to_owned(),
        ..PulledRecord::default()
    }
}

fn secret(uid: &str, namespace: &str, name: &str, hash: &str) -> Candidate {
    Candidate {
        auth: RegistryAuth::default(),
        source: Source::Secret(SecretCoordinates {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            origin: Origin::ApiServer,
        }),
        hash: hash.to_owned(),
    }
}

fn account(uid: &str, namespace: &str, name: &str) -> Candidate {
    Candidate {
        auth: RegistryAuth::default(),
        source: Source::ServiceAccount {
            provider: "provider".to_owned(),
            account: ServiceAccountCoordinates {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: uid.to_owned(),
            },
        },
        hash: "account-hash".to_owned(),
    }
}

/// The same from a manifest.
fn of_manifest(mut candidate: Candidate) -> Candidate {
    if let Source::Secret(secret) = &mut candidate.source {
        secret.origin = Origin::Manifest;
    }
    candidate
}

fn node_file(hash: &str) -> Candidate {
    Candidate {
        auth: RegistryAuth::default(),
        source: Source::Node(NodeSource::File("/etc/imagelet/config.json".into())),
        hash: hash.to_owned(),
    }
}

impl PullRecords {
    /// Access for a pod with these credentials.
    async fn may(&self, image: &str, image_ref: &str, candidates: &[Candidate]) -> Access {
        let candidates: Arc<[Candidate]> = candidates.into();
        self.access(image, image_ref, async || Ok::<_, Infallible>(candidates)).await.unwrap()
    }

    fn pulls_of(&self, image: &str) -> usize {
        self.inner.in_flight().get(image).map_or(0, |pull| pull.count)
    }
}

const GRANTED: Access = Access::Granted(Grant::CredentialMatches);
const FOR_ALL: Access = Access::Granted(Grant::NodeAccessible);
const PRELOADED: Access = Access::Granted(Grant::Preloaded);
const UNKNOWN_NAME: Access = Access::MustVerify(AccessUnverified::NotRecordedByThisName);
const OTHERS_ONLY: Access = Access::MustVerify(AccessUnverified::NoMatchingCredential);
const NO_RECORD: Access = Access::MustVerify(AccessUnverified::NoRecord);
const UNREADABLE: Access = Access::MustVerify(AccessUnverified::RecordUnreadable);
