//! [`AuthFile`]: a person's file of credentials, podman's `auth.json` or docker's `config.json`, as `login` and `logout` change
//! it. All other members stay as they are; the file is replaced as a whole, and is for its owner alone. Secrets go into the
//! file and nowhere else. Its calls block.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oci::Secret;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use crate::DockerConfigError;
use crate::docker_config::DockerConfig;
use crate::pattern::Pattern;

/// The default registry, as docker names it in its files and to its helpers.
const DOCKER_SERVER: &str = "https://index.docker.io/v1/";
const DOCKER_HOST: &str = "docker.io";
/// Larger files are not read.
const MAX_FILE: u64 = 16 << 20;

/// The program whose file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthFileKind {
    /// podman's, skopeo's and buildah's `auth.json`.
    Containers,
    /// docker's `config.json`.
    Docker,
}

/// A person's file of credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthFile {
    /// The file, which may not be there yet.
    pub path: PathBuf,
    /// Whose form it has.
    pub kind: AuthFileKind,
}

/// Why a file of credentials cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum AuthFileError {
    /// The file or its directory cannot be read or written.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is no docker configuration.
    #[error("file {}: {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Description of the error; quotes nothing.
        problem: DockerConfigError,
    },
    /// The file has another shape than a docker configuration.
    #[error("file {} is not a JSON object", path.display())]
    Shape {
        /// The file.
        path: PathBuf,
    },
}

impl AuthFile {
    /// Puts a credential under a location (`host` or `host/path`), in place of the one that it has.
    ///
    /// # Errors
    /// See [`AuthFileError`]; the file is then as it was.
    pub fn store(&self, location: &str, user: &str, password: &Secret) -> Result<(), AuthFileError> {
        let text = Zeroizing::new(format!("{user}:{}", password.expose()));
        let auth = Zeroizing::new(STANDARD.encode(text.as_bytes()));
        self.put(location, json!({ "auth": auth.as_str() }))
    }

    /// Notes that a helper has the credential of a location, as docker does.
    ///
    /// # Errors
    /// See [`AuthFileError`]; the file is then as it was.
    pub fn note_helper(&self, location: &str) -> Result<(), AuthFileError> {
        self.put(location, json!({}))
    }

    fn put(&self, location: &str, entry: Value) -> Result<(), AuthFileError> {
        let mut config = self.read()?;
        self.take(&mut config, location)?;
        self.auths(&mut config)?.insert(self.key(location), entry);
        self.write(&config)
    }

    /// Removes what is under a location. Returns false if there was nothing.
    ///
    /// # Errors
    /// See [`AuthFileError`]; the file is then as it was.
    pub fn remove(&self, location: &str) -> Result<bool, AuthFileError> {
        let mut config = self.read()?;
        let removed = self.take(&mut config, location)?;
        if removed {
            self.write(&config)?;
        }
        Ok(removed)
    }

    /// Removes every credential. Returns the locations that had one.
    ///
    /// # Errors
    /// See [`AuthFileError`]; the file is then as it was.
    pub fn remove_all(&self) -> Result<Vec<String>, AuthFileError> {
        let mut config = self.read()?;
        let auths = self.auths(&mut config)?;
        let locations: Vec<String> = auths.keys().cloned().collect();
        if !locations.is_empty() {
            auths.clear();
            self.write(&config)?;
        }
        Ok(locations)
    }

    /// The user of the credential under a location; `None` where there is none. An identity token has an empty user.
    ///
    /// # Errors
    /// See [`AuthFileError`].
    pub fn user(&self, location: &str) -> Result<Option<String>, AuthFileError> {
        let config = self.parsed()?;
        let found = config.auths.into_iter().find(|(key, entry)| is_same(key, location) && !entry.auth.is_anonymous());
        Ok(found.map(|(_, entry)| entry.auth.user_and_password().map_or_else(String::new, |(user, _)| user)))
    }

    /// The helper that has the credential of a location, by `credHelpers` and `credsStore`.
    ///
    /// # Errors
    /// See [`AuthFileError`].
    pub fn helper(&self, location: &str) -> Result<Option<String>, AuthFileError> {
        let DockerConfig { helpers, store, .. } = self.parsed()?;
        let host = location.split('/').next().unwrap_or(location);
        let own = helpers.into_iter().find(|(key, _)| is_same(key, host)).map(|(_, helper)| helper);
        Ok(own.or(store).filter(|helper| !helper.is_empty()))
    }

