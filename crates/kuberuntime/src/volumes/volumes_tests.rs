//! Volumes of whole pods, on real directories and real mounts.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use serde_json::{Value, json};

use super::*;
use crate::documents::{Document, DocumentContent};
use crate::environment::Environment;
use crate::pod::PodSpec;
use crate::resolve_environment;

#[path = "full_disk_tests.rs"]
mod full_disk;

/// A root for pods. When it is dropped, nothing is mounted in it.
struct Bench {
    volumes: Volumes,
    top: tempfile::TempDir,
    documents: Documents,
}

fn bench() -> Bench {
    assert!(rustix::process::geteuid().is_root(), "this test mounts: run it as root");
    let top = tempfile::tempdir().unwrap();
    let volumes = Volumes::new(top.path().join("pods"));
    let document = |key: &str, text: &str| Document {
        data: [(key.to_owned(), DocumentContent::new(text))].into(),
        ..Document::default()
    };
    let documents = Documents {
        config_maps: [("settings".to_owned(), document("a", "1"))].into(),
        secrets: [("login".to_owned(), document("password", "swordfish"))].into(),
        ..Documents::default()
    };
    Bench { volumes, top, documents }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let top = fs::canonicalize(self.top.path()).unwrap();
        while let Some(mount) = base::mount::mounts_below(&top).unwrap().pop() {
            rustix::mount::mount_change(&mount.target, MountPropagationFlags::PRIVATE).unwrap();
            rustix::mount::unmount(&mount.target, UnmountFlags::DETACH).unwrap();
        }
    }
}

/// A pod with these volumes, all of them mounted at `/NAME` where `mounts` says nothing else.
fn pod(volumes: Value, mounts: Option<Value>, more: Value) -> Pod {
    let all = volumes.as_array().unwrap().iter();
    let plain: Value = all
        .map(|volume| json!({"name": volume["name"], "mountPath": format!("/{}", volume["name"].as_str().unwrap())}))
        .collect();
    let mut manifest = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "annotations": {"note": "x"}},
        "spec": {"volumes": volumes, "containers": [{
            "name": "c", "image": "x", "volumeMounts": mounts.unwrap_or(plain),
            "env": [{"name": "PART", "value": "from/env"}],
        }]},
    });
    for (key, value) in more.as_object().unwrap() {
        manifest["spec"][key] = value.clone();
    }
    let mut pod = Pod::from_json(&manifest).unwrap();
    crate::set_defaults(&mut pod);
    pod
}

impl Bench {
    async fn set_up(&self, pod: &Pod) -> Result<(), String> {
        let around = PodContext { allocatable_memory: oci::Quantity::bytes(64 << 20), ..PodContext::default() };
        self.volumes.set_up(pod, &self.documents, &around).await.map_err(|error| error.to_string())
    }

    async fn mounts_of(&self, pod: &Pod, run: u32, hosts: Option<&str>, can: bool) -> Result<Vec<Mount>, String> {
        let container = &pod.spec.containers[0];
        let environment = resolve_environment(pod, container, &Documents::default(), &PodContext::default()).unwrap();
        let input = MountInput {
            pod: Pod { spec: PodSpec { runtime_class_name: "runc".into(), ..pod.spec.clone() }, ..pod.clone() },
            container: container.clone(),
            restart_count: run,
            environment,
            hosts: hosts.map(str::to_owned),
            image_refs: BTreeMap::from([("pictures".to_owned(), "sha256:1".to_owned())]),
            recursive_read_only: can,
        };
        self.volumes.mounts(input).await.map_err(|error| error.to_string())
    }

    async fn mounts(&self, pod: &Pod) -> Result<Vec<Mount>, String> {
        self.mounts_of(pod, 0, None, false).await
    }

    async fn tear_down(&self) -> Result<(), String> {
        self.volumes.tear_down("u1").await.map_err(|error| error.to_string())
    }

    fn path(&self, path: &str) -> PathBuf {
        self.top.path().join(path)
    }

    fn volume(&self, sort: &str, name: &str) -> PathBuf {
        self.path("pods/u1/volumes").join(format!("kubernetes.io~{sort}")).join(name)
    }

