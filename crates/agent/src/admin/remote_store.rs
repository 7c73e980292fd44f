//! [`RemoteStore`]: the store of another process that owns the root, over the API on the socket of the store. Decides nothing. Made by
//! the binary's wiring.

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
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::images::{
    ChangedNames, FileExport, FileImport, FreedBytes, ImageList, ImageNames, LeaseBody, LeasedLayers, Mounts,
    NamesBody, PinBody, PullBody, PulledImage, RemovedImages, StoreOwner, WireAuth,
};
use crate::api::client::{self, AskError, Method};
use crate::api::socket_path::store_socket;
use crate::api::wire::Done;

/// The longest time for an answer that takes no work.
const PATIENCE: Duration = Duration::from_secs(10);

/// The store of a process that owns a root.
#[derive(Clone, Debug)]
pub struct RemoteStore {
    socket: PathBuf,
    /// The root, as this process reaches it.
    root: PathBuf,
}

impl RemoteStore {
    /// The process that owns `root`.
    pub fn of(root: &Path) -> Self {
        Self { socket: store_socket(root), root: root.to_owned() }
    }

    /// The process that answers on the store's socket, and is not about to end.
    ///
    /// # Errors
    /// `Unavailable` if no process answers, `Unimplemented` if the process is of another version.
    pub async fn owner(&self) -> Result<StoreOwner> {
        let owner = self.get("/v1/owner").await;
        owner.map_err(|error| if error.kind() == Kind::Unimplemented { self.other_version() } else { error })
    }

    /// Asks for something that takes no work.
    async fn get<T: DeserializeOwned>(&self, target: &str) -> Result<T> {
        self.quick(client::ask_at_length(&self.socket, Method::GET, target)).await
    }

    /// Makes a call that takes no work.
    async fn change<T: DeserializeOwned>(&self, target: &str, body: &impl Serialize) -> Result<T> {
        self.quick(client::send(&self.socket, Method::POST, target, written(body)?)).await
    }

    /// Makes a call, which takes as long as it takes.
    async fn post<T: DeserializeOwned>(&self, target: &str, body: &impl Serialize) -> Result<T> {
        let sent = client::send(&self.socket, Method::POST, target, written(body)?).await;
        sent.map_err(|error| self.error(error))
    }

    /// Makes a call that reports progress; `last` is the name of the event with its result.
    async fn stream<P: DeserializeOwned, T: DeserializeOwned>(
        &self,
        target: &str,
        body: Vec<u8>,
        last: &str,
        report: impl Fn(P),
    ) -> Result<T> {
        let answer = async {
            let mut events = client::events(&self.socket, Method::POST, target, body).await?;
            events.last(last, report).await
        };
        answer.await.map_err(|error| self.error(error))
    }

    /// The answer to a request that takes no work, or an error if it takes long.
    async fn quick<T>(&self, answer: impl Future<Output = std::result::Result<T, AskError>>) -> Result<T> {
        let late = |_| Err(AskError::Late(self.socket.clone()));
        tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(late).map_err(|error| self.error(error))
    }

    /// The error of a call.
    fn error(&self, error: AskError) -> Error {
        match error {
            AskError::Refused(error) => error,
            AskError::OlderAgent(_) => self.other_version(),
            error => Error::from_source(error.kind(), &error),
        }
    }

    fn other_version(&self) -> Error {
        let owner = format!("the process that owns the store {}", self.root.display());
        let line = format!("{owner} is of another version of imagelet: restart it with this version");
        Error::new(Kind::Unimplemented, line)
    }
}

/// The body of a request.
fn written(body: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(body)
        .map_err(|error| Error::new(Kind::InvalidArgument, format!("a request cannot be written: {error}")))
}

/// The target of a request with parameters.
fn with_query<'a>(path: &str, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    format!("{path}?{}", url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish())
}

fn text(flag: bool) -> &'static str {
    if flag { "true" } else { "false" }
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
        let image = filter.and_then(|filter| filter.image.as_ref()).filter(|image| !image.image.is_empty());
        let list: ImageList = self.get(&with_query("/v1/images", image.map(|image| ("image", &*image.image)))).await?;
        Ok(list.images)
    }

    async fn image_status(&self, image: &ImageSpec, verbose: bool) -> Result<ImageStatus> {
        self.get(&with_query("/v1/images/status", [("image", &*image.image), ("verbose", text(verbose))])).await
    }

    async fn pull_image(&self, request: PullImageRequest) -> Result<String> {
        request.before_visible.done().await?;
        let PullImageRequest { image, auth, progress, .. } = request;
        let body = PullBody { image: image.image, policy: None, auth: auth.as_ref().map(WireAuth::from) };
        let report = |event| progress.report(event);
        let pulled: PulledImage = self.stream("/v1/images/pull", written(&body)?, "pulled", report).await?;
        Ok(pulled.image_ref)
    }

    async fn remove_image(&self, image: &ImageSpec) -> Result<()> {
        let target = with_query("/v1/images/remove", [("image", &*image.image)]);
        let removed: RemovedImages = self.post(&target, &()).await?;
        removed.results.into_iter().find_map(|result| result.error).map_or(Ok(()), |error| Err(error.into()))
    }

    async fn image_fs_info(&self) -> Result<FsInfo> {
        self.get("/v1/images/filesystems").await
    }
}

