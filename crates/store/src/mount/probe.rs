//! The check if this kernel mounts layers that are EROFS files, and has whiteouts and opaque directories of such layers honoured:
//! tried with two small EROFS files in the store's own file system. The answer holds for a kernel and that file system, and is kept in
//! the store: where it was copied to another one, it is asked for again. What follows from it is decided where a shape is chosen.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::erofs_file;
use super::kernel_features::KernelFeatures;
use super::overlay::{self, Layer, Overlay};
use super::points::Points;
use crate::disk::layout::{self, Layout};

/// The file with the answer, in the store's root.
pub(crate) const FILE: &str = "kernel";
pub(crate) const FILE_NEW: &str = "kernel.new";
const IMAGE: &str = "probe";
/// Directory of a probe next to stores.
const PROBE: &str = "probe";

/// How EROFS layers can be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Support {
    /// From the file.
    File,
    /// Through a loop device.
    Loop,
    /// Not at all, or not so that they lie on each other as they should.
    None,
}

#[derive(Serialize, Deserialize)]
struct ProbeRecord {
    /// The kernel that was asked, by its release.
    release: String,
    /// The file system that it was tried on. Notes of earlier programs do not say it.
    #[serde(default)]
    place: String,
    erofs: Support,
}

/// Returns what this kernel can do, from the store's own note where it has one; `None` where the right to mount is missing. Never
/// fails: what could not be tried cannot be used either. No other thread may mount in the store meanwhile.
pub(crate) fn support(layout: &Layout) -> Option<Support> {
    let (release, place) = (release(), place(layout));
    let path = layout.path.join(FILE);
    let noted = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<ProbeRecord>(&bytes).ok());
    if let Some(answer) = noted.filter(|answer| answer.release == release && answer.place == place) {
        return Some(answer.erofs);
    }
    let MountAttempts { erofs, holds } = ask(layout)?;
    tracing::debug!(?erofs, release, "how this kernel mounts EROFS layers");
    if !holds {
        return Some(erofs);
    }
    let answer = ProbeRecord { release, place, erofs };
    let bytes = serde_json::to_vec(&answer).expect("plain data");
    // Without the note the kernel is asked again.
    if let Err(error) = layout::write_whole(&layout.root, FILE, FILE_NEW, &bytes) {
        tracing::debug!(%error, path = %path.display(), "what the kernel can do was not noted");
    }
    Some(erofs)
}

/// First kernel, as major and minor number, that maps the owners of files in EROFS for containers in user namespaces.
const MAPS_OWNERS: (u32, u32) = (5, 19);

/// Returns why EROFS files in this directory cannot be layers that are mounted through loop devices, for all kinds of containers.
pub(super) fn why_no_loop_mounts(directory: &Path) -> Option<String> {
    let release = release();
    if version(&release).is_some_and(|version| version < MAPS_OWNERS) {
        return Some(format!("Linux {release} does not map the owners of their files for pods in user namespaces"));
    }
    if !overlay::is_permitted() {
        return Some("the right to mount is missing".to_owned());
    }
    let root = directory.join(PROBE);
    let opened = layout::create_root(&root).and_then(|()| Layout::open(&root));
    let tried = opened.and_then(|layout| {
        let points = Points::of(&layout.path);
        let tried = attempt(&layout, &points, KernelFeatures { from_file: false, ..KernelFeatures::default() });
        points.sweep().and(tried)
    });
    if let Err(error) = std::fs::remove_dir_all(&root) {
        tracing::debug!(%error, path = %root.display(), "the files of a probe stay");
    }
    match tried {
        Ok(true) => None,
        Ok(false) => Some(format!("Linux {release} does not hide what is below them")),
        Err(error) => Some(format!("they cannot be mounted through loop devices: {error}")),
    }
}

/// Returns the major and minor number of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Empty where the kernel does not say it: then the note holds for every one.
fn release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Kind and identity of the store's file system, as far as it says them: for most it follows from their UUID, and is another one for
/// a copy elsewhere. Where it is the number of a device, that costs another try after a start of the machine.
fn place(layout: &Layout) -> String {
    let (kind, id) = (rustix::fs::fstatfs(&layout.root), rustix::fs::fstatvfs(&layout.root));
    format!("{:x}:{:x}", kind.map_or(0, |stat| stat.f_type), id.map_or(0, |stat| stat.f_fsid))
}

/// The result of the attempts.
struct MountAttempts {
    erofs: Support,
    /// True if it would come out the same another time.
    holds: bool,
}

