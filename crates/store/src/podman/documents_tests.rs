//! Ids, names of files and times, as podman has them.

use super::*;

#[test]
fn ids_are_those_of_podman() {
    // The documents that skopeo copied to containers-storage.
    let digest = |hex: &str| format!("sha256:{hex}").parse::<Digest>().unwrap();
    let base = "8e51a843eb591fcf23494affed501ce17fcf5db5d50aa72b86bf85a2d2515547";
    assert_eq!(layer_id(None, &digest(base)), base);
    let upper = digest("9bd7dfece80934dd35082357f41a5080ff318fa06e1aaf2eca255639bf192e68");
    assert_eq!(layer_id(Some(base), &upper), "7d3a7d9b8078540d373501d989ae0c305fe5bd8ecfb79dad9c92eae5bc31dfc2");
}

#[test]
fn links_are_short_and_differ() {
    let names = ["a", "b", "8e51"].map(link_name);
    for name in &names {
        assert_eq!(name.len(), LINK_LENGTH, "{name}");
        assert!(name.bytes().all(|b| b.is_ascii_uppercase() || (b'2'..=b'7').contains(&b)), "{name}");
    }
    assert!(names[0] != names[1] && names[1] != names[2]);
    assert_eq!(link_name("a"), names[0], "the same for ever");
}

#[test]
fn names_of_files() {
    for (key, want) in
        [("manifest", "manifest"), ("sha256:ab", "=c2hhMjU2OmFi"), ("manifest-sha256:ab", "=bWFuaWZlc3Qtc2hhMjU2OmFi")]
    {
        assert_eq!(file_name(key), want);
    }
}

#[test]
fn times_are_always_such_that_go_reads_them() {
    for (text, want) in [
        (Some("2026-11-23T16:43:37.240867145Z"), "2026-11-23T16:43:37.240867145Z"),
        (Some("2026-11-23T16:43:37+02:00"), "2026-11-23T14:43:37Z"),
        (Some("-000001-11-23T16:43:37Z"), "1970-01-01T00:00:00Z"),
        (Some("yesterday\""), "1970-01-01T00:00:00Z"),
        (Some(""), "1970-01-01T00:00:00Z"),
        (None, "1970-01-01T00:00:00Z"),
    ] {
        assert_eq!(time(text), want, "{text:?}");
    }
}

#[test]
fn compressions() {
    for (media_type, want) in [
        ("application/vnd.oci.image.layer.v1.tar+gzip", 2),
        ("application/vnd.docker.image.rootfs.diff.tar.gzip", 2),
        ("application/vnd.oci.image.layer.v1.tar+zstd", 4),
        ("application/vnd.oci.image.layer.v1.tar", 0),
    ] {
        assert_eq!(compression(media_type), want, "{media_type}");
    }
}
