//! [`RuntimeImages`]: the images of a container runtime, pulled by our engine into the runtime's own store where that is sure to work,
//! and by the runtime where it is not. Everything but pulls is the runtime's answer; an image whose layers are gone counts as absent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cri_api::{
    Error, FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, Kind, PullImageRequest, Reason, Result,
};
use engine_api::runtime_store::{FindRuntimeStore, RuntimeImageFacts, RuntimeStore, Unsuited};
use engine_api::{ImageLayers, LayerShape};
use store::{Durability, LayerFormat, Sharing, Store};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::engine::Engine;
use crate::error::{self, OpenError};
use crate::options::{EngineOptions, RuntimeTarget};
use crate::pull::deposit::{check_runtime_platform, lacks_layers};
use crate::pull::stack::is_not_covered;
use crate::runtime_layers::RuntimeLayers;
use crate::runtime_records;

/// How long it is believed that the runtime is set up as it was.
const BELIEVED_FOR: Duration = Duration::from_secs(10);
/// Most processes that pull into one runtime's store at the same time.
const WORKPLACES: u32 = 16;
/// Annotation of a sandbox with the runtime handler that its images are for.
const HANDLER: &str = "io.containerd.cri.runtime-handler";

/// The engine that pulls images for a container runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PullEngine {
    /// Our engine where it is sure that the runtime finds what it brings, otherwise the runtime.
    #[default]
    Auto,
    /// Our engine.
    Embedded,
    /// The runtime.
    Runtime,
}

/// The engine that pulls, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullEngineChoice {
    /// Our engine does.
    pub is_embedded: bool,
    /// The runtime does not answer at the moment: it may be another one later.
    pub is_temporary: bool,
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
    runtime: Arc<dyn ImageService>,
    finder: Arc<dyn FindRuntimeStore>,
    options: EngineOptions,
    rule: PullEngine,
    /// Guards what was found, and the engine for it.
    state: Mutex<RuntimeState>,
    layers: RuntimeLayers,
}

/// The runtime's store, or why it cannot be filled.
type FindResult = std::result::Result<Arc<dyn RuntimeStore>, Unsuited>;

#[derive(Default)]
struct RuntimeState {
    found: Option<(Instant, FindResult)>,
    opened: Option<OpenEngine>,
    /// The last choice.
    choice: Option<PullEngineChoice>,
    /// Reasons for which images were left to the runtime although it seemed suited: each is warned of once.
    surprises: BTreeSet<String>,
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
    /// The images of `runtime`, whose store `finder` finds. The root in `options` is not used. Asks nothing yet.
    #[must_use]
    pub fn new(
        runtime: Arc<dyn ImageService>,
        finder: Arc<dyn FindRuntimeStore>,
        options: EngineOptions,
        rule: PullEngine,
    ) -> Self {
        Self { runtime, finder, options, rule, state: Mutex::default(), layers: RuntimeLayers::default() }
    }

    /// The engine that pulls, as the runtime is set up now.
    pub async fn choice(&self) -> PullEngineChoice {
        let mut state = self.state.lock().await;
        let found = self.find(&mut state).await;
        choice(&found)
    }

    /// Opens the engine, so that the first pull need not, and takes over what an earlier process left. For a process that stays.
    pub async fn recover(&self) {
        let mut state = self.state.lock().await;
        let Ok(store) = self.find(&mut state).await else { return };
        if let Err(error) = self.open(&mut state, store).await {
            tracing::debug!(%error, "our engine is not open yet");
        }
    }

    /// Gives up what interrupted pulls left an hour ago, also those of processes that are gone. To be called now and then.
    pub async fn sweep(&self) {
        let Some(opened) = self.state.lock().await.opened.clone() else { return };
        take_over(&opened).await;
        opened.sweep(false).await;
    }

    /// Ends what goes on.
    pub async fn close(&self) {
        if let Some(opened) = self.state.lock().await.opened.take() {
            opened.engine.shutdown().await;
        }
    }

    async fn find(&self, state: &mut RuntimeState) -> FindResult {
        if self.rule == PullEngine::Runtime {
            return Err(Unsuited { reason: "it is set so".to_owned(), is_temporary: false });
        }
        if let Some((at, found)) = &state.found
            && at.elapsed() < BELIEVED_FOR
            && !found.as_ref().is_err_and(|unsuited| unsuited.is_temporary)
        {
            return found.clone();
        }
        let found = self.ask_runtime().await;
        state.found = Some((Instant::now(), found.clone()));
        let choice = choice(&found);
        let is_temporary = found.as_ref().is_err_and(|unsuited| unsuited.is_temporary);
        if !is_temporary && state.choice.as_ref() != Some(&choice) {
            if state.choice.is_some() {
                tracing::info!(pullEngine = %choice, "another engine pulls images for the runtime");
            }
            state.choice = Some(choice);
        }
        found
    }

