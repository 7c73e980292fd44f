//! The waist of imagelet: what an image service and a runtime service are.
//!
//! Two traits, [`ImageService`] and [`RuntimeService`], with plain types and one [`Error`] that carries a kind; and
//! [`engine`], the operations that only our own store has. The
//! embedded engine, a remote CRI runtime and the fake all stand behind them; deciders above see nothing else. No
//! protobuf, no I/O, no clock here. With feature `testing`: an in-memory fake, and the conformance suite which every
//! implementation runs.
//!
//! ```
//! use std::sync::Arc;
//!
//! use imagelet_cri_api::{ImageService, Kind, PullImageRequest, Result};
//!
//! /// Pulls through any implementation. Returns `None` if the registry does not have the image.
//! async fn pull(service: Arc<dyn ImageService>, image: &str) -> Result<Option<String>> {
//!     match service.pull_image(PullImageRequest::new(image)).await {
//!         Ok(image_ref) => Ok(Some(image_ref)),
//!         Err(error) if error.kind() == Kind::NotFound => Ok(None),
//!         Err(error) => Err(error.context("prepare the node")),
//!     }
//! }
//! ```
#![deny(missing_docs)]

pub mod engine;
mod error;
mod filesystem;
mod image;
mod image_service;
mod image_spec;
mod progress;
mod runtime;
#[cfg(feature = "testing")]
pub mod testing;

pub use error::{Error, Kind, Reason, Result};
pub use filesystem::{FilesystemUsage, FsInfo};
pub use image::{BeforeVisible, Image, ImageFilter, ImageStatus, PullImageRequest};
pub use image_service::ImageService;
pub use image_spec::ImageSpec;
pub use progress::{LayerState, ProgressSink, PullEvent, SourceBytes};
pub use runtime::{
    AttachRequest, Capabilities, CgroupDriver, CniReport, Condition, Container, ContainerAttributes, ContainerConfig,
    ContainerEvent, ContainerEventKind, ContainerEvents, ContainerFilter, ContainerMetadata, ContainerState,
    ContainerStats, ContainerStatsFilter, ContainerStatus, ContainerUser, CpuUsage, DEFAULT_CNI_DIRECTORY, Device,
    DnsConfig, EnvVar, ExecRequest, ExecSyncOutput, HugepageLimit, IdMapping, IoUsage, LinuxContainerConfig,
    LinuxContainerResources, LinuxContainerSecurityContext, LinuxPodSandboxConfig, LinuxSandboxSecurityContext,
    MemoryUsage, Mount, MountPropagation, NamespaceMode, NamespaceOptions, NetworkInterfaceUsage, NetworkUsage,
    PodSandbox, PodSandboxAttributes, PodSandboxConfig, PodSandboxFilter, PodSandboxMetadata, PodSandboxStats,
    PodSandboxStatsFilter, PodSandboxStatus, PortMapping, ProcessUsage, Protocol, PsiData, PsiStats, RuntimeConfig,
    RuntimeFeatures, RuntimeHandler, RuntimeHandlerFeatures, RuntimeService, RuntimeStatus, SecurityProfile,
    SelinuxOptions, Signal, SupplementalGroupsPolicy, SwapUsage, UserNamespace, VersionInfo,
};
