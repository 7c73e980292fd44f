//! Tables and properties of patterns. Rows named `upstream` mirror the kubelet's keyring test, one by one.

use proptest::prelude::*;

use super::*;

#[test]
fn upstream_urls_match() {
    let cases = [
        ("upstream: credentialprovider/TestURLsMatch/*.kubernetes.io, prefix.kubernetes.io", true),
        ("upstream: credentialprovider/TestURLsMatch/prefix.*.io, prefix.kubernetes.io", true),
        ("upstream: credentialprovider/TestURLsMatch/prefix.kubernetes.*, prefix.kubernetes.io", true),
        ("upstream: credentialprovider/TestURLsMatch/*-good.kubernetes.io, prefix-good.kubernetes.io", true),
        ("upstream: credentialprovider/TestURLsMatch/*.kubernetes.io/blah, prefix.kubernetes.io/blah", true),
        ("upstream: credentialprovider/TestURLsMatch/prefix.*.io/foo, prefix.kubernetes.io/foo/bar", true),
        ("upstream: credentialprovider/TestURLsMatch/*.kubernetes.io:1111/blah, prefix.kubernetes.io:1111/blah", true),
        ("upstream: credentialprovider/TestURLsMatch/prefix.*.io:1111/foo, prefix.kubernetes.io:1111/foo/bar", true),
        ("upstream: credentialprovider/TestURLsMatch/*.kubernetes.io, kubernetes.io", false),
        ("upstream: credentialprovider/TestURLsMatch/*.*.kubernetes.io, prefix.kubernetes.io", false),
        ("upstream: credentialprovider/TestURLsMatch/*.*.kubernetes.io, kubernetes.io", false),
        ("upstream: credentialprovider/TestURLsMatch/*kubernetes.io, a.kubernetes.io", false),
        ("upstream: credentialprovider/TestURLsMatch/*kubernetes.io, kubernetes.io", true),
        ("upstream: credentialprovider/TestURLsMatch/*.*.*.kubernetes.io, a.b.c.kubernetes.io", true),
        ("upstream: credentialprovider/TestURLsMatch/kubernetes.io, kubernetes.com", false),
        ("upstream: credentialprovider/TestURLsMatch/k*.io, quay.io", false),
        ("upstream: credentialprovider/TestURLsMatch/*.kubernetes.io:1234/blah, prefix.kubernetes.io:1111/blah", false),
        ("upstream: credentialprovider/TestURLsMatch/prefix.*.io/foo, prefix.kubernetes.io:1111/foo/bar", false),
    ];
    for (name, want) in cases {
        // The case's name says both.
        let (_, pair) = name.split_once("TestURLsMatch/").expect("every row has it");
        let (glob, target) = pair.split_once(", ").expect("every row has it");
        for mode in [PathMatch::Segments, PathMatch::Compat] {
            assert_eq!(matches(glob, target, mode), Ok(want), "{name} {mode:?}");
        }
    }
}

#[test]
fn a_path_ends_where_a_segment_ends() {
    let cases = [
        ("reg/a", "reg/a", true, true),
        ("reg/a", "reg/a/b", true, true),
        ("reg/a", "reg/ab", false, true),
        ("reg/a", "reg/a-b/c", false, true),
        ("reg/a", "reg", false, false),
        ("reg/a/", "reg/a", false, false),
        ("reg/a/", "reg/a/b", true, true),
        ("reg/a/b", "reg/a/bc", false, true),
        ("reg/", "reg/a", true, true),
        ("reg", "reg/a", true, true),
        ("*.io/a", "reg.io/ab", false, true),
    ];
    for (pattern, target, segments, compat) in cases {
        assert_eq!(matches(pattern, target, PathMatch::Segments), Ok(segments), "{pattern} {target}");
        assert_eq!(matches(pattern, target, PathMatch::Compat), Ok(compat), "{pattern} {target}");
    }
}

