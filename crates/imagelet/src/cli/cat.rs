//! `imagelet cat`: files of an image or a layer on standard output, without mounting it.

use std::io::{ErrorKind, Write as _};
use std::os::unix::ffi::OsStrExt as _;

use store::view::View;

use super::tree::{self, FileName, failure, image_name};
use crate::app::App;
use crate::args::Cat;
use crate::exit::{Code, Failure, Outcome};

/// Bytes read at a time.
const BUFFER: usize = 256 << 10;

pub(super) async fn run(app: &App, args: &Cat) -> Outcome {
    let (image, paths) = match FileName::split_absolute(&args.image) {
        Some(file) if args.paths.is_empty() => (file.image, vec![file.path]),
        _ => (image_name(&args.image)?, args.paths.iter().map(|path| path.as_bytes().to_vec()).collect()),
    };
    if paths.is_empty() {
        let example = "for example: imagelet cat busybox:1 /etc/passwd";
        return Err(Failure::usage(format!("cat {image}: a path in the image is missing, {example}")));
    }
    let write = move |view: &View| {
        let mut failures = Vec::new();
        let mut buffer = vec![0; BUFFER];
        for path in &paths {
            match write(view, path, &mut buffer) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(failure) => failures.push(failure),
            }
        }
        Failure::all(failures).map_or(Ok(()), Err)
    };
    tree::read(app, &format!("cat {image}"), &image, write).await
}

/// Writes one file. Returns false if the reader has closed the pipe.
fn write(view: &View, path: &[u8], buffer: &mut [u8]) -> Outcome<bool> {
    let to_failure = |error| failure("cat", &error);
    let node = view.resolve(path, true).map_err(to_failure)?;
    let file = view.file(&node).map_err(to_failure)?;
    let mut out = std::io::stdout().lock();
    let mut at = 0;
    loop {
        let length = file.read_at(at, buffer).map_err(to_failure)?;
        if length == 0 {
            return match out.flush() {
                Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(written(&error)),
                flushed => Ok(flushed.is_ok()),
            };
        }
        match out.write_all(&buffer[..length]) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(false),
            Err(error) => return Err(written(&error)),
        }
        at += length as u64;
    }
}

fn written(error: &std::io::Error) -> Failure {
    Failure::caused(Code::Failed, "write to standard output", error)
}
