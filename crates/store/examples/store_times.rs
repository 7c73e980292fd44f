//! How long the parts of a pull's end and of a removal take, for measuring by hand: `store_times DIRECTORY [FILES]`.
//!
//! Makes a store in a new directory, an image of three layers with that many small files each, and prints the time of
//! unpack, commit, listing, removal and a second opening. Compare on a journaled file system, several rounds.

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use imagelet_store::{ImageCommit, LayerSource, OpenOptions, Store};
use oci::{Digest, Reference};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let Some(directory) = arguments.next().map(PathBuf::from) else {
        return Err("usage: store_times DIRECTORY [FILES]".into());
    };
    let files: usize = arguments.next().map_or(Ok(20_000), |text| text.parse())?;
    let out = &mut io::stdout();
    let mut say = |what: &str, begin: Instant| writeln!(out, "{what:<24} {:?}", begin.elapsed());

    let begin = Instant::now();
    let store = Store::open(&directory, OpenOptions::default())?;
    say("open a new store", begin)?;
    let tars: Vec<Vec<u8>> = (0..3_u8).map(|layer| tar(layer, files)).collect();
    let diff_ids: Vec<Digest> = tars.iter().map(|tar| Digest::sha256(tar)).collect();
    let config = serde_json::json!({ "os": "linux", "architecture": "amd64", "rootfs": { "type": "layers", "diff_ids": diff_ids } });

    let begin = Instant::now();
    let lease = store.lease();
    let mut layers = Vec::new();
    for (tar, diff_id) in tars.iter().zip(&diff_ids) {
        let layer = Arc::new(store.new_layer(&lease)?.unpack(&mut tar.as_slice(), &|| false)?);
        layers.push(LayerSource::New { layer, diff_id: diff_id.clone() });
    }
    say("unpack", begin)?;
    let begin = Instant::now();
    let commit = ImageCommit { config: config.to_string().into_bytes(), layers, ..ImageCommit::default() };
    let image = store.commit_image(&lease, commit.clone())?;
    say("commit", begin)?;
    let begin = Instant::now();
    store.commit_image(&lease, ImageCommit { tag: Some(Reference::parse("docker.io/library/a:1")?), ..commit })?;
    say("commit, all there", begin)?;
    drop(lease);
    let begin = Instant::now();
    for _ in 0..1000 {
        store.resolve(&"a:1".into())?.ok_or("the image is there")?;
    }
    say("resolve, 1000 times", begin)?;
    let begin = Instant::now();
    for _ in 0..1000 {
        store.totals()?;
    }
    say("totals, 1000 times", begin)?;
    drop(store);
    let begin = Instant::now();
    let store = Store::open(&directory, OpenOptions::default())?;
    say("open again", begin)?;
    let begin = Instant::now();
    let removed = store.remove_image(&image.id)?;
    say("remove", begin)?;
    writeln!(io::stdout(), "{removed:?}")?;
    Ok(())
}

/// Directories of 50 files with 500 bytes each.
fn tar(layer: u8, files: usize) -> Vec<u8> {
    let mut tar = Vec::new();
    let mut entry = |path: String, kind: u8, content: &[u8]| {
        let mut header = [0_u8; 512];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, path.as_bytes());
        put(100, b"0000755\0");
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{:011o}\0", content.len()).as_bytes());
        put(136, b"14000000000\0");
        put(148, b"        ");
        put(156, &[kind]);
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        tar.extend_from_slice(&header);
        tar.extend_from_slice(content);
        tar.resize(tar.len().next_multiple_of(512), 0);
    };
    entry("./".into(), b'5', b"");
    for file in 0..files {
        if file % 50 == 0 {
            entry(format!("layer{layer}-{}/", file / 50), b'5', b"");
        }
        entry(format!("layer{layer}-{}/{file}", file / 50), b'0', &[layer; 500]);
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}
