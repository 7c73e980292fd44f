//! An engine that fills the store of a runtime, and what the runtime's store does not do as it should: it takes no layer, fails in the
//! middle, or loses what it had. The store is made of directories here, and has no collection: what was given up stays.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use async_trait::async_trait;
use base::lock::Mutex;
use cri_api::engine::runtime_store::{
    Deposit, Destination, Documents, FindRuntimeStore, HandlerStore, LayerFacts, LowerLayer, NamedImage, OpenSlot,
    RuntimeRecord, RuntimeStore, Slot, StackedLayer, StoreDetection, UnfinishedDeposit, UnpackedForm,
};
use cri_api::{
    Error, FilesystemUsage, FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, Kind, PullImageRequest,
    Reason, Result,
};
use image_service::{EngineOptions, PullEngine, RuntimeImages};
use oci::{Digest, Reference};
use registry::testing::{BuiltImage, TestRegistry};

use crate::support::{blob, image, layer, options};

/// Faults, each shown once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// The runtime is gone before it answers that an image is begun.
    Begin,
    /// The slot is of an unknown kind.
    Slot,
    /// A commit is refused.
    Commit,
    /// The runtime is gone when a layer is to be committed.
    Gone,
    /// The disk is full when a layer is moved.
    Full,
    /// A layer that is there at the next look is gone at the one after it, when it is to be linked.
    LinkLater,
    Link,
    /// The runtime cannot decode the config.
    Config,
    /// The record by id is written, and refused all the same.
    Id,
    /// The same of the first record by name.
    Name,
    /// A record is written, and the runtime does not show the image.
    Record,
}

struct Committed {
    files: PathBuf,
    diff_id: Digest,
    facts: LayerFacts,
}

/// A record of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) named: NamedImage,
}

/// Answer to the detection of the store.
#[derive(Clone, Copy, Default)]
pub(crate) enum Detection {
    #[default]
    Fillable,
    /// Another snapshotter.
    Unsuited,
    /// The call about the file system fails.
    NoFsInfo(Kind),
    /// The call that finds the store fails.
    NoStore(Kind),
}

#[derive(Default)]
pub(crate) struct State {
    committed: BTreeMap<Digest, Committed>,
    /// By name.
    pub(crate) records: BTreeMap<String, Record>,
    pub(crate) detection: Detection,
    /// Documents, by their digests.
    documents: BTreeMap<Digest, Vec<u8>>,
    /// Records that were written, and what they replaced.
    written: Vec<(String, Option<Record>)>,
    /// Images that were begun and not ended.
    begun: BTreeMap<String, Digest>,
    wrong: VecDeque<Wrong>,
    /// Names that the runtime pulled itself.
    pub(crate) pulled: Vec<String>,
    next: usize,
}

/// The runtime and its store.
#[derive(Clone)]
pub(crate) struct Fake {
    directory: PathBuf,
    workshop: PathBuf,
    pub(crate) state: Arc<Mutex<State>>,
}

impl std::fmt::Debug for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fake")
    }
}

impl Fake {
    fn takes_fault(&self, wrong: Wrong) -> bool {
        let mut state = self.state.lock();
        let is_next = state.wrong.front() == Some(&wrong);
        if is_next {
            state.wrong.pop_front();
        }
        is_next
    }

    fn number(&self) -> usize {
        let mut state = self.state.lock();
        state.next += 1;
        state.next
    }
}

#[async_trait]
impl ImageService for Fake {
    async fn list_images(&self, _: Option<&ImageFilter>) -> Result<Vec<Image>> {
        Ok(Vec::new())
    }

    async fn image_status(&self, image: &ImageSpec, _: bool) -> Result<ImageStatus> {
        let state = self.state.lock();
        let found = state.records.get(&image.image).filter(|_| state.wrong.front() != Some(&Wrong::Record));
        let named = |id: &str| {
            let names = state.records.iter().filter(|(name, record)| record.id == id && !name.starts_with("sha256:"));
            let (digests, tags) = names.map(|(name, _)| name.clone()).partition(|name: &String| name.contains('@'));
            Image { id: id.to_owned(), repo_tags: tags, repo_digests: digests, ..Image::default() }
        };
        Ok(ImageStatus { image: found.map(|record| named(&record.id)), ..ImageStatus::default() })
    }

    async fn pull_image(&self, request: PullImageRequest) -> Result<String> {
        self.state.lock().pulled.push(request.image.image);
        Ok("by the runtime".to_owned())
    }

    async fn remove_image(&self, image: &ImageSpec) -> Result<()> {
        self.state.lock().records.remove(&image.image);
        Ok(())
    }

