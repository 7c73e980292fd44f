//! [`RuntimeImages`]: the images of a container runtime, pulled by our engine into the runtime's own store if the store is one that our
//! engine can fill, and by the runtime if it is not ([`crate::runtime_pull`]). The store and the node's settings select the engine, and
//! never an image or an error. Everything but pulls is the runtime's answer; an image whose layers are gone, or which the signature policy
//! refuses ([`crate::runtime_policy`]), counts as absent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cri_api::engine::runtime_store::{
    DamagedLayer, FindRuntimeStore, HandlerStore, HeldLayers, LayerUsage, RuntimeImageFacts, RuntimeStore,
    StoreDetection, UnpackedForm,
};
use cri_api::engine::{ConvertReport, ConvertRequest, ImageLayers};
use cri_api::{
    Error, FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, Kind, PullImageRequest, Reason, Result,
};
use oci::Digest;
use store::{Durability, LayerFormat, Store};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::destination::runtime_store::lacks_layers;
use crate::engine::Engine;
use crate::error::{self, OpenError, is_runtime_only};
use crate::options::{EngineOptions, RuntimeTarget};
use crate::runtime_convert::{self, Conversion};
use crate::runtime_layers::RuntimeLayers;
use crate::runtime_policy::RuntimePolicy;
use crate::runtime_pull::{PullEngine, Runtime};
use crate::{runtime_reading, runtime_records};

/// How long it is believed that the runtime is set up as it was.
const BELIEVED_FOR: Duration = Duration::from_secs(10);
/// Longest pause between two sweeps of the mounts of layers.
const TEND_EVERY: Duration = Duration::from_secs(30);
/// Pause between the report of a removal and the sweep.
const AFTER_REMOVAL: Duration = Duration::from_secs(1);
/// Most processes that pull into one runtime's store at the same time.
const WORKPLACES: u32 = 16;
/// Most reasons that are warned of: some have a word of the image in them.
const MAX_WARNED: usize = 16;
/// Annotation of a sandbox with the runtime handler that its images are for.
const HANDLER: &str = "io.containerd.cri.runtime-handler";

/// The engine that pulls, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullEngineChoice {
    /// Our engine does.
    pub is_embedded: bool,
    /// The reason, for people.
    pub why: String,
}

impl fmt::Display for PullEngineChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engine = if self.is_embedded { "embedded" } else { "runtime" };
        write!(f, "{engine}: {}", self.why)
    }
}

/// See the file's head.
pub struct RuntimeImages {
    runtime: Runtime,
    finder: Arc<dyn FindRuntimeStore>,
    options: EngineOptions,
    rule: PullEngine,
    /// `None`: every image is accepted.
    policy: Option<RuntimePolicy>,
    /// Guards what was found, and the engine for it.
    state: Mutex<RuntimeState>,
    layers: RuntimeLayers,
}

#[derive(Default)]
struct RuntimeState {
    found: Option<(Instant, StoreDetection)>,
    opened: Option<OpenEngine>,
    /// The last choice.
    choice: Option<PullEngineChoice>,
    /// Reasons for which images were left to the runtime although its store can be filled: each is warned of once.
    warned: BTreeSet<String>,
}

/// An engine that fills a runtime's store.
#[derive(Clone)]
struct OpenEngine {
    target: RuntimeTarget,
    engine: Engine,
}

impl fmt::Debug for RuntimeImages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeImages").field("rule", &self.rule).finish_non_exhaustive()
    }
}

impl RuntimeImages {
    /// The images of `runtime`, whose store `finder` finds. The root in `options` is not used. Reads the signature policy, and asks the
    /// runtime nothing yet.
    ///
    /// # Errors
    /// The signature policy cannot be used.
    pub async fn open(
        runtime: Arc<dyn ImageService>,
        finder: Arc<dyn FindRuntimeStore>,
        options: EngineOptions,
        rule: PullEngine,
    ) -> std::result::Result<Self, OpenError> {
        let policy = match options.signature_policy.clone() {
            Some(path) => {
                let opened = tokio::task::spawn_blocking(move || RuntimePolicy::open(&path)).await;
                Some(opened.map_err(|error| OpenError::SignaturePolicy(format!("cannot be read: {error}")))??)
            }
            None => None,
        };
        let runtime = Runtime::new(runtime, rule, options.platform.clone(), policy.is_some());
        Ok(Self { runtime, finder, options, rule, policy, state: Mutex::default(), layers: RuntimeLayers::default() })
    }

