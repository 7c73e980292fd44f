//! The secrets directory: manifests of Secrets and ServiceAccounts on the node, for pods whose manifests do not include
//! them. Reads all of it; a file that cannot be used is reported and skipped, so that one mistake does not make the secrets
//! of other files unavailable. Never shows the content of a file. Called by the readers of pods, off the async workers.

use std::fs::{self, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::error::ManifestError;
use crate::object::Objects;
use crate::read::parse_secrets;
use crate::yaml::MAX_BYTES;

/// Objects of a directory, and a line for each problem in it.
#[derive(Debug, Default)]
pub struct SecretsDirectory {
    /// Objects of the files that can be read.
    pub objects: Objects,
    /// Lines about files that are left out.
    pub problems: Vec<String>,
}

/// Reads every `*.yaml`, `*.yml` and `*.json` in `directory`, in the order of their names.
///
/// # Errors
/// The directory itself cannot be read: then nothing is known of any secret.
pub fn read(directory: &Path) -> io::Result<SecretsDirectory> {
    let mut read = SecretsDirectory::default();
    // In a directory that other users cannot enter, the files' own permissions do not matter.
    let closed = fs::metadata(directory)?.mode() & 0o001 == 0;
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if is_manifest(&path) {
            files.push(path);
        }
    }
    files.sort();
    for path in files {
        match text(&path) {
            Ok((metadata, text)) => {
                if !closed && metadata.mode() & 0o004 != 0 {
                    let (path, mode) = (path.display(), metadata.mode() & 0o7777);
                    read.problems
                        .push(format!("{path}: every user of this machine can read it (mode {mode:04o}); use 0600"));
                }
                read.take(&path, &text);
            }
            Err(error) => read.problems.push(format!("read {}: {error}; its secrets are not known", path.display())),
        }
    }
    Ok(read)
}

impl SecretsDirectory {
    fn take(&mut self, path: &Path, text: &str) {
        let name = path.display().to_string();
        match parse_secrets(&name, text) {
            Ok(objects) => self.objects.extend(objects),
            // The parser's words may quote the text.
            Err(ManifestError::Yaml { position, .. }) => {
                let at = position.map(|p| format!(":{}:{}", p.line, p.column)).unwrap_or_default();
                self.problems.push(format!("{name}{at}: it is not YAML; its secrets are not known"));
            }
            Err(error) => self.problems.push(format!("{error}; its secrets are not known")),
        }
    }

    /// Returns a line for the first duplicate object: the first of its definitions counts.
    pub fn duplicates(&self) -> Option<String> {
        self.objects.duplicate().map(|error| format!("{error}; the first counts"))
    }
}

/// Hidden files are temporary files of an editor, or the symbolic links of a mounted volume.
fn is_manifest(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    let known = path.extension().is_some_and(|e| ["yaml", "yml", "json"].iter().any(|known| e == *known));
    known && !hidden
}

fn text(path: &Path) -> io::Result<(Metadata, String)> {
    let file = fs::File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut text = String::new();
    let length = file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => io::Error::other("it is not UTF-8 text"),
        _ => error,
    })?;
    if length as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("more than {} MiB, which no manifest has", MAX_BYTES >> 20)));
    }
    Ok((metadata, text))
}
