//! The recorded work: a node's day in a few seconds, with a remark for each result that was reported to a caller.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender};

use cri_api::engine::{ConvertRequest, ImageEngine as _, LayerShape};
use cri_api::{ImageService as _, ImageSpec, LayerState, PullEvent, PullImageRequest};
use image_service::{Engine, EngineOptions, Resume};
use registry::testing::{BuiltImage, BuiltLayer, Fault, LayerBuilder, TestRegistry};
use store::{Durability, LayerFormat, OpenOptions};
use testdisk::{Disk, Event, Image, Kind};

use crate::support::{Watch, blob, image, layer, noise, options};

/// A recording's engine and file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) kind: Kind,
    pub(crate) bytes: u64,
    pub(crate) format: LayerFormat,
    pub(crate) durability: Durability,
    pub(crate) keep_blobs: bool,
    /// Setting of resumption; unless `Off`, the day has pulls that are interrupted and gone on with.
    pub(crate) resume: Resume,
    /// The day has an image of many layers that is mounted.
    pub(crate) mounts: bool,
}

impl Setting {
    /// An engine in `directory` during this boot.
    pub(crate) fn engine(&self, directory: &Path, boot: &str) -> EngineOptions {
        EngineOptions {
            store: self.store(boot),
            root: directory.join("store"),
            keep_blobs: self.keep_blobs,
            resume: self.resume,
            ..options(directory)
        }
    }

    /// How a store is opened during this boot of the machine.
    pub(crate) fn store(&self, boot: &str) -> OpenOptions {
        OpenOptions {
            durability: self.durability,
            layer_format: self.format,
            // What is relaxed is settled at the end of an agent only.
            agent_socket: Some("/nowhere".into()),
            reserve_bytes: 1 << 20,
            boot: Some(boot.to_owned()),
            // What an engine asks for by itself.
            unfinished_since: (self.resume != Resume::Off).then_some(0),
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
    /// Names of what can be pulled.
    pub(crate) names: Vec<&'static str>,
    /// Still has them all.
    pub(crate) registry: TestRegistry,
    pub(crate) seed: u64,
    /// Runtime of the registry.
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
    layer.symlink(&format!("{name}/link"), "f1").file(&format!("{name}/big"), noise(seed, bytes)).build()
}

/// A layer that has an implicit directory, whose attributes are those of the layer below.
fn dependent(name: &str, seed: u64) -> BuiltLayer {
    LayerBuilder::new().file(&format!("base/{name}"), noise(seed, 20_000)).build()
}

/// The images of a day, by name.
pub(crate) fn images(setting: &Setting) -> Vec<(&'static str, BuiltImage)> {
    let shared = tree("base", 1, 300_000);
    let mut images = vec![
        ("one:v1", image().layer(shared.clone()).layer(tree("one", 2, 700_000)).build()),
        ("two:v1", image().layer(shared.clone()).layer(dependent("two", 3)).layer(tree("two", 4, 200_000)).build()),
        ("three:v1", image().layer(shared.clone()).layer(layer("three/x", 5, 900_000)).build()),
        ("four:v1", image().layer(tree("four", 6, 400_000)).layer(dependent("four", 7)).build()),
        (
            "five:v1",
            image().layer(shared.clone()).layer(tree("five", 8, 500_000)).layer(tree("more", 9, 100_000)).build(),
        ),
    ];
    if setting.resume != Resume::Off {
        // Layers that are large enough to be kept when their pull is interrupted.
        let first = image().layer(shared).layer(tree("six", 11, 1_300_000));
        images.push(("six:v1", first.layer(dependent("six", 12)).layer(tree("last", 13, 3_000_000)).build()));
    }
    if setting.mounts {
        let many = (0..MANY).fold(image(), |image, n| image.layer(layer(&format!("many/f{n}"), 100 + n, 3_000)));
        images.push(("many:v1", many.build()));
    }
    images
}

/// From so many layers on a mount is of one image, which is composed for it.
const MANY: u64 = 60;

/// Receiver of the remarks.
pub(crate) type Notes<'a> = &'a dyn Fn(&str);

/// The day itself: it notes on the disk each result that it has reported.
struct Day<'a> {
    notes: Notes<'a>,
    host: &'a str,
    engine: Engine,
    /// The kernel writes unsynced data as time passes. A message here makes it do so while the work goes on.
    time: Option<&'a Sender<()>>,
}

impl Day<'_> {
    fn note(&self, text: &str) {
        (self.notes)(text);
        if let Some(time) = self.time {
            time.send(()).expect("it goes by until the end");
        }
    }

