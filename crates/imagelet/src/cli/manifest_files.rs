//! Resolves the values of `-f` to manifests: files, directories, addresses, standard input, as in kubectl. Hidden files are ignored, as in
//! the kubelet: they belong to editors, or to the mechanism of a mounted volume. Reads directories and no manifest. Called by `ensure`,
//! `explain` and `run`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::exit::{Failure, Outcome};

/// Extensions of the files in a directory that count as manifests.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// A source of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ManifestFile {
    Stdin,
    Path(PathBuf),
    /// Address with scheme `http` or `https`.
    Url(String),
}

/// Returns the manifests that the values of `-f` select; those of a directory in the order of their names. Blocks.
pub(super) fn expand(given: &[PathBuf], recursive: bool) -> Outcome<Vec<ManifestFile>> {
    if given.iter().filter(|path| is_stdin(path)).count() > 1 {
        return Err(Failure::usage("-f -: standard input can be read only once"));
    }
    let mut files = Vec::new();
    for path in given {
        if is_stdin(path) {
            files.push(ManifestFile::Stdin);
        } else if let Some((scheme, _)) = url(path) {
            let text = path.to_string_lossy().into_owned();
            if !matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https") {
                return Err(Failure::usage(format!(
                    "-f: addresses are read over http and https, not over {scheme}: fetch the manifest and give the file"
                )));
            }
            files.push(ManifestFile::Url(text));
        } else if path.is_dir() {
            in_directory(path, recursive, &mut files)?;
        } else {
            files.push(ManifestFile::Path(path.clone()));
        }
    }
    Ok(files)
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Splits a value that is no path into scheme and rest.
fn url(path: &Path) -> Option<(&str, &str)> {
    let (scheme, rest) = path.to_str()?.split_once("://")?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    is_scheme.then_some((scheme, rest))
}

fn in_directory(directory: &Path, recursive: bool, files: &mut Vec<ManifestFile>) -> Outcome {
    let before = files.len();
    let mut deeper = false;
    walk(directory, recursive, files, &mut deeper)
        .map_err(|(path, error)| Failure::failed(format!("read {}: {error}", path.display())))?;
    if files.len() > before {
        return Ok(());
    }
    let hint = if deeper && !recursive { "; -R reads the directories below it, too" } else { "" };
    let endings = EXTENSIONS.map(|extension| format!("*.{extension}")).join(", ");
    Err(Failure::failed(format!("read {}: there is no manifest in it ({endings}){hint}", directory.display())))
}

/// Adds the manifests of a directory; links to directories are not followed, so that the walk ends.
fn walk(
    directory: &Path,
    recursive: bool,
    files: &mut Vec<ManifestFile>,
    deeper: &mut bool,
) -> Result<(), (PathBuf, io::Error)> {
    let failed = |error| (directory.to_owned(), error);
    let entries: io::Result<Vec<_>> = fs::read_dir(directory).map_err(failed)?.collect();
    let mut entries = entries.map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            *deeper = true;
            if recursive {
                walk(&path, recursive, files, deeper)?;
            }
        } else if is_manifest(&path) {
            files.push(ManifestFile::Path(path));
        }
    }
    Ok(())
}

/// Returns true if the name is a manifest's and the path is, or links to, a file. A dangling link counts, so that it is reported.
fn is_manifest(path: &Path) -> bool {
    let named = path.extension().is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known));
    named && fs::metadata(path).map_or(true, |metadata| metadata.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(files: &[ManifestFile], root: &Path) -> Vec<String> {
        let shown = |file: &ManifestFile| match file {
            ManifestFile::Stdin => "-".to_owned(),
            ManifestFile::Path(path) => path.strip_prefix(root).unwrap_or(path).display().to_string(),
            ManifestFile::Url(url) => url.clone(),
        };
        files.iter().map(shown).collect()
    }

    #[test]
    fn a_directory_stands_for_its_manifests() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let root = directory.path();
        fs::create_dir_all(root.join("b/c")).expect("made");
        fs::create_dir_all(root.join("d.yaml")).expect("made");
        fs::create_dir_all(root.join("empty")).expect("made");
        for name in
            ["z.yaml", "a.yml", "m.json", "notes.txt", ".hidden.yaml", "b/b.yaml", "b/c/c.yaml", "d.yaml/x.yaml"]
        {
            fs::write(root.join(name), "").expect("written");
        }
        std::os::unix::fs::symlink(root, root.join("b/loop")).expect("linked");
        std::os::unix::fs::symlink("nowhere", root.join("n.yaml")).expect("linked");
        let given = [root.to_owned()];
        let flat = expand(&given, false).expect("expanded");
        assert_eq!(names(&flat, root), ["a.yml", "m.json", "n.yaml", "z.yaml"]);
        let deep = expand(&given, true).expect("expanded");
        let want = ["a.yml", "b/b.yaml", "b/c/c.yaml", "d.yaml/x.yaml", "m.json", "n.yaml", "z.yaml"];
        assert_eq!(names(&deep, root), want);
        for (name, hint) in [("b/c", None), ("empty", Some("")), ("b", None)] {
            match (expand(&[root.join(name)], false), hint) {
                (Ok(_), None) => {}
                (Err(failure), Some(hint)) => {
                    let line = &failure.lines()[0];
                    assert!(
                        line.ends_with(&format!("there is no manifest in it (*.yaml, *.yml, *.json){hint}")),
                        "{line}"
                    );
                }
                (other, _) => panic!("{name}: {other:?}"),
            }
        }
        fs::remove_file(root.join("b/b.yaml")).expect("removed");
        let line = expand(&[root.join("b")], false).expect_err("refused").lines()[0].clone();
        assert!(line.ends_with("; -R reads the directories below it, too"), "{line}");
    }

    #[test]
    fn other_values_are_taken_as_they_are() {
        let given = ["-", "https://x/y.yaml", "HTTP://x", "nowhere.yaml", "a://b c"].map(PathBuf::from);
        let files = expand(&given[..4], false).expect("expanded");
        assert_eq!(names(&files, Path::new("/")), ["-", "https://x/y.yaml", "HTTP://x", "nowhere.yaml"]);
        for (given, want) in [(["-", "-"], "only once"), (["s3://bucket/x.yaml", "a"], "not over s3")] {
            let failure = expand(&given.map(PathBuf::from), false).expect_err("refused");
            assert!(failure.lines()[0].contains(want) && failure.code() == crate::exit::Code::Usage);
        }
    }
}
