//! Identifies this program's mounts among all of the node by the source that they name. The mounter asks before it mounts and
//! unmounts.

use std::ffi::OsStr;
use std::path::Path;

use base::mount::Mount;

/// The source that our mounts name, which distinguishes them from other mounts.
pub(crate) const SOURCE: &str = "imagelet";

/// Returns true if this store's program made the mount.
pub(crate) fn is_ours(mount: &Mount) -> bool {
    let is_composed = mount.kind == "erofs" && Path::new(&mount.source).file_name() == Some(OsStr::new(SOURCE));
    is_composed || mount.source == SOURCE && (matches!(mount.kind.as_str(), "overlay" | "tmpfs") || is_fuse(mount))
}

/// Returns true if a process serves it.
pub(crate) fn is_fuse(mount: &Mount) -> bool {
    mount.kind == "fuse" || mount.kind.starts_with("fuse.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_ours() {
        let cases = [
            ("ext3", "/dev/root", false),
            ("overlay", "imagelet", true),
            ("tmpfs", "imagelet", true),
            ("fuse", "imagelet", true),
            ("fuse.erofs", "imagelet", true),
            ("ext4", "imagelet", false),
            ("overlay", "overlay", false),
            ("erofs", "/a/3/imagelet", true),
            ("erofs", "/a/imagelet/3", false),
            ("ext4", "/a/3/imagelet", false),
        ];
        for (kind, source, want) in cases {
            let mount =
                Mount { id: 40, target: "/x".into(), kind: kind.into(), source: source.into(), is_shared: false };
            assert_eq!(is_ours(&mount), want, "{kind} {source}");
        }
    }
}
