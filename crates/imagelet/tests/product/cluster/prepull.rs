//! Images that a node is to have before pods need them, as people bring them there: a DaemonSet with a container for each image, a Job for
//! each image, CRI's PullImage in a loop, and an ImageSet, all on one node and one API server. Counts the writes to the API server and
//! the time until all images are there, and what is left after a collection that takes everything unused. The images of the ImageSet are
//! pinned in containerd until the set is deleted.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::fleet::{api_writes, install, leads, start_controller};
use crate::support::Imagelet;
use crate::support::Packing;
use crate::support::cluster::Cluster;
use crate::support::node::FOREVER;
use crate::support::pods::idle_image;
use crate::support::process::run;
use crate::support::random::noise_of;

/// Images of each way.
const IMAGES: usize = 12;
/// Bytes of each image that no other one has.
const BYTES: usize = 4 << 20;

/// A node with containerd, and the images that each way brings there.
struct Race {
    cluster: Cluster,
    said: String,
}

/// Images of one way, with its cost.
struct Arrival {
    images: Vec<String>,
    writes: u64,
    took: Duration,
}

impl Race {
    /// Pushes the images of a way.
    fn push(&self, way: &str) -> Vec<String> {
        let scene = &self.cluster.node.scene;
        let push = |number: usize| {
            let content = noise_of(&format!("{way}{number}"), BYTES);
            let layer = scene.file_layer("content", content, Packing::Gzip);
            scene.registry.push(&scene.layout, &idle_image(scene, &[layer]), &format!("{way}/app{number}:1"))
        };
        (0..IMAGES).map(push).collect()
    }

    /// Number of these images that containerd has.
    fn present(&self, images: &[String]) -> usize {
        let listed = run(self.cluster.node.containerd.ctr().args(["images", "list", "-q"]));
        images.iter().filter(|image| listed.lines().any(|line| line == *image)).count()
    }

    /// Waits until containerd has every image of a way, which `begin` brings there.
    fn arrive(&self, way: &str, begin: impl FnOnce(&[String])) -> Arrival {
        let images = self.push(way);
        let (writes, from) = (api_writes(&self.cluster.plane), Instant::now());
        begin(&images);
        self.cluster.plane.until(&format!("the images of {way} are there"), || self.present(&images) == IMAGES);
        let took = from.elapsed();
        // Statuses follow.
        std::thread::park_timeout(Duration::from_secs(3));
        Arrival { images, writes: api_writes(&self.cluster.plane) - writes, took }
    }

    /// Number of images that imagelet has pinned in containerd, for a kubelet.
    fn pinned(&self) -> usize {
        let listed = run(self.cluster.node.containerd.ctr().args(["images", "list"]));
        let is_pinned =
            |line: &&str| line.contains("io.cri-containerd.pinned=pinned") && line.contains("imagelet.io/pinned-by=");
        listed.lines().filter(is_pinned).count()
    }

    /// Number of the images that a collection of everything unused leaves.
    fn left(&self, images: &[String]) -> usize {
        self.cluster.node.imagelet.ok(&["gc", "--all-unused", "--now"]);
        self.present(images)
    }

    fn note(&mut self, way: &str, arrival: &Arrival, left: &[(&str, usize)]) {
        let (seconds, writes) = (arrival.took.as_secs_f64(), arrival.writes);
        let left: Vec<String> = left.iter().map(|(when, count)| format!("{count} of {IMAGES} left {when}")).collect();
        writeln!(self.said, "pre-pull: {way}: {seconds:.1} s, {writes} writes, {}", left.join(", ")).expect("text");
    }
}

fn pod_of(containers: &[Value], init: &[Value]) -> Value {
    json!({"terminationGracePeriodSeconds": 1, "containers": containers, "initContainers": init, "automountServiceAccountToken": false})
}