    async fn image_fs_info(&self) -> Result<FsInfo> {
        if let Detection::NoFsInfo(kind) = self.state.lock().detection {
            return Err(Error::new(kind, "no answer about the file system"));
        }
        let usage = FilesystemUsage { mountpoint: self.directory.display().to_string(), ..FilesystemUsage::default() };
        Ok(FsInfo { image_filesystems: vec![usage], ..FsInfo::default() })
    }
}

#[async_trait]
impl FindRuntimeStore for Fake {
    async fn find(&self, _: &FsInfo) -> Result<StoreDetection> {
        match self.state.lock().detection {
            Detection::NoStore(kind) => Err(Error::new(kind, "no answer about the store")),
            Detection::Unsuited => Ok(StoreDetection::Unsuited("the snapshotter is native".to_owned())),
            Detection::Fillable | Detection::NoFsInfo(_) => Ok(StoreDetection::Fillable(Arc::new(self.clone()))),
        }
    }
}

#[async_trait]
impl RuntimeStore for Fake {
    fn name(&self) -> String {
        "a store of directories".to_owned()
    }

    fn staging_root(&self) -> &Path {
        &self.workshop
    }

    fn form(&self) -> UnpackedForm {
        UnpackedForm::Directory
    }

    fn layers(&self) -> String {
        "directories".to_owned()
    }

    fn new_id(&self) -> String {
        format!("lease {}", self.number())
    }

    async fn begin(&self, id: &str, _: u32, manifest: &Digest) -> Result<Arc<dyn Deposit>> {
        let id = id.to_owned();
        self.state.lock().begun.insert(id.clone(), manifest.clone());
        if self.takes_fault(Wrong::Begin) {
            return Err(Error::new(Kind::Unavailable, "app:1: the runtime is gone"));
        }
        Ok(Arc::new(OnItsWay { id, fake: self.clone() }))
    }

    async fn hold_layers(&self, chain_id: &Digest) -> Result<Option<Arc<dyn Deposit>>> {
        let is_present = self.state.lock().committed.contains_key(chain_id);
        let held = || Arc::new(OnItsWay { id: self.new_id(), fake: self.clone() }) as Arc<dyn Deposit>;
        Ok(is_present.then(held))
    }

    async fn has_layers(&self, chain_id: &str) -> Result<bool> {
        Ok(self.state.lock().committed.keys().any(|chain| chain.to_string() == chain_id))
    }

    async fn record(&self, name: &str) -> Result<Option<NamedImage>> {
        Ok(self.state.lock().records.get(name).map(|record| record.named.clone()))
    }

    async fn handler_store(&self, handler: &str) -> Result<HandlerStore> {
        match handler {
            "runc" => Ok(HandlerStore::Default),
            "kata" => Ok(HandlerStore::Other("a store of disks".to_owned())),
            _ => Err(Error::new(Kind::InvalidArgument, format!("unknown runtime handler {handler:?}"))),
        }
    }

    async fn origin(&self, layer: StackedLayer<'_>, blob: &Digest) -> Result<Option<String>> {
        let state = self.state.lock();
        let facts = state.committed.get(layer.chain_id).map(|committed| &committed.facts);
        let of_blob = facts.filter(|facts| facts.blob.as_ref() == Some(blob));
        Ok(of_blob.and_then(|facts| facts.origin.clone()))
    }

    async fn diff_ids(&self, _: &[Digest]) -> Result<BTreeMap<Digest, Digest>> {
        let state = self.state.lock();
        let known = |committed: &Committed| Some((committed.facts.blob.clone()?, committed.diff_id.clone()));
        Ok(state.committed.values().filter_map(known).collect())
    }

    async fn has_blob(&self, _: &Digest) -> Result<bool> {
        Ok(false)
    }

    async fn read_blob(&self, blob: &Digest, _: usize) -> Result<Option<Vec<u8>>> {
        Ok(self.state.lock().documents.get(blob).cloned())
    }

    fn undecodable(&self, _: &[u8]) -> Option<String> {
        self.takes_fault(Wrong::Config).then(|| "created is not a time".to_owned())
    }

    async fn records(&self) -> Result<Vec<RuntimeRecord>> {
        let state = self.state.lock();
        let of = |(name, record): (&String, &Record)| RuntimeRecord {
            name: name.clone(),
            target: record.named.target.clone(),
            created_at: 0,
            updated_at: 0,
        };
        Ok(state.records.iter().map(of).collect())
    }

    async fn remove_record(&self, record: &RuntimeRecord) -> Result<()> {
        self.state.lock().records.remove(&record.name);
        Ok(())
    }

