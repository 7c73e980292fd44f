//! Images from and to files, round trips above all.

use std::path::{Path, PathBuf};

use cri_api::engine::{Compress, ExportOptions, Format, ImportOptions};
use cri_api::{ImageService as _, Kind};
use oci::{Document, Reference};
use registry::testing::{BuiltImage, BuiltIndex, ImageBuilder, LayerBuilder};
use store::LayerFormat;
use store::view::{Kind as ViewKind, View};

use crate::support::{Node, content, image, layer, noise, write};

fn sample() -> BuiltImage {
    let base = LayerBuilder::new()
        .dir("bin/")
        .file_mode("bin/tool", noise(1, 200_000), 0o4755)
        .symlink("bin/link", "tool")
        .hardlink("bin/same", "bin/tool")
        .dir_mode("tmp/", 0o1777)
        .trailing(&[0; 9000]);
    let top = LayerBuilder::new().dir("etc/").file("etc/conf", "x=1\n").whiteout("bin/link").zstd();
    image().layer(base).layer(top).env("A", "b").annotation("org.example.note", "kept").build()
}

/// Path, kind, mode, links and content.
type File = (Vec<u8>, ViewKind, u32, u32, Vec<u8>);

/// The same of what was exported, by path, mode, links and content.
fn on_disk(root: &Path) -> Vec<(PathBuf, u32, u64, Vec<u8>)> {
    use std::os::unix::fs::MetadataExt as _;
    let mut found = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let metadata = path.symlink_metadata().expect("metadata");
            let content = if metadata.is_file() { std::fs::read(&path).expect("reads") } else { Vec::new() };
            if metadata.is_dir() {
                pending.push(path.clone());
            }
            let relative = path.strip_prefix(root).expect("below").to_owned();
            found.push((relative, metadata.mode(), metadata.nlink(), content));
        }
    }
    found.sort();
    found
}

