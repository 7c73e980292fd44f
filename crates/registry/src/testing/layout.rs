//! Writes a built image as an OCI image layout, for tests of what reads one.

use std::io;
use std::path::Path;

use oci::{Descriptor, Digest};
use serde_json::json;

use super::image::{BuiltImage, BuiltIndex};

impl BuiltImage {
    /// Writes the image into `dir` as an OCI layout (`oci-layout`, `index.json`, `blobs/`), under this tag.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write_layout(&self, dir: &Path, tag: &str) -> io::Result<()> {
        write_blobs(dir, self)?;
        write_head(dir, &self.descriptor, tag)
    }
}

impl BuiltIndex {
    /// Writes index and images into `dir` as an OCI layout, the index under this tag.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write_layout(&self, dir: &Path, tag: &str) -> io::Result<()> {
        for image in &self.images {
            write_blobs(dir, image)?;
        }
        write_blob(dir, &self.descriptor.digest, &self.bytes)?;
        write_head(dir, &self.descriptor, tag)
    }
}

fn write_blobs(dir: &Path, image: &BuiltImage) -> io::Result<()> {
    for (digest, bytes) in image.blobs() {
        write_blob(dir, &digest, &bytes)?;
    }
    write_blob(dir, &image.descriptor.digest, &image.manifest)
}

fn write_blob(dir: &Path, digest: &Digest, bytes: &[u8]) -> io::Result<()> {
    let blobs = dir.join("blobs").join(digest.algorithm().as_str());
    std::fs::create_dir_all(&blobs)?;
    std::fs::write(blobs.join(digest.hex()), bytes)
}

fn write_head(dir: &Path, descriptor: &Descriptor, tag: &str) -> io::Result<()> {
    let mut descriptor = descriptor.clone();
    descriptor.annotations.insert("org.opencontainers.image.ref.name".into(), tag.into());
    let index = json!({ "schemaVersion": 2, "manifests": [descriptor] });
    std::fs::write(dir.join("index.json"), serde_json::to_vec(&index)?)?;
    std::fs::write(dir.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#)
}