fn ask(layout: &Layout) -> Option<MountAttempts> {
    // Where overlayfs may not be had, the answer would be about us and not about the kernel.
    if !overlay::is_permitted() {
        tracing::debug!("whether EROFS layers can be mounted is not tried: the right to mount is missing");
        return None;
    }
    let points = Points::of(&layout.path);
    let mut holds = true;
    for (ways, erofs) in [
        (KernelFeatures::default(), Support::File),
        (KernelFeatures { from_file: false, ..KernelFeatures::default() }, Support::Loop),
    ] {
        let shown = attempt(layout, &points, ways);
        if let Err(error) = points.sweep() {
            tracing::debug!(%error, "what was mounted for a try stays until the next start");
        }
        match shown {
            Ok(true) => return Some(MountAttempts { erofs, holds: true }),
            Ok(false) => tracing::debug!(?erofs, "EROFS layers do not hide what is below them"),
            Err(error) => {
                tracing::debug!(?erofs, %error, "EROFS layers cannot be mounted");
                holds &= is_of_the_kernel(&error);
            }
        }
    }
    Some(MountAttempts { erofs: Support::None, holds })
}

/// Returns true if an error says what the kernel can, and not how the machine is at the moment.
fn is_of_the_kernel(error: &io::Error) -> bool {
    use io::ErrorKind::{OutOfMemory, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, ResourceBusy, StorageFull};
    !matches!(
        error.kind(),
        OutOfMemory | PermissionDenied | QuotaExceeded | ReadOnlyFilesystem | ResourceBusy | StorageFull
    )
}

/// Stacks two layers and checks that the upper one hides what it should.
fn attempt(layout: &Layout, points: &Points, ways: KernelFeatures) -> io::Result<bool> {
    let failed = |failure: super::failure::Failure| io::Error::new(failure.source.kind(), failure.source);
    let mut lower = Vec::new();
    for bytes in [upper_image()?, lower_image()?] {
        let file = unnamed(layout, &bytes)?;
        match erofs_file::mount_open(&file, Path::new(IMAGE), &[], ways) {
            Ok(mounted) => lower.push(Layer::Mounted(mounted)),
            Err(erofs_file::ErofsFailure::NoErofs(source) | erofs_file::ErofsFailure::NotPermitted(source)) => {
                return Err(source);
            }
            Err(erofs_file::ErofsFailure::Failed(failure)) => return Err(failed(failure)),
        }
    }
    let point = points.empty().map_err(failed)?;
    let overlay = Overlay { lower, upper: None, userxattr: false, points: Some(points) };
    overlay::mount(overlay, &point.path, ways).map_err(failed)?;
    let names = |directory: &str| -> io::Result<Vec<_>> {
        std::fs::read_dir(point.path.join(directory))?.map(|entry| Ok(entry?.file_name())).collect()
    };
    let shown = (names("d")?, names("o")?, std::fs::read(point.path.join("d/stays"))?);
    Ok(shown == (vec!["stays".into()], vec!["new".into()], b"stays".to_vec()))
}

/// A file in the store that has no name any more.
fn unnamed(layout: &Layout, bytes: &[u8]) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = File::from(rustix::fs::openat(&layout.ingest, IMAGE, flags, Mode::RUSR | Mode::WUSR)?);
    rustix::fs::unlinkat(&layout.ingest, IMAGE, AtFlags::empty())?;
    io::Write::write_all(&mut &file, bytes)?;
    Ok(file)
}

/// `d/stays`, `d/gone` and `o/old`.
fn lower_image() -> io::Result<Vec<u8>> {
    image(|writer| {
        let (d, o) = (writer.directory(writer.root(), b"d")?, writer.directory(writer.root(), b"o")?);
        for (directory, name) in [(d, &b"stays"[..]), (d, b"gone"), (o, b"old")] {
            let inode = file(writer, name)?;
            writer.link(directory, name, inode)?;
        }
        Ok(())
    })
}

/// A whiteout for `d/gone`, and an opaque `o` with `o/new`.
fn upper_image() -> io::Result<Vec<u8>> {
    image(|writer| {
        let (d, o) = (writer.directory(writer.root(), b"d")?, writer.directory(writer.root(), b"o")?);
        let whiteout = writer.special(erofs::Special::Char(0, 0), &erofs::Attributes::default())?;
        writer.link(d, b"gone", whiteout)?;
        let opaque = (b"trusted.overlay.opaque".to_vec(), b"y".to_vec());
        let attributes = erofs::Attributes { xattrs: vec![opaque], ..erofs::Attributes::implicit() };
        writer.set_directory(o, &attributes, false)?;
        let inode = file(writer, b"new")?;
        writer.link(o, b"new", inode)?;
        Ok(())
    })
}

type Writer = erofs::Writer<Vec<u8>>;

