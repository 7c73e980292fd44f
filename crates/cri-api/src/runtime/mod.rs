//! The runtime service: where pods and containers run. The trait is in `service`, its plain types are in modules by
//! topic. Shapes and meanings are those of CRI `runtime.v1` for Linux.

mod container;
mod events;
mod exec;
mod info;
mod mounts;
mod reported;
mod resources;
mod sandbox;
mod security;
mod service;
mod signal;
mod stats;

pub use container::{
    Container, ContainerConfig, ContainerFilter, ContainerMetadata, ContainerState, ContainerStatus, ContainerUser,
    EnvVar, LinuxContainerConfig,
};
pub use events::{ContainerEvent, ContainerEventKind, ContainerEvents};
pub use exec::{AttachRequest, ExecRequest, ExecSyncOutput};
pub use info::{
    CgroupDriver, Condition, RuntimeConfig, RuntimeFeatures, RuntimeHandler, RuntimeHandlerFeatures, RuntimeStatus,
    VersionInfo,
};
pub use mounts::{Device, IdMapping, Mount, MountPropagation};
pub use reported::{CniReport, DEFAULT_CNI_DIRECTORY};
pub use resources::{HugepageLimit, LinuxContainerResources};
pub use sandbox::{
    DnsConfig, LinuxPodSandboxConfig, PodSandbox, PodSandboxConfig, PodSandboxFilter, PodSandboxMetadata,
    PodSandboxStatus, PortMapping, Protocol,
};
pub use security::{
    Capabilities, LinuxContainerSecurityContext, LinuxSandboxSecurityContext, NamespaceMode, NamespaceOptions,
    SecurityProfile, SelinuxOptions, SupplementalGroupsPolicy, UserNamespace,
};
pub use service::RuntimeService;
pub use signal::Signal;
pub use stats::{
    ContainerAttributes, ContainerStats, ContainerStatsFilter, CpuUsage, IoUsage, MemoryUsage, NetworkInterfaceUsage,
    NetworkUsage, PodSandboxAttributes, PodSandboxStats, PodSandboxStatsFilter, ProcessUsage, PsiData, PsiStats,
    SwapUsage,
};
