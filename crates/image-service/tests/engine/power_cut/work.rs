//! What is recorded: a node's day in a few seconds, with remarks of what was told to whoever asked for it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender};

use cri_api::{ConvertRequest, ImageService as _, ImageSpec, LayerShape};
use image_service::Engine;
use registry::testing::{BuiltImage, BuiltLayer, Fault, LayerBuilder, TestRegistry};
use store::{Durability, LayerFormat, OpenOptions, Sharing};
use testdisk::{Disk, Event, Image, Kind};

use crate::support::{blob, image, layer, noise, options};

/// What is recorded on what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) kind: Kind,
    pub(crate) bytes: u64,
    pub(crate) format: LayerFormat,
    pub(crate) durability: Durability,
    pub(crate) sharing: Sharing,
    pub(crate) keep_blobs: bool,
}

impl Setting {
    /// How a store is opened during this boot of the machine.
    pub(crate) fn store(&self, boot: &str) -> OpenOptions {
        OpenOptions {
            durability: self.durability,
            layer_format: self.format,
            sharing: self.sharing,
            // What is relaxed is settled at the end of an agent only.
            agent_socket: Some("/nowhere".into()),
            reserve_bytes: 1 << 20,
            boot: Some(boot.to_owned()),
            ..OpenOptions::default()
        }
    }
}

/// A recorded day.
pub(crate) struct Record {
    pub(crate) setting: Setting,
    pub(crate) base: Image,
    pub(crate) events: Vec<Event>,
    /// All that was ever pulled, by image id.
    pub(crate) images: BTreeMap<String, BuiltImage>,
    /// Still has them all.
    pub(crate) registry: TestRegistry,
    pub(crate) seed: u64,
    /// What the registry lives in.
    pub(crate) runtime: tokio::runtime::Runtime,
}

/// Many small files, and a bigger one.
fn tree(name: &str, seed: u64, bytes: usize) -> BuiltLayer {
    let mut layer = LayerBuilder::new().dir(&format!("{name}/"));
    for file in 0..40_u64 {
        layer = layer.file(
            &format!("{name}/f{file}"),
            noise(seed * 100 + file, 300 + 97 * usize::try_from(file).expect("small")),
        );
    }
    // Every one of these has it.
    layer = layer.file(&format!("{name}/common"), noise(7, 30_000));
    layer.symlink(&format!("{name}/link"), "f1").file(&format!("{name}/big"), noise(seed, bytes)).build()
}

/// A layer that has an implicit directory, whose attributes are those of the layer below.
fn dependent(name: &str, seed: u64) -> BuiltLayer {
    LayerBuilder::new().file(&format!("base/{name}"), noise(seed, 20_000)).build()
}

/// The day itself: it says to the disk what it has told.
struct Day<'a> {
    disk: &'a Disk,
    registry: &'a TestRegistry,
    engine: Engine,
    /// As time goes by the kernel writes what nobody has synced. Here it does so while the work goes on.
    time: Option<&'a Sender<()>>,
}

impl Day<'_> {
    fn note(&self, text: &str) {
        self.disk.note(text).expect("notes");
        if let Some(time) = self.time {
            time.send(()).expect("it goes by until the end");
        }
    }

    fn name(&self, name: &str) -> String {
        format!("{}/{name}", self.registry.host())
    }

    async fn pull(&self, name: &str, id: &str) {
        self.note(&format!("pulling {name} {id}"));
        let pulled = self.engine.pull_image(cri_api::PullImageRequest::new(self.name(name))).await.expect("pulls");
        assert_eq!(pulled, id);
        self.note(&format!("pulled {name} {id}"));
    }

    async fn remove(&self, names: &[&str]) {
        self.note(&format!("removing {}", names.join(" ")));
        let specs: Vec<ImageSpec> = names.iter().map(|name| ImageSpec::new(self.name(name))).collect();
        if let [spec] = &specs[..] {
            self.engine.remove_image(spec).await.expect("removes");
        } else {
            for removed in self.engine.remove_images(&specs).await {
                removed.expect("removes");
            }
        }
        self.note(&format!("removed {}", names.join(" ")));
    }

    async fn convert(&self, to: LayerShape) {
        self.note("converting");
        let report = self.engine.convert_images(&ConvertRequest { to, images: Vec::new() }).await;
        report.expect("converts").expect("can");
    }

    /// A pull that fails in its last layer, and leaves to be swept what it had.
    async fn fail(&self, name: &str, image: &BuiltImage) {
        let last = blob(image, image.layers.len() - 1).to_string();
        self.registry.faults().always(&last, Fault::Corrupt);
        let done = self.engine.pull_image(cri_api::PullImageRequest::new(self.name(name))).await;
        assert!(done.is_err(), "what was changed on its way is refused");
        self.registry.faults().clear();
    }

    /// A clean end.
    async fn end(self) {
        self.engine.shutdown().await;
        drop(self.engine);
        self.disk.note("settled").expect("notes");
    }
}