fn tree(view: &View) -> Vec<File> {
    let mut found = Vec::new();
    let mut pending = vec![view.root().expect("a root")];
    while let Some(directory) = pending.pop() {
        for node in view.entries(&directory).expect("a directory") {
            let stat = *node.stat();
            let content = match stat.kind {
                ViewKind::File => content(view, &node),
                ViewKind::Symlink => view.target(&node).expect("reads"),
                _ => Vec::new(),
            };
            found.push((node.path().to_owned(), stat.kind, stat.mode, stat.links, content));
            if stat.kind == ViewKind::Directory {
                pending.push(node);
            }
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// The layers' own trees, whiteouts included.
fn trees(node: &Node, id: &str) -> Vec<Vec<File>> {
    let store = node.engine.store();
    let record = store.resolve(&id.into()).expect("resolves").expect("is there");
    let layers = store.image_layers(&record).expect("layers");
    layers.iter().map(|layer| tree(&node.view(&layer.diff_id.to_string()))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn round_trips_keep_id_names_and_tree() {
    let from = Node::start().await;
    let image = sample();
    from.registry.push("app", "v1", &image);
    from.registry.push("other/app", "v2", &image);
    from.pull("app:v1").await.expect("pulls");
    let id = from.pull("other/app:v2").await.expect("pulls");
    let out = tempfile::tempdir().expect("a directory");
    let cases: [(&str, ExportOptions); 5] = [
        ("layout", Format::OciLayout.into()),
        ("oci.tar", Format::OciArchive.into()),
        ("docker.tar", Format::DockerArchive.into()),
        ("gzip.tar", ExportOptions { compress: Compress::Gzip, ..Format::OciArchive.into() }),
        ("zstd", ExportOptions { compress: Compress::Zstd, ..Format::OciLayout.into() }),
    ];
    for (number, (name, options)) in cases.into_iter().enumerate() {
        let path = out.path().join(name);
        from.engine.export(std::slice::from_ref(&id), &path, options.clone()).await.expect(name);
        // The trees are the same, whatever their layers are on the disk.
        let format = [LayerFormat::Dir, LayerFormat::Erofs][number % 2];
        let to = Node::with(|options| options.store.layer_format = format).await;
        let imported = to.engine.import(&path, ImportOptions::default()).await.expect(name).images;
        assert_eq!(imported.len(), 1, "{name}");
        assert_eq!(imported[0].id, id, "{name}");
        assert_eq!(imported[0].names, [from.name("app:v1"), from.name("other/app:v2")].to_vec(), "{name}");
        assert_eq!(trees(&from, &id), trees(&to, &id), "{name}");
        let status = to.engine.image_status(&from.name("app:v1").as_str().into(), false).await.expect("a status");
        let status = status.image.expect("is there");
        assert_eq!(status.repo_tags.len(), 2, "{name}");
        assert_eq!(status.repo_digests.len(), if name == "docker.tar" { 0 } else { 2 }, "{name}");
        // What was exported uncompressed is its own manifest, and stays it.
        if matches!(name, "layout" | "oci.tar") {
            let again = out.path().join(format!("{name}.again"));
            to.engine.export(std::slice::from_ref(&id), &again, options.clone()).await.expect(name);
            if name == "oci.tar" {
                assert!(std::fs::read(&path).unwrap() == std::fs::read(&again).unwrap(), "bit for bit");
            } else {
                assert_eq!(on_disk(&path), on_disk(&again));
            }
        }
        to.check_clean().await;
    }
    let mut names: Vec<_> = std::fs::read_dir(out.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.retain(|n| n.to_string_lossy().starts_with('.'));
    assert!(names.is_empty(), "no temporary files: {names:?}");
    from.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oci_layout_is_well_formed() {
    let node = Node::start().await;
    let image = sample();
    node.registry.push("app", "v1", &image);
    node.pull("app:v1").await.expect("pulls");
    let out = tempfile::tempdir().expect("a directory");
    let path = out.path().join("layout");
    node.engine.export(&[node.name("app:v1")], &path, Format::OciLayout).await.expect("exports");
    assert_eq!(std::fs::read(path.join("oci-layout")).unwrap(), br#"{"imageLayoutVersion":"1.0.0"}"#);
    let Ok(Document::Index(index)) = Document::parse(&std::fs::read(path.join("index.json")).unwrap(), None) else {
        panic!("an index")
    };
    let entry = &index.manifests[0];
    assert_eq!(entry.annotations["io.containerd.image.name"], node.name("app:v1"));
    assert_eq!(entry.annotations["org.opencontainers.image.ref.name"], "v1");
    assert_eq!(entry.platform.as_ref().map(ToString::to_string).as_deref(), Some("linux/amd64"));
    let blob = |digest: &oci::Digest| std::fs::read(path.join("blobs/sha256").join(digest.hex())).expect("a blob");
    let Ok(Document::Manifest(manifest)) = Document::parse(&blob(&entry.digest), Some(&entry.media_type)) else {
        panic!("a manifest")
    };
    assert_eq!(manifest.annotations["org.example.note"], "kept");
    assert_eq!(blob(&manifest.config.digest), image.config);
    for (layer, built) in manifest.layers.iter().zip(&image.layers) {
        assert_eq!(layer.digest, built.diff_id);
        assert!(blob(&layer.digest) == built.tar, "bit for bit, trailing bytes included");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_layouts() {
    let node = Node::start().await;
    let out = tempfile::tempdir().expect("a directory");
    let [arm, amd] = ["linux/arm64", "linux/amd64"].map(|platform| {
        ImageBuilder::new().platform(platform.parse().expect("a platform")).layer(layer("a/x", 1, 1000)).build()
    });
    // An index, with a tag that is no whole name.
    let path = out.path().join("index");
    let index = BuiltIndex::new(vec![arm.clone(), amd.clone()]);
    index.write_layout(&path, "latest").expect("writes");
    let imported = node.engine.import(&path, ImportOptions::default()).await.expect("imports").images;
    assert_eq!((imported[0].id.clone(), imported[0].names.len()), (amd.id().to_string(), 0));
    let name = Reference::parse("r.example/app:v1").expect("a reference");
    let named = ImportOptions { name: Some(name), ..ImportOptions::default() };
    let imported = node.engine.import(&path, named).await.expect("imports").images;
    assert_eq!(imported[0].names, ["r.example/app:v1"]);
    // A pod that names the digest finds it, without any registry.
    let by_digest = format!("r.example/app@{}", index.digest());
    let status = node.engine.image_status(&by_digest.as_str().into(), false).await.expect("a status");
    assert_eq!(status.image.expect("is there").id, amd.id().to_string());
    // Only another platform.
    let path = out.path().join("arm");
    arm.write_layout(&path, "r.example/arm:v1").expect("writes");
    let error = node.engine.import(&path, ImportOptions::default()).await.expect_err("nothing fits");
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(error.message().contains("linux/arm64"), "{error}");
    node.check_clean().await;
}

/// A tar file as other tools write it.
fn archive(path: &Path, members: &[(&str, &[u8])]) {
    let builder =
        members.iter().fold(LayerBuilder::new().dir("./"), |tar, (name, bytes)| tar.file(name, bytes.to_vec()));
    std::fs::write(path, builder.plain().build().tar).expect("writes");
}

#[tokio::test(flavor = "multi_thread")]
async fn docker_archives_of_old_and_new_docker() {
    let node = Node::start().await;
    let out = tempfile::tempdir().expect("a directory");
    let image = image().layer(layer("a/x", 1, 50_000)).layer(layer("b/y", 2, 50)).build();
    let manifest = |layers: &[&str], tags: &str| {
        format!(r#"[{{"Config":"config.json","RepoTags":{tags},"Layers":{}}}]"#, serde_json::json!(layers))
    };
    // Plain layers in directories, the first through a symbolic link.
    let old = out.path().join("old.tar");
    let text = manifest(&["1/layer.tar", "2/layer.tar"], r#"["app:v1","docker.io/library/app:v2"]"#);
    let tar = LayerBuilder::new()
        .file("config.json", image.config.to_vec())
        .symlink("1/layer.tar", "../store/layer.tar")
        .file("store/layer.tar", image.layers[0].tar.to_vec())
        .file("2/layer.tar", image.layers[1].tar.to_vec())
        .file("manifest.json", text);
    std::fs::write(&old, tar.plain().build().tar).expect("writes");
    let imported = node.engine.import(&old, ImportOptions::default()).await.expect("imports").images;
    assert_eq!(imported[0].id, image.id().to_string());
    assert_eq!(imported[0].names, ["docker.io/library/app:v1", "docker.io/library/app:v2"]);
    assert_eq!(node.file(&imported[0].id, "a/x"), Some(noise(1, 50_000)));
    node.engine.remove_image(&"app:v1".into()).await.expect("removes");
    // Compressed layers, named by digest and not.
    let new = out.path().join("new.tar");
    let blob = format!("blobs/sha256/{}", image.layers[0].descriptor.digest.hex());
    let text = manifest(&[&blob, "other.tar.gz"], "null");
    archive(
        &new,
        &[
            ("config.json", &image.config),
            (&blob, &image.layers[0].blob),
            ("other.tar.gz", &image.layers[1].blob),
            ("manifest.json", text.as_bytes()),
        ],
    );
    let imported = node.engine.import(&new, ImportOptions::default()).await.expect("imports").images;
    assert_eq!((imported[0].id.clone(), imported[0].names.len()), (image.id().to_string(), 0));
    assert_eq!(node.file(&imported[0].id, "b/y"), Some(noise(2, 50)));
    node.check_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn archives_that_are_none_or_lie() {
    let node = Node::start().await;
    let out = tempfile::tempdir().expect("a directory");
    let image = image().layer(layer("a/x", 1, 50_000)).build();
    let config = ("config.json", &image.config[..]);
    let text = br#"[{"Config":"config.json","RepoTags":["app:v1"],"Layers":["l.tar"]}]"#;
    let other = LayerBuilder::new().dir("z/").plain().build();
    let path = |name: &str| out.path().join(name);
    archive(&path("lie.tar"), &[config, ("l.tar", &other.tar), ("manifest.json", text)]);
    archive(&path("lost.tar"), &[config, ("manifest.json", text)]);
    archive(&path("nothing.tar"), &[("readme", b"hello")]);
    write(out.path(), "zipped.tar", &[&[0x1f, 0x8b, 8, 0][..], &noise(1, 2000)].concat());
    write(out.path(), "text.tar", &[b'x'; 2000]);
    image.write_layout(&path("damaged"), "r.example/app:v1").expect("writes");
    let blob = path("damaged/blobs/sha256").join(image.layers[0].descriptor.digest.hex());
    let mut bytes = std::fs::read(&blob).expect("reads");
    bytes[25_000] ^= 1;
    std::fs::write(&blob, bytes).expect("writes");
    let cases = [
        ("lie.tar", Kind::DataLoss, "digest mismatch"),
        ("lost.tar", Kind::DataLoss, "has no l.tar"),
        ("nothing.tar", Kind::InvalidArgument, "neither an OCI layout"),
        ("zipped.tar", Kind::DataLoss, "inflate the gzip stream"),
        ("text.tar", Kind::DataLoss, "no tar file"),
        ("absent.tar", Kind::NotFound, "absent.tar"),
        ("damaged", Kind::DataLoss, "layer sha256:"),
    ];
    for (name, kind, word) in cases {
        let error = node.engine.import(&path(name), ImportOptions::default()).await.expect_err(name);
        assert_eq!(error.kind(), kind, "{name}: {error}");
        assert!(error.message().contains(word), "{name}: {error}");
        assert!(node.engine.list_images(None).await.expect("lists").is_empty(), "{name}");
        node.check_clean().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_that_cannot_be_leave_nothing() {
    let node = Node::start().await;
    node.registry.push("app", "v1", &sample());
    node.pull("app:v1").await.expect("pulls");
    let out = tempfile::tempdir().expect("a directory");
    write(out.path(), "full/file", b"mine");
    let app = [node.name("app:v1")];
    let absent = node.engine.export(&[node.name("absent:v1")], &out.path().join("x.tar"), Format::OciArchive).await;
    assert_eq!(absent.expect_err("absent").kind(), Kind::NotFound);
    let full = node.engine.export(&app, &out.path().join("full"), Format::OciLayout).await;
    assert_eq!(full.expect_err("occupied").kind(), Kind::FailedPrecondition);
    let both = ExportOptions { compress: Compress::Gzip, ..Format::DockerArchive.into() };
    let both = node.engine.export(&app, &out.path().join("x.tar"), both).await;
    assert_eq!(both.expect_err("contradiction").kind(), Kind::InvalidArgument);
    // A layer that was changed on disk is not exported as if it were the layer.
    node.damage(&app[0], 0, "bin/tool");
    let changed = node.engine.export(&app, &out.path().join("x.tar"), Format::OciArchive).await;
    assert_eq!(changed.expect_err("changed").kind(), Kind::DataLoss);
    let left: Vec<_> = std::fs::read_dir(out.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["full"]);
}

/// A directory with an image in it may be untrusted: a file next to it is neither read nor named by its digest.
#[tokio::test(flavor = "multi_thread")]
async fn links_of_a_directory_do_not_lead_out_of_it() {
    use std::os::unix::fs::symlink;
    let from = Node::start().await;
    from.registry.push("app", "v1", &sample());
    let id = from.pull("app:v1").await.expect("pulls");
    let out = tempfile::tempdir().expect("a directory");
    let layout = out.path().join("layout");
    from.engine.export(std::slice::from_ref(&id), &layout, Format::OciLayout).await.expect("exports");
    let index = std::fs::read(layout.join("index.json")).expect("readable");
    let index: serde_json::Value = serde_json::from_slice(&index).expect("JSON");
    let manifest = index["manifests"][0]["digest"].as_str().expect("a digest").replace(':', "/");
    let names = ["index.json".to_owned(), "oci-layout".to_owned(), format!("blobs/{manifest}"), "blobs".to_owned()];
    let canary = out.path().join("canary");
    for (number, name) in names.iter().enumerate() {
        // What the link leads to is the very thing: it is not refused for what is in it.
        let (inside, outside) = (layout.join(name), canary.join(number.to_string()));
        std::fs::create_dir_all(&canary).expect("creates");
        std::fs::rename(&inside, &outside).expect("moves");
        symlink(&outside, &inside).expect("links");
        let node = Node::start().await;
        let error = node.engine.import(&layout, ImportOptions::default()).await.expect_err("it leads out");
        assert_eq!(error.kind(), Kind::InvalidArgument, "{name}: {error}");
        assert!(error.message().contains("a link leads out of"), "{name}: {error}");
        node.check_clean().await;
        // Within the directory it may lead where it likes.
        std::fs::remove_file(&inside).expect("deletes");
        let aside = layout.join(format!("aside-{number}"));
        std::fs::rename(&outside, &aside).expect("moves");
        let up = "../".repeat(name.matches('/').count());
        symlink(format!("{up}aside-{number}"), &inside).expect("links");
        let imported = node.engine.import(&layout, ImportOptions::default()).await.expect(name).images;
        assert_eq!(imported[0].id, id);
        std::fs::remove_file(&inside).expect("deletes");
        std::fs::rename(&aside, &inside).expect("moves");
    }
    // The names of a docker archive's parts are its own.
    let docker = out.path().join("docker");
    std::fs::create_dir(&docker).expect("creates");
    std::fs::write(out.path().join("secret.json"), r#"{"rootfs":{"type":"layers","diff_ids":[]}}"#).expect("writes");
    std::fs::write(docker.join("manifest.json"), r#"[{"Config":"c.json","RepoTags":["a:1"],"Layers":[]}]"#)
        .expect("writes");
    symlink("../secret.json", docker.join("c.json")).expect("links");
    let error = from.engine.import(&docker, ImportOptions::default()).await.expect_err("it leads out");
    assert!(error.message().contains("c.json: a link leads out of"), "{error}");
}
