//! The wire contract: the compiled descriptor against a list of its own, written down apart from the `.proto`, so that
//! a slip of the pen in one of them is seen.

use std::collections::BTreeMap;

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet};

use crate::pb;

/// Every message of ImageService and of RuntimeService with all that is below it, but for Windows, checkpoints and metrics:
/// number, name, type.
/// A message ends where the next one begins; lines that begin with a number continue it.
const GOLDEN: &str = "
    ImageSpec: 1 image string, 2 annotations map<string,string>, 18 user_specified_image string,
       19 runtime_handler string, 20 image_ref string
    Image: 1 id string, 2 repo_tags string[], 3 repo_digests string[], 4 size uint64, 5 uid Int64Value,
       6 username string, 7 spec ImageSpec, 8 pinned bool
    ImageFilter: 1 image ImageSpec
    ListImagesRequest: 1 filter ImageFilter
    ListImagesResponse: 1 images Image[]
    StreamImagesRequest: 1 filter ImageFilter
    StreamImagesResponse: 1 images Image[]
    ImageStatusRequest: 1 image ImageSpec, 2 verbose bool
    ImageStatusResponse: 1 image Image, 2 info map<string,string>
    AuthConfig: 1 username string, 2 password string, 3 auth string, 4 server_address string,
       5 identity_token string, 6 registry_token string
    PullImageRequest: 1 image ImageSpec, 2 auth AuthConfig, 3 sandbox_config PodSandboxConfig
    PullImageResponse: 1 image_ref string
    RemoveImageRequest: 1 image ImageSpec
    RemoveImageResponse:
    ImageFsInfoRequest:
    ImageFsInfoResponse: 1 image_filesystems FilesystemUsage[], 2 container_filesystems FilesystemUsage[]
    FilesystemUsage: 1 timestamp int64, 2 fs_id FilesystemIdentifier, 3 used_bytes UInt64Value,
       4 inodes_used UInt64Value
    FilesystemIdentifier: 1 mountpoint string
    UInt64Value: 1 value uint64
    Int64Value: 1 value int64
    PodSandboxConfig: 1 metadata PodSandboxMetadata, 2 hostname string, 3 log_directory string,
       4 dns_config DNSConfig, 5 port_mappings PortMapping[], 6 labels map<string,string>,
       7 annotations map<string,string>, 8 linux LinuxPodSandboxConfig, 9 windows WindowsPodSandboxConfig
    PodSandboxMetadata: 1 name string, 2 uid string, 3 namespace string, 4 attempt uint32
    VersionRequest: 1 version string
    VersionResponse: 1 version string, 2 runtime_name string, 3 runtime_version string,
       4 runtime_api_version string
    StatusRequest: 1 verbose bool
    StatusResponse: 1 status RuntimeStatus, 2 info map<string,string>, 3 runtime_handlers RuntimeHandler[],
       4 features RuntimeFeatures
    RuntimeStatus: 1 conditions RuntimeCondition[]
    RuntimeCondition: 1 type string, 2 status bool, 3 reason string, 4 message string
    PodSandbox: 1 id string, 2 metadata PodSandboxMetadata, 3 state PodSandboxState, 4 created_at int64,
       5 labels map<string,string>, 6 annotations map<string,string>, 7 runtime_handler string
    PodSandboxFilter: 1 id string, 2 state PodSandboxStateValue, 3 label_selector map<string,string>
    PodSandboxStateValue: 1 state PodSandboxState
    ListPodSandboxRequest: 1 filter PodSandboxFilter
    ListPodSandboxResponse: 1 items PodSandbox[]
    StreamPodSandboxesRequest: 1 filter PodSandboxFilter
    StreamPodSandboxesResponse: 1 pod_sandboxes PodSandbox[]
    Container: 1 id string, 2 pod_sandbox_id string, 3 metadata ContainerMetadata, 4 image ImageSpec,
       5 image_ref string, 6 state ContainerState, 7 created_at int64, 8 labels map<string,string>,
       9 annotations map<string,string>, 10 image_id string
    ContainerMetadata: 1 name string, 2 attempt uint32
    ContainerFilter: 1 id string, 2 state ContainerStateValue, 3 pod_sandbox_id string,
       4 label_selector map<string,string>
    ContainerStateValue: 1 state ContainerState
    ListContainersRequest: 1 filter ContainerFilter
    ListContainersResponse: 1 containers Container[]
    StreamContainersRequest: 1 filter ContainerFilter
    StreamContainersResponse: 1 containers Container[]
    RuntimeHandler: 1 name string, 2 features RuntimeHandlerFeatures
    RuntimeHandlerFeatures: 1 recursive_read_only_mounts bool, 2 user_namespaces bool
    RuntimeFeatures: 1 supplemental_groups_policy bool, 2 user_namespaces_host_network bool,
       3 mount_options bool
    DNSConfig: 1 servers string[], 2 searches string[], 3 options string[]
    PortMapping: 1 protocol Protocol, 2 container_port int32, 3 host_port int32, 4 host_ip string
    Mount: 1 container_path string, 2 host_path string, 3 readonly bool, 4 selinux_relabel bool,
       5 propagation MountPropagation, 6 uidMappings IDMapping[], 7 gidMappings IDMapping[],
       8 recursive_read_only bool, 9 image ImageSpec, 10 image_sub_path string, 11 mount_options string[]
    IDMapping: 1 host_id uint32, 2 container_id uint32, 3 length uint32
    UserNamespace: 1 mode NamespaceMode, 2 uids IDMapping[], 3 gids IDMapping[]
    NamespaceOption: 1 network NamespaceMode, 2 pid NamespaceMode, 3 ipc NamespaceMode, 4 target_id string,
       5 userns_options UserNamespace
    LinuxSandboxSecurityContext: 1 namespace_options NamespaceOption, 2 selinux_options SELinuxOption,
       3 run_as_user Int64Value, 8 run_as_group Int64Value, 4 readonly_rootfs bool, 5 supplemental_groups int64[],
       11 supplemental_groups_policy SupplementalGroupsPolicy, 6 privileged bool, 9 seccomp SecurityProfile,
       10 apparmor SecurityProfile, 7 seccomp_profile_path string
    SecurityProfile: 1 profile_type SecurityProfile.ProfileType, 2 localhost_ref string
    LinuxPodSandboxConfig: 1 cgroup_parent string, 2 security_context LinuxSandboxSecurityContext,
       3 sysctls map<string,string>, 4 overhead LinuxContainerResources, 5 resources LinuxContainerResources
    RunPodSandboxRequest: 1 config PodSandboxConfig, 2 runtime_handler string
    RunPodSandboxResponse: 1 pod_sandbox_id string
    StopPodSandboxRequest: 1 pod_sandbox_id string
    StopPodSandboxResponse:
    RemovePodSandboxRequest: 1 pod_sandbox_id string
    RemovePodSandboxResponse:
    PodSandboxStatusRequest: 1 pod_sandbox_id string, 2 verbose bool
    PodIP: 1 ip string
    PodSandboxNetworkStatus: 1 ip string, 2 additional_ips PodIP[]
    Namespace: 2 options NamespaceOption
    LinuxPodSandboxStatus: 1 namespaces Namespace
    PodSandboxStatus: 1 id string, 2 metadata PodSandboxMetadata, 3 state PodSandboxState, 4 created_at int64,
       5 network PodSandboxNetworkStatus, 6 linux LinuxPodSandboxStatus, 7 labels map<string,string>,
       8 annotations map<string,string>, 9 runtime_handler string
    PodSandboxStatusResponse: 1 status PodSandboxStatus, 2 info map<string,string>,
       3 containers_statuses ContainerStatus[], 4 timestamp int64
    PodSandboxStatsRequest: 1 pod_sandbox_id string
    PodSandboxStatsResponse: 1 stats PodSandboxStats
    PodSandboxStatsFilter: 1 id string, 2 label_selector map<string,string>
    ListPodSandboxStatsRequest: 1 filter PodSandboxStatsFilter
    ListPodSandboxStatsResponse: 1 stats PodSandboxStats[]
    StreamPodSandboxStatsRequest: 1 filter PodSandboxStatsFilter
    StreamPodSandboxStatsResponse: 1 pod_sandbox_stats PodSandboxStats[]
    PodSandboxAttributes: 1 id string, 2 metadata PodSandboxMetadata, 3 labels map<string,string>,
       4 annotations map<string,string>
    PodSandboxStats: 1 attributes PodSandboxAttributes, 2 linux LinuxPodSandboxStats,
       3 windows WindowsPodSandboxStats
    LinuxPodSandboxStats: 1 cpu CpuUsage, 2 memory MemoryUsage, 3 network NetworkUsage, 4 process ProcessUsage,
       5 containers ContainerStats[], 6 io IoUsage
    NetworkUsage: 1 timestamp int64, 2 default_interface NetworkInterfaceUsage, 3 interfaces NetworkInterfaceUsage[]
    NetworkInterfaceUsage: 1 name string, 2 rx_bytes UInt64Value, 3 rx_errors UInt64Value, 4 tx_bytes UInt64Value,
       5 tx_errors UInt64Value
    ProcessUsage: 1 timestamp int64, 2 process_count UInt64Value
    KeyValue: 1 key string, 2 value bytes
    LinuxContainerResources: 1 cpu_period int64, 2 cpu_quota int64, 3 cpu_shares int64,
       4 memory_limit_in_bytes int64, 5 oom_score_adj int64, 6 cpuset_cpus string, 7 cpuset_mems string,
       8 hugepage_limits HugepageLimit[], 9 unified map<string,string>, 10 memory_swap_limit_in_bytes int64
    HugepageLimit: 1 page_size string, 2 limit uint64
    SELinuxOption: 1 user string, 2 role string, 3 type string, 4 level string
    Capability: 1 add_capabilities string[], 2 drop_capabilities string[], 3 add_ambient_capabilities string[]
    LinuxContainerSecurityContext: 1 capabilities Capability, 2 privileged bool, 3 namespace_options NamespaceOption,
       4 selinux_options SELinuxOption, 5 run_as_user Int64Value, 12 run_as_group Int64Value,
       6 run_as_username string, 7 readonly_rootfs bool, 8 supplemental_groups int64[],
       17 supplemental_groups_policy SupplementalGroupsPolicy, 11 no_new_privs bool, 13 masked_paths string[],
       14 readonly_paths string[], 15 seccomp SecurityProfile, 16 apparmor SecurityProfile,
       9 apparmor_profile string, 10 seccomp_profile_path string
    LinuxContainerConfig: 1 resources LinuxContainerResources, 2 security_context LinuxContainerSecurityContext
    LinuxContainerUser: 1 uid int64, 2 gid int64, 3 supplemental_groups int64[]
    Device: 1 container_path string, 2 host_path string, 3 permissions string
    CDIDevice: 1 name string
    ContainerConfig: 1 metadata ContainerMetadata, 2 image ImageSpec, 3 command string[], 4 args string[],
       5 working_dir string, 6 envs KeyValue[], 7 mounts Mount[], 8 devices Device[], 9 labels map<string,string>,
       10 annotations map<string,string>, 11 log_path string, 12 stdin bool, 13 stdin_once bool, 14 tty bool,
       15 linux LinuxContainerConfig, 16 windows WindowsContainerConfig, 17 CDI_devices CDIDevice[],
       18 stop_signal Signal
    CreateContainerRequest: 1 pod_sandbox_id string, 2 config ContainerConfig, 3 sandbox_config PodSandboxConfig
    CreateContainerResponse: 1 container_id string
    StartContainerRequest: 1 container_id string
    StartContainerResponse:
    StopContainerRequest: 1 container_id string, 2 timeout int64
    StopContainerResponse:
    RemoveContainerRequest: 1 container_id string
    RemoveContainerResponse:
    ContainerStatusRequest: 1 container_id string, 2 verbose bool
    ContainerStatus: 1 id string, 2 metadata ContainerMetadata, 3 state ContainerState, 4 created_at int64,
       5 started_at int64, 6 finished_at int64, 7 exit_code int32, 8 image ImageSpec, 9 image_ref string,
       10 reason string, 11 message string, 12 labels map<string,string>, 13 annotations map<string,string>,
       14 mounts Mount[], 15 log_path string, 16 resources ContainerResources, 17 image_id string,
       18 user ContainerUser, 19 stop_signal Signal
    ContainerStatusResponse: 1 status ContainerStatus, 2 info map<string,string>
    ContainerResources: 1 linux LinuxContainerResources, 2 windows WindowsContainerResources
    ContainerUser: 1 linux LinuxContainerUser
    UpdateContainerResourcesRequest: 1 container_id string, 2 linux LinuxContainerResources,
       3 windows WindowsContainerResources, 4 annotations map<string,string>
    UpdateContainerResourcesResponse:
    ExecSyncRequest: 1 container_id string, 2 cmd string[], 3 timeout int64
    ExecSyncResponse: 1 stdout bytes, 2 stderr bytes, 3 exit_code int32
    ExecRequest: 1 container_id string, 2 cmd string[], 3 tty bool, 4 stdin bool, 5 stdout bool, 6 stderr bool
    ExecResponse: 1 url string
    AttachRequest: 1 container_id string, 2 stdin bool, 3 tty bool, 4 stdout bool, 5 stderr bool
    AttachResponse: 1 url string
    PortForwardRequest: 1 pod_sandbox_id string, 2 port int32[]
    PortForwardResponse: 1 url string
    NetworkConfig: 1 pod_cidr string
    RuntimeConfig: 1 network_config NetworkConfig
    UpdateRuntimeConfigRequest: 1 runtime_config RuntimeConfig
    UpdateRuntimeConfigResponse:
    ContainerStatsRequest: 1 container_id string
    ContainerStatsResponse: 1 stats ContainerStats
    ListContainerStatsRequest: 1 filter ContainerStatsFilter
    ContainerStatsFilter: 1 id string, 2 pod_sandbox_id string, 3 label_selector map<string,string>
    ListContainerStatsResponse: 1 stats ContainerStats[]
    StreamContainerStatsRequest: 1 filter ContainerStatsFilter
    StreamContainerStatsResponse: 1 container_stats ContainerStats[]
    ContainerAttributes: 1 id string, 2 metadata ContainerMetadata, 3 labels map<string,string>,
       4 annotations map<string,string>
    ContainerStats: 1 attributes ContainerAttributes, 2 cpu CpuUsage, 3 memory MemoryUsage,
       4 writable_layer FilesystemUsage, 5 swap SwapUsage, 6 io IoUsage
    PsiStats: 1 Full PsiData, 2 Some PsiData
    PsiData: 1 Total uint64, 2 Avg10 double, 3 Avg60 double, 4 Avg300 double
    CpuUsage: 1 timestamp int64, 2 usage_core_nano_seconds UInt64Value, 3 usage_nano_cores UInt64Value,
       4 psi PsiStats
    MemoryUsage: 1 timestamp int64, 2 working_set_bytes UInt64Value, 3 available_bytes UInt64Value,
       4 usage_bytes UInt64Value, 5 rss_bytes UInt64Value, 6 page_faults UInt64Value,
       7 major_page_faults UInt64Value, 8 psi PsiStats
    IoUsage: 1 timestamp int64, 2 psi PsiStats
    SwapUsage: 1 timestamp int64, 2 swap_available_bytes UInt64Value, 3 swap_usage_bytes UInt64Value
    ReopenContainerLogRequest: 1 container_id string
    ReopenContainerLogResponse:
    GetEventsRequest:
    ContainerEventResponse: 1 container_id string, 2 container_event_type ContainerEventType, 3 created_at int64,
       4 pod_sandbox_status PodSandboxStatus, 5 containers_statuses ContainerStatus[]
    RuntimeConfigRequest:
    RuntimeConfigResponse: 1 linux LinuxRuntimeConfiguration
    LinuxRuntimeConfiguration: 1 cgroup_driver CgroupDriver
    UpdatePodSandboxResourcesRequest: 1 pod_sandbox_id string, 2 overhead LinuxContainerResources,
       3 resources LinuxContainerResources
    UpdatePodSandboxResourcesResponse:
