//! Tables of docker configurations. Rows named `upstream` mirror the kubelet's tests, one by one.

use proptest::prelude::*;

use super::*;

fn shown(entry: &Entry) -> (&str, &str) {
    (&entry.auth.username, entry.auth.password.expose())
}

fn email_of(entry: &Entry, email: &str) -> bool {
    entry.hash == hash::with_email(&entry.auth, email)
}

const TWO: &str = r#"{"http://foo.example.com":{"username": "foo", "password": "bar", "email": "foo@example.com"},
    "http://bar.example.com":{"username": "bar", "password": "baz", "email": "bar@example.com"}}"#;

fn is_two(auths: &[(String, Entry)]) -> bool {
    let [(foo, foo_entry), (bar, bar_entry)] = auths else { return false };
    foo == "http://foo.example.com"
        && bar == "http://bar.example.com"
        && shown(foo_entry) == ("foo", "bar")
        && email_of(foo_entry, "foo@example.com")
        && shown(bar_entry) == ("bar", "baz")
        && email_of(bar_entry, "bar@example.com")
}

// upstream: credentialprovider/TestDockerConfigJsonJSONDecode
#[test]
fn a_config_json_is_read() {
    let config = DockerConfig::parse(format!(r#"{{"auths": {TWO}}}"#).as_bytes()).expect("is right");
    assert!(is_two(&config.auths));
}

// upstream: credentialprovider/TestDockerConfigJSONDecode
#[test]
fn a_dockercfg_is_read() {
    assert!(is_two(&DockerConfig::parse_legacy(TWO.as_bytes()).expect("is right").auths));
}

#[test]
fn upstream_entries() {
    let cases = [
        (
            "upstream: credentialprovider/TestDockerConfigEntryJSONDecode/simple fields",
            r#"{"username": "foo", "password": "bar", "email": "foo@example.com"}"#,
            Some(("foo", "bar")),
        ),
        (
            "upstream: credentialprovider/TestDockerConfigEntryJSONDecode/auth field decodes",
            r#"{"auth": "Zm9vOmJhcg==", "email": "foo@example.com"}"#,
            Some(("foo", "bar")),
        ),
        (
            "upstream: credentialprovider/TestDockerConfigEntryJSONDecode/auth field overrides user and password",
            r#"{"username": "foo", "password": "bar", "auth": "cGluZzpwb25n", "email": "foo@example.com"}"#,
            Some(("ping", "pong")),
        ),
        (
            "upstream: credentialprovider/TestDockerConfigEntryJSONDecode/poorly formatted auth fails",
            r#"{"auth": "pants", "email": "foo@example.com"}"#,
            None,
        ),
        (
            "upstream: credentialprovider/TestDockerConfigEntryJSONDecode/wrong JSON type fails",
            r#"{"email": false}"#,
            None,
        ),
        ("names in any case, as in Go", r#"{"UserName": "foo", "PASSWORD": "bar", "eMail": "foo@example.com"}"#, {
            Some(("foo", "bar"))
        }),
        (
            "the last of several, null is nothing, the unknown is passed over",
            r#"{"username": "x", "username": "foo", "password": "bar", "auth": null, "email": "foo@example.com", "x": {}}"#,
            Some(("foo", "bar")),
        ),
    ];
    for (name, json, want) in cases {
        let got = DockerConfig::parse_legacy(format!(r#"{{"h": {json}}}"#).as_bytes());
        match (got, want) {
            (Ok(config), Some(want)) => {
                assert_eq!(shown(&config.auths[0].1), want, "{name}");
                assert!(email_of(&config.auths[0].1, "foo@example.com"), "{name}");
            }
            (Err(_), None) => {}
            (got, _) => panic!("{name}: {:?}", got.err()),
        }
    }
}

#[test]
fn upstream_auth_fields() {
    let base64 = GeneralPurpose::new(&base64::alphabet::STANDARD, GeneralPurposeConfig::new());
    let raw = GeneralPurpose::new(&base64::alphabet::STANDARD, GeneralPurposeConfig::new().with_encode_padding(false));
    let foo_bar = Some(("foo", "bar"));
    let cases = [
        ("upstream: credentialprovider/TestDecodeDockerConfigFieldAuth/decodes", "Zm9vOmJhcg==".into(), foo_bar),
        ("upstream: credentialprovider/TestDecodeDockerConfigFieldAuth/not padded", "Zm9vOmJhcg".into(), foo_bar),
        (
            "upstream: credentialprovider/TestDecodeDockerConfigFieldAuth/new lines",
            "Zm9vOm\nJhcg==\n".to_owned(),
            foo_bar,
        ),
        (
            "upstream: credentialprovider/TestDecodeDockerConfigFieldAuth/standard encoding",
            base64.encode("foo:bar"),
            foo_bar,
        ),
        ("upstream: credentialprovider/TestDecodeDockerConfigFieldAuth/raw encoding", raw.encode("foo:bar"), foo_bar),
        ("upstream: credentialprovider/TestDecodeDockerConfigFieldAuth/no colon", "cGFudHM=".into(), None),
        ("upstream: credentialprovider/TestDecodeDockerConfigFieldAuth/trailing space", "Zm9vOmJhcg== ".into(), None),
        ("upstream: credentialprovider/TestDecodeDockerConfigFieldAuth/bad base64", "pants".into(), None),
        ("a password with colons", base64.encode("foo:b:a:r"), Some(("foo", "b:a:r"))),
        ("a password that is empty", base64.encode("foo:"), Some(("foo", ""))),
        ("bits that do not count", "Zm9vOmJhch==".into(), foo_bar),
        ("not UTF-8", base64.encode(b"foo:\xff"), None),
    ];
    for (name, field, want) in cases {
        let got = decode_auth(&field, 1);
        let got = got.as_ref().ok().map(|(user, password)| (user.as_str(), password.expose()));
        assert_eq!(got, want, "{name}");
    }
}

#[test]
fn upstream_errors_begin_with_the_kubelets_words() {
    let cases = [
        (
            "upstream: credentialprovider/TestReadDockerConfigFileFromBytes/invalid input",
            false,
            r#"{"http://foo.example.com":{"username": "foo", "password": "swordfish""#,
        ),
        (
            "upstream: credentialprovider/TestReadDockerConfigJSONFileFromBytes/invalid input",
            true,
            r#"{"auths": {"http://foo.example.com":{"username": "foo", "password": "swordfish"}"#,
        ),
        ("a wrong type", true, r#"{"auths": {"h": "swordfish"}}"#),
        ("a wrong type within", true, r#"{"auths": {"h": {"username": ["swordfish"]}}}"#),
        ("no JSON at all", true, "swordfish"),
        ("more than one", true, "{} swordfish"),
        ("not UTF-8", true, "{\"auths\": {\"swordfish\\ud800\": {}}}"),
    ];
    for (name, json, text) in cases {
        let parse = if json { DockerConfig::parse } else { DockerConfig::parse_legacy };
        let error = parse(text.as_bytes()).map(|_| ()).expect_err(name).to_string();
        assert!(error.starts_with("error occurred while trying to unmarshal json: "), "{name}: {error}");
        assert!(!error.contains("swordfish"), "{name}: {error}");
    }
    let text = br#"{"auths": {"a": {}, "b": {"auth": "cGFudHM="}}}"#;
    let error = DockerConfig::parse(text).map(|_| ()).expect_err("no colon");
    assert_eq!(
        error.to_string(),
        "unable to parse auth field, must be formatted as base64(username:password) (entry 2)"
    );
}

#[test]
fn upstream_valid_files() {
    let cases = [
        (
            "upstream: credentialprovider/TestReadDockerConfigFileFromBytes/valid input",
            false,
            r#"{"http://foo.example.com":{"username": "foo", "password": "bar", "email": "foo@example.com"}}"#,
            1,
        ),
        (
            "upstream: credentialprovider/TestReadDockerConfigJSONFileFromBytes/valid input",
            true,
            r#"{"auths": {"http://foo.example.com":{"username": "foo", "password": "bar", "email": "foo@example.com"},
                "http://bar.example.com":{"username": "bar", "password": "baz", "email": "bar@example.com"}}}"#,
            2,
        ),
        ("nothing", true, "{}", 0),
        ("null", true, "null", 0),
        ("no credentials", true, r#"{"auths": null, "HttpHeaders": {"User-Agent": "x"}, "psFormat": "table"}"#, 0),
        ("an entry that is null", true, r#"{"auths": {"a": null}}"#, 1),
        ("an old null", false, "null", 0),
    ];
    for (name, json, text, want) in cases {
        let parse = if json { DockerConfig::parse } else { DockerConfig::parse_legacy };
        assert_eq!(parse(text.as_bytes()).map(|c| c.auths.len()), Ok(want), "{name}");
    }
}

#[test]
fn fields_that_the_kubelet_ignores_are_read() {
    let text = br#"{
        "auths": {
            "a": {"auth": "PHRva2VuPjo=", "identitytoken": "idtok"},
            "b": {"username": "u", "password": "p", "identitytoken": "idtok"},
            "c": {"registrytoken": "regtok"},
            "a2": {}, "a2": {"username": "later"}
        },
        "credHelpers": {"ecr.example.com": "ecr-login", "x.example.com": ""}, "credsStore": "pass"
    }"#;
    let config = DockerConfig::parse(text).expect("is right");
    let [(_, a), (_, b), (_, c), (_, a2)] = config.auths.as_slice() else { panic!("four entries") };
    assert_eq!((a.auth.username.as_str(), a.auth.identity_token.expose()), ("", "idtok"));
    assert_eq!((shown(b), b.auth.identity_token.expose()), (("u", "p"), "idtok"));
    assert_eq!((shown(c), c.auth.registry_token.expose()), (("", ""), "regtok"));
    assert_eq!(a2.auth.username, "later");
    let helpers = [("ecr.example.com".to_owned(), "ecr-login".to_owned()), ("x.example.com".to_owned(), String::new())];
    assert_eq!((config.helpers.as_slice(), config.store.as_deref()), (helpers.as_slice(), Some("pass")));
    assert_eq!(DockerConfig::parse(br#"{"credsStore": ""}"#).expect("is right").store, None);
}

#[test]
fn upstream_hashes() {
    // The kubelet's keyring test names these.
    let text = br#"{"bar.example.com": {"username": "ada", "password": "smash", "email": "ada@example.com"},
        "bar.example.com/pong": {"username": "grace", "password": "squash", "email": "grace@example.com"}}"#;
    let config = DockerConfig::parse_legacy(text).expect("is right");
    let hashes: Vec<&str> = config.auths.iter().map(|(_, entry)| entry.hash.as_str()).collect();
    assert_eq!(
        hashes,
        [
            "353258b53f5e9a57b059eab3f05312fc35bbeb874f08ce101e7bf0bf46977423",
            "f949b3837a1eb733a951b6aeda0b3327c09ec50c917de9ca35818e8fbf567e29"
        ]
    );
}

proptest! {
    #[test]
    fn errors_never_quote_file_contents(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "{", "}", "[", "]", ":", ",", "\"", "\\", "null", "1", "\"auths\"", "\"h\"", "\"auth\"", "\"username\"",
            "\"password\"", "\"swordfish\"", "swordfish", "\"c3dvcmRmaXNo\"", "\"credHelpers\"", "{\"auths\":{\"h\":{", "\n",
        ]), 0..24),
    ) {
        let text = pieces.concat();
        for parse in [DockerConfig::parse, DockerConfig::parse_legacy] {
            if let Err(error) = parse(text.as_bytes()) {
                let shown = format!("{error} {error:?}");
                prop_assert!(!shown.contains("swordfish") && !shown.contains("c3dv"), "{}", shown);
            }
        }
    }
}
