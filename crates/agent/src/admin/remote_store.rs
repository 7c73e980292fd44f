//! [`RemoteStore`]: the store of another process that holds the root, over the store's socket. Decides nothing. Made by the
//! binary's wiring.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use cri_api::engine::{
    CheckReport, CheckRequest, CheckSink, ConvertReport, ConvertRequest, ExportOptions, ImageDocuments, ImageEngine,
    ImageLayers, ImageMount, ImageUsage, ImportOptions, ImportReport, LayerLease, MountRequest, MountedImage,
    PodmanStoreReport, PodmanStoreRequest, UnfinishedPulls,
};
use cri_api::{
    Error, FsInfo, Image, ImageFilter, ImageService, ImageSpec, ImageStatus, Kind, PullImageRequest, Result,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::engine_wire::{Call, Line, Progress, WireAuth, WireError};
use crate::api::client::{self, AskError, Lines, Method};
use crate::api::socket_path::store_socket;

/// The longest time for an answer that takes no work.
const PATIENCE: Duration = Duration::from_secs(10);

/// The store of a process that holds a root.
#[derive(Clone, Debug)]
pub struct RemoteStore {
    socket: PathBuf,
    /// The root, as this process reaches it.
    root: PathBuf,
}

impl RemoteStore {
    /// The process that holds `root`.
    pub fn of(root: &Path) -> Self {
        Self { socket: store_socket(root), root: root.to_owned() }
    }

    /// The id of the process that answers on the store's socket, and is not about to end.
    pub async fn holder(&self) -> Option<u32> {
        client::ask(&self.socket, Method::GET, "/holder").await.ok()?.trim().parse().ok()
    }

    /// Makes a call; returns its last line and the lines after it.
    async fn ask(&self, call: &Call, progress: &(dyn Fn(Progress) + Send + Sync)) -> Result<(Value, Lines)> {
        let body = serde_json::to_vec(call)
            .map_err(|error| Error::new(Kind::InvalidArgument, format!("a call cannot be written: {error}")))?;
        let mut lines = client::lines(&self.socket, Method::POST, "/engine", body).await.map_err(|e| error_of(&e))?;
        loop {
            let line = lines.next().await.map_err(|error| error_of(&error))?;
            let line = serde_json::from_str(&line).map_err(|error| {
                Error::new(Kind::Internal, format!("understand the answer of {}: {error}", self.socket.display()))
            })?;
            match line {
                Line::Progress(step) => progress(step),
                Line::Answer(value) => return Ok((value, lines)),
                Line::Error(error) => return Err(error.into()),
            }
        }
    }

    /// A call that takes as long as it takes.
    async fn call<T: DeserializeOwned>(&self, call: Call, progress: &(dyn Fn(Progress) + Send + Sync)) -> Result<T> {
        let (value, _) = self.ask(&call, progress).await?;
        serde_json::from_value(value).map_err(|error| {
            Error::new(Kind::Internal, format!("understand the answer of {}: {error}", self.socket.display()))
        })
    }

    /// A call that is answered at once, or not at all.
    async fn quick<T: DeserializeOwned>(&self, call: Call) -> Result<T> {
        in_time(&self.socket, self.call(call, &|_| {})).await
    }
}

async fn in_time<T>(socket: &Path, answer: impl Future<Output = Result<T>>) -> Result<T> {
    let late = || Error::new(Kind::Unavailable, format!("{} does not answer", socket.display()));
    tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(|_| Err(late()))
}

/// The error of a call that was not answered.
fn error_of(error: &AskError) -> Error {
    let kind = match error.kind() {
        kind @ (Kind::Unavailable | Kind::PermissionDenied) => kind,
        // A process of an older version.
        _ => Kind::Unimplemented,
    };
    Error::from_source(kind, error)
}

/// Returns a path by which another process of this machine finds the same file: absolute, and without `/proc/self` or the caller's
/// standard streams.
fn elsewhere(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let own = PathBuf::from(format!("/proc/{}", std::process::id()));
    for (number, name) in ["/dev/stdin", "/dev/stdout", "/dev/stderr"].into_iter().enumerate() {
        if path == Path::new(name) {
            return own.join("fd").join(number.to_string());
        }
    }
    for (prefix, below) in [("/dev/fd", "fd"), ("/proc/self", ""), ("/proc/thread-self", "")] {
        if let Ok(rest) = path.strip_prefix(prefix) {
            return own.join(below).join(rest);
        }
    }
    path
}

#[async_trait]
impl ImageService for RemoteStore {
    async fn list_images(&self, filter: Option<&ImageFilter>) -> Result<Vec<Image>> {
        self.quick(Call::ListImages { image: filter.and_then(|filter| filter.image.clone()) }).await
    }

    async fn image_status(&self, image: &ImageSpec, verbose: bool) -> Result<ImageStatus> {
        self.quick(Call::ImageStatus { image: image.clone(), verbose }).await
    }

    async fn pull_image(&self, request: PullImageRequest) -> Result<String> {
        request.before_visible.done().await?;
        let PullImageRequest { image, auth, progress, .. } = request;
        let tell = move |step| match step {
            Progress::Pull(event) => progress.report(event),
            Progress::Check(_) => {}
        };
        self.call(Call::PullImage { image, auth: auth.as_ref().map(WireAuth::from) }, &tell).await
    }

    async fn remove_image(&self, image: &ImageSpec) -> Result<()> {
        self.call(Call::RemoveImage { image: image.clone() }, &|_| {}).await
    }

    async fn image_fs_info(&self) -> Result<FsInfo> {
        self.quick(Call::ImageFsInfo).await
    }
}

#[async_trait]
impl ImageEngine for RemoteStore {
    async fn inspect_image(&self, image: &ImageSpec) -> Result<ImageStatus> {
        self.quick(Call::InspectImage { image: image.clone() }).await
    }

    async fn image_usage(&self, image: &ImageSpec) -> Result<Option<ImageUsage>> {
        self.quick(Call::ImageUsage { image: image.clone() }).await
    }

    async fn image_layers(&self) -> Result<ImageLayers> {
        self.quick(Call::ImageLayers).await
    }

    async fn remove_images(&self, images: &[ImageSpec]) -> Vec<Result<()>> {
        let call = Call::RemoveImages { images: images.to_vec() };
        match self.call::<Vec<Option<WireError>>>(call, &|_| {}).await {
            Ok(results) => results.into_iter().map(|error| error.map_or(Ok(()), |error| Err(error.into()))).collect(),
            Err(error) => vec![Err(error); images.len()],
        }
    }

    async fn pin_image(&self, image: &ImageSpec, pinned: bool) -> Result<()> {
        self.quick(Call::PinImage { image: image.clone(), pinned }).await
    }

    async fn tag_image(&self, image: &ImageSpec, name: &str) -> Result<String> {
        self.quick(Call::TagImage { image: image.clone(), name: name.to_owned() }).await
    }

    async fn untag_image(&self, image: &ImageSpec, names: &[String]) -> Result<Vec<String>> {
        self.quick(Call::UntagImage { image: image.clone(), names: names.to_vec() }).await
    }

    async fn image_documents(&self, image: &ImageSpec) -> Result<Option<ImageDocuments>> {
        self.quick(Call::ImageDocuments { image: image.clone() }).await
    }

    async fn check_images(&self, request: &CheckRequest, progress: &CheckSink) -> Result<CheckReport> {
        let sink = progress.clone();
        let tell = move |step| match step {
            Progress::Check(step) => sink.report(step),
            Progress::Pull(_) => {}
        };
        self.call(Call::CheckImages { request: *request }, &tell).await
    }

    async fn convert_images(&self, request: &ConvertRequest) -> Result<ConvertReport> {
        self.call(Call::ConvertImages { request: request.clone() }, &|_| {}).await
    }

    async fn podman_store(&self, request: &PodmanStoreRequest) -> Result<PodmanStoreReport> {
        self.call(Call::PodmanStore { request: request.clone() }, &|_| {}).await
    }

    async fn unfinished_pulls(&self) -> Result<UnfinishedPulls> {
        self.quick(Call::UnfinishedPulls).await
    }

    async fn drop_unfinished_pulls(&self, all: bool) -> Result<u64> {
        self.call(Call::DropUnfinishedPulls { all }, &|_| {}).await
    }

    async fn mount_image(&self, request: &MountRequest) -> Result<MountedImage> {
        self.call(Call::MountImage { request: request.clone() }, &|_| {}).await
    }

    async fn mounts(&self) -> Result<Vec<ImageMount>> {
        self.quick(Call::Mounts).await
    }

    async fn lease_layers(&self, text: &str) -> Result<LayerLease> {
        let call = Call::LeaseLayers { text: text.to_owned() };
        // The process holds the layers as long as its answer is not read to the end.
        let (stack, lines) = in_time(&self.socket, self.ask(&call, &|_| {})).await?;
        Ok(LayerLease::new(self.root.clone(), stack, lines))
    }

    async fn import_images(&self, path: &Path, options: ImportOptions) -> Result<ImportReport> {
        let ImportOptions { name, images, platforms, progress } = options;
        let tell = move |step| match step {
            Progress::Pull(event) => progress.report(event),
            Progress::Check(_) => {}
        };
        let name = name.map(|name| name.to_string());
        let call = Call::ImportImages { path: elsewhere(path), name, images, platforms };
        self.call(call, &tell).await
    }

    async fn export_images(&self, images: &[String], path: &Path, options: ExportOptions) -> Result<()> {
        self.call(Call::ExportImages { images: images.to_vec(), path: elsewhere(path), options }, &|_| {}).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_mean_the_same_to_the_agent() {
        let own = format!("/proc/{}", std::process::id());
        for (path, want) in [
            ("/a/b.tar", "/a/b.tar".to_owned()),
            ("/dev/stdout", format!("{own}/fd/1")),
            ("/dev/fd/63", format!("{own}/fd/63")),
            ("/proc/self/fd/0", format!("{own}/fd/0")),
            ("/dev/null", "/dev/null".to_owned()),
        ] {
            assert_eq!(elsewhere(Path::new(path)), Path::new(&want), "{path}");
        }
        assert!(elsewhere(Path::new("b.tar")).is_absolute());
    }
}