    /// The locations of all entries, those without a credential included.
    ///
    /// # Errors
    /// See [`AuthFileError`].
    pub fn locations(&self) -> Result<Vec<String>, AuthFileError> {
        Ok(self.parsed()?.auths.into_iter().map(|(location, _)| location).collect())
    }

    /// The key of a location in this file.
    fn key(&self, location: &str) -> String {
        match self.kind {
            AuthFileKind::Docker => server(location),
            AuthFileKind::Containers => location.to_owned(),
        }
    }

    /// Takes the entries of a location out, in every spelling.
    fn take(&self, config: &mut Map<String, Value>, location: &str) -> Result<bool, AuthFileError> {
        let auths = self.auths(config)?;
        let before = auths.len();
        auths.retain(|key, _| !is_same(key, location));
        Ok(auths.len() < before)
    }

    /// The member `auths`, which is made where it is missing.
    fn auths<'c>(&self, config: &'c mut Map<String, Value>) -> Result<&'c mut Map<String, Value>, AuthFileError> {
        let auths = config.entry("auths").or_insert_with(|| json!({}));
        if auths.is_null() {
            *auths = json!({});
        }
        auths.as_object_mut().ok_or_else(|| AuthFileError::Shape { path: self.path.clone() })
    }

    fn parsed(&self) -> Result<DockerConfig, AuthFileError> {
        let Some(text) = self.text()? else { return Ok(DockerConfig::default()) };
        DockerConfig::parse(&text).map_err(|problem| AuthFileError::Content { path: self.path.clone(), problem })
    }

    fn read(&self) -> Result<Map<String, Value>, AuthFileError> {
        let Some(text) = self.text()? else { return Ok(Map::new()) };
        // Do not overwrite a file that cannot be parsed.
        DockerConfig::parse(&text).map_err(|problem| AuthFileError::Content { path: self.path.clone(), problem })?;
        match serde_json::from_slice(&text) {
            Ok(Value::Object(config)) => Ok(config),
            _ => Err(AuthFileError::Shape { path: self.path.clone() }),
        }
    }

    /// The text of the file; `None` where there is none, or an empty one.
    fn text(&self) -> Result<Option<Zeroizing<Vec<u8>>>, AuthFileError> {
        let failed = |source| AuthFileError::Io { action: "read", path: self.path.clone(), source };
        let metadata = match fs::metadata(&self.path) {
            Ok(metadata) => metadata,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(failed(error)),
        };
        if !metadata.is_file() {
            return Err(failed(io::Error::other("it is not a regular file")));
        }
        if metadata.len() > MAX_FILE {
            return Err(failed(io::Error::other(format!("it is larger than {MAX_FILE} bytes"))));
        }
        let text = Zeroizing::new(fs::read(&self.path).map_err(failed)?);
        Ok(Some(text).filter(|text| !text.trim_ascii().is_empty()))
    }

    /// Replaces the file; a symbolic link leads to it.
    fn write(&self, config: &Map<String, Value>) -> Result<(), AuthFileError> {
        let failed = |source| AuthFileError::Io { action: "write", path: self.path.clone(), source };
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        let mut text = Zeroizing::new(serde_json::to_vec_pretty(config).map_err(|e| failed(io::Error::other(e)))?);
        text.push(b'\n');
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let draft = directory.join(format!(".{name}.{}", std::process::id()));
        let written = write_draft(&draft, &text)
            .and_then(|()| fs::rename(&draft, &path))
            .and_then(|()| File::open(directory)?.sync_all());
        written.map_err(|error| {
            // The draft may be what could not be made.
            let _ = fs::remove_file(&draft);
            failed(error)
        })
    }
}

fn write_draft(draft: &Path, text: &[u8]) -> io::Result<()> {
    // A leftover of a killed process with the same number.
    match fs::remove_file(draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
    file.write_all(text)?;
    file.sync_all()
}

/// The name under which helpers, and docker's file, know a location.
#[must_use]
pub fn server(location: &str) -> String {
    if location == DOCKER_HOST { DOCKER_SERVER.to_owned() } else { location.to_owned() }
}

/// Returns true if a key of a file is for this very location.
fn is_same(key: &str, location: &str) -> bool {
    let normal = |text: &str| {
        let pattern = Pattern::location(text).ok()?;
        let (authority, path) = (pattern.authority(), pattern.path().trim_end_matches('/'));
        let authority = if authority == "index.docker.io" { DOCKER_HOST } else { authority };
        Some((authority.to_owned(), path.to_owned()))
    };
    key == location || normal(key).is_some_and(|key| normal(location) == Some(key))
}

#[cfg(test)]
#[path = "auth_file_tests.rs"]
mod tests;
