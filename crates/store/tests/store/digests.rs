//! Names with a digest: only that of the manifest, or of an index that leads to it, is recorded and leads anywhere.

use base::lock::Mutex;
use std::fmt;
use std::sync::Arc;

use cri_api::engine::ProblemKind;
use imagelet_store::check::Depth;
use imagelet_store::{CommitError, ImageCommit, Store};
use oci::{Algorithm, Digest, Reference};
use tracing::span;

use super::check::{NAMES, edit, edit_image, kinds};
use super::support::{Image, MANIFEST, check_accounts, open, plain_layer, reference, run_check};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

fn commit(store: &Store, image: &Image, change: impl FnOnce(&mut ImageCommit)) -> Result<(), CommitError> {
    let lease = store.lease();
    let mut commit = ImageCommit { layers: image.sources(store, &lease), ..image.commit(None) };
    change(&mut commit);
    store.commit_image(&lease, commit).map(drop)
}

fn name(digest: &Digest) -> Option<Reference> {
    Some(reference(&format!("r.example/app@{digest}")))
}

fn leads_to(store: &Store, name: &Option<Reference>) -> Option<Digest> {
    store.resolve(&name.clone().expect("a name").into()).expect("resolves").map(|image| image.id)
}

#[test]
fn no_commit_records_the_digest_of_something_else() {
    let top = tempfile::tempdir().expect("tempdir");
    let store = open(&top.path().join("store"));
    let [own, other] = ["own", "other"].map(|text| Image::new(text, &[plain_layer("a", text.as_bytes())]));
    let foreign = name(&Digest::sha256(&other.manifest));
    let index = Image::index_of(&own.manifest, MANIFEST);
    let refused = |change: &dyn Fn(&mut ImageCommit)| commit(&store, &own, change).expect_err("refused");

    let error = refused(&|commit| commit.repo_digest = foreign.clone());
    assert!(matches!(error, CommitError::ForeignDigest { .. }), "{error:?}");
    for digest in [&own.manifest, &other.manifest].map(|bytes| Digest::sha256(bytes).to_string()) {
        assert!(error.to_string().contains(&digest), "{error}");
    }
    let error = refused(&|commit| (commit.indexes, commit.repo_digest) = (vec![index.clone()], foreign.clone()));
    assert!(error.to_string().contains(&Digest::sha256(&index).to_string()), "{error}");
    // The config's digest is refused as well, and so are a name with a tag and one with another algorithm.
    refused(&|commit| commit.repo_digest = name(&own.id()));
    let with_tag = format!("r.example/app:v1@{}", Digest::sha256(&other.manifest));
    refused(&|commit| commit.repo_digest = Some(reference(&with_tag)));
    refused(&|commit| commit.repo_digest = name(&Algorithm::Sha512.digest(&other.manifest)));
    // An index that leads elsewhere, by itself and below a good one; what is no index; a manifest of another image.
    let astray = Image::index_of(&other.manifest, MANIFEST);
    let above = Image::index_of(&astray, INDEX);
    for indexes in [vec![astray.clone()], vec![above.clone(), astray.clone()], vec![above, index], vec![b"{}".to_vec()]]
    {
        let error = refused(&|commit| commit.indexes = indexes.clone());
        assert!(matches!(error, CommitError::Unrelated { .. }), "{error:?}");
    }
    let error = refused(&|commit| (commit.manifest, commit.repo_digest) = (other.manifest.clone(), foreign.clone()));
    assert!(matches!(error, CommitError::Unrelated { .. }), "{error:?}");

    assert_eq!(store.images().expect("readable"), []);
    assert_eq!(leads_to(&store, &foreign), None);
    check_accounts(&store);
}

