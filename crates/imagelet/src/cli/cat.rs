//! `imagelet cat`: files of an image or a layer on standard output, without mounting it.

use std::io::{ErrorKind, Write as _};
use std::os::unix::ffi::OsStrExt as _;

use store::view::View;

use super::tree::{self, FileName, failure, image_name};
use crate::app::App;
use crate::args::Cat;
use crate::exit::{Code, Failure, Outcome};

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
        for path in &paths {
            match write(view, path) {
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
fn write(view: &View, path: &[u8]) -> Outcome<bool> {
    let to_failure = |error| failure("cat", &error);
    let node = view.resolve(path, true).map_err(to_failure)?;
    let mut out = std::io::stdout().lock();
    let copied = view.file(&node).and_then(|file| file.write_to(&mut out)).map_err(to_failure)?;
    match copied.and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(written(&error)),
    }
}

fn written(error: &std::io::Error) -> Failure {
    Failure::caused(Code::Failed, "write to standard output", error)
}
