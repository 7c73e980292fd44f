//! `imagelet push`: pushes an image of the store, or of an OCI layout, to a registry.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use credentials::Requester;
use cri_api::engine::{Compress, ExportOptions, Format as ArchiveFormat, ImageDocuments, ImageEngine, Platforms};
use cri_api::{ImageSpec, Kind};
use image_service::{Pushed, Registries, Upload};
use oci::{Reference, RegistryAuth};
use serde::Serialize;

use crate::app::App;
use crate::args::Push;
use crate::exit::{Code, Failure, Outcome, chain};
use crate::images::registries;
use crate::manager;
use crate::output::{Report, Table, units};

/// Maximum number of repositories that are queried for a blob before it is uploaded.
const MOUNT_FROM: usize = 4;

/// An image that was pushed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PushedImage {
    image: String,
    digest: String,
    uploaded_blobs: u64,
    uploaded_bytes: u64,
    #[serde(skip)]
    name: String,
}

impl Report for PushedImage {
    fn table(&self, _: bool, _: bool) -> Table {
        let mut table = Table::new(&["IMAGE", "DIGEST", "UPLOADED"]);
        table.row([self.image.clone(), self.digest.clone(), units::bytes(self.uploaded_bytes)]);
        table
    }

    fn names(&self) -> Vec<String> {
        vec![self.image.clone()]
    }

    fn ids(&self) -> Vec<String> {
        vec![self.digest.clone()]
    }
}

/// Content to push.
enum Content {
    /// An image of a layout.
    Layout { path: PathBuf, name: Option<String> },
    /// An image of the store.
    Image(ImageSpec),
}

pub(super) async fn run(app: &App, args: &Push) -> Outcome {
    let content = content(&args.image);
    let to = destination(args, &content)?;
    let to_text = to.to_string();
    let registries = registries(&app.config, &app.environment.proxies);
    let begin = Instant::now();
    let job = Job { app, registries, content, to };
    let pushed = match &args.creds {
        Some(creds) => {
            let auth = super::typed_credential::credential(creds, std::slice::from_ref(&to_text))?;
            job.push(Some(auth)).await.map_err(|error| error.failure(&to_text))?
        }
        None => job.push_with_any().await?,
    };
    app.progress.finish();
    if let Some(file) = &args.digestfile {
        let (path, text) = (file.clone(), pushed.digest.to_string());
        let written = tokio::task::spawn_blocking(move || std::fs::write(path, text)).await;
        let written = written.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        written.map_err(|e| Failure::caused(Code::Failed, format!("write {}", file.display()), &e))?;
    }
    let (duration, bytes) = (units::seconds(begin.elapsed()), units::bytes(pushed.bytes));
    tracing::info!(image = %to_text, %duration, uploaded_blobs = pushed.uploaded, uploaded = %bytes, "pushed");
    let report = PushedImage {
        image: to_text,
        digest: pushed.digest.to_string(),
        uploaded_blobs: pushed.uploaded,
        uploaded_bytes: pushed.bytes,
        name: job.to.at_digest(pushed.digest).to_string(),
    };
    // Scripts need a name that identifies exactly this image.
    if app.printer.format.is_none() && !app.printer.quiet {
        return app.printer.lines([&report.name]);
    }
    app.printer.report(&report)
}

/// Parses `oci:PATH[:NAME]`, as in podman and skopeo, or an image of the store.
fn content(text: &str) -> Content {
    let archive = ["oci:", "oci-archive:"].iter().find_map(|transport| text.strip_prefix(transport));
    match archive {
        None => Content::Image(ImageSpec::new(text)),
        // A path may contain a colon: if the whole text exists as a path, it is one.
        Some(path) if Path::new(path).exists() => Content::Layout { path: path.into(), name: None },
        Some(path) => match path.split_once(':') {
            Some((path, name)) => Content::Layout { path: path.into(), name: Some(name.to_owned()) },
            None => Content::Layout { path: path.into(), name: None },
        },
    }
}

fn destination(args: &Push, content: &Content) -> Outcome<Reference> {
    let text = match (&args.destination, content) {
        (Some(text), _) => text.strip_prefix("docker://").unwrap_or(text),
        (None, Content::Image(_)) => &args.image,
        (None, Content::Layout { .. }) => return Err(Failure::usage("an image of a layout needs a DESTINATION")),
    };
    let is_id = args.destination.is_none() && text.strip_prefix("sha256:").is_some();
    let parsed = Reference::parse(text).map_err(|error| Failure::usage(format!("{text:?}: {error}")));
    match parsed {
        Ok(reference) if !is_id => Ok(reference.with_default_tag().canonical()),
        Ok(_) => Err(Failure::usage(format!("{text} is no name: say as what to push it, after it"))),
        Err(failure) => Err(failure),
    }
}

/// Failure of a push.
enum PushError {
    Call(cri_api::Error),
    Other(Failure),
}

impl PushError {
    fn is_refusal(&self) -> bool {
        matches!(self, Self::Call(error) if matches!(error.kind(), Kind::Unauthenticated | Kind::PermissionDenied))
    }

    fn failure(self, to: &str) -> Failure {
        match self {
            Self::Call(error) => Failure::call(format!("push {to}"), &error),
            Self::Other(failure) => failure,
        }
    }
}

impl From<cri_api::Error> for PushError {
    fn from(error: cri_api::Error) -> Self {
        Self::Call(error)
    }
}

