//! CPU time of a pull, from a profile by `perf`: shares of stages, and the functions at the top of a flame graph.
//!
//! The reading of `perf script` and the table of stages are pure; `run` records.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;

use crate::engines::imagelet;
use crate::lab::Lab;
use crate::session::program;
use crate::table::seconds;

/// Images whose pulls are profiled, where they are among the chosen ones.
const PROFILED: &[&str] = &["base", "app", "ml", "manylayers"];
/// How many functions are shown.
const TOP: usize = 12;
/// Samples in a second of CPU.
const RATE: u32 = 999;

/// Part of a function's name, and the stage of a sample that contains such a function. The innermost function that matches a rule
/// decides, by its first matching rule. Kernel and user functions are distinguished by name alone.
const STAGES: &[(&str, &str)] = &[
    ("crc32", "checksum of gzip"),
    ("pclmulqdq", "checksum of gzip"),
    ("inflate", "inflate"),
    ("decode_huffman", "inflate"),
    ("libdeflate", "inflate"),
    ("adler32", "inflate"),
    ("ZSTD_decompress", "inflate"),
    ("HUF_decompress", "inflate"),
    ("ZSTD_decode", "inflate"),
    ("FSE_", "inflate"),
    ("ZSTD_", "recipe (zstd)"),
    ("HUF_", "recipe (zstd)"),
    ("sha256", "SHA-256"),
    ("sha2::", "SHA-256"),
    // How sha2 loads its blocks, where that is not inlined.
    ("try_trait::Wrapped", "SHA-256"),
    ("sync_file_range", "writing out"),
    ("sys_fsync", "writing out"),
    ("sys_fdatasync", "writing out"),
    ("sys_syncfs", "writing out"),
    ("sys_openat", "files: create"),
    ("sys_write", "files: write"),
    ("sys_pwrite", "files: write"),
    ("sys_fallocate", "files: write"),
    ("sys_utimens", "files: times, owners, modes"),
    ("sys_fchmod", "files: times, owners, modes"),
    ("sys_fchown", "files: times, owners, modes"),
    ("xattr", "files: times, owners, modes"),
    ("sys_close", "files: close"),
    ("task_work_run", "files: close"),
    ("__fput", "files: close"),
    ("sys_mkdir", "directories, links, names"),
    ("sys_symlink", "directories, links, names"),
    ("sys_link", "directories, links, names"),
    ("sys_unlink", "directories, links, names"),
    ("sys_rename", "directories, links, names"),
    ("sys_mknod", "directories, links, names"),
    ("sys_recv", "network"),
    ("sys_read", "network"),
    ("sys_send", "network"),
    ("net_rx_action", "network"),
    ("sys_epoll", "waiting and waking"),
    ("sys_futex", "waiting and waking"),
    ("sched_yield", "waiting and waking"),
    ("ret_from_fork", "start and end of threads"),
    ("sys_clone", "start and end of threads"),
    ("sys_exit", "start and end of threads"),
    ("sys_execve", "start and end of threads"),
    ("exc_page_fault", "memory: new pages"),
    ("sys_mmap", "memory: new pages"),
    ("sys_munmap", "memory: new pages"),
    ("sys_madvise", "memory: new pages"),
    ("sys_mprotect", "memory: new pages"),
    ("sys_brk", "memory: new pages"),
    ("memmove", "memory: copies and zeros"),
    ("memcpy", "memory: copies and zeros"),
    ("memset", "memory: copies and zeros"),
    ("malloc", "memory: allocator"),
    ("cfree", "memory: allocator"),
    ("_int_free", "memory: allocator"),
    ("redb::", "database"),
    ("imagelet_store::tar", "tar and tree"),
    ("imagelet_store::unpack", "tar and tree"),
    ("imagelet_store::recipe", "tar and tree"),
    ("hyper", "network"),
];

/// Shares of the stages in a profile.
#[derive(Debug, Default, PartialEq)]
struct Shares {
    samples: usize,
    /// Stage or function, and its part of all samples, the greatest first.
    stages: Vec<(String, f64)>,
    functions: Vec<(String, f64)>,
}

impl Shares {
    /// Stages and functions side by side.
    fn table(&self, image: &str) -> String {
        let mut out = format!(
            "**{image}** ({} samples, {RATE} a second of CPU)\n\n| stage | share | CPU (s) | function | share |\n|---|---|---|---|---|\n",
            self.samples
        );
        for at in 0..TOP {
            let stage = self.stages.get(at).map_or_else(
                || " | | ".to_owned(),
                |(name, share)| {
                    let cpu = share * self.samples as f64 / f64::from(RATE);
                    format!("{name} | {:.1} % | {}", share * 100.0, seconds(cpu))
                },
            );
            let function = self.functions.get(at).map_or_else(
                || " | ".to_owned(),
                |(name, share)| format!("`{}` | {:.1} %", name.replace('|', "\\|"), share * 100.0),
            );
            let _ = writeln!(out, "| {stage} | {function} |");
        }
        out.push('\n');
        out
    }
}

