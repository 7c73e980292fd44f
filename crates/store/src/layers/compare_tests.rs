//! Errors of a comparison when one of the two layers cannot be read.

use std::fs::{self, File};
use std::os::fd::AsFd as _;

use rustix::io::Errno;

use super::{Compared, NotCompared};
use crate::disk::layer::Shape;
use crate::tar::build::Tar;
use crate::unpack::tests::support::Layer;

fn layers(shape: Shape) -> (Layer, Layer) {
    let tar = Tar::new().dir("d").file("d/f", b"content").end();
    let (layer, mut copy) = (Layer::of(shape), Layer::of(shape));
    copy.hollow = true;
    layer.unpack(&tar).unwrap();
    copy.unpack(&tar).unwrap();
    (layer, copy)
}

fn compare(shape: Shape, there: &File, copy: &File) -> Compared {
    shape.difference(there.as_fd(), copy.as_fd(), &[], &|| false)
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn what_cannot_be_read_is_no_difference() {
    for shape in Shape::ALL {
        let (layer, copy) = layers(shape);
        let [there, copied] = [&layer, &copy].map(|layer| File::open(layer.path()).unwrap());
        assert!(matches!(compare(shape, &there, &copied), Ok(None)));
        // In it there is nothing to be read.
        let file = File::open("/dev/null").unwrap();
        let is_told = |error: &std::io::Error| error.raw_os_error() == Some(Errno::NOTDIR.raw_os_error());
        let found = compare(shape, &file, &copied);
        assert!(matches!(&found, Err(NotCompared::Layer(error)) if is_told(error)), "{shape:?}: {found:?}");
        let found = compare(shape, &there, &file);
        assert!(matches!(&found, Err(NotCompared::Copy(error)) if is_told(error)), "{shape:?}: {found:?}");
    }
}

#[test]
#[ignore = "needs root: scripts/test.sh"]
fn missing_recipe_is_reported_for_its_layer() {
    let (layer, copy) = layers(Shape::Erofs);
    let [there, copied] = [&layer, &copy].map(|layer| File::open(layer.path()).unwrap());
    fs::remove_file(copy.path().join("recipe.zst")).unwrap();
    let found = compare(Shape::Erofs, &there, &copied);
    assert!(matches!(&found, Err(NotCompared::Copy(error)) if error.to_string().contains("no recipe")), "{found:?}");
    let (_, copy) = layers(Shape::Erofs);
    let copied = File::open(copy.path()).unwrap();
    fs::remove_file(layer.path().join("recipe.zst")).unwrap();
    let found = compare(Shape::Erofs, &there, &copied).unwrap();
    assert_eq!(found.as_deref(), Some("the layer has no recipe"));
}
