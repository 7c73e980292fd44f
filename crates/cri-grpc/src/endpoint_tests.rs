//! Table of endpoint forms.

use super::*;

#[test]
fn accepted_forms() {
    let cases = [
        ("unix:///run/containerd/containerd.sock", "/run/containerd/containerd.sock", false),
        ("unix:/run/x.sock", "/run/x.sock", false),
        ("UNIX:///run/x.sock", "/run/x.sock", false),
        ("unix:////run//x.sock", "//run//x.sock", false),
        ("unix:///run/a%20b.sock", "/run/a b.sock", false),
        ("unix:///run/x.sock?x=1#y", "/run/x.sock", false),
        ("unix:///run/a:b.sock", "/run/a:b.sock", false),
        ("/run/x.sock", "/run/x.sock", true),
        ("/run/a:b%20c?.sock", "/run/a:b%20c?.sock", true),
    ];
    for (text, path, deprecated) in cases {
        let got = Endpoint::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(got.path(), Path::new(path), "{text}");
        assert_eq!(got.warning().is_some(), deprecated, "{text}");
    }
}

#[test]
fn refused_forms() {
    let long = format!("unix:///{}", "x".repeat(107));
    let cases = [
        ("", "the endpoint is empty: give unix:///PATH"),
        ("tcp://127.0.0.1:3735", "only support unix socket endpoint"),
        ("TCP://127.0.0.1:3735", "only support unix socket endpoint"),
        ("npipe:////./pipe/containerd", r#"protocol "npipe" not supported"#),
        ("http://localhost/x", r#"protocol "http" not supported"#),
        ("a:b", r#"protocol "a" not supported"#),
        ("unix:", "it names no socket"),
        ("unix://", "it names no socket"),
        ("unix:?x", "it names no socket"),
        ("unix:run/x.sock", "the path must be absolute"),
        ("unix:@abstract", "the path must be absolute"),
        ("unix://run/x.sock", r#""run" stands where a host name would"#),
        ("unix://localhost/run/x.sock", "three slashes start a path"),
        ("unix:///", "the path names a directory"),
        ("unix:///run/", "the path names a directory"),
        ("/", "the path names a directory"),
        ("run/x.sock", "neither a URL nor an absolute path"),
        ("127.0.0.1:3735", "neither a URL nor an absolute path"),
        (" unix:///x", "neither a URL nor an absolute path"),
        ("unix:///a%zz", r#"invalid URL escape "%zz""#),
        ("unix:///a%2", r#"invalid URL escape "%2""#),
        ("unix:///a%00b", "the path contains a NUL"),
        ("unix:///a%ff", "the path is not UTF-8"),
        (long.as_str(), "the path has 108 bytes, a unix socket takes at most 107"),
    ];
    for (text, want) in cases {
        let got = Endpoint::parse(text).expect_err(text).to_string();
        assert!(got.contains(want), "{text}: {got}");
    }
}

#[test]
fn displayed_endpoint_parses() {
    for text in ["unix:/run/x.sock", "/run/x.sock", "unix:///run/x.sock"] {
        let endpoint = Endpoint::parse(text).unwrap();
        assert_eq!(endpoint.to_string(), "unix:///run/x.sock");
        assert_eq!(Endpoint::parse(&endpoint.to_string()).unwrap().path(), endpoint.path());
    }
    let old = Endpoint::parse("/run/x.sock").unwrap();
    assert_eq!(
        old.warning().unwrap(),
        r#"using "/run/x.sock" as endpoint is deprecated, please consider using full url format unix:///run/x.sock"#
    );
}
