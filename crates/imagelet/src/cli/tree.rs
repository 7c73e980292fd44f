//! Opens the file tree of an image or a layer within imagelet's own store or that of a runtime, while its layers are held. Displays and
//! writes nothing. Called by `ls`, `cat` and `cp`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use cri_api::engine::runtime_store::{LowerLayer, RuntimeImageFacts};
use cri_api::{ImageSpec, Kind};
use oci::Digest;
use store::Lower;
use store::view::{Kind as FileKind, Stat, View, ViewError};

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

/// Reads the tree of an image, by name or id, or of a layer of imagelet's own store, by its digest. The layers stay where they are until
/// `work`, which blocks, has ended. `command` is for messages.
pub(super) async fn read<T: Send + 'static>(
    app: &App,
    command: &str,
    text: &str,
    work: impl FnOnce(&View) -> Outcome<T> + Send + 'static,
) -> Outcome<T> {
    let images = app.images().await?;
    match (images.engine(), images.facts()) {
        (None, Some(facts)) => read_in_runtime(app, facts.as_ref(), command, text, work).await,
        _ => read_in_store(app, command, text, work).await,
    }
}

async fn read_in_store<T: Send + 'static>(
    app: &App,
    command: &str,
    text: &str,
    work: impl FnOnce(&View) -> Outcome<T> + Send + 'static,
) -> Outcome<T> {
    let engine = app.engine(command).await?;
    let lease = engine.lease_layers(text).await.map_err(|error| Failure::call(command, &error))?;
    let shown = command.to_owned();
    let read = move || {
        let view = View::of_lease(&lease).map_err(|error| failure(shown, &error))?;
        work(&view)
    };
    blocking(command, read).await
}

async fn read_in_runtime<T: Send + 'static>(
    app: &App,
    facts: &dyn RuntimeImageFacts,
    command: &str,
    text: &str,
    work: impl FnOnce(&View) -> Outcome<T> + Send + 'static,
) -> Outcome<T> {
    let held = match facts.hold_layers(&ImageSpec::new(text)).await {
        Ok(Some(held)) => held,
        Ok(None) => return Err(Failure::failed(format!("no such image: {text}"))),
        Err(error) if error.kind() == Kind::Unimplemented => {
            tracing::info!("{}", error.message());
            return Err(app.no_engine(command).await);
        }
        Err(error) => return Err(Failure::call(command, &error)),
    };
    let of = |(diff_id, layer): &(Digest, LowerLayer)| match layer {
        LowerLayer::Directory(path) => (diff_id.clone(), Lower::Directory(path.clone())),
        LowerLayer::ErofsFile(path) => (diff_id.clone(), Lower::Erofs(path.clone())),
    };
    let (layers, shown) = (held.layers().iter().map(of).collect::<Vec<_>>(), command.to_owned());
    let read = move || {
        let view = View::of_layers(&layers).map_err(|error| failure(shown, &error))?;
        work(&view)
    };
    let outcome = blocking(command, read).await;
    if let Err(error) = held.end().await {
        tracing::warn!(%error, "the runtime keeps the layers of {text} for one hour at most");
    }
    outcome
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
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Char => 'c',
        FileKind::Block => 'b',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::Whiteout => 'w',
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
