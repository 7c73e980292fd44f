//! Shapes in records: old records have none, and an unknown shape is reported.

use crate::disk::layer::Shape;
use crate::records::entries::{LayerEntry, LayerStats, decode, encode};

fn entry() -> LayerEntry {
    LayerEntry {
        diff_id: oci::Digest::sha256(b"layer"),
        chain_id: None,
        stats: LayerStats::default(),
        shape: Shape::Dir,
        implicit_root: false,
        references: 1,
        unsynced_boot: None,
        damaged: false,
    }
}

#[test]
fn a_record_without_a_shape_is_one_of_directories() {
    let bytes = encode(&entry());
    let text = String::from_utf8_lossy(&bytes);
    assert!(!text.contains("shape"), "as earlier programs wrote it, and read it: {text}");
    assert_eq!(decode::<LayerEntry>("layer 1", &bytes).expect("reads"), entry());
    let with =
        |shape: &str| text.replace("\"references\"", &format!("\"shape\":\"{shape}\",\"references\"")).into_bytes();
    assert_eq!(decode::<LayerEntry>("layer 1", &with("dir")).expect("reads").shape, Shape::Dir);
    let error = decode::<LayerEntry>("layer 1", &with("cube")).expect_err("no such shape");
    assert!(format!("{error:?}").contains("unknown variant `cube`"), "{error:?}");
}