    async fn snapshots(&self) -> Result<BTreeMap<String, String>> {
        Ok(BTreeMap::new())
    }

    async fn snapshot_bytes(&self, _: &str) -> Result<u64> {
        Ok(0)
    }

    async fn unfinished(&self, _: u32) -> Result<Vec<UnfinishedDeposit>> {
        let begun = self.state.lock().begun.clone();
        let left = |(id, manifest)| UnfinishedDeposit { id, manifest: Some(manifest), begun_at: i64::MAX };
        Ok(begun.into_iter().map(left).collect())
    }

    async fn give_up(&self, id: &str) -> Result<()> {
        self.state.lock().begun.remove(id);
        Ok(())
    }
}

struct OnItsWay {
    id: String,
    fake: Fake,
}

#[async_trait]
impl Deposit for OnItsWay {
    fn id(&self) -> &str {
        &self.id
    }

    async fn hold(&self, chain_id: &Digest) -> Result<bool> {
        Ok(self.fake.state.lock().committed.contains_key(chain_id))
    }

    async fn open(&self, layer: StackedLayer<'_>) -> Result<Slot> {
        if self.fake.takes_fault(Wrong::Slot) {
            return Ok(Slot::Unsupported("the snapshot is a mount of the type \"9p\"".to_owned()));
        }
        if self.fake.state.lock().committed.contains_key(layer.chain_id) {
            return Ok(Slot::Present);
        }
        let below = layer.parent.is_none_or(|parent| self.fake.state.lock().committed.contains_key(parent));
        assert!(below, "the layer below is there");
        let files = self.fake.directory.join(self.fake.number().to_string());
        fs::create_dir(&files).expect("made");
        Ok(Slot::Open(OpenSlot { key: files.display().to_string(), destination: Destination::Directory(files) }))
    }

    fn place(&self, layer: &Path, slot: &OpenSlot) -> io::Result<()> {
        if self.fake.takes_fault(Wrong::Full) {
            return Err(io::Error::from_raw_os_error(28));
        }
        let Destination::Directory(to) = &slot.destination else { panic!("{slot:?}") };
        fs::rename(layer, to)
    }

    async fn commit(&self, slot: &OpenSlot, layer: StackedLayer<'_>, facts: &LayerFacts) -> Result<()> {
        if self.fake.takes_fault(Wrong::Commit) {
            return Err(Error::new(Kind::Internal, "no"));
        }
        if self.fake.takes_fault(Wrong::Gone) {
            return Err(Error::new(Kind::Unavailable, "gone").with_reason(Reason::Unreachable));
        }
        let committed =
            Committed { files: PathBuf::from(&slot.key), diff_id: layer.diff_id.clone(), facts: facts.clone() };
        self.fake.state.lock().committed.insert(layer.chain_id.clone(), committed);
        Ok(())
    }

    async fn record_origin(&self, layer: StackedLayer<'_>, facts: &LayerFacts) -> Result<()> {
        if let Some(committed) = self.fake.state.lock().committed.get_mut(layer.chain_id)
            && committed.facts.origin.is_none()
        {
            committed.facts = facts.clone();
        }
        Ok(())
    }

    async fn abandon(&self, slot: &OpenSlot) -> Result<()> {
        fs::remove_dir_all(&slot.key).expect("removed");
        Ok(())
    }

    async fn lower_layers(&self, chain_id: &Digest) -> Result<Vec<LowerLayer>> {
        let state = self.fake.state.lock();
        let files = state.committed.get(chain_id).map(|committed| committed.files.clone());
        Ok(files.map(LowerLayer::Directory).into_iter().collect())
    }

    async fn begin_exchange(&self, chain_id: &Digest, _: &LowerLayer) -> Result<PathBuf> {
        Err(Error::new(Kind::Unimplemented, format!("{chain_id}: layers of one form only")))
    }

