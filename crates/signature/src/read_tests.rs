//! A policy as operators have it, and every mistake in one with its place. Called by the test runner.

use base64::Engine as _;

use super::*;
use crate::policy::{Demand, Scope};
use crate::testing::TestKey;

fn parse(text: &str) -> Result<Policy, PolicyError> {
    let key = TestKey::generate().pem();
    Policy::parse(text.as_bytes(), &mut |path| match path {
        "/k.pub" | "/l.pub" => Ok(key.clone().into_bytes()),
        "/broken.pub" => Ok(b"nothing".to_vec()),
        _ => Err("no such file".to_owned()),
    })
}

/// A policy with this as the list of one scope, from line 3 on.
fn with(list: &str) -> String {
    format!(
        "{{\"default\": [{{\"type\": \"reject\"}}], \"transports\": {{\"docker\": {{\n\"r.example/team\":\n{list}\n}}}}}}"
    )
}

#[test]
fn typical_policy_is_accepted() {
    let text = format!(
        r#"{{
            "default": [{{"type": "insecureAcceptAnything"}}],
            "transports": {{
                "docker-daemon": {{"": [{{"type": "insecureAcceptAnything"}}]}},
                "docker": {{
                    "": [{{"type": "reject"}}],
                    "*.example.com": [{{"type": "insecureAcceptAnything"}}],
                    "r.example:5000/team": [{{"type": "sigstoreSigned", "keyPath": "/k.pub",
                        "signedIdentity": {{"type": "matchRepository"}}}}],
                    "docker.io/library/busybox:1": [{{"type": "sigstoreSigned", "keyDatas": ["{data}", "{data}"],
                        "signedIdentity": {{"type": "remapIdentity", "prefix": "docker.io", "signedPrefix": "a.b/c"}}}}]
                }}
            }}
        }}"#,
        data = base64::prelude::BASE64_STANDARD.encode(TestKey::generate().pem()),
    );
    let policy = parse(&text).expect("a policy");
    for (image, scope, demand) in [
        ("r.example:5000/team/app:1", "r.example:5000/team", Demand::Signatures),
        ("a.example.com/x:1", "*.example.com", Demand::Nothing),
        ("busybox:1", "docker.io/library/busybox:1", Demand::Signatures),
        ("busybox:2", "", Demand::Refused),
    ] {
        let rule = policy.rule(&oci::Reference::parse(image).expect("a reference"));
        assert_eq!((rule.scope(), rule.demand()), (&Scope::Docker(scope.into()), demand), "{image}");
    }
    let busybox = policy.rule(&oci::Reference::parse("busybox:1").expect("a reference"));
    assert_eq!(busybox.keys(), "key in keyDatas or in keyDatas");
    let only = parse(r#"{"default":[{"type":"reject"}]}"#).expect("a policy");
    assert_eq!((only.unnamed().scope(), only.unnamed().demand()), (&Scope::Default, Demand::Refused));
}

/// A policy that rejects the images in these scopes, and no others.
fn rejects(scopes: &[&str]) -> Result<Policy, PolicyError> {
    let scopes: Vec<String> = scopes.iter().map(|scope| format!("{scope:?}:[{{\"type\":\"reject\"}}]")).collect();
    let docker = scopes.join(",");
    parse(&format!(
        "{{\"default\":[{{\"type\":\"insecureAcceptAnything\"}}],\"transports\":{{\"docker\":{{{docker}}}}}}}"
    ))
}

