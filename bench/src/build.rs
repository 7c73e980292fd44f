//! The programs that are measured: those that the caller names, or this workspace's own, built as a release is.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::options::Options;
use crate::progress::say;
use crate::session;

/// The program to measure as `imagelet`: the one that the caller names, or a release build.
pub(crate) fn programs(root: &Path, options: &mut Options) -> anyhow::Result<PathBuf> {
    for (name, file) in &mut options.binaries {
        *file = fs::canonicalize(&*file).with_context(|| format!("--binary {name}={}", file.display()))?;
    }
    if let Some((_, file)) = options.binaries.iter().find(|(name, _)| name == "imagelet") {
        return Ok(file.clone());
    }
    say("building imagelet (release)");
    let status = session::plain(env!("CARGO"))
        .args(["build", "-q", "--release", "--locked", "-p", "imagelet"])
        .current_dir(root)
        .status()
        .context("run cargo build")?;
    if !status.success() {
        bail!("cargo build: {status}");
    }
    Ok(root.join("target/release/imagelet"))
}
