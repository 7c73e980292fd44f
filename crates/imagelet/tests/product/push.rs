//! Images on their way out, and their names: `push` to Debian's docker-registry and to `registry --writable`, which skopeo
//! reads and writes as well; `tag`, `untag`, `history`, `prune`, `search`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::images::{Image, platform};
use crate::support::manifests::{Manifests, Pod, PullSecret};
use crate::support::process::{Daemon, run, tool};
use crate::support::registry::GuardedRegistry;
use crate::support::scene::Scene;
use crate::support::{DockerRegistry, Imagelet, Packing};

/// Serves a layout for writing; the answer is `127.0.0.1:PORT`.
fn writable(layout: &Path) -> (Daemon, String) {
    let path = layout.display().to_string();
    let daemon = Imagelet::bare().daemon(&["registry", "--writable", "--layout", &path, "--listen", "127.0.0.1:0"]);
    let host = daemon.wait_for("where it listens", |line| {
        let at = line.find("127.0.0.1:")?;
        let host = line[at..].split(|c: char| !c.is_ascii_digit() && c != '.' && c != ':').next()?;
        (!host.ends_with(":0")).then(|| host.to_owned())
    });
    (daemon, host)
}

/// Digest of what a registry has under a name, as skopeo sees it.
fn digest_at(name: &str) -> String {
    let raw = run(tool("skopeo").args(["inspect", "--tls-verify=false", "--raw", &format!("docker://{name}")]));
    oci::Digest::sha256(raw.as_bytes()).to_string()
}

fn two_layers(s: &Scene) -> Image {
    s.layout.image(&[s.file_layer("a", "one\n", Packing::Gzip), s.file_layer("b/c", "two\n", Packing::Zstd)])
}