    /// The engine that pulls, as the runtime is configured now.
    ///
    /// # Errors
    /// The runtime gave no answer: either engine may be the one that pulls.
    pub async fn choice(&self) -> Result<PullEngineChoice> {
        let mut state = self.state.lock().await;
        Ok(choice(&self.find(&mut state).await?))
    }

    /// Opens the engine, so that the first pull need not, and takes over what an earlier process left. For a process that stays.
    pub async fn recover(&self) {
        let mut state = self.state.lock().await;
        let opened = match self.find(&mut state).await {
            Ok(StoreDetection::Fillable(store)) => self.open_engine(&mut state, store).await.map(drop),
            Ok(StoreDetection::Unsuited(_)) => return,
            Err(error) => Err(error),
        };
        if let Err(error) = opened {
            tracing::debug!(%error, "our engine is not open yet");
        }
    }

    /// Gives up what interrupted pulls left an hour ago, also those of processes that are gone. To be called now and then.
    pub async fn sweep(&self) {
        let Some(opened) = self.state.lock().await.opened.clone() else { return };
        take_over(&opened).await;
        opened.sweep(false).await;
    }

    /// Mounts layers that are files and not mounted, and unmounts those that the runtime has removed: at once, when the runtime reports
    /// a removal, and periodically. Does not return. For a process that stays.
    pub async fn tend_layers(&self) {
        loop {
            let found = self.find(&mut *self.state.lock().await).await;
            let Ok(StoreDetection::Fillable(store)) = found else {
                tokio::time::sleep(TEND_EVERY).await;
                continue;
            };
            if let Err(error) = store.sweep().await {
                tracing::warn!(%error, "layers of removed images stay mounted until the next sweep");
            }
            match tokio::time::timeout(TEND_EVERY, store.removal()).await {
                // The files are removed after the record.
                Ok(Ok(())) => tokio::time::sleep(AFTER_REMOVAL).await,
                Ok(Err(error)) => {
                    tracing::debug!(%error, "removals are not reported");
                    tokio::time::sleep(TEND_EVERY).await;
                }
                Err(_) => {}
            }
        }
    }

    /// Ends what goes on.
    pub async fn close(&self) {
        if let Some(opened) = self.state.lock().await.opened.take() {
            opened.engine.shutdown().await;
        }
    }

    /// Detects the runtime's store. Only an answer is kept for a while: after an error the next call asks again.
    async fn find(&self, state: &mut RuntimeState) -> Result<StoreDetection> {
        if self.rule == PullEngine::Runtime {
            return Ok(StoreDetection::Unsuited("pullEngine is runtime".to_owned()));
        }
        if let Some((at, found)) = &state.found
            && at.elapsed() < BELIEVED_FOR
        {
            return Ok(found.clone());
        }
        state.found = None;
        let found = self.ask_runtime().await?;
        state.found = Some((Instant::now(), found.clone()));
        let choice = choice(&found);
        if state.choice.as_ref() != Some(&choice) {
            if state.choice.is_some() {
                tracing::info!(pullEngine = %choice, "pull engine changed: the runtime is configured in another way");
            }
            state.choice = Some(choice);
        }
        Ok(found)
    }

    async fn ask_runtime(&self) -> Result<StoreDetection> {
        let asked = tokio::task::spawn_blocking(store::is_privileged).await;
        let is_privileged = asked.map_err(|error| {
            Error::new(Kind::Internal, format!("find out whether this process is root of the machine: {error}"))
        })?;
        if !is_privileged {
            let reason = "this process is not root of the machine, so it cannot write into the runtime's store";
            return Ok(StoreDetection::Unsuited(reason.to_owned()));
        }
        match self.runtime.fs_info().await {
            Ok(images) => self.finder.find(&images).await,
            // A runtime that does not know the call has no store that could be found.
            Err(error) if error.kind() == Kind::Unimplemented => {
                Ok(StoreDetection::Unsuited(error.message().to_owned()))
            }
            Err(error) => Err(error),
        }
    }

