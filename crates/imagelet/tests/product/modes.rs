//! Every mode of a pull gives the same tree, entry by entry: how layers are packed, how many of them are unpacked
//! at the same time, on how many cores, by one stream or by ranges, with blobs kept or not. [`super::tree`] compares the
//! tree of the plain mode with umoci and containerd.

use std::path::Path;
use std::time::Duration;

use cri_api::{ImageService as _, PullImageRequest};
use image_service::{Engine, EngineOptions};
use registry::RangePolicy;

use crate::support::images::{Layer, Packing};
use crate::support::nasty;
use crate::support::random::noise_of;
use crate::support::scene::Scene;
use crate::support::tree::{Tree, differences, read};
use crate::support::{Imagelet, images};

/// A way to pull: its name, and its flags.
type Mode = (&'static str, PullPath);

#[derive(Clone, Copy)]
enum PullPath {
    /// The program, with flags.
    Program(fn(Imagelet) -> Imagelet),
    /// The engine as a library, for what no flag says.
    Engine(fn(&mut EngineOptions)),
}

use PullPath::{Engine as Library, Program};

/// How many layers at the same time, on how many cores, how careful.
const LAYERS: &[Mode] = &[
    ("as it comes", Program(|i| i)),
    ("one layer at a time", Library(|o| o.max_parallel_layers = 1)),
    ("eight layers at a time", Library(|o| o.max_parallel_layers = 8)),
    ("one core, four layers", Program(Imagelet::one_core)),
    ("directories", Program(|i| i.global("--layer-format", "dir"))),
    ("EROFS files", Program(|i| i.global("--layer-format", "erofs"))),
    ("relaxed", Program(|i| i.global("--durability", "relaxed"))),
    ("blobs kept", Library(|o| o.keep_blobs = true)),
];

/// How a long layer is fetched and inflated.
const STREAMS: &[Mode] = &[
    ("as it comes", Program(|i| i)),
    ("directories", Program(|i| i.global("--layer-format", "dir"))),
    ("EROFS files, one core", Program(|i| i.one_core().global("--layer-format", "erofs"))),
    ("one core", Program(Imagelet::one_core)),
    ("blobs kept", Library(|o| o.keep_blobs = true)),
    ("over one connection", Library(|o| o.ranges.per_blob = 1)),
    ("by ranges, whatever they bring", Library(|o| o.ranges = eager())),
];

/// Ranges where no line is slow enough for them to be worth it.
fn eager() -> RangePolicy {
    let window = Duration::from_millis(1);
    RangePolicy { min_left: 1 << 20, chunk: (256 << 10, 1 << 20), window, enough: u64::MAX, ..RangePolicy::default() }
}

/// Pulls in one way into a store of its own, and reads the tree.
fn pulled(s: &Scene, name: &str, mode: &Mode) -> Tree {
    let store = tempfile::tempdir_in(s.scratch.path()).expect("a directory");
    let root = store.path().join("root");
    let imagelet = Imagelet::on(&root);
    match mode.1 {
        Program(with) => drop(with(imagelet.clone()).ok(&["pull", name])),
        Library(set) => {
            let mut options = EngineOptions { root, hosts_roots: Vec::new(), ..EngineOptions::default() };
            set(&mut options);
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(async {
                let engine = Engine::open(options).await.expect("open a store");
                engine.pull_image(PullImageRequest::new(name)).await.unwrap_or_else(|e| panic!("{}: {e}", mode.0));
                engine.shutdown().await;
            });
        }
    }
    let mounted = imagelet.mount(name, store.path().join("mounted"));
    let tree = read(&mounted);
    imagelet.ok(&["unmount", &mounted.display().to_string()]);
    tree
}

/// Pulls the image, packed in each of these ways, in each of these modes; all trees are like the first one, which is the answer.
fn same_in_every_mode(s: &Scene, matrix: &[(Packing, &[Mode])], layers: impl Fn(Packing) -> Vec<Layer>) -> Tree {
    let mut first = None;
    for &(packing, modes) in matrix {
        let name = format!("test/packed:{packing:?}").to_lowercase();
        let name = s.registry.push(&s.layout, &s.layout.image(&layers(packing)), &name);
        for mode in modes {
            let tree = pulled(s, &name, mode);
            let first = first.get_or_insert_with(|| tree.clone());
            let found = differences(first, &tree);
            assert_eq!(found, Vec::<String>::new(), "{:?}, as it comes | {packing:?}, {}", matrix[0].0, mode.0);
        }
    }
    first.expect("at least one mode")
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_image_with_everything() {
    let s = Scene::new();
    let plain = &LAYERS[..1];
    let matrix = [
        (Packing::Gzip, LAYERS),
        (Packing::Zstd, &LAYERS[2..]),
        (Packing::Plain, plain),
        (Packing::Members, plain),
        (Packing::Stored, plain),
        (Packing::Frames, plain),
    ];
    let tree = same_in_every_mode(&s, &matrix, |packing| nasty::layers(&s.scratch, &s.layout, packing));
    assert!(tree.len() > 300, "only {} entries", tree.len());
    // Files that no peer reads are compared with the packed ones.
    for path in ["old-sparse/holes", "sparse/holes"] {
        let source = s.scratch.join(if path.starts_with("old") { "nasty-old" } else { "nasty-pax" });
        assert_eq!(tree[Path::new(path)], read(&source)[Path::new(path)], "{path}");
    }
}

/// A layer that is long enough to be fetched by ranges and to be inflated by several threads.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_long_layer() {
    let s = Scene::new();
    let tree = s.scratch.directory("long");
    let digits: Vec<[u8; 2]> = (0..=255_u8).map(|b| format!("{b:02x}").into_bytes().try_into().expect("two")).collect();
    // Half of it can be taken away by a compressor, in blocks of every kind; and some can be taken away whole.
    let hexadecimal: Vec<u8> = noise_of("long", 9 << 20).iter().flat_map(|b| digits[usize::from(*b)]).collect();
    images::write(&tree.join("hexadecimal"), &hexadecimal);
    images::write(&tree.join("noise"), noise_of("noise", 1 << 20));
    images::write(&tree.join("zeros"), vec![0; 3 << 20]);
    for n in 0..200 {
        images::write(&tree.join(format!("small/{n}")), &hexadecimal[n * 1000..n * 1000 + n]);
    }
    images::settle(&tree);
    let matrix = [(Packing::Gzip, STREAMS), (Packing::Members, &STREAMS[..2]), (Packing::Zstd, &STREAMS[3..])];
    let got = same_in_every_mode(&s, &matrix, |packing| vec![s.layout.layer(&tree, packing)]);
    assert_eq!(differences(&read(&tree), &got), Vec::<String>::new(), "what was packed | what came out");
}
