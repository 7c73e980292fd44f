//! The arguments of `bench-pull` as a value. Pure: it looks at no file; `main.rs` calls it.

use std::path::PathBuf;

/// Images of the corpus, in the order in which they are measured. What ends in `-zstd` is the tag `:zstd` of what is before it.
pub(crate) const IMAGES: &[&str] = &["pause", "tiny", "base", "base-zstd", "app", "app-zstd", "ml", "manylayers"];
/// Our own engine, from the release binary: with and without a flush, with layers as directories and as EROFS files.
const OWN: &[&str] = &["imagelet", "imagelet-durable", "imagelet-erofs", "imagelet-erofs-durable"];
/// The others.
const OTHERS: &[&str] = &["containerd-cri", "containerd-ctr", "podman", "skopeo+umoci"];

/// How it is used.
pub(crate) const HELP: &str = "\
usage: cargo xtask bench-pull [OPTION…]

Pulls the images of the corpus with imagelet and with other engines in turn, from a registry on loopback into empty stores on a
journaled ext4 of its own, and prints medians. Needs root. Without --engines, --together, --memory, --warm, --shapes, --profile, --behind or
--containers it measures the engines; with some of these, only those parts.

  --rounds N           rounds (5)
  --seldom N           rounds of the engines other than imagelet and containerd-cri, at most (3)
  --image NAME         only this image; may be given several times: pause tiny base base-zstd app app-zstd ml manylayers
  --engine NAME        only this engine; may be given several times: imagelet imagelet-durable (layers as directories)
                       imagelet-erofs imagelet-erofs-durable (as EROFS files) containerd-cri containerd-ctr
                       podman skopeo+umoci, and the names of --binary
  --quick              the image base alone, in two rounds
  --binary NAME=FILE   a program to measure as the engine NAME, with relaxed durability; may be given several times. Under the name
                       imagelet it takes the place of target/release/imagelet, which is built otherwise
  --corpus DIR         an OCI layout with the images as tags, instead of building them (scripts/bench-images.sh)
  --json FILE          write one object for each engine and image
  --docs               put what was measured into docs/performance.md
  --engines            measure the engines (with other parts)
  --together           ten pulls at once in one process
  --memory SIZE        ml inside a memory cgroup of this size, for example 64M
  --warm               a pull of what is present: its time and its requests
  --shapes             layers as directories and as EROFS files: removal, reading, and a disk without a journal
  --profile            shares of the stages and the top lines of a profile, by perf
  --behind             containerd with imagelet's engine beside containerd alone: PullImage, and from there to the first process of a
                       container; tiny base app ml manylayers
  --containers         ten containers of base and app with each snapshotter: start and memory
  --containerd DIR     the containerd of --behind and --containers: the root of an unpacked package (scripts/containerd-packages.sh), or
                       `installed`; may be given several times (installed)
  --everything         all parts, with --memory 64M";

/// The images, engines and parts to measure, and how.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BenchOptions {
    /// Images, in the corpus' order.
    pub(crate) images: Vec<String>,
    /// How often each engine pulls each image.
    pub(crate) rounds: usize,
    /// In how many rounds at most engines run that are slow and that budgets hardly compare with.
    pub(crate) seldom: usize,
    /// Engines, in the order in which they run; the first round begins with the first.
    pub(crate) engines: Vec<String>,
    /// Names and programs.
    pub(crate) binaries: Vec<(String, PathBuf)>,
    /// An OCI layout that is there already.
    pub(crate) corpus: Option<PathBuf>,
    /// Where the figures go as JSON.
    pub(crate) json: Option<PathBuf>,
    /// True if docs/performance.md is written.
    pub(crate) docs: bool,
    /// Where the containerds of the parts `behind` and `containers` are; none: the one that is installed.
    pub(crate) containerds: Vec<PathBuf>,
    /// The parts that are measured.
    pub(crate) parts: BenchParts,
}

/// Parts of the benchmark.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct BenchParts {
    pub(crate) engines: bool,
    pub(crate) together: bool,
    pub(crate) warm: bool,
    pub(crate) shapes: bool,
    pub(crate) profile: bool,
    pub(crate) behind: bool,
    pub(crate) containers: bool,
    /// Bytes of the memory cgroup.
    pub(crate) memory: Option<u64>,
}

/// Meaning of a command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Help,
    Run(BenchOptions),
}

