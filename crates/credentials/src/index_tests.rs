//! Tables of the index, and the property that it returns the same as a comparison with every pattern. Rows named `upstream`
//! mirror the kubelet's keyring test, one by one.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const MODES: [PathMatch; 2] = [PathMatch::Segments, PathMatch::Compat];

fn index(mode: PathMatch, locations: &[&str]) -> Index<String> {
    let mut index = Index::new(mode);
    for location in locations {
        index.insert(location, (*location).to_owned()).expect(location);
    }
    index
}

#[test]
fn upstream_docker_keyring_for_glob() {
    let cases = [
        "upstream: credentialprovider/TestDockerKeyringForGlob/https://hello.kubernetes.io, hello.kubernetes.io",
        "upstream: credentialprovider/TestDockerKeyringForGlob/https://*.docker.io, prefix.docker.io",
        "upstream: credentialprovider/TestDockerKeyringForGlob/https://prefix.*.io, prefix.docker.io",
        "upstream: credentialprovider/TestDockerKeyringForGlob/https://prefix.docker.*, prefix.docker.io",
        "upstream: credentialprovider/TestDockerKeyringForGlob/https://*.docker.io/path, prefix.docker.io/path",
        "upstream: credentialprovider/TestDockerKeyringForGlob/https://prefix.*.io/path, prefix.docker.io/path/subpath",
        "upstream: credentialprovider/TestDockerKeyringForGlob/https://prefix.docker.*/path, prefix.docker.io/path",
        "upstream: credentialprovider/TestDockerKeyringForGlob/https://*.docker.io:8888, prefix.docker.io:8888",
        "upstream: credentialprovider/TestDockerKeyringForGlob/https://prefix.*.io:8888, prefix.docker.io:8888",
        "upstream: credentialprovider/TestDockerKeyringForGlob/https://prefix.docker.*:8888, prefix.docker.io:8888",
        "upstream: credentialprovider/TestDockerKeyringForGlob/https://*.docker.io/path:1111, prefix.docker.io/path:1111",
        "upstream: credentialprovider/TestDockerKeyringForGlob/https://*.docker.io/v1/, prefix.docker.io/path:1111",
        "upstream: credentialprovider/TestDockerKeyringForGlob/https://*.docker.io/v2/, prefix.docker.io/path:1111",
        "upstream: credentialprovider/TestDockerKeyringForGlob/https://prefix.docker.*/path:1111, prefix.docker.io/path:1111",
        "upstream: credentialprovider/TestDockerKeyringForGlob/prefix.docker.io:1111, prefix.docker.io:1111/path",
        "upstream: credentialprovider/TestDockerKeyringForGlob/*.docker.io:1111, prefix.docker.io:1111/path",
    ];
    for name in cases {
        let (_, pair) = name.split_once("TestDockerKeyringForGlob/").expect("every row has it");
        let (location, target) = pair.split_once(", ").expect("every row has it");
        for mode in MODES {
            let got = index(mode, &[location]);
            assert_eq!(got.lookup(&format!("{target}/foo/bar")), [location], "{name} {mode:?}");
        }
    }
}

#[test]
fn upstream_keyring_miss() {
    let cases = [
        "upstream: credentialprovider/TestKeyringMiss/https://hello.kubernetes.io, world.mesos.org/foo/bar",
        "upstream: credentialprovider/TestKeyringMiss/https://*.docker.com, prefix.docker.io",
        "upstream: credentialprovider/TestKeyringMiss/https://suffix.*.io, prefix.docker.io",
        "upstream: credentialprovider/TestKeyringMiss/https://prefix.docker.c*, prefix.docker.io",
        "upstream: credentialprovider/TestKeyringMiss/https://prefix.*.io/path:1111, prefix.docker.io/path/subpath:1111",
        "upstream: credentialprovider/TestKeyringMiss/suffix.*.io, prefix.docker.io",
    ];
    for name in cases {
        let (_, pair) = name.split_once("TestKeyringMiss/").expect("every row has it");
        let (location, target) = pair.split_once(", ").expect("every row has it");
        for mode in MODES {
            assert!(index(mode, &[location]).lookup(&format!("{target}/foo/bar")).is_empty(), "{name} {mode:?}");
        }
    }
}

#[test]
fn upstream_default_registry() {
    let cases = [
        ("upstream: credentialprovider/TestKeyringMissWithDockerHubCredentials/", "world.mesos.org/foo/bar", false),
        ("upstream: credentialprovider/TestKeyringHitWithUnqualifiedDockerHub/", "google/docker-registry", true),
        ("upstream: credentialprovider/TestKeyringHitWithUnqualifiedLibraryDockerHub/", "jenkins", true),
        (
            "upstream: credentialprovider/TestKeyringHitWithQualifiedDockerHub/",
            "index.docker.io/google/docker-registry",
            true,
        ),
        ("with the path of the API", "index.docker.io/v1//google/docker-registry", true),
        ("in normal form", "docker.io/library/jenkins", true),
        ("another host", "myhostdocker.io/a", false),
    ];
    for location in ["https://index.docker.io", "https://index.docker.io/v1/", "index.docker.io"] {
        for (name, target, want) in cases {
            assert_eq!(index(PathMatch::Segments, &[location]).lookup(target).len(), usize::from(want), "{name}");
        }
    }
}

