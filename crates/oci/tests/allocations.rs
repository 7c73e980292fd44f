//! How many allocations it takes to read an image's name. The kubelet needs nine or ten; here it is what the answer itself
//! is made of. In a program of its own, because it counts every allocation.

use allocation_counter::measure;
use imagelet_oci::{Reference, apply_default_tag, parse_image_name, trim_tag_and_digest};

const DIGEST: &str =
    "registry.k8s.io/pause:3.10@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

#[test]
fn parsing_a_name_allocates_only_its_result() {
    for (name, parts) in [("nginx", 2), ("registry.example.com:5000/team/app:1", 2), (DIGEST, 3)] {
        let count = |work: fn(&str)| measure(|| work(name)).count_total;
        assert_eq!(
            count(|name| drop(parse_image_name(name).expect("parses"))),
            parts,
            "{name}: repository, tag, digest"
        );
        assert_eq!(count(|name| drop(apply_default_tag(name).expect("parses"))), 1, "{name}");
        assert_eq!(count(|name| drop(trim_tag_and_digest(name).expect("parses"))), 1, "{name}");
        assert!(count(|name| drop(Reference::parse(name).expect("parses"))) <= parts, "{name}");
    }
}
