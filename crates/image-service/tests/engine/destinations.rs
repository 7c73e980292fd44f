//! Where an export goes is written as what it is: a regular file is replaced when the archive is whole, symbolic links lead to
//! it, devices and pipes stay what they are.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::path::Path;

use cri_api::Kind;
use cri_api::engine::Format;
use rustix::fs::{CWD, FileType, Mode};
use store::LayerFormat;

use crate::support::{Node, image, layer};

const ARCHIVES: [Format; 2] = [Format::OciArchive, Format::DockerArchive];

/// An engine with an image of two layers, as these are on the disk in each shape.
async fn nodes() -> Vec<(Node, [String; 1])> {
    let mut nodes = Vec::new();
    for format in [LayerFormat::Dir, LayerFormat::Erofs] {
        let node = Node::with(|options| options.store.layer_format = format).await;
        let layers = image().layer(layer("large", 1, 400_000)).layer(layer("small", 2, 1000));
        node.registry.push("app", "v1", &layers.build());
        node.pull("app:v1").await.expect("pulls");
        let names = [node.name("app:v1")];
        nodes.push((node, names));
    }
    nodes
}

fn special(path: &Path, kind: FileType, (major, minor): (u32, u32)) -> bool {
    rustix::fs::mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, rustix::fs::makedev(major, minor)).is_ok()
}

/// Names that begin with a dot: what is not whole yet.
fn unfinished(directory: &Path) -> usize {
    let names = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    names.filter(|name| name.to_string_lossy().starts_with('.')).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn pipes_and_devices_are_written_to_and_stay() {
    for (node, app) in nodes().await {
        let out = tempfile::tempdir().expect("a directory");
        let at = |name: &str| out.path().join(name);
        for format in ARCHIVES {
            node.engine.export(&app, &at("whole.tar"), format).await.expect("exports");
            let whole = fs::read(at("whole.tar")).expect("reads");
            assert!(whole.len() > 400_000);

            let pipe = at("pipe");
            assert!(pipe.exists() || special(&pipe, FileType::Fifo, (0, 0)));
            let _ = symlink("pipe", at("to-pipe"));
            for name in ["pipe", "to-pipe"] {
                let path = pipe.clone();
                let reader = tokio::task::spawn_blocking(move || fs::read(path).expect("reads"));
                node.engine.export(&app, &at(name), format).await.expect(name);
                assert!(reader.await.expect("no panic") == whole, "{name}: what is read is what a file would be");
                assert!(pipe.symlink_metadata().expect("there").file_type().is_fifo(), "{name}");
            }
            // No process reads: the export can be cancelled.
            let export = node.engine.export(&app, &pipe, format);
            tokio::time::timeout(std::time::Duration::from_millis(50), export).await.expect_err("it waits");

            // Nodes of the test's own: those of the machine are not at stake.
            for (name, device, want) in [("null", (1, 3), None), ("full", (1, 7), Some(Kind::ResourceExhausted))] {
                let path = at(name);
                if !path.exists() && !special(&path, FileType::CharacterDevice, device) {
                    continue; // Takes the rights of root.
                }
                let exported = node.engine.export(&app, &path, format).await;
                assert_eq!(exported.as_ref().err().map(|error| error.kind()), want, "{name}: {exported:?}");
                assert!(path.symlink_metadata().expect("there").file_type().is_char_device(), "{name}");
            }
        }
        assert_eq!(unfinished(out.path()), 0);
        node.check_clean().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn links_are_followed_and_directories_are_none() {
    for (node, app) in nodes().await {
        let out = tempfile::tempdir().expect("a directory");
        let at = |name: &str| out.path().join(name);
        fs::create_dir_all(at("elsewhere/sub")).expect("creates");
        fs::write(at("elsewhere/old"), "old").expect("writes");
        for (to, link) in [("elsewhere/old", "link"), ("elsewhere/new", "dangling"), ("loop", "loop")] {
            symlink(to, at(link)).expect("links");
        }
        symlink("elsewhere/sub", at("to-sub")).expect("links");
        symlink("elsewhere/layout", at("to-layout")).expect("links");
        node.engine.export(&app, &at("whole.tar"), Format::OciArchive).await.expect("exports");
        let whole = fs::read(at("whole.tar")).expect("reads");
        for (link, file) in [("link", "elsewhere/old"), ("dangling", "elsewhere/new")] {
            node.engine.export(&app, &at(link), Format::OciArchive).await.expect(link);
            assert_eq!(fs::read_link(at(link)).expect("still a link"), Path::new(file));
            assert!(fs::read(at(file)).expect("reads") == whole, "{link}");
        }
        for (path, want) in [("loop", "symbolic links"), ("elsewhere", "is a directory"), ("to-sub", "is a directory")]
        {
            for format in ARCHIVES {
                let error = node.engine.export(&app, &at(path), format).await.expect_err(path);
                assert!(error.message().contains(want) && error.message().contains(path), "{path}: {error}");
            }
        }
        // A layout is a directory; a link leads to an empty one, or to where there is none yet.
        for (link, directory) in [("to-sub", "elsewhere/sub"), ("to-layout", "elsewhere/layout")] {
            node.engine.export(&app, &at(link), Format::OciLayout).await.expect(link);
            assert_eq!(fs::read_link(at(link)).expect("still a link"), Path::new(directory));
            assert!(at(directory).join("index.json").is_file());
        }
        assert!(special(&at("pipe"), FileType::Fifo, (0, 0)));
        node.engine.export(&app, &at("pipe"), Format::OciLayout).await.expect_err("no directory");
        assert_eq!(unfinished(out.path()) + unfinished(&at("elsewhere")), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_that_fails_leaves_what_was_there() {
    for (node, app) in nodes().await {
        let out = tempfile::tempdir().expect("a directory");
        let at = |name: &str| out.path().join(name);
        fs::write(at("file"), "mine").expect("writes");
        symlink("file", at("link")).expect("links");
        node.damage(&app[0], 0, "large");
        for format in ARCHIVES {
            for name in ["file", "link"] {
                let error = node.engine.export(&app, &at(name), format).await.expect_err("damaged");
                assert_eq!(error.kind(), Kind::DataLoss, "{error}");
            }
        }
        assert_eq!(fs::read(at("file")).expect("reads"), b"mine");
        assert_eq!((unfinished(out.path()), fs::read_link(at("link")).is_ok()), (0, true));
    }
}