    async fn ask_runtime(&self) -> FindResult {
        let is_privileged = tokio::task::spawn_blocking(store::is_privileged).await.unwrap_or(false);
        if !is_privileged {
            let reason = "this process is not root of the machine, so it cannot write into the runtime's store";
            return Err(Unsuited { reason: reason.to_owned(), is_temporary: false });
        }
        let images = self.runtime.image_fs_info().await.map_err(|error| Unsuited {
            reason: error.message().to_owned(),
            is_temporary: matches!(error.kind(), Kind::Unavailable | Kind::DeadlineExceeded),
        })?;
        self.finder.find(&images).await
    }

    /// The engine for what was found.
    async fn opened(&self) -> std::result::Result<Result<OpenEngine>, Unsuited> {
        let mut state = self.state.lock().await;
        let store = self.find(&mut state).await?;
        Ok(self.open(&mut state, store).await)
    }

    async fn open(&self, state: &mut RuntimeState, store: Arc<dyn RuntimeStore>) -> Result<OpenEngine> {
        if let Some(opened) = &state.opened {
            if opened.target.store.workshop() == store.workshop() {
                return Ok(opened.clone());
            }
            // The runtime has another snapshotter now.
            opened.engine.shutdown().await;
            state.opened = None;
        }
        for workplace in 0..WORKPLACES {
            let target = RuntimeTarget { store: Arc::clone(&store), workplace, images: Arc::clone(&self.runtime) };
            match Engine::open(self.options_for(&target)).await {
                Ok(engine) => {
                    let opened = OpenEngine { target, engine };
                    take_over(&opened).await;
                    opened.sweep(false).await;
                    state.opened = Some(opened.clone());
                    return Ok(opened);
                }
                Err(OpenError::Store(store::OpenError::Held { .. })) => {}
                Err(error) => return Err(error::from_open(store.workshop(), &error)),
            }
        }
        let message = format!("{WORKPLACES} processes pull into {} already", store.name());
        Err(Error::new(Kind::ResourceExhausted, message))
    }

    fn options_for(&self, target: &RuntimeTarget) -> EngineOptions {
        let mut options = self.options.clone();
        options.root = workplace(target.store.workshop(), target.workplace);
        options.store.layer_format = match target.store.shape() {
            LayerShape::Dir => LayerFormat::Dir,
            LayerShape::Erofs => LayerFormat::Erofs,
        };
        // The runtime's records are durable, and must not be of files that are not.
        options.store.durability = Durability::Full;
        // Files of others in a layer would be the runtime's to keep together.
        options.store.sharing = Sharing::Off;
        options.store.agent_socket = None;
        // Nothing is ever removed from there that takes space.
        options.store.reserve_bytes = 0;
        options.runtime = Some(target.clone());
        options
    }

    /// Our engine's pull.
    async fn pull_here(&self, opened: OpenEngine, request: PullImageRequest) -> Result<String> {
        let error = match opened.engine.pull_image(request.clone()).await {
            Err(error) if is_not_covered(&error) => error,
            answer => {
                // A runtime that comes back may be set up in another way.
                if answer.as_ref().is_err_and(|error| error.reason() == Some(Reason::Unreachable)) {
                    self.state.lock().await.found = None;
                }
                return answer;
            }
        };
        if error.reason() == Some(Reason::InvalidContent) && self.rule != PullEngine::Embedded {
            let is_new = self.state.lock().await.surprises.insert(error.message().to_owned());
            if is_new {
                let store = opened.target.store.name();
                tracing::warn!(why = error.message(), "{store} cannot be filled: the runtime pulls such images itself");
            }
        }
        self.pass_on(request, error.message()).await
    }

    /// Pulls by the runtime, which knows no platform but its own.
    async fn pull_by_runtime(&self, request: PullImageRequest) -> Result<String> {
        check_runtime_platform(&self.options.platform)
            .map_err(|error| error.context(format_args!("pull {}", request.image.image)))?;
        self.runtime.pull_image(request).await
    }

    /// The runtime's own pull of an image that our engine leaves to it.
    async fn pass_on(&self, request: PullImageRequest, why: &str) -> Result<String> {
        if self.rule == PullEngine::Embedded {
            let message = format!("pull {}: not with the pull engine embedded: {why}", request.image.image);
            return Err(Error::new(Kind::FailedPrecondition, message));
        }
        if self.options.signature_policy.is_some() {
            let message =
                format!("pull {}: {why}; the runtime would not ask the signature policy", request.image.image);
            return Err(error::signature(message));
        }
        tracing::info!(image = request.image.image, why, "left to the runtime's own pull");
        self.pull_by_runtime(request).await
    }
}

impl OpenEngine {
    async fn sweep(&self, all: bool) {
        let shared = &self.engine.0;
        shared.leftovers.sweep(&self.target, (shared.options.clock)(), all).await;
    }
}

/// Root of the engine with this number in a workshop.
fn workplace(workshop: &Path, number: u32) -> std::path::PathBuf {
    workshop.join(number.to_string())
}

