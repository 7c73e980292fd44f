//! Names of entries: cleaned like Go's `path.Clean`, held against the limits, and sorted into what they mean. Pure.

use crate::tar::{Limits, TarError, shown};

use super::error::{UnpackError, refused};

/// The meaning of an entry's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The root directory itself.
    Root,
    /// A thing of that name.
    Thing,
    /// `.wh.NAME`: hides NAME in the layers below.
    Whiteout,
    /// `.wh..wh..opq`: its directory hides that of the layers below.
    Opaque,
    /// `.wh..wh.plnk/NAME`: where aufs keeps files that have several names. Hard links may refer to it.
    LinkTarget,
    /// Other `.wh..wh.…`: what aufs keeps for itself.
    Ignored,
}

/// A clean name.
#[derive(Debug, Default)]
pub(super) struct Name {
    /// Components joined by single slashes, none at the ends.
    path: Vec<u8>,
    /// Where the last component begins.
    leaf: usize,
}

const PREFIX: &[u8] = b".wh.";
const META: &[u8] = b".wh..wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// The directory in the root of a layer in which aufs keeps files that have several names.
pub(super) const LINK_DIRECTORY: &[u8] = b".wh..wh.plnk";

impl Name {
    /// Cleans `raw` into this value, whose buffer is used again.
    pub(super) fn set(&mut self, raw: &[u8], limits: &Limits) -> Result<Meaning, UnpackError> {
        self.path.clear();
        self.leaf = 0;
        if raw.contains(&0) {
            return Err(refused(raw, "its name has a NUL byte"));
        }
        let mut depth = 0_usize;
        for part in raw.split(|b| *b == b'/') {
            match part {
                b"" | b"." => {}
                b".." => {
                    if depth == 0 {
                        return Err(refused(raw, "its name leads out of the layer"));
                    }
                    depth -= 1;
                    self.path.truncate(self.path.iter().rposition(|b| *b == b'/').unwrap_or(0));
                }
                _ => {
                    hold(raw, "bytes in a name", part.len(), limits.name_bytes)?;
                    if !self.path.is_empty() {
                        self.path.push(b'/');
                    }
                    self.path.extend_from_slice(part);
                    depth += 1;
                }
            }
        }
        hold(raw, "bytes in its path", self.path.len(), limits.path_bytes)?;
        hold(raw, "components in its path", depth, limits.path_depth)?;
        self.leaf = self.path.iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1);
        self.meaning(raw)
    }

    fn meaning(&self, raw: &[u8]) -> Result<Meaning, UnpackError> {
        if self.path.is_empty() {
            return Ok(Meaning::Root);
        }
        if self.parent() == LINK_DIRECTORY {
            return Ok(Meaning::LinkTarget);
        }
        for part in self.parent().split(|b| *b == b'/') {
            if part.starts_with(META) {
                return Ok(Meaning::Ignored);
            }
            if part.starts_with(PREFIX) {
                return Err(refused(raw, "it lies below a whiteout"));
            }
        }
        let leaf = self.leaf();
        if leaf == OPAQUE {
            return Ok(Meaning::Opaque);
        }
        if leaf.starts_with(META) {
            return Ok(Meaning::Ignored);
        }
        match leaf.strip_prefix(PREFIX) {
            None => Ok(Meaning::Thing),
            Some(b"") => Err(refused(raw, "the whiteout names nothing")),
            Some(b"." | b"..") => Err(refused(raw, "the whiteout leads out of its directory")),
            Some(_) => Ok(Meaning::Whiteout),
        }
    }

    /// The directory; empty = the root.
    pub(super) fn parent(&self) -> &[u8] {
        &self.path[..self.leaf.saturating_sub(1)]
    }

    /// The last component.
    pub(super) fn leaf(&self) -> &[u8] {
        &self.path[self.leaf..]
    }

    /// The name that a whiteout hides.
    pub(super) fn hidden(&self) -> &[u8] {
        let leaf = self.leaf();
        leaf.strip_prefix(PREFIX).unwrap_or(leaf)
    }
}