";

/// Calls that both sides rely on; `stream` where the answer is one.
const CALLS: [(&str, &str); 37] = [
    ("ImageService", "ListImages(ListImagesRequest) ListImagesResponse"),
    ("ImageService", "StreamImages(StreamImagesRequest) stream StreamImagesResponse"),
    ("ImageService", "ImageStatus(ImageStatusRequest) ImageStatusResponse"),
    ("ImageService", "PullImage(PullImageRequest) PullImageResponse"),
    ("ImageService", "RemoveImage(RemoveImageRequest) RemoveImageResponse"),
    ("ImageService", "ImageFsInfo(ImageFsInfoRequest) ImageFsInfoResponse"),
    ("RuntimeService", "Version(VersionRequest) VersionResponse"),
    ("RuntimeService", "Status(StatusRequest) StatusResponse"),
    ("RuntimeService", "ListPodSandbox(ListPodSandboxRequest) ListPodSandboxResponse"),
    ("RuntimeService", "StreamPodSandboxes(StreamPodSandboxesRequest) stream StreamPodSandboxesResponse"),
    ("RuntimeService", "ListContainers(ListContainersRequest) ListContainersResponse"),
    ("RuntimeService", "StreamContainers(StreamContainersRequest) stream StreamContainersResponse"),
    ("RuntimeService", "RunPodSandbox(RunPodSandboxRequest) RunPodSandboxResponse"),
    ("RuntimeService", "StopPodSandbox(StopPodSandboxRequest) StopPodSandboxResponse"),
    ("RuntimeService", "RemovePodSandbox(RemovePodSandboxRequest) RemovePodSandboxResponse"),
    ("RuntimeService", "PodSandboxStatus(PodSandboxStatusRequest) PodSandboxStatusResponse"),
    ("RuntimeService", "CreateContainer(CreateContainerRequest) CreateContainerResponse"),
    ("RuntimeService", "StartContainer(StartContainerRequest) StartContainerResponse"),
    ("RuntimeService", "StopContainer(StopContainerRequest) StopContainerResponse"),
    ("RuntimeService", "RemoveContainer(RemoveContainerRequest) RemoveContainerResponse"),
    ("RuntimeService", "ContainerStatus(ContainerStatusRequest) ContainerStatusResponse"),
    ("RuntimeService", "UpdateContainerResources(UpdateContainerResourcesRequest) UpdateContainerResourcesResponse"),
    ("RuntimeService", "ReopenContainerLog(ReopenContainerLogRequest) ReopenContainerLogResponse"),
    ("RuntimeService", "ExecSync(ExecSyncRequest) ExecSyncResponse"),
    ("RuntimeService", "Exec(ExecRequest) ExecResponse"),
    ("RuntimeService", "Attach(AttachRequest) AttachResponse"),
    ("RuntimeService", "PortForward(PortForwardRequest) PortForwardResponse"),
    ("RuntimeService", "ContainerStats(ContainerStatsRequest) ContainerStatsResponse"),
    ("RuntimeService", "ListContainerStats(ListContainerStatsRequest) ListContainerStatsResponse"),
    ("RuntimeService", "StreamContainerStats(StreamContainerStatsRequest) stream StreamContainerStatsResponse"),
    ("RuntimeService", "PodSandboxStats(PodSandboxStatsRequest) PodSandboxStatsResponse"),
    ("RuntimeService", "ListPodSandboxStats(ListPodSandboxStatsRequest) ListPodSandboxStatsResponse"),
    ("RuntimeService", "StreamPodSandboxStats(StreamPodSandboxStatsRequest) stream StreamPodSandboxStatsResponse"),
    ("RuntimeService", "UpdateRuntimeConfig(UpdateRuntimeConfigRequest) UpdateRuntimeConfigResponse"),
    ("RuntimeService", "GetContainerEvents(GetEventsRequest) stream ContainerEventResponse"),
    ("RuntimeService", "RuntimeConfig(RuntimeConfigRequest) RuntimeConfigResponse"),
    ("RuntimeService", "UpdatePodSandboxResources(UpdatePodSandboxResourcesRequest) UpdatePodSandboxResourcesResponse"),
];

