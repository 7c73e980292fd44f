//! The hosts of a registry from `certs.d` directories, as containerd has them: `<root>/<host>/hosts.toml`, or docker's
//! layout of certificates where there is no such file. Read on every pull, so that a changed file counts at once; a file
//! that cannot be used is an error and never passed over. Called by the registry client through its loader.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use registry::{HostsError, Namespace, NamespaceLoader, hosts};

const HOSTS_TOML: &str = "hosts.toml";
const DEFAULT_DIRECTORY: &str = "_default";
/// Larger configuration files are refused.
const MAX_FILE: u64 = 1 << 20;

/// A loader that looks into these directories, first one first.
pub(crate) fn loader(roots: Vec<PathBuf>) -> NamespaceLoader {
    Arc::new(move |domain| load(&roots, domain))
}

/// The hosts for `domain`, in its normal form, by the first directory that exists, or the usual ones.
fn load(roots: &[PathBuf], domain: &str) -> Result<Namespace, HostsError> {
    // Also the check that the domain has no path in it.
    let defaults = Namespace::default_for(domain)?;
    for root in roots {
        for name in names(domain) {
            let directory = root.join(name);
            if is_directory(&directory)? {
                return from_directory(&directory, domain, defaults);
            }
        }
        if let Some(directory) = in_another_spelling(root, domain)? {
            return from_directory(&directory, domain, defaults);
        }
        let directory = root.join(DEFAULT_DIRECTORY);
        if is_directory(&directory)? {
            return from_directory(&directory, domain, defaults);
        }
    }
    Ok(defaults)
}

/// Returns false for what is no directory, as if it were not there.
fn is_directory(path: &Path) -> Result<bool, HostsError> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(metadata.is_dir()),
        Err(error) if is_absence(&error) => Ok(false),
        Err(error) => Err(unreadable(path, error)),
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The directory names for a domain, in the order in which they are tried.
fn names(domain: &str) -> Vec<String> {
    let mut names = Vec::with_capacity(2);
    let port = domain.rsplit_once(':').filter(|(_, port)| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
    if let Some((host, port)) = port {
        // For file systems that cannot have a colon in a name.
        names.push(format!("{host}_{port}_"));
    }
    names.push(domain.to_owned());
    names
}

/// The directory whose name is another spelling of the domain: `Docker.io`, `r.example:443`, `r.example_443_`.
fn in_another_spelling(root: &Path, domain: &str) -> Result<Option<PathBuf>, HostsError> {
    let entries = match std::fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if is_absence(&error) => return Ok(None),
        Err(error) => return Err(unreadable(root, error)),
    };
    let mut found: Option<PathBuf> = None;
    for entry in entries {
        let entry = entry.map_err(|error| unreadable(root, error))?;
        if !entry.file_name().to_str().is_some_and(|name| is_spelling(name, domain)) || !is_directory(&entry.path())? {
            continue;
        }
        if let Some(other) = found.replace(entry.path()) {
            let message = format!("{} is for the same registry, {domain}", other.display());
            return Err(unreadable(&entry.path(), io::Error::new(io::ErrorKind::InvalidInput, message)));
        }
    }
    Ok(found)
}

/// Returns true if a directory of this name is for the domain.
fn is_spelling(name: &str, domain: &str) -> bool {
    let with_port = name.strip_suffix('_').and_then(|name| name.rsplit_once('_'));
    let name = with_port.map_or_else(|| name.to_owned(), |(host, port)| format!("{host}:{port}"));
    oci::normal_host(&name).is_ok_and(|normal| match &*normal {
        "index.docker.io" => domain == "docker.io",
        normal => normal == domain,
    })
}

fn from_directory(directory: &Path, domain: &str, defaults: Namespace) -> Result<Namespace, HostsError> {
    let file = directory.join(HOSTS_TOML);
    let text = match read(&file) {
        // As for containerd.
        Ok(bytes) if bytes.is_empty() => return docker_layout(directory, defaults),
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return docker_layout(directory, defaults),
        Err(error) => return Err(unreadable(&file, error)),
    };
    let text = String::from_utf8(text)
        .map_err(|_| unreadable(&file, io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text")))?;
    hosts::parse(&text)
        .and_then(|hosts| hosts.into_namespace(domain, &mut |path| read(&directory.join(path))))
        .map_err(|error| error.in_file(file.display().to_string()))
}

/// Docker's layout: `*.crt` are authorities, `NAME.cert` and `NAME.key` are a client's certificate and key.
fn docker_layout(directory: &Path, mut namespace: Namespace) -> Result<Namespace, HostsError> {
    let entries = std::fs::read_dir(directory)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<PathBuf>>>());
    let mut entries = entries.map_err(|error| unreadable(directory, error))?;
    entries.sort();
    let contents = |path: &Path| read(path).map_err(|error| unreadable(path, error));
    for path in &entries {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        let counterpart = |other: &str| {
            let path = path.with_extension(other);
            if path.is_file() {
                return Ok(path);
            }
            let message = format!("there is no {} next to it", path.file_name().unwrap_or_default().display());
            Err(io::Error::new(io::ErrorKind::NotFound, message))
        };
        match extension {
            "crt" => {
                let pem = contents(path)?;
                namespace.hosts.iter_mut().for_each(|host| host.tls.ca_pem.push(pem.clone()));
            }
            "cert" => {
                let key = counterpart("key").map_err(|error| unreadable(path, error))?;
                let pair = (contents(path)?, contents(&key)?);
                namespace.hosts.iter_mut().for_each(|host| host.tls.client_identity_pem.push(pair.clone()));
            }
            "key" => {
                counterpart("cert").map_err(|error| unreadable(path, error))?;
            }
            _ => {}
        }
    }
    Ok(namespace)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
    }
    if metadata.len() > MAX_FILE {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {MAX_FILE} bytes")));
    }
    std::fs::read(path)
}

fn unreadable(path: &Path, source: io::Error) -> HostsError {
    HostsError::Read { path: path.display().to_string(), source }
}

#[cfg(test)]
#[path = "certs_d_tests.rs"]
mod tests;