fn choice(found: &FindResult) -> PullEngineChoice {
    match found {
        Ok(store) => {
            PullEngineChoice { is_embedded: true, is_temporary: false, why: format!("it fills {}", store.name()) }
        }
        Err(unsuited) => {
            PullEngineChoice { is_embedded: false, is_temporary: unsuited.is_temporary, why: unsuited.to_string() }
        }
    }
}

/// Takes over what processes left that are gone: their layers on the way are deleted, their images are as if this process had been
/// interrupted in them.
async fn take_over(opened: &OpenEngine) {
    let OpenEngine { target, engine } = opened;
    for number in (0..WORKPLACES).filter(|number| *number != target.workplace) {
        let root = workplace(target.store.workshop(), number);
        let options = store::OpenOptions { unfinished_since: None, ..engine.0.options.store.clone() };
        let opening = move || root.exists().then(|| Store::open(&root, options)).transpose();
        // Whoever has it still works there.
        let Ok(Ok(Some(held))) = engine.0.background.start(opening).await else { continue };
        match target.store.unfinished(number).await {
            Ok(found) => engine.0.leftovers.add(found),
            Err(error) => tracing::debug!(%error, number, "what another process left stays until the next sweep"),
        }
        engine.0.background.discard(held).await;
    }
}

/// Returns true if an image is for a runtime handler, which may look for it elsewhere.
fn is_for_a_handler(request: &PullImageRequest) -> bool {
    let of_sandbox = request.sandbox.as_ref().and_then(|sandbox| sandbox.annotations.get(HANDLER));
    !request.image.runtime_handler.is_empty() || of_sandbox.is_some_and(|handler| !handler.is_empty())
}

#[async_trait]
impl RuntimeImageFacts for RuntimeImages {
    async fn image_layers(&self) -> Result<Option<ImageLayers>> {
        let found = self.find(&mut *self.state.lock().await).await;
        match found {
            Ok(store) => self.layers.of_all(self.runtime.as_ref(), store.as_ref()).await.map(Some),
            Err(_) => Ok(None),
        }
    }

    async fn pull_engine(&self) -> String {
        self.choice().await.to_string()
    }

    async fn hidden_records(&self, remove: bool) -> Result<Option<Vec<String>>> {
        let found = self.find(&mut *self.state.lock().await).await;
        let now = (self.options.clock)();
        match found {
            Ok(store) => runtime_records::hidden(self.runtime.as_ref(), store.as_ref(), now, remove).await.map(Some),
            Err(_) => Ok(None),
        }
    }
}

#[async_trait]
impl ImageService for RuntimeImages {
    async fn list_images(&self, filter: Option<&ImageFilter>) -> Result<Vec<Image>> {
        self.runtime.list_images(filter).await
    }

    /// An image whose layers are not where containers would look for them is absent, so that the next pull brings them: the
    /// runtime would go on listing it, and no container of it could start.
    async fn image_status(&self, image: &ImageSpec, verbose: bool) -> Result<ImageStatus> {
        let store = match image.runtime_handler.is_empty() {
            true => self.find(&mut *self.state.lock().await).await.ok(),
            false => None,
        };
        let Some(store) = store else { return self.runtime.image_status(image, verbose).await };
        let mut status = self.runtime.image_status(image, true).await?;
        if status.image.is_none() {
            return Ok(status);
        }
        if lacks_layers(store.as_ref(), &status).await? {
            tracing::warn!(image = image.image, "its layers are gone from {}: it counts as absent", store.name());
            return Ok(ImageStatus::default());
        }
        if !verbose {
            status.info = BTreeMap::new();
        }
        Ok(status)
    }

    async fn pull_image(&self, request: PullImageRequest) -> Result<String> {
        if is_for_a_handler(&request) {
            return self.pass_on(request, "it is for a runtime handler").await;
        }
        match self.opened().await {
            Ok(opened) => self.pull_here(opened?, request).await,
            // It may be back before it is asked, and would not ask the policy.
            Err(unsuited) if unsuited.is_temporary && self.options.signature_policy.is_some() => {
                Err(Error::new(Kind::Unavailable, unsuited.reason).with_reason(Reason::Unreachable))
            }
            // The runtime says in its own words that it is not there.
            Err(unsuited) if unsuited.is_temporary => self.pull_by_runtime(request).await,
            Err(unsuited) if self.rule == PullEngine::Embedded => self.pass_on(request, &unsuited.reason).await,
            Err(_) => self.pull_by_runtime(request).await,
        }
    }

    async fn remove_image(&self, image: &ImageSpec) -> Result<()> {
        // What an interrupted pull holds would stay with the image.
        let opened = self.state.lock().await.opened.clone();
        if let Some(opened) = opened {
            opened.sweep(true).await;
        }
        self.runtime.remove_image(image).await
    }

    async fn image_fs_info(&self) -> Result<FsInfo> {
        self.runtime.image_fs_info().await
    }
}