const ENUMS: [(&str, &str); 8] = [
    ("PodSandboxState", "0 SANDBOX_READY, 1 SANDBOX_NOTREADY"),
    ("ContainerState", "0 CONTAINER_CREATED, 1 CONTAINER_RUNNING, 2 CONTAINER_EXITED, 3 CONTAINER_UNKNOWN"),
    ("Protocol", "0 TCP, 1 UDP, 2 SCTP"),
    ("MountPropagation", "0 PROPAGATION_PRIVATE, 1 PROPAGATION_HOST_TO_CONTAINER, 2 PROPAGATION_BIDIRECTIONAL"),
    ("NamespaceMode", "0 POD, 1 CONTAINER, 2 NODE, 3 TARGET"),
    ("SupplementalGroupsPolicy", "0 Merge, 1 Strict"),
    (
        "ContainerEventType",
        "0 CONTAINER_CREATED_EVENT, 1 CONTAINER_STARTED_EVENT, 2 CONTAINER_STOPPED_EVENT, 3 CONTAINER_DELETED_EVENT",
    ),
    ("CgroupDriver", "0 SYSTEMD, 1 CGROUPFS"),
];

fn descriptor() -> FileDescriptorProto {
    let bytes: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/runtime.v1.bin"));
    let mut files = FileDescriptorSet::decode(bytes).unwrap().file;
    assert_eq!(files.len(), 1);
    files.remove(0)
}

