//! Tests of the credential provider protocol, byte for byte where the kubelet's is.

use proptest::prelude::*;

use super::*;

fn api(version: &str) -> String {
    format!("{GROUP}{version}")
}

#[test]
fn requests() {
    let annotations: BTreeMap<String, String> =
        [("domain.io/annotation2", "value2"), ("domain.io/annotation1", "value1")]
            .map(|(n, v)| (n.into(), v.into()))
            .into();
    let none = BTreeMap::new();
    let cases = [
        ("upstream: plugin/Test_encodeRequest/successful with v1alpha1", "v1alpha1", "", &none, ""),
        ("upstream: plugin/Test_encodeRequest/successful with v1beta1", "v1beta1", "", &none, ""),
        ("upstream: plugin/Test_encodeRequest/successful with v1", "v1", "", &none, ""),
        (
            "upstream: plugin/Test_encodeRequest/successful with v1, with service account token and annotations",
            "v1",
            "service-account-token",
            &annotations,
            r#","serviceAccountToken":"service-account-token","serviceAccountAnnotations":{"domain.io/annotation1":"value1","domain.io/annotation2":"value2"}"#,
        ),
    ];
    for (name, version, token, annotations, more) in cases {
        let token = Secret::new(token);
        let line = request(&Request { image: "test.registry.io/foobar", token: &token, annotations }, &api(version));
        let want = format!(
            "{{\"kind\":\"CredentialProviderRequest\",\"apiVersion\":\"{}\",\"image\":\"test.registry.io/foobar\"{more}}}\n",
            api(version)
        );
        assert_eq!(String::from_utf8_lossy(&line), want, "{name}");
    }
}

/// The token must not be left behind in memory that a growing buffer gave back.
#[test]
fn request_buffer_is_not_reallocated() {
    let wild: String = "\u{1}\"\\\u{7f}é".repeat(200);
    let annotations = BTreeMap::from([(wild.clone(), wild.clone()), (String::new(), String::new())]);
    let token = Secret::new(wild.clone());
    let line = request(&Request { image: &wild, token: &token, annotations: &annotations }, &api("v1"));
    let room = 6 * (3 * wild.len() + wild.len() + 16) + 512;
    assert!(line.len() < room && line.capacity() == room, "{} of {}", line.len(), line.capacity());
    let back: serde_json::Value = serde_json::from_slice(&line).expect("JSON");
    assert_eq!(back["serviceAccountToken"], wild.as_str());
}

fn good(version: &str) -> String {
    format!(
        r#"{{"kind":"CredentialProviderResponse","apiVersion":"{}","cacheKeyType":"Registry","cacheDuration":"1m","auth":{{"*.registry.io":{{"username":"user","password":"password"}}}}}}"#,
        api(version)
    )
}

#[test]
fn responses() {
    let want = || {
        Ok(Response {
            cache_key_type: Some(CacheKeyType::Registry),
            cache_duration: GoDuration::parse("1m"),
            auth: BTreeMap::from([("*.registry.io".to_owned(), ("user".to_owned(), Secret::new("password")))]),
        })
    };
    let cases = [
        ("upstream: plugin/Test_decodeResponse/success with v1", good("v1"), api("v1"), want()),
        ("upstream: plugin/Test_decodeResponse/success with v1beta1", good("v1beta1"), api("v1beta1"), want()),
        ("upstream: plugin/Test_decodeResponse/success with v1alpha1", good("v1alpha1"), api("v1alpha1"), want()),
        (
            "upstream: plugin/Test_decodeResponse/wrong Kind",
            good("v1beta1").replace("CredentialProviderResponse", "WrongKind"),
            api("v1beta1"),
            Err(ResponseError::Decode),
        ),
        (
            "upstream: plugin/Test_decodeResponse/wrong Group",
            good("v1beta1").replace("credentialprovider.", "foobar."),
            "foobar.kubelet.k8s.io/v1beta1".to_owned(),
            Err(ResponseError::Decode),
        ),
    ];
    for (name, text, version, want) in cases {
        assert_eq!(response(text.as_bytes(), &version), want, "{name}");
    }
}