/// Profiles a pull of each of the images and reports the CPU time by stage and function.
pub(crate) fn run(lab: &Lab, binary: &Path, images: &[String]) -> anyhow::Result<String> {
    let mut out = String::from(
        "`perf record -g` of a relaxed pull, CPU of imagelet alone: the shares of the stages, and the functions at the top of a flame graph \
         (a function's own time).\n\n",
    );
    for image in images.iter().filter(|image| PROFILED.contains(&image.as_str())) {
        lab.remove("imagelet")?;
        lab.settle()?;
        let data = lab.session.memory.join("perf");
        let pull = imagelet(lab, binary, false, "pull");
        let mut record = program("perf", &lab.session.work);
        record.args(["record", "-q", "-g", "-F", &RATE.to_string(), "-o"]).arg(&data).arg("--");
        record.arg(pull.get_program()).args(pull.get_args()).arg(lab.reference(image));
        lab.session.output(&mut record).with_context(|| format!("profile {image}"))?;
        let mut script = program("perf", &lab.session.work);
        script.args(["script", "-F", "ip,sym", "--no-inline", "-i"]).arg(&data);
        out += &shares(&lab.session.output(&mut script)?).table(image);
    }
    lab.remove("imagelet")?;
    Ok(out)
}

/// Reads what `perf script` prints: one block of lines for each sample, innermost function first.
fn shares(script: &str) -> Shares {
    let (mut stages, mut functions): (BTreeMap<&str, usize>, BTreeMap<String, usize>) = Default::default();
    let mut samples = 0;
    for block in script.split("\n\n") {
        let names: Vec<&str> = block.lines().filter_map(|line| Some(line.trim().split_once(' ')?.1.trim())).collect();
        let Some(innermost) = names.first() else { continue };
        samples += 1;
        *functions.entry(plain(innermost)).or_default() += 1;
        *stages.entry(stage(&names)).or_default() += 1;
    }
    let sorted = |counts: Vec<(String, usize)>| {
        let mut list: Vec<(String, f64)> =
            counts.into_iter().map(|(name, count)| (name, count as f64 / samples.max(1) as f64)).collect();
        list.sort_by(|(a, x), (b, y)| y.total_cmp(x).then_with(|| a.cmp(b)));
        list
    };
    Shares {
        samples,
        stages: sorted(stages.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()),
        functions: sorted(functions.into_iter().collect()),
    }
}

/// The stage of a sample, by its functions from the innermost outwards.
fn stage(names: &[&str]) -> &'static str {
    let by_name = |name: &&str| STAGES.iter().find(|(part, _)| name.contains(part)).map(|(_, stage)| *stage);
    names.iter().find_map(by_name).unwrap_or("everything else")
}

/// A function without the hash and the type parameters of its name.
fn plain(name: &str) -> String {
    let short = match name.rsplit_once("::h") {
        Some((short, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => short,
        _ => name,
    };
    short.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "\n\tffffffff81b98907 copy_folio_from_iter_atomic\n\tffffffff81b98908 ext4_buffered_write_iter\n\
        \tffffffff81b98909 __x64_sys_write\n\t           fdc47 write\n\n\n\t  8f9493 zlib_rs::inflate::inflate_fast::h0123456789abcdef\n\
        \t  8f9494 imagelet_store::tar::read\n\n\n\t  8f9493 zlib_rs::inflate::inflate_fast::h0123456789abcdef\n\n\n\t  1 [unknown]\n\n";

    #[test]
    fn samples_are_counted_by_stage_and_function() {
        let shares = shares(SCRIPT);
        assert_eq!(shares.samples, 4);
        let stages: Vec<&str> = shares.stages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(stages, ["inflate", "everything else", "files: write"]);
        assert_eq!(shares.stages[0].1, 0.5);
        assert_eq!(shares.functions[0], ("zlib_rs::inflate::inflate_fast".to_owned(), 0.5));
        let table = shares.table("base");
        assert!(table.starts_with("**base** (4 samples, 999 a second of CPU)"), "{table}");
        assert!(
            table.contains("\n| inflate | 50.0 % | 0.002 | `zlib_rs::inflate::inflate_fast` | 50.0 % |\n"),
            "{table}"
        );
        assert_eq!(super::shares("").samples, 0);
    }

    #[test]
    fn the_innermost_function_that_is_known_decides() {
        assert_eq!(stage(&["ZSTD_decompressStream", "imagelet_store::tar"]), "inflate");
        assert_eq!(stage(&["ZSTD_compressBlock", "imagelet_store::recipe"]), "recipe (zstd)");
        assert_eq!(
            stage(&["_raw_spin_unlock", "ext4_create", "do_sys_openat2", "imagelet_store::unpack"]),
            "files: create"
        );
        assert_eq!(stage(&["__memmove_avx", "imagelet_store::tar"]), "memory: copies and zeros");
        assert_eq!(stage(&["main"]), "everything else");
    }
}
