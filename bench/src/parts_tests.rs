//! Tests of the readers of imagelet's output, the registry's log and the kernel's counters.

use super::*;

#[test]
fn ten_names_are_ten_references() {
    let images: Vec<String> = ["tiny", "base-zstd", "ml"].iter().map(|&n| n.to_owned()).collect();
    let mut references: Vec<String> = ten(&images).iter().map(|n| n.reference("r:1")).collect();
    assert_eq!(
        references[..5],
        ["r:1/tiny:latest", "r:1/base:zstd", "r:1/ml:latest", "r:1/ml:latest-1", "r:1/base:zstd-1"]
    );
    references.sort();
    references.dedup();
    assert_eq!(references.len(), AT_ONCE);
}

#[test]
fn times_are_read_in_all_their_forms() {
    let text = " INFO pulled image=r:1/a:latest duration=555ms\n INFO pulled image=r:1/b:latest duration=2.29s credential=\"a file\"\n \
                INFO pulled image=r:1/c:1 duration=1m7s\n";
    assert_eq!(pulled_in(text, "r:1/a:latest"), Some(0.555));
    assert_eq!(pulled_in(text, "r:1/b:latest"), Some(2.29));
    assert_eq!(pulled_in(text, "r:1/c:1"), Some(67.0));
    assert_eq!(pulled_in(text, "r:1/d:1"), None);
}

#[test]
fn kills_are_counted_in_both_versions() {
    assert_eq!(oom_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"), Some(2));
    assert_eq!(oom_kills("low 0\nhigh 0\nmax 12\noom 0\noom_kill 0\noom_group_kill 0\n"), Some(0));
    assert_eq!(oom_kills("under_oom 0\n"), None);
}

#[test]
fn requests_are_classified() {
    let log = "127.0.0.1 - - [21/Nov/2026:22:00:00 +0000] \"GET /v2/base/manifests/latest HTTP/1.1\" 200 348 \"\" \"x\"\n\
        127.0.0.1 - - [t] \"GET /v2/base/blobs/sha256:aa HTTP/1.1\" 200 1 \"\" \"x\"\n127.0.0.1 - - [t] \"GET /v2/ HTTP/1.1\" 200 2 \"\" \"x\"\n\nother\n";
    let seen = requests(log);
    assert_eq!(seen, Requests { manifests: 1, blobs: 1, others: 1 });
    assert_eq!(each(seen, 1), "1 manifest, 1 blob, 1 other");
    assert_eq!(each(seen.minus(Requests { manifests: 0, blobs: 1, others: 1 }), 1), "1 manifest");
    assert_eq!(each(Requests::default(), 3), "none");
}
