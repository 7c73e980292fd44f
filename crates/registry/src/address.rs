//! What kind of address a URL points at, and which foreign addresses a registry may send us to. Only literal addresses
//! are judged: a name's address is the resolver's business.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

/// Classes of addresses, by who can be behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// A name other than `localhost`, or a public address.
    Public,
    /// A private network.
    Private,
    /// This machine.
    Loopback,
    /// Link-local (where cloud metadata services live), unspecified, multicast, broadcast.
    Special,
}

/// The class of a URL's host.
pub(crate) fn class_of(url: &Url) -> Class {
    match url.host() {
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            if name.eq_ignore_ascii_case("localhost") || name.to_ascii_lowercase().ends_with(".localhost") {
                Class::Loopback
            } else {
                Class::Public
            }
        }
        Some(Host::Ipv4(ip)) => class_v4(ip),
        Some(Host::Ipv6(ip)) => class_v6(ip),
        None => Class::Special,
    }
}

fn class_v4(ip: Ipv4Addr) -> Class {
    let [a, b, ..] = ip.octets();
    if ip.is_loopback() {
        Class::Loopback
    } else if ip.is_link_local() || ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() || a == 0 {
        Class::Special
    } else if ip.is_private() || (a == 100 && (64..128).contains(&b)) {
        Class::Private
    } else {
        Class::Public
    }
}

fn class_v6(ip: Ipv6Addr) -> Class {
    if let IpAddr::V4(v4) = IpAddr::V6(ip).to_canonical() {
        return class_v4(v4);
    }
    let first = ip.segments()[0];
    if ip.is_loopback() {
        Class::Loopback
    } else if ip.is_unspecified() || ip.is_multicast() || first & 0xffc0 == 0xfe80 {
        Class::Special
    } else if first & 0xfe00 == 0xfc00 {
        Class::Private
    } else {
        Class::Public
    }
}

/// Whether both URLs have the same scheme, host and port.
pub(crate) fn same_origin(a: &Url, b: &Url) -> bool {
    a.scheme() == b.scheme() && a.host() == b.host() && a.port_or_known_default() == b.port_or_known_default()
}

/// Whether a secret may be sent to the token service that `registry` names: HTTPS unless the registry itself is plain
/// HTTP, no user information, and no address of a private kind unless the registry is of that kind itself or the host
/// is the same.
///
/// # Errors
/// The reason, as a text.
pub(crate) fn check_realm(registry: &Url, realm: &Url) -> Result<(), String> {
    match realm.scheme() {
        "https" => {}
        "http" if registry.scheme() == "http" => {}
        "http" => return Err("the token service is plain HTTP while the registry is HTTPS".into()),
        other => return Err(format!("the token service has the scheme {other:?}")),
    }
    if realm.host().is_none() {
        return Err("the token service has no host".into());
    }
    let (theirs, own) = (class_of(realm), class_of(registry));
    if realm.host() == registry.host() || theirs == Class::Public || (theirs == own && own != Class::Special) {
        return Ok(());
    }
    let what = match theirs {
        Class::Loopback => "this machine",
        Class::Private => "a private address",
        _ => "a link-local or special address",
    };
    Err(format!("the token service is at {what} and the registry is not"))
}

/// Whether a redirect from `from` (the first request was to `first`) may be followed to `to`.
///
/// # Errors
/// The reason, as a text.
pub(crate) fn check_redirect(first: &Url, to: &Url) -> Result<(), String> {
    match to.scheme() {
        "https" => {}
        "http" if first.scheme() == "http" => {}
        "http" => return Err("from HTTPS to plain HTTP".into()),
        other => return Err(format!("to the scheme {other:?}")),
    }
    if to.host().is_none() {
        return Err("to a URL without a host".into());
    }
    if to.host() == first.host() {
        return Ok(());
    }
    match class_of(to) {
        Class::Special => Err("to a link-local or special address".into()),
        Class::Loopback if class_of(first) != Class::Loopback => Err("to this machine".into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn u(text: &str) -> Url {
        Url::parse(text).expect("parses")
    }

    #[test]
    fn realms() {
        let cases = [
            ("https://r.example", "https://auth.example/token", true),
            ("https://r.example", "http://auth.example/token", false),
            ("http://r.example", "http://auth.example/token", true),
            ("http://127.0.0.1:5000", "http://127.0.0.1:5001/token", true),
            ("http://localhost:5000", "http://127.0.0.1:5001/token", true),
            ("https://r.example", "https://127.0.0.1/token", false),
            ("https://r.example", "https://localhost/token", false),
            ("https://r.example", "https://169.254.169.254/latest", false),
            ("https://r.example", "https://10.0.0.1/token", false),
            ("https://10.0.0.2", "https://10.0.0.1/token", true),
            ("https://10.0.0.2", "https://127.0.0.1/token", false),
            ("https://r.example", "https://[::ffff:10.0.0.1]/token", false),
            ("https://r.example", "https://[fe80::1]/token", false),
            ("https://r.example", "https://[fd00::1]/token", false),
            ("https://r.example", "https://0x7f000001/token", false),
            ("https://r.example", "https://100.64.0.1/token", false),
            ("https://169.254.1.1", "https://169.254.1.1/token", true),
            ("https://169.254.1.1", "https://169.254.1.2/token", false),
            ("https://r.example", "ftp://auth.example/", false),
            ("https://r.example", "https://203.0.113.9/token", true),
        ];
        for (registry, realm, want) in cases {
            assert_eq!(check_realm(&u(registry), &u(realm)).is_ok(), want, "{registry} → {realm}");
        }
    }

    #[test]
    fn redirects() {
        let cases = [
            ("https://r.example", "https://cdn.example/x", true),
            ("https://r.example", "http://cdn.example/x", false),
            ("http://r.example", "http://cdn.example/x", true),
            ("https://r.example", "https://10.1.2.3/x", true),
            ("https://r.example", "https://169.254.169.254/x", false),
            ("https://r.example", "https://127.0.0.1/x", false),
            ("http://127.0.0.1:1", "http://127.0.0.1:2/x", true),
            ("https://r.example", "file:///etc/passwd", false),
        ];
        for (first, to, want) in cases {
            assert_eq!(check_redirect(&u(first), &u(to)).is_ok(), want, "{first} → {to}");
        }
    }

    #[test]
    fn origins() {
        assert!(same_origin(&u("https://h/a"), &u("https://h:443/b")));
        for other in ["http://h/", "https://h:444/", "https://g/", "https://sub.h/"] {
            assert!(!same_origin(&u("https://h/"), &u(other)), "{other}");
        }
    }
}
