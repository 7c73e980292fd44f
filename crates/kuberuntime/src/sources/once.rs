//! [`Once`]: a manifest that is read once, from a file, an address or standard input, and is not read again. The caller
//! gets its errors at once. Called by the command that runs pods.

use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::Instant;

use super::manifest::{ExpectedObjects, ManifestContent, ManifestProblem, ManifestReader};
use super::options::{FetchRequest, MAX_MANIFEST, SourceOptions, shown};
use super::view::{SourceManifest, SourceView};
use crate::identity::Origin;

/// A manifest that was read once.
#[derive(Clone, Debug)]
pub struct Once(SourceManifest);

/// Failure to read a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {reason}")]
pub struct OnceError {
    /// Path, or `standard input`.
    pub origin: String,
    /// Reason for the refusal.
    pub reason: String,
}

impl Once {
    /// Reads a file.
    ///
    /// # Errors
    /// The manifest cannot be read, or its content is not valid.
    pub async fn file(path: &Path, options: &SourceOptions) -> Result<Self, OnceError> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let origin = path.display().to_string();
        let file = tokio::fs::File::open(&path).await.map_err(|error| failed(&origin, error.to_string()))?;
        Self::read(Some(origin), file, options).await
    }

    /// Reads standard input, or whatever takes its place, to its end.
    ///
    /// # Errors
    /// The manifest cannot be read, or its content is not valid.
    pub async fn stdin(reader: impl AsyncRead + Unpin, options: &SourceOptions) -> Result<Self, OnceError> {
        Self::read(None, reader, options).await
    }

    /// Reads what is behind an address, once.
    ///
    /// # Errors
    /// The manifest cannot be fetched, or its content is not valid.
    pub async fn url(url: &str, options: &SourceOptions) -> Result<Self, OnceError> {
        let origin = shown(url);
        let request = FetchRequest::new(url);
        let bytes = (options.fetch)(request).await.map_err(|error| {
            // Where the address is named already.
            let reason = error.strip_prefix(&format!("get {origin}: ")).unwrap_or(&error).to_owned();
            failed(&origin, reason)
        })?;
        let (address, title) = (url.to_owned(), origin.clone());
        Self::parse(origin, options, move |reader| reader.read(Origin::Url(&address), &title, &bytes, None)).await
    }

    async fn read(
        path: Option<String>,
        reader: impl AsyncRead + Unpin,
        options: &SourceOptions,
    ) -> Result<Self, OnceError> {
        let origin = path.clone().unwrap_or_else(|| "standard input".to_owned());
        let mut bytes = Vec::new();
        let read = reader.take(MAX_MANIFEST as u64 + 1).read_to_end(&mut bytes).await;
        read.map_err(|error| failed(&origin, error.to_string()))?;
        if bytes.len() > MAX_MANIFEST {
            let reason = format!("it has more than {} MiB, which no manifest has", MAX_MANIFEST >> 20);
            return Err(failed(&origin, reason));
        }
        let title = origin.clone();
        let read = move |reader: &ManifestReader| {
            let origin = path.as_deref().map_or(Origin::Stdin, Origin::File);
            reader.read(origin, &title, &bytes, None)
        };
        Self::parse(origin, options, read).await
    }

    async fn parse(
        origin: String,
        options: &SourceOptions,
        read: impl FnOnce(&ManifestReader) -> Result<Arc<ManifestContent>, ManifestProblem> + Send + 'static,
    ) -> Result<Self, OnceError> {
        let reader = ManifestReader { options: options.clone(), expected: ExpectedObjects::All, may_be_empty: true };
        let content = tokio::task::spawn_blocking(move || read(&reader));
        match content.await {
            Ok(Ok(content)) => Ok(Self::of(origin, content)),
            Ok(Err(problem)) => Err(failed(&origin, problem_text(&problem))),
            Err(_) => Err(failed(&origin, "the reader panicked".to_owned())),
        }
    }

    fn of(origin: String, content: Arc<ManifestContent>) -> Self {
        Self(SourceManifest { origin, since: Instant::now(), content: Some(content), held: false, problem: None })
    }

    /// Returns the number of pods.
    #[must_use]
    pub fn pods(&self) -> usize {
        self.0.content.as_ref().map_or(0, |content| content.pods.len())
    }

    /// Path, address without its secrets, or `standard input`.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.0.origin
    }

    /// Workloads in it, of which no pods are made here, and why.
    pub fn passed_over(&self) -> impl Iterator<Item = &str> {
        self.0.content.iter().flat_map(|content| &content.passed_over).map(String::as_str)
    }

    /// Objects in it that hold no pod, as kubectl names objects.
    pub fn others(&self) -> impl Iterator<Item = &str> {
        self.0.content.iter().flat_map(|content| &content.others).map(String::as_str)
    }

    pub(super) fn view(&self) -> SourceView {
        SourceView { ready: true, manifests: vec![self.0.clone()], ..SourceView::default() }
    }
}

fn problem_text(problem: &ManifestProblem) -> String {
    match &problem.pod {
        Some(pod) => format!("pod {}/{}: {}", pod.namespace, pod.name, problem.reason),
        None => problem.reason.clone(),
    }
}

fn failed(origin: &str, reason: String) -> OnceError {
    OnceError { origin: origin.to_owned(), reason }
}
