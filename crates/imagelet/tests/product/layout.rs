//! OCI layouts and archives: served as a registry, imported, exported; and that skopeo and umoci can read what imagelet
//! writes.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::images::Image;
use crate::support::process::{Daemon, run, tool};
use crate::support::scene::Scene;
use crate::support::tree;
use crate::support::{Imagelet, Packing};

/// An image of two layers in the scene's layout.
fn two_layers(s: &Scene) -> Image {
    s.layout.image(&[s.file_layer("a", "one\n", Packing::Gzip), s.file_layer("b/c", "two\n", Packing::Zstd)])
}

/// Serves a layout; the answer is `127.0.0.1:PORT`.
fn serve(layout: &Path) -> (Daemon, String) {
    let daemon =
        Imagelet::bare().daemon(&["registry", "--layout", &layout.display().to_string(), "--listen", "127.0.0.1:0"]);
    let host = daemon.wait_for("where it listens", |line| {
        let at = line.find("127.0.0.1:")?;
        let host = line[at..].split(|c: char| !c.is_ascii_digit() && c != '.' && c != ':').next()?;
        (!host.ends_with(":0")).then(|| host.to_owned())
    });
    (daemon, host)
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_served_layout_is_a_registry_for_imagelet_and_for_skopeo() {
    let s = Scene::new();
    let image = two_layers(&s);
    s.layout.name(&image, "site/app:1.0");
    let (_daemon, host) = serve(s.layout.path());
    let name = format!("{host}/site/app:1.0");
    s.imagelet.ok(&["pull", &name]);
    assert_eq!(s.imagelet.ids(), [image.id.as_str()]);
    let shown = run(tool("skopeo").args(["inspect", "--tls-verify=false", "--raw", &format!("docker://{name}")]));
    assert_eq!(oci::Digest::sha256(shown.as_bytes()), image.manifest.digest);
    let copy = s.scratch.join("copy");
    run(tool("skopeo")
        .args(["copy", "-q", "--preserve-digests", "--src-tls-verify=false", &format!("docker://{name}")])
        .arg(format!("dir:{}", copy.display())));

    // The layout may be filled while it is served.
    let more = s.layout.image(&[s.file_layer("later", "x", Packing::Plain)]);
    s.layout.name(&more, "site/later:1");
    s.imagelet.ok(&["pull", &format!("{host}/site/later:1")]);
    assert_eq!(s.imagelet.ids().len(), 2);
    let missing = s.imagelet.fails(1, &["pull", &format!("{host}/site/none:1")]);
    assert!(missing.contains("site/none:1"), "{missing}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_served_layout_cannot_be_written_and_a_directory_that_is_none_is_refused() {
    let s = Scene::new();
    let image = two_layers(&s);
    s.layout.name(&image, "site/app:1.0");
    let (_daemon, host) = serve(s.layout.path());
    let source = format!("oci:{}:site/app:1.0", s.layout.path().display());
    let pushed = tool("skopeo")
        .args(["copy", "-q", "--dest-tls-verify=false", &source, &format!("docker://{host}/x/y:1")])
        .output();
    assert!(!pushed.expect("skopeo runs").status.success());
    let empty = s.scratch.directory("empty").display().to_string();
    let said = Imagelet::bare().fails(1, &["registry", "--layout", &empty, "--listen", "127.0.0.1:0"]);
    assert!(said.contains(&empty) && said.contains("oci-layout"), "{said}");
    let listen = ["registry", "--layout", &s.layout.path().display().to_string(), "--listen", &host];
    assert!(Imagelet::bare().fails(1, &listen).contains(&host), "a taken port is named");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn what_is_imported_is_what_a_pull_gives() {
    let s = Scene::new();
    let image = two_layers(&s);
    s.layout.name(&image, "127.0.0.1:5000/site/app:1.0");
    let pulled = s.registry.push(&s.layout, &image, "site/app:1.0");
    s.imagelet.ok(&["pull", &pulled]);
    let want = tree::read(&s.imagelet.mount(&pulled, s.scratch.join("pulled")));

    let archive = s.scratch.join("layout.tar");
    run(tool("tar").arg("-C").arg(s.layout.path()).arg("-cf").arg(&archive).arg("."));
    let docker = s.scratch.join("docker.tar");
    let gzip_only =
        s.layout.image(&[s.file_layer("a", "one\n", Packing::Gzip), s.file_layer("b/c", "two\n", Packing::Gzip)]);
    s.layout.name(&gzip_only, "gzip");
    run(tool("skopeo")
        .args(["copy", "-q"])
        .arg(format!("oci:{}:gzip", s.layout.path().display()))
        .arg(format!("docker-archive:{}:site/app:1.0", docker.display())));
    for (number, path) in [s.layout.path(), &archive, &docker].iter().enumerate() {
        let imagelet = Imagelet::on(&s.scratch.join(&format!("import-{number}")));
        imagelet.ok(&["import", &path.display().to_string()]);
        let ids = imagelet.ids();
        assert!(ids.contains(&image.id) || ids.len() == 1, "{}: {ids:?}", path.display());
        let got = tree::read(&imagelet.mount(&ids[0], s.scratch.join(&format!("imported-{number}"))));
        assert_eq!(tree::differences(&want, &got), Vec::<String>::new(), "{}", path.display());
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn exported_layout_is_read_by_skopeo_and_umoci_and_imported_unchanged() {
    let s = Scene::new();
    let image = two_layers(&s);
    let name = s.registry.push(&s.layout, &image, "site/app:1.0");
    s.imagelet.ok(&["pull", &name]);
    let mounted = s.imagelet.mount(&name, s.scratch.join("pulled"));
    let want = tree::read(&mounted);

    let (directory, archive, docker) = (s.scratch.join("out"), s.scratch.join("out.tar"), s.scratch.join("docker.tar"));
    for (format, path) in [("oci", &directory), ("oci-archive", &archive), ("docker-archive", &docker)] {
        s.imagelet.ok(&["export", &name, "--format", format, "--output", &path.display().to_string()]);
    }
    let diff_ids = |transport: &str| -> Value {
        let config = run(tool("skopeo").args(["inspect", "--config", "--raw", transport]));
        assert_eq!(oci::Digest::sha256(config.as_bytes()).to_string(), image.id, "{transport}: the very config");
        let config: Value = serde_json::from_str(&config).expect("JSON");
        config["rootfs"]["diff_ids"].clone()
    };
    let index = fs::read_to_string(directory.join("index.json")).expect("an index");
    let index: Value = serde_json::from_str(&index).expect("JSON");
    let reference =
        index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"].as_str().expect("a name").to_owned();
    let of_directory = diff_ids(&format!("oci:{}:{reference}", directory.display()));
    assert_eq!(of_directory, diff_ids(&format!("oci-archive:{}:{reference}", archive.display())));
    // Copying reads and checks every blob.
    for from in [
        format!("oci:{}:{reference}", directory.display()),
        format!("oci-archive:{}:{reference}", archive.display()),
        format!("docker-archive:{}:{name}", docker.display()),
    ] {
        let to = tempfile::tempdir_in(s.scratch.path()).expect("a directory");
        run(tool("skopeo").args(["copy", "-q", &from]).arg(format!("dir:{}", to.path().display())));
    }
    // umoci takes tags without slashes: copy under a short one.
    let short = s.scratch.join("short");
    run(tool("skopeo")
        .args(["copy", "-q", &format!("oci:{}:{reference}", directory.display())])
        .arg(format!("oci:{}:x", short.display())));
    let bundle = s.scratch.join("bundle");
    run(tool("umoci").args(["unpack", "--image"]).arg(format!("{}:x", short.display())).arg(&bundle));
    assert_eq!(tree::differences(&want, &tree::read(&bundle.join("rootfs"))), Vec::<String>::new(), "umoci");

    // Compressed layers are other blobs of the same image.
    let (gzip, zstd) = (s.scratch.join("gzip"), s.scratch.join("zstd"));
    for (how, path) in [("gzip", &gzip), ("zstd", &zstd)] {
        s.imagelet.ok(&["export", &name, "--compress", how, "--output", &path.display().to_string()]);
        let manifest =
            run(tool("skopeo").args(["inspect", "--raw"]).arg(format!("oci:{}:{reference}", path.display())));
        let manifest: Value = serde_json::from_str(&manifest).expect("JSON");
        let layers = manifest["layers"].as_array().expect("layers");
        assert!(!layers.is_empty());
        let wanted = format!("application/vnd.oci.image.layer.v1.tar+{how}");
        assert!(layers.iter().all(|layer| layer["mediaType"] == wanted.as_str()), "{manifest}");
    }
    for (number, path) in [&directory, &archive, &docker, &gzip, &zstd].iter().enumerate() {
        let back = Imagelet::on(&s.scratch.join(&format!("back-{number}")));
        back.ok(&["import", &path.display().to_string()]);
        assert_eq!(back.ids(), [image.id.as_str()], "{}", path.display());
    }
}

/// The name of an archive is its author's claim: a digest in it is compared with the content.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_import_by_the_digest_of_another_image_is_refused() {
    let s = Scene::new();
    let own = two_layers(&s);
    let other = s.layout.image(&[s.file_layer("a", "other\n", Packing::Gzip)]);
    let foreign = format!("registry.example/team/app@{}", other.manifest.digest);
    let annotated = s.scratch.join("annotated");
    s.layout.name(&own, "own");
    let from = format!("oci:{}:own", s.layout.path().display());
    run(tool("skopeo").args(["copy", "-q", "--preserve-digests", &from, &format!("oci:{}:x", annotated.display())]));
    let plain = s.scratch.join("plain");
    run(tool("cp").arg("-r").args([&annotated, &plain]));
    let index = fs::read_to_string(annotated.join("index.json")).expect("readable");
    assert!(index.contains(r#":"x""#), "{index}");
    fs::write(annotated.join("index.json"), index.replace(r#":"x""#, &format!(":{foreign:?}"))).expect("writes");
    let (annotated, plain) = (annotated.display().to_string(), plain.display().to_string());
    for shape in ["dir", "erofs"] {
        let imagelet = Imagelet::on(&s.scratch.join(shape)).global("--layer-format", shape);
        for arguments in [vec!["import", &annotated], vec!["import", &plain, "--name", &foreign]] {
            let said = imagelet.fails(1, &arguments);
            for digest in [&own.manifest.digest, &other.manifest.digest] {
                assert!(said.contains(&digest.to_string()), "{arguments:?}: {said}");
            }
            assert_eq!(imagelet.ids().len(), 0, "{arguments:?}");
        }
        let true_name = format!("registry.example/team/app:1@{}", own.manifest.digest);
        imagelet.ok(&["import", &plain, "--name", &true_name]);
        assert_eq!(imagelet.ids(), [own.id.as_str()]);
        imagelet.ok(&["check"]);
    }
}
