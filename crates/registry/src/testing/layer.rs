//! [`LayerBuilder`]: a layer from entries, compressed as wanted.

use std::io::Write as _;

use bytes::Bytes;
use oci::{Descriptor, Digest, media_type};

use super::tar::{self, Entry, EntryKind};

/// The specification whose media types an image has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImageFormat {
    /// OCI image specification.
    #[default]
    Oci,
    /// Docker schema 2.
    Docker,
}

/// How a layer's blob is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    Plain,
    /// gzip.
    #[default]
    Gzip,
    /// zstd.
    Zstd,
}

/// Collects the entries of a layer.
#[derive(Clone, Debug, Default)]
pub struct LayerBuilder {
    tar: Vec<u8>,
    compression: Compression,
    media_type: Option<String>,
    unfinished: bool,
    trailing: Vec<u8>,
}

/// A finished layer.
#[derive(Clone, Debug)]
pub struct BuiltLayer {
    /// The tar stream.
    pub tar: Bytes,
    /// The blob as the registry has it.
    pub blob: Bytes,
    /// Digest of the tar stream.
    pub diff_id: Digest,
    /// Descriptor of the blob, by OCI's types.
    pub descriptor: Descriptor,
    pub(super) compression: Compression,
    pub(super) media_type: Option<String>,
}

impl LayerBuilder {
    /// An empty layer, to be compressed by gzip.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds any entry.
    #[must_use]
    pub fn entry(mut self, entry: Entry) -> Self {
        entry.write(&mut self.tar);
        self
    }

    /// A regular file of mode 0644.
    #[must_use]
    pub fn file(self, path: &str, content: impl Into<Vec<u8>>) -> Self {
        self.entry(Entry::new(path, EntryKind::File(content.into())))
    }

    /// A regular file of this mode.
    #[must_use]
    pub fn file_mode(self, path: &str, content: impl Into<Vec<u8>>, mode: u32) -> Self {
        self.entry(Entry::new(path, EntryKind::File(content.into())).mode(mode))
    }

    /// A directory of mode 0755.
    #[must_use]
    pub fn dir(self, path: &str) -> Self {
        self.entry(Entry::new(path, EntryKind::Dir))
    }

    /// A directory of this mode.
    #[must_use]
    pub fn dir_mode(self, path: &str, mode: u32) -> Self {
        self.entry(Entry::new(path, EntryKind::Dir).mode(mode))
    }

    /// A symbolic link.
    #[must_use]
    pub fn symlink(self, path: &str, target: &str) -> Self {
        self.entry(Entry::new(path, EntryKind::Symlink(target.into())))
    }

    /// A hard link to a path of this layer.
    #[must_use]
    pub fn hardlink(self, path: &str, target: &str) -> Self {
        self.entry(Entry::new(path, EntryKind::HardLink(target.into())))
    }

    /// The whiteout of a path: `dir/.wh.name`.
    #[must_use]
    pub fn whiteout(self, path: &str) -> Self {
        let path = path.trim_end_matches('/');
        let marker = match path.rsplit_once('/') {
            Some((dir, name)) => format!("{dir}/.wh.{name}"),
            None => format!(".wh.{path}"),
        };
        self.file(&marker, "")
    }

    /// Makes a directory opaque: `dir/.wh..wh..opq`.
    #[must_use]
    pub fn opaque(self, dir: &str) -> Self {
        let dir = dir.trim_end_matches('/');
        let marker = if dir.is_empty() { ".wh..wh..opq".to_owned() } else { format!("{dir}/.wh..wh..opq") };
        self.file(&marker, "")
    }

    /// A character device.
    #[must_use]
    pub fn char_device(self, path: &str, major: u32, minor: u32) -> Self {
        self.entry(Entry::new(path, EntryKind::Char(major, minor)))
    }

    /// A block device.
    #[must_use]
    pub fn block_device(self, path: &str, major: u32, minor: u32) -> Self {
        self.entry(Entry::new(path, EntryKind::Block(major, minor)))
    }

