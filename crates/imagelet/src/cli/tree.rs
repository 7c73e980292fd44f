//! Opens the file tree of an image or a layer within the store, while its layers are leased. Displays and writes nothing.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use cri_api::engine::LayerLease;
use store::view::{Kind, Stack, Stat, View, ViewError};

use crate::app::App;
use crate::exit::{Code, Failure, Outcome, chain};

/// A file of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileName {
    pub(super) image: String,
    pub(super) path: Vec<u8>,
}

impl FileName {
    /// Splits `IMAGE:PATH`. An image's name may contain colons, but none directly before a slash. Returns `None` if there is no path.
    pub(super) fn split(text: &OsStr) -> Option<Self> {
        let bytes = text.as_bytes();
        // If the path has no leading slash, the last colon is used.
        let colon = absolute_path(bytes).or_else(|| bytes.iter().rposition(|byte| *byte == b':'));
        Self::at(bytes, colon?)
    }

    /// Splits `IMAGE:/PATH`. Returns `None` for an image without a path: `busybox:1` has a tag.
    pub(super) fn split_absolute(text: &OsStr) -> Option<Self> {
        Self::at(text.as_bytes(), absolute_path(text.as_bytes())?)
    }

    /// Returns the file of an image and a path that are words of their own.
    pub(super) fn of_words(image: &OsStr, path: &OsStr) -> Outcome<Self> {
        Ok(Self { image: image_name(image)?, path: path.as_bytes().to_vec() })
    }

    fn at(text: &[u8], colon: usize) -> Option<Self> {
        let (image, path) = text.split_at_checked(colon).filter(|(image, path)| !image.is_empty() && path.len() > 1)?;
        Some(Self { image: std::str::from_utf8(image).ok()?.to_owned(), path: path[1..].to_vec() })
    }
}

fn absolute_path(text: &[u8]) -> Option<usize> {
    text.windows(2).position(|pair| pair == b":/")
}

/// Returns the name of an image, which is no path.
pub(super) fn image_name(text: &OsStr) -> Outcome<String> {
    let usage = |why: &str| Failure::usage(format!("{}: {why}", text.display()));
    if FileName::split_absolute(text).is_some() {
        return Err(usage("a path follows the image both after `:` and as the next word: use one of them"));
    }
    text.to_str().map(str::to_owned).ok_or_else(|| usage("an image name is UTF-8 text"))
}

/// An open tree. The lease keeps its layers from being removed.
pub(super) struct Tree {
    pub(super) view: View,
    _lease: LayerLease,
}

/// Opens the tree of an image, by name or id, or of a layer, by its digest. `command` is for messages.
pub(super) async fn open(app: &App, command: &str, text: &str) -> Outcome<Tree> {
    let engine = app.engine(command).await?;
    let lease = engine.lease_layers(text).await.map_err(|error| Failure::call(command, &error))?;
    let stack: Stack = serde_json::from_value(lease.stack().clone())
        .map_err(|error| Failure::caused(Code::Failed, format!("{command}: understand its layers"), &error))?;
    let (root, shown) = (lease.root().to_owned(), command.to_owned());
    let view = blocking(command, move || View::open(&root, &stack).map_err(|error| failure(shown, &error)));
    Ok(Tree { view: view.await?, _lease: lease })
}

/// Runs blocking work, and waits for it. When the program is ended, the work is abandoned.
pub(super) async fn blocking<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> Outcome<T> + Send + 'static,
) -> Outcome<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(Failure::failed(format!("{what}: the thread panicked"))))
}

/// Converts an error of the tree, or of the target of a copy.
pub(super) fn failure(context: impl std::fmt::Display, error: &ViewError) -> Failure {
    let code = match error {
        ViewError::Write { source, .. } | ViewError::Layer { source, .. } | ViewError::Read { source, .. }
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            Code::NotPermitted
        }
        _ => Code::Failed,
    };
    Failure::new(code, format!("{context}: {}", chain(error)))
}

/// Returns kind and permissions as `ls -l` shows them.
pub(super) fn mode_text(stat: &Stat) -> String {
    let first = match stat.kind {
        Kind::File => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::Char => 'c',
        Kind::Block => 'b',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::Whiteout => 'w',
    };
    let mut text = String::from(first);
    for (shift, special, marks) in [(6, 0o4000, ['s', 'S']), (3, 0o2000, ['s', 'S']), (0, 0o1000, ['t', 'T'])] {
        let bits = stat.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, stat.mode & special != 0) {
            (true, true) => marks[0],
            (false, true) => marks[1],
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}
