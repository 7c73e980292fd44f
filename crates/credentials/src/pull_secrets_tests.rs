//! Pull secrets: which are taken, what is said of the others, and that nothing is parsed twice.

use super::*;

fn secret(kind: &str, key: &str, payload: &str) -> PullSecret {
    PullSecret {
        namespace: "shop".into(),
        name: "x".into(),
        uid: "1".into(),
        kind: kind.into(),
        data: [(key.to_owned(), Secret::new(payload))].into(),
        ..PullSecret::default()
    }
}

fn parse(secret: &PullSecret) -> Result<Arc<Parsed>, Note> {
    PullSecrets::new(PathMatch::Segments).parse(secret).expect("no broken JSON")
}

#[test]
fn other_types_and_other_keys_are_refused_by_name() {
    let only = "it must be of type kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg";
    let json = r#"{"auths": {"reg.io": {"username": "u", "password": "swordfish"}}}"#;
    let cases = [
        (
            "Opaque",
            ".dockerconfigjson",
            json,
            format!("secret shop/x is of type Opaque and cannot be a pull secret; {only}"),
        ),
        ("", ".dockerconfigjson", json, format!("secret shop/x is of type Opaque and cannot be a pull secret; {only}")),
        (
            "kubernetes.io/service-account-token",
            "token",
            "swordfish",
            format!("secret shop/x is of type kubernetes.io/service-account-token and cannot be a pull secret; {only}"),
        ),
        (
            "kubernetes.io/dockerconfigjson",
            ".dockercfg",
            json,
            "secret shop/x is of type kubernetes.io/dockerconfigjson, but its key .dockerconfigjson is missing".into(),
        ),
        (
            "kubernetes.io/dockercfg",
            ".dockercfg",
            "",
            "secret shop/x is of type kubernetes.io/dockercfg, but its key .dockercfg is empty".into(),
        ),
    ];
    for (kind, key, payload, want) in cases {
        let note = parse(&secret(kind, key, payload)).map(|_| ()).expect_err(kind);
        assert_eq!(note.text, want);
    }
}

#[test]
fn entries_that_cannot_be_used_are_noted() {
    let payload = r#"{"auths": {"reg.io": {}, "user@reg.io": {"username": "u"}, "reg.io:x": {"username": "u"},
        "ok.io": {"username": "u", "password": "swordfish"}}, "credsStore": "evil", "credHelpers": {"reg.io": "evil"}}"#;
    let parsed = parse(&secret("kubernetes.io/dockerconfigjson", ".dockerconfigjson", payload)).expect("right type");
    assert_eq!(parsed.index.len(), 1);
    let notes: Vec<&str> = parsed.notes.iter().map(|note| note.text.as_str()).collect();
    assert_eq!(
        notes,
        [
            "secret shop/x names credential helpers, which are only run for the node's own files",
            "entry 1 of secret shop/x is ignored: it has no credential",
            "entry 2 of secret shop/x is ignored: there is a user name before the host",
            "entry 3 of secret shop/x is ignored: the port is not a number",
        ]
    );
}

#[test]
fn the_same_content_is_parsed_once() {
    let secrets = PullSecrets::new(PathMatch::Segments);
    let parse = |secret: &PullSecret| secrets.parse(secret).expect("is right").expect("right type");
    let payload = |password: &str| format!(r#"{{"reg.io": {{"username": "u", "password": "{password}"}}}}"#);
    let one = secret("kubernetes.io/dockercfg", ".dockercfg", &payload("a"));
    let first = parse(&one);
    assert!(Arc::ptr_eq(&first, &parse(&one.clone())));
    let rotated = secret("kubernetes.io/dockercfg", ".dockercfg", &payload("b"));
    assert!(!Arc::ptr_eq(&first, &parse(&rotated)), "a rotated secret is read again");
    assert_eq!(parse(&rotated).index.lookup("reg.io/a")[0].auth.password.expose(), "b");
    let elsewhere = PullSecret { namespace: "other".into(), ..rotated.clone() };
    assert!(!Arc::ptr_eq(&parse(&rotated), &parse(&elsewhere)), "notes name the secret");
    let broken = secret("kubernetes.io/dockercfg", ".dockercfg", "{");
    assert!(secrets.parse(&broken).is_err() && secrets.parse(&broken).is_err(), "an error stays one");
}

#[test]
fn cached_secrets_are_bounded() {
    let secrets = PullSecrets::new(PathMatch::Segments);
    let padding = " ".repeat(100_000);
    let kept = |at: usize| {
        let mut secret = secret("kubernetes.io/dockercfg", ".dockercfg", &format!("{{}}{padding}"));
        secret.name = format!("s{at}");
        secrets.parse(&secret).expect("is right").expect("right type")
    };
    let (first, second) = (kept(0), kept(1));
    for at in 2..165 {
        assert!(Arc::ptr_eq(&first, &kept(0)), "what is used stays");
        kept(at);
    }
    for at in 165..200 {
        kept(at);
        kept(0);
    }
    assert!(Arc::ptr_eq(&first, &kept(0)) && !Arc::ptr_eq(&second, &kept(1)));
    let mut inner = secrets.kept();
    assert!(inner.bytes <= MAX_BYTES && inner.by_coordinates.len() <= MAX_SECRETS);
    assert_eq!(inner.bytes, inner.by_coordinates.values().map(|kept| kept.payload.expose().len()).sum::<usize>());
    inner.by_coordinates.clear();
    inner.bytes = 0;
    drop(inner);
    for at in 0..MAX_SECRETS + 10 {
        let mut secret = secret("kubernetes.io/dockercfg", ".dockercfg", "{}");
        secret.name = format!("s{at}");
        secrets.parse(&secret).expect("is right").expect("right type");
    }
    assert_eq!(secrets.kept().by_coordinates.len(), MAX_SECRETS);
}
