//! [`convert`]: the layers of images in a runtime's store, converted from directories to EROFS files or back while containers run. Each
//! layer is written again from its own files, in a store next to the runtime's, and takes its place in one step. [`crate::RuntimeImages`]
//! calls it.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::BufReader;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use cri_api::engine::runtime_store::{Deposit, LowerLayer, RuntimeStore, UnpackedForm};
use cri_api::engine::{ConvertReport, ConvertRequest, ConvertedImage, LayerShape, LeftLayer};
use cri_api::{Error, ImageService, ImageSpec, Kind, Result};
use oci::Digest;
use store::{Durability, LayerFormat, OpenOptions, Store};
use tokio_util::sync::CancellationToken;

use crate::destination::runtime_store::chain_id;
use crate::error;

/// Parts of a conversion.
pub(crate) struct Conversion {
    pub(crate) images: Arc<dyn ImageService>,
    pub(crate) store: Arc<dyn RuntimeStore>,
    /// Store in which layers are written, and the number of its staging slot.
    pub(crate) staging: Arc<Store>,
    pub(crate) slot: u32,
}

/// Returns the options of the store in which layers are written.
pub(crate) fn staging_options(options: &OpenOptions, to: LayerShape) -> OpenOptions {
    let layer_format = match to {
        LayerShape::Dir => LayerFormat::Dir,
        LayerShape::Erofs => LayerFormat::NestedErofs,
    };
    OpenOptions { layer_format, durability: Durability::Full, agent_socket: None, reserve_bytes: 0, ..options.clone() }
}

impl Conversion {
    /// Converts images one after the other, also after one fails. `None` if the store takes layers of one form only.
    pub(crate) async fn run(&self, request: &ConvertRequest) -> Result<Option<ConvertReport>> {
        if self.store.form() == UnpackedForm::ErofsFile {
            return Ok(None);
        }
        // Dropping the future ends the conversion.
        let token = CancellationToken::new();
        let _guard = token.clone().drop_guard();
        let mut report = ConvertReport::default();
        for id in self.ids(request).await? {
            let mut image = ConvertedImage { id: id.clone(), ..ConvertedImage::default() };
            if let Err(error) = self.image(&mut image, request.to, &token).await {
                tracing::warn!(image = %id, %error, "cannot convert layers");
                image.error = Some(error.message().to_owned());
            }
            report.images.push(image);
        }
        Ok(Some(report))
    }

    /// The images of a request, each once.
    async fn ids(&self, request: &ConvertRequest) -> Result<Vec<String>> {
        if request.images.is_empty() {
            return Ok(self.images.list_images(None).await?.into_iter().map(|image| image.id).collect());
        }
        let mut ids: Vec<String> = Vec::new();
        for named in &request.images {
            let status = self.images.image_status(&ImageSpec::new(named), false).await?;
            let id = status.image.ok_or_else(|| error::absent(&oci::ReferenceOrId::parse(named)))?.id;
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        Ok(ids)
    }

    async fn image(&self, image: &mut ConvertedImage, to: LayerShape, token: &CancellationToken) -> Result<()> {
        let status = self.images.image_status(&ImageSpec::new(&image.id), true).await?;
        let Some(top) = chain_id(&status) else { return Ok(()) };
        let invalid = |error| Error::new(Kind::Internal, format!("{top}: {error}"));
        let digest: Digest = top.parse().map_err(invalid)?;
        let deposit = self.store.begin(&self.store.new_id(), self.slot, &digest).await?;
        let converted = self.chain(image, &deposit, &digest, (to, token)).await;
        let ended = deposit.end().await;
        converted.and(ended)
    }

    async fn chain(
        &self,
        image: &mut ConvertedImage,
        deposit: &Arc<dyn Deposit>,
        top: &Digest,
        (to, token): (LayerShape, &CancellationToken),
    ) -> Result<()> {
        if !deposit.hold(top).await? {
            return Err(Error::new(Kind::FailedPrecondition, "a layer is missing or damaged: pull the image again"));
        }
        let parents: BTreeMap<String, String> = self.store.snapshots().await?;
        let mut chain = top.to_string();
        for layer in deposit.lower_layers(top).await? {
            let parent = parents.get(&chain).cloned().unwrap_or_default();
            if is_of(&layer, to) {
                chain = parent;
                continue;
            }
            let id: Digest = chain.parse().map_err(|error| Error::new(Kind::Internal, format!("{chain}: {error}")))?;
            let tree = deposit.begin_exchange(&id, &layer).await?;
            let (staging, target) = (Arc::clone(&self.staging), Arc::clone(deposit));
            let (from, cancelled) = (layer.clone(), token.clone());
            let work = move || convert_layer(&staging, target.as_ref(), (&from, &tree), &|| cancelled.is_cancelled());
            match tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(((bytes, inodes), after)) => {
                    image.layers += 1;
                    image.bytes_before += bytes;
                    image.inodes_before += inodes;
                    image.bytes_after += after.0;
                    image.inodes_after += after.1;
                }
                Err(why) => image.left.push(LeftLayer { diff_id: chain.clone(), why }),
            }
            chain = parent;
        }
        Ok(())
    }
}