    fn exchange(&self, _: &LowerLayer, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn independent_layers(&self) -> Result<BTreeMap<Digest, Digest>> {
        if self.fake.takes_fault(Wrong::LinkLater) {
            self.fake.state.lock().wrong.push_front(Wrong::Link);
        } else if self.fake.takes_fault(Wrong::Link) {
            return Ok(BTreeMap::new());
        }
        let state = self.fake.state.lock();
        let independent = state.committed.iter().filter(|(_, committed)| committed.facts.is_independent);
        Ok(independent.map(|(chain, committed)| (committed.diff_id.clone(), chain.clone())).collect())
    }

    async fn write_blob(&self, _: &Digest, _: fs::File, _: &Reference) -> Result<()> {
        Ok(())
    }

    async fn write_documents(&self, documents: &Documents<'_>) -> Result<()> {
        let all = [documents.config, documents.manifest.bytes].map(|bytes| (Digest::sha256(bytes), bytes.to_vec()));
        self.fake.state.lock().documents.extend(all);
        Ok(())
    }

    async fn write_record(&self, documents: &Documents<'_>, name: &str) -> Result<()> {
        let target = documents.target().digest();
        let id = Digest::sha256(documents.config).to_string();
        let mut state = self.fake.state.lock();
        let before = state.records.get(name).cloned();
        // Evidence that is not written again stays, as containerd's labels do.
        let kept = before.as_ref().and_then(|record| record.named.evidence.clone());
        let evidence = documents.evidence.clone().filter(|_| name != id).or(kept);
        state.records.insert(name.to_owned(), Record { id, named: NamedImage { target, evidence } });
        state.written.push((name.to_owned(), before));
        drop(state);
        let is_id = name.starts_with("sha256:");
        if self.fake.takes_fault(if is_id { Wrong::Id } else { Wrong::Name }) {
            return Err(Error::new(Kind::Internal, "no"));
        }
        Ok(())
    }

    async fn undo_records(&self) -> Result<()> {
        let mut state = self.fake.state.lock();
        for (name, before) in std::mem::take(&mut state.written).into_iter().rev() {
            match before {
                Some(before) => state.records.insert(name, before),
                None => state.records.remove(&name),
            };
        }
        Ok(())
    }

    async fn end(&self) -> Result<()> {
        self.fake.give_up(&self.id).await
    }
}

/// A node with such a runtime.
pub(crate) struct Filled {
    pub(crate) fake: Fake,
    pub(crate) images: RuntimeImages,
    pub(crate) registry: TestRegistry,
    pub(crate) app: BuiltImage,
    pub(crate) directory: tempfile::TempDir,
}

impl Filled {
    pub(crate) async fn start(rule: PullEngine) -> Self {
        Self::with(rule, |_| {}).await
    }

    /// With this signature policy.
    pub(crate) async fn under(rule: PullEngine, policy: &str) -> Self {
        Self::with(rule, |options| {
            let path = options.root.with_file_name("policy.json");
            fs::write(&path, policy).expect("written");
            options.signature_policy = Some(path);
        })
        .await
    }

    pub(crate) async fn with(rule: PullEngine, change: impl FnOnce(&mut EngineOptions)) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let snapshots = directory.path().join("snapshots");
        fs::create_dir(&snapshots).expect("made");
        let fake = Fake { directory: snapshots, workshop: directory.path().join("workshop"), state: Arc::default() };
        let runtime = Arc::new(fake.clone());
        let mut options = options(directory.path());
        change(&mut options);
        let images = RuntimeImages::open(runtime.clone(), runtime, options, rule).await.expect("opens");
        let registry = TestRegistry::open().await;
        let app = image().layer(layer("a", 1, 9000)).layer(layer("b", 2, 9000)).layer(layer("c", 3, 9000)).build();
        registry.push("app", "1", &app);
        Self { fake, images, registry, app, directory }
    }

    pub(crate) fn set(&self, wrong: &[Wrong]) {
        self.fake.state.lock().wrong = wrong.iter().copied().collect();
    }

    pub(crate) async fn pull(&self, name: &str) -> Result<String> {
        self.images.pull_image(PullImageRequest::new(format!("{}/{name}", self.registry.host()))).await
    }

    pub(crate) fn reads(&self, layer: usize) -> usize {
        let of = format!("/blobs/{}", blob(&self.app, layer));
        self.registry.requests().iter().filter(|r| r.method == "GET" && r.path.ends_with(&of)).count()
    }