impl From<Failure> for PushError {
    fn from(failure: Failure) -> Self {
        Self::Other(failure)
    }
}

/// A push.
struct Job<'a> {
    app: &'a App,
    registries: Registries,
    content: Content,
    to: Reference,
}

impl Job<'_> {
    /// Pushes with the credentials of the user and of the node, one after the other.
    async fn push_with_any(&self) -> Outcome<Pushed> {
        let to = self.to.to_string();
        let keyring = manager::user_keyring(&self.app.config, &self.app.environment).await?;
        let found = keyring.candidates(&self.to, &Requester::default()).await;
        let found = found.map_err(|error| Failure::failed(chain(&error)))?;
        for note in &found.notes {
            tracing::warn!("{to}: {note}");
        }
        let mut refused: Vec<String> = Vec::new();
        let mut last = None;
        for candidate in &found.candidates {
            match self.push(Some(candidate.auth.clone())).await {
                Ok(pushed) => {
                    for line in refused {
                        tracing::warn!("{to}: {line}; {} did work", candidate.source);
                    }
                    return Ok(pushed);
                }
                Err(error) if error.is_refusal() => {
                    let failure = error.failure(&to);
                    refused.push(format!("{} did not work: {}", candidate.source, failure.lines().join("; ")));
                    last = Some(failure);
                }
                Err(error) => return Err(error.failure(&to)),
            }
        }
        match last {
            Some(failure) if refused.len() > 1 => Err(Failure::new(failure.code(), refused.join("; "))),
            Some(failure) => Err(failure),
            None => self.push(None).await.map_err(|error| error.failure(&to)),
        }
    }

    async fn push(&self, auth: Option<RegistryAuth>) -> Result<Pushed, PushError> {
        let progress = self.app.progress.sink(&self.to.to_string());
        let upload = Upload { to: self.to.clone(), auth, mount_from: Vec::new(), progress };
        match &self.content {
            Content::Layout { path, name } => {
                let pushed = self.registries.push_layout(path, name.as_deref(), &upload).await;
                pushed.map_err(PushError::Call)
            }
            Content::Image(image) => self.push_image(image, upload).await,
        }
    }

    /// Pushes only the manifest if the registry has the layers; otherwise by way of an export.
    async fn push_image(&self, image: &ImageSpec, upload: Upload) -> Result<Pushed, PushError> {
        let engine = self.app.engine("push").await?;
        let documents = engine.image_documents(image).await?;
        let absent = || Failure::failed(format!("no such image: {}", image.image));
        let documents = documents.ok_or_else(absent)?;
        let upload = Upload { mount_from: siblings(&documents, &upload.to), ..upload };
        if let Some(pushed) = self.registries.push_documents(&documents, &upload).await? {
            return Ok(pushed);
        }
        let spool = Spool::make(&self.app.environment.temporary).await?;
        let layout = export(&*engine, &documents.id, &spool).await?;
        Ok(self.registries.push_layout(&layout, None, &upload).await?)
    }
}

async fn export(engine: &dyn ImageEngine, id: &str, spool: &Spool) -> Result<PathBuf, PushError> {
    let layout = spool.0.join("layout");
    let options = ExportOptions {
        format: ArchiveFormat::OciLayout,
        compress: Compress::AsPulledOrGzip,
        platforms: Platforms::Own,
    };
    engine.export_images(&[id.to_owned()], &layout, options).await?;
    Ok(layout)
}

/// Returns repositories of the target registry that may have the image's blobs: those in the image's names.
fn siblings(documents: &ImageDocuments, to: &Reference) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    for name in documents.repo_digests.iter().chain(&documents.tags) {
        let Ok(reference) = Reference::parse(name) else { continue };
        let path = reference.path().to_owned();
        if reference.domain() == to.domain() && path != to.path() && !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths.truncate(MOUNT_FROM);
    paths
}

/// A directory for the layers of one push, removed at its end.
struct Spool(PathBuf);

impl Spool {
    async fn make(below: &Path) -> Outcome<Self> {
        let path = below.join(format!("imagelet-push-{}-{:08x}", std::process::id(), nonce()));
        let made = path.clone();
        let made = tokio::task::spawn_blocking(move || std::fs::DirBuilder::new().mode(0o700).create(made)).await;
        made.unwrap_or_else(|error| Err(std::io::Error::other(error)))
            .map_err(|error| Failure::caused(Code::Failed, format!("make {}", path.display()), &error))?;
        Ok(Self(path))
    }
}

/// Returns a number that distinguishes this process from one with the same id on another machine.
fn nonce() -> u32 {
    use std::hash::{BuildHasher as _, Hasher as _};
    let number = std::hash::RandomState::new().build_hasher().finish();
    u32::try_from(number & 0xffff_ffff).unwrap_or_default()
}

impl Drop for Spool {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!("{} is left behind: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_are_mounted_from_names_of_the_same_registry() {
        let documents = ImageDocuments {
            id: String::new(),
            config: Vec::new(),
            manifest: Vec::new(),
            manifest_media_type: String::new(),
            tags: ["r.example/a:1", "r.example/a:2", "other.example/b:1", "r.example/to:1"].map(str::to_owned).into(),
            repo_digests: vec![format!("r.example/c@{}", oci::Digest::sha256(b"x"))],
            layer_bytes: Vec::new(),
        };
        let to = Reference::parse("r.example/to:2").expect("parses");
        assert_eq!(siblings(&documents, &to), ["c", "a"]);
    }
}