    async fn open_engine(&self, state: &mut RuntimeState, store: Arc<dyn RuntimeStore>) -> Result<OpenEngine> {
        if let Some(opened) = &state.opened {
            let before = &opened.target.store;
            if (before.staging_root(), before.form()) == (store.staging_root(), store.form()) {
                return Ok(opened.clone());
            }
            // The runtime has another snapshotter now, or its layers have another form.
            opened.engine.shutdown().await;
            state.opened = None;
        }
        for workplace in 0..WORKPLACES {
            let images = Arc::clone(self.runtime.for_questions());
            let target = RuntimeTarget { store: Arc::clone(&store), workplace, images };
            match Engine::open(self.options_for(&target)).await {
                Ok(engine) => {
                    let opened = OpenEngine { target, engine };
                    take_over(&opened).await;
                    opened.sweep(false).await;
                    state.opened = Some(opened.clone());
                    return Ok(opened);
                }
                Err(OpenError::Store(store::OpenError::Held { .. })) => {}
                Err(error) => return Err(error::from_open(store.staging_root(), &error)),
            }
        }
        let message = format!("{WORKPLACES} processes pull into {} already", store.name());
        Err(Error::new(Kind::ResourceExhausted, message))
    }

    fn options_for(&self, target: &RuntimeTarget) -> EngineOptions {
        let mut options = self.options.clone();
        options.root = workplace(target.store.staging_root(), target.workplace);
        options.store.layer_format = match target.store.form() {
            UnpackedForm::Directory => LayerFormat::Dir,
            UnpackedForm::ErofsFile => LayerFormat::Erofs,
            UnpackedForm::NestedErofsFile => LayerFormat::NestedErofs,
        };
        // The runtime's records are durable, and must not be of files that are not.
        options.store.durability = Durability::Full;
        options.store.agent_socket = None;
        // Nothing is ever removed from there that takes space.
        options.store.reserve_bytes = 0;
        options.runtime = Some(target.clone());
        options
    }

    /// Our engine's pull.
    async fn pull_here(&self, opened: OpenEngine, request: PullImageRequest) -> Result<String> {
        match opened.engine.pull_image(request.clone()).await {
            Err(error) if is_runtime_only(&error) => {
                self.warn_once(error.message()).await;
                self.runtime.pull(request, error.message()).await
            }
            answer => {
                // A runtime that comes back may be configured in another way.
                if answer.as_ref().is_err_and(|error| error.reason() == Some(Reason::Unreachable)) {
                    self.state.lock().await.found = None;
                }
                answer
            }
        }
    }

    /// Warns that images are left to the runtime for a reason, once.
    async fn warn_once(&self, why: &str) {
        let warned = &mut self.state.lock().await.warned;
        if warned.len() < MAX_WARNED && warned.insert(why.to_owned()) {
            tracing::warn!(why, "the runtime pulls such images itself, by its own rules");
        }
    }
}

impl OpenEngine {
    async fn sweep(&self, all: bool) {
        let content = &self.engine.0.content;
        content.leftovers.sweep(&self.target, content.now(), all).await;
    }
}

/// Opens a store in a free staging slot of a runtime's store. Blocks.
fn open_staging(root: &Path, options: &store::OpenOptions, name: &str) -> Result<(Store, u32)> {
    for number in 0..WORKPLACES {
        match Store::open(&workplace(root, number), options.clone()) {
            Ok(store) => return Ok((store, number)),
            Err(store::OpenError::Held { .. }) => {}
            Err(error) => return Err(error::from_open(root, &OpenError::Store(error))),
        }
    }
    let message = format!("{WORKPLACES} processes pull into {name} already");
    Err(Error::new(Kind::ResourceExhausted, message))
}

/// Root of the engine with this number in a workshop.
fn workplace(workshop: &Path, number: u32) -> std::path::PathBuf {
    workshop.join(number.to_string())
}

fn choice(found: &StoreDetection) -> PullEngineChoice {
    match found {
        StoreDetection::Fillable(store) => {
            let why = format!("it fills {} with {}", store.name(), store.layers());
            PullEngineChoice { is_embedded: true, why }
        }
        StoreDetection::Unsuited(reason) => PullEngineChoice { is_embedded: false, why: reason.clone() },
    }
}