    fn name(&self, name: &str) -> String {
        format!("{}/{name}", self.host)
    }

    async fn pull(&self, name: &str, id: String) {
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
        report.expect("converts");
        self.note(&format!("converted {to:?}"));
    }

    /// A pull that fails in its last layer, and leaves to be swept what it had.
    async fn fail(&self, registry: &TestRegistry, name: &str, image: &BuiltImage) {
        let last = blob(image, image.layers.len() - 1).to_string();
        registry.faults().always(&last, Fault::Corrupt);
        let done = self.engine.pull_image(cri_api::PullImageRequest::new(self.name(name))).await;
        assert!(done.is_err(), "what was changed on its way is refused");
        registry.faults().clear();
    }

    /// A pull that is given up when its second layer is whole, and most of the last one is here.
    async fn interrupt(&self, registry: &TestRegistry, name: &str, image: &BuiltImage) {
        let (whole, last) = (blob(image, 1), blob(image, image.layers.len() - 1));
        registry.faults().once(&format!("/blobs/{last}"), Fault::HangAfter { after: 2_500_000 });
        self.note(&format!("pulling {name} {}", image.id()));
        let watch = Watch::default();
        let request = PullImageRequest { progress: watch.sink(), ..PullImageRequest::new(self.name(name)) };
        let far = |event: &PullEvent| matches!(event, PullEvent::Bytes { digest, done } if *digest == last && *done > 2_000_000);
        tokio::select! {
            pulled = self.engine.pull_image(request) => panic!("it hangs: {pulled:?}"),
            () = async { tokio::join!(watch.until_layer(&whole, LayerState::Done), watch.until(far)); } => {}
        }
        self.engine.settled().await;
        registry.faults().release();
        let left = self.engine.store().unfinished();
        // Whether the layer is among it depends on who let it go last.
        assert!(left.blobs > 0, "{left:?}");
    }

    /// An image is mounted for a moment.
    async fn mount(&self, name: &str) {
        let record = self.engine.store().resolve(&self.name(name).into()).expect("readable").expect("is there");
        let target = tempfile::tempdir().expect("a directory");
        let store = self.engine.store();
        store.mount_image(&record, target.path(), None).expect("mounts");
        self.note("mounted");
        rustix::mount::unmount(target.path(), rustix::mount::UnmountFlags::DETACH).expect("unmounts");
        store.mounts().expect("looks at what is mounted");
        self.note("unmounted");
    }