#[test]
fn no_spelling_of_a_host_evades_a_scope() {
    let hosts: [&[&str]; 7] = [
        &["localhost:5999", "LOCALHOST:5999", "localhost:05999", "LocalHost:0005999"],
        &["127.0.0.1:5999", "127.0.0.1:05999"],
        &["docker.io", "Docker.io", "docker.io:443", "DOCKER.IO:0443", "index.docker.io", "Index.Docker.io:443"],
        &["r.example", "R.Example", "r.example:443", "R.EXAMPLE:00443"],
        &["[::1]:5999", "[0:0:0:0:0:0:0:1]:5999", "[::0001]:05999"],
        // Without a port it leads to the one and then to the other.
        &["localhost", "LOCALHOST", "localhost:443", "localhost:80", "localhost:0080"],
        &["url:443", "URL", "URL:443"],
    ];
    for spellings in hosts {
        for scope in spellings {
            for below in ["", "/team", "/team/app", "/team/app:1"] {
                let policy = rejects(&[&format!("{scope}{below}")]).expect("a policy");
                for host in spellings {
                    let image = oci::Reference::parse(&format!("{host}/team/app:1")).expect("a reference");
                    assert_eq!(policy.rule(&image).demand(), Demand::Refused, "{image} in {scope}{below}");
                }
            }
        }
    }
    // A host without a normal form is neither in an image's name nor in a scope.
    for host in
        ["127.1:5999", "0x7f.1:5999", "2130706433:5999", "0177.0.0.1:5999", "[::ffff:7f00:1]:5999", "r.example:0"]
    {
        assert!(oci::Reference::parse(&format!("{host}/team/app:1")).is_err(), "{host}");
        let error = rejects(&[&format!("{host}/team")]).expect_err(host).to_string();
        assert!(
            error.contains(&format!("\"{host}/team\"")) && error.contains(&format!("host \"{host}\": ")),
            "{error}"
        );
    }
    let policy = rejects(&["*.Example.COM"]).expect("a policy");
    let image = oci::Reference::parse("A.example.com:443/x:1").expect("a reference");
    assert_eq!(policy.rule(&image).demand(), Demand::Refused);
    let error = rejects(&["r.example/team", "R.example:443/team"]).expect_err("twice").to_string();
    assert!(error.contains("it has \"r.example/team\" twice, once written \"R.example:443/team\""), "{error}");
}