fn file(writer: &mut Writer, content: &[u8]) -> Result<erofs::Inode, erofs::WriteError> {
    writer.begin_file(content.len() as u64, &erofs::Attributes { mode: 0o644, ..erofs::Attributes::default() })?;
    writer.data(content)?;
    writer.end_file()
}

fn image(fill: impl FnOnce(&mut Writer) -> Result<(), erofs::WriteError>) -> io::Result<Vec<u8>> {
    // So little never leaves the memory.
    let spill = Box::new(|| Err(io::ErrorKind::Unsupported.into()));
    let options = erofs::Options { uuid: *b"imagelet's probe", time: None, memory: 1 << 20, spill };
    let mut writer = Writer::new(Vec::new(), options).map_err(io::Error::other)?;
    fill(&mut writer).and_then(|()| writer.finish()).map(|(bytes, _)| bytes).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The machines that tests run on have a kernel of this decade.
    #[test]
    #[ignore = "needs root: scripts/test.sh"]
    fn the_answer_is_found_kept_and_asked_for_again_with_another_kernel() {
        assert!(rustix::process::geteuid().is_root(), "this test mounts: run it as root");
        let root = tempfile::tempdir().expect("tempdir");
        let layout = Layout::open(root.path()).expect("opens");
        let found = support(&layout).expect("root may mount");
        assert_ne!(found, Support::None);
        let points = Points::of(root.path());
        assert!(
            attempt(&layout, &points, KernelFeatures { from_file: false, ..KernelFeatures::default() })
                .expect("mounts")
        );
        points.sweep().expect("sweeps");
        let names = layout::names(root.path()).expect("readable");
        assert!(!names.contains(&"mounts".into()), "{names:?}");
        assert!(layout::names(&root.path().join(layout::INGEST)).expect("readable").is_empty());

        let note = root.path().join(FILE);
        let text = std::fs::read_to_string(&note).expect("noted");
        let wrong =
            text.replace(r#""erofs":"file""#, r#""erofs":"none""#).replace(r#""erofs":"loop""#, r#""erofs":"none""#);
        std::fs::write(&note, &wrong).expect("writes");
        assert_eq!(support(&layout), Some(Support::None), "the note counts");
        std::fs::write(&note, wrong.replace(&release(), "1.2.3")).expect("writes");
        assert_eq!(support(&layout), Some(found), "that was another kernel");
        let elsewhere = wrong.replace(&place(&layout), "ef53:1");
        assert_ne!(elsewhere, wrong);
        std::fs::write(&note, elsewhere).expect("writes");
        assert_eq!(support(&layout), Some(found), "that was another file system");
        std::fs::write(&note, wrong.replacen("\"place\"", "\"was\"", 1)).expect("writes");
        assert_eq!(support(&layout), Some(found), "nobody knows where that was");
        std::fs::write(&note, "nonsense").expect("writes");
        assert_eq!(support(&layout), Some(found));
    }

    #[test]
    #[ignore = "needs root: scripts/test.sh"]
    fn lasting_mounts_are_tried_in_a_directory_that_is_missing() {
        assert!(rustix::process::geteuid().is_root(), "this test mounts: run it as root");
        let root = tempfile::tempdir().expect("tempdir");
        let directory = root.path().join("staging");
        let release = release();
        let is_old = version(&release).is_some_and(|version| version < MAPS_OWNERS);
        assert_eq!(why_no_loop_mounts(&directory).is_some(), is_old, "{:?}", why_no_loop_mounts(&directory));
        assert_eq!(layout::names(&directory).expect("readable"), Vec::<std::ffi::OsString>::new());
    }

    /// Without a file for the probe there is no answer about the kernel, and none is kept.
    #[test]
    #[ignore = "needs root: scripts/test.sh"]
    fn a_disk_that_is_full_is_not_what_the_kernel_can() {
        assert!(rustix::process::geteuid().is_root(), "this test mounts: run it as root");
        let root = tempfile::tempdir().expect("tempdir");
        let options = c"size=64k,mode=0700";
        rustix::mount::mount("tmpfs", root.path(), "tmpfs", rustix::mount::MountFlags::empty(), options)
            .expect("mounts");
        let layout = Layout::open(root.path()).expect("opens");
        let filler = root.path().join("filler");
        std::fs::write(&filler, [1; 1 << 20]).expect_err("it is small");
        let without = support(&layout);
        let noted = root.path().join(FILE).exists();
        std::fs::remove_file(&filler).expect("removes");
        let with = support(&layout);
        drop(layout);
        rustix::mount::unmount(root.path(), rustix::mount::UnmountFlags::DETACH).expect("unmounts");
        assert_eq!((without, noted), (Some(Support::None), false));
        assert_ne!(with, Some(Support::None), "through a loop device at least");
    }
}
