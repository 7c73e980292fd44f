//! The kubelet's cases of its verification policies, and ours.

use super::*;

const IMAGE: &str = "test.io/test/test-image:tag";

#[test]
fn preloaded_images() {
    let rows = [
        (
            "upstream: pullmanager/TestNeverVerifyPreloadedPullPolicy/there are no records about the image being pulled",
            false,
            Some(Grant::Preloaded),
        ),
        (
            "upstream: pullmanager/TestNeverVerifyPreloadedPullPolicy/there are records about the image being pulled",
            true,
            None,
        ),
    ];
    for (name, pulled, want) in rows {
        assert_eq!(VerificationPolicy::NeverVerifyPreloadedImages.exempts(IMAGE, pulled), want, "{name}");
    }
}

#[test]
fn the_other_two_do_not_ask_for_records() {
    for pulled in [false, true] {
        assert_eq!(VerificationPolicy::NeverVerify.exempts(IMAGE, pulled), Some(Grant::PolicyNeverVerifies));
        assert_eq!(VerificationPolicy::AlwaysVerify.exempts(IMAGE, pulled), None);
    }
}

#[test]
fn allowlist() {
    const RULES: &str = "TestNewNeverVerifyAllowListedPullPolicy";
    let named = ["test.io/test/image1", "test.io/test/image2", "test.io/test/image3"];
    let listed = ["test.io/test/image1", "test.io/test/image2", "test.io/test/test-image", "test.io/test/image3"];
    let digest = "ubuntu@sha256:38a8906435c4dd5f4258899d46621bfd8eea3ad6ff494ee3c2f17ef0321625bd";
    // Name, whether it was pulled, image, patterns, names and prefixes among them, whether it is on the list.
    type Row<'a> = (&'a str, bool, &'a str, &'a [&'a str], (usize, usize), bool);
    let rows: [Row<'_>; 12] = [
        (
            "upstream: pullmanager/TestNewNeverVerifyAllowListedPullPolicy/there are no records about the image being pulled, not in allowlist",
            false,
            IMAGE,
            &named,
            (3, 0),
            false,
        ),
        (
            "upstream: pullmanager/TestNewNeverVerifyAllowListedPullPolicy/there are records about the image being pulled, not in allowlist",
            true,
            IMAGE,
            &[named[0], named[2], named[1], named[2]],
            (3, 0),
            false,
        ),
        (
            "upstream: pullmanager/TestNewNeverVerifyAllowListedPullPolicy/there are no records about the image being pulled, appears in allowlist",
            false,
            IMAGE,
            &listed,
            (4, 0),
            true,
        ),
        (
            "upstream: pullmanager/TestNewNeverVerifyAllowListedPullPolicy/there are records about the image being pulled, appears in allowlist",
            true,
            IMAGE,
            &listed,
            (4, 0),
            true,
        ),
        (
            "upstream: pullmanager/TestNewNeverVerifyAllowListedPullPolicy/there are no records about the image being pulled, not in allowlist - different repo wildcard",
            false,
            IMAGE,
            &[named[0], named[1], "different.repo/test/*"],
            (2, 1),
            false,
        ),
        (
            "upstream: pullmanager/TestNewNeverVerifyAllowListedPullPolicy/there are no records about the image being pulled, not in allowlist - matches org wildcard",
            false,
            IMAGE,
            &[named[0], named[1], "test.io/test/*"],
            (2, 1),
            true,
        ),
        (
            "upstream: pullmanager/TestNewNeverVerifyAllowListedPullPolicy/there are no records about the image being pulled, not in allowlist - matches repo wildcard",
            false,
            IMAGE,
            &[named[0], named[1], "test.io/*"],
            (2, 1),
            true,
        ),
        (
            "upstream: pullmanager/TestNewNeverVerifyAllowListedPullPolicy/'familiar' image name with docker-disambiguated fqdn in the allowlist - not a match",
            false,
            "ubuntu",
            &["docker.io/library/ubuntu"],
            (1, 0),
            false,
        ),
        (
            "upstream: pullmanager/TestNewNeverVerifyAllowListedPullPolicy/'familiar' image name with docker-disambiguated wildcard in the allowlist - not a match",
            false,
            "ubuntu",
            &["docker.io/library/*"],
            (0, 1),
            false,
        ),
        (
            "upstream: pullmanager/TestNewNeverVerifyAllowListedPullPolicy/'familiar' image name with 'familiar' image matching it in the allowlist",
            false,
            "ubuntu",
            &["ubuntu"],
            (1, 0),
            true,
        ),
        (
            "upstream: pullmanager/TestNewNeverVerifyAllowListedPullPolicy/'familiar' image name with a tag with 'familiar' image matching it in the allowlist",
            false,
            "ubuntu:tagged",
            &["ubuntu"],
            (1, 0),
            true,
        ),
        (
            "upstream: pullmanager/TestNewNeverVerifyAllowListedPullPolicy/'familiar' image name with a digest with 'familiar' image matching it in the allowlist",
            false,
            digest,
            &["ubuntu"],
            (1, 0),
            true,
        ),
    ];
    for (name, pulled, image, patterns, (names, prefixes), on_it) in rows {
        assert!(name.contains(RULES));
        let list = parse(patterns).unwrap();
        assert_eq!((list.names.len(), list.prefixes.len()), (names, prefixes), "{name}");
        let policy = VerificationPolicy::NeverVerifyAllowlistedImages(list);
        assert_eq!(policy.exempts(image, pulled), on_it.then_some(Grant::Allowlisted), "{name}");
        assert_eq!(policy.exempts("no Name", pulled), None, "{name}: what is no name is on no list");
    }
}

#[test]
fn bad_patterns() {
    let star = "not a valid wildcard pattern, only patterns ending with '/*' are allowed";
    let tag = "neither tag nor digest is accepted in an image reference";
    let digest = "test.io/test/image1@sha256:38a8906435c4dd5f4258899d46621bfd8eea3ad6ff494ee3c2f17ef0321625bd";
    let rows = [
        (
            "upstream: pullmanager/TestNewNeverVerifyAllowListedPullPolicy/invalid allowlist pattern - wildcard in the middle",
            "image.repo/pokus*/imagename",
            format!("{star}: image.repo/pokus*/imagename"),
        ),
        (
            "upstream: pullmanager/TestNewNeverVerifyAllowListedPullPolicy/invalid allowlist pattern - trailing non-segment wildcard middle",
            "image.repo/pokus*",
            format!("{star}: image.repo/pokus*"),
        ),
        (
            "upstream: pullmanager/TestNewNeverVerifyAllowListedPullPolicy/invalid allowlist pattern - wildcard path segment in the middle",
            "image.repo/*/imagename",
            format!("{star}: image.repo/*/imagename"),
        ),
        (
            "upstream: pullmanager/TestNewNeverVerifyAllowListedPullPolicy/invalid allowlist pattern - only wildcard segment",
            "/*",
            "at least registry hostname is required".to_owned(),
        ),
        (
            "upstream: pullmanager/TestNewNeverVerifyAllowListedPullPolicy/invalid allowlist pattern - ends with a '/'",
            "image.repo/",
            "failed to parse as an image name: invalid reference format".to_owned(),
        ),
        (
            "upstream: pullmanager/TestNewNeverVerifyAllowListedPullPolicy/invalid allowlist pattern - empty",
            "",
            "the supplied pattern is too short: ".to_owned(),
        ),
        (
            "upstream: pullmanager/TestNewNeverVerifyAllowListedPullPolicy/invalid allowlist pattern - asterisk",
            "*",
            format!("{star}: *"),
        ),
        (
            "upstream: pullmanager/TestNewNeverVerifyAllowListedPullPolicy/invalid allowlist pattern - image with a tag",
            "test.io/test/image1:tagged",
            format!("{tag}: test.io/test/image1:tagged"),
        ),
        (
            "upstream: pullmanager/TestNewNeverVerifyAllowListedPullPolicy/invalid allowlist pattern - image with a digest",
            digest,
            format!("{tag}: {digest}"),
        ),
        (
            "upstream: pullmanager/TestNewNeverVerifyAllowListedPullPolicy/invalid allowlist pattern - trailing whitespace",
            "test.io/test/image1 ",
            "leading/trailing spaces are not allowed: test.io/test/image1 ".to_owned(),
        ),
        ("a prefix with a star within", "image.repo/a*/*", format!("{star}: image.repo/a*/*")),
    ];
    for (name, pattern, error) in rows {
        assert_eq!(parse(&["fine.io/a", pattern]).unwrap_err().to_string(), error, "{name}");
    }
}

#[test]
fn a_prefix_ends_where_a_segment_does() {
    let list = parse(&["reg.io/a/*"]).unwrap();
    for (image, on_it) in [("reg.io/a/b:1", true), ("reg.io/a/b/c", true), ("reg.io/ab/c", false), ("reg.io/a", false)]
    {
        assert_eq!(list.matches(image), on_it, "{image}");
    }
}

#[test]
fn a_host_is_the_same_in_every_spelling() {
    let spellings = ["docker.io", "Docker.io", "docker.io:443"];
    for listed in spellings {
        for host in spellings {
            for pattern in [format!("{listed}/team/*"), format!("{listed}/team/app")] {
                let list = parse(&[&pattern]).expect("a list");
                assert!(list.matches(&format!("{host}/team/app:1")), "{host} on {pattern}");
                assert!(!list.matches(&format!("{host}/teams/app:1")), "{host} on {pattern}");
            }
        }
    }
    let error = parse(&["127.1/*"]).expect_err("no host").to_string();
    assert!(error.contains("host \"127.1\": "), "{error}");
    assert!(!parse(&["127.0.0.1/*"]).expect("a list").matches("127.1/app"));
}

fn parse(patterns: &[&str]) -> Result<Allowlist, AllowlistError> {
    Allowlist::parse(&patterns.iter().map(|&pattern| pattern.to_owned()).collect::<Vec<_>>())
}

/// The names under which records are kept and allowlists are searched.
#[test]
fn names_without_tag_and_digest() {
    let hex = "38a8906435c4dd5f4258899d46621bfd8eea3ad6ff494ee3c2f17ef0321625bd";
    let rows = [
        (
            "upstream: pullmanager/TestTrimImageTagDigest/'familiar' image name, no tag or digest",
            "myimage",
            Some("myimage"),
        ),
        (
            "upstream: pullmanager/TestTrimImageTagDigest/'familiar' image name with tag",
            "myimage:latest",
            Some("myimage"),
        ),
        (
            "upstream: pullmanager/TestTrimImageTagDigest/'familiar' image name with digest",
            "myimage@sha256:HEX",
            Some("myimage"),
        ),
        (
            "upstream: pullmanager/TestTrimImageTagDigest/'familiar' image name with tag and digest",
            "myimage:v1@sha256:HEX",
            Some("myimage"),
        ),
        (
            "upstream: pullmanager/TestTrimImageTagDigest/single path segment, no tag",
            "registry.io/myimage",
            Some("registry.io/myimage"),
        ),
        (
            "upstream: pullmanager/TestTrimImageTagDigest/single path segment with tag",
            "registry.io/myimage:v1.0",
            Some("registry.io/myimage"),
        ),
        (
            "upstream: pullmanager/TestTrimImageTagDigest/single path segment with digest",
            "registry.io/myimage@sha256:HEX",
            Some("registry.io/myimage"),
        ),
        (
            "upstream: pullmanager/TestTrimImageTagDigest/single path segment with tag and digest",
            "registry.io/myimage:latest@sha256:HEX",
            Some("registry.io/myimage"),
        ),
        (
            "upstream: pullmanager/TestTrimImageTagDigest/domain and two path segments, no tag",
            "registry.io/myorg/myimage",
            Some("registry.io/myorg/myimage"),
        ),
        (
            "upstream: pullmanager/TestTrimImageTagDigest/domain and two path segments with tag",
            "registry.io/myorg/myimage:v2",
            Some("registry.io/myorg/myimage"),
        ),
        (
            "upstream: pullmanager/TestTrimImageTagDigest/domain and two path segments with digest",
            "registry.io/myorg/myimage@sha256:HEX",
            Some("registry.io/myorg/myimage"),
        ),
        (
            "upstream: pullmanager/TestTrimImageTagDigest/domain and two path segments with tag and digest",
            "registry.io/myorg/myimage:v2@sha256:HEX",
            Some("registry.io/myorg/myimage"),
        ),
        (
            "upstream: pullmanager/TestTrimImageTagDigest/deep path and tag",
            "registry.io/a/b/c/myimage:latest",
            Some("registry.io/a/b/c/myimage"),
        ),
        ("upstream: pullmanager/TestTrimImageTagDigest/image name ends with slash", "registry.io/myorg/", None),
        ("upstream: pullmanager/TestTrimImageTagDigest/last segment is only a tag", "registry.io/myorg/:tag", None),
        (
            "upstream: pullmanager/TestTrimImageTagDigest/last segment is only a digest",
            "registry.io/myorg/@sha256:HEX",
            None,
        ),
        (
            "upstream: pullmanager/TestTrimImageTagDigest/domain with port and tag",
            "localhost:5000/myimage:v1",
            Some("localhost:5000/myimage"),
        ),
        (
            "upstream: pullmanager/TestTrimImageTagDigest/domain with port, org, and tag",
            "myregistry:5000/myorg/myimage:v1",
            Some("myregistry:5000/myorg/myimage"),
        ),
        (
            "upstream: pullmanager/TestTrimImageTagDigest/multiple occurrences of tag",
            "docker.io/taghere/image:taghere",
            Some("docker.io/taghere/image"),
        ),
        (
            "upstream: pullmanager/TestTrimImageTagDigest/multiple occurrences of digest",
            "registry.io/HEX/myorg/image@sha256:HEX",
            Some("registry.io/HEX/myorg/image"),
        ),
    ];
    for (name, image, want) in rows {
        let want = want.map(|want| want.replace("HEX", hex));
        assert_eq!(trim_tag_and_digest(&image.replace("HEX", hex)).ok(), want, "{name}");
    }
}
