//! `imagelet ls`, `cat` and `cp`: an image's files without a mount. What they show is what a mount shows, entry by entry.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::process::Stdio;

use serde_json::Value;

use crate::support::home::Home;
use crate::support::images;
use crate::support::nasty;
use crate::support::process::{eventually, run, tool};
use crate::support::scene::Scene;
use crate::support::tree::{differences, read};
use crate::support::{Imagelet, Packing};

fn json(text: &str) -> Vec<Value> {
    serde_json::from_str::<Value>(text).expect("JSON").as_array().expect("a list").clone()
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_copy_of_an_image_is_what_a_mount_shows() {
    let s = Scene::new();
    let layers = nasty::layers(&s.scratch, &s.layout, Packing::Gzip);
    let name = s.registry.push(&s.layout, &s.layout.image(&layers), "files/nasty:1");
    s.imagelet.ok(&["pull", &name]);
    let mounted = s.imagelet.mount(&name, s.scratch.join("mounted"));
    let mounted = read(&mounted);
    let out = s.scratch.join("copy-of-dir");
    for shape in ["dir", "erofs"] {
        let imagelet = Imagelet::on(&s.scratch.join(shape)).global("--layer-format", shape);
        imagelet.ok(&["pull", &name]);
        let out = s.scratch.join(&format!("copy-of-{shape}"));
        imagelet.ok(&["cp", &format!("{name}:/"), &out.display().to_string()]);
        let copied = read(&out);
        assert!(copied.len() > 300, "only {} entries", copied.len());
        // The mount counts names that upper layers hide; a copy has what is seen.
        let differ: Vec<String> =
            differences(&mounted, &copied).into_iter().filter(|line| !line.contains(": links: ")).collect();
        assert_eq!(differ, Vec::<String>::new(), "mounted | copied from {shape}");

        // The same as a stream, unpacked by tar.
        let unpacked = s.scratch.directory(&format!("stream-of-{shape}"));
        let root = s.scratch.join(shape).display().to_string();
        let program = crate::support::cli::PROGRAM;
        let tar = "tar --xattrs '--xattrs-include=*' --numeric-owner -xpf -";
        let shell = format!("set -o pipefail; {program} --root {root} cp {name}:/ - | {tar} -C {}", unpacked.display());
        run(tool("bash").args(["-c", &shell]));
        // A socket is nothing without its process, and a copy has it as little.
        assert_eq!(differences(&copied, &read(&unpacked)), Vec::<String>::new(), "copied | as a stream, from {shape}");
    }

    // The listing has every entry once, and says of each what it is.
    let listed = json(&s.imagelet.ok(&["ls", "-R", "-o", "json", &name]));
    assert_eq!(listed.len() + 1, mounted.len(), "all but the root");
    let names = s.imagelet.run(&["ls", "-R", &name]);
    assert!(names.code == Some(0) && names.stdout.lines().count() >= listed.len());
    for entry in &listed {
        let (Some(path), None) = (entry["path"].as_str(), entry.get("pathBase64")) else { continue };
        let meta = fs::symlink_metadata(out.join(path.trim_start_matches('/'))).expect("it was copied");
        let of = |key: &str| entry[key].as_u64().unwrap_or_else(|| panic!("{path}: {key}: {entry}"));
        assert_eq!((of("uid"), of("gid")), (u64::from(meta.uid()), u64::from(meta.gid())), "{path}");
        assert_eq!(entry["mode"], format!("{:04o}", meta.mode() & 0o7777), "{path}");
        assert!(entry["layer"].as_str().is_some_and(|layer| layer.starts_with("sha256:")), "{entry}");
        if meta.is_file() {
            assert_eq!((entry["type"].as_str(), of("size")), (Some("file"), meta.len()), "{path}");
        }
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn files_are_listed_written_and_copied() {
    let s = Scene::new();
    let tree = s.scratch.directory("tree");
    images::busybox_tree(&tree);
    images::write(&tree.join("etc/one"), "one\n");
    images::write(&tree.join("etc/sub/two"), "two\n");
    std::os::unix::fs::symlink("/etc/one", tree.join("link")).expect("symlink");
    std::os::unix::fs::symlink("../../../etc", tree.join("etc/sub/up")).expect("symlink");
    images::settle(&tree);
    let upper = s.scratch.directory("upper");
    images::write(&upper.join("etc/.wh.one"), "");
    images::write(&upper.join("etc/three"), "three\n");
    images::settle(&upper);
    let layers = [s.layout.layer(&tree, Packing::Gzip), s.layout.layer(&upper, Packing::Gzip)];
    let name = s.registry.push(&s.layout, &s.layout.image(&layers), "files/small:1");
    s.imagelet.ok(&["pull", &name]);
    let i = &s.imagelet;

    let etc = i.ok(&["ls", &name, "/etc"]);
    assert!(etc.lines().any(|line| line == "three") && !etc.lines().any(|line| line == "one"), "{etc}");
    assert_eq!(i.ok(&["ls", "-R", &name, "etc/sub"]), "two\nup\n");
    assert_eq!(i.ok(&["ls", &name, "etc/sub/two"]), "etc/sub/two\n");
    let long = i.ok(&["ls", "-l", &name, "/etc/sub"]);
    assert!(long.starts_with("-rw-r--r--   1     0     0          4 "), "{long}");
    assert!(long.ends_with(" up -> ../../../etc\n"), "{long}");
    assert_eq!(i.ok(&["cat", &name, "/etc/sub/two", "etc/sub/up/three"]), "two\nthree\n");
    let out = s.scratch.directory("out");
    let target = out.display().to_string();
    i.ok(&["cp", &format!("{name}:/etc/sub"), &target]);
    assert_eq!(fs::read_to_string(out.join("sub/two")).expect("copied"), "two\n");
    i.ok(&["cp", &format!("{name}:etc/sub/two"), &out.join("renamed").display().to_string()]);
    assert_eq!(fs::read_to_string(out.join("renamed")).expect("copied"), "two\n");
    // Image and path are one word or two.
    i.ok(&["cp", &name, "/etc/sub/two", &out.join("of-two-words").display().to_string()]);
    assert_eq!(fs::read_to_string(out.join("of-two-words")).expect("copied"), "two\n");
    assert_eq!(i.ok(&["cat", &format!("{name}:/etc/sub/two")]), "two\n");
    assert_eq!(i.ok(&["ls", &format!("{name}:/etc/sub")]), "two\nup\n");
    assert!(i.fails(2, &["cat", &format!("{name}:/etc/sub/two"), "/etc/three"]).contains("use one of them"));
    assert!(i.fails(2, &["cat", &name]).contains("a path in the image is missing"));

    let listed = run(tool("bash").args([
        "-c",
        &format!(
            "{} --root {} cp {name}:/etc/sub - | tar -t",
            crate::support::cli::PROGRAM,
            s.scratch.join("store").display()
        ),
    ]));
    assert_eq!(listed, "sub/\nsub/two\nsub/up\n");

    // A layer by itself, by diff id and by the digest that its manifest has.
    let digests: Vec<Value> = json(&i.ok(&["inspect", &name]));
    let diff_id = digests[0]["config"]["rootfs"]["diff_ids"][0].as_str().expect("a diff id").to_owned();
    assert_eq!(i.ok(&["cat", &diff_id, "etc/one"]), "one\n");
    let top = digests[0]["config"]["rootfs"]["diff_ids"][1].as_str().expect("a diff id").to_owned();
    let entries = json(&i.ok(&["ls", "-o", "json", &top, "etc"]));
    let kinds: Vec<_> = entries.iter().map(|e| (e["path"].as_str(), e["type"].as_str())).collect();
    assert_eq!(kinds, [(Some("/etc/one"), Some("whiteout")), (Some("/etc/three"), Some("file"))]);

    // Errors are reported, and everything else is done.
    assert!(i.fails(1, &["ls", &name, "/nothing"]).contains("/nothing: no such file or directory in the image"));
    assert!(i.fails(1, &["ls", "localhost:1/no/such:1"]).contains("no such image or layer"));
    assert!(i.fails(1, &["cat", &name, "/etc"]).contains("/etc is a directory, not a file"));
    let both = i.run(&["cat", &name, "/link", "/etc/three"]);
    assert_eq!((both.code, both.stdout.as_str()), (Some(1), "three\n"), "{}", both.stderr);
    assert!(i.fails(2, &["cp", "busybox", &target]).contains("IMAGE:PATH"));
    assert!(i.fails(2, &["ls"]).contains("required arguments"));
    let said = i.fails(1, &["cp", &format!("{name}:/etc"), &out.join("renamed").display().to_string()]);
    assert!(said.contains("it is no directory"), "{said}");
    let remote = Imagelet::remote("unix:///nowhere.sock").run(&["ls", &name]);
    assert_ne!(remote.code, Some(0));
    // A reader that closes the pipe early is no error.
    let shell =
        format!("{} --root {} ls -R {name} | head -1", crate::support::cli::PROGRAM, s.scratch.join("store").display());
    assert!(!run(tool("sh").args(["-c", &shell])).is_empty());
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_agent_keeps_what_is_read_of_its_images() {
    let s = Scene::new();
    let content = crate::support::random::noise_of("large", 8 << 20);
    let (name, _) = s.push_file("files/large:1", "large", &content);
    s.imagelet.ok(&["pull", &name]);
    let layers = s.scratch.join("store/layers");
    let agent = s.imagelet.serve(&s.scratch.join("agent.sock"));
    assert_eq!(s.imagelet.ok(&["ls", &name]), "large\n");

    // The read continues while the image is removed; the layer is removed when it is not read any more.
    let mut reader = std::process::Command::new(crate::support::cli::PROGRAM)
        .args(["--root", &s.scratch.join("store").display().to_string(), "cat", &name, "/large"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut out = reader.stdout.take().expect("piped");
    let mut first = vec![0; 1000];
    out.read_exact(&mut first).expect("reads");
    s.imagelet.ok(&["rmi", &name]);
    assert_eq!(fs::read_dir(&layers).expect("the store").count(), 1, "the layer is held");
    out.read_to_end(&mut first).expect("reads");
    assert!(first == content, "all of it came");
    assert!(reader.wait().expect("ends").success());
    eventually("the layer goes", || fs::read_dir(&layers).expect("the store").count() == 0);
    assert!(s.imagelet.fails(1, &["ls", &name]).contains("no such image or layer"));
    drop(agent);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_ordinary_user_reads_without_a_mount() {
    let s = Scene::new();
    let tree = s.scratch.directory("tree");
    images::busybox_tree(&tree);
    images::write(&tree.join("etc/owned"), "owned\n");
    chown(tree.join("etc/owned"), Some(1234), Some(5678)).expect("chown");
    fs::set_permissions(tree.join("etc/owned"), fs::Permissions::from_mode(0o4755)).expect("chmod");
    run(tool("mknod").arg(tree.join("dev/null")).args(["c", "1", "3"]));
    images::settle(&tree);
    let image = s.layout.image(&[s.layout.layer(&tree, Packing::Gzip)]);
    let name = s.registry.push(&s.layout, &image, "files/user:1");
    for format in ["dir", "erofs"] {
        let home = Home::new();
        reads_without_a_mount(&home, &home.imagelet().global("--layer-format", format), &name);
    }
}

fn reads_without_a_mount(home: &Home, i: &Imagelet, name: &str) {
    i.ok(&["pull", name]);
    let owned = &json(&i.ok(&["ls", "-o", "json", name, "/etc/owned"]))[0];
    assert_eq!(
        (owned["uid"].as_u64(), owned["gid"].as_u64(), owned["mode"].as_str()),
        (Some(1234), Some(5678), Some("4755"))
    );
    let null = &json(&i.ok(&["ls", "-o", "json", name, "/dev/null"]))[0];
    assert_eq!((null["type"].as_str(), null["device"]["major"].as_u64()), (Some("char"), Some(1)));
    let out = home.data().join("out");
    let copied = i.run(&["cp", &format!("{name}:/."), &out.display().to_string()]);
    assert_eq!(copied.code, Some(0), "{}", copied.stderr);
    let lacks =
        copied.stderr.lines().find(|line| line.contains("the copy is not complete")).expect("it says what is missing");
    assert!(lacks.contains("1 device") && lacks.contains("owner") && lacks.contains("1 set-user-id"), "{lacks}");
    assert_eq!(fs::metadata(out.join("etc/owned")).expect("copied").mode() & 0o7777, 0o755);
    assert_eq!(i.ok(&["cat", name, "etc/owned"]), "owned\n");
}

/// Names of files and texts of a config may be anything. A terminal gets none of what would drive it, whatever the form, and
/// documents lose nothing of it.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn nothing_of_an_image_drives_a_terminal() {
    let s = Scene::new();
    let evil = "c1\u{9b}31m\u{85}-del\u{7f}-esc\u{1b}[31m-dir\u{202e}\u{2066}\u{61c}\u{200e}-end";
    let layer = s.file_layer(evil, "x", Packing::Gzip);
    let labels = serde_json::json!({ "Labels": { evil: evil } });
    let image = s.layout.image_for(&[layer], &labels, &images::platform());
    let name = s.registry.push(&s.layout, &image, "files/evil:1");
    s.imagelet.ok(&["pull", &name]);
    let root = s.scratch.join("store").display().to_string();
    let on_a_terminal = |arguments: &str| {
        let program = crate::support::cli::PROGRAM;
        let command = format!("NO_COLOR=1 {program} --root {root} --progress none {arguments}");
        let shown = run(tool("script").args(["-qec", &command, "/dev/null"])).replace('\r', "");
        let bad = shown.chars().find(|c| !oci::text::is_printable(*c) && *c != '\n');
        assert_eq!(bad, None, "{arguments}: {shown:?}");
        shown
    };
    let questioned = "c1?31m?-del?-esc?[31m-dir????-end";
    for arguments in [format!("ls {name}"), format!("ls -l {name}"), format!("ls -o wide {name}")] {
        assert!(on_a_terminal(&arguments).contains(questioned), "{arguments}");
    }
    let listed = on_a_terminal(&format!("ls -o json {name}"));
    assert!(json(&listed).iter().any(|entry| entry["path"].as_str() == Some(&format!("/{evil}"))), "{listed}");
    assert!(on_a_terminal(&format!("ls -o yaml {name}")).contains(r"\u202e\u2066\u061c\u200e-end"));
    let inspected = on_a_terminal(&format!("inspect -o json {name}"));
    assert!(inspected.contains(r"\u202e") && inspected.contains(r"\u009b"), "{inspected}");
    assert!(on_a_terminal(&format!("inspect -o yaml {name}")).contains(r"\u202e"));
    for arguments in ["images", "images -o wide", "images -o json", "images -o yaml", "images -o name"] {
        on_a_terminal(arguments);
    }
    // Not a terminal: names are printed as they are, for programs.
    let raw = s.imagelet.ok(&["ls", &name]);
    assert!(raw.lines().any(|line| line == evil), "{raw:?}");
}
