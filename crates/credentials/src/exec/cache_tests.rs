//! Tests of the cache and its keys. The keys are the kubelet's, byte for byte.

use super::*;

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn annotations(pairs: Pairs<'_>) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn account(namespace: &str, name: &str, uid: &str, annotations: &[(&str, &str)], token_hash: Option<&str>) -> Key {
    account_key(&AccountKey { namespace, name, uid, annotations: &self::annotations(annotations), token_hash })
        .expect("short")
}

fn text(key: &Key) -> &str {
    std::str::from_utf8(key.bytes()).expect("text")
}

const ACCOUNT: &str = "\x00\tnamespace\x00\x0fservice-account\x00\x13service-account-uid";
const TWO: &str =
    "\x00\x00\x00\x02\x00\x16domain.io/annotation-1\x00\x06value1\x00\x16domain.io/annotation-2\x00\x06value2";

#[test]
fn account_keys() {
    let one = [("domain.io/annotation-1", "value1")];
    let two = [one[0], ("domain.io/annotation-2", "value2")];
    let turned = [two[1], two[0]];
    let token = "\x00\x05token\x00\x08the-hash";
    let cases: [(&str, Pairs<'_>, Option<&str>, String); 5] = [
        (
            "upstream: plugin/TestGenerateServiceAccountCacheKey/no annotations",
            &[],
            None,
            format!("{ACCOUNT}\x00\x00\x00\x00"),
        ),
        (
            "upstream: plugin/TestGenerateServiceAccountCacheKey/single annotation",
            &one,
            None,
            format!("{ACCOUNT}\x00\x00\x00\x01\x00\x16domain.io/annotation-1\x00\x06value1"),
        ),
        (
            "upstream: plugin/TestGenerateServiceAccountCacheKey/multiple annotations",
            &two,
            None,
            format!("{ACCOUNT}{TWO}"),
        ),
        (
            "upstream: plugin/TestGenerateServiceAccountCacheKey/annotations with different order should be sorted",
            &turned,
            None,
            format!("{ACCOUNT}{TWO}"),
        ),
        (
            "upstream: plugin/TestGenerateServiceAccountCacheKey/service account token hash",
            &two,
            Some("the-hash"),
            format!("{ACCOUNT}{TWO}{token}"),
        ),
    ];
    for (name, annotations, hash, want) in cases {
        let key = account("namespace", "service-account", "service-account-uid", annotations, hash);
        assert_eq!(text(&key), want, "{name}");
    }
}

/// Every combination of namespace, name, uid and annotations has a key of its own.
// upstream: plugin/TestGenerateServiceAccountCacheKey_Deterministic
#[test]
fn keys_are_one_to_one() {
    let sets: [&[(&str, &str)]; 2] = [
        &[("domain.io/identity-id", "1234567890"), ("domain.io/role", "admin")],
        &[("domain.io/identity-id", "0987654321"), ("domain.io/role", "viewer")],
    ];
    let combinations = || {
        ["default", "kube-system"].into_iter().flat_map(move |namespace| {
            ["service-account1", "service-account2"].into_iter().flat_map(move |name| {
                ["633a81d0", "1408a4e6"]
                    .into_iter()
                    .flat_map(move |uid| sets.into_iter().map(move |set| (namespace, name, uid, set)))
            })
        })
    };
    for one in combinations() {
        for other in combinations() {
            let keys = [one, other].map(|(namespace, name, uid, set)| account(namespace, name, uid, set, None));
            assert_eq!(keys[0] == keys[1], one == other, "{one:?} {other:?}");
            let keys = keys.map(|key| answer_key("registry.io/image", &key).expect("short"));
            assert_eq!(keys[0] == keys[1], one == other, "{one:?} {other:?}");
        }
    }
    // Lengths before texts: moving a boundary makes another key.
    assert_ne!(account("ab", "c", "", &[], None), account("a", "bc", "", &[], None));
}

#[test]
fn answer_keys() {
    let account = account(
        "namespace",
        "service-account",
        "service-account-uid",
        &[("domain.io/annotation-1", "value1"), ("domain.io/annotation-2", "value2")],
        None,
    );
    let cases = [
        (
            "upstream: plugin/TestGenerateCacheKey/empty service account cache key",
            Key::default(),
            "\x00\x11registry.io/image\x00\x00".to_owned(),
        ),
        (
            "upstream: plugin/TestGenerateCacheKey/combined key",
            account,
            format!("\x00\x11registry.io/image\x00u{ACCOUNT}{TWO}"),
        ),
    ];
    for (name, account, want) in cases {
        assert_eq!(text(&answer_key("registry.io/image", &account).expect("short")), want, "{name}");
    }
}

// upstream: plugin/Test_CacheKeyGeneration/image cache key without service account
// upstream: plugin/Test_CacheKeyGeneration/image cache key with ServiceAccount cache type
// upstream: plugin/Test_CacheKeyGeneration/image cache key with Token cache type
// upstream: plugin/Test_CacheKeyGeneration/registry cache key without service account
// upstream: plugin/Test_CacheKeyGeneration/registry cache key with ServiceAccount cache type
// upstream: plugin/Test_CacheKeyGeneration/registry cache key with Token cache type
// upstream: plugin/Test_CacheKeyGeneration/global cache key without service account
// upstream: plugin/Test_CacheKeyGeneration/global cache key with ServiceAccount cache type
// upstream: plugin/Test_CacheKeyGeneration/global cache key with Token cache type
#[test]
fn images_registries_and_all_with_every_kind_of_account() {
    let hash = token_hash("token");
    let accounts = [
        ("no service account", Key::default(), "\x00\x00".to_owned()),
        (
            "ServiceAccount",
            account("ns", "sa", "uid", &[], None),
            "\x00\x11\x00\x02ns\x00\x02sa\x00\x03uid\x00\x00\x00\x00".to_owned(),
        ),
        (
            "Token",
            account("ns", "sa", "uid", &[], Some(&hash)),
            format!("\x00a\x00\x02ns\x00\x02sa\x00\x03uid\x00\x00\x00\x00\x00\x05token\x00G{hash}"),
        ),
    ];
    assert_eq!(hash, "sha256:3c469e9d6c5875d37a43f353d4f88e61fcf812c66eee3457465a40b0da4153e0");
    assert_eq!(token_hash(""), "");
    let image = "registry.io/team/image";
    for (base, want) in [
        (image, "\x00\x16registry.io/team/image"),
        (registry(image), "\x00\x0bregistry.io"),
        (GLOBAL, "\x00\x08<global>"),
    ] {
        for (name, account, rest) in &accounts {
            let key = answer_key(base, account).expect("short");
            assert_eq!(text(&key), format!("{want}{rest}"), "{base} {name}");
        }
    }
}

#[test]
fn flight_keys() {
    let account = account("n", "s", "u", &[], None);
    assert_eq!(
        text(&flight_key("i", "h", &account).expect("short")),
        "\x00\x01i\x00\x01h\x00\x0d\x00\x01n\x00\x01s\x00\x01u\x00\x00\x00\x00"
    );
    assert_eq!(text(&flight_key("i", "", &Key::default()).expect("short")), "\x00\x01i\x00\x00\x00\x00");
}

#[test]
fn overlong_key_text_is_refused() {
    let long = "x".repeat(1 << 16);
    let error = answer_key(&long, &Key::default()).expect_err("too long");
    assert_eq!(error.to_string(), "a text of 65536 bytes is longer than a cache key can hold");
    assert!(answer_key(&long[1..], &Key::default()).is_ok());
}

// upstream: plugin/Test_getCachedCredentials_pluginUsingServiceAccount/It should return not expired credential
// upstream: plugin/Test_getCachedCredentials_pluginUsingServiceAccount/It should not return expired credential
// upstream: plugin/Test_getCachedCredentials_pluginUsingServiceAccount/It should delete expired credential during purge
#[tokio::test(start_paused = true)]
async fn answers_expire() {
    for with_account in [false, true] {
        let key = if with_account { account("ns", "sa", "uid", &[("a", "b")], None) } else { Key::default() };
        let mut now = Instant::now();
        let cache = Cache::new(now);
        let put = |cache: &Cache<&str>, image: &'static str, lasting, now| {
            cache.put(answer_key(image, &key).expect("short"), image, lasting, now);
        };
        let minutes = |n: u64| Duration::from_secs(60 * n);
        // (row, how long it lasts, then how much later, asked for, answer, how many are kept)
        let cases = [
            (
                "upstream: plugin/Test_getCachedCredentials/It should return not expired credential",
                "image1",
                minutes(1),
                Duration::from_secs(1),
                "image1",
                Some("image1"),
                1,
            ),
            (
                "upstream: plugin/Test_getCachedCredentials/It should not return expired credential",
                "image2",
                Duration::from_nanos(1),
                minutes(2),
                "image2",
                None,
                1,
            ),
            (
                "upstream: plugin/Test_getCachedCredentials/It should delete expired credential during purge",
                "image3",
                minutes(2),
                minutes(18),
                "random",
                None,
                0,
            ),
        ];
        for (name, image, lasting, later, asked, want, kept) in cases {
            put(&cache, image, lasting, now);
            now += later;
            assert_eq!(cache.get(asked, &key, now), Ok(want), "{name}");
            assert_eq!(cache.keys().len(), kept, "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn cache_honours_expiry_and_prefers_the_most_specific_answer() {
    let now = Instant::now();
    let none = Key::default();
    let cache = Cache::new(now);
    for (base, lasting) in [(GLOBAL, 30), ("r.example", 20), ("r.example/a", 10)] {
        cache.put(answer_key(base, &none).expect("short"), base, Duration::from_secs(lasting), now);
    }
    let at = |seconds| cache.get("r.example/a", &none, now + Duration::from_secs(seconds)).expect("short");
    assert_eq!(at(10), Some("r.example/a"));
    assert_eq!(at(11), Some("r.example"));
    assert_eq!(at(20), Some("r.example"));
    assert_eq!(at(21), Some(GLOBAL));
    assert_eq!(at(31), None);
    assert_eq!(cache.keys().len(), 0);
    // Nothing that lasts for no time, and nothing that would overflow the clock.
    cache.put(answer_key("x", &none).expect("short"), "x", Duration::ZERO, now);
    assert_eq!(cache.keys().len(), 0);
    cache.put(answer_key("x", &none).expect("short"), "x", Duration::MAX, now);
    assert_eq!(cache.get("x", &none, now + Duration::from_secs(86_400)), Ok(Some("x")));
}

#[tokio::test(start_paused = true)]
async fn cache_is_bounded() {
    let now = Instant::now();
    let none = Key::default();
    let cache = Cache::new(now);
    for n in 0..u64::try_from(MAX_ANSWERS).expect("fits") + 5 {
        let key = answer_key(&format!("image{n}"), &none).expect("short");
        cache.put(key, n, Duration::from_secs(60 + n), now);
    }
    assert_eq!(cache.keys().len(), MAX_ANSWERS);
    // The answers that would have expired first were removed.
    assert_eq!(cache.get("image4", &none, now), Ok(None));
    assert_eq!(cache.get("image5", &none, now), Ok(Some(5)));
}
