//! Export: images with their config as it is (so that the image id stays), layers rebuilt bit for bit and checked
//! against their diff ids. Where every blob of the image's own manifest was plain tar or was kept, they and that manifest
//! are written as they are; otherwise a manifest is made for the layers as they are written.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::Path;
use std::sync::Arc;

use cri_api::Result;
use cri_api::engine::{Compress, ExportOptions, Format};
use oci::{Algorithm, Descriptor, Digest, Document, Hasher, ReferenceOrId, media_type};
use serde_json::json;
use store::{Layer, Store};
use tokio_util::sync::CancellationToken;

use super::archive::blob_name;
use super::layout::{CONTAINERD_NAME, INDEX, OCI_LAYOUT, REF_NAME};
use super::output::{Output, write_error};
use super::pick::{Picked, PickedGroup, Picker};
use super::{manifest_bytes, to_value};
use crate::engine::Engine;
use crate::error::{self, cancelled, damaged, invalid};
use crate::source::kept::good_blob;

impl Engine {
    /// Exports images to `path`. An image that is given by a tag is exported with that name, one that is given by id or
    /// digest with every tag it has. The file or directory appears when it is whole; a symbolic link leads to it. A device or a
    /// pipe is written to as it is.
    ///
    /// # Errors
    /// `NotFound` for an image that is not here, `FailedPrecondition` for a directory that is not empty, `DataLoss` when
    /// a layer on disk is not what it was.
    pub async fn export(&self, images: &[String], path: &Path, options: impl Into<ExportOptions>) -> Result<()> {
        self.0.in_flight.check_running()?;
        let options = options.into();
        let token = self.0.in_flight.child_token();
        // Dropping the future ends the thread.
        let _guard = token.clone().drop_guard();
        let (content, target) = (Arc::clone(&self.0.content), path.to_owned());
        let images: Vec<ReferenceOrId> = images.iter().map(ReferenceOrId::parse).collect();
        let exported = self.0.content.background.run(move || {
            let export = Export {
                store: &content.store,
                token: &token,
                options,
                written: HashMap::new(),
                copied: HashSet::new(),
            };
            export.run(&images, &target)
        });
        exported.await.map_err(error::one_line)
    }
}

/// Kept blobs are read and written in pieces of this size.
const COPY: usize = 256 << 10;

pub(super) struct Export<'a> {
    pub(super) store: &'a Store,
    pub(super) token: &'a CancellationToken,
    pub(super) options: ExportOptions,
    /// Layers that are in the output, by diff id.
    written: HashMap<Digest, Descriptor>,
    /// Kept blobs that are in the output.
    copied: HashSet<Digest>,
}

/// A layer as it was pulled: its blob, or nothing where the blob was plain tar and is built again.
pub(super) type AsPulled = Option<(Descriptor, File)>;

