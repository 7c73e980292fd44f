//! `imagelet cp`: copies files and directories out of an image or a layer, without mounting it. The target of a copy is decided here as in
//! `docker cp` and `podman cp`; the store makes the copy, and keeps it within its target. A file that is copied to a symbolic link, a
//! device or a pipe is written to the link's target, the device or the pipe.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, IsTerminal as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use store::destination::{self, Destination};
use store::view::copy::{Copied, CopyOptions};
use store::view::{Kind, Node, View, ViewError};

use super::tree::{self, FileName, failure};
use crate::app::App;
use crate::args::Cp;
use crate::exit::{Code, Failure, Outcome};

/// Bytes written at a time.
const BUFFER: usize = 256 << 10;

/// The kind of file at the target of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TargetKind {
    Absent,
    Directory,
    Other,
}

/// The target of a copy.
#[derive(Debug, PartialEq, Eq)]
struct CopyTarget {
    /// The directory to write into.
    into: PathBuf,
    /// The name in that directory; `None`: the content of the source is copied into the directory itself.
    name: Option<Vec<u8>>,
    /// True if the directory must be created first.
    make: bool,
}

pub(super) async fn run(app: &App, args: &Cp) -> Outcome {
    let (file, target) = match &args.target_of_two {
        Some(target) => (FileName::of_words(&args.source, args.target.as_os_str())?, target.clone()),
        None => (FileName::split(&args.source).ok_or_else(|| no_path(&args.source))?, args.target.clone()),
    };
    let FileName { image, path: source } = file;
    let to_stdout = target.as_os_str() == "-";
    if to_stdout && std::io::stdout().is_terminal() {
        return Err(Failure::usage(
            "an archive is not for a terminal: send standard output to a file or to tar".to_owned(),
        ));
    }
    let shown = format!("{image}:{}", String::from_utf8_lossy(&source));
    let command = format!("cp {shown}");
    let privileged = app.environment.privileged;
    let (follow, stop) = (args.follow_link, app.stop.clone());
    let work = move |view: &View| {
        let context = format!("cp {shown}");
        let node = view.resolve(&source, follow).map_err(|error| failure(&context, &error))?;
        if to_stdout {
            return archive(view, &node, &source, &context, &|| stop.is_cancelled());
        }
        let there = match std::fs::metadata(&target) {
            Ok(metadata) if metadata.is_dir() => TargetKind::Directory,
            Ok(_) => TargetKind::Other,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => TargetKind::Absent,
            Err(error) => return Err(file_failure(&context, "look at", &target, &error)),
        };
        let place = place(&source, node.stat().kind, node.name(), &target, there)
            .map_err(|why| Failure::failed(format!("{context}: {}: {why}", target.display())))?;
        if place.make {
            std::fs::create_dir(&place.into).map_err(|error| file_failure(&context, "make", &place.into, &error))?;
        }
        let cancelled = || stop.is_cancelled();
        let place = match place.name {
            Some(name) if node.stat().kind != Kind::Directory => {
                let named = place.into.join(OsStr::from_bytes(&name));
                match destination::find(&named, &cancelled) {
                    Ok(Destination::File(path)) => at(&path).unwrap_or(CopyTarget { name: Some(name), ..place }),
                    Ok(Destination::Stream(out)) if node.stat().kind == Kind::File => {
                        let copied = pour(view, &node, out, &named, &cancelled);
                        report(&copied.map_err(|error| failure(&context, &error))?, &target);
                        return Ok(());
                    }
                    Ok(Destination::Stream(_)) => {
                        let (named, is) = (named.display(), node.stat().kind.a());
                        let why =
                            format!("{context}: {named} is written to as it is, and {is} cannot be: only files can");
                        return Err(Failure::failed(why));
                    }
                    // The same error as for an entry within a copied directory.
                    Err(error) if error.kind() == ErrorKind::IsADirectory => {
                        let (there, kept) = ("is a directory", "nothing but a directory replaces it");
                        return Err(failure(&context, &ViewError::InTheWay { path: named, there, kept }));
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {
                        return Err(failure(&context, &ViewError::Cancelled));
                    }
                    Err(error) => return Err(file_failure(&context, "write to", &named, &error)),
                }
            }
            _ => place,
        };
        let options = CopyOptions { privileged, whole: place.make, cancelled: &cancelled };
        let copied = view.copy(&node, &place.into, place.name.as_deref(), options);
        report(&copied.map_err(|error| failure(&context, &error))?, &target);
        Ok(())
    };
    tree::read(app, &command, &image, work).await
}

fn no_path(text: &OsStr) -> Failure {
    let text = text.display();
    Failure::usage(format!("cp {text}: a path in the image is missing: IMAGE:PATH DEST, for example busybox:1:/bin ."))
}

/// Splits a path into its directory and its name.
fn at(path: &Path) -> Option<CopyTarget> {
    let into = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(CopyTarget { into: into.to_owned(), name: Some(path.file_name()?.as_bytes().to_vec()), make: false })
}

/// Writes a file's bytes to a device, a pipe, or any other existing file that is not replaced.
fn pour(
    view: &View,
    node: &Node,
    mut out: File,
    path: &Path,
    cancelled: &dyn Fn() -> bool,
) -> Result<Copied, ViewError> {
    let failed = |source| ViewError::Write { operation: "write to", path: path.to_owned(), source };
    let content = view.file(node)?;
    let (mut bytes, mut buffer) = (0, vec![0; BUFFER]);
    loop {
        if cancelled() {
            return Err(ViewError::Cancelled);
        }
        match content.read_at(bytes, &mut buffer)? {
            0 => break,
            length => {
                out.write_all(&buffer[..length]).map_err(failed)?;
                bytes += length as u64;
            }
        }
    }
    destination::flushed(&out).map_err(failed)?;
    Ok(Copied { files: 1, bytes, ..Copied::default() })
}

/// Writes a tar stream to standard output. Its entries are below the name of the source, or below `.` if only its content is copied.
fn archive(view: &View, node: &Node, source: &[u8], context: &str, cancelled: &dyn Fn() -> bool) -> Outcome {
    let name = if is_content(source, node.name()) { b"." } else { node.name() };
    let mut out = BufWriter::with_capacity(BUFFER, std::io::stdout().lock());
    match view.archive(node, name, &mut out, cancelled) {
        Ok(copied) => {
            report(&copied, Path::new("standard output"));
            Ok(())
        }
        // The reader has closed the pipe.
        Err(ViewError::Write { source, .. }) if source.kind() == ErrorKind::BrokenPipe => {
            drop(out.into_parts());
            Ok(())
        }
        Err(error) => {
            drop(out.into_parts());
            Err(failure(context, &error))
        }
    }
}

/// Returns true if the content of a directory is copied, and not the directory under its name.
fn is_content(source: &[u8], name: &[u8]) -> bool {
    name.is_empty() || source.ends_with(b"/.") || source == b"."
}

/// Returns the target of a copy. An existing directory receives the source under its name, or the source's content if its path ends in
/// `/.`. A missing target is created.
fn place(source: &[u8], kind: Kind, name: &[u8], target: &Path, there: TargetKind) -> Result<CopyTarget, &'static str> {
    let slash = target.as_os_str().as_bytes().ends_with(b"/");
    let content = is_content(source, name);
    let under = |name: &[u8], into: &Path| CopyTarget { into: into.to_owned(), name: Some(name.to_vec()), make: false };
    match (kind, there) {
        (Kind::Directory, TargetKind::Directory) if content => {
            Ok(CopyTarget { into: target.to_owned(), name: None, make: false })
        }
        (_, TargetKind::Directory) => Ok(under(name, target)),
        (Kind::Directory, TargetKind::Absent) if content => {
            Ok(CopyTarget { into: target.to_owned(), name: None, make: true })
        }
        (Kind::Directory, TargetKind::Other) => Err("it is no directory, and a directory is to be copied there"),
        (_, TargetKind::Absent) if slash && kind != Kind::Directory => Err("there is no such directory"),
        (_, TargetKind::Other) if slash => Err("it is no directory"),
        (_, TargetKind::Absent | TargetKind::Other) => {
            let leaf = target.file_name().ok_or("it names nothing that could be made")?;
            let into = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Ok(under(leaf.as_bytes(), into))
        }
    }
}