    /// A named pipe.
    #[must_use]
    pub fn fifo(self, path: &str) -> Self {
        self.entry(Entry::new(path, EntryKind::Fifo))
    }

    /// Any bytes at this place of the tar stream.
    #[must_use]
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.tar.extend_from_slice(bytes);
        self
    }

    /// Leaves out the two empty blocks at the end.
    #[must_use]
    pub fn without_end(mut self) -> Self {
        self.unfinished = true;
        self
    }

    /// Bytes behind the end of the archive; they belong to the diff id.
    #[must_use]
    pub fn trailing(mut self, bytes: &[u8]) -> Self {
        self.trailing.extend_from_slice(bytes);
        self
    }

    /// Compresses the blob like this.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// No compression.
    #[must_use]
    pub fn plain(self) -> Self {
        self.compression(Compression::Plain)
    }

    /// gzip, which is the default.
    #[must_use]
    pub fn gzip(self) -> Self {
        self.compression(Compression::Gzip)
    }

    /// zstd.
    #[must_use]
    pub fn zstd(self) -> Self {
        self.compression(Compression::Zstd)
    }

    /// Calls the layer by this media type, whatever it is.
    #[must_use]
    pub fn media_type(mut self, media_type: &str) -> Self {
        self.media_type = Some(media_type.to_owned());
        self
    }

    /// Finishes the archive and compresses it.
    #[must_use]
    pub fn build(self) -> BuiltLayer {
        let mut tar = self.tar;
        if !self.unfinished {
            tar::finish(&mut tar);
        }
        tar.extend_from_slice(&self.trailing);
        let blob = compress(&tar, self.compression);
        BuiltLayer::assemble(tar, blob, self.compression, self.media_type)
    }

    /// A layer from a blob that is not what it seems, for attacks: diff id and blob need not fit together.
    #[must_use]
    pub fn from_blob(blob: Vec<u8>, diff_id: Digest, compression: Compression) -> BuiltLayer {
        let mut layer = BuiltLayer::assemble(Vec::new(), blob, compression, None);
        layer.diff_id = diff_id;
        layer
    }
}

impl BuiltLayer {
    fn assemble(tar: Vec<u8>, blob: Vec<u8>, compression: Compression, media_type: Option<String>) -> Self {
        let mut layer = Self {
            diff_id: Digest::sha256(&tar),
            descriptor: Descriptor::new("", Digest::sha256(&blob), blob.len() as u64),
            tar: tar.into(),
            blob: blob.into(),
            compression,
            media_type,
        };
        layer.descriptor = layer.descriptor_as(ImageFormat::Oci);
        layer
    }

    /// The layer's descriptor with the types of an image of this kind.
    pub(super) fn descriptor_as(&self, kind: ImageFormat) -> Descriptor {
        let usual = match (kind, self.compression) {
            (ImageFormat::Oci, Compression::Plain) => media_type::OCI_LAYER,
            (ImageFormat::Oci, Compression::Gzip) => media_type::OCI_LAYER_GZIP,
            (ImageFormat::Oci, Compression::Zstd) => media_type::OCI_LAYER_ZSTD,
            (ImageFormat::Docker, Compression::Plain) => "application/vnd.docker.image.rootfs.diff.tar",
            (ImageFormat::Docker, Compression::Gzip) => media_type::DOCKER_LAYER_GZIP,
            (ImageFormat::Docker, Compression::Zstd) => "application/vnd.docker.image.rootfs.diff.tar.zstd",
        };
        let media_type = self.media_type.as_deref().unwrap_or(usual);
        Descriptor::new(media_type, self.descriptor.digest.clone(), self.descriptor.size)
    }
}

impl From<LayerBuilder> for BuiltLayer {
    fn from(builder: LayerBuilder) -> Self {
        builder.build()
    }
}

fn compress(tar: &[u8], compression: Compression) -> Vec<u8> {
    match compression {
        Compression::Plain => tar.to_vec(),
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
            encoder.write_all(tar).and_then(|()| encoder.finish()).expect("writing to memory does not fail")
        }
        Compression::Zstd => zstd::encode_all(tar, 3).expect("writing to memory does not fail"),
    }
}