    fn directory(&self, path: &str) -> PathBuf {
        let path = self.path(path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn mounted(&self) -> Vec<PathBuf> {
        let top = fs::canonicalize(self.top.path()).unwrap();
        base::mount::mounts_below(&top).unwrap().into_iter().map(|mount| mount.target).collect()
    }
}

fn mode(path: &Path) -> (u32, u32) {
    let found = fs::metadata(path).unwrap();
    (found.gid(), found.mode() & 0o7777)
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn every_sort_of_volume_is_made_and_taken_away() {
    let bench = bench();
    let host = bench.directory("host");
    let volumes = json!([
        {"name": "host", "hostPath": {"path": host, "type": "Directory"}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "login", "secret": {"secretName": "login", "defaultMode": 256}},
        {"name": "self", "downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        {"name": "all", "projected": {"sources": [{"secret": {"name": "login"}}, {"configMap": {"name": "settings"}}]}},
        {"name": "pictures", "image": {"reference": "pictures:1"}},
    ]);
    let mut pod = pod(volumes, None, json!({}));
    // One that no container mounts need not be there.
    pod.spec.volumes.push(crate::pod::Volume {
        name: "unused".into(),
        secret: Some(k8s_openapi::api::core::v1::SecretVolumeSource {
            secret_name: Some("none".into()),
            ..Default::default()
        }),
        ..Default::default()
    });
    bench.set_up(&pod).await.unwrap();
    assert_eq!(mode(&bench.path("pods/u1")).1, 0o750);
    assert_eq!(mode(&bench.volume("empty-dir", "scratch")).1, 0o777);
    assert_eq!(mode(&bench.volume("empty-dir", "memory")).1, 0o1777);
    let space = rustix::fs::statvfs(bench.volume("empty-dir", "memory")).unwrap();
    assert_eq!(space.f_blocks * space.f_frsize, 1 << 20);
    assert_eq!(fs::read_to_string(bench.volume("configmap", "settings").join("a")).unwrap(), "1");
    let password = bench.volume("secret", "login").join("password");
    assert_eq!((fs::read_to_string(&password).unwrap().as_str(), mode(&password).1), ("swordfish", 0o400));
    assert_eq!(fs::read_to_string(bench.volume("downward-api", "self").join("name")).unwrap(), "web");
    assert_eq!(fs::read_to_string(bench.volume("projected", "all").join("password")).unwrap(), "swordfish");
    let in_memory = |path: &Path| rustix::fs::statfs(path).unwrap().f_type == 0x0102_1994;
    assert!(in_memory(&password) && in_memory(&bench.volume("projected", "all")));
    assert_eq!(bench.mounted().len(), 3, "{:?}", bench.mounted());

    let mounts = bench.mounts_of(&pod, 0, Some("127.0.0.1\tlocalhost\n"), false).await.unwrap();
    let shown: Vec<(String, String, bool)> = mounts
        .iter()
        .map(|mount| {
            let host = mount.host_path.replace(bench.top.path().to_str().unwrap(), "").replace("kubernetes.io~", "");
            (mount.container_path.clone(), host, mount.readonly)
        })
        .collect();
    let is = |to: &str, from: &str, readonly| (to.to_owned(), from.to_owned(), readonly);
    assert_eq!(
        shown,
        [
            is("/host", "/host", false),
            is("/scratch", "/pods/u1/volumes/empty-dir/scratch", false),
            is("/memory", "/pods/u1/volumes/empty-dir/memory", false),
            is("/settings", "/pods/u1/volumes/configmap/settings", true),
            is("/login", "/pods/u1/volumes/secret/login", true),
            is("/self", "/pods/u1/volumes/downward-api/self", true),
            is("/all", "/pods/u1/volumes/projected/all", true),
            is("/pictures", "", true),
            is("/etc/hosts", "/pods/u1/etc-hosts", false),
            is("/dev/termination-log", "/pods/u1/containers/c/0.message", false),
        ]
    );
    let image = mounts[7].image.as_ref().unwrap();
    assert_eq!((image.image.as_str(), image.user_specified_image.as_str()), ("sha256:1", "pictures:1"));
    assert_eq!((image.runtime_handler.as_str(), image.annotations["note"].as_str()), ("runc", "x"));
    assert_eq!(mode(&bench.path("pods/u1/containers/c/0.message")).1, 0o666);
    assert_eq!(bench.volumes.uids().await.unwrap(), ["u1"]);

    // What containers leave is no obstacle; what they only see of the node stays.
    fs::write(host.join("kept"), "x").unwrap();
    symlink(&host, bench.volume("empty-dir", "scratch").join("link")).unwrap();
    fs::create_dir_all(bench.volume("empty-dir", "scratch").join("a/b/c")).unwrap();
    bench.tear_down().await.unwrap();
    bench.tear_down().await.unwrap();
    assert!(host.join("kept").exists() && !bench.path("pods/u1").exists());
    assert_eq!((bench.mounted(), bench.volumes.uids().await.unwrap()), (vec![], vec![]));
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn what_is_there_is_kept_over_a_restart() {
    let mut bench = bench();
    let volumes = json!([
        {"name": "scratch", "emptyDir": {}}, {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "login", "secret": {"secretName": "login"}},
    ]);
    let pod = pod(volumes, None, json!({}));
    bench.set_up(&pod).await.unwrap();
    let (scratch, memory) = (bench.volume("empty-dir", "scratch"), bench.volume("empty-dir", "memory"));
    for directory in [&scratch, &memory] {
        fs::write(directory.join("kept"), "x").unwrap();
        // A container may do with its directory what it likes.
        fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(directory, Some(1000), Some(1000)).unwrap();
    }
    let mounted = bench.mounted();
    bench.volumes = Volumes::new(bench.path("pods"));
    for _ in 0..2 {
        bench.set_up(&pod).await.unwrap();
    }
    assert_eq!(bench.mounted(), mounted, "nothing is mounted twice");
    for directory in [&scratch, &memory] {
        assert!(directory.join("kept").exists());
        assert_eq!(mode(directory), (1000, 0o700));
    }
    // A directory that was not complete when this program was killed is made again.
    fs::remove_dir_all(&scratch).unwrap();
    fs::create_dir(scratch.with_file_name("..scratch")).unwrap();
    bench.set_up(&pod).await.unwrap();
    assert_eq!(mode(&scratch).1, 0o777);
    assert!(!scratch.with_file_name("..scratch").exists());
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn volumes_belong_to_the_group_of_the_pod() {
    let bench = bench();
    let host = bench.directory("host");
    let volumes = json!([
        {"name": "scratch", "emptyDir": {}}, {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "settings", "configMap": {"name": "settings"}}, {"name": "login", "secret": {"secretName": "login"}},
        {"name": "host", "hostPath": {"path": host}},
    ]);
    bench.set_up(&pod(volumes, None, json!({"securityContext": {"fsGroup": 4711}}))).await.unwrap();
    assert_eq!(mode(&bench.volume("empty-dir", "scratch")), (4711, 0o2777));
    assert_eq!(mode(&bench.volume("empty-dir", "memory")), (4711, 0o3777));
    for (sort, name, file) in [("configmap", "settings", "a"), ("secret", "login", "password")] {
        assert_eq!(mode(&bench.volume(sort, name)), (4711, 0o2755), "{sort}");
        assert_eq!(mode(&bench.volume(sort, name).join(file)), (4711, 0o644), "{sort}");
    }
    assert_ne!(mode(&host).0, 4711, "what is the node's stays the node's");
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn documents_change_and_come_late() {
    let mut bench = bench();
    let volumes = json!([
        {"name": "login", "secret": {"secretName": "other"}},
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "late", "configMap": {"name": "late", "optional": true}},
    ]);
    let mounts = json!([
        {"name": "settings", "mountPath": "/s"}, {"name": "late", "mountPath": "/l", "subPath": "key"},
        {"name": "login", "mountPath": "/o"},
    ]);
    let pod = pod(volumes, Some(mounts), json!({}));
    let missing = "MountVolume.SetUp failed for volume \"login\" : secret \"other\" not found";
    assert_eq!(bench.set_up(&pod).await, Err(missing.to_owned()));
    let settings = bench.volume("configmap", "settings").join("a");
    assert_eq!(fs::read_to_string(&settings).unwrap(), "1", "one that cannot be made keeps no other one waiting");
    let login = bench.documents.secrets["login"].clone();
    bench.documents.secrets.insert("other".into(), login);
    bench.set_up(&pod).await.unwrap();
    // The container starts without what is optional, and sees an empty directory.
    let mounts = bench.mounts(&pod).await.unwrap();
    assert!(Path::new(&mounts[1].host_path).is_dir());
    let late = Document { data: [("key".to_owned(), DocumentContent::new("now"))].into(), ..Document::default() };
    bench.documents.config_maps.insert("late".into(), late);
    bench.documents.config_maps.get_mut("settings").unwrap().data.insert("a".into(), DocumentContent::new("2"));
    bench.set_up(&pod).await.unwrap();
    assert_eq!(fs::read_to_string(&settings).unwrap(), "2");
    assert_eq!(fs::read_to_string(bench.volume("configmap", "late").join("key")).unwrap(), "now");
    // The next run of the container sees the file.
    let mounts = bench.mounts(&pod).await.unwrap();
    assert_eq!(fs::read_to_string(&mounts[1].host_path).unwrap(), "now");
    assert_eq!(bench.mounted().len(), 2, "the secret, and one part: {:?}", bench.mounted());
    // A missing document removes no files of a pod that has them.
    bench.documents.secrets.remove("other");
    bench.set_up(&pod).await.unwrap();
    assert_eq!(fs::read_to_string(bench.volume("secret", "login").join("password")).unwrap(), "swordfish");
    bench.tear_down().await.unwrap();
    assert_eq!(bench.set_up(&pod).await, Err(missing.to_owned()));
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn paths_of_the_node_are_what_their_type_says() {
    let bench = bench();
    let directory = bench.directory("directory");
    let file = bench.path("file");
    fs::write(&file, "").unwrap();
    let socket = bench.path("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let block = bench.path("block");
    let mode_of = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &block, rustix::fs::FileType::BlockDevice, mode_of, 0).unwrap();
    let null = PathBuf::from("/dev/null");
    let all = [
        ("Directory", &directory),
        ("File", &file),
        ("Socket", &socket),
        ("CharDevice", &null),
        ("BlockDevice", &block),
    ];
    let names = ["a directory", "a file", "a socket file", "a character device", "a block device"];
    let check = async |path: &Path, kind: &str| {
        bench.set_up(&pod(json!([{"name": "v", "hostPath": {"path": path, "type": kind}}]), None, json!({}))).await
    };
    for ((wanted, own), name) in all.iter().zip(names) {
        assert_eq!(check(own, wanted).await, Ok(()), "{wanted}");
        for (kind, path) in all {
            // As in the kubelet, whatever is no directory is a file.
            let fits = kind == *wanted || *wanted == "File" && kind != "Directory";
            let failed = "MountVolume.SetUp failed for volume \"v\" : hostPath type check failed";
            let wrong = Err(format!("{failed}: {} is not {name}", path.display()));
            assert_eq!(check(path, wanted).await, if fits { Ok(()) } else { wrong }, "{kind} as {wanted}");
        }
        assert!(check(&bench.path("missing"), wanted).await.is_err(), "{wanted}");
    }
    let (made, below) = (bench.path("made/by/us"), bench.path("made/file"));
    for _ in 0..2 {
        check(&made, "DirectoryOrCreate").await.unwrap();
        check(&below, "FileOrCreate").await.unwrap();
        check(&bench.path("missing"), "").await.unwrap();
    }
    assert_eq!((mode(&made).1, mode(&below).1, bench.path("missing").exists()), (0o755, 0o644, false));
    assert!(check(&below, "DirectoryOrCreate").await.unwrap_err().ends_with("made/file is not a directory"));
    assert!(check(&made, "FileOrCreate").await.unwrap_err().ends_with("made/by/us is not a file"));
    let no_parent = check(&bench.path("none/file"), "FileOrCreate").await.unwrap_err();
    assert!(no_parent.ends_with("none/file: No such file or directory (os error 2)"), "{no_parent}");
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn parts_of_volumes_stay_what_they_were_when_they_were_looked_at() {
    let bench = bench();
    let host = bench.directory("host");
    fs::set_permissions(&host, fs::Permissions::from_mode(0o2770)).unwrap();
    fs::create_dir(host.join("sub")).unwrap();
    fs::write(host.join("sub/file"), "first").unwrap();
    let outside = bench.directory("outside");
    fs::write(outside.join("file"), "not theirs").unwrap();
    let mounts = json!([
        {"name": "host", "mountPath": "/d", "subPath": "sub"},
        {"name": "host", "mountPath": "/f", "subPath": "sub/file", "readOnly": true},
        {"name": "host", "mountPath": "/n", "subPath": "new/one"},
        {"name": "host", "mountPath": "/e", "subPathExpr": "$(PART)"},
    ]);
    let volumes = json!([{"name": "host", "hostPath": {"path": host}}]);
    let pod = pod(volumes, Some(mounts), json!({}));
    bench.set_up(&pod).await.unwrap();
    let mounts = bench.mounts(&pod).await.unwrap();
    let stands = bench.path("pods/u1/volume-subpaths/host/c");
    for (number, mount) in mounts.iter().take(4).enumerate() {
        assert_eq!(mount.host_path, stands.join(number.to_string()).to_str().unwrap());
    }
    assert_eq!([mounts[0].readonly, mounts[1].readonly], [false, true]);
    assert!(host.join("new/one").is_dir() && host.join("from/env").is_dir());
    assert_eq!(mode(&host.join("new/one")).1, 0o2770);
    // The container changes the path after the check: the runtime gets what was checked.
    fs::rename(host.join("sub"), host.join("moved")).unwrap();
    symlink(&outside, host.join("sub")).unwrap();
    assert_eq!(fs::read_to_string(stands.join("0/file")).unwrap(), "first");
    assert_eq!(fs::read_to_string(stands.join("1")).unwrap(), "first");
    // The next run is refused, and shown nothing.
    let refused = "failed to prepare subPath for volumeMount \"host\" of container \"c\": it leads out of the volume";
    assert_eq!(bench.mounts(&pod).await, Err(refused.to_owned()));
    // Once it is mended, what is new replaces what is old, and what is the same is not mounted again.
    fs::remove_file(host.join("sub")).unwrap();
    fs::create_dir(host.join("sub")).unwrap();
    fs::write(host.join("sub/file"), "second").unwrap();
    bench.mounts(&pod).await.unwrap();
    let mounted = bench.mounted();
    bench.mounts(&pod).await.unwrap();
    assert_eq!((bench.mounted(), mounted.len()), (mounted, 4));
    assert_eq!(fs::read_to_string(stands.join("0/file")).unwrap(), "second");
    // A file where a directory was.
    fs::remove_dir_all(host.join("new/one")).unwrap();
    fs::write(host.join("new/one"), "a file now").unwrap();
    bench.mounts(&pod).await.unwrap();
    assert_eq!(fs::read_to_string(stands.join("2")).unwrap(), "a file now");
    bench.tear_down().await.unwrap();
    assert_eq!(fs::read_to_string(host.join("moved/file")).unwrap(), "first");
    assert_eq!(fs::read_to_string(host.join("sub/file")).unwrap(), "second");
    assert_eq!(bench.mounted(), Vec::<PathBuf>::new());
}

/// The tree of a node as it usually is: shared, so that what is mounted or unmounted in one place is in another.
#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn what_is_the_nodes_is_neither_unmounted_nor_deleted() {
    let bench = bench();
    let shared = bench.directory("shared");
    rustix::mount::mount("tmpfs", &shared, "tmpfs", MountFlags::empty(), None).unwrap();
    rustix::mount::mount_change(&shared, MountPropagationFlags::SHARED).unwrap();
    let (data, late) = (bench.directory("shared/data"), bench.directory("shared/data/late"));
    fs::write(data.join("precious"), "x").unwrap();
    let volumes = json!([{"name": "host", "hostPath": {"path": shared}}]);
    for propagation in ["None", "Bidirectional"] {
        let mount = json!([{"name": "host", "mountPath": "/d", "subPath": "data", "mountPropagation": propagation}]);
        let pod = pod(volumes.clone(), Some(mount), json!({}));
        bench.set_up(&pod).await.unwrap();
        bench.mounts(&pod).await.unwrap();
        // A file system is mounted on the node later, and appears in the pod's directory as well.
        rustix::mount::mount("tmpfs", &late, "tmpfs", MountFlags::empty(), None).unwrap();
        fs::write(late.join("precious"), "y").unwrap();
        let stand = bench.path("pods/u1/volume-subpaths/host/c/0");
        assert!(stand.join("late/precious").exists(), "{propagation}");
        bench.tear_down().await.unwrap();
        assert!(data.join("precious").exists(), "{propagation}");
        assert!(late.join("precious").exists(), "{propagation}: it was unmounted where it came from");
        assert!(!bench.path("pods/u1").exists(), "{propagation}");
        rustix::mount::unmount(&late, UnmountFlags::DETACH).unwrap();
    }
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn mounts_upon_mounts_all_go() {
    let bench = bench();
    let pod = pod(json!([{"name": "scratch", "emptyDir": {}}]), None, json!({}));
    bench.set_up(&pod).await.unwrap();
    let host = bench.directory("host");
    fs::create_dir_all(host.join("inner")).unwrap();
    fs::write(host.join("inner/precious"), "x").unwrap();
    let scratch = bench.volume("empty-dir", "scratch");
    // A container with rights to mounts and a strange name in mind.
    let odd = scratch.join("a b\\c\nd");
    fs::create_dir(&odd).unwrap();
    for _ in 0..3 {
        rustix::mount::mount_bind(&host, &odd).unwrap();
        rustix::mount::mount("tmpfs", odd.join("inner"), "tmpfs", MountFlags::empty(), None).unwrap();
    }
    let file = scratch.join("file");
    fs::write(&file, "").unwrap();
    rustix::mount::mount_bind(host.join("inner/precious"), &file).unwrap();
    assert_eq!(bench.mounted().len(), 7);
    bench.tear_down().await.unwrap();
    assert_eq!(bench.mounted(), Vec::<PathBuf>::new());
    assert_eq!(fs::read_to_string(host.join("inner/precious")).unwrap(), "x");
    assert!(!bench.path("pods/u1").exists());
}

/// A mount that cannot be unmounted: its path was changed by the container, so that it leads elsewhere.
#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn what_stays_mounted_stays_untouched() {
    let bench = bench();
    let host = bench.directory("host/inner");
    fs::write(host.join("precious"), "x").unwrap();
    let elsewhere = bench.directory("elsewhere/mnt");
    rustix::mount::mount_bind(&host, &elsewhere).unwrap();
    // The remover itself stops at a mount of the same file system, and continues with the entries next to it.
    let tree = bench.directory("tree");
    fs::create_dir_all(tree.join("a/mnt")).unwrap();
    fs::write(tree.join("a/file"), "x").unwrap();
    rustix::mount::mount_bind(&host, tree.join("a/mnt")).unwrap();
    let top = OpenDirectory::open(bench.top.path()).unwrap();
    let error = remove::remove_tree(std::os::fd::AsFd::as_fd(&top), "tree").unwrap_err();
    assert_eq!(error.to_string(), "a: mnt: something is still mounted here");
    assert!(host.join("precious").exists() && !tree.join("a/file").exists());
    let error = remove::remove_tree(std::os::fd::AsFd::as_fd(&top.child("tree").unwrap()), "a").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    // A bound file is not deleted behind its mount either.
    let (file, place) = (host.join("precious"), tree.join("place"));
    fs::write(&place, "").unwrap();
    rustix::mount::mount_bind(&file, &place).unwrap();
    remove::remove_tree(std::os::fd::AsFd::as_fd(&top), "tree").unwrap_err();
    assert_eq!(fs::read_to_string(&file).unwrap(), "x");
    assert!(elsewhere.join("precious").exists());
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn a_link_in_place_of_a_directory_is_not_followed() {
    let bench = bench();
    let pod = pod(json!([{"name": "scratch", "emptyDir": {}}]), None, json!({}));
    bench.set_up(&pod).await.unwrap();
    let scratch = bench.volume("empty-dir", "scratch");
    let outside = bench.directory("outside/mnt");
    rustix::mount::mount("tmpfs", &outside, "tmpfs", MountFlags::empty(), None).unwrap();
    fs::write(outside.join("precious"), "x").unwrap();
    fs::create_dir_all(scratch.join("a/mnt")).unwrap();
    rustix::mount::mount("tmpfs", scratch.join("a/mnt"), "tmpfs", MountFlags::empty(), None).unwrap();
    // The kernel's table follows the directory; the name leads elsewhere now.
    fs::rename(scratch.join("a"), scratch.join("b")).unwrap();
    symlink(bench.path("outside"), scratch.join("a")).unwrap();
    bench.tear_down().await.unwrap();
    assert!(outside.join("precious").exists() && !bench.path("pods/u1").exists());
    // The whole directory of a pod.
    bench.directory("pods");
    symlink(bench.path("outside"), bench.path("pods/u1")).unwrap();
    bench.set_up(&pod).await.unwrap_err();
    assert_eq!(bench.volumes.uids().await.unwrap(), Vec::<String>::new());
    bench.tear_down().await.unwrap();
    assert!(outside.join("precious").exists() && !bench.path("pods/u1").exists());
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn trees_of_any_depth_go() {
    let bench = bench();
    let pod = pod(json!([{"name": "scratch", "emptyDir": {}}]), None, json!({}));
    bench.set_up(&pod).await.unwrap();
    let scratch = fs::File::open(bench.volume("empty-dir", "scratch")).unwrap();
    let mut at = std::os::fd::OwnedFd::from(scratch);
    // More directories than may usually be open at the same time, if each level kept two.
    for _ in 0..600 {
        rustix::fs::mkdirat(&at, "directory", rustix::fs::Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
        at = rustix::fs::openat(&at, "directory", flags, rustix::fs::Mode::empty()).unwrap();
    }
    drop(at);
    bench.tear_down().await.unwrap();
    assert!(!bench.path("pods/u1").exists());
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn no_uid_leads_out() {
    let bench = bench();
    let precious = bench.directory("precious");
    for uid in ["", ".", "..", "../precious", "/etc", "a/b", "a\0b"] {
        let mut pod = pod(json!([{"name": "scratch", "emptyDir": {}}]), None, json!({}));
        pod.metadata.uid = uid.to_owned();
        assert!(bench.set_up(&pod).await.unwrap_err().contains("is not a name in a directory"), "{uid:?}");
        assert!(bench.mounts(&pod).await.is_err(), "{uid:?}");
        bench.volumes.tear_down(uid).await.unwrap_err();
    }
    assert!(precious.exists());
    bench.volumes.tear_down("never-seen").await.unwrap();
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn files_of_containers() {
    let bench = bench();
    let pod = pod(json!([]), None, json!({}));
    let hosts = bench.path("pods/u1/etc-hosts");
    let mounts = bench.mounts_of(&pod, 0, Some("1.2.3.4\tweb\n"), false).await.unwrap();
    assert_eq!(mounts.len(), 2);
    let open = fs::File::open(&hosts).unwrap();
    fs::write(bench.path("pods/u1/containers/c/0.message"), "last words").unwrap();
    // The same file with another text: containers that run see it.
    bench.mounts_of(&pod, 1, Some("5.6.7.8\tw\n"), false).await.unwrap();
    assert_eq!(std::io::read_to_string(open).unwrap(), "5.6.7.8\tw\n");
    assert_eq!(fs::read_to_string(bench.path("pods/u1/containers/c/0.message")).unwrap(), "last words");
    for run in 2..20 {
        bench.mounts_of(&pod, run, None, false).await.unwrap();
    }
    let messages = fs::read_dir(bench.path("pods/u1/containers/c")).unwrap().count();
    assert_eq!(messages, 9);
    // A container with a hosts file of its own keeps it.
    let own = super::tests::pod(
        json!([{"name": "h", "hostPath": {"path": "/etc/hostname"}}]),
        Some(json!([{"name": "h", "mountPath": "/etc/hosts"}])),
        json!({}),
    );
    let mounts = bench.mounts_of(&own, 0, Some("x"), false).await.unwrap();
    assert_eq!(mounts.iter().map(|m| m.host_path.as_str()).next(), Some("/etc/hostname"));
    assert_eq!(mounts.len(), 2);
}

#[tokio::test]
#[ignore = "needs root: scripts/test.sh"]
async fn read_only_with_all_that_is_below() {
    let bench = bench();
    let with = |mount: Value| {
        let mut mount = mount;
        mount["name"] = json!("v");
        mount["mountPath"] = json!("/v");
        pod(json!([{"name": "v", "hostPath": {"path": "/tmp"}}]), Some(json!([mount])), json!({}))
    };
    let asked = "volume \"v\" requested recursive read-only mode, but it is not";
    let cases = [
        (json!({"readOnly": true, "recursiveReadOnly": "Disabled"}), Ok(false), Ok(false)),
        (json!({"readOnly": true, "recursiveReadOnly": "IfPossible"}), Ok(true), Ok(false)),
        (
            json!({"readOnly": true, "recursiveReadOnly": "Enabled"}),
            Ok(true),
            Err(format!("{asked} supported by the runtime")),
        ),
        (
            json!({"recursiveReadOnly": "IfPossible"}),
            Err(format!("{asked} read-only")),
            Err(format!("{asked} read-only")),
        ),
    ];
    for (mount, with_support, without) in cases {
        for (can, want) in [(true, &with_support), (false, &without)] {
            let got = bench.mounts_of(&with(mount.clone()), 0, None, can).await;
            assert_eq!(&got.map(|mounts| mounts[0].recursive_read_only), want, "{mount} {can}");
        }
    }
}

/// Does something without the right to mount. Rights are a thread's own.
fn without_rights<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut rights = rustix::thread::capabilities(None).unwrap();
            rights.effective.remove(rustix::thread::CapabilitySet::SYS_ADMIN);
            rustix::thread::set_capabilities(None, rights).unwrap();
            work()
        });
        worker.join().unwrap()
    })
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn what_cannot_be_unmounted_is_not_deleted() {
    let bench = bench();
    let host = bench.directory("host");
    fs::write(host.join("precious"), "x").unwrap();
    let (part, own) = (bench.directory("pods/u1/volume-subpaths/v/c/0"), bench.directory("pods/u1/volumes"));
    rustix::mount::mount_bind(&host, &part).unwrap();
    let root = OpenDirectory::open(&bench.path("pods")).unwrap();
    let error = without_rights(|| tear_down::tear_down(&root, "u1")).unwrap_err();
    let still = format!("{} is still mounted: unmount ", fs::canonicalize(&part).unwrap().display());
    assert!(error.starts_with(&still) && error.ends_with("(os error 1); nothing is removed"), "{error}");
    assert!(host.join("precious").exists() && own.exists());
    tear_down::tear_down(&root, "u1").unwrap();
    assert!(host.join("precious").exists() && !own.exists());
}

/// Without the right to mount, the error names the missing right, and no secret is written to the disk.
#[test]
#[ignore = "needs root: scripts/test.sh"]
fn a_missing_right_to_mount_is_reported() {
    let bench = bench();
    let volumes = json!([
        {"name": "login", "secret": {"secretName": "login"}}, {"name": "host", "hostPath": {"path": "/etc"}},
    ]);
    let login = pod(volumes.clone(), Some(json!([{"name": "login", "mountPath": "/l"}])), json!({}));
    let part = pod(volumes, Some(json!([{"name": "host", "mountPath": "/h", "subPath": "ssl"}])), json!({}));
    let (in_memory, part) = without_rights(|| {
        let pods = OpenDirectory::open(bench.top.path()).unwrap();
        let in_memory = setup::volumes(&login, &pods, &bench.documents, &PodContext::default()).unwrap_err();
        let input = MountInput {
            pod: part.clone(),
            container: part.spec.containers[0].clone(),
            restart_count: 0,
            environment: Environment::default(),
            hosts: None,
            image_refs: BTreeMap::new(),
            recursive_read_only: false,
        };
        (in_memory.to_string(), container::mounts(&input, &pods, false).unwrap_err().to_string())
    });
    let secret = "MountVolume.SetUp failed for volume \"login\" : it lies in memory, and only root may mount that";
    assert_eq!(in_memory, secret);
    let part_of = "failed to prepare subPath for volumeMount \"host\" of container \"c\"";
    assert_eq!(part, format!("{part_of}: mount it: only root may mount a part of a volume"));
    let kept = bench.path("volumes/kubernetes.io~secret/login");
    assert_eq!(fs::read_dir(kept).unwrap().count(), 0, "no secret was written to the disk");
}
