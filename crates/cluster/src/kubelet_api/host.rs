//! [`HostRule`]: the names by which a listener is reached. A web page whose name is made to resolve to a loopback address could
//! read its answers (DNS rebinding), but the name stays in the Host of the request. Pure. Called by [`crate::kubelet_api::port`].

use std::net::IpAddr;

use http::Request;
use http::header::HOST;

/// The names that a request may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostRule {
    /// An IP address, localhost, or a name below it, which no other name service has (RFC 6761, section 6.3).
    Local,
    /// Any.
    Any,
}

/// The text for a client that used another name.
pub(crate) const MISDIRECTED: &str = "this address is reached by an IP address or as localhost, not by that name\n";

impl HostRule {
    /// Returns the rule of a listener. Under TLS the client has verified the name, and a listener that is not on loopback is
    /// reachable by every name.
    pub(crate) fn of(address: IpAddr, has_tls: bool) -> Self {
        if address.to_canonical().is_loopback() && !has_tls { Self::Local } else { Self::Any }
    }

    /// Returns true if the request names this listener. For `Local` it has one Host, and where its target names a host as well,
    /// that is one, too.
    pub(crate) fn allows<B>(self, request: &Request<B>) -> bool {
        if self == Self::Any {
            return true;
        }
        let mut hosts = request.headers().get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        host.to_str().is_ok_and(is_local)
            && request.uri().authority().is_none_or(|authority| is_local(authority.as_str()))
    }
}

/// Returns true for an IP address and names of localhost, with or without a port.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, "")) => address,
        Some((address, port)) if port.strip_prefix(':').is_some_and(is_port) => address,
        Some(_) => return false,
        None => match host.split_once(':') {
            Some((name, port)) if is_port(port) => name,
            Some(_) => return false,
            None => host,
        },
    };
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    let last = name.rsplit('.').next().unwrap_or_default();
    name.parse::<IpAddr>().is_ok() || is_name && last.eq_ignore_ascii_case("localhost")
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(target: &str, hosts: &[&str]) -> Request<()> {
        let request = hosts.iter().fold(Request::builder().uri(target), |request, host| request.header(HOST, *host));
        request.body(()).expect("a request")
    }

    #[test]
    fn a_loopback_listener_in_clear_text_is_reached_by_its_address() {
        let of = |address: &str, has_tls| HostRule::of(address.parse().expect("an address"), has_tls);
        for local in ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"] {
            assert_eq!((of(local, false), of(local, true)), (HostRule::Local, HostRule::Any), "{local}");
        }
        for other in ["0.0.0.0", "::", "192.0.2.1", "fe80::1"] {
            assert_eq!(of(other, false), HostRule::Any, "{other}");
        }
    }

    #[test]
    fn foreign_host_names_are_refused() {
        let cases = [
            ("127.0.0.1:10260", true),
            ("127.0.0.1", true),
            ("[::1]:10260", true),
            ("[::1]", true),
            ("localhost:8080", true),
            ("LOCALHOST", true),
            ("registry.localhost:5000", true),
            ("evil@x.localhost", false),
            ("evillocalhost", false),
            ("192.0.2.7:1", true),
            ("evil.example", false),
            ("edge.example:10260", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example:10260", false),
            ("", false),
            (":10260", false),
            ("localhost:port", false),
            ("localhost.", false),
            ("[::1]x", false),
            ("[::1", false),
            ("a b", false),
            ("evil@127.0.0.1", false),
        ];
        for (host, allowed) in cases {
            let request = request("/metrics", &[host]);
            assert_eq!((HostRule::Local.allows(&request), HostRule::Any.allows(&request)), (allowed, true), "{host}");
        }
        for hosts in [&[][..], &["127.0.0.1", "127.0.0.1"], &["127.0.0.1", "evil.example"]] {
            assert!(!HostRule::Local.allows(&request("/", hosts)), "{hosts:?}");
        }
        assert!(HostRule::Local.allows(&request("http://127.0.0.1:1/x", &["127.0.0.1:1"])));
        assert!(!HostRule::Local.allows(&request("http://evil.example/x", &["127.0.0.1:1"])));
    }
}