#[test]
fn default_registry_applies_only_without_a_match() {
    let index = index(PathMatch::Segments, &["docker.io/library", "index.docker.io", "index.docker.io/other"]);
    assert_eq!(index.lookup("docker.io/library/a"), ["docker.io/library"]);
    assert_eq!(index.lookup("docker.io/team/a"), ["index.docker.io"]);
    assert_eq!(index.lookup("index.docker.io/other/a"), ["index.docker.io/other", "index.docker.io"]);
}

#[test]
fn upstream_is_default_registry_match() {
    let cases = [
        ("upstream: credentialprovider/TestIsDefaultRegistryMatch/foo/bar", "foo/bar", true),
        ("upstream: credentialprovider/TestIsDefaultRegistryMatch/docker.io/foo/bar", "docker.io/foo/bar", true),
        (
            "upstream: credentialprovider/TestIsDefaultRegistryMatch/index.docker.io/foo/bar",
            "index.docker.io/foo/bar",
            true,
        ),
        ("upstream: credentialprovider/TestIsDefaultRegistryMatch/foo", "foo", true),
        ("upstream: credentialprovider/TestIsDefaultRegistryMatch/empty", "", false),
        ("upstream: credentialprovider/TestIsDefaultRegistryMatch/registry.tld/foo/bar", "registry.tld/foo/bar", false),
        (
            "upstream: credentialprovider/TestIsDefaultRegistryMatch/registry:5000/foo/bar",
            "registry:5000/foo/bar",
            false,
        ),
        (
            "upstream: credentialprovider/TestIsDefaultRegistryMatch/myhostdocker.io/foo/bar",
            "myhostdocker.io/foo/bar",
            false,
        ),
        ("the kubelet's own surprise", "localhost/foo", true),
        ("no host", "/foo", false),
    ];
    for (name, target, want) in cases {
        assert_eq!(is_default_registry(target), want, "{name}");
    }
}

// upstream: credentialprovider/TestIssue3797
#[test]
fn an_api_version_is_no_path() {
    let index = index(PathMatch::Segments, &["https://quay.io/v1/"]);
    for target in ["quay.io", "quay.io/foo", "quay.io/foo/bar"] {
        assert_eq!(index.lookup(target).len(), 1, "{target}");
    }
}

#[test]
fn greater_pattern_sorts_first() {
    let locations = ["*.io", "a.io", "a.io/x", "a.io/x/y", "*.io/x/y", "?.io", "a.*", "[a-b].io", "a.io:5000", "b.io"];
    for mode in MODES {
        let got = index(mode, &locations);
        let want = ["a.io/x/y", "a.io/x", "a.io", "a.*", "[a-b].io", "?.io", "*.io/x/y", "*.io"];
        assert_eq!(got.lookup("a.io/x/y/z"), want, "{mode:?}");
        assert_eq!(got.lookup("a.io:5000/x"), ["a.io:5000"], "{mode:?}");
        assert_eq!(got.len(), locations.len());
    }
}

#[test]
fn one_pattern_keeps_the_order_of_its_values() {
    let mut index = Index::new(PathMatch::Segments);
    for (at, location) in ["reg.io", "https://reg.io/", "reg.io/v1/", "http://reg.io"].into_iter().enumerate() {
        index.insert(location, at).expect(location);
    }
    assert_eq!(index.lookup("reg.io/a"), [&0, &1, &2, &3]);
    assert_eq!(index.insert("reg.io:x", 4), Err(BadLocation::Port));
    assert_eq!(index.len(), 4);
}

/// The kubelet's way: all patterns in reverse order of their bytes, each asked whether it matches.
fn naive(entries: &[String], mode: PathMatch, target: &str) -> Vec<usize> {
    let keys: Vec<String> = entries.iter().map(|location| key(location)).collect();
    let sorted: BTreeSet<&String> = keys.iter().collect();
    let of = |wanted: &str| (0..keys.len()).filter(|at| keys[*at] == wanted).collect::<Vec<_>>();
    let found: Vec<usize> =
        sorted.iter().rev().filter(|key| naive_match(key, target, mode)).flat_map(|key| of(key)).collect();
    let first = target.split('/').next().unwrap_or_default();
    let default = !first.is_empty()
        && (!target.contains('/') || first == "docker.io" || first == "index.docker.io" || !first.contains(['.', ':']));
    if found.is_empty() && default { of("index.docker.io") } else { found }
}

fn key(location: &str) -> String {
    let text = location.trim_start_matches("https://");
    let (host, path) = text.split_at(text.find('/').unwrap_or(text.len()));
    let path = if path.starts_with("/v1/") || path.starts_with("/v2/") { &path[3..] } else { path };
    format!("{host}{}", if path == "/" { "" } else { path })
}

