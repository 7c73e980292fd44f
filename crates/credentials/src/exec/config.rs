//! [`read`]: reads the kubelet's CredentialProviderConfig from a file or a directory of files, decodes it strictly and
//! merges it; [`super::validate`] checks its values. Called by [`super::Providers::load`].

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::decode::{ProviderConfig, decode};
use super::options::ParseYaml;

/// The largest file that is read.
const MAX_BYTES: u64 = 8 << 20;
/// Endings of the files of a directory that are read.
const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];

/// Reads the configuration at `path`, and returns it with the hash of its files.
pub(super) fn read(path: &Path, yaml: &ParseYaml) -> Result<(Vec<ProviderConfig>, String), String> {
    if path.as_os_str().is_empty() {
        return Err("credential provider config path is empty".to_owned());
    }
    let shown = path.display();
    let is_directory = fs::metadata(path).map_err(|e| format!("unable to access path \"{shown}\": {e}"))?.is_dir();
    let files = if is_directory {
        let files = list(path).map_err(|e| format!("unable to read directory \"{shown}\": {e}"))?;
        if files.is_empty() {
            return Err(format!("no configuration files found in directory \"{shown}\""));
        }
        files
    } else {
        vec![path.to_owned()]
    };

    let mut hash = Sha256::new();
    let mut merged: Vec<ProviderConfig> = Vec::new();
    for file in files {
        let shown = file.display();
        let bytes = contents(&file).map_err(|e| format!("unable to read file \"{shown}\": {e}"))?;
        hash.update(u64::try_from(bytes.len()).expect("a length fits").to_be_bytes());
        hash.update(&bytes);
        let document = parse(bytes, yaml).map_err(|e| format!("error decoding config \"{shown}\": {e}"))?;
        let config = decode(&document).map_err(|e| format!("error decoding config \"{shown}\": {e}"))?;
        for provider in config {
            if merged.iter().any(|p| p.name == provider.name) {
                return Err(format!("duplicate provider name {:?} found in configuration file(s)", provider.name));
            }
            merged.push(provider);
        }
    }
    Ok((merged, format!("sha256:{}", hex::encode(hash.finalize()))))
}

/// The files of a directory that count, in the order of their names.
fn list(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        let counts = path.extension().is_some_and(|e| EXTENSIONS.iter().any(|known| e == *known));
        // A link to a file counts, as config maps have them; a directory does not.
        if counts && !fs::metadata(&path)?.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn contents(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(file)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(std::io::Error::other(format!("it is larger than {MAX_BYTES} bytes")));
    }
    Ok(bytes)
}

fn parse(bytes: Vec<u8>, yaml: &ParseYaml) -> Result<Value, String> {
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    yaml(&text)
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