#[test]
fn policy_errors_name_their_place() {
    let signed = |rest: &str| with(&format!("[{{\"type\": \"sigstoreSigned\"{rest}}}]"));
    let identity = |rest: &str| signed(&format!(", \"keyPath\": \"/k.pub\", \"signedIdentity\": {rest}"));
    let at = r#"transports.docker."r.example/team"[0]: line 3"#;
    let scope = |scope: &str| {
        format!(
            "{{\"default\":[{{\"type\":\"reject\"}}],\"transports\":{{\"docker\":{{\"{scope}\":[{{\"type\":\"reject\"}}]}}}}}}"
        )
    };
    let many = format!(", \"keyPaths\": [{}]", vec!["\"/k.pub\""; crate::MAX_KEYS + 1].join(","));
    let cases: Vec<(String, &str, &str)> = vec![
        (String::new(), "line 1", "EOF"),
        ("[]".into(), "line 1", "an object with default and transports"),
        ("{}".into(), "line 1", "it has no \"default\""),
        ("{\n\"defaults\": []}".into(), "line 2", "unknown field \"defaults\""),
        ("{\"default\": []}".into(), "default: line 1", "the list has no requirement"),
        ("{\"default\": {}}".into(), "default: line 1", "a list of requirements"),
        (r#"{"default":[{"type":"reject"}],"default":[{"type":"reject"}]}"#.into(), "line 1", "twice"),
        (
            r#"{"default":[{"type":"reject"}],"transports":{"dcoker":{}}}"#.into(),
            "transports: line 1",
            "unknown transport \"dcoker\"",
        ),
        (
            r#"{"default":[{"type":"reject"}],"transports":{"docker":{},"docker":{}}}"#.into(),
            "transports: line 1",
            "twice",
        ),
        (r#"{"default":[{"type":"reject"}]} x"#.into(), "line 1", "trailing"),
        (
            with("[{\"type\": \"reject\"}],\n\"r.example/team\": [{\"type\": \"reject\"}]"),
            "transports.docker: line 4",
            "twice",
        ),
        (with("[]"), "transports.docker.\"r.example/team\": line 3", "the list has no requirement"),
        (with("[{}]"), at, "missing field `type`"),
        (with("[{\"type\": \"accept\"}]"), at, "unknown type \"accept\", there are insecureAcceptAnything"),
        (
            with("[{\"type\": \"signedBy\", \"keyType\": \"GPGKeys\", \"keyPath\": \"/k\"}]"),
            at,
            "(GPG) is not supported",
        ),
        (with("[{\"type\": \"reject\", \"keyPath\": \"/k.pub\"}]"), at, "reject takes no other fields"),
        (
            with("[{\"type\": \"reject\"},\n{\"type\": \"x\"}]"),
            "transports.docker.\"r.example/team\"[1]: line 4",
            "unknown type",
        ),
        (signed(""), at, "exactly one of keyPath"),
        (signed(", \"keyPaths\": []"), at, "exactly one of keyPath"),
        (signed(", \"keyPath\": \"/k.pub\", \"keyData\": \"\""), at, "exactly one of keyPath"),
        (signed(", \"keypath\": \"/k.pub\""), at, "unknown field `keypath`"),
        (signed(", \"keyPath\": 7"), at, "invalid type"),
        (signed(", \"keyPath\": \"/k.pub\", \"keyPath\": \"/l.pub\""), at, "duplicate field"),
        (signed(", \"fulcio\": {}"), at, "fulcio is not supported"),
        (
            signed(", \"keyPath\": \"/k.pub\", \"rekorPublicKeyPath\": \"/r\""),
            at,
            "rekorPublicKeyPath is not supported",
        ),
        (signed(&many), at, "65 keys, at most 64 are allowed"),
        (identity("{}"), at, "missing field `type`"),
        (identity("{\"type\": \"matchAll\"}"), at, "signedIdentity: unknown type \"matchAll\""),
        (identity("{\"type\": \"matchExact\", \"prefix\": \"x\"}"), at, "matchExact takes no prefix"),
        (identity("{\"type\": \"exactReference\"}"), at, "exactReference needs dockerReference"),
        (
            identity("{\"type\": \"exactReference\", \"dockerReference\": \"r.example/x\"}"),
            at,
            "neither tag nor digest",
        ),
        (identity("{\"type\": \"exactRepository\", \"dockerRepository\": \"r.example/x:1\"}"), at, "has a tag"),
        (identity("{\"type\": \"exactRepository\", \"dockerRepository\": \"X\"}"), at, "must be lowercase"),
        (identity("{\"type\": \"remapIdentity\", \"prefix\": \"r.example\"}"), at, "needs signedPrefix"),
        (
            identity("{\"type\": \"remapIdentity\", \"prefix\": \"busybox\", \"signedPrefix\": \"r.example/\"}"),
            at,
            "normal form",
        ),
        (scope("r.example/"), "transports.docker.\"r.example/\": line 1", "slash"),
        (scope("https://r.example"), "transports.docker.\"https://r.example\": line 1", "scheme"),
        (scope("r.*.example"), "transports.docker.\"r.*.example\": line 1", "wildcard"),
        (scope("*.example/x"), "transports.docker.\"*.example/x\": line 1", "wildcard"),
        (scope("*.example:5000"), "transports.docker.\"*.example:5000\": line 1", "port"),
        (scope("r.example/a b"), "transports.docker.\"r.example/a b\": line 1", "blanks"),
    ];
    for (text, place, words) in cases {
        let error = parse(&text).expect_err(&text).to_string();
        assert!(error.starts_with(place) && error.contains(words), "{text}\n{error}\nnot {place} … {words}");
        assert!(!error.contains(MARK), "{error:?}");
    }
}

#[test]
fn unusable_keys_are_reported_with_their_file() {
    let signed = |rest: &str| with(&format!("[{{\"type\": \"sigstoreSigned\", {rest}}}]"));
    for (rest, words) in [
        (r#""keyPath": "k.pub""#, r#"[0].keyPath: key "k.pub" is no absolute path"#),
        (r#""keyPath": "/missing.pub""#, "[0].keyPath: key /missing.pub: no such file"),
        (r#""keyPaths": ["/k.pub", "/broken.pub"]"#, "[0].keyPaths: key /broken.pub: there is no PEM block PUBLIC KEY"),
        (r#""keyData": "?""#, "[0].keyData: the key is not in base64"),
        (r#""keyData": "aGk=""#, "[0].keyData: the key: there is no PEM block PUBLIC KEY"),
    ] {
        let error = parse(&signed(rest)).expect_err(rest).to_string();
        assert_eq!(error, format!("transports.docker.\"r.example/team\"{words}"));
    }
}

proptest::proptest! {
    #[test]
    fn policy_parser_never_panics(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..64), at in 0usize..400) {
        let mut text = with(r#"[{"type": "sigstoreSigned", "keyPath": "/k.pub", "signedIdentity": {"type": "matchExact"}}]"#).into_bytes();
        let at = at % text.len();
        text.splice(at..at, bytes);
        let _ = Policy::parse(&text, &mut |_| Err("no such file".to_owned()));
    }
}