impl Export<'_> {
    fn run(mut self, images: &[ReferenceOrId], path: &Path) -> Result<()> {
        let packed = matches!(self.options.compress, Compress::AsPulledOrGzip | Compress::Gzip | Compress::Zstd);
        if self.options.format == Format::DockerArchive && packed {
            return Err(invalid("layers of a docker archive are not compressed"));
        }
        if self.options.format == Format::DockerDirectory && self.options.compress == Compress::Zstd {
            return Err(invalid(
                "layers of a docker directory are not compressed with zstd: its manifest has no type for them",
            ));
        }
        if images.is_empty() {
            return Err(invalid("no image was named"));
        }
        let picked = Picker { store: self.store, platforms: &self.options.platforms }.pick(images)?;
        let count = picked.iter().map(|group| group.images.len()).sum::<usize>();
        if self.options.format == Format::DockerDirectory && count != 1 {
            return Err(invalid(format!("a docker directory holds one image, and these are {count}")));
        }
        let mut output = match self.options.format {
            Format::OciLayout | Format::DockerDirectory => Output::directory(path)?,
            Format::OciArchive | Format::DockerArchive => {
                let spool = || self.store.unnamed_file().map_err(|e| error::from_store(self.store.root(), &e));
                Output::tar(path, spool, &|| self.token.is_cancelled())?
            }
        };
        match self.options.format {
            Format::OciLayout | Format::OciArchive => self.oci(&picked, &mut output)?,
            Format::DockerArchive => self.docker(&picked, &mut output)?,
            Format::DockerDirectory => {
                for image in picked.iter().flat_map(|group| &group.images) {
                    self.docker_directory(image, &mut output)?;
                }
            }
        }
        output.finish()
    }

    fn oci(&mut self, groups: &[PickedGroup], output: &mut Output) -> Result<()> {
        output.put(OCI_LAYOUT, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        let mut entries = Vec::new();
        for group in groups {
            let manifests =
                group.images.iter().map(|image| self.oci_image(image, output)).collect::<Result<Vec<_>>>()?;
            let mut entry = match <[Descriptor; 1]>::try_from(manifests) {
                Ok([manifest]) => manifest,
                Err(manifests) => index_of(group, &manifests, output)?,
            };
            if group.names.is_empty() {
                entries.push(to_value(&entry)?);
            }
            for name in &group.names {
                let tag = name.rsplit(':').next().unwrap_or_default().to_owned();
                entry.annotations =
                    BTreeMap::from([(CONTAINERD_NAME.to_owned(), name.clone()), (REF_NAME.to_owned(), tag)]);
                entries.push(to_value(&entry)?);
            }
        }
        let index = json!({ "schemaVersion": 2, "mediaType": media_type::OCI_INDEX, "manifests": entries });
        output.put(INDEX, index.to_string().as_bytes())
    }

    /// Writes the blobs of an image. Answers with the descriptor of its manifest.
    fn oci_image(&mut self, image: &Picked, output: &mut Output) -> Result<Descriptor> {
        let mut layers = Vec::with_capacity(image.layers.len());
        match self.kept(image)? {
            Some(kept) => {
                for (blob, layer) in kept.into_iter().zip(&image.layers) {
                    layers.push(match blob {
                        Some((descriptor, file)) => self.copy(&descriptor, file, output, blob_name)?,
                        None => self.layer(layer, output, blob_name)?,
                    });
                }
            }
            None => {
                for layer in &image.layers {
                    layers.push(self.layer(layer, output, blob_name)?);
                }
            }
        }
        let (config, _) = output.stream(blob_name, |out| put(out, &image.record.config))?;
        let manifest = manifest_of(image, &layers, &config)?;
        let (digest, size) = output.stream(blob_name, |out| put(out, &manifest))?;
        let own = digest == image.record.manifest_digest;
        let media_type = if own { image.record.manifest_media_type.as_str() } else { media_type::OCI_MANIFEST };
        let mut descriptor = Descriptor::new(media_type, digest, size);
        descriptor.platform = Some(image.config.platform.clone());
        Ok(descriptor)
    }

    /// The layers of an image as they were pulled. Nothing where one was not kept, or is not what it was.
    pub(super) fn kept(&self, image: &Picked) -> Result<Option<Vec<AsPulled>>> {
        let own = &image.manifest.layers;
        let as_pulled = matches!(self.options.compress, Compress::AsPulled | Compress::AsPulledOrGzip);
        if !as_pulled || own.len() != image.layers.len() {
            return Ok(None);
        }
        let mut kept = Vec::with_capacity(own.len());
        for (descriptor, layer) in own.iter().zip(&image.layers) {
            if descriptor.digest == layer.diff_id {
                kept.push(None);
                continue;
            }
            match self.kept_blob(descriptor)? {
                Some(file) => kept.push(Some((descriptor.clone(), file))),
                None => return Ok(None),
            }
        }
        Ok(Some(kept))
    }

    /// A kept blob, read once to see that it is what it was: the files of the image are there for where it is not.
    fn kept_blob(&self, descriptor: &Descriptor) -> Result<Option<File>> {
        // Members of the output are named by this algorithm.
        if descriptor.digest.algorithm() != Algorithm::Sha256 {
            return Ok(None);
        }
        let file = good_blob(self.store, descriptor, &|| self.token.is_cancelled());
        if self.token.is_cancelled() {
            return Err(cancelled());
        }
        file.map_err(|e| error::from_store(self.store.root(), &e))
    }

    /// Writes a kept blob, once.
    pub(super) fn copy(
        &mut self,
        descriptor: &Descriptor,
        mut file: File,
        output: &mut Output,
        name: impl FnOnce(&Digest) -> String,
    ) -> Result<Descriptor> {
        if !self.copied.insert(descriptor.digest.clone()) {
            return Ok(descriptor.clone());
        }
        let token = self.token;
        let (digest, _) = output.stream(name, |out| {
            io::Seek::rewind(&mut file).map_err(|e| write_error("a layer", &e))?;
            let mut buffer = vec![0; COPY];
            loop {
                if token.is_cancelled() {
                    return Err(cancelled());
                }
                match file.read(&mut buffer).map_err(|e| write_error("a layer", &e))? {
                    0 => return Ok(()),
                    length => out.write_all(&buffer[..length]).map_err(|e| write_error("a layer", &e))?,
                }
            }
        })?;
        if digest != descriptor.digest {
            return Err(damaged(format!("kept blob {} changed while it was written", descriptor.digest)));
        }
        Ok(descriptor.clone())
    }

    /// Writes a layer, once, and checks that it is what it was.
    pub(super) fn layer(
        &mut self,
        layer: &Layer,
        output: &mut Output,
        name: impl FnOnce(&Digest) -> String,
    ) -> Result<Descriptor> {
        if let Some(descriptor) = self.written.get(&layer.diff_id) {
            return Ok(descriptor.clone());
        }
        let compress = self.options.compress;
        let (digest, size) = output.stream(name, |out| match compress {
            Compress::AsPulled | Compress::No => self.rebuild(layer, out),
            Compress::Gzip | Compress::AsPulledOrGzip => {
                let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::default());
                self.rebuild(layer, &mut encoder)?;
                encoder.finish().map(|_| ()).map_err(|e| write_error("a layer", &e))
            }
            Compress::Zstd => {
                let failed = |e: &io::Error| write_error("a layer", e);
                let mut encoder = zstd::stream::write::Encoder::new(out, 3).map_err(|e| failed(&e))?;
                self.rebuild(layer, &mut encoder)?;
                encoder.finish().map(|_| ()).map_err(|e| failed(&e))
            }
        })?;
        let media_type = match compress {
            Compress::AsPulled | Compress::No => media_type::OCI_LAYER,
            Compress::Gzip | Compress::AsPulledOrGzip => media_type::OCI_LAYER_GZIP,
            Compress::Zstd => media_type::OCI_LAYER_ZSTD,
        };
        let descriptor = Descriptor::new(media_type, digest, size);
        self.written.insert(layer.diff_id.clone(), descriptor.clone());
        Ok(descriptor)
    }

    fn rebuild(&self, layer: &Layer, out: &mut dyn Write) -> Result<()> {
        let mut checked = CheckedWriter { out, hasher: layer.diff_id.algorithm().hasher(), token: self.token };
        let rebuilt = self.store.export_layer(layer, &mut checked);
        if self.token.is_cancelled() {
            return Err(cancelled());
        }
        rebuilt.map_err(|e| error::from_store(self.store.root(), &e))?;
        let got = checked.hasher.finish();
        if got != layer.diff_id {
            let expected = &layer.diff_id;
            return Err(damaged(format!("layer {expected} on disk is not what it was: it now has diff id {got}")));
        }
        Ok(())
    }
}

