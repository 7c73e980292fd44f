//! The machine's own floor for each image, computed in the same run: the cost of inflating, both digests and making the files with
//! the fastest tools of Debian and nothing between them, and the disk's time for the bytes. No pull is measured here.

use std::fs::{self, File};
use std::io::{self, BufReader, Read as _, Write as _};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, bail};
use serde::Deserialize;

use crate::floor_tree::{self, TreeTotals, WRITE_TREE};
use crate::lab::Lab;
use crate::measure::measured;
use crate::session::program;

/// How much is written to find the rate of the disk.
const RATE_BYTES: u64 = 1 << 30;

/// Seconds of CPU of the parts of one image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Floor {
    pub(crate) blob_hash: f64,
    pub(crate) inflate: f64,
    pub(crate) diff_hash: f64,
    pub(crate) files: f64,
    /// Seconds that the disk needs for the bytes.
    pub(crate) disk: f64,
    pub(crate) totals: TreeTotals,
}

impl Floor {
    /// Seconds of CPU in all.
    pub(crate) fn cpu(&self) -> f64 {
        self.blob_hash + self.inflate + self.diff_hash + self.files
    }

    /// Seconds below which no pull can end that leaves the writing to the kernel.
    pub(crate) fn relaxed(&self, cores: usize) -> f64 {
        self.cpu() / cores as f64
    }

    /// The same for one that ends with everything on the disk.
    pub(crate) fn durable(&self, cores: usize) -> f64 {
        self.relaxed(cores).max(self.disk)
    }
}

#[derive(Deserialize)]
struct LayoutIndex {
    manifests: Vec<LayoutDescriptor>,
}

#[derive(Deserialize)]
struct LayoutManifest {
    layers: Vec<LayoutDescriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LayoutDescriptor {
    media_type: String,
    digest: String,
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
}

/// Bytes a second that the disk takes for good: the best of three.
pub(crate) fn disk_rate(lab: &Lab) -> anyhow::Result<f64> {
    let path = lab.disk.join("rate");
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    // Content that nothing below can make smaller.
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .take(1 << 17)
    .flatten()
    .collect();
    let mut best = f64::MAX;
    for _ in 0..3 {
        let mut file = File::create(&path).context("make a file on the disk")?;
        let start = Instant::now();
        for _ in 0..RATE_BYTES / noise.len() as u64 {
            file.write_all(&noise)?;
        }
        file.sync_all()?;
        best = best.min(start.elapsed().as_secs_f64());
        fs::remove_file(&path)?;
        lab.sync()?;
    }
    Ok(RATE_BYTES as f64 / best)
}

/// The floor of one image.
pub(crate) fn of(lab: &Lab, image: &str, disk_rate: f64) -> anyhow::Result<Floor> {
    let place = lab.disk.join("floor");
    fs::create_dir_all(&place)?;
    let layers = layers(&lab.corpus, image)?;
    let zstd = layers.iter().any(|layer| layer.media_type.ends_with("zstd"));
    // All layers one behind the other: the tools start once, whatever the number of layers.
    let (packed, plain, list) = (place.join("packed"), place.join("plain"), place.join("list"));
    let (mut all, mut tars) = (File::create(&packed)?, File::create(&plain)?);
    let (mut text, mut totals) = (String::new(), TreeTotals::default());
    for (number, layer) in layers.iter().enumerate() {
        let blob = blob(&lab.corpus, &layer.digest);
        io::copy(&mut File::open(&blob)?, &mut all)?;
        let tar = place.join("tar");
        let tool = if zstd { "zstd -dcq" } else { "gzip -dc" };
        let mut shell = program("sh", &lab.session.work);
        shell.args(["-c", &format!(r#"{tool} <"$1" >"$2""#), "sh"]).args([&blob, &tar]);
        lab.session.output(&mut shell)?;
        let of = floor_tree::list(File::open(&tar)?, &number.to_string(), &mut text)
            .with_context(|| format!("list {}", layer.digest))?;
        totals = TreeTotals { entries: totals.entries + of.entries, bytes: totals.bytes + of.bytes };
        io::copy(&mut File::open(&tar)?, &mut tars)?;
        fs::remove_file(&tar)?;
    }
    fs::write(&list, text)?;
    lab.sync()?;

    let shell = |line: &str| {
        let mut shell = program("sh", &lab.session.work);
        shell.args(["-c", line, "sh"]).arg(&packed);
        least(lab, &shell)
    };
    let hash = |file: &Path| {
        let mut openssl = program("openssl", &lab.session.work);
        least(lab, openssl.args(["dgst", "-sha256"]).arg(file))
    };
    let inflate = if zstd {
        shell(r#"exec zstd -dcq <"$1" >/dev/null"#)?
    } else {
        let igzip = shell(r#"exec igzip -dc <"$1" >/dev/null"#)?;
        igzip.min(shell(r#"exec libdeflate-gunzip -c <"$1" >/dev/null"#)?)
    };
    let (blob_hash, diff_hash) = (hash(&packed)?, hash(&plain)?);
    fs::remove_file(&plain)?;
    let mut files = f64::MAX;
    for _ in 0..2 {
        let tree = place.join("tree");
        fs::create_dir(&tree)?;
        lab.sync()?;
        let mut writer = program(std::env::current_exe()?, &lab.session.work);
        let done = measured(&lab.session, writer.arg(WRITE_TREE).args([&list, &tree]), None)?;
        files = files.min(done.took.cpu);
        fs::remove_dir_all(&tree)?;
    }
    lab.remove("floor")?;
    lab.sync()?;
    Ok(Floor { blob_hash, inflate, diff_hash, files, disk: totals.bytes as f64 / disk_rate, totals })
}

/// The less of two runs, in seconds of CPU.
fn least(lab: &Lab, command: &std::process::Command) -> anyhow::Result<f64> {
    let first = measured(&lab.session, command, None)?.took.cpu;
    Ok(first.min(measured(&lab.session, command, None)?.took.cpu))
}

/// The layers of an image of the layout.
fn layers(corpus: &Path, image: &str) -> anyhow::Result<Vec<LayoutDescriptor>> {
    let index: LayoutIndex = json(&corpus.join("index.json"))?;
    let named =
        |m: &&LayoutDescriptor| m.annotations.get("org.opencontainers.image.ref.name").is_some_and(|n| n == image);
    let Some(found) = index.manifests.iter().find(named) else { bail!("the layout has no image {image}") };
    Ok(json::<LayoutManifest>(&blob(corpus, &found.digest))?.layers)
}

fn blob(corpus: &Path, digest: &str) -> std::path::PathBuf {
    corpus.join("blobs").join(digest.replacen(':', "/", 1))
}

fn json<T: for<'a> Deserialize<'a>>(path: &Path) -> anyhow::Result<T> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| BufReader::new(file).read_to_string(&mut text))
        .with_context(|| format!("read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_the_greater_of_cpu_and_disk() {
        let totals = TreeTotals { entries: 1, bytes: 100 };
        let floor = Floor { blob_hash: 0.1, inflate: 0.5, diff_hash: 0.2, files: 0.4, disk: 1.0, totals };
        assert!((floor.cpu() - 1.2).abs() < 1e-9);
        assert!((floor.relaxed(2) - 0.6).abs() < 1e-9);
        assert!((floor.durable(2) - 1.0).abs() < 1e-9);
        assert!((floor.durable(1) - 1.2).abs() < 1e-9);
    }
}
