//! The arguments of `bench-pull` as a value. Pure: it reads no file; `main.rs` calls it.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser};

/// Images of the corpus, in the order in which they are measured. What ends in `-zstd` is the tag `:zstd` of what is before it.
pub(crate) const IMAGES: &[&str] = &["pause", "tiny", "base", "base-zstd", "app", "app-zstd", "ml", "manylayers"];
/// Our own engine, from the release binary: with and without a flush, with layers as directories and as EROFS files.
const OWN: &[&str] = &["imagelet", "imagelet-durable", "imagelet-erofs", "imagelet-erofs-durable"];
/// The others.
const OTHERS: &[&str] = &["containerd-cri", "containerd-ctr", "podman", "skopeo+umoci"];

/// Pulls the images of the corpus with imagelet and with other engines in turn, from a registry on loopback into empty stores on a
/// journaled ext4 of its own, and prints medians. Needs root. Without the name of a part it measures the engines; with some of them,
/// only those parts.
#[derive(Debug, Parser)]
#[command(name = "bench-pull", bin_name = "cargo xtask bench-pull", verbatim_doc_comment)]
pub(crate) struct BenchOptions {
    /// How often each engine pulls each image; with --quick twice
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = count)]
    #[arg(default_value_if("quick", "true", "2"))]
    pub(crate) rounds: usize,
    /// Rounds of the engines other than imagelet and containerd-cri, at most
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = count)]
    pub(crate) seldom: usize,
    /// Only this image; may be given several times
    #[arg(long = "image", value_name = "NAME", value_parser = PossibleValuesParser::new(IMAGES), conflicts_with = "quick")]
    pub(crate) images: Vec<String>,
    /// Only this engine; may be given several times: imagelet imagelet-durable (layers as directories) imagelet-erofs
    /// imagelet-erofs-durable (as EROFS files) containerd-cri containerd-ctr podman skopeo+umoci, and the names of --binary
    #[arg(long = "engine", value_name = "NAME", verbatim_doc_comment)]
    pub(crate) engines: Vec<String>,
    /// The image base alone, in two rounds
    #[arg(long)]
    quick: bool,
    /// A program to measure as the engine NAME, with relaxed durability; may be given several times. Under the name imagelet it takes
    /// the place of target/release/imagelet, which is built otherwise
    #[arg(long = "binary", value_name = "NAME=FILE", value_parser = binary)]
    pub(crate) binaries: Vec<(String, PathBuf)>,
    /// An OCI layout with the images as tags, instead of building them (scripts/bench-images.sh)
    #[arg(long, value_name = "DIR")]
    pub(crate) corpus: Option<PathBuf>,
    /// Write one object for each engine and image, or else for each pull of --behind
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Put what was measured into docs/performance.md
    #[arg(long)]
    pub(crate) docs: bool,
    /// The containerd of --behind and --containers: the root of an unpacked package (scripts/containerd-packages.sh), or `installed`;
    /// may be given several times. None: the installed one
    #[arg(long = "containerd", value_name = "DIR")]
    pub(crate) containerds: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) parts: BenchParts,
    /// All parts, with --memory 64M
    #[arg(long)]
    everything: bool,
}

/// Parts of the benchmark.
#[derive(Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct BenchParts {
    /// Measure the engines (with other parts)
    #[arg(long = "engines", id = "measure-engines")]
    pub(crate) engines: bool,
    /// Ten pulls at once in one process
    #[arg(long)]
    pub(crate) together: bool,
    /// A pull of what is present: its time and its requests
    #[arg(long)]
    pub(crate) warm: bool,
    /// Layers as directories and as EROFS files: removal, reading, and a disk without a journal
    #[arg(long)]
    pub(crate) shapes: bool,
    /// Shares of the stages and the top lines of a profile, by perf
    #[arg(long)]
    pub(crate) profile: bool,
    /// containerd with imagelet's engine and containerd alone: PullImage, and from there to the first process of a container; tiny
    /// base app ml manylayers
    #[arg(long, verbatim_doc_comment)]
    pub(crate) behind: bool,
    /// Ten containers of base and app with each snapshotter: start and memory
    #[arg(long)]
    pub(crate) containers: bool,
    /// ml inside a memory cgroup of this size, for example 64M
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<u64>,
}

/// Reads the command line, the program's name first. An error is a message, and `--help` is one.
pub(crate) fn parse(args: &[String]) -> Result<BenchOptions, clap::Error> {
    let mut options = BenchOptions::try_parse_from(args)?;
    let wrong = |text: String| BenchOptions::command().error(ErrorKind::ValueValidation, text);
    let parts = &mut options.parts;
    if options.everything {
        let memory = parts.memory.or(Some(64 << 20));
        let (engines, together, warm, shapes) = (true, true, true, true);
        let (profile, behind, containers) = (true, true, true);
        *parts = BenchParts { engines, together, warm, shapes, profile, behind, containers, memory };
    }
    if *parts == BenchParts::default() {
        parts.engines = true;
    }
    if options.json.is_some() && !parts.engines && !parts.behind {
        return Err(wrong("--json needs --engines or --behind in addition to other parts".into()));
    }
    let (named, quick) = (std::mem::take(&mut options.images), options.quick);
    let chosen =
        |name: &&&str| if quick { **name == "base" } else { named.is_empty() || named.iter().any(|i| i == **name) };
    options.images = IMAGES.iter().filter(chosen).map(|&name| name.to_owned()).collect();
    options.engines = engines_of(&options.engines, &options.binaries).map_err(wrong)?;
    Ok(options)
}

/// The engines that run: all, or those that were named, in the table's order.
fn engines_of(named: &[String], binaries: &[(String, PathBuf)]) -> Result<Vec<String>, String> {
    let further: Vec<&str> = binaries.iter().map(|(name, _)| name.as_str()).collect();
    let is_fixed = |name: &str| name != "imagelet" && (OWN.contains(&name) || OTHERS.contains(&name));
    if let Some((_, name)) =
        further.iter().enumerate().find(|(at, name)| is_fixed(name) || further[..*at].contains(name))
    {
        return Err(format!("--binary: the name {name} is taken"));
    }
    let further = further.into_iter().filter(|name| *name != "imagelet");
    let all: Vec<&str> = OWN.iter().copied().chain(further).chain(OTHERS.iter().copied()).collect();
    if let Some(unknown) = named.iter().find(|name| !all.contains(&name.as_str())) {
        return Err(format!("--engine {unknown}: no such engine; there are {}", all.join(" ")));
    }
    let wanted = |name: &&str| named.is_empty() || named.iter().any(|n| n == name);
    Ok(all.into_iter().filter(wanted).map(str::to_owned).collect())
}

fn count(text: &str) -> Result<usize, &'static str> {
    text.parse().ok().filter(|n| (1..=1000).contains(n)).ok_or("not a number from 1 to 1000")
}

fn binary(text: &str) -> Result<(String, PathBuf), &'static str> {
    let parts = text.split_once('=').filter(|(name, file)| !name.is_empty() && !file.is_empty());
    parts.map(|(name, file)| (name.to_owned(), file.into())).ok_or("not of the form NAME=FILE")
}

/// A number of bytes: `64M`, `1G`, `65536K`, with or without `i` or `iB` behind it; always by powers of two.
fn size(text: &str) -> Result<u64, &'static str> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "" => 0,
        "K" | "Ki" | "KiB" => 10,
        "M" | "Mi" | "MiB" => 20,
        "G" | "Gi" | "GiB" => 30,
        _ => return Err("not a size like 64M"),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes.filter(|&bytes| bytes > 0).ok_or("not a size like 64M")
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