fn is_of(layer: &LowerLayer, shape: LayerShape) -> bool {
    matches!(
        (layer, shape),
        (LowerLayer::Directory(_), LayerShape::Dir) | (LowerLayer::ErofsFile(_), LayerShape::Erofs)
    )
}

/// Bytes and inodes on disk.
type Usage = (u64, u64);

/// Converts one layer, whose files are in the directory `tree`. Returns its usage before and after. Blocks.
fn convert_layer(
    staging: &Store,
    deposit: &dyn Deposit,
    (from, tree): (&LowerLayer, &Path),
    cancelled: &(dyn Fn() -> bool + Sync),
) -> std::result::Result<(Usage, Usage), String> {
    let failed = |error: &dyn std::error::Error| format!("{}: {}", tree.display(), with_causes(error));
    let directory = File::open(tree).map_err(|error| failed(&error))?;
    let lease = staging.lease();
    let ingest = staging.new_layer(&lease).map_err(|error| failed(&error))?;
    let (read, mut write) = std::io::pipe().map_err(|error| failed(&error))?;
    let unpacked = std::thread::scope(|threads| {
        let writer = threads.spawn(move || store::write_tree(directory.as_fd(), &mut write, cancelled));
        let unpacked = ingest.unpack(&mut BufReader::with_capacity(1 << 18, read), cancelled);
        let written = writer.join().unwrap_or_else(|_| Err(std::io::Error::other("the thread panicked")));
        // A reader that ends early breaks the pipe: its own error is the reason.
        match (unpacked, written) {
            (Err(error), _) => Err(failed(&error)),
            (Ok(_), Err(error)) => Err(failed(&error)),
            (Ok(layer), Ok(())) => Ok(layer),
        }
    })?;
    let (LowerLayer::Directory(files) | LowerLayer::ErofsFile(files)) = from;
    let before = usage(files).map_err(|error| failed(&error))?;
    staging.make_durable().map_err(|error| failed(&error))?;
    let after = unpacked.files().map(|files| usage(files.path())).transpose().map_err(|error| failed(&error))?;
    let placed = unpacked.hand_over(|files| deposit.exchange(from, files)).map_err(|error| failed(&error))?;
    if !placed {
        return Err(format!("{}: the disk refused to write the new files", tree.display()));
    }
    Ok((before, after.unwrap_or_default()))
}

/// Returns an error with its causes, in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Returns the bytes and inodes of a file or of a tree.
fn usage(path: &Path) -> std::io::Result<Usage> {
    let opened = File::open(path)?;
    let found = opened.metadata()?;
    if !found.is_dir() {
        return Ok((found.blocks() * 512, 1));
    }
    let (mut sum, mut linked) = ((0, 0), HashSet::new());
    let walked = base::walk_tree(opened.into(), |file| {
        if file.stx_nlink < 2 || linked.insert(file.stx_ino) {
            sum = (sum.0 + file.stx_blocks * 512, sum.1 + 1);
        }
    });
    walked.map(|()| sum).map_err(std::io::Error::other)
}
