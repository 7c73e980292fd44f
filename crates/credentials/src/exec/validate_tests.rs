//! Tests of [`super::validate`]: the kubelet's messages, word for word.

use super::*;
use base::GoDuration;

fn provider() -> ProviderConfig {
    ProviderConfig {
        name: "foobar".into(),
        match_images: vec!["foobar.registry.io".into()],
        default_cache_duration: GoDuration::parse("1m"),
        api_version: API_VERSIONS[1].into(),
        ..ProviderConfig::default()
    }
}

fn with_tokens(change: impl FnOnce(&mut TokenAttributes)) -> ProviderConfig {
    let mut attributes = TokenAttributes {
        audience: "audience".into(),
        cache_type: "Token".into(),
        require_service_account: Some(true),
        ..TokenAttributes::default()
    };
    change(&mut attributes);
    ProviderConfig { api_version: WITH_TOKENS.into(), token_attributes: Some(attributes), ..provider() }
}

fn keys(keys: &[&str]) -> Vec<String> {
    keys.iter().map(|key| (*key).to_owned()).collect()
}

#[test]
fn problems_have_the_kubelets_words() {
    const NOT_QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start \
        and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation \
        is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let not_qualified =
        |list: &str| format!("providers.tokenAttributes.{list}: Invalid value: \"cantendwithadash-\": {NOT_QUALIFIED}");
    let named = |name: &str| ProviderConfig { name: name.into(), ..provider() };
    let only_v1 = "providers.tokenAttributes: Forbidden: tokenAttributes is only supported for \
        credentialprovider.kubelet.k8s.io/v1 API version";
    let simple = ["now-with-dashes/simple", "now-with-dashes/simple"];
    let cases: Vec<(&str, Vec<ProviderConfig>, bool, String)> = vec![
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/no providers provided",
            vec![],
            false,
            "providers: Required value: at least 1 item in plugins is required".into(),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/no matchImages provided",
            vec![ProviderConfig { match_images: vec![], ..provider() }],
            false,
            "providers.matchImages: Required value: at least 1 item in matchImages is required".into(),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/no default cache duration provided",
            vec![ProviderConfig { default_cache_duration: None, ..provider() }],
            false,
            "providers.defaultCacheDuration: Required value".into(),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/name contains '/'",
            vec![named("foo/../bar")],
            false,
            r#"providers.name: Invalid value: "foo/../bar": provider name cannot contain '/'"#.into(),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/name is '.'",
            vec![named(".")],
            false,
            r#"providers.name: Invalid value: ".": provider name cannot be '.'"#.into(),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/name is '..'",
            vec![named("..")],
            false,
            r#"providers.name: Invalid value: "..": provider name cannot be '..'"#.into(),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/name contains spaces",
            vec![named("foo bar")],
            false,
            r#"providers.name: Invalid value: "foo bar": provider name cannot contain spaces"#.into(),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/duplicate names",
            vec![provider(), ProviderConfig { match_images: keys(&["bar.registry.io"]), ..provider() }],
            false,
            r#"providers.name: Duplicate value: "foobar""#.into(),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/no apiVersion",
            vec![ProviderConfig { api_version: String::new(), ..provider() }],
            false,
            "providers.apiVersion: Required value".into(),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/invalid apiVersion",
            vec![ProviderConfig { api_version: "credentialprovider.kubelet.k8s.io/v1alpha0".into(), ..provider() }],
            false,
            r#"providers.apiVersion: Unsupported value: "credentialprovider.kubelet.k8s.io/v1alpha0": supported values: "credentialprovider.kubelet.k8s.io/v1", "credentialprovider.kubelet.k8s.io/v1alpha1", "credentialprovider.kubelet.k8s.io/v1beta1""#.into(),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/negative default cache duration",
            vec![ProviderConfig { default_cache_duration: GoDuration::parse("-1m"), ..provider() }],
            false,
            "providers.defaultCacheDuration: Invalid value: -1m0s: defaultCacheDuration must be greater than or equal to 0"
                .into(),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/invalid match image",
            vec![ProviderConfig { match_images: keys(&["%invalid%"]), ..provider() }],
            false,
            r#"providers.matchImages: Invalid value: "%invalid%": match image is invalid: parse "https://%invalid%": invalid URL escape "%in""#.into(),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/valid config",
            vec![provider()],
            false,
            String::new(),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/token attributes set without KubeletServiceAccountTokenForCredentialProviders feature gate enabled",
            vec![with_tokens(|_| {})],
            false,
            "providers.tokenAttributes: Forbidden: tokenAttributes is not supported when \
             KubeletServiceAccountTokenForCredentialProviders feature gate is disabled"
                .into(),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/token attributes not nil but empty ServiceAccountTokenAudience",
            vec![with_tokens(|a| a.audience.clear())],
            true,
            "providers.tokenAttributes.serviceAccountTokenAudience: Required value".into(),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/token attributes not nil but empty ServiceAccountTokenCacheType",
            vec![with_tokens(|a| a.cache_type.clear())],
            true,
            "providers.tokenAttributes.cacheType: Required value: cacheType is required to be set when tokenAttributes \
             is specified. Supported values are: ServiceAccount, Token"
                .into(),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/token attributes with invalid ServiceAccountTokenCacheType",
            vec![with_tokens(|a| a.cache_type = "invalid".into())],
            true,
            r#"providers.tokenAttributes.cacheType: Unsupported value: "invalid": supported values: "ServiceAccount", "Token""#.into(),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/token attributes not nil but empty ServiceAccountTokenRequired",
            vec![with_tokens(|a| a.require_service_account = None)],
            true,
            "providers.tokenAttributes.requireServiceAccount: Required value".into(),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/required service account annotation keys not qualified name (same validation as metav1.ObjectMeta)",
            vec![with_tokens(|a| a.required_annotations = keys(&["cantendwithadash-", "now-with-dashes/simple"]))],
            true,
            not_qualified("requiredServiceAccountAnnotationKeys"),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/optional service account annotation keys not qualified name (same validation as metav1.ObjectMeta)",
            vec![with_tokens(|a| a.optional_annotations = keys(&["cantendwithadash-", "now-with-dashes/simple"]))],
            true,
            not_qualified("optionalServiceAccountAnnotationKeys"),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/duplicate required service account annotation keys",
            vec![with_tokens(|a| a.required_annotations = keys(&simple))],
            true,
            r#"providers.tokenAttributes.requiredServiceAccountAnnotationKeys: Duplicate value: "now-with-dashes/simple""#
                .into(),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/duplicate optional service account annotation keys",
            vec![with_tokens(|a| a.optional_annotations = keys(&simple))],
            true,
            r#"providers.tokenAttributes.optionalServiceAccountAnnotationKeys: Duplicate value: "now-with-dashes/simple""#
                .into(),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/annotation key in required and optional keys",
            vec![with_tokens(|a| {
                a.required_annotations = keys(&["now-with-dashes/simple-1", "now-with-dashes/simple-2"]);
                a.optional_annotations = keys(&["now-with-dashes/simple-2", "now-with-dashes/simple-3"]);
            })],
            true,
            r#"providers.tokenAttributes: Invalid value: []string{"now-with-dashes/simple-2"}: annotation keys cannot be both required and optional"#.into(),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/required annotation keys set when requireServiceAccount is false",
            vec![with_tokens(|a| {
                a.require_service_account = Some(false);
                a.required_annotations = keys(&["now-with-dashes/simple-1", "now-with-dashes/simple-2"]);
            })],
            true,
            "providers.tokenAttributes.requiredServiceAccountAnnotationKeys: Forbidden: requireServiceAccount cannot be \
             false when requiredServiceAccountAnnotationKeys is set"
                .into(),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/valid config with KubeletServiceAccountTokenForCredentialProviders feature gate enabled",
            vec![with_tokens(|a| {
                a.required_annotations = keys(&["now-with-dashes/simple-1", "now-with-dashes/simple-2"]);
                a.optional_annotations = keys(&["now-with-dashes/simple-3"]);
            })],
            true,
            String::new(),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/tokenAttributes set with credentialprovider.kubelet.k8s.io/v1alpha1 APIVersion",
            vec![ProviderConfig { api_version: API_VERSIONS[1].into(), ..with_tokens(|_| {}) }],
            true,
            only_v1.into(),
        ),
        (
            "upstream: plugin/Test_validateCredentialProviderConfig/tokenAttributes set with credentialprovider.kubelet.k8s.io/v1beta1 APIVersion",
            vec![ProviderConfig { api_version: API_VERSIONS[2].into(), ..with_tokens(|_| {}) }],
            true,
            only_v1.into(),
        ),
        (
            "several problems are one line, each once",
            vec![ProviderConfig { name: "a / b".into(), match_images: vec![], ..provider() },
                ProviderConfig { match_images: vec![], ..provider() }],
            true,
            r#"[providers.name: Invalid value: "a / b": provider name cannot contain '/', providers.name: Invalid value: "a / b": provider name cannot contain spaces, providers.matchImages: Required value: at least 1 item in matchImages is required]"#.into(),
        ),
        (
            "a pattern without a host",
            vec![ProviderConfig { match_images: keys(&["/foo"]), ..provider() }],
            true,
            r#"providers.matchImages: Invalid value: "/foo": match image is invalid: there is no host"#.into(),
        ),
    ];
    for (name, providers, tokens, want) in cases {
        let problems = validate(&providers, tokens);
        let got = if problems.is_empty() { String::new() } else { in_one_line(&problems) };
        assert_eq!(got, want, "{name}");
    }
}

#[test]
fn qualified_names() {
    let long = "a".repeat(64);
    let cases = [
        ("simple", 0),
        ("now-with-dashes", 0),
        ("1-starts-with-num", 0),
        ("simple/simple", 0),
        ("1.2.3.4/5678", 0),
        ("uppercase.example/A_b.C", 0),
        ("", 2),
        ("/simple", 1),
        ("simple/", 2),
        ("a/b/c", 1),
        ("-starts", 1),
        ("ends_", 1),
        ("a b", 1),
        ("a..b/c", 1),
        ("Upper.Case/c", 1),
        (long.as_str(), 1),
    ];
    for (name, want) in cases {
        assert_eq!(qualified_name(name).len(), want, "{name}: {:?}", qualified_name(name));
    }
}
