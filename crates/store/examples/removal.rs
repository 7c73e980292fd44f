//! The time that the removal of many images takes, compared to merely unlinking the same files, for measuring by hand: `removal
//! DIRECTORY [IMAGES] [FILES] [ROUNDS]`.
//!
//! Makes images that share a base and have a layer of that many small files each, copies their directories, and measures both
//! removals, alternating their order between rounds. Both begin with everything written to the disk. Compare on a journaled file
//! system.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use imagelet_store::{Durability, ImageCommit, LayerSource, OpenOptions, Store};
use oci::{Digest, Reference, chain_id};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let Some(directory) = arguments.next().map(PathBuf::from) else {
        return Err("usage: removal DIRECTORY [IMAGES] [FILES] [ROUNDS]".into());
    };
    let mut number = |default: usize| arguments.next().map_or(Ok(default), |text| text.parse());
    let (images, files, rounds) = (number(1000)?, number(20)?, number(5)?);
    let out = &mut io::stdout();
    let options = OpenOptions { durability: Durability::Relaxed, ..OpenOptions::default() };
    let store = Store::open(&directory.join("store"), options)?;
    let plain = directory.join("plain");
    let (mut of_store, mut of_unlink) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let ids = (0..images).map(|image| pull(&store, image, files)).collect::<Result<Vec<_>, _>>()?;
        copy(&store.root().join("layers"), &plain)?;
        for turn in [round % 2, (round + 1) % 2] {
            rustix::fs::syncfs(File::open(&directory)?)?;
            let begin = Instant::now();
            if turn == 0 {
                for removed in store.remove_images(&ids) {
                    removed?;
                }
                of_store.push(begin.elapsed());
            } else {
                fs::remove_dir_all(&plain)?;
                of_unlink.push(begin.elapsed());
            }
        }
        let (store, unlink) = (of_store[round], of_unlink[round]);
        writeln!(out, "round {round}: store {store:?}, unlinking {unlink:?}")?;
    }
    let (store, unlink) = (median(&mut of_store), median(&mut of_unlink));
    let ratio = store.as_secs_f64() / unlink.as_secs_f64();
    writeln!(out, "median of {rounds}: store {store:?}, unlinking {unlink:?}, ratio {ratio:.2}")?;
    Ok(())
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// A base that all have, and a layer of its own.
fn pull(store: &Store, image: usize, files: usize) -> Result<Digest, Box<dyn Error>> {
    let lease = store.lease();
    let tars = [tar("base", 1), tar(&image.to_string(), files)];
    let (mut layers, mut diff_ids, mut below) = (Vec::new(), Vec::new(), None);
    for tar in &tars {
        let diff_id = Digest::sha256(tar);
        let chain = chain_id(below.as_ref(), &diff_id);
        layers.push(match store.find_layer(&lease, &diff_id, &chain)? {
            Some(layer) => LayerSource::Present(layer),
            None => {
                let layer = Arc::new(store.new_layer(&lease)?.unpack(&mut tar.as_slice(), &|| false)?);
                LayerSource::New { layer, diff_id: diff_id.clone() }
            }
        });
        diff_ids.push(diff_id);
        below = Some(chain);
    }
    let rootfs = serde_json::json!({ "type": "layers", "diff_ids": diff_ids });
    let config =
        serde_json::json!({ "os": "linux", "architecture": "amd64", "rootfs": rootfs }).to_string().into_bytes();
    let tag = Some(Reference::parse(&format!("r.example/image:{image}"))?);
    Ok(store.commit_image(&lease, ImageCommit { config, tag, layers, ..ImageCommit::default() })?.id)
}

fn tar(name: &str, files: usize) -> Vec<u8> {
    let mut tar = Vec::new();
    entry(&mut tar, "d/", b'5', 0);
    for file in 0..files {
        entry(&mut tar, &format!("d/{name}-{file}"), b'0', 5000);
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}

fn entry(tar: &mut Vec<u8>, path: &str, kind: u8, size: usize) {
    let mut header = [0_u8; 512];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, path.as_bytes());
    put(100, b"0000755\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, b"14000000000\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    tar.extend_from_slice(&header);
    tar.resize(tar.len() + size.next_multiple_of(512), b'x');
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), &to)?;
        }
    }
    Ok(())
}