/// The kernel, which writes the file system's files now and then.
fn pass_time(root: &Path, told: &Receiver<()>) {
    let root = std::fs::File::open(root).expect("it is mounted");
    while told.recv().is_ok() {
        for _ in 0..3 {
            rustix::fs::syncfs(&root).expect("syncs");
        }
    }
}

/// Records a day.
pub(crate) fn record(setting: &Setting) -> Record {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let day = runtime.block_on(day(setting));
    let seed = 0x1dea + setting.bytes + u64::from(setting.format == LayerFormat::Erofs);
    let Recorded { base, events, images, registry } = day;
    Record { setting: *setting, base, events, images, registry, seed, runtime }
}

struct Recorded {
    base: Image,
    events: Vec<Event>,
    images: BTreeMap<String, BuiltImage>,
    registry: TestRegistry,
}

async fn day(setting: &Setting) -> Recorded {
    let disk = Disk::new(setting.kind, setting.bytes).expect("a disk: this test needs root");
    let base = disk.record().expect("records");
    let mounted = disk.mount().expect("mounts");
    let registry = TestRegistry::open().await;

    let shared = tree("base", 1, 300_000);
    let images = [
        ("one:v1", image().layer(shared.clone()).layer(tree("one", 2, 700_000)).build()),
        ("two:v1", image().layer(shared.clone()).layer(dependent("two", 3)).layer(tree("two", 4, 200_000)).build()),
        ("three:v1", image().layer(shared.clone()).layer(layer("three/x", 5, 900_000)).build()),
        ("four:v1", image().layer(tree("four", 6, 400_000)).layer(dependent("four", 7)).build()),
        ("five:v1", image().layer(shared).layer(tree("five", 8, 500_000)).layer(tree("more", 9, 100_000)).build()),
    ];
    for (name, image) in &images {
        let (repository, tag) = name.split_once(':').expect("a tag");
        registry.push(repository, tag, image);
    }
    // The same name, another image.
    let newer = image().layer(images[2].1.layers[0].clone()).layer(layer("three/y", 10, 300_000)).build();
    let ids: Vec<String> = images.iter().map(|(_, image)| image.id().to_string()).collect();

    let options = image_service::EngineOptions {
        store: setting.store("the boot before"),
        root: mounted.path().join("store"),
        keep_blobs: setting.keep_blobs,
        ..options(mounted.path())
    };
    let (time_sender, told) = std::sync::mpsc::channel();
    let kernel = {
        let root = mounted.path().to_owned();
        std::thread::spawn(move || pass_time(&root, &told))
    };
    let time = (setting.durability == Durability::Relaxed).then_some(&time_sender);
    let begin = async || Day {
        disk: &disk,
        registry: &registry,
        engine: Engine::open(options.clone()).await.expect("opens"),
        time,
    };
    let day = begin().await;
    day.pull("one:v1", &ids[0]).await;
    tokio::join!(day.pull("two:v1", &ids[1]), day.pull("three:v1", &ids[2]));
    day.remove(&["one:v1"]).await;
    day.fail("five:v1", &images[4].1).await;
    day.pull("four:v1", &ids[3]).await;
    registry.push("three", "v1", &newer);
    day.pull("three:v1", &newer.id().to_string()).await;
    let to = if setting.format == LayerFormat::Dir { LayerShape::Erofs } else { LayerShape::Dir };
    day.convert(to).await;
    day.pull("one:v1", &ids[0]).await;
    // An end and a new beginning, without a stop of the machine.
    day.end().await;
    let day = begin().await;
    tokio::join!(day.pull("five:v1", &ids[4]), day.remove(&["two:v1"]));
    day.remove(&["one:v1", "four:v1", "three:v1"]).await;
    day.pull("two:v1", &ids[1]).await;
    day.end().await;
    drop(time_sender);
    kernel.join().expect("it ends with the day");
    let events = disk.recorded().expect("a record");
    drop(mounted);
    let all = images.into_iter().map(|(_, image)| image).chain([newer]);
    let images = all.map(|image| (image.id().to_string(), image)).collect();
    Recorded { base, events, images, registry }
}