#[async_trait]
impl ImageEngine for RemoteStore {
    async fn inspect_image(&self, image: &ImageSpec) -> Result<ImageStatus> {
        self.get(&with_query("/v1/images/inspect", [("image", &*image.image)])).await
    }

    async fn image_usage(&self, image: &ImageSpec) -> Result<Option<ImageUsage>> {
        self.get(&with_query("/v1/images/usage", [("image", &*image.image)])).await
    }

    async fn image_layers(&self) -> Result<ImageLayers> {
        self.get("/v1/images/layers").await
    }

    async fn remove_images(&self, images: &[ImageSpec]) -> Vec<Result<()>> {
        let names = ImageNames { images: images.iter().map(|image| image.image.clone()).collect() };
        match self.post::<RemovedImages>("/v1/images/remove-batch", &names).await {
            Ok(removed) => {
                let errors = removed.results.into_iter().map(|result| result.error);
                errors.map(|error| error.map_or(Ok(()), |error| Err(error.into()))).collect()
            }
            Err(error) => vec![Err(error); images.len()],
        }
    }

    async fn pin_image(&self, image: &ImageSpec, pinned: bool) -> Result<()> {
        let Done {} = self.change("/v1/images/pin", &PinBody { image: image.image.clone(), pinned }).await?;
        Ok(())
    }

    async fn tag_image(&self, image: &ImageSpec, name: &str) -> Result<String> {
        let body = NamesBody { image: image.image.clone(), names: vec![name.to_owned()] };
        let changed: ChangedNames = self.change("/v1/images/tag", &body).await?;
        changed.names.into_iter().next().ok_or_else(|| Error::new(Kind::Internal, "the answer has no name"))
    }

    async fn untag_image(&self, image: &ImageSpec, names: &[String]) -> Result<Vec<String>> {
        let body = NamesBody { image: image.image.clone(), names: names.to_vec() };
        let changed: ChangedNames = self.change("/v1/images/untag", &body).await?;
        Ok(changed.names)
    }

    async fn image_documents(&self, image: &ImageSpec) -> Result<Option<ImageDocuments>> {
        self.get(&with_query("/v1/images/documents", [("image", &*image.image)])).await
    }

    async fn check_images(&self, request: &CheckRequest, progress: &CheckSink) -> Result<CheckReport> {
        let CheckRequest { repair, deep, since_unclean_only } = *request;
        let flags = [("repair", text(repair)), ("deep", text(deep)), ("sinceUncleanOnly", text(since_unclean_only))];
        self.stream(&with_query("/v1/check", flags), Vec::new(), "checked", |step| progress.report(step)).await
    }

    async fn convert_images(&self, request: &ConvertRequest) -> Result<ConvertReport> {
        let images = request.images.iter().map(|image| ("image", image.as_str()));
        self.post(&with_query("/v1/convert", images.chain([("to", request.to.name())])), &()).await
    }

    async fn podman_store(&self, request: &PodmanStoreRequest) -> Result<PodmanStoreReport> {
        self.post("/v1/podman-store", request).await
    }

    async fn unfinished_pulls(&self) -> Result<UnfinishedPulls> {
        self.get("/v1/unfinished-pulls").await
    }

    async fn drop_unfinished_pulls(&self, all: bool) -> Result<u64> {
        let target = with_query("/v1/unfinished-pulls/remove", [("all", text(all))]);
        let freed: FreedBytes = self.post(&target, &()).await?;
        Ok(freed.freed_bytes)
    }

    async fn mount_image(&self, request: &MountRequest) -> Result<MountedImage> {
        self.post("/v1/mounts", request).await
    }

    async fn mounts(&self) -> Result<Vec<ImageMount>> {
        let list: Mounts = self.get("/v1/mounts").await?;
        Ok(list.mounts)
    }

    async fn lease_layers(&self, text: &str) -> Result<LayerLease> {
        let body = written(&LeaseBody { image: text.to_owned() })?;
        // The process leases the layers until the connection closes, which the events keep open.
        let (leased, events) = self
            .quick(async {
                let mut events = client::events(&self.socket, Method::POST, "/v1/leases", body).await?;
                let leased: LeasedLayers = events.last("lease", |()| {}).await?;
                Ok((leased, events))
            })
            .await?;
        Ok(LayerLease::new(self.root.clone(), leased.stack, events))
    }

    async fn import_images(&self, path: &Path, options: ImportOptions) -> Result<ImportReport> {
        let ImportOptions { name, images, platforms, progress } = options;
        let name = name.map(|name| name.to_string());
        let body = written(&FileImport { path: elsewhere(path), name, images, platforms })?;
        self.stream("/v1/files/import", body, "imported", |event| progress.report(event)).await
    }

    async fn export_images(&self, images: &[String], path: &Path, options: ExportOptions) -> Result<()> {
        let body = FileExport { path: elsewhere(path), images: images.to_vec(), options };
        let Done {} = self.post("/v1/files/export", &body).await?;
        Ok(())
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
