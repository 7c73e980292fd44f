//! Logs on a real directory tree, with links that lead out of it.

use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

struct Tree {
    root: TempDir,
    logs: LogDirectories,
}

fn tree() -> Tree {
    let root = TempDir::new().unwrap();
    let logs = LogDirectories { pods: root.path().join("pods"), links: Some(root.path().join("containers")) };
    fs::create_dir(&logs.pods).unwrap();
    fs::create_dir(root.path().join("containers")).unwrap();
    Tree { root, logs }
}

impl Tree {
    fn write(&self, path: &str) -> PathBuf {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "line\n").unwrap();
        path
    }

    fn names(&self, path: &str) -> Vec<String> {
        entries(&self.root.path().join(path)).unwrap().into_iter().map(|(name, _)| name).collect()
    }
}

#[test]
fn a_scan_finds_pods_and_dangling_links() {
    let tree = tree();
    let log = tree.write("pods/ns_web_u1/app/0.log");
    tree.write("pods/README");
    for name in ["u2", "ns_web_u3_x", "_web_u4", "ns__u5"] {
        fs::create_dir(tree.logs.pods.join(name)).unwrap();
    }
    let elsewhere = TempDir::new().unwrap();
    symlink(elsewhere.path(), tree.logs.pods.join("ns_link_u6")).unwrap();
    let link = |name: &str, to: &Path| symlink(to, tree.root.path().join("containers").join(name)).unwrap();
    link("web_ns_app-0123456789.log", &log);
    let nothing = tree.logs.pods.join("ns_old_u9/app/0.log");
    link("old_ns_app-9876543210.log", &nothing);
    link("old_ns_app-9876543210.txt", &nothing);
    link("nodash.log", &nothing);
    link("others_ns_app-1111111111.log", Path::new("/nowhere/0.log"));
    tree.write("containers/file_ns_app-1.log");

    let found = tree.logs.scan().unwrap();
    let pods: Vec<_> = found.directories.iter().map(|d| (d.name.as_str(), d.pod.is_some())).collect();
    let want = ["README", "_web_u4", "ns__u5", "ns_link_u6", "ns_web_u1", "ns_web_u3_x", "u2"];
    assert_eq!(pods, want.map(|name| (name, name == "ns_web_u1")));
    let owner = LogOwner { namespace: "ns".into(), name: "web".into(), uid: "u1".into() };
    assert_eq!(found.directories[4].pod, Some(owner));
    let links: Vec<_> = found.dangling.iter().map(|l| (l.name.as_str(), l.container_id.as_str())).collect();
    assert_eq!(links, [("nodash.log", ""), ("old_ns_app-9876543210.log", "9876543210")]);

    let absent = LogDirectories { pods: "/nowhere/pods".into(), links: None };
    assert_eq!(absent.scan().unwrap(), LogInventory::default());
}

#[test]
fn removal_of_a_directory_keeps_targets_of_its_links() {
    let tree = tree();
    tree.write("pods/ns_web_u1/app/0.log");
    let precious = tree.write("elsewhere/precious");
    symlink(precious.parent().unwrap(), tree.logs.pods.join("ns_web_u1/app/out")).unwrap();
    symlink(precious.parent().unwrap(), tree.logs.pods.join("ns_link_u2")).unwrap();
    tree.logs.remove_directory("ns_web_u1").unwrap();
    tree.logs.remove_directory("ns_web_u1").expect("gone already");
    // A link in place of a directory: at most the link is removed.
    let _ = tree.logs.remove_directory("ns_link_u2");
    assert!(precious.exists());
    for name in ["..", ".", "", "a/b", "/", "../elsewhere"] {
        assert_eq!(tree.logs.remove_directory(name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name}");
        assert_eq!(tree.logs.remove_link(name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name}");
    }
    assert_eq!(tree.names("elsewhere"), ["precious"]);
}

/// In one step, so that no collection leaves links behind that only the next one finds.
#[test]
fn links_to_a_directory_go_with_it() {
    let tree = tree();
    let (log, other) = (tree.write("pods/ns_web_u1/app/0.log"), tree.write("pods/ns_web_u10/app/0.log"));
    let link = |name: &str, to: &Path| symlink(to, tree.root.path().join("containers").join(name)).unwrap();
    link("web_ns_app-1.log", &log);
    link("web_ns_app-0.log", &tree.logs.pods.join("ns_web_u1/app/gone.log"));
    link("web_ns_app-2.log", &other);
    link("others_ns_app-3.log", Path::new("/nowhere/0.log"));
    tree.logs.remove_directory("ns_web_u1").unwrap();
    assert_eq!(tree.names("containers"), ["others_ns_app-3.log", "web_ns_app-2.log"]);
    assert_eq!(tree.names("pods"), ["ns_web_u10"]);
}

#[test]
fn a_log_is_removed_with_its_rotated_files() {
    let tree = tree();
    let log = tree.write("pods/ns_web_u1/app/1.log");
    for name in ["1.log.20260101-000000", "1.log.20260101-000000.gz", "11.log", "0.log", "1.logs"] {
        tree.write(&format!("pods/ns_web_u1/app/{name}"));
    }
    assert_eq!(tree.logs.remove_log(&log).unwrap(), 3);
    assert_eq!(tree.names("pods/ns_web_u1/app"), ["0.log", "1.logs", "11.log"]);
    assert_eq!(tree.logs.remove_log(&log).unwrap(), 0);
}

#[test]
fn logs_elsewhere_are_not_touched() {
    let tree = tree();
    let outside = tree.write("elsewhere/0.log");
    symlink(outside.parent().unwrap(), tree.logs.pods.join("ns_web_u1")).unwrap();
    fs::create_dir(tree.logs.pods.join("ns_web_u2")).unwrap();
    symlink(outside.parent().unwrap(), tree.logs.pods.join("ns_web_u2/app")).unwrap();
    let pods = &tree.logs.pods;
    let paths = [
        outside.clone(),
        pods.join("ns_web_u1/0.log"),
        pods.join("ns_web_u2/app/0.log"),
        pods.join("ns_web_u2/../../elsewhere/0.log"),
        pods.join("ns_web_u3/app/0.log"),
        pods.clone(),
        PathBuf::new(),
        "0.log".into(),
    ];
    for path in paths {
        assert_eq!(tree.logs.remove_log(&path).unwrap(), 0, "{}", path.display());
    }
    assert!(outside.exists());
}

#[test]
fn only_links_are_removed_as_links() {
    let tree = tree();
    symlink("/nowhere", tree.root.path().join("containers/a.log")).unwrap();
    tree.write("containers/b.log");
    tree.logs.remove_link("a.log").unwrap();
    tree.logs.remove_link("a.log").expect("gone already");
    assert_eq!(tree.logs.remove_link("b.log").unwrap_err().to_string(), "it is no link");
    assert_eq!(tree.names("containers"), ["b.log"]);
}

#[test]
fn names_of_links_are_the_kubelets() {
    assert_eq!(link_name("web", "ns", "app", "0123"), "web_ns_app-0123.log");
    let long = link_name(&"p".repeat(200), &"n".repeat(63), "app", "0123");
    assert_eq!((long.len(), &long[248..]), (255, "nnn.log"));
    assert_eq!(link_name(&"é".repeat(126), "x", "y", "z").len(), 254, "cut between characters");
}