fn file_failure(context: &str, operation: &str, path: &Path, error: &std::io::Error) -> Failure {
    let denied = error.kind() == std::io::ErrorKind::PermissionDenied;
    let code = if denied { Code::NotPermitted } else { Code::Failed };
    Failure::caused(code, format!("{context}: {operation} {}", path.display()), error)
}

/// Reports the result, and the parts that the copy lacks.
fn report(copied: &Copied, target: &Path) {
    let count = |count: u64, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    };
    let Copied { files, directories, others, bytes, lacks } = *copied;
    let counted = |number: u64| (number > 0).then_some(number);
    let (directories, others) = (counted(directories), counted(others));
    tracing::info!(path = %target.display(), files, directories, others, bytes, "copied");
    let missing: Vec<String> = [
        (lacks.owners, "owner", "owners"),
        (lacks.special_modes, "set-user-id or set-group-id bit", "set-user-id or set-group-id bits"),
        (lacks.xattrs, "extended attribute", "extended attributes"),
        (lacks.devices, "device", "devices"),
        (lacks.sockets, "socket", "sockets"),
        (lacks.whiteouts, "whiteout", "whiteouts"),
    ]
    .into_iter()
    .filter(|(number, ..)| *number > 0)
    .map(|(number, one, many)| count(number, one, many))
    .collect();
    if !missing.is_empty() {
        tracing::warn!(path = %target.display(), missing = missing.join(", "), "the copy is not complete");
    }
}

#[cfg(test)]
#[path = "cp_tests.rs"]
mod tests;
