//! The name of this installation: chance that is kept on disk, mixed with the machine's id, so that neither a copy of the disk on
//! another machine nor a second installation on this one has the same. Called by the binary.

use std::io;
use std::path::{Path, PathBuf};

use base::write_private;
use ring::rand::{SecureRandom, SystemRandom};
use sha2::{Digest, Sha256};

/// Name of the file.
const FILE: &str = "instance";

/// The name of this installation is not known.
#[derive(Debug, thiserror::Error)]
#[error("the name of this installation, {}", path.display())]
pub struct InstanceError {
    path: PathBuf,
    source: io::Error,
}

/// Returns the name of the installation whose files are in `directory`, and creates it at the first call. Blocks for as long as
/// a small file takes.
///
/// # Errors
/// The file cannot be read or written.
pub fn instance(directory: &Path, machine_id: &str) -> Result<String, InstanceError> {
    let path = directory.join(FILE);
    let kept = read_or_make(&path).map_err(|source| InstanceError { path: path.clone(), source })?;
    let digest = Sha256::digest(format!("{}\n{machine_id}", kept.trim()));
    Ok(hex::encode(&digest[..8]))
}

fn read_or_make(path: &Path) -> io::Result<String> {
    match std::fs::read_to_string(path) {
        // A file that a power failure truncated is written again.
        Ok(text) if text.trim().len() == 32 => return Ok(text),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("the system has no random numbers"))?;
    let text = hex::encode(bytes);
    write_private(path, format!("{text}\n").as_bytes())?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_keeps_its_name_and_shares_it_with_none() {
        let (one, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let below = one.path().join("cluster");
        let name = instance(&below, "m").expect("made");
        assert_eq!(name.len(), 16);
        assert_eq!(instance(&below, "m").expect("read"), name);
        assert_ne!(instance(&below, "another machine").expect("read"), name);
        assert_ne!(instance(other.path(), "m").expect("made"), name);
        std::fs::write(below.join(FILE), "cut").expect("written");
        assert_ne!(instance(&below, "m").expect("made anew"), name);
        std::fs::write(other.path().join("file"), "").expect("written");
        let error = instance(&other.path().join("file"), "m").expect_err("no directory");
        assert!(error.to_string().contains("/file/instance"), "{error}");
    }
}
