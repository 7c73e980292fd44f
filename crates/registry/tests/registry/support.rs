//! Helpers of all topics: clients that are quick to give up, references to the test registry, namespaces by hand.

use base::lock::Mutex;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use oci::{Descriptor, Reference, RegistryAuth};
use registry::testing::TestRegistry;
use registry::{
    BlobStream, Client, HostConfig, HostsError, Namespace, Options, RegistryError, Repository, RetryPolicy,
};
use url::Url;

/// Patience for tests: many attempts, hardly any wait.
pub(crate) fn quick() -> RetryPolicy {
    RetryPolicy {
        attempts: 4,
        base_delay: Duration::from_millis(1),
        max_delay: Duration::from_millis(4),
        max_retry_after: Duration::from_secs(3),
        idle_timeout: Duration::from_secs(20),
        mirror_timeout: Duration::from_secs(2),
    }
}

pub(crate) fn client() -> Client {
    client_with(quick())
}

pub(crate) fn client_with(retry: RetryPolicy) -> Client {
    Client::new(Options { retry, ..Options::default() })
}

/// A client whose every domain has these hosts.
pub(crate) fn client_of(hosts: Vec<HostConfig>, retry: RetryPolicy) -> Client {
    let loader = move |_: &str| -> Result<Namespace, HostsError> { Ok(Namespace { hosts: hosts.clone() }) };
    Client::new(Options { retry, ..Options::new(Arc::new(loader)) })
}

pub(crate) fn reference(text: &str) -> Reference {
    Reference::parse(text).expect("a reference")
}

/// The session for `repo:tag` of a registry.
pub(crate) fn repository(registry: &TestRegistry, name: &str) -> Repository {
    session(&client(), registry, name, None)
}

pub(crate) fn session(client: &Client, registry: &TestRegistry, name: &str, auth: Option<RegistryAuth>) -> Repository {
    client.repository(&reference(&format!("{}/{name}", registry.host())), auth).expect("hosts")
}

pub(crate) fn host(url: &str, upstream: bool) -> HostConfig {
    HostConfig::new(Url::parse(url).expect("a URL"), upstream)
}

/// All of a stream.
pub(crate) async fn drain(mut stream: BlobStream) -> Result<Vec<u8>, RegistryError> {
    let mut out = Vec::new();
    while let Some(chunk) = stream.next().await? {
        assert!(!chunk.is_empty(), "an empty piece is no piece");
        out.extend_from_slice(&chunk);
    }
    Ok(out)
}

pub(crate) async fn fetch(repository: &Repository, descriptor: &Descriptor) -> Result<Vec<u8>, RegistryError> {
    drain(repository.blob(descriptor).await?).await
}

/// Bytes that do not repeat within a blob.
pub(crate) fn noise(len: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out.into()
}

/// The log of this thread.
#[derive(Clone, Default)]
pub(crate) struct Traced(Arc<Mutex<Vec<u8>>>);

impl Traced {
    /// Traces into this buffer until the guard goes.
    pub(crate) fn start(&self, level: tracing_subscriber::filter::LevelFilter) -> tracing::subscriber::DefaultGuard {
        let buffer = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(move || buffer.clone())
            .with_ansi(false)
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }
}

impl io::Write for Traced {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
