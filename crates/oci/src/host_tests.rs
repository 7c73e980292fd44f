//! Tables and properties of hosts.

use proptest::prelude::*;

use super::*;
use crate::Reference;

#[test]
fn one_normal_form_of_every_host() {
    let cases = [
        ("docker.io", &["docker.io", "Docker.io", "DOCKER.IO", "docker.io:443", "Docker.IO:0443"][..]),
        ("r.example:5000", &["r.example:5000", "R.Example:05000", "r.example:0000005000"]),
        ("r.example:80", &["r.example:80", "r.example:0080"]),
        ("localhost:5999", &["localhost:5999", "LOCALHOST:5999", "localhost:05999"]),
        ("localhost", &["localhost", "LocalHost"]),
        ("localhost:443", &["localhost:443", "LOCALHOST:00443"]),
        ("127.0.0.1:5999", &["127.0.0.1:5999", "127.0.0.1:05999"]),
        ("127.0.0.1:443", &["127.0.0.1:443"]),
        ("127.0.0.1", &["127.0.0.1"]),
        ("10.0.0.1", &["10.0.0.1", "10.0.0.1:443"]),
        ("[::1]:5000", &["[::1]:5000", "[0:0:0:0:0:0:0:1]:5000", "[0::0001]:05000"]),
        ("[::1]:443", &["[::1]:443", "[0::1]:443"]),
        ("[2001:db8::a]", &["[2001:db8::a]", "[2001:DB8:0::00A]", "[2001:db8::a]:443"]),
        ("url:443", &["url:443", "URL", "url", "url:0443"]),
        ("url:5000", &["url:5000", "URL:5000"]),
        ("xn--bcher-kva.example", &["XN--bcher-KVA.example"]),
        ("1.example", &["1.example"]),
        ("0x7g.0xg", &["0X7g.0xg"]),
    ];
    for (normal, spellings) in cases {
        for text in spellings {
            assert_eq!(normal_host(text).as_deref(), Ok(normal), "{text}");
        }
    }
}

#[test]
fn hosts_without_a_normal_form_are_refused() {
    let cases = [
        ("127.1", HostError::Ipv4),
        ("127.1:5999", HostError::Ipv4),
        ("127.0.1", HostError::Ipv4),
        ("0x7f.1", HostError::Ipv4),
        ("127.0.0.0x1", HostError::Ipv4),
        ("0X7F000001:5000", HostError::Ipv4),
        ("0x", HostError::Ipv4),
        ("2130706433", HostError::Ipv4),
        ("2130706433:5000", HostError::Ipv4),
        ("0177.0.0.1", HostError::Ipv4),
        ("127.0.0.01", HostError::Ipv4),
        ("256.0.0.1", HostError::Ipv4),
        ("1.2.3.4.5", HostError::Ipv4),
        ("r.example.1", HostError::Ipv4),
        ("r.example:0", HostError::Port),
        ("r.example:0000", HostError::Port),
        ("r.example:65536", HostError::Port),
        ("r.example:70000", HostError::Port),
        ("r.example:99999999999999999999", HostError::Port),
        ("r.example:", HostError::Format),
        ("r.example:+80", HostError::Format),
        ("r.example:5000:5000", HostError::Format),
        ("r.example.", HostError::Format),
        ("ho_st.example", HostError::Format),
        ("", HostError::Format),
        ("::1", HostError::Format),
        ("[::1", HostError::Format),
        ("[::1]5000", HostError::Format),
        ("[1:2]", HostError::Ipv6),
        ("[:::]", HostError::Ipv6),
        ("[::12345]", HostError::Ipv6),
        ("[::ffff:7f00:1]:5999", HostError::Mapped),
        ("[0:0:0:0:0:FFFF:7f00:1]", HostError::Mapped),
        ("[::ffff:127.0.0.1]", HostError::Format),
    ];
    for (text, want) in cases {
        assert_eq!(normal_host(text), Err(want), "{text}");
    }
}

#[test]
fn loopback_hosts_are_recognised() {
    for host in ["localhost", "localhost:443", "127.0.0.1", "127.9.8.7:1", "[::1]", "[::1]:80", "a.localhost:443"] {
        assert!(is_loopback_host(host), "{host}");
    }
    for host in ["localhost.example", "alocalhost", "128.0.0.1", "[::2]", "url:443", "docker.io"] {
        assert!(!is_loopback_host(host), "{host}");
    }
}

/// A host, and another spelling of it.
fn spellings() -> impl Strategy<Value = (String, String)> {
    let name = prop_oneof![
        "[a-zA-Z][a-zA-Z0-9]{0,5}(\\.[a-zA-Z][a-zA-Z0-9]{0,5}){0,2}".prop_map(|name| (name.clone(), name)),
        Just(("localhost".to_owned(), "LOCALHOST".to_owned())),
        any::<[u8; 4]>().prop_map(|address| {
            let address = Ipv4Addr::from(address).to_string();
            (address.clone(), address)
        }),
        any::<[u16; 8]>().prop_filter("not mapped", |parts| parts[..6] != [0, 0, 0, 0, 0, 0xffff]).prop_map(|parts| {
            let long: Vec<String> = parts.iter().map(|part| format!("{part:04X}")).collect();
            (format!("[{}]", Ipv6Addr::from(parts)), format!("[{}]", long.join(":")))
        }),
    ];
    let port = prop::option::of(prop_oneof![Just(443u16), Just(80), 1u16..]);
    (name, port, 0usize..4, any::<u64>()).prop_filter_map(
        "mapped prints with dots",
        |((one, other), port, zeros, case)| {
            let mut other: String = other
                .chars()
                .enumerate()
                .map(|(at, c)| if case >> (at % 64) & 1 == 1 { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() })
                .collect();
            let mut one = one;
            if let Some(port) = port {
                one.push_str(&format!(":{port}"));
                other.push_str(&format!(":{}{port}", "0".repeat(zeros)));
            }
            is_domain(&one).then_some((one, other))
        },
    )
}

proptest! {
    #[test]
    fn spellings_of_a_host_are_equal((one, other) in spellings()) {
        let normal = normal_host(&one);
        prop_assert_eq!(&normal, &normal_host(&other), "{} {}", one, other);
        let normal = normal.expect("it has a normal form").into_owned();
        prop_assert_eq!(normal_host(&normal), Ok(Cow::Borrowed(normal.as_str())), "normal forms are their own");
        let parse = |host: &str| Reference::parse(&format!("{host}/team/app:1"));
        let reference = parse(&normal).expect("a host in its normal form is one in a reference");
        prop_assert_eq!(reference.domain(), &normal);
        prop_assert_eq!(Reference::parse(&reference.to_string()), Ok(reference.clone()));
        if one.contains(['.', ':']) || one.to_ascii_lowercase() != one {
            prop_assert_eq!(parse(&one), Ok(reference.clone()));
        }
    }

    #[test]
    fn normal_form_is_idempotent_and_never_panics(text in "[\\[\\]a-fA-F0-9xX.:_é-]{0,24}") {
        if let Ok(normal) = normal_host(&text) {
            prop_assert_eq!(normal_host(&normal), Ok(normal.clone()));
        }
    }
}
