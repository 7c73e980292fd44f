//! Mounts EROFS files where the kernel refuses that to the user, through the program `erofsfuse`, where it is installed. That
//! program serves a file system as an ordinary process, which ends with the mount. Spawns it and `fusermount3`, nothing else.
//! Called by [`super`] when the kernel has refused.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::erofs_file::check_devices;
use super::failure::Failure;
use super::own_mounts::SOURCE;

const PROGRAM: &str = "erofsfuse";

/// Returns true if the program is installed. An answer of any kind shows that.
pub(super) fn is_installed() -> bool {
    run(PROGRAM, &["--version".as_ref()]).is_ok()
}

/// Mounts the file on a directory, read-only. Devices and set-user-id bits have no effect there.
pub(super) fn mount(image: &Path, on: &Path) -> Result<(), Failure> {
    let options = format!("ro,nosuid,nodev,fsname={SOURCE},subtype=erofs");
    let operation = "mount a layer by erofsfuse for";
    let file = File::open(image).map_err(|source| Failure { operation, source }.naming(image))?;
    check_devices(&file, image)?;
    let output = run(PROGRAM, &["-o".as_ref(), options.as_ref(), image.as_os_str(), on.as_os_str()]);
    let output = output.map_err(|source| Failure { operation, source })?;
    succeed(&output).map_err(|source| Failure { operation, source }.naming(image))
}

/// Takes a mount of an ordinary user away.
pub(super) fn unmount(target: &Path) -> io::Result<()> {
    succeed(&run("fusermount3", &["-u".as_ref(), "--".as_ref(), target.as_os_str()])?)
}

#[expect(clippy::disallowed_methods, reason = "the one place where a mount is made by another program")]
fn run(program: &str, arguments: &[&OsStr]) -> io::Result<Output> {
    Command::new(program).args(arguments).stdin(Stdio::null()).output()
}

fn succeed(output: &Output) -> io::Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    Err(io::Error::other(format!("{}: {}", output.status, said.join("; "))))
}