    /// The image is there with all of its layers, and nothing is on the way.
    #[track_caller]
    fn is_whole(&self, layers: usize) {
        let state = self.fake.state.lock();
        assert_eq!(state.committed.len(), layers);
        assert!(state.begun.is_empty(), "{:?}", state.begun);
        assert!(state.wrong.is_empty(), "{:?}", state.wrong);
        let ingest = self.directory.path().join("workshop/0/ingest");
        assert_eq!(fs::read_dir(ingest).expect("a workplace").count(), 0);
        let directories = fs::read_dir(&self.fake.directory).expect("snapshots").count();
        assert_eq!(directories, layers, "each directory is of a layer");
    }
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn a_slot_of_an_unknown_kind_is_left_to_the_runtime() {
    let node = Filled::start(PullEngine::Auto).await;
    node.set(&[Wrong::Slot]);
    assert_eq!(node.pull("app:1").await.expect("passed on"), "by the runtime");
    assert_eq!(node.fake.state.lock().pulled.len(), 1);
    assert!(node.fake.state.lock().begun.is_empty() && node.fake.state.lock().records.is_empty());
    // The next one is as it should be.
    assert_eq!(node.pull("app:1").await.expect("pulls"), node.app.id().to_string());
    node.is_whole(3);

    let node = Filled::start(PullEngine::Embedded).await;
    node.set(&[Wrong::Slot]);
    let error = node.pull("app:1").await.expect_err("not passed on");
    assert_eq!(error.kind(), Kind::FailedPrecondition);
    assert!(
        error.message().ends_with("not with the pull engine embedded: the snapshot is a mount of the type \"9p\""),
        "{error}"
    );
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn a_failure_in_the_middle_leaves_no_record_and_the_next_pull_resumes() {
    for (wrong, kind, is_left) in [
        (Wrong::Commit, Kind::Internal, false),
        (Wrong::Full, Kind::ResourceExhausted, false),
        (Wrong::Gone, Kind::Unavailable, true),
        (Wrong::Begin, Kind::Unavailable, true),
    ] {
        let node = Filled::start(PullEngine::Embedded).await;
        // Two layers of it are there.
        let below = image().layer(node.app.layers[0].clone()).layer(node.app.layers[1].clone()).build();
        node.registry.push("app", "below", &below);
        node.pull("app:below").await.expect("pulls");
        let before = node.reads(0) + node.reads(1);
        node.set(&[wrong]);
        let error = node.pull("app:1").await.expect_err("goes wrong");
        assert_eq!(error.kind(), kind, "{wrong:?}: {error}");
        assert!(error.message().contains("app:1"), "{wrong:?}: {error}");
        assert_eq!(!node.fake.state.lock().begun.is_empty(), is_left, "{wrong:?}");
        assert!(!node.fake.state.lock().records.contains_key(&node.app.id().to_string()), "{wrong:?}");
        assert_eq!(node.pull("app:1").await.expect("pulls"), node.app.id().to_string());
        assert_eq!(node.reads(0) + node.reads(1), before, "{wrong:?}: what was there is not fetched");
        node.is_whole(3);
    }
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn a_layer_that_is_lost_before_it_is_linked_is_fetched() {
    let node = Filled::start(PullEngine::Embedded).await;
    node.pull("app:1").await.expect("pulls");
    let other = image().layer(layer("below", 9, 9000)).layer(node.app.layers[2].clone()).build();
    node.registry.push("app", "other", &other);
    node.set(&[Wrong::LinkLater]);
    let before = node.reads(2);
    assert_eq!(node.pull("app:other").await.expect("pulls"), other.id().to_string());
    assert_eq!(node.reads(2), before + 1, "it was there, and gone when it was to be linked");
    node.is_whole(5);
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn a_failure_at_the_records_is_undone_and_the_runtime_does_not_pull() {
    for wrong in [Wrong::Config, Wrong::Id, Wrong::Record, Wrong::Name] {
        let node = Filled::start(PullEngine::Auto).await;
        // The name leads to another image.
        let before = image().layer(layer("old", 7, 9000)).build();
        node.registry.push("app", "1", &before);
        node.pull("app:1").await.expect("pulls");
        let records = node.fake.state.lock().records.clone();
        node.fake.state.lock().written.clear();
        node.registry.push("app", "1", &node.app);
        node.set(&[wrong]);
        let error = node.pull("app:1").await.expect_err("goes wrong");
        assert!(error.message().contains("app:1"), "{wrong:?}: {error}");
        let state = node.fake.state.lock();
        assert_eq!(state.records, records, "{wrong:?}");
        assert!(state.begun.is_empty() && state.pulled.is_empty(), "{wrong:?}: {:?}", state.pulled);
    }
}

/// A layer that the runtime pulled itself has no recorded origin: its bytes are fetched once, which is recorded.
#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn a_layer_without_an_origin_is_fetched_once() {
    let node = Filled::start(PullEngine::Embedded).await;
    node.pull("app:1").await.expect("pulls");
    for committed in node.fake.state.lock().committed.values_mut() {
        committed.facts = LayerFacts::default();
    }
    let before = node.reads(0);
    for (tag, reads) in [("2", before + 1), ("3", before + 1)] {
        let other = image().layer(node.app.layers[0].clone()).layer(layer(tag, 9, 9000)).build();
        node.registry.push("app", tag, &other);
        node.pull(&format!("app:{tag}")).await.expect("pulls");
        assert_eq!(node.reads(0), reads, "{tag}");
    }
    assert_eq!(node.fake.state.lock().committed.len(), 5, "the layer that was present is used");
}
