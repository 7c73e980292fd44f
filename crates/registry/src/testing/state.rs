//! [`RegistryState`]: the setup of a test registry, its content, and what its connections share.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use base::lock::Mutex;
use bytes::Bytes;
use oci::Digest;

use super::faults::Faults;
use super::line::Traffic;
use super::request_log::RequestLog;
use super::tls::TestTls;
use super::tokens::{TokenAuth, Tokens};

/// The authentication that reading needs.
#[derive(Clone, Debug)]
pub enum Auth {
    /// Basic authentication.
    Basic {
        /// User name.
        user: String,
        /// Password.
        password: String,
    },
    /// Bearer tokens from the registry's own token service at `/token`.
    Token(TokenAuth),
}

/// The setup of a test registry.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// TLS.
    pub tls: TestTls,
    /// Authentication; `None` lets every client read.
    pub auth: Option<Auth>,
}

/// The documents and blobs.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// Per repository and tag.
    pub(super) tags: BTreeMap<(String, String), Digest>,
    /// Per repository and digest: media type and bytes.
    pub(super) manifests: BTreeMap<(String, Digest), (String, Bytes)>,
    pub(super) blobs: BTreeMap<(String, Digest), Bytes>,
}

pub(super) struct RegistryState {
    pub(super) addr: SocketAddr,
    pub(super) options: Options,
    pub(super) content: Mutex<Content>,
    pub(super) faults: Faults,
    pub(super) tokens: Tokens,
    /// Shared with the bodies that are on their way.
    pub(super) sent: Arc<AtomicU64>,
    pub(super) traffic: Arc<Traffic>,
    pub(super) requests: Mutex<Vec<RequestLog>>,
    pub(super) connections: AtomicUsize,
}

impl RegistryState {
    pub(super) fn url(&self) -> String {
        let scheme = if self.options.tls == TestTls::Off { "http" } else { "https" };
        format!("{scheme}://{}", self.addr)
    }
}
