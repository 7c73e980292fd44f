//! Paths in a layer or an image: names joined by slashes, none in front. Views make them, and layers are asked by them.

use crate::tar::shown;

/// The names of a path, the first one last.
pub(super) fn parts_of(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|b| *b == b'/').rev().filter(|part| !matches!(*part, b"" | b".")).map(<[u8]>::to_vec).collect()
}

/// A name in a directory.
pub(super) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

pub(super) fn shown_path(path: &[u8]) -> String {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    format!("/{}", shown(path))
}