#[test]
fn hosts_ports_and_addresses() {
    let cases = [
        ("[::1]:5000/a", "[::1]:5000/a/b", true),
        ("[::1]", "[::1]/a", true),
        ("[::1]", "[::2]/a", false),
        ("[::1]", "1/a", false),
        ("[::1]:5000", "[::1]/a", false),
        ("*", "[::1]/a", false),
        ("reg:", "reg/a", true),
        ("reg", "reg:/a", true),
        ("localhost:5000", "localhost:5000/a", true),
        ("Reg.io", "reg.io/a", true),
        ("reg.io:443", "reg.io/a", true),
        ("reg.io:05000", "reg.io:5000/a", true),
        ("reg.io:0443", "reg.io/a", true),
        ("reg.io:80", "reg.io/a", false),
        ("*.IO:443", "reg.io/a", true),
        ("*:443", "url:443/a", true),
        ("url", "url:443/a", true),
        ("URL:443", "url:443/a", true),
        ("LOCALHOST:443", "localhost:443/a", true),
        // Without a port it may be plain HTTP, for which the credential is not.
        ("localhost:443", "localhost/a", false),
        ("localhost", "localhost:443/a", false),
        ("local*:443", "localhost/a", false),
        ("local*:443", "localhost:443/a", true),
        ("[0:0::1]:5000", "[::1]:5000/a", true),
        ("reg[0-9]-?.io", "reg7-x.io/a", true),
        ("reg[0-9]-?.io", "regx-x.io/a", false),
        ("[a-c]*.io:5000", "bcd.io:5000/a", true),
        ("[a-c]*.io:5000", "xbcd.io:5000/a", false),
        ("reg[^0-9].io", "regx.io/a", true),
        ("reg[^0-9].io", "reg7.io/a", false),
        ("*.*", "a.b", true),
        ("*.io", ".io", true),
    ];
    for (pattern, target, want) in cases {
        assert_eq!(matches(pattern, target, PathMatch::Segments), Ok(want), "{pattern} {target}");
    }
}

#[test]
fn locations() {
    let cases = [
        ("quay.io", "quay.io", ""),
        ("https://quay.io", "quay.io", ""),
        ("http://quay.io/", "quay.io", ""),
        ("https://quay.io/v1/", "quay.io", ""),
        ("https://quay.io/v2/team", "quay.io", "/team"),
        ("https://quay.io/v3/team/", "quay.io", "/v3/team/"),
        ("quay.io/v1", "quay.io", "/v1"),
        ("quay.io/v1x/", "quay.io", "/v1x/"),
        ("quay.io:443/v1/a:1111", "quay.io", "/a:1111"),
        ("https://Quay.IO:0443/v2/", "quay.io", ""),
        ("LOCALHOST:05999", "localhost:5999", ""),
        ("https://INDEX.docker.io:443/v1/", "index.docker.io", ""),
    ];
    for (text, authority, path) in cases {
        let got = Pattern::location(text).expect(text);
        assert_eq!((got.authority(), got.path()), (authority, path), "{text}");
    }
}

#[test]
fn refused() {
    let long_host = "a".repeat(254);
    let long_path = format!("a/{}", "b".repeat(256));
    let cases = [
        ("", BadLocation::NoHost),
        ("/a", BadLocation::NoHost),
        (":5000", BadLocation::NoHost),
        ("https://", BadLocation::NoHost),
        ("[]/a", BadLocation::NoHost),
        ("user:pass@reg/a", BadLocation::UserName),
        ("reg:http", BadLocation::Port),
        ("reg:*", BadLocation::Port),
        ("::1", BadLocation::Port),
        ("reg.io:0", BadLocation::Host(HostError::Port)),
        ("*.io:70000", BadLocation::Host(HostError::Port)),
        ("127.1", BadLocation::Host(HostError::Ipv4)),
        ("0x7f.1:5000/a", BadLocation::Host(HostError::Ipv4)),
        ("https://0177.0.0.1/v2/", BadLocation::Host(HostError::Ipv4)),
        ("2130706433:5000", BadLocation::Host(HostError::Ipv4)),
        ("[::ffff:7f00:1]:5000", BadLocation::Host(HostError::Mapped)),
        ("reg[::1]", BadLocation::Port),
        ("re g", BadLocation::Character),
        ("reg/ü", BadLocation::Character),
        ("reg?x=1/a#b", BadLocation::Character),
        ("reg/a%20b", BadLocation::Character),
        ("reg/a?x=1", BadLocation::Character),
        (&long_host, BadLocation::Long),
        (&long_path, BadLocation::Long),
        ("reg[0-9", BadLocation::Class),
        ("reg[].io", BadLocation::Class),
        ("reg[-a].io", BadLocation::Class),
        ("reg[a.b].io", BadLocation::Class),
        ("reg[a-].io", BadLocation::Class),
        ("reg[^].io", BadLocation::Class),
        ("reg[a--].io", BadLocation::Class),
        ("reg[z-a].io", BadLocation::Class),
    ];
    for (text, want) in cases {
        assert_eq!(Pattern::location(text), Err(want), "{text}");
    }
}

proptest! {
    #[test]
    fn nothing_panics(pattern in ".{0,40}", target in ".{0,40}") {
        let _ = matches(&pattern, &target, PathMatch::Segments);
        if let Ok(pattern) = Pattern::location(&target) {
            let _ = pattern.matches(&target, PathMatch::Compat);
        }
    }

    #[test]
    fn class_like_text_never_panics(pattern in "[a\\[\\]^.*?:/-]{0,16}", target in "[a.:/\\[\\]-]{0,16}") {
        let _ = matches(&pattern, &target, PathMatch::Segments);
    }
}
