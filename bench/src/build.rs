//! The programs that are measured: those that the caller names, or this workspace's own, built as a release is.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::options::{Options, PLAIN};
use crate::progress::say;
use crate::session;

/// The feature of the binary that inflates with ISA-L, and what its build needs.
const FEATURE: &str = "isal";
const TOOLS: &[&str] = &["cc", "nasm", "autoreconf", "automake", "libtoolize", "make"];

/// Finds or builds everything; answers `imagelet`, and adds to the options what is measured beside.
pub(crate) fn programs(root: &Path, options: &mut Options) -> anyhow::Result<PathBuf> {
    for (name, file) in &mut options.binaries {
        *file = fs::canonicalize(&*file).with_context(|| format!("--binary {name}={}", file.display()))?;
    }
    if let Some((_, file)) = options.binaries.iter().find(|(name, _)| name == "imagelet") {
        return Ok(file.clone());
    }
    let manifest = fs::read_to_string(root.join("crates/imagelet/Cargo.toml")).context("read imagelet's manifest")?;
    let path = fs::read_dir("/usr/bin").context("read /usr/bin")?;
    let there: Vec<String> = path.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect();
    let missing: Vec<&str> = TOOLS.iter().copied().filter(|tool| !there.iter().any(|t| t == tool)).collect();
    if !has_feature(&manifest) {
        return cargo(root, &[]);
    }
    if !missing.is_empty() {
        say(&format!("ISA-L cannot be built here, {} is missing: the plain build is measured", missing.join(", ")));
        return cargo(root, &[]);
    }
    // The plain build goes aside, because both have one name.
    if options.engines.iter().any(|name| name == PLAIN) {
        let aside = root.join("target").join(PLAIN);
        fs::copy(cargo(root, &[])?, &aside).with_context(|| format!("copy to {}", aside.display()))?;
        options.binaries.push((PLAIN.to_owned(), aside));
    }
    cargo(root, &["--features", FEATURE])
}

fn cargo(root: &Path, features: &[&str]) -> anyhow::Result<PathBuf> {
    say(&format!("building imagelet (release) {}", features.join(" ")));
    let status = session::plain(env!("CARGO"))
        .args(["build", "-q", "--release", "--locked", "-p", "imagelet"])
        .args(features)
        .current_dir(root)
        .status()
        .context("run cargo build")?;
    if !status.success() {
        bail!("cargo build: {status}");
    }
    Ok(root.join("target/release/imagelet"))
}

/// Returns true if a manifest has the feature.
fn has_feature(manifest: &str) -> bool {
    let features = manifest.lines().skip_while(|line| line.trim() != "[features]").skip(1);
    let mut features = features.take_while(|line| !line.starts_with('['));
    features.any(|line| line.split_once('=').is_some_and(|(name, _)| name.trim() == FEATURE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_feature_is_found_among_the_features_only() {
        assert!(has_feature("[package]\n[features]\ndefault = []\nisal = [\"x/isal\"]\n[dependencies]\n"));
        assert!(!has_feature("[features]\ndefault = []\n[dependencies]\nisal = \"1\"\n"));
        assert!(!has_feature("[features]\nisal-static = []\n"));
        assert!(!has_feature("[package]\n"));
    }
}