pub(super) fn put(out: &mut dyn Write, bytes: &[u8]) -> Result<()> {
    out.write_all(bytes).map_err(|e| write_error("a document", &e))
}

/// Writes the index above the images of a group: the one by which they were pulled where it names exactly these manifests.
fn index_of(group: &PickedGroup, manifests: &[Descriptor], output: &mut Output) -> Result<Descriptor> {
    let pulled = group.index.as_ref().and_then(|bytes| match Document::parse(bytes, None) {
        Ok(Document::Index(index)) => Some((bytes, index)),
        _ => None,
    });
    let written: BTreeSet<&Digest> = manifests.iter().map(|manifest| &manifest.digest).collect();
    let (bytes, media_type) = match pulled {
        Some((bytes, index)) if index.manifests.iter().map(|m| &m.digest).collect::<BTreeSet<_>>() == written => {
            (bytes.clone(), index.media_type.unwrap_or_else(|| media_type::OCI_INDEX.to_owned()))
        }
        _ => {
            let manifests = manifests.iter().map(to_value).collect::<Result<Vec<_>>>()?;
            let index = json!({ "schemaVersion": 2, "mediaType": media_type::OCI_INDEX, "manifests": manifests });
            (index.to_string().into_bytes(), media_type::OCI_INDEX.to_owned())
        }
    };
    let (digest, size) = output.stream(blob_name, |out| put(out, &bytes))?;
    Ok(Descriptor::new(media_type, digest, size))
}

/// The image's own manifest where it fits the layers as written, or one that does, with the same annotations.
fn manifest_of(image: &Picked, layers: &[Descriptor], config: &Digest) -> Result<Vec<u8>> {
    let own = &image.manifest;
    let fits = own.layers.iter().map(|l| &l.digest).eq(layers.iter().map(|l| &l.digest));
    if fits && own.config.digest == *config {
        return Ok(image.record.manifest.clone());
    }
    let config = Descriptor::new(media_type::OCI_CONFIG, config.clone(), image.record.config.len() as u64);
    let annotations = (!own.annotations.is_empty()).then(|| json!(own.annotations));
    manifest_bytes(&config, layers, annotations)
}

/// Hashes what passes, and stops when the export is given up.
struct CheckedWriter<'a> {
    out: &'a mut dyn Write,
    hasher: Hasher,
    token: &'a CancellationToken,
}

impl Write for CheckedWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.token.is_cancelled() {
            return Err(io::Error::other("the export was given up"));
        }
        let n = self.out.write(bytes)?;
        self.hasher.update(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
