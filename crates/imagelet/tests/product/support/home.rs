//! An ordinary user with a program and a data directory of its own.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;

use super::Imagelet;

const NOBODY: u32 = 65534;

/// Directory of an unprivileged user, which that user can reach; the target directory may not be.
pub(crate) struct Home(tempfile::TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        let home = tempfile::Builder::new().prefix("imagelet-nobody-").tempdir().expect("a directory");
        chown(home.path(), Some(NOBODY), Some(NOBODY)).expect("chown");
        let program = home.path().join("imagelet");
        fs::copy(super::cli::PROGRAM, &program).expect("copy the program");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("chmod");
        Self(home)
    }

    pub(crate) fn imagelet(&self) -> Imagelet {
        Imagelet::bare()
            .program(self.0.path().join("imagelet"))
            .user(NOBODY)
            .env("XDG_DATA_HOME", &self.data().display().to_string())
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Directories of a layer may be closed to their own user, whose test this is; root removes them all the same.
        let _ = fs::remove_dir_all(self.data());
    }
}