fn once(number: usize, image: &str) -> Value {
    json!({"name": format!("c{number}"), "image": image, "command": ["/bin/true"]})
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn image_sets_bring_images_with_fewer_writes_and_keep_them() {
    let cluster = Cluster::with(&json!({"fleet": {"namespace": "imagelet-fleet"}, "imageMinimumGCAge": "0s"}));
    install(&cluster.plane);
    let controller = start_controller(&cluster.plane, "one");
    leads(&controller);
    let mut race = Race { cluster, said: String::new() };
    let scene = "prepull";
    race.cluster.plane.kubectl(&["create", "namespace", scene]);

    // A DaemonSet with an init container for each image.
    let by_daemon_set = race.arrive("daemonset", |images| {
        let init: Vec<Value> = images.iter().enumerate().map(|(number, image)| once(number, image)).collect();
        let labels = json!({"app": "prepull"});
        let pod = pod_of(&[race.cluster.container("main", FOREVER)], &init);
        let spec =
            json!({"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}});
        race.cluster.plane.apply(&json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": "prepull", "namespace": scene}, "spec": spec}));
    });
    let while_it_runs = race.left(&by_daemon_set.images);
    race.cluster.plane.kubectl(&["delete", "daemonset", "prepull", "-n", scene, "--timeout=60s"]);
    race.cluster.plane.until("its pod is deleted", || {
        race.cluster.plane.get(&["pods", "-n", scene])["items"].as_array().is_some_and(Vec::is_empty)
    });
    let afterwards = race.left(&by_daemon_set.images);
    race.note("DaemonSet", &by_daemon_set, &[("while it runs", while_it_runs), ("when it is deleted", afterwards)]);

    // A Job for each image.
    let by_jobs = race.arrive("job", |images| {
        let job = |(number, image): (usize, &String)| {
            let mut pod = pod_of(&[once(number, image)], &[]);
            pod["restartPolicy"] = json!("Never");
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": format!("pull{number}"), "namespace": scene},
                   "spec": {"template": {"spec": pod}}})
        };
        let items: Vec<Value> = images.iter().enumerate().map(job).collect();
        race.cluster.plane.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}));
        race.cluster.plane.kubectl(&["wait", "--for=condition=Complete", "jobs", "--all", "-n", scene, "--timeout=120s"]);
    });
    race.cluster.plane.kubectl(&["delete", "jobs", "--all", "-n", scene, "--timeout=60s"]);
    race.cluster.plane.until("their pods are deleted", || {
        race.cluster.plane.get(&["pods", "-n", scene])["items"].as_array().is_some_and(Vec::is_empty)
    });
    let left = race.left(&by_jobs.images);
    race.note("Job per image", &by_jobs, &[("when they are deleted", left)]);

    // CRI's PullImage one after the other, as `crictl pull` does: containerd pulls.
    let loop_of_cri = Imagelet::remote(&race.cluster.node.containerd.endpoint()).global("--pull-engine", "runtime");
    let by_cri = race.arrive("cri", |images| images.iter().for_each(|image| drop(loop_of_cri.ok(&["pull", image]))));
    let left = race.left(&by_cri.images);
    race.note("PullImage in a loop", &by_cri, &[("at once", left)]);

    // An ImageSet.
    let by_set = race.arrive("set", |images| {
        let images: Vec<Value> = images.iter().map(|image| json!({"name": image})).collect();
        race.cluster.plane.apply(&json!({"apiVersion": "imagelet.dev/v1alpha1", "kind": "ImageSet",
            "metadata": {"name": "prepull"}, "spec": {"images": images, "nodeSelector": {}, "minFree": "0%", "onDelete": "Remove"}}));
    });
    race.cluster.plane.wait(&["--for=condition=Ready", "imageset/prepull"]);
    let left = race.left(&by_set.images);
    race.note("ImageSet", &by_set, &[("while it is there", left)]);
    println!("{}", race.said);

    assert_eq!((afterwards, left), (0, IMAGES), "an ImageSet keeps its images without a pod");
    let fewest = by_jobs.writes.min(by_daemon_set.writes);
    assert!(by_set.writes < fewest, "an ImageSet needs fewer writes: {} and {fewest}", by_set.writes);

    // A kubelet that uses containerd leaves them as well. The pins end with the set, and keep no image from its removal.
    race.cluster.plane.until("the images are pinned in containerd", || race.pinned() == IMAGES);
    race.cluster.plane.kubectl(&["delete", "imageset", "prepull"]);
    race.cluster.plane.until("the images are removed with their set", || race.present(&by_set.images) == 0);
    assert_eq!(race.pinned(), 0);
}