    /// A clean end.
    async fn end(self) {
        (self.notes)("ending");
        self.engine.shutdown().await;
        drop(self.engine);
        (self.notes)("settled");
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
    let Recorded { base, events, images, names, registry } = day;
    Record { setting: *setting, base, events, images, names, registry, seed, runtime }
}

struct Recorded {
    base: Image,
    events: Vec<Event>,
    images: BTreeMap<String, BuiltImage>,
    names: Vec<&'static str>,
    registry: TestRegistry,
}

async fn day(setting: &Setting) -> Recorded {
    let disk = Disk::new(setting.kind, setting.bytes).expect("a disk: this test needs root");
    let base = disk.record().expect("records");
    let mounted = disk.mount().expect("mounts");
    let registry = TestRegistry::open().await;
    let images = images(setting);
    push(&registry, &images);
    // The same name, another image.
    let newer = image().layer(images[2].1.layers[0].clone()).layer(layer("three/y", 10, 300_000)).build();

    let (time_sender, told) = std::sync::mpsc::channel();
    let kernel = {
        let root = mounted.path().to_owned();
        std::thread::spawn(move || pass_time(&root, &told))
    };
    let (id, host) = (|name: &str| id_of(&images, name), registry.host());
    let notes = |text: &str| disk.note(text).expect("notes");
    let begin = async || Day {
        notes: &notes,
        host: &host,
        engine: Engine::open(setting.engine(mounted.path(), "the boot before")).await.expect("opens"),
        time: (setting.durability == Durability::Relaxed).then_some(&time_sender),
    };
    let day = begin().await;
    day.pull("one:v1", id("one:v1")).await;
    tokio::join!(day.pull("two:v1", id("two:v1")), day.pull("three:v1", id("three:v1")));
    day.remove(&["one:v1"]).await;
    day.fail(&registry, "five:v1", &images[4].1).await;
    day.pull("four:v1", id("four:v1")).await;
    registry.push("three", "v1", &newer);
    day.pull("three:v1", newer.id().to_string()).await;
    if setting.mounts {
        day.pull("many:v1", id("many:v1")).await;
        day.mount("many:v1").await;
    }
    let to = if setting.format == LayerFormat::Dir { LayerShape::Erofs } else { LayerShape::Dir };
    day.convert(to).await;
    day.pull("one:v1", id("one:v1")).await;
    if setting.resume != Resume::Off {
        day.interrupt(&registry, "six:v1", &images[5].1).await;
    }
    // An end and a new beginning, without a stop of the machine.
    day.end().await;
    let day = begin().await;
    tokio::join!(day.pull("five:v1", id("five:v1")), day.remove(&["two:v1"]));
    if setting.resume != Resume::Off {
        day.pull("six:v1", id("six:v1")).await;
    }
    day.remove(&["one:v1", "four:v1", "three:v1"]).await;
    // And back.
    day.convert(if to == LayerShape::Dir { LayerShape::Erofs } else { LayerShape::Dir }).await;
    day.pull("two:v1", id("two:v1")).await;
    day.end().await;
    drop(time_sender);
    kernel.join().expect("it ends with the day");
    let events = disk.recorded().expect("a record");
    drop(mounted);
    let names = images.iter().map(|(name, _)| *name).collect();
    let images = by_id(images.into_iter().map(|(_, image)| image).chain([newer]));
    Recorded { base, events, images, names, registry }
}

fn by_id(images: impl Iterator<Item = BuiltImage>) -> BTreeMap<String, BuiltImage> {
    images.map(|image| (image.id().to_string(), image)).collect()
}

fn id_of(images: &[(&'static str, BuiltImage)], name: &str) -> String {
    images.iter().find(|(known, _)| *known == name).expect("one of the day").1.id().to_string()
}

fn push(registry: &TestRegistry, images: &[(&'static str, BuiltImage)]) {
    for (name, image) in images {
        let (repository, tag) = name.split_once(':').expect("a tag");
        registry.push(repository, tag, image);
    }
}

/// A shorter day of another process, with one step after the other: it only notes each result that it has reported.
pub(crate) async fn short_day(setting: &Setting, directory: &Path, host: &str, notes: Notes<'_>) {
    let images = images(setting);
    let id = |name: &str| id_of(&images, name);
    let begin = async || Day {
        notes,
        host,
        engine: Engine::open(setting.engine(directory, "the boot before")).await.expect("opens"),
        time: None,
    };
    let day = begin().await;
    day.pull("one:v1", id("one:v1")).await;
    day.pull("two:v1", id("two:v1")).await;
    let to = if setting.format == LayerFormat::Dir { LayerShape::Erofs } else { LayerShape::Dir };
    day.convert(to).await;
    // A removal changes no shape: the reported result of the conversion is demanded once more.
    day.remove(&["one:v1"]).await;
    day.pull("four:v1", id("four:v1")).await;
    day.end().await;
    let day = begin().await;
    day.remove(&["two:v1", "four:v1"]).await;
    day.pull("five:v1", id("five:v1")).await;
    day.end().await;
}

/// Records the effects of `work`, which receives the mount point of the disk, the registry, and the path for its
/// remarks.
pub(crate) fn record_of(setting: &Setting, work: impl FnOnce(&Path, &str, &Path)) -> Record {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let registry = runtime.block_on(TestRegistry::open());
    let images = images(setting);
    push(&registry, &images);
    let disk = Disk::new(setting.kind, setting.bytes).expect("a disk: this test needs root");
    let base = disk.record().expect("records");
    let mounted = disk.mount().expect("mounts");
    work(mounted.path(), &registry.host(), &disk.notes());
    let events = disk.recorded().expect("a record");
    drop(mounted);
    let names = images.iter().map(|(name, _)| *name).collect();
    let images = by_id(images.into_iter().map(|(_, image)| image));
    Record { setting: *setting, base, events, images, names, registry, seed: 0x1dea, runtime }
}
