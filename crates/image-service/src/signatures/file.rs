//! [`PolicyFile`]: the policy and the keys that it names, as they lie on the disk. They are read again when one of the files
//! has changed, so that a new key counts at once; a policy that cannot be read any more is an error for every image, and never
//! replaced by what stood there before. Called by the guard, on threads that may block.

use base::lock::Mutex;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::FileIdentity;
use cri_api::Result;
use signature::Policy;

use crate::error;

/// Larger files are refused.
const MAX_FILE: u64 = 1 << 20;

/// See the file's head.
pub(crate) struct PolicyFile {
    path: PathBuf,
    /// Contents as they were read last.
    read: Mutex<PolicyContents>,
}

struct PolicyContents {
    policy: Arc<Policy>,
    /// The files that it was made of.
    files: Vec<(PathBuf, FileIdentity)>,
}

impl PolicyFile {
    /// Reads a policy.
    ///
    /// # Errors
    /// The fault of the file, with its name.
    pub(crate) fn open(path: &Path) -> std::result::Result<Self, String> {
        let contents = read(path).map_err(|why| format!("{}: {why}", path.display()))?;
        Ok(Self { path: path.to_owned(), read: Mutex::new(contents) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The policy as it is now.
    pub(crate) fn current(&self) -> Result<Arc<Policy>> {
        let mut contents = self.read.lock();
        let is_same = |(path, seen): &(PathBuf, FileIdentity)| {
            std::fs::metadata(path).is_ok_and(|found| FileIdentity::from(&found) == *seen)
        };
        if !contents.files.iter().all(is_same) {
            *contents = read(&self.path)
                .map_err(|why| error::signature(format!("signature policy {}: {why}", self.path.display())))?;
            tracing::info!(policy = %self.path.display(), "signature policy has changed: read it again");
        }
        Ok(Arc::clone(&contents.policy))
    }
}

fn read(path: &Path) -> std::result::Result<PolicyContents, String> {
    let mut files = Vec::new();
    let text = contents(path, &mut files).map_err(|error| error.to_string())?;
    let read_key = &mut |key: &str| contents(Path::new(key), &mut files).map_err(|error| error.to_string());
    let policy = Policy::parse(&text, read_key).map_err(|error| error.to_string())?;
    Ok(PolicyContents { policy: Arc::new(policy), files })
}

fn contents(path: &Path, files: &mut Vec<(PathBuf, FileIdentity)>) -> io::Result<Vec<u8>> {
    // Not opened before it is known to be a file: a pipe would not answer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
    }
    let file = File::open(path)?;
    files.push((path.to_owned(), FileIdentity::from(&file.metadata()?)));
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {MAX_FILE} bytes")));
    }
    Ok(bytes)
}