/// Takes over what processes left that are gone: their layers on the way are deleted, their images are as if this process had been
/// interrupted in them.
async fn take_over(opened: &OpenEngine) {
    let OpenEngine { target, engine } = opened;
    for number in (0..WORKPLACES).filter(|number| *number != target.workplace) {
        let root = workplace(target.store.staging_root(), number);
        let options = store::OpenOptions { unfinished_since: None, ..engine.0.options.store.clone() };
        let opening = move || root.exists().then(|| Store::open(&root, options)).transpose();
        // If the store cannot be opened, another process holds it and still works there.
        let Ok(Ok(Some(held))) = engine.0.content.background.start(opening).await else { continue };
        match target.store.unfinished(number).await {
            Ok(found) => engine.0.content.leftovers.add(found),
            Err(error) => tracing::debug!(%error, number, "what another process left stays until the next sweep"),
        }
        engine.0.content.background.discard(held).await;
    }
}

/// The runtime handler that an image is pulled for; `None`: the default one.
fn handler_of(request: &PullImageRequest) -> Option<&str> {
    let of_sandbox = request.sandbox.as_ref().and_then(|sandbox| sandbox.annotations.get(HANDLER));
    let named = Some(&request.image.runtime_handler).filter(|handler| !handler.is_empty());
    named.or(of_sandbox).map(String::as_str).filter(|handler| !handler.is_empty())
}

#[async_trait]
impl RuntimeImageFacts for RuntimeImages {
    async fn image_layers(&self) -> Result<Option<ImageLayers>> {
        let found = self.find(&mut *self.state.lock().await).await?;
        match found {
            StoreDetection::Fillable(store) => {
                let images = self.runtime.for_questions();
                self.layers.of_all(images.as_ref(), store.as_ref()).await.map(Some)
            }
            StoreDetection::Unsuited(_) => Ok(None),
        }
    }

    /// The runtime writes a record of the image ID when an image is pulled, and removes it with the image.
    async fn pull_times(&self) -> Result<BTreeMap<String, i64>> {
        let found = self.find(&mut *self.state.lock().await).await?;
        let StoreDetection::Fillable(store) = found else { return Ok(BTreeMap::new()) };
        let records = store.records().await?.into_iter().filter(|record| record.created_at > 0);
        Ok(records.map(|record| (record.name, record.created_at)).collect())
    }

    async fn pull_engine(&self) -> String {
        match self.choice().await {
            Ok(choice) => choice.to_string(),
            Err(error) => format!("not known at the moment: {error}"),
        }
    }

    async fn damaged_layers(&self, repair: bool) -> Result<Option<Vec<DamagedLayer>>> {
        match self.find(&mut *self.state.lock().await).await? {
            StoreDetection::Fillable(store) => store.damaged_layers(repair).await.map(Some),
            StoreDetection::Unsuited(_) => Ok(None),
        }
    }

    async fn convert_layers(&self, request: &ConvertRequest) -> Result<Option<ConvertReport>> {
        let found = self.find(&mut *self.state.lock().await).await?;
        let StoreDetection::Fillable(store) = found else { return Ok(None) };
        let options = runtime_convert::staging_options(&self.options.store, request.to);
        let (root, name) = (store.staging_root().to_owned(), store.name());
        let opened = tokio::task::spawn_blocking(move || open_staging(&root, &options, &name)).await;
        let (staging, slot) = opened.unwrap_or_else(|error| Err(Error::new(Kind::Internal, error.to_string())))?;
        let images = Arc::clone(self.runtime.for_questions());
        let conversion = Conversion { images, store: Arc::clone(&store), staging: Arc::new(staging), slot };
        let report = conversion.run(request).await;
        if let Err(error) = store.sweep().await {
            tracing::warn!(%error, "mounts of converted layers stay until the next sweep");
        }
        report
    }

    async fn layer_bytes(&self, diff_ids: &[Digest]) -> Result<Option<Vec<u64>>> {
        match self.find(&mut *self.state.lock().await).await? {
            StoreDetection::Fillable(store) => runtime_reading::layer_bytes(store.as_ref(), diff_ids).await.map(Some),
            StoreDetection::Unsuited(_) => Ok(None),
        }
    }

    async fn hold_layers(&self, image: &ImageSpec) -> Result<Option<HeldLayers>> {
        let store = match self.find(&mut *self.state.lock().await).await? {
            StoreDetection::Fillable(store) => store,
            StoreDetection::Unsuited(why) => return Err(Error::new(Kind::Unimplemented, why)),
        };
        let status = self.image_status(image, true).await?;
        if status.image.is_none() {
            return Ok(None);
        }
        runtime_reading::hold_layers(store.as_ref(), &status).await.map(Some)
    }