/// Reads the command line. An error names the flag.
pub(crate) fn parse(args: &[String]) -> Result<Asked, String> {
    let (mut images, mut engines, mut binaries): (Vec<String>, Vec<String>, Vec<(String, PathBuf)>) =
        Default::default();
    let (mut rounds, mut seldom, mut corpus, mut json, mut docs, mut quick) = (None, 3, None, None, false, false);
    let (mut parts, mut containerds) = (BenchParts::default(), Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let (flag, inline) = match arg.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => (flag, Some(value.to_owned())),
            _ => (arg.as_str(), None),
        };
        let has_value = inline.is_some();
        let mut value = || {
            let value = inline.clone().or_else(|| args.next().cloned()).unwrap_or_default();
            if value.is_empty() { Err(format!("{flag} needs a value")) } else { Ok(value) }
        };
        match flag {
            "--rounds" | "--seldom" => {
                let text = value()?;
                let number = text.parse().ok().filter(|n| (1..=1000).contains(n));
                let number = number.ok_or_else(|| format!("{flag} {text}: not a number from 1 to 1000"))?;
                if flag == "--rounds" {
                    rounds = Some(number)
                } else {
                    seldom = number
                }
                continue;
            }
            "--image" => {
                let name = value()?;
                if !IMAGES.contains(&name.as_str()) {
                    return Err(format!("--image {name}: no such image; there are {}", IMAGES.join(" ")));
                }
                images.push(name);
                continue;
            }
            "--engine" => {
                engines.push(value()?);
                continue;
            }
            "--binary" => {
                let text = value()?;
                let Some((name, file)) = text.split_once('=').filter(|(n, f)| !n.is_empty() && !f.is_empty()) else {
                    return Err(format!("--binary {text}: not of the form NAME=FILE"));
                };
                let known = OWN.contains(&name) || OTHERS.contains(&name);
                let taken = binaries.iter().any(|(n, _)| n == name) || (known && name != "imagelet");
                if taken {
                    return Err(format!("--binary {text}: the name {name} is taken"));
                }
                binaries.push((name.to_owned(), file.into()));
                continue;
            }
            "--corpus" => {
                corpus = Some(PathBuf::from(value()?));
                continue;
            }
            "--json" => {
                json = Some(PathBuf::from(value()?));
                continue;
            }
            "--memory" => {
                let text = value()?;
                parts.memory = Some(size(&text).ok_or_else(|| format!("--memory {text}: not a size like 64M"))?);
                continue;
            }
            "--containerd" => {
                containerds.push(PathBuf::from(value()?));
                continue;
            }
            "--quick" => quick = true,
            "--docs" => docs = true,
            "--engines" => parts.engines = true,
            "--together" => parts.together = true,
            "--warm" => parts.warm = true,
            "--shapes" => parts.shapes = true,
            "--profile" => parts.profile = true,
            "--behind" => parts.behind = true,
            "--containers" => parts.containers = true,
            "--everything" => {
                let memory = parts.memory.or(Some(64 << 20));
                parts = BenchParts {
                    engines: true,
                    together: true,
                    warm: true,
                    shapes: true,
                    profile: true,
                    behind: true,
                    containers: true,
                    memory,
                };
            }
            "--help" | "-h" => return Ok(Asked::Help),
            _ => return Err(format!("{arg}: no such argument; --help has them all")),
        }
        if has_value {
            return Err(format!("{flag} takes no value"));
        }
    }
    if quick && !images.is_empty() {
        return Err("--quick is the image base: it does not go with --image".into());
    }
    if parts == BenchParts::default() {
        parts.engines = true;
    }
    if json.is_some() && !parts.engines && !parts.behind {
        return Err(
            "--json writes what the engines took, or else --behind: it needs --engines beside other parts".into()
        );
    }
    let chosen =
        |name: &str| if quick { name == "base" } else { images.is_empty() || images.iter().any(|i| i == name) };
    Ok(Asked::Run(BenchOptions {
        images: IMAGES.iter().filter(|name| chosen(name)).map(|&name| name.to_owned()).collect(),
        rounds: rounds.unwrap_or(if quick { 2 } else { 5 }),
        seldom,
        engines: engines_of(&engines, &binaries)?,
        binaries,
        corpus,
        json,
        docs,
        containerds,
        parts,
    }))
}

/// The engines that run: all, or those that were named, in the table's order.
fn engines_of(named: &[String], binaries: &[(String, PathBuf)]) -> Result<Vec<String>, String> {
    let further = binaries.iter().map(|(name, _)| name.as_str()).filter(|name| !OWN.contains(name));
    let all: Vec<&str> = OWN.iter().copied().chain(further).chain(OTHERS.iter().copied()).collect();
    if let Some(unknown) = named.iter().find(|name| !all.contains(&name.as_str())) {
        return Err(format!("--engine {unknown}: no such engine; there are {}", all.join(" ")));
    }
    let wanted = |name: &&str| named.is_empty() || named.iter().any(|n| n == name);
    Ok(all.into_iter().filter(wanted).map(str::to_owned).collect())
}

/// A number of bytes: `64M`, `1G`, `65536K`, with or without `i` or `iB` behind it; always by powers of two.
fn size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "" => 0,
        "K" | "Ki" | "KiB" => 10,
        "M" | "Mi" | "MiB" => 20,
        "G" | "Gi" | "GiB" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|&bytes| bytes > 0)
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
