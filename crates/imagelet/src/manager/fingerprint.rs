//! A fingerprint of the configuration of a registry's host in the `certs.d` directories. If it changes, a pod that waits after a failed
//! pull is tried again at once, since an administrator may have repaired the configuration. Reads no file's content. Called by the image
//! manager, before a pull.

use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Returns the fingerprint for `domain` (`docker.io`, `127.0.0.1:5000`).
pub(super) fn of(roots: &[PathBuf], domain: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut names = vec![domain.to_owned(), "_default".to_owned()];
    if let Some((host, port)) = domain.rsplit_once(':') {
        names.push(format!("{host}_{port}_"));
    }
    // A parsed domain never contains a path. If one did, it would be ignored.
    if !domain.contains(['/', '\0']) && domain != ".." {
        for directory in roots.iter().flat_map(|root| names.iter().map(|name| root.join(name))) {
            directory.hash(&mut hasher);
            hash_directory(&directory, &mut hasher);
        }
    }
    hasher.finish()
}

/// Hashes the metadata of the directory's files, in the order of their names.
fn hash_directory(directory: &Path, hasher: &mut DefaultHasher) {
    let Ok(entries) = fs::read_dir(directory) else { return hasher.write_u8(0) };
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    for path in files {
        path.hash(hasher);
        match fs::metadata(&path) {
            Ok(metadata) => mark(&metadata).hash(hasher),
            Err(_) => hasher.write_u8(1),
        }
    }
}

fn mark(metadata: &Metadata) -> (u64, u64, u64, i64, i64) {
    (metadata.dev(), metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_changes_with_the_hosts_files_and_with_nothing_else() {
        let root = tempfile::tempdir().expect("temporary directory");
        let roots = [root.path().to_owned(), root.path().join("second")];
        let host = root.path().join("registry.example:5000");
        let now = || of(&roots, "registry.example:5000");
        let mut seen = vec![now()];
        let mut changed = |what: &str| {
            let number = now();
            assert!(!seen.contains(&number), "{what}");
            assert_eq!(now(), number, "{what}: it stays");
            seen.push(number);
        };
        fs::create_dir(&host).expect("made");
        fs::write(host.join("hosts.toml"), "a").expect("written");
        changed("a new file");
        fs::write(host.join("hosts.toml"), "ab").expect("written");
        changed("a longer file");
        fs::write(host.join("ca.crt"), "x").expect("written");
        changed("one more file");
        fs::write(host.join("new"), "ab").expect("written");
        fs::rename(host.join("new"), host.join("hosts.toml")).expect("renamed");
        changed("another file of the same length in its place");
        fs::create_dir_all(root.path().join("second/_default")).expect("made");
        fs::write(root.path().join("second/_default/hosts.toml"), "a").expect("written");
        changed("the file for every host");
        fs::create_dir(root.path().join("registry.example_5000_")).expect("made");
        fs::write(root.path().join("registry.example_5000_/hosts.toml"), "a").expect("written");
        changed("the other spelling");
        let before = now();
        fs::create_dir(root.path().join("other.example")).expect("made");
        fs::write(root.path().join("other.example/hosts.toml"), "a").expect("written");
        assert_eq!(now(), before, "another host");
        assert_eq!(of(&roots, ".."), of(&[], ""), "no way out");
    }
}
