//! The overlay mounts of all processes, with their lower directories, from `/proc/<pid>/mountinfo` (proc(5)): a container has a
//! table of mounts of its own. Called by code whose directories may be part of an overlay.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use crate::mount::unescape;

/// An overlay mount.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OverlayMount {
    /// Mount point, as its own process sees it.
    pub target: PathBuf,
    /// Lower directories as they were given to the kernel, the topmost first.
    pub lower: Vec<PathBuf>,
}

/// The overlay mounts of every mount namespace that this process may see, each once. A process that ends meanwhile is left out.
///
/// # Errors
/// `/proc` cannot be listed.
pub fn overlay_mounts() -> io::Result<BTreeSet<OverlayMount>> {
    let (mut namespaces, mut found) = (BTreeSet::new(), BTreeSet::new());
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        if !entry.file_name().to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
            continue;
        }
        // One that cannot be named is read all the same.
        let is_new =
            std::fs::read_link(entry.path().join("ns/mnt")).map_or(true, |namespace| namespaces.insert(namespace));
        if is_new && let Ok(table) = std::fs::read(entry.path().join("mountinfo")) {
            found.extend(table.split(|byte| *byte == b'\n').filter_map(parse));
        }
    }
    Ok(found)
}

/// `51 46 0:49 / /merged rw,relatime - overlay overlay rw,lowerdir=/a:/b,upperdir=/c,workdir=/d`; newer programs give each directory
/// by itself: `lowerdir+=/a,lowerdir+=/b`.
fn parse(line: &[u8]) -> Option<OverlayMount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let target = path(fields.nth(4)?);
    let mut after = fields.skip_while(|field| *field != b"-").skip(1);
    if after.next()? != b"overlay" {
        return None;
    }
    let mut lower = Vec::new();
    for option in after.nth(1)?.split(|byte| *byte == b',') {
        if let Some(directories) = option.strip_prefix(b"lowerdir=") {
            lower.extend(directories.split(|byte| *byte == b':').filter(|directory| !directory.is_empty()).map(path));
        } else if let Some(directory) = option.strip_prefix(b"lowerdir+=") {
            lower.push(path(directory));
        }
    }
    Some(OverlayMount { target, lower })
}

fn path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(field)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let overlay = |target: &str, lower: &[&str]| {
            Some(OverlayMount { target: target.into(), lower: lower.iter().map(PathBuf::from).collect() })
        };
        let cases: [(&[u8], Option<OverlayMount>); 6] = [
            (
                b"51 46 0:49 / /m rw,relatime shared:1 - overlay overlay rw,lowerdir=/a:/b,upperdir=/c,workdir=/d,uuid=on",
                overlay("/m", &["/a", "/b"]),
            ),
            (b"51 46 0:49 / /m rw - overlay imagelet ro,lowerdir+=/a,lowerdir+=/b\\040c", overlay("/m", &["/a", "/b c"])),
            (b"51 46 0:49 / /m\\040x rw - overlay x rw,lowerdir=/a::/b", overlay("/m x", &["/a", "/b"])),
            (b"51 46 0:49 / /m rw - ext4 /dev/sda rw,lowerdir=/a", None),
            (b"51 46 0:49 / /m rw", None),
            (b"", None),
        ];
        for (line, want) in cases {
            assert_eq!(parse(line), want, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn mounts_of_this_machine_are_parsed() {
        overlay_mounts().unwrap();
    }
}
