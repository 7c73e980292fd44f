//! An EROFS file for many layers: composed of their merged files when it is mounted, with the layers' own EROFS files as its
//! further devices, which have the files' blocks. It is in a private directory of the store until it is mounted, and has no name
//! from then on: it is freed with its mount, whichever process unmounts it. For layers that overlayfs does not accept, or would
//! be slow with.
//! [`super`] decides what counts as many. Knows nothing of images' records.
//! What counts as many is decided by [`super`]. Knows nothing of images' records.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::mount::{MoveMountFlags, move_mount};

use super::erofs_file::{self, ErofsFailure};
use super::failure::Failure;
use super::kernel_features::KernelFeatures;
use super::overlay::STRING_BYTES;
use super::points::{IMAGE, Point, Points, SPILL};
use crate::disk::layout::LAYERS;
use crate::view::compose::{ComposeError, compose};
use crate::view::{Stack, View};

/// A composed EROFS file that is mounted nowhere yet.
#[derive(Debug)]
pub(super) struct Merged {
    /// The mount.
    pub(super) mounted: OwnedFd,
    /// The source names this program, which identifies the mount as ours.
    is_named: bool,
}

/// Composes the EROFS file of a stack of the store under `root`, and mounts it.
pub(super) fn mount(root: &Path, stack: &Stack, points: &Points, ways: KernelFeatures) -> Result<Merged, ErofsFailure> {
    let point = points.empty().map_err(ErofsFailure::Failed)?;
    let image = MergedFile { path: point.path.join(IMAGE), _point: point };
    let file = make(&image.path).map_err(|error| failed("create an image for", &image.path, error))?;
    let spill = image.path.with_file_name(SPILL);
    let spill = Box::new(move || {
        let file = make(&spill)?;
        std::fs::remove_file(&spill)?;
        Ok(file)
    });
    let view = View::open(root, stack).map_err(|error| compose_failed(error.into()))?;
    let writing = file.try_clone().map_err(|error| failed("open an image for", &image.path, error))?;
    let composed = compose(&view, writing, spill).map_err(compose_failed)?;
    drop(view);
    let layers = root.join(LAYERS);
    let devices: Vec<PathBuf> = composed.devices.iter().map(|at| stack.erofs_path(&layers, *at)).collect();
    tracing::debug!(
        layers = stack.layers.len(),
        devices = devices.len(),
        bytes = composed.size,
        "composed an EROFS file"
    );
    let is_named = ways.from_file && image.path.as_os_str().len() < STRING_BYTES;
    let mounted = if is_named {
        erofs_file::mount_named(&image.path, &file, &devices, ways)
    } else {
        erofs_file::mount_open(&file, &image.path, &devices, ways).map(|mounted| (mounted, false))
    };
    let (mounted, is_named) = mounted?;
    Ok(Merged { mounted, is_named })
}

impl Merged {
    /// Attaches the mount to the target, if its source identifies it as ours; returns it otherwise.
    pub(super) fn attach(self, target: &Path) -> Result<Option<OwnedFd>, Failure> {
        if !self.is_named {
            return Ok(Some(self.mounted));
        }
        move_mount(&self.mounted, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map(|()| None)
            .map_err(|error| Failure { operation: "attach the image to", source: error.into() })
    }
}

/// The path of a composed EROFS file, which is removed with this value.
struct MergedFile {
    path: PathBuf,
    _point: Point,
}

impl Drop for MergedFile {
    fn drop(&mut self) {
        if let Err(error) = rustix::fs::unlinkat(CWD, &self.path, AtFlags::empty())
            && error != rustix::io::Errno::NOENT
        {
            tracing::warn!(%error, path = %self.path.display(), "could not remove a composed EROFS file");
        }
    }
}

fn make(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?))
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> ErofsFailure {
    ErofsFailure::Failed(Failure { operation, source }.naming(path))
}

fn compose_failed(error: ComposeError) -> ErofsFailure {
    let kind = match &error {
        ComposeError::Write { source: erofs::WriteError::Sink(source) | erofs::WriteError::Spill(source), .. } => {
            source.kind()
        }
        _ => io::ErrorKind::Other,
    };
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    ErofsFailure::Failed(Failure {
        operation: "compose an image of the layers for",
        source: io::Error::new(kind, text),
    })
}