#[test]
fn omitted_fields_are_defaults() {
    let head = format!(r#""kind":"CredentialProviderResponse","apiVersion":"{}""#, api("v1"));
    let read = |rest: &str| response(format!("{{{head}{rest}}}").as_bytes(), &api("v1")).expect("read");
    for rest in ["", r#","cacheDuration":null,"auth":null,"cacheKeyType":null"#, r#","auth":{}"#] {
        let got = read(rest);
        assert!(got.auth.is_empty() && got.cache_duration.is_none() && got.cache_key_type.is_none(), "{rest}");
    }
    let got = read(r#","cacheKeyType":"image","auth":{"a":null,"b":{"username":null}}"#);
    assert_eq!(got.cache_key_type, None);
    assert!(got.auth.values().all(|(user, password)| user.is_empty() && password.is_empty()));
    for (word, want) in [("Image", CacheKeyType::Image), ("Global", CacheKeyType::Global)] {
        assert_eq!(read(&format!(r#","cacheKeyType":"{word}""#)).cache_key_type, Some(want));
    }
}

#[test]
fn garbage_is_refused_and_not_quoted() {
    let head = format!(r#""kind":"CredentialProviderResponse","apiVersion":"{}""#, api("v1"));
    let not_an_object = "error reading GVK from response: it is not a JSON object with kind and apiVersion";
    let decode = "error decoding credential provider plugin response from stdout";
    let version = |actual: &str| {
        format!(
            "apiVersion from credential plugin response did not match expected apiVersion:{}, actual apiVersion:{actual}",
            api("v1")
        )
    };
    let cases = [
        ("nothing", String::new(), not_an_object.to_owned()),
        ("text", "swordfish".into(), not_an_object.into()),
        ("a list", "[\"swordfish\"]".into(), not_an_object.into()),
        ("a wrong type", r#"{"kind":5}"#.into(), not_an_object.into()),
        ("two answers", format!("{}{}", good("v1"), good("v1")), not_an_object.into()),
        (
            "a list of the right values",
            format!(r#"["CredentialProviderResponse","{}"]"#, api("v1")),
            not_an_object.into(),
        ),
        ("a list for a credential", format!(r#"{{{head},"auth":{{"a":["swordfish"]}}}}"#), decode.into()),
        ("no version", "{}".into(), version("")),
        ("another version", good("v1beta1"), version(&api("v1beta1"))),
        ("a secret as the version", r#"{"apiVersion":"swordfish"}"#.into(), version("<hidden>")),
        ("another group", r#"{"apiVersion":"swordfish/v1"}"#.into(), version("<hidden>")),
        ("an unknown field", format!(r#"{{{head},"swordfish":1}}"#), decode.into()),
        (
            "an unknown field of a credential",
            format!(r#"{{{head},"auth":{{"a":{{"token":"swordfish"}}}}}}"#),
            decode.into(),
        ),
        ("a field twice", format!(r#"{{{head},"cacheKeyType":"Image","cacheKeyType":"Image"}}"#), decode.into()),
        ("a pattern twice", format!(r#"{{{head},"auth":{{"a":{{}},"a":{{}}}}}}"#), decode.into()),
        ("no duration", format!(r#"{{{head},"cacheDuration":"swordfish"}}"#), decode.into()),
        ("a number as the duration", format!(r#"{{{head},"cacheDuration":60}}"#), decode.into()),
        ("a password that is none", format!(r#"{{{head},"auth":{{"a":{{"password":5}}}}}}"#), decode.into()),
    ];
    for (name, text, want) in cases {
        let error = response(text.as_bytes(), &api("v1")).expect_err(name).to_string();
        assert_eq!(error, want, "{name}");
    }
}

#[test]
fn passwords_are_found_in_malformed_responses() {
    let found = |text: &str| passwords(text.as_bytes()).iter().map(|s| s.expose().to_owned()).collect::<Vec<_>>();
    assert_eq!(found(&good("v7").replace("cacheKeyType", "unknown")), ["password"]);
    assert!(found("swordfish").is_empty());
}

/// Values as JSON can have them, with the names that the protocol knows.
fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let word = prop_oneof![
        Just("kind".to_owned()),
        Just("apiVersion".to_owned()),
        Just("auth".to_owned()),
        Just("password".to_owned()),
        Just("cacheDuration".to_owned()),
        Just(KIND.to_owned()),
        Just(api("v1")),
        "swordfish.{0,3}",
    ];
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        word.clone().prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 32, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::vec((word.clone(), inner), 0..6)
                .prop_map(|pairs| serde_json::Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    /// No error quotes the output of a provider, and no output causes a panic.
    #[test]
    fn no_error_quotes_an_answer(mut value in any_json(), with_head: bool, cut in 0_usize..400) {
        if let (true, Some(fields)) = (with_head, value.as_object_mut()) {
            fields.insert("kind".to_owned(), KIND.into());
            fields.insert("apiVersion".to_owned(), api("v1").into());
        }
        let text = value.to_string();
        for text in [text.as_bytes(), &text.as_bytes()[..cut.min(text.len())]] {
            if let Err(error) = response(text, &api("v1")) {
                prop_assert!(!error.to_string().contains("swordfish"), "{}", error);
            }
            let _ = passwords(text);
        }
    }
}