/// A request over a socket; the answer is status and body.
fn ask(host: &str, method: &str, target: &str, headers: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(host).expect("connect");
    let length = body.len();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat()).expect("send");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer in text");
    let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
    (status, answer)
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_push_to_the_same_registry_mounts_and_keeps_the_digest() {
    let s = Scene::new();
    let image = two_layers(&s);
    let name = s.registry.push(&s.layout, &image, "from/app:1");
    s.imagelet.ok(&["pull", &name]);
    let target = s.registry.name("to/app:2");
    let pushed = s.imagelet.ok(&["push", &name, &target]);
    assert_eq!(pushed, format!("{}@{}\n", s.registry.name("to/app"), image.manifest.digest));
    assert_eq!(digest_at(&target), image.manifest.digest.to_string());
    let accesses = s.registry.accesses_until("the manifest", |all| {
        all.iter().any(|a| a.method == "PUT" && a.path == "/v2/to/app/manifests/2").then(|| all.to_vec())
    });
    let mounted = |a: &crate::support::registry::Access| a.path.starts_with("/v2/to/app/blobs/uploads/?mount=");
    assert_eq!(accesses.iter().filter(|a| mounted(a) && a.status == 201).count(), 3, "{accesses:?}");
    assert!(!accesses.iter().any(|a| a.method == "PUT" && a.path.starts_with("/v2/to/app/blobs")), "{accesses:?}");

    // Once more: by its id, with its digest in a file, as JSON and as a person who has no store.
    let file = s.scratch.join("digest");
    let args = ["push", &image.id.to_string(), &target, "--digestfile", &file.display().to_string(), "-o", "json"];
    let report: Value = serde_json::from_str(&s.imagelet.ok(&args)).expect("JSON");
    let digest = image.manifest.digest.to_string();
    let want = json!({"image": target, "digest": digest, "uploadedBlobs": 0, "uploadedBytes": 0});
    assert_eq!((report, fs::read_to_string(file).expect("written")), (want, digest.clone()));
    assert_eq!(s.imagelet.ok(&["push", "-q", &name, &target]), format!("{digest}\n"));
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_push_to_another_registry_keeps_the_image_id_and_with_kept_blobs_the_digest() {
    let s = Scene::new();
    let image = two_layers(&s);
    let name = s.registry.push(&s.layout, &image, "from/app:1");
    let other = DockerRegistry::start(&s.scratch.join("other"));
    let spool = s.scratch.directory("spool");
    let keeping = Imagelet::on(&s.scratch.join("keeping")).flag("--keep-blobs=true");
    for (imagelet, tag, keeps) in [(&s.imagelet, "plain", false), (&keeping, "kept", true)] {
        let imagelet = imagelet.clone().env("TMPDIR", &spool.display().to_string());
        imagelet.ok(&["pull", &name]);
        let target = other.name(&format!("to/app:{tag}"));
        imagelet.ok(&["push", &name, &format!("docker://{target}")]);
        assert_eq!(digest_at(&target) == image.manifest.digest.to_string(), keeps, "{tag}");
        let again = Imagelet::on(&s.scratch.join(tag));
        again.ok(&["pull", &target]);
        assert_eq!(again.ids(), [image.id.as_str()]);
        assert_eq!(again.ok(&["cat", &target, "/b/c"]), "two\n");
    }
    assert_eq!(fs::read_dir(spool).expect("a directory").count(), 0, "nothing is left behind");
    // An ordinary user pushes as well.
    let home = Home::new();
    let imagelet = home.imagelet().env("TMPDIR", &home.data().display().to_string());
    imagelet.ok(&["pull", &name]);
    imagelet.ok(&["push", &name, &other.name("of/nobody:1")]);
    s.imagelet.ok(&["pull", &other.name("of/nobody:1")]);
    assert_eq!(s.imagelet.ids(), [image.id.as_str()]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn images_of_a_running_agent_are_tagged_and_pushed() {
    let s = Scene::new();
    let image = two_layers(&s);
    let name = s.registry.push(&s.layout, &image, "from/app:1");
    s.imagelet.ok(&["pull", &name]);
    let _agent = s.imagelet.serve(&s.scratch.join("serve.sock"));
    let other = DockerRegistry::start(&s.scratch.join("other"));
    assert_eq!(s.imagelet.ok(&["tag", &name, "of/agent:1"]), "docker.io/of/agent:1\n");
    assert!(s.imagelet.ok(&["history", "of/agent:1"]).starts_with("ID "));
    for target in [s.registry.name("of/agent:1"), other.name("of/agent:1")] {
        s.imagelet.ok(&["push", "--tls-verify=false", "of/agent:1", &target]);
        let fresh = Imagelet::on(&s.scratch.join("fresh"));
        fresh.ok(&["pull", &target]);
        assert_eq!(fresh.ids(), [image.id.as_str()]);
    }
    assert_eq!(s.imagelet.ok(&["untag", &name, "of/agent:1"]), "docker.io/of/agent:1\n");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_index_of_a_layout_is_pushed_whole() {
    let s = Scene::new();
    let (here, there) = (two_layers(&s), s.layout.image(&[s.file_layer("x", "other", Packing::Gzip)]));
    let foreign = json!({"os": "linux", "architecture": "s390x"});
    let index = s.layout.index(&[(&here, platform()), (&there, foreign)]);
    s.layout.name(&index, "site/multi:1");
    let target = s.registry.name("to/multi:1");
    let source = format!("oci:{}", s.layout.path().display());
    let pushed = Imagelet::bare().ok(&["push", &source, &target]);
    assert_eq!(pushed, format!("{}@{}\n", s.registry.name("to/multi"), index.manifest.digest));
    run(tool("skopeo")
        .args(["copy", "-q", "--all", "--preserve-digests", "--src-tls-verify=false", &format!("docker://{target}")])
        .arg(format!("dir:{}", s.scratch.join("copy").display())));
    let absent = Imagelet::bare().fails(1, &["push", &format!("{source}:none"), &target]);
    assert!(absent.ends_with("has no image \"none\""), "{absent}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_writable_layout_takes_what_tools_push() {
    let s = Scene::new();
    let image = two_layers(&s);
    s.layout.name(&image, "site/app:1");
    let path = s.scratch.join("made");
    let (mut daemon, host) = writable(&path);
    let source = format!("oci:{}:site/app:1", s.layout.path().display());
    let skopeo = |from: &str, to: &str| {
        let flags = ["copy", "-q", "--preserve-digests", "--src-tls-verify=false", "--dest-tls-verify=false"];
        run(tool("skopeo").args(flags).args([from, to]));
    };
    skopeo(&source, &format!("docker://{host}/by/skopeo:1"));
    s.imagelet.ok(&["pull", &format!("{host}/by/skopeo:1")]);
    assert_eq!(s.imagelet.ids(), [image.id.as_str()]);
    let other = s.registry.push(&s.layout, &two_layers(&s), "from/app:1");
    s.imagelet.ok(&["pull", &other]);
    s.imagelet.ok(&["push", &other, &format!("{host}/by.dots/imagelet:2")]);
    skopeo(&format!("docker://{host}/by.dots/imagelet:2"), &format!("dir:{}", s.scratch.join("copy").display()));
    let digest = image.manifest.digest.to_string();
    skopeo(&source, &format!("docker://{host}/by/digest@{digest}"));

    let second = Imagelet::bare().fails(1, &["registry", "--writable", "--layout", &path.display().to_string()]);
    assert!(second.contains("is written by another process"), "{second}");
    daemon.stop();
    let (_daemon, host) = writable(&path);
    for (name, want) in [("by/skopeo:1", Some(&digest)), ("by/digest", Some(&digest)), ("by/none:1", None)] {
        let reference = name.split_once(':').map_or(digest.as_str(), |(_, tag)| tag);
        let repository = name.split(':').next().expect("a name");
        let (status, answer) = ask(&host, "GET", &format!("/v2/{repository}/manifests/{reference}"), "", b"");
        assert_eq!(status == 200, want.is_some(), "{name}: {answer}");
    }
    // It is an ordinary layout.
    let fresh = Imagelet::on(&s.scratch.join("fresh"));
    fresh.ok(&["import", &path.display().to_string()]);
    assert_eq!(fresh.ids(), [image.id.as_str()]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_writable_layout_refuses_what_is_wrong() {
    let s = Scene::new();
    let path = s.scratch.join("made");
    let (_daemon, host) = writable(&path);
    let digest = oci::Digest::sha256(b"right");
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": oci::media_type::OCI_MANIFEST,
        "config": {"mediaType": oci::media_type::OCI_CONFIG, "digest": oci::Digest::sha256(b"none"), "size": 4},
        "layers": [],
    });
    let (text, empty) = (manifest.to_string(), String::new());
    let huge = "x".repeat(5 << 20);
    // Method, target, headers and body; status and code.
    let rows: [(&str, String, &str, &str, u16, &str); 10] = [
        ("POST", format!("/v2/a/blobs/uploads/?digest={digest}"), "", "wrong", 400, "DIGEST_INVALID"),
        ("POST", "/v2/a/blobs/uploads/?digest=sha256:..".into(), "", "x", 400, "DIGEST_INVALID"),
        ("POST", "/v2/UPPER/blobs/uploads/".into(), "", "", 400, "NAME_INVALID"),
        ("POST", "/v2/../blobs/uploads/".into(), "", "", 400, "NAME_INVALID"),
        ("PATCH", "/v2/a/blobs/uploads/0".into(), "", "x", 404, "BLOB_UPLOAD_UNKNOWN"),
        ("PUT", format!("/v2/a/blobs/uploads/../../x?digest={digest}"), "", "x", 404, "BLOB_UPLOAD_UNKNOWN"),
        ("PUT", "/v2/a/manifests/1".into(), "", &text, 400, "MANIFEST_BLOB_UNKNOWN"),
        ("PUT", "/v2/a/manifests/1".into(), "", "{}", 400, "MANIFEST_INVALID"),
        ("PUT", "/v2/a/manifests/1".into(), "", &huge, 413, "MANIFEST_INVALID"),
        ("POST", "/v2/a/blobs/uploads/".into(), "Origin: http://evil.example\r\n", &empty, 403, "DENIED"),
    ];
    for (method, target, headers, body, status, code) in rows {
        let (got, answer) = ask(&host, method, &target, headers, body.as_bytes());
        assert!(got == status && answer.contains(code), "{method} {target}: {answer}");
    }
    // In chunks, each where the one before ended.
    let (_, begun) = ask(&host, "POST", "/v2/a/blobs/uploads/", "", b"");
    let upload = begun.lines().find_map(|l| l.strip_prefix("location: ")).expect("a location").to_owned();
    assert_eq!(ask(&host, "PATCH", &upload, "Content-Range: 0-1\r\n", b"ri").0, 202);
    assert_eq!(ask(&host, "PATCH", &upload, "Content-Range: 0-1\r\n", b"ri").0, 416);
    assert_eq!(ask(&host, "PUT", &format!("{upload}?digest={digest}"), "", b"ght").0, 201);
    let (status, answer) = ask(&host, "GET", &format!("/v2/a/blobs/{digest}"), "", b"");
    assert!(status == 200 && answer.ends_with("right"), "{answer}");
    assert_eq!(fs::read_dir(path.join("blobs/sha256")).expect("blobs").count(), 1);
    assert_eq!(fs::read_dir(path.join(".uploads")).expect("uploads").count(), 0, "nothing is left");
}

/// Arguments, exit code, standard output, and a part of standard error.
type Row<'a> = (&'a [&'a str], i32, String, &'a str);

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn names_come_and_go() {
    let s = Scene::new();
    let (name, image) = s.push_file("named/app:1", "a", "a");
    let home = Home::new();
    for imagelet in [s.imagelet.clone(), home.imagelet()] {
        imagelet.ok(&["pull", &name]);
        let id = image.id.to_string();
        let digest_name = format!("docker.io/x@{}", image.manifest.digest);
        let dangling = format!("{}   <none>   ", s.registry.name("named/app"));
        let rows: [Row<'_>; 15] = [
            (
                &["tag", &name, "Docker.io/short", "r.example:0443/a/b:2"],
                0,
                "docker.io/library/short:latest\nr.example/a/b:2\n".into(),
                "",
            ),
            (&["tag", &id, "r.example/a/b:3"], 0, "r.example/a/b:3\n".into(), ""),
            (&["tag", &name, &digest_name], 2, String::new(), "a digest cannot be chosen"),
            (&["tag", &name, "UPPER"], 2, String::new(), "error: "),
            (&["tag", "none:1", "other:1"], 1, String::new(), "error: no such image: none:1"),
            (&["untag", &name, "r.example/none:1"], 1, String::new(), "does not have the name \"r.example/none:1\""),
            (
                &["untag", &name, "short", "r.example/a/b:2"],
                0,
                "docker.io/library/short:latest\nr.example/a/b:2\n".into(),
                "",
            ),
            (&["prune", "--progress", "none"], 0, String::new(), "0 images removed: 0B"),
            (&["untag", &id], 0, format!("{name}\nr.example/a/b:3\n"), ""),
            (
                &["images", "--no-trunc", "-o", "name"],
                0,
                format!("{}@{}\n", s.registry.name("named/app"), image.manifest.digest),
                "",
            ),
            (&["untag", &id], 0, String::new(), ""),
            (&["prune", "-n"], 0, format!("{id}\n"), "1 image would be removed"),
            (&["prune", "-f"], 0, format!("{id}\n"), "1 image removed"),
            (&["images", "-q"], 0, String::new(), ""),
            (&["search", "web"], 2, String::new(), "registries have no common search"),
        ];
        for (args, code, stdout, stderr) in rows {
            let done = imagelet.run(args);
            assert_eq!((done.code, &done.stdout), (Some(code), &stdout), "{args:?}:\n{}", done.stderr);
            assert!(done.stderr.contains(stderr), "{args:?}:\n{}", done.stderr);
            if args == ["untag", &id] {
                let shown = imagelet.ok(&["images"]);
                assert!(shown.contains(&dangling), "{shown}");
            }
        }
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn all_that_nothing_uses_is_pruned_and_pins_hold() {
    let s = Scene::new();
    let (kept, image) = s.push_file("pruned/kept:1", "a", "kept");
    let (gone, other) = s.push_file("pruned/gone:1", "a", "gone");
    s.imagelet.ok(&["pull", &kept, &gone]);
    s.imagelet.ok(&["pin", &kept]);
    assert_eq!(s.imagelet.ok(&["prune"]), "");
    assert_eq!(s.imagelet.ok(&["prune", "-a"]), format!("{}\n", other.id));
    assert_eq!(s.imagelet.ids(), [image.id.as_str()]);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn history_is_that_of_the_config() {
    let s = Scene::new();
    let (name, image) = s.push_file("told/app:1", "a", "a");
    s.imagelet.ok(&["pull", &name]);
    let steps: Value = serde_json::from_str(&s.imagelet.ok(&["history", &name, "-o", "json"])).expect("JSON");
    let steps = steps.as_array().expect("a list");
    assert_eq!(steps[0]["id"], image.id.to_string());
    assert_eq!(steps[0]["size"], 1);
    let table = s.imagelet.ok(&["history", &name]);
    assert!(table.starts_with("ID             CREATED"), "{table}");
    assert_eq!(s.imagelet.fails(1, &["history", "none:1"]), "error: no such image: none:1");
}

/// An image that one tenant's secret pulled does not become available to another tenant through a name.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn tagging_grants_no_access_to_an_image() {
    let s = Scene::new();
    s.push_file("estate/app:1", "a", "a");
    let (user, password) = ("red", "vermilion-and-cinnabar");
    let registry = GuardedRegistry::start(&s.scratch.join("registry"), &[(user, password)]);
    let certs = registry.hosts_file(&s.scratch.join("certs.d"));
    let imagelet = s.imagelet.clone().global("--registry-config-path", &certs);
    let name = registry.name("estate/app:1");
    let (namespace, host) = ("red", registry.host.clone());
    let secret = PullSecret { namespace, name: "pull", uid: "uid-of-pull", registry: &host, user, password };
    let pod = Pod { namespace, name: "red", image: &name, policy: "IfNotPresent", secrets: &["pull"] };
    imagelet.ok(&["ensure", "-f", &Manifests::new().pod(pod).secret(secret).write(&s.scratch.join("red.yaml"))]);
    let named = registry.name("estate/free:1");
    imagelet.ok(&["tag", &name, &named]);
    for image in [&named, &name] {
        let pod = Pod { namespace: "blue", name: "blue", image, policy: "IfNotPresent", secrets: &[] };
        let file = Manifests::new().pod(pod).write(&s.scratch.join("blue.yaml"));
        let explained = imagelet.ok(&["explain", "-q", "-f", &file]);
        assert_eq!(explained, "pull\n", "{image}: the registry is asked");
        let refused = imagelet.run(&["ensure", "-f", &file]);
        assert_eq!(refused.code, Some(77), "{image}: {}", refused.stderr);
    }
}
