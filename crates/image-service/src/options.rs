//! [`EngineOptions`]: the settings of an engine. Plain values with their defaults; no environment, no file.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use cri_api::ImageService;
use cri_api::engine::runtime_store::RuntimeStore;
use oci::Platform;

use crate::error::OpenError;
use crate::origin::SharedContent;
use crate::reach::Reach;

/// Nanoseconds since 1970, now.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// With less, not even one layer could be unpacked within it.
pub const LEAST_MEMORY: usize = 4 << 20;

/// The share of an entry in the bytes that a layer inflates to: with the usual ratio it has 87 compressed bytes. A name, its
/// attributes and a bit of content take more.
const ENTRY: u64 = 128 << 10;

/// Limits of images beyond those of a layer (`store::Limits`): above one a pull fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the files of all layers of an image.
    pub image_bytes: u64,
    /// Layers of an image.
    pub image_layers: usize,
    /// How many times its compressed size a layer may inflate to. No gzip stream can reach more than 1032.
    pub inflate_ratio: u64,
    /// A layer that inflates to no more is never too much for its size: files of zeros are small in zstd.
    pub inflate_free: u64,
    /// A layer with no more entries has never too many for its size, nor have all of an image together.
    pub entries_free: u64,
    /// Bytes of an index or a manifest.
    pub manifest_bytes: u64,
    /// Bytes of an image config.
    pub config_bytes: u64,
}

impl Limits {
    /// Most bytes that a layer of so many compressed bytes may inflate to.
    pub(crate) fn inflated(&self, compressed: u64) -> u64 {
        compressed.saturating_mul(self.inflate_ratio).max(self.inflate_free)
    }

    /// How many entries may come of so many compressed bytes. To make one costs as much whatever is in it, so that the work for a
    /// layer would else be in no proportion to what comes over the network.
    pub(crate) fn entries(&self, compressed: u64) -> u64 {
        (self.inflated(compressed) / ENTRY).max(self.entries_free)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            image_bytes: 256 << 30,
            image_layers: 1000,
            inflate_ratio: 1500,
            inflate_free: 1 << 30,
            entries_free: 200_000,
            manifest_bytes: 4 << 20,
            config_bytes: 4 << 20,
        }
    }
}

/// When fetched data is saved, so that an interrupted pull need not start over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resume {
    /// Layers that were whole are kept; blobs as soon as their line is slow.
    #[default]
    Auto,
    /// Also, every blob from its first byte on.
    Always,
    /// Nothing.
    Off,
}

/// Handling of images which have layers that no engine of ours can unpack: encrypted ones, and those of unknown media types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnsupportedImages {
    /// They are refused.
    #[default]
    Refuse,
    /// A runtime behind the engine pulls them, by its own rules. Not with a signature policy, and not if a descriptor has URLs.
    Runtime,
}

/// How an engine works.
#[derive(Clone)]
pub struct EngineOptions {
    /// Root of the store.
    pub root: PathBuf,
    /// `certs.d` directories, first one first. They are read on every pull.
    pub hosts_roots: Vec<PathBuf>,
    /// How registries are reached, in addition to the configuration of each.
    pub reach: Reach,
    /// The platform that images are chosen for.
    pub platform: Platform,
    /// How many layers of one image are fetched and unpacked at the same time at most, the biggest first. Of small ones
    /// (256 KiB), which wait for the registry most of the time, it is four times as many. The memory sets a limit of its own.
    pub max_parallel_layers: usize,
    /// How much memory all pulls may use together, in bytes: for what has come and waits, for buffers, for decoders. Every
    /// layer in flight needs 1.8 to 2.8 MiB; more is used where it helps and is there. A zstd window that is larger than a
    /// quarter of it is used all the same, one at a time.
    pub memory: usize,
    /// How the store is opened.
    pub store: store::OpenOptions,
    /// Limits of an image.
    pub limits: Limits,
    /// `User-Agent` towards registries.
    pub user_agent: String,
    /// Patience with registries.
    pub retry: registry::RetryPolicy,
    /// Proxies.
    pub proxy: registry::ProxySettings,
    /// When one large layer is fetched over several connections.
    pub ranges: registry::RangePolicy,
    /// Limit of the bytes a second that all pulls take in together.
    pub bandwidth: registry::Bandwidth,
    /// Counts the bytes that are received from each host.
    pub traffic: registry::Traffic,
    /// Where registries may send to though it is in plain HTTP or at an address that they are not near to.
    pub allowed_targets: Vec<registry::AllowedTarget>,
    /// Runtime handlers that requests may name, in addition to the default one.
    pub runtime_handlers: Vec<String>,
    /// Answers a pull by digest of an image that is here and whole without asking the registry. It saves a
    /// request and works offline; but such a pull then no longer proves that the caller's credential may have the image,
    /// on which a kubelet relies. Hence off by default.
    pub trust_present_digests: bool,
    /// How a pull may use content that was fetched from other repositories: by default if its own registry confirms,
    /// for its own credential, that it has the same content.
    pub shared_content: SharedContent,
    /// Keeps the compressed layers next to their files, as they were fetched: an export then has exactly the manifest
    /// that was pulled, and a layer whose files are damaged is unpacked again without a fetch. This takes about a third
    /// more disk. Blobs that were kept before the option was switched off stay with their images.
    pub keep_blobs: bool,
    /// The parts of an interrupted pull that a later one goes on with.
    pub resume: Resume,
    /// The signature policy, in the form of `containers-policy.json(5)`: of which images signatures are demanded, and by which
    /// keys. Without one every image is accepted. It is read again when it has changed.
    pub signature_policy: Option<PathBuf>,
    /// Handling of images with layers that cannot be unpacked, where a runtime is behind the engine.
    pub unsupported_images: UnsupportedImages,
    /// The store of a container runtime that gets the images, in place of the engine's own, which then only has what is on its way.
    pub runtime: Option<RuntimeTarget>,
    /// The wall clock.
    pub clock: Clock,
}