fn type_name(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let mut name = match field.r#type() {
        Type::String => "string".to_owned(),
        Type::Bool => "bool".to_owned(),
        Type::Int64 => "int64".to_owned(),
        Type::Uint64 => "uint64".to_owned(),
        Type::Int32 => "int32".to_owned(),
        Type::Uint32 => "uint32".to_owned(),
        Type::Bytes => "bytes".to_owned(),
        Type::Double => "double".to_owned(),
        Type::Message | Type::Enum => {
            let full = field.type_name();
            let entry = message.nested_type.iter().find(|nested| {
                full.ends_with(&format!(".{}.{}", message.name(), nested.name()))
                    && nested.options.as_ref().is_some_and(|options| options.map_entry())
            });
            if let Some(entry) = entry {
                return format!("map<{},{}>", type_name(entry, &entry.field[0]), type_name(entry, &entry.field[1]));
            }
            full.strip_prefix(".runtime.v1.").expect("only types of the package").to_owned()
        }
        other => format!("{other:?}"),
    };
    if field.label() == Label::Repeated {
        name.push_str("[]");
    }
    name
}

fn shape(message: &DescriptorProto) -> String {
    let fields: Vec<_> = message
        .field
        .iter()
        .map(|field| format!("{} {} {}", field.number(), field.name(), type_name(message, field)))
        .collect();
    fields.join(", ")
}