fn naive_match(key: &str, target: &str, mode: PathMatch) -> bool {
    let cut = |text: &str| {
        let (host, path) = text.split_at(text.find('/').unwrap_or(text.len()));
        let (host, port) = host.split_once(':').unwrap_or((host, ""));
        (host.split('.').map(str::to_owned).collect::<Vec<_>>(), port.to_owned(), path.to_owned())
    };
    let ((globs, glob_port, glob_path), (parts, port, path)) = (cut(key), cut(target));
    let boundary = mode == PathMatch::Compat
        || glob_path.is_empty()
        || glob_path.ends_with('/')
        || matches!(path.as_bytes().get(glob_path.len()), None | Some(b'/'));
    glob_port == port
        && globs.len() == parts.len()
        && path.starts_with(&glob_path)
        && boundary
        && globs.iter().zip(&parts).all(|(glob, part)| crate::glob::tests::naive(glob.as_bytes(), part.as_bytes()))
}

fn location() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec!["a", "b", "ab", "abb", "*", "a*", "ab*", "*b", "?", "a?", "[ab]", "a[a-c]*"]);
    let host = prop::collection::vec(part, 1..4).prop_map(|parts| parts.join("."));
    let host = prop_oneof![9 => host, 1 => Just("index.docker.io".to_owned())];
    let path = prop::sample::select(vec![
        "", "/", "/a", "/ab", "/abc", "/a/", "/a/b", "/a/bc", "/a/b/c", "/v1/", "/v1/a", "/v2/ab", "/v1",
    ]);
    let scheme = prop::sample::select(vec!["", "https://"]);
    let port = prop::sample::select(vec!["", "", ":1", ":22"]);
    (scheme, host, port, path).prop_map(|(scheme, host, port, path)| format!("{scheme}{host}{port}{path}"))
}

fn target() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec!["a", "b", "ab", "abb", "abc", "c"]);
    let host = prop::collection::vec(part, 1..4).prop_map(|parts| parts.join("."));
    let host = prop_oneof![9 => host, 1 => Just("docker.io".to_owned()), 1 => Just("index.docker.io".to_owned())];
    let port = prop::sample::select(vec!["", "", ":1", ":22"]);
    let path = prop::sample::select(vec!["", "/a", "/ab", "/abc", "/a/b", "/a/bc/d", "/a/b/c", "/v1/a", "/b"]);
    (host, port, path).prop_map(|(host, port, path)| format!("{host}{port}{path}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn index_agrees_with_a_linear_scan(
        locations in prop::collection::vec(location(), 0..40),
        targets in prop::collection::vec(target(), 1..8),
    ) {
        for mode in MODES {
            let mut index = Index::new(mode);
            for (at, location) in locations.iter().enumerate() {
                prop_assert_eq!(index.insert(location, at), Ok(()), "{}", location);
            }
            for target in &targets {
                let got: Vec<usize> = index.lookup(target).into_iter().copied().collect();
                prop_assert_eq!(got, naive(&locations, mode, target), "{:?} {} among {:?}", mode, target, locations);
            }
        }
    }
}

#[test]
fn a_host_is_the_same_in_every_spelling() {
    let hosts: [&[&str]; 5] = [
        &["docker.io", "Docker.io", "https://docker.io:443", "DOCKER.IO:0443"],
        &["r.example", "R.Example", "r.example:443", "https://R.example:00443/v2/"],
        &["localhost:5999", "LOCALHOST:5999", "localhost:05999"],
        &["127.0.0.1:5999", "127.0.0.1:05999", "http://127.0.0.1:005999"],
        &["[::1]:5999", "[0:0::0001]:05999"],
    ];
    for spellings in hosts {
        for location in spellings {
            let mut index = Index::new(PathMatch::Segments);
            index.insert(location, ()).expect(location);
            for host in spellings {
                let host = host.trim_start_matches("https://").trim_start_matches("http://").trim_end_matches("/v2/");
                let name = oci::parse_image_name(&format!("{host}/team/app:1")).expect(host);
                assert_eq!(index.lookup(&name.repository), [&()], "{location} for {host}");
            }
        }
    }
}

proptest! {
    #[test]
    fn index_finds_the_images_of_each_pattern(
        locations in prop::collection::vec("(A|b|[*])([.](B|c|[*]))?(:443|:0443|:22)?(/a)?", 0..12),
        // A name of one part is a host by its port alone.
        target in "((a|b|localhost)[.](b|c)(:22)?|(a|b|localhost)(:443|:22)|localhost)/a",
    ) {
        let mut index = Index::new(PathMatch::Segments);
        let mut want = Vec::new();
        for (at, location) in locations.iter().enumerate() {
            index.insert(location, at).expect("a location");
            if crate::pattern::matches(location, &target, PathMatch::Segments).expect("a pattern") {
                want.push(at);
            }
        }
        let mut got: Vec<usize> = index.lookup(&target).into_iter().copied().collect();
        got.sort_unstable();
        prop_assert_eq!(got, want, "{} among {:?}", target, locations);
    }
}
