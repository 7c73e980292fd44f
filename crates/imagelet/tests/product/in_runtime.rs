//! Commands on images in containerd's store, with `-i`: history, files and checks work as on imagelet's own store, whichever program pulled
//! the image; those that do not work name what to use instead.

use std::fs;

use crate::support::scene::Scene;
use crate::support::{Containerd, Imagelet, Packing};

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn history_and_files_are_those_of_our_own_store() {
    let s = Scene::new();
    let layers = [
        s.file_layer("etc/lower", "lower\n", Packing::Gzip),
        s.file_layer("etc/.wh.lower", "", Packing::Gzip),
        s.file_layer("etc/upper", "upper\n", Packing::Zstd),
    ];
    let image = s.layout.image(&layers);
    let name = s.registry.push(&s.layout, &image, "runtime/app:1");
    s.imagelet.ok(&["pull", &name]);
    for engine in ["embedded", "runtime"] {
        let containerd = Containerd::start(s.registry.host());
        let remote = Imagelet::remote(&containerd.endpoint());
        remote.clone().global("--pull-engine", engine).ok(&["pull", &name]);
        let equal = |args: &[&str]| assert_eq!(remote.ok(args), s.imagelet.ok(args), "{engine}: {args:?}");
        equal(&["history", "-q", "--no-trunc", &name]);
        let history = remote.ok(&["history", "-o", "json", &name]);
        let steps: serde_json::Value = serde_json::from_str(&history).expect("JSON");
        let steps = steps.as_array().expect("a list");
        assert_eq!(steps.len(), 3, "{history}");
        assert!(steps.iter().all(|step| step["size"].is_u64()), "{history}");
        equal(&["ls", "-R", &name]);
        equal(&["ls", "-R", &name, "/etc"]);
        equal(&["cat", &name, "/etc/upper"]);
        let hidden = remote.fails(1, &["cat", &name, "/etc/lower"]);
        assert!(hidden.contains("no such file"), "a whiteout hides the file: {hidden}");
        let target = s.scratch.directory(&format!("copied-{engine}"));
        remote.ok(&["cp", &format!("{name}:/etc/upper"), &target.display().to_string()]);
        assert_eq!(fs::read_to_string(target.join("upper")).expect("copied"), "upper\n");
        remote.ok(&["check"]);
        let absent = remote.fails(1, &["ls", &s.registry.name("runtime/none:1")]);
        assert!(absent.contains("no such image"), "{absent}");
        let leases = crate::support::process::run(containerd.ctr().args(["leases", "list", "-q"]));
        assert!(!leases.contains("imagelet"), "{engine}: readers leave no lease: {leases}");
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn commands_that_do_not_work_on_containerd_name_what_does() {
    let s = Scene::new();
    let (name, _) = s.push_file("instead/app:1", "a", "a");
    let containerd = Containerd::start(s.registry.host());
    let endpoint = containerd.endpoint();
    let remote = Imagelet::remote(&endpoint);
    remote.ok(&["pull", &name]);
    let ctr = format!("ctr -a {} -n k8s.io images", containerd.socket().display());
    let (archive, mount) = (s.scratch.join("a.tar").display().to_string(), s.scratch.directory("mnt"));
    fs::write(&archive, "").expect("write a file");
    for (args, instead) in [
        (&["tag", &name, "other:1"][..], format!("use `{ctr} tag IMAGE NAME`")),
        (&["untag", &name], format!("use `{ctr} rm NAME`")),
        (&["load", "-i", &archive], format!("use `{ctr} import FILE`")),
        (&["mount", &name, &mount.display().to_string()], format!("use `{ctr} mount IMAGE DIR`")),
        (&["save", "-o", &archive, &name], "`imagelet --root /var/lib/imagelet pull IMAGE`, then ".to_owned()),
        (&["push", &name], "`imagelet --root /var/lib/imagelet push IMAGE`".to_owned()),
    ] {
        let line = remote.fails(1, args);
        assert!(line.contains(&instead) && line.contains(&endpoint), "{args:?}: {line}");
    }
    // Behind imagelet's own socket, the endpoint of the runtime is named.
    let socket = s.scratch.join("front.sock");
    let _agent = Imagelet::on(&s.scratch.join("agent")).global("-i", &endpoint).serve(&socket);
    let front = Imagelet::remote(&format!("unix://{}", socket.display()));
    front.ok(&["history", &name]);
    for command in ["ls", "check"] {
        let args: &[&str] = if command == "ls" { &["ls", &name] } else { &["check"] };
        let done = front.run(args);
        let want = format!("`imagelet -i {endpoint} {command}` works on the store of the runtime");
        assert!(done.code == Some(1) && done.stderr.contains(&want), "{command}: {}", done.stderr);
    }
    assert!(front.fails(1, &["tag", &name, "other:1"]).contains(&format!("use `{ctr} tag IMAGE NAME`")));
}