    async fn hidden_records(&self, remove: bool) -> Result<Option<Vec<String>>> {
        let found = self.find(&mut *self.state.lock().await).await?;
        let now = (self.options.clock)();
        match found {
            StoreDetection::Fillable(store) => {
                let images = self.runtime.for_questions();
                runtime_records::hidden(images.as_ref(), store.as_ref(), now, remove).await.map(Some)
            }
            StoreDetection::Unsuited(_) => Ok(None),
        }
    }
}

#[async_trait]
impl ImageService for RuntimeImages {
    async fn list_images(&self, filter: Option<&ImageFilter>) -> Result<Vec<Image>> {
        self.runtime.list(filter).await
    }

    /// An image is absent, so that the next pull fetches it, if its layers are not where containers would search for
    /// them, or if the signature policy does not accept it now. The runtime still lists it.
    async fn image_status(&self, image: &ImageSpec, verbose: bool) -> Result<ImageStatus> {
        let found = self.find(&mut *self.state.lock().await).await?;
        let store = match &found {
            StoreDetection::Fillable(store) => Some(store.as_ref()),
            StoreDetection::Unsuited(_) => None,
        };
        let has_layers_of = match store {
            Some(store) if image.runtime_handler.is_empty() => Some(store),
            Some(store) if store.handler_store(&image.runtime_handler).await? == HandlerStore::Default => Some(store),
            _ => None,
        };
        let mut status = self.runtime.status(image, verbose || has_layers_of.is_some()).await?;
        let Some(present) = &status.image else { return Ok(status) };
        if let Some(store) = has_layers_of
            && lacks_layers(store, &status).await?
        {
            tracing::warn!(image = image.image, "its layers are gone from {}: it counts as absent", store.name());
            return Ok(ImageStatus::default());
        }
        if let Some(policy) = &self.policy
            && let Some(why) = policy.objection(store, present, &image.reference_or_id()).await?
        {
            tracing::debug!(image = image.image, reason = %why, "signature policy refuses a present image");
            return Ok(ImageStatus::default());
        }
        if !verbose {
            status.info = BTreeMap::new();
        }
        Ok(status)
    }

    async fn pull_image(&self, mut request: PullImageRequest) -> Result<String> {
        let found = self.find(&mut *self.state.lock().await).await?;
        let store = match found {
            StoreDetection::Fillable(store) => store,
            StoreDetection::Unsuited(reason) => return self.runtime.pull(request, &reason).await,
        };
        if let Some(handler) = handler_of(&request) {
            if let HandlerStore::Other(name) = store.handler_store(handler).await? {
                let why = format!("the runtime handler {handler:?} uses {name}");
                self.warn_once(&why).await;
                return self.runtime.pull(request, &why).await;
            }
            // The store is the default one, for which the engine has no handlers.
            request.image.runtime_handler.clear();
        }
        let opened = self.open_engine(&mut *self.state.lock().await, store).await?;
        self.pull_here(opened, request).await
    }

    async fn remove_image(&self, image: &ImageSpec) -> Result<()> {
        // What an interrupted pull holds would stay with the image.
        let opened = self.state.lock().await.opened.clone();
        if let Some(opened) = opened {
            opened.sweep(true).await;
        }
        self.runtime.remove(image).await?;
        // The image is removed, whatever becomes of its mounts.
        let swept = match self.find(&mut *self.state.lock().await).await {
            Ok(StoreDetection::Fillable(store)) => store.sweep().await,
            Ok(StoreDetection::Unsuited(_)) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = swept {
            tracing::warn!(%error, "layers of the removed image stay mounted until the next sweep");
        }
        Ok(())
    }

    async fn image_fs_info(&self) -> Result<FsInfo> {
        let mut info = self.runtime.fs_info().await?;
        if let StoreDetection::Fillable(store) = self.find(&mut *self.state.lock().await).await?
            && let Some(images) = info.image_filesystems.first_mut()
        {
            let LayerUsage { files, bytes, counted_bytes } = store.file_usage().await?;
            images.used_bytes = images.used_bytes.map(|used| used.saturating_sub(counted_bytes).saturating_add(bytes));
            images.inodes_used = images.inodes_used.map(|used| used.saturating_add(files));
        }
        Ok(info)
    }
}