#[test]
fn every_digest_of_an_image_resolves_to_it() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    let store = open(&root);
    let image = Image::new("one", &[plain_layer("a", b"aaa")]);
    let inner = Image::index_of(&image.manifest, MANIFEST);
    let outer = Image::index_of(&inner, INDEX);
    let of = |bytes: &[u8]| name(&Digest::sha256(bytes));
    let names = [of(&image.manifest), of(&inner), of(&outer), name(&Algorithm::Sha512.digest(&outer))];
    for name in &names {
        let indexes = vec![outer.clone(), inner.clone()];
        commit(&store, &image, |commit| (commit.indexes, commit.repo_digest) = (indexes, name.clone())).expect("true");
    }
    // By the manifest alone, the index by which it was found stays.
    commit(&store, &image, |commit| commit.repo_digest = names[0].clone()).expect("true");
    assert_eq!(store.images().expect("readable")[0].index.as_deref(), Some(outer.as_slice()));
    // The same image by another manifest and another index: the earlier names were true, and are.
    let again = image.clone().with_blobs();
    assert_ne!(again.manifest, image.manifest);
    let index = Image::index_of(&again.manifest, MANIFEST);
    commit(&store, &again, |commit| (commit.indexes, commit.repo_digest) = (vec![index.clone()], of(&index)))
        .expect("true");
    drop(store);
    let store = open(&root);
    for name in names.iter().chain([&of(&index)]) {
        assert_eq!(leads_to(&store, name), Some(image.id()), "{name:?}");
    }
    assert_eq!(store.images().expect("readable")[0].repo_digests.len(), 5);
    assert_eq!(run_check(&store, Depth::Files, false).problems, []);
    check_accounts(&store);
}

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl tracing::field::Visit for Log {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
        self.0.lock().push_str(&format!("{field}={value:?} "));
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Earlier versions recorded any digest that an archive stated for itself.
#[test]
fn a_name_that_an_earlier_version_took_on_trust_is_reported_and_not_used() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    let store = open(&root);
    let [own, other] = ["own", "other"].map(|text| Image::new(text, &[plain_layer("a", text.as_bytes())]));
    let record = own.pull(&store, "r.example/app:1");
    drop(store);
    let foreign = format!("r.example/app@{}", Digest::sha256(&other.manifest));
    edit(&root, |transaction| {
        transaction.open_table(NAMES).expect("there").insert(&*foreign, &*own.id().to_string()).expect("inserts");
        edit_image(transaction, &record, |image| {
            image.as_object_mut().expect("a record").remove("verified_digests");
            image["repo_digests"].as_array_mut().expect("names").push(foreign.clone().into());
        });
    });

    let log = Log::default();
    let store = tracing::subscriber::with_default(log.clone(), || open(&root));
    let log = log.0.lock().clone();
    assert!(log.contains(&foreign) && log.contains(&own.id().to_string()), "{log:?}");
    let asked = Some(reference(&foreign));
    assert_eq!(leads_to(&store, &asked), None);
    assert_eq!(leads_to(&store, &Some(reference("r.example/app:1"))), Some(own.id()));
    let image = store.image(&own.id()).expect("readable").expect("there");
    assert_eq!(image, record, "it does not tell the name either");
    let report = run_check(&store, Depth::Sizes, false);
    assert_eq!(kinds(&report), [ProblemKind::WrongName]);
    assert!(report.problems[0].subject.contains(&foreign), "{report:?}");
    assert_eq!(report.problems[0].images, [own.id().to_string()]);

    // A further commit does not make it true, one of the right image takes it.
    own.pull(&store, "r.example/app:2");
    assert_eq!(leads_to(&store, &asked), None);
    let repaired = run_check(&store, Depth::Sizes, true);
    assert!(repaired.problems.iter().all(|problem| problem.repaired), "{repaired:?}");
    assert_eq!(run_check(&store, Depth::Sizes, false).problems, []);
    assert!(store.image_is_whole(&store.image(&own.id()).expect("readable").expect("there")), "the image stays");
    other.pull(&store, "r.example/app:3");
    assert_eq!(leads_to(&store, &asked), Some(other.id()));
    check_accounts(&store);
}

/// A pull by the name fetches the right image, also before any repair.
#[test]
fn the_right_image_takes_a_name_that_was_taken_on_trust() {
    let top = tempfile::tempdir().expect("tempdir");
    let root = top.path().join("store");
    let store = open(&root);
    let [own, other] = ["own", "other"].map(|text| Image::new(text, &[plain_layer("a", text.as_bytes())]));
    let record = own.pull(&store, "r.example/app:1");
    drop(store);
    let foreign = format!("r.example/app@{}", Digest::sha256(&other.manifest));
    edit(&root, |transaction| {
        transaction.open_table(NAMES).expect("there").insert(&*foreign, &*own.id().to_string()).expect("inserts");
        edit_image(transaction, &record, |image| {
            image["repo_digests"].as_array_mut().expect("names").push(foreign.clone().into());
        });
    });
    let store = open(&root);
    commit(&store, &other, |commit| commit.repo_digest = Some(reference(&foreign))).expect("true");
    assert_eq!(leads_to(&store, &Some(reference(&foreign))), Some(other.id()));
    assert_eq!(run_check(&store, Depth::Sizes, false).problems, []);
    check_accounts(&store);
}
