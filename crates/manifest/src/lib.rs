//! Kubernetes manifests as they are written: YAML whose nodes know their lines, a strict reader of the API's types, the images
//! of pods and workloads, Secrets and ServiceAccounts, and the pull secrets that a pod names. Pulls nothing, runs nothing, asks
//! no API server. Called by the commands that read manifests, the configuration, the pod runner and the node agent.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: nginx:1.27}]}\n";
//! let objects = imagelet_manifest::parse("web.yaml", text)?;
//! assert_eq!(objects.pods[0].images[0].image, "nginx:1.27");
//! let error = imagelet_manifest::parse("web.yaml", &text.replace("image:", "imgae:")).unwrap_err();
//! assert!(error.to_string().contains("web.yaml"), "{error}");
//! # Ok(()) }
//! ```
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
