//! Kubernetes manifests as they are written: YAML whose nodes know their lines, a strict reader of the API's types, the images
//! of pods and workloads, Secrets and ServiceAccounts, and the pull secrets that a pod names. Pulls nothing, runs nothing, asks
//! no API server. Called by the commands that read manifests, the configuration, the pod runner and the node agent.
#![deny(missing_docs)]

mod decode;
mod directory;
mod error;
mod field;
mod images;
mod object;
mod place;
mod pod;
mod read;
mod schema;
mod secret;
mod secrets;
mod workload;
mod workload_kind;
pub mod yaml;

pub use decode::{decode, decode_text, fields};
pub use directory::{SecretsDirectory, read as read_directory};
pub use error::{ManifestError, ManifestNote, ObjectOrigin};
pub use field::{FieldError, FieldErrors, FieldPath, FieldProblem};
pub use images::{CLUSTER_CRITICAL, NODE_CRITICAL, Role, priority_of_class};
pub use object::{AccountObject, Objects, Pod, PodImage, SecretObject};
pub use read::{check, parse, parse_secrets};
pub use secrets::{Resolved, SecretStore};
pub use workload_kind::{KindError, WorkloadKind};