fn golden() -> BTreeMap<String, String> {
    let mut shapes = BTreeMap::new();
    let mut current = String::new();
    for line in GOLDEN.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line.starts_with(|c: char| c.is_ascii_digit()) {
            let shape: &mut String = shapes.get_mut(&current).expect("a message has begun");
            shape.push(' ');
            shape.push_str(line);
        } else {
            let (name, shape) = line.split_once(':').expect("a colon after the name");
            name.clone_into(&mut current);
            assert_eq!(shapes.insert(current.clone(), shape.trim().to_owned()), None, "{name} twice");
        }
    }
    shapes
}

#[test]
fn message_fields_match_the_api() {
    let file = descriptor();
    assert_eq!((file.package(), file.syntax()), ("runtime.v1", "proto3"));
    let compiled: BTreeMap<_, _> = file.message_type.iter().map(|m| (m.name().to_owned(), shape(m))).collect();
    for (name, want) in golden() {
        assert_eq!(compiled.get(&name), Some(&want), "{name}");
    }
}

#[test]
fn services_match_the_api() {
    let file = descriptor();
    for (service, want) in CALLS {
        let methods = &file.service.iter().find(|s| s.name() == service).expect(service).method;
        let found = methods.iter().any(|m| {
            let bare = |name: &str| name.strip_prefix(".runtime.v1.").unwrap_or(name).to_owned();
            let stream = if m.server_streaming() { "stream " } else { "" };
            assert!(!m.client_streaming());
            format!("{}({}) {stream}{}", m.name(), bare(m.input_type()), bare(m.output_type())) == want
        });
        assert!(found, "{service}: {want}");
    }
    let images = file.service.iter().find(|s| s.name() == "ImageService").unwrap();
    assert_eq!(images.method.len(), 6);
}