fn hold(raw: &[u8], limit_name: &'static str, seen: usize, limit: usize) -> Result<(), UnpackError> {
    if seen <= limit {
        return Ok(());
    }
    let subject = format!("layer entry {:?}", shown(raw));
    Err(UnpackError::Archive(TarError::Limit { subject, limit_name, limit: limit as u64, seen: seen as u64 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Meaning, parent, leaf; or the error's text.
    type Got = Result<(Meaning, Vec<u8>, Vec<u8>), String>;

    fn set(raw: &[u8]) -> Got {
        let mut name = Name::default();
        let limits = Limits { path_depth: 5, path_bytes: 40, name_bytes: 20, ..Limits::default() };
        let meaning = name.set(raw, &limits).map_err(|e| e.to_string())?;
        Ok((meaning, name.parent().to_vec(), name.leaf().to_vec()))
    }

    #[test]
    fn names() {
        use Meaning::{Ignored, LinkTarget, Opaque, Root, Thing, Whiteout};
        type Row<'a> = (&'a [u8], Meaning, &'a [u8], &'a [u8]);
        let cases: &[Row<'_>] = &[
            (b"", Root, b"", b""),
            (b".", Root, b"", b""),
            (b"./", Root, b"", b""),
            (b"/", Root, b"", b""),
            (b"a/..", Root, b"", b""),
            (b"a", Thing, b"", b"a"),
            (b"./a/", Thing, b"", b"a"),
            (b"/etc//passwd", Thing, b"etc", b"passwd"),
            (b"a/b/../c/./d", Thing, b"a/c", b"d"),
            (b"a/\xff\xfe", Thing, b"a", b"\xff\xfe"),
            (b"...", Thing, b"", b"..."),
            (b".wh", Thing, b"", b".wh"),
            (b"a/.wh.b", Whiteout, b"a", b".wh.b"),
            (b".wh....", Whiteout, b"", b".wh...."),
            (b".wh..wh..opq", Opaque, b"", b".wh..wh..opq"),
            (b"a/.wh..wh..opq", Opaque, b"a", b".wh..wh..opq"),
            (b"a/.wh..wh.plnk", Ignored, b"a", b".wh..wh.plnk"),
            (b".wh..wh.plnk/1.2", LinkTarget, b".wh..wh.plnk", b"1.2"),
            (b"./x/../.wh..wh.plnk/.wh.1", LinkTarget, b".wh..wh.plnk", b".wh.1"),
            (b".wh..wh.plnk/d/1", Ignored, b".wh..wh.plnk/d", b"1"),
            (b"a/.wh..wh.plnk/1", Ignored, b"a/.wh..wh.plnk", b"1"),
            (b".wh..wh.aufs", Ignored, b"", b".wh..wh.aufs"),
        ];
        for (raw, meaning, parent, leaf) in cases {
            let want = Ok((*meaning, parent.to_vec(), leaf.to_vec()));
            assert_eq!(set(raw), want, "{}", String::from_utf8_lossy(raw));
        }
    }

    #[test]
    fn refused_names() {
        let cases: &[(&[u8], &str)] = &[
            (b"..", "leads out of the layer"),
            (b"../x", "leads out of the layer"),
            (b"/../x", "leads out of the layer"),
            (b"a/../../x", "leads out of the layer"),
            (b"a\0b", "NUL byte"),
            (b".wh.", "names nothing"),
            (b"a/.wh.", "names nothing"),
            (b".wh..", "leads out of its directory"),
            (b".wh...", "leads out of its directory"),
            (b".wh.../x", "below a whiteout"),
            (b".wh.a/b", "below a whiteout"),
            (b"a/b/c/d/e/f", "has 6 components in its path, over the limit of 5"),
            (b"123456789012345678901", "has 21 bytes in a name, over the limit of 20"),
            (b"12345678901234567890/12345678901234567890", "has 41 bytes in its path, over the limit of 40"),
        ];
        for (raw, want) in cases {
            let got = set(raw).expect_err("must be refused");
            assert!(got.contains(want), "{got:?} does not say {want:?}");
        }
    }
}