/// The container runtime whose store gets the images.
#[derive(Clone)]
pub struct RuntimeTarget {
    /// Store.
    pub store: Arc<dyn RuntimeStore>,
    /// The number of the directory, in the store's workshop, that is the root of the engine.
    pub workplace: u32,
    /// The runtime, which is asked when an image has become visible.
    pub images: Arc<dyn ImageService>,
}

impl fmt::Debug for RuntimeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeTarget")
            .field("store", &self.store)
            .field("workplace", &self.workplace)
            .finish_non_exhaustive()
    }
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            root: PathBuf::from("/var/lib/imagelet"),
            hosts_roots: vec![PathBuf::from("/etc/containerd/certs.d"), PathBuf::from("/etc/docker/certs.d")],
            reach: Reach::default(),
            platform: Platform::host(),
            max_parallel_layers: 4,
            memory: 32 << 20,
            store: store::OpenOptions::default(),
            limits: Limits::default(),
            user_agent: concat!("imagelet/", env!("CARGO_PKG_VERSION")).to_owned(),
            retry: registry::RetryPolicy::default(),
            proxy: registry::ProxySettings::default(),
            ranges: registry::RangePolicy::default(),
            bandwidth: registry::Bandwidth::default(),
            traffic: registry::Traffic::default(),
            allowed_targets: Vec::new(),
            runtime_handlers: Vec::new(),
            trust_present_digests: false,
            shared_content: SharedContent::default(),
            keep_blobs: false,
            resume: Resume::Auto,
            signature_policy: None,
            unsupported_images: UnsupportedImages::default(),
            runtime: None,
            clock: Arc::new(wall_clock),
        }
    }
}

impl EngineOptions {
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let least = |option, value: usize, least: usize| {
            let message = || format!("it must be at least {least}");
            if value < least { Err(OpenError::Option { option, message: message() }) } else { Ok(()) }
        };
        least("max_parallel_layers", self.max_parallel_layers, 1)?;
        least("memory", self.memory, LEAST_MEMORY)?;
        Ok(())
    }
}

impl fmt::Debug for EngineOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineOptions")
            .field("root", &self.root)
            .field("hosts_roots", &self.hosts_roots)
            .field("reach", &self.reach)
            .field("platform", &self.platform)
            .field("max_parallel_layers", &self.max_parallel_layers)
            .field("memory", &self.memory)
            .field("store", &self.store)
            .field("limits", &self.limits)
            .field("user_agent", &self.user_agent)
            .field("retry", &self.retry)
            .field("proxy", &self.proxy)
            .field("ranges", &self.ranges)
            .field("bandwidth", &self.bandwidth)
            .field("allowed_targets", &self.allowed_targets)
            .field("runtime_handlers", &self.runtime_handlers)
            .field("trust_present_digests", &self.trust_present_digests)
            .field("shared_content", &self.shared_content)
            .field("keep_blobs", &self.keep_blobs)
            .field("resume", &self.resume)
            .field("signature_policy", &self.signature_policy)
            .field("unsupported_images", &self.unsupported_images)
            .field("runtime", &self.runtime)
            .finish_non_exhaustive()
    }
}

#[expect(clippy::disallowed_methods, reason = "the default of an option, which callers may replace")]
fn wall_clock() -> i64 {
    // A clock that was never set may show a time before 1970. The result is then negative and still orders correctly.
    match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |nanos| -nanos),
    }
}
