//! The files of an image: layers merged, links followed within the image, and every way in which a read fails.

use std::path::PathBuf;

use imagelet_engine::{ErrorKind, FileKind, READ_LIMIT, RootFs};
use registry::testing::{ImageBuilder, LayerBuilder};

use crate::support::{Node, app, noise};

async fn rootfs(node: &Node) -> RootFs {
    let image = node.push("app:v1", &app());
    node.engine.pull(image.clone()).await.expect("pulls");
    node.engine.rootfs(image).await.expect("opens")
}

#[tokio::test]
async fn files_are_read_through_layers_and_links() {
    let node = Node::start().await;
    let rootfs = rootfs(&node).await;
    for path in ["etc/os-release", "/etc/os-release", "/etc/up", "bin/../../etc/os-release"] {
        assert_eq!(rootfs.read(path).await.expect(path), b"ID=app\n", "{path}");
    }
    assert_eq!(rootfs.read("bin/app").await.expect("through a link"), noise(400_000));
    let copied = rootfs.copy_to("usr/bin/app", Vec::new()).await.expect("copies");
    assert_eq!(copied.len(), 400_000);
    assert_eq!(rootfs.read_link("bin").await, Ok(PathBuf::from("usr/bin")));

    let names: Vec<_> = rootfs.read_dir("etc").await.expect("lists").into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["os-release", "up"]);
    let metadata = rootfs.metadata("etc/up").await.expect("follows");
    assert_eq!((metadata.kind, metadata.mode, metadata.size), (FileKind::File, 0o640, 7));
    assert_eq!(rootfs.symlink_metadata("etc/up").await.expect("a link").kind, FileKind::Symlink);
    assert_eq!(rootfs.metadata("").await.expect("the root").kind, FileKind::Directory);
}

#[tokio::test]
async fn reads_that_cannot_succeed_have_kinds() {
    let node = Node::start().await;
    let rootfs = rootfs(&node).await;
    for (path, kind) in [
        ("etc/old", ErrorKind::NotFound),
        ("no/such", ErrorKind::NotFound),
        ("etc", ErrorKind::InvalidArgument),
        ("etc/os-release/x", ErrorKind::InvalidArgument),
    ] {
        let error = rootfs.read(path).await.expect_err(path);
        assert_eq!(error.kind(), kind, "{path}: {error}");
    }
    assert_eq!(rootfs.read_link("etc").await.expect_err("no link").kind(), ErrorKind::InvalidArgument);
    assert_eq!(rootfs.read_dir("etc/os-release").await.expect_err("a file").kind(), ErrorKind::InvalidArgument);
    let error = node.engine.rootfs("absent:1").await.expect_err("absent");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("opens");
    let error = rootfs.copy_to("usr/bin/app", full).await.expect_err("no space");
    assert_eq!(error.kind(), ErrorKind::DiskFull, "{error}");
}

#[tokio::test]
async fn read_has_a_limit() {
    let node = Node::start().await;
    let size = usize::try_from(READ_LIMIT).expect("small") + 1;
    let layer = LayerBuilder::new().file("big", vec![0; size]);
    let image = node.push("big:v1", &ImageBuilder::new().layer(layer).build());
    node.engine.pull(image.clone()).await.expect("pulls");
    let rootfs = node.engine.rootfs(image).await.expect("opens");
    assert_eq!(rootfs.read("big").await.expect_err("too large").kind(), ErrorKind::InvalidArgument);
    assert_eq!(rootfs.copy_to("big", Vec::new()).await.expect("copies").len(), size);
}

#[tokio::test]
async fn a_removed_image_stays_readable_until_it_is_closed() {
    let node = Node::start().await;
    let rootfs = rootfs(&node).await;
    node.engine.remove_image(node.reference("app:v1")).await.expect("removes");
    assert_eq!(rootfs.read("etc/os-release").await.expect("still readable"), b"ID=app\n");
    let clone = rootfs.clone();
    drop(rootfs);
    assert_eq!(clone.read("etc/os-release").await.expect("a clone shares the layers"), b"ID=app\n");
}
