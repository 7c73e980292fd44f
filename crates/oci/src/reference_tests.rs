//! Tables and properties of references. Rows named `upstream` mirror the kubelet's parser test, one by one.

use proptest::prelude::*;

use super::*;

const SHA: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

#[test]
fn upstream_parse_image_name() {
    let at = |name: &str| format!("{name}@{SHA}");
    let cases = [
        ("upstream: parsers/TestParseImageName/root", "root".into(), "docker.io/library/root", "latest", ""),
        ("upstream: parsers/TestParseImageName/root:tag", "root:tag".into(), "docker.io/library/root", "tag", ""),
        ("upstream: parsers/TestParseImageName/root@digest", at("root"), "docker.io/library/root", "", SHA),
        ("upstream: parsers/TestParseImageName/user/repo", "user/repo".into(), "docker.io/user/repo", "latest", ""),
        (
            "upstream: parsers/TestParseImageName/user/repo:tag",
            "user/repo:tag".into(),
            "docker.io/user/repo",
            "tag",
            "",
        ),
        ("upstream: parsers/TestParseImageName/user/repo@digest", at("user/repo"), "docker.io/user/repo", "", SHA),
        ("upstream: parsers/TestParseImageName/url:5000/repo", "url:5000/repo".into(), "url:5000/repo", "latest", ""),
        (
            "upstream: parsers/TestParseImageName/url:5000/repo:tag",
            "url:5000/repo:tag".into(),
            "url:5000/repo",
            "tag",
            "",
        ),
        ("upstream: parsers/TestParseImageName/url:5000/repo@digest", at("url:5000/repo"), "url:5000/repo", "", SHA),
        (
            "upstream: parsers/TestParseImageName/url:5000/repo:latest@digest",
            at("url:5000/repo:latest"),
            "url:5000/repo",
            "latest",
            SHA,
        ),
    ];
    for (name, text, repository, tag, digest) in cases {
        let got = parse_image_name(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(
            (got.repository.as_str(), got.tag.as_str(), got.digest.as_str()),
            (repository, tag, digest),
            "{name}"
        );
    }
    let hex = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let bad = [
        ("upstream: parsers/TestParseImageName/ROOT", "ROOT", "must be lowercase"),
        ("upstream: parsers/TestParseImageName/http://root", "http://root", "invalid reference format"),
        ("upstream: parsers/TestParseImageName/64 hex digits", hex, "cannot specify 64-byte hexadecimal strings"),
    ];
    for (name, text, want) in bad {
        let got = parse_image_name(text).expect_err(text).to_string();
        assert!(
            got.contains(want) && got.starts_with(&format!("couldn't parse image name {text:?}: ")),
            "{name}: {got}"
        );
    }
}

#[test]
fn normal_forms() {
    let cases = [
        ("busybox", "docker.io/library/busybox"),
        ("docker.io/busybox", "docker.io/library/busybox"),
        ("index.docker.io/busybox", "docker.io/library/busybox"),
        ("index.docker.io/a/b", "docker.io/a/b"),
        ("localhost/foo", "localhost/foo"),
        ("localhost:5000/foo", "localhost:5000/foo"),
        ("FOO/bar", "foo:443/bar"),
        ("foo:443/bar", "foo:443/bar"),
        ("FOO:5/bar", "foo:5/bar"),
        ("LOCALHOST/foo", "localhost/foo"),
        ("LOCALHOST:5999/foo", "localhost:5999/foo"),
        ("127.0.0.1:05999/foo", "127.0.0.1:5999/foo"),
        ("Docker.io/busybox", "docker.io/library/busybox"),
        ("docker.io:443/busybox", "docker.io/library/busybox"),
        ("INDEX.docker.io:0443/a/b", "docker.io/a/b"),
        ("[0:0::1]:5000/x", "[::1]:5000/x"),
        ("2130706433/x", "docker.io/2130706433/x"),
        ("a.b/c", "a.b/c"),
        ("127.0.0.1:5000/x/y__z/a--b.c_d:T_.-1", "127.0.0.1:5000/x/y__z/a--b.c_d:T_.-1"),
        ("[::1]:5000/x", "[::1]:5000/x"),
        ("[fe80::1]/x", "[fe80::1]/x"),
    ];
    for (text, want) in cases {
        assert_eq!(Reference::parse(text).map(|r| r.to_string()), Ok(want.to_owned()), "{text}");
    }
}

#[test]
fn refused() {
    let long_tag = format!("a:{}", "t".repeat(129));
    let long_path = format!("example.com/{}", "p".repeat(256));
    let sha1 = format!("a@sha1:{}", "0".repeat(40));
    let short = format!("a@sha256:{}", "0".repeat(40));
    let upper = format!("a@sha256:{}", "A".repeat(64));
    let cases: [(&str, ReferenceError); 21] = [
        ("", ReferenceError::Empty),
        (":", ReferenceError::Format),
        ("a:", ReferenceError::Format),
        ("a:-x", ReferenceError::Format),
        ("a b", ReferenceError::Format),
        ("a//b", ReferenceError::Format),
        ("a/", ReferenceError::Format),
        ("/a", ReferenceError::Format),
        ("a..b", ReferenceError::Format),
        ("a___b", ReferenceError::Format),
        ("-a", ReferenceError::Format),
        ("a-", ReferenceError::Format),
        ("é", ReferenceError::Format),
        ("a@sha256:abc", ReferenceError::Format),
        ("host:/x", ReferenceError::Format),
        ("ho_st.com/x", ReferenceError::Format),
        ("A:5/UP", ReferenceError::Uppercase("UP".into())),
        (&long_tag, ReferenceError::Format),
        (&long_path, ReferenceError::TooLong),
        (&sha1, ReferenceError::Digest(DigestError::Unsupported)),
        (&short, ReferenceError::Digest(DigestError::Length)),
    ];
    for (text, want) in cases {
        assert_eq!(Reference::parse(text), Err(want), "{text}");
    }
    assert_eq!(Reference::parse(&upper), Err(ReferenceError::Digest(DigestError::Format)));
    for (host, why) in [
        ("127.1", HostError::Ipv4),
        ("2130706433:5999", HostError::Ipv4),
        ("a.example:0", HostError::Port),
        ("a.example:70000", HostError::Port),
        ("[::ffff:7f00:1]:5999", HostError::Mapped),
    ] {
        let text = format!("{host}/x:1");
        let error = parse_image_name(&text).expect_err(host);
        assert_eq!(error.source, ReferenceError::Host { host: host.into(), why }, "{host}");
        let begins = format!("couldn't parse image name {text:?}: invalid reference format: host {host:?}: ");
        assert!(error.to_string().starts_with(&begins), "{error}");
    }
}

#[test]
fn default_tag_keeps_the_spelling() {
    let cases = [
        ("busybox".to_owned(), "busybox:latest".to_owned()),
        ("busybox:1".into(), "busybox:1".into()),
        ("url:5000/repo".into(), "url:5000/repo:latest".into()),
        (format!("root@{SHA}"), format!("root@{SHA}")),
        (format!("root:latest@{SHA}"), format!("root:latest@{SHA}")),
    ];
    for (text, want) in cases {
        assert_eq!(apply_default_tag(&text).expect("parses"), want);
    }
    assert!(apply_default_tag(":::").is_err());
}

#[test]
fn trimmed_keys_keep_the_spelling() {
    let cases = [
        ("nginx".to_owned(), "nginx"),
        ("nginx:1.2".into(), "nginx"),
        ("docker.io/nginx:1".into(), "docker.io/nginx"),
        (format!("docker.io/library/nginx:1@{SHA}"), "docker.io/library/nginx"),
        (format!("url:5000/repo@{SHA}"), "url:5000/repo"),
        ("url:5000/repo:tag".into(), "url:5000/repo"),
    ];
    for (text, want) in cases {
        assert_eq!(trim_tag_and_digest(&text).expect("parses"), want, "{text}");
    }
    for bad in ["", "a/", "a/:tag", "ROOT", "a/@sha256:x"] {
        assert!(trim_tag_and_digest(bad).is_err(), "{bad}");
    }
    assert_eq!(trim_tag_and_digest("ROOT"), Err(ReferenceError::PlainUppercase));
}

#[test]
fn digest_wins_over_tag_in_the_canonical_form() {
    let reference = Reference::parse(&format!("a:t@{SHA}")).expect("parses").canonical();
    assert_eq!(reference.to_string(), format!("docker.io/library/a@{SHA}"));
    assert_eq!(Reference::parse("a").expect("parses").canonical().to_string(), "docker.io/library/a:latest");
}

proptest! {
    #[test]
    fn display_parses_back(
        domain in "(localhost|[a-z][a-z0-9-]{0,8}[a-z0-9]\\.[a-z]{2,3})(:[1-3][0-9]{0,4})?",
        path in "[a-z0-9]{1,8}(([._]|__|-{1,3})[a-z0-9]{1,5}){0,3}(/[a-z0-9]{1,8}){0,3}",
        tag in proptest::option::of("[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"),
        digest in any::<bool>(),
    ) {
        let mut text = format!("{domain}/{path}");
        if let Some(tag) = &tag { text.push_str(&format!(":{tag}")); }
        if digest { text.push_str(&format!("@{SHA}")); }
        let parsed = Reference::parse(&text).expect("is in the grammar");
        prop_assert_eq!(parsed.to_string(), text);
        prop_assert_eq!(parsed.tag(), tag.as_deref());
    }

    #[test]
    fn parser_never_panics(text in ".{0,300}") {
        if let Ok(parsed) = Reference::parse(&text) {
            prop_assert_eq!(Reference::parse(&parsed.to_string()), Ok(parsed));
        }
        let _ = trim_tag_and_digest(&text);
        // A text that can be given a default tag is a reference.
        prop_assert_eq!(apply_default_tag(&text).is_ok(), Reference::parse(&text).is_ok());
    }
}
