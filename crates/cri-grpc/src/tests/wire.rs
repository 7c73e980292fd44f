//! The wire contract: the compiled descriptor against a list of its own, written down apart from the `.proto`, so that
//! a slip of the pen in one of them is seen.

use std::collections::BTreeMap;

use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet};

use crate::pb;

/// Every message of ImageService with all that is below it, and of RuntimeService what is served: number, name, type.
/// A message ends where the next one begins; lines that begin with a number go on.
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
";

/// Calls that both sides rely on; `stream` where the answer is one.
const CALLS: [(&str, &str); 12] = [
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
];

const ENUMS: [(&str, &str); 2] = [
    ("PodSandboxState", "0 SANDBOX_READY, 1 SANDBOX_NOTREADY"),
    ("ContainerState", "0 CONTAINER_CREATED, 1 CONTAINER_RUNNING, 2 CONTAINER_EXITED, 3 CONTAINER_UNKNOWN"),
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
fn messages_have_the_numbers_and_types_of_the_contract() {
    let file = descriptor();
    assert_eq!((file.package(), file.syntax()), ("runtime.v1", "proto3"));
    let compiled: BTreeMap<_, _> = file.message_type.iter().map(|m| (m.name().to_owned(), shape(m))).collect();
    for (name, want) in golden() {
        assert_eq!(compiled.get(&name), Some(&want), "{name}");
    }
}

#[test]
fn services_have_the_calls_of_the_contract() {
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
fn enums_have_the_numbers_of_the_contract() {
    let file = descriptor();
    for (name, want) in ENUMS {
        let values = &file.enum_type.iter().find(|e| e.name() == name).expect(name).value;
        let got: Vec<_> = values.iter().map(|v| format!("{} {}", v.number(), v.name())).collect();
        assert_eq!(got.join(", "), want, "{name}");
    }
}

/// Bytes put together by hand from the encoding rules: tag = number << 3 | wire type.
#[test]
fn bytes_are_those_of_the_contract() {
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
