//! CRI over gRPC, both sides: a client that stands behind the traits of `cri-api`, and a server that puts them on a
//! socket.
//!
//! The only crate that knows protobuf and gRPC: generated types stay inside. It converts and carries; it decides
//! nothing about images. The binary calls it: [`client`] for a remote runtime, [`server`] for `serve` and for the
//! agent's socket.
//!
//! ```no_run
//! # use cri_api as imagelet_cri_api;
//! use imagelet_cri_api::ImageService as _;
//! use imagelet_cri_grpc::Endpoint;
//! use imagelet_cri_grpc::client::{ClientOptions, connect_image_service};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let endpoint = Endpoint::parse("unix:///run/containerd/containerd.sock")?;
//! let service = connect_image_service(&endpoint, ClientOptions::default()).await?;
//! for image in service.list_images(None).await? {
//!     println!("{} {:?}", image.id, image.repo_tags);
//! }
//! # Ok(()) }
//! ```
#![deny(missing_docs)]

pub mod client;
mod convert;
mod endpoint;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod pb;
pub mod server;
mod status;
#[cfg(test)]
mod tests;
mod texts;

pub use endpoint::{Endpoint, EndpointError};

/// Largest message that is sent or accepted: what the kubelet's client accepts.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;
/// Version of the kubelet runtime API that both sides must name.
pub const KUBE_RUNTIME_API_VERSION: &str = "0.1.0";
/// Header of answers about images with the path of the admin socket, if the server is an agent of imagelet. Other clients ignore it.
const ADMIN_SOCKET: &str = "imagelet-admin-socket";
/// Header of the same answers with the identity of the agent's process, which its own API answers as well: the path may lead to
/// another agent's socket where the client has another mount namespace.
const INSTANCE: &str = "imagelet-instance";
