//! The memory of pulls: a large image in a cgroup of 64 MiB, and ten images at once, which share the budget of one. Page cache
//! counts in a cgroup, so written pages must be released as well.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cri_api::{ImageService, PullImageRequest};
use cri_grpc::Endpoint;
use cri_grpc::client::{ClientOptions, connect_image_service};
use futures::future::join_all;

use super::FORMAT;
use crate::support::cgroup::Cgroup;
use crate::support::gate::Gate;
use crate::support::images::{self, Image, Layer, Packing};
use crate::support::process::{eventually, watch_held};
use crate::support::random::noise_of;
use crate::support::scene::Scene;
use crate::support::{Imagelet, Scratch};

/// The memory of all pulls, however many and however large.
const BUDGET: u64 = 64 << 20;

/// The same without the pages of the program itself, of which a test's build has several times as many as a release.
const HELD: u64 = 44 << 20;

const PULLS: usize = 10;
/// More than are fetched of one image at the same time.
const LAYERS: usize = 5;

/// Imagelet with no more memory than that.
fn limited(scratch: &Scratch) -> Imagelet {
    let imagelet = Imagelet::shaped(FORMAT, &scratch.join("store"));
    let cgroup = Cgroup::of_memory(scratch, BUDGET);
    imagelet.through(&cgroup.words().iter().map(String::as_str).collect::<Vec<_>>())
}

/// A file of this many MiB, whose parts differ only in their beginnings.
fn long_file(path: &Path, mebibytes: usize) {
    let part = noise_of("part", 16 << 10).repeat(64);
    let mut file = File::create(path).expect("create a file");
    for n in 0..mebibytes {
        file.write_all(&n.to_le_bytes()).and_then(|()| file.write_all(&part[8..])).expect("write a file");
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_large_image_in_a_small_cgroup() {
    let s = Scene::shaped(FORMAT);
    let layer = |name: &str, sizes: &[usize], small: usize, packing| {
        let tree = s.scratch.directory(name);
        for (n, mebibytes) in sizes.iter().enumerate() {
            long_file(&tree.join(format!("{name}-{n}")), *mebibytes);
        }
        for n in 0..small {
            images::write(&tree.join(format!("{name}-small/{}/{n}", n % 17)), format!("{n}\n").repeat(n % 400));
        }
        images::settle(&tree);
        let layer = s.layout.layer(&tree, packing);
        fs::remove_dir_all(tree).expect("remove a tree");
        layer
    };
    let layers = [
        layer("a", &[150], 0, Packing::Gzip),
        layer("b", &[50, 0, 10], 2000, Packing::Gzip),
        layer("c", &[1, 120], 100, Packing::Zstd),
    ];
    let name = s.registry.push(&s.layout, &s.layout.image(&layers), "test/large:1");
    let held = limited(&s.scratch).peak_memory(&["pull", &name]);
    assert!(held <= HELD, "{} MiB", held >> 20);
    let mounted = s.imagelet.mount(&name, s.scratch.join("mounted"));
    for (file, mebibytes) in [("a-0", 150), ("b-0", 50), ("c-1", 120)] {
        assert_eq!(fs::metadata(mounted.join(file)).expect("it is there").len(), mebibytes << 20, "{file}");
    }
    assert_eq!(fs::read_to_string(mounted.join("b-small/0/1003")).expect("a file"), "1003\n".repeat(1003 % 400));
}

/// Ten images of equal layers, half of them gzip, half zstd.
fn push_ten(s: &Scene) -> Vec<Image> {
    (0..PULLS)
        .map(|n| {
            let packing = if n % 2 == 0 { Packing::Gzip } else { Packing::Zstd };
            let layers: Vec<Layer> = (0..LAYERS)
                .map(|l| s.file_layer(&format!("data-{l}"), noise_of(&format!("{n}-{l}"), 1 << 20), packing))
                .collect();
            let image = s.layout.image(&layers);
            s.registry.push(&s.layout, &image, &format!("ten/image-{n}:1"));
            image
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root and daemons: scripts/test.sh"]
async fn ten_pulls_at_once_share_it_and_none_starves() {
    let s = Scene::shaped(FORMAT);
    let images = push_ten(&s);
    let gate = Gate::start(s.registry.host().to_owned()).await;
    // Documents pass, layers wait: every pull has begun before any has got on.
    gate.hold_answers_after(256 << 10);
    let socket = s.scratch.join("cri.sock");
    let agent = limited(&s.scratch).serve(&socket);
    let endpoint = Endpoint::parse(&format!("unix://{}", socket.display())).expect("an endpoint");
    let service: Arc<dyn ImageService> =
        Arc::new(connect_image_service(&endpoint, ClientOptions::default()).await.expect("connect"));
    let pulls = (0..PULLS).map(|n| {
        let (service, name) = (Arc::clone(&service), format!("{}/ten/image-{n}:1", gate.host()));
        tokio::spawn(async move { service.pull_image(PullImageRequest::new(name)).await })
    });
    let pulls: Vec<_> = pulls.collect();
    let configs = |requests: &[String]| {
        let is_asked = |image: &&Image| requests.iter().any(|r| r.ends_with(&format!("/blobs/{}", image.id)));
        images.iter().filter(is_asked).count()
    };
    tokio::task::block_in_place(|| {
        eventually("every pull has asked for its config", || configs(&s.registry.requests()) == PULLS);
    });
    let over = Arc::new(AtomicBool::new(false));
    let watch = watch_held(agent.pid(), Arc::clone(&over));
    gate.open();
    for (pull, image) in join_all(pulls).await.into_iter().zip(&images) {
        assert_eq!(pull.expect("no panic").expect("a pull"), image.id);
    }
    over.store(true, Ordering::Relaxed);
    let held = watch.join().expect("no panic");
    assert!(held <= HELD, "{} MiB for ten pulls", held >> 20);

    // The image of each request for a layer, in order. One after the other the last image would begin after nine tenths of them;
    // when all waiting pulls take turns, it begins much earlier, also after one that was first by far.
    let requests = s.registry.requests();
    let of = |request: &String| {
        let layers = |image: &Image| image.blobs[..LAYERS].iter().any(|b| request.contains(&b.digest.to_string()));
        images.iter().position(layers)
    };
    let asked: Vec<usize> = requests.iter().filter_map(of).collect();
    let first = |n: usize| asked.iter().position(|m| *m == n).expect("it was asked for");
    let latest = (0..PULLS).map(first).max().expect("ten of them");
    assert!(latest < PULLS * LAYERS * 7 / 10, "{asked:?}");
}