#[test]
fn enum_numbers_match_the_api() {
    let file = descriptor();
    for (name, want) in ENUMS {
        let values = &file.enum_type.iter().find(|e| e.name() == name).expect(name).value;
        let got: Vec<_> = values.iter().map(|v| format!("{} {}", v.number(), v.name())).collect();
        assert_eq!(got.join(", "), want, "{name}");
    }
}

/// Bytes put together by hand from the encoding rules: tag = number << 3 | wire type.
#[test]
fn wire_bytes_match_the_api() {
    let image = pb::Image {
        id: "i".into(),
        repo_tags: vec!["t".into()],
        size: 300,
        uid: Some(pb::Int64Value { value: 2 }),
        spec: Some(pb::ImageSpec { runtime_handler: "h".into(), image_ref: "r".into(), ..Default::default() }),
        pinned: true,
        ..Default::default()
    };
    let spec = [0x9a, 0x01, 1, b'h', 0xa2, 0x01, 1, b'r'];
    let mut want = vec![0x0a, 1, b'i', 0x12, 1, b't', 0x20, 0xac, 0x02, 0x2a, 2, 0x08, 2, 0x3a, 8];
    want.extend(spec);
    want.extend([0x40, 1]);
    assert_eq!(image.encode_to_vec(), want);
    // A newer peer: field 99, a text, is passed over.
    want.extend([0x9a, 0x06, 3, b'n', b'e', b'w']);
    assert_eq!(pb::Image::decode(want.as_slice()).unwrap(), image);
}
