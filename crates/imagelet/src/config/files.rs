//! The configuration's own files: the named or the default one, and the directory of drop-ins next to it, as the kubelet's `--config-dir`.
//! Reads them; knows no setting. Called by [`super::Config::load`].

use std::path::{Path, PathBuf};

use super::document::Document;
use super::error::ConfigError;

/// Group and version of the configuration file.
pub(crate) const API_VERSION: &str = "imagelet.dev/v1alpha1";
/// Kind of the configuration file.
pub(crate) const KIND: &str = "ImageletConfiguration";
/// The default configuration file, which is read if it exists.
const DEFAULT_FILE: &str = "/etc/imagelet/config.yaml";

/// Extensions of drop-ins: those of YAML, and the kubelet's.
const ENDINGS: [&str; 3] = ["yaml", "yml", "conf"];

/// The files that the command line names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedFiles {
    /// `None`: the default file, if it exists.
    pub(crate) file: Option<PathBuf>,
    /// Directory of drop-ins. `None`: the directory with the file's name and `.d`, if it exists.
    pub(crate) directory: Option<PathBuf>,
}

impl NamedFiles {
    /// Creates the names of this file, and the drop-ins next to it.
    #[cfg(test)]
    pub(crate) fn of(file: &Path) -> Self {
        Self { file: Some(file.to_owned()), directory: None }
    }

    /// Returns the documents in increasing order of precedence, and appends errors to `errors`.
    pub(super) fn read(&self, notes: &mut Vec<String>, errors: &mut Vec<ConfigError>) -> Vec<Document> {
        let default = Path::new(DEFAULT_FILE);
        let file = self.file.as_deref().unwrap_or(default);
        let mut paths = Vec::new();
        // A path that cannot be examined fails when it is read.
        if self.file.is_some() || file.try_exists().unwrap_or(true) {
            paths.push(file.to_owned());
        }
        let mut drop_in_directory = file.as_os_str().to_owned();
        drop_in_directory.push(".d");
        let directory = self.directory.clone().unwrap_or_else(|| PathBuf::from(drop_in_directory));
        if self.directory.is_some() || directory.try_exists().unwrap_or(true) {
            match drop_ins(&directory, notes) {
                Ok(found) => paths.extend(found),
                Err(error) => errors.push(ConfigError::Read { path: directory, message: error.to_string() }),
            }
        }
        let mut documents = Vec::new();
        for path in paths {
            match Document::read(&path, API_VERSION, KIND) {
                Ok(document) => documents.push(document),
                Err(error) => errors.push(error),
            }
        }
        documents
    }
}

/// Returns the drop-ins of a directory in the order of their names, and notes the files that are ignored.
fn drop_ins(directory: &Path, notes: &mut Vec<String>) -> std::io::Result<Vec<PathBuf>> {
    let (mut paths, mut others) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        match (name.starts_with('.'), ENDINGS.contains(&ending)) {
            (true, _) => {}
            (false, true) => paths.push(path),
            (false, false) => others.push(name),
        }
    }
    paths.sort();
    others.sort();
    if !others.is_empty() {
        let (directory, names) = (directory.display(), others.join(", "));
        notes.push(format!("{directory}: passed over, as these names end neither in .yaml, .yml nor .conf: {names}"));
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_ins_come_in_the_order_of_their_names() {
        let directory = tempfile::tempdir().expect("a directory");
        for name in ["20-b.conf", "10-a.yaml", "9.yml", ".hidden.yaml", "README", "10-a.yaml.bak"] {
            std::fs::write(directory.path().join(name), "").expect("written");
        }
        let mut notes = Vec::new();
        let paths = drop_ins(directory.path(), &mut notes).expect("read");
        let names: Vec<_> = paths.iter().map(|path| path.file_name().expect("a name").to_string_lossy()).collect();
        assert_eq!(names, ["10-a.yaml", "20-b.conf", "9.yml"]);
        assert!(notes[0].ends_with("nor .conf: 10-a.yaml.bak, README"), "{notes:?}");
    }
}
