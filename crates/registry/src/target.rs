//! Where a registry may send us: to a token service that it names, and by redirects. A hostile one would name places
//! that it cannot reach itself (this machine, the node's private network, a cloud's metadata service), and so these are
//! reached only from registries that are there as well, or where an [`AllowedTarget`] permits it. Pure. The one rule is in
//! [`RedirectingRegistry`]: [`RedirectingRegistry::check`] judges the text of a URL before a request,
//! [`RedirectingRegistry::choose`] the addresses of a name when the connection is made.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use url::Url;

use crate::address::{Class, Network, class_of, class_of_ip, is_localhost, literal, same_origin};
use crate::proxy::HostProxies;

/// A place that registries may send us to whatever the rules say: an origin, or all addresses of a network.
#[derive(Clone, PartialEq, Eq)]
pub struct AllowedTarget(Allowed);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Allowed {
    Origin(Url),
    Network(Network),
}

/// The reason why a text is no [`AllowedTarget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("want an origin such as http://storage.example:9000 or a network such as 10.0.0.0/8")]
pub struct AllowedTargetError;

impl FromStr for AllowedTarget {
    type Err = AllowedTargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains("://") {
            let url = Url::parse(text).map_err(|_| AllowedTargetError)?;
            let bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
            let anonymous = url.username().is_empty() && url.password().is_none();
            let http = matches!(url.scheme(), "http" | "https") && url.host().is_some();
            return if bare && anonymous && http { Ok(Self(Allowed::Origin(url))) } else { Err(AllowedTargetError) };
        }
        Network::parse(text).map(|network| Self(Allowed::Network(network))).ok_or(AllowedTargetError)
    }
}

impl fmt::Display for AllowedTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Allowed::Origin(url) => f.write_str(url.as_str().trim_end_matches('/')),
            Allowed::Network(network) => network.fmt(f),
        }
    }
}

impl fmt::Debug for AllowedTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl AllowedTarget {
    fn is_origin_of(&self, url: &Url) -> bool {
        matches!(&self.0, Allowed::Origin(origin) if same_origin(origin, url))
    }

    /// Returns true if a name that is about to be connected to is that of an allowed origin.
    fn is_host(&self, name: &str) -> bool {
        matches!(&self.0, Allowed::Origin(origin) if origin.host_str().is_some_and(|h| h.eq_ignore_ascii_case(name)))
    }

    fn has(&self, ip: IpAddr) -> bool {
        matches!(&self.0, Allowed::Network(network) if network.has(ip.to_canonical()))
    }
}

/// The message by which a registry sends us somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetSource {
    /// A challenge names the token service, which sees a secret.
    Realm,
    /// A redirect.
    Redirect,
}

/// The registry that sends us: its URL, and the address that it answered from, where that is known. Behind a proxy it
/// is not, and the registry counts as a public one.
#[derive(Clone, Copy)]
pub(crate) struct RedirectingRegistry<'a> {
    pub(crate) base: &'a Url,
    pub(crate) peer: Option<IpAddr>,
    pub(crate) allowed: &'a [AllowedTarget],
    pub(crate) proxies: &'a HostProxies,
}

impl RedirectingRegistry<'_> {
    fn class(&self) -> Class {
        self.peer.map_or_else(|| class_of(self.base), class_of_ip)
    }

    /// Decides whether an address may be connected to.
    ///
    /// # Errors
    /// The kind of address, as a text.
    fn may_reach(&self, ip: IpAddr) -> Result<(), &'static str> {
        if self.allowed.iter().any(|target| target.has(ip)) {
            return Ok(());
        }
        // The registry's own address, whatever it is: it is there already.
        let own = self.peer.or_else(|| literal(self.base)).map(|own| own.to_canonical());
        if own == Some(ip.to_canonical()) {
            return Ok(());
        }
        fits(self.class(), class_of_ip(ip))
    }

    /// Decides whether a URL that the registry names may be requested, as far as its text shows: HTTPS, or plain HTTP
    /// where the registry itself is that; no address that the registry is not near to; and no proxy, whose name would
    /// be a way around.
    ///
    /// # Errors
    /// The reason, as a text.
    pub(crate) fn check(&self, to: &Url, why: TargetSource) -> Result<(), String> {
        self.check_address(to, why)?;
        let at_proxy = to.host_str().is_some_and(|host| self.proxies.has_host(host)) && to.host() != self.base.host();
        if at_proxy && self.proxies.of(to).is_none() { Err("to a proxy".into()) } else { Ok(()) }
    }

    fn check_address(&self, to: &Url, why: TargetSource) -> Result<(), String> {
        let realm = why == TargetSource::Realm;
        if self.allowed.iter().any(|target| target.is_origin_of(to)) {
            return Ok(());
        }
        match (to.scheme(), self.base.scheme()) {
            ("https", _) | ("http", "http") => {}
            ("http", _) if realm => return Err("the token service is plain HTTP while the registry is HTTPS".into()),
            ("http", _) => return Err("from HTTPS to plain HTTP".into()),
            (other, _) if realm => return Err(format!("the token service has the scheme {other:?}")),
            (other, _) => return Err(format!("to the scheme {other:?}")),
        }
        if to.host().is_none() {
            return Err(if realm { "the token service has no host" } else { "to a URL without a host" }.into());
        }
        let judged = match literal(to) {
            Some(ip) => self.may_reach(ip),
            None if class_of(to) == Class::Loopback => fits(self.class(), Class::Loopback),
            None => Ok(()),
        };
        judged.map_err(|what| match why {
            TargetSource::Realm => format!("the token service is at {what} and the registry is not"),
            TargetSource::Redirect => format!("to {what}"),
        })
    }

    /// Returns the addresses of a name that may be connected to, of those that it has: the same rule as for URLs, at the
    /// moment of the connection. Names of proxies are the administrator's.
    ///
    /// # Errors
    /// None of them may be: what the first one is, as a text.
    pub(crate) fn choose(&self, name: &str, addresses: Vec<IpAddr>) -> Result<Vec<IpAddr>, &'static str> {
        let is_allowed = self.allowed.iter().any(|target| target.is_host(name));
        if is_localhost(name) || is_allowed || self.proxies.has_host(name) {
            // What is called so was judged by its text.
            return Ok(addresses);
        }
        let mut refused = None;
        let mut chosen = Vec::with_capacity(addresses.len());
        for ip in addresses {
            match self.may_reach(ip) {
                Ok(()) => chosen.push(ip),
                Err(what) => refused = refused.or(Some(what)),
            }
        }
        match refused {
            Some(what) if chosen.is_empty() => Err(what),
            _ => Ok(chosen),
        }
    }
}

/// Decides whether a registry of one class may send to an address of another: to its own class, and to public
/// addresses. A registry on loopback may be the end of a tunnel, and so proves no more about the local network than any
/// other.
fn fits(own: Class, to: Class) -> Result<(), &'static str> {
    match to {
        Class::Public => Ok(()),
        Class::Private | Class::Loopback if own == to => Ok(()),
        Class::Private => Err("a private address"),
        Class::Loopback => Err("this machine"),
        Class::Special => Err("a link-local or special address"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::proxy::ProxySettings;

    fn u(text: &str) -> Url {
        Url::parse(text).expect("parses")
    }

    fn from<'a>(base: &'a Url, peer: Option<&str>, allowed: &'a [AllowedTarget]) -> RedirectingRegistry<'a> {
        static NONE: LazyLock<HostProxies> = LazyLock::new(HostProxies::default);
        RedirectingRegistry { base, peer: peer.map(|ip| ip.parse().expect("an address")), allowed, proxies: &NONE }
    }

    fn allowed(texts: &[&str]) -> Vec<AllowedTarget> {
        texts.iter().map(|t| t.parse().expect("parses")).collect()
    }

    #[test]
    fn redirect_targets_are_checked_by_url() {
        let no = |what: &str| Some(what.to_owned());
        let cases = [
            ("https://r.example", "https://cdn.example/x", None),
            ("https://r.example", "http://cdn.example/x", no("from HTTPS to plain HTTP")),
            ("http://r.example", "http://cdn.example/x", None),
            ("https://r.example", "https://203.0.113.9/x", None),
            ("https://r.example", "https://10.1.2.3/x", no("to a private address")),
            ("https://r.example", "https://100.64.0.1/x", no("to a private address")),
            ("https://r.example", "https://[fd00::1]/x", no("to a private address")),
            ("https://r.example", "https://[::ffff:10.0.0.1]/x", no("to a private address")),
            ("https://r.example", "https://169.254.169.254/x", no("to a link-local or special address")),
            ("https://r.example", "https://[fe80::1]/x", no("to a link-local or special address")),
            ("https://r.example", "https://127.0.0.1/x", no("to this machine")),
            ("https://r.example", "https://0x7f000001/x", no("to this machine")),
            ("https://r.example", "https://localhost/x", no("to this machine")),
            ("https://10.0.0.2", "https://10.0.0.1/x", None),
            ("https://10.0.0.2", "https://127.0.0.1/x", no("to this machine")),
            ("https://10.0.0.2", "https://169.254.169.254/x", no("to a link-local or special address")),
            ("http://127.0.0.1:1", "http://127.0.0.1:2/x", None),
            ("http://localhost:1", "http://127.0.0.1:2/x", None),
            ("http://127.0.0.1:1", "http://localhost:2/x", None),
            ("http://127.0.0.1:1", "http://10.0.0.1/x", no("to a private address")),
            ("https://169.254.1.1", "https://169.254.1.1:444/x", None),
            ("https://169.254.1.1", "https://169.254.1.2/x", no("to a link-local or special address")),
            ("https://r.example", "file:///etc/passwd", no("to the scheme \"file\"")),
            ("https://r.example", "ftp://cdn.example/x", no("to the scheme \"ftp\"")),
        ];
        for (base, to, want) in cases {
            let base = u(base);
            let from = from(&base, None, &[]);
            assert_eq!(from.check(&u(to), TargetSource::Redirect).err(), want, "{base} → {to}");
            assert_eq!(from.check(&u(to), TargetSource::Realm).is_err(), want.is_some(), "{base} → {to}");
        }
    }

    #[test]
    fn the_address_of_the_registry_counts_and_not_its_name() {
        let base = u("https://r.example");
        let at = |peer: &'static str| from(&base, Some(peer), &[]);
        let private = u("https://10.1.2.3/x");
        assert!(at("10.9.9.9").check(&private, TargetSource::Redirect).is_ok());
        assert!(at("fd00::1").check(&private, TargetSource::Realm).is_ok());
        assert!(at("203.0.113.1").check(&private, TargetSource::Redirect).is_err());
        // A literal that is not the one it was reached at cannot be had; the peer decides all the same.
        let literal = u("https://10.0.0.2");
        assert!(from(&literal, Some("203.0.113.1"), &[]).check(&private, TargetSource::Redirect).is_err());
    }

    #[test]
    fn allowed_targets_match() {
        let base = u("https://r.example");
        let list = allowed(&["10.0.0.0/8", "fd00::/16", "http://storage.example:9000", "192.168.1.1"]);
        for (to, want) in [
            ("https://10.1.2.3/x", true),
            ("http://10.1.2.3/x", false),
            ("https://172.16.0.1/x", false),
            ("https://192.168.1.1/x", true),
            ("https://192.168.1.2/x", false),
            ("https://[fd00::7]/x", true),
            ("https://[fd01::7]/x", false),
            ("http://storage.example:9000/x", true),
            ("http://storage.example/x", false),
            ("http://other.example:9000/x", false),
        ] {
            assert_eq!(from(&base, None, &list).check(&u(to), TargetSource::Redirect).is_ok(), want, "{to}");
        }
        let all = allowed(&["0.0.0.0/0"]);
        assert!(from(&base, None, &all).check(&u("https://169.254.169.254/x"), TargetSource::Redirect).is_ok());
        assert!(from(&base, None, &all).check(&u("https://[fe80::1]/x"), TargetSource::Redirect).is_err());
    }

    #[test]
    fn names_are_judged_by_their_addresses() {
        let base = u("https://r.example");
        let far = from(&base, Some("203.0.113.1"), &[]);
        let ips = |list: &[&str]| -> Vec<IpAddr> { list.iter().map(|t| t.parse().expect("an address")).collect() };
        let get = |list: &[&str]| far.choose("cdn.example", ips(list));
        assert_eq!(get(&["203.0.113.7", "2001:db8::1"]), Ok(ips(&["203.0.113.7", "2001:db8::1"])));
        assert_eq!(get(&["10.0.0.1", "203.0.113.7"]), Ok(ips(&["203.0.113.7"])), "only what may be reached is left");
        assert_eq!(get(&["169.254.169.254"]), Err("a link-local or special address"));
        assert_eq!(get(&["::ffff:127.0.0.1"]), Err("this machine"));
        assert_eq!(get(&[]), Ok(vec![]));
        let list = allowed(&["http://cdn.example:9000"]);
        assert_eq!(
            RedirectingRegistry { allowed: &list, ..far }.choose("CDN.example", ips(&["10.0.0.1"])),
            Ok(ips(&["10.0.0.1"]))
        );
        let near = from(&base, Some("10.0.0.9"), &[]);
        assert_eq!(near.choose("cdn.example", ips(&["10.0.0.1"])), Ok(ips(&["10.0.0.1"])));
        assert_eq!(near.choose("cdn.example", ips(&["127.0.0.1"])), Err("this machine"));
    }

    #[test]
    fn proxies_are_not_redirect_targets() {
        let settings = ProxySettings {
            http: Some("http://proxy.example:3128".into()),
            no_proxy: Some("direct.example,proxy.example".into()),
            ..ProxySettings::default()
        };
        let (proxies, base) = (HostProxies::new(&settings).expect("valid"), u("http://r.example"));
        let list = allowed(&["http://proxy.example:3128"]);
        let from = RedirectingRegistry { proxies: &proxies, ..from(&base, Some("203.0.113.1"), &list) };
        assert_eq!(from.check(&u("http://proxy.example:3128/x"), TargetSource::Redirect), Err("to a proxy".into()));
        assert_eq!(from.check(&u("http://direct.example/x"), TargetSource::Redirect), Ok(()));
        let private: Vec<IpAddr> = vec!["10.0.0.1".parse().expect("an address")];
        assert_eq!(from.choose("proxy.example", private.clone()), Ok(private.clone()));
        assert!(from.choose("direct.example", private).is_err());
    }

    proptest::proptest! {
        #[test]
        fn never_panics(text in "[a-z0-9.:/\\[\\]@]{0,40}", a in proptest::prelude::any::<u128>()) {
            let _ = text.parse::<AllowedTarget>();
            let ip = IpAddr::from(a.to_be_bytes());
            let _ = class_of_ip(ip);
        }

        #[test]
        fn network_contains_its_addresses(a in proptest::prelude::any::<u32>(), b in proptest::prelude::any::<u32>(), length in 0u8..=32) {
            let target: AllowedTarget = format!("{}/{length}", IpAddr::from(a.to_be_bytes())).parse().expect("a network");
            let same = length == 0 || a >> (32 - length) == b >> (32 - length);
            proptest::prop_assert_eq!(target.has(IpAddr::from(b.to_be_bytes())), same);
        }
    }

    #[test]
    fn texts_of_allowed_targets() {
        for (text, shown) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.0.0.1", "10.0.0.1/32"),
            ("fd00::/8", "fd00::/8"),
            ("http://storage.example:9000", "http://storage.example:9000"),
            ("https://10.0.0.1/", "https://10.0.0.1"),
        ] {
            assert_eq!(text.parse::<AllowedTarget>().map(|t| t.to_string()), Ok(shown.to_owned()));
        }
        for bad in
            ["", "10.0.0.0/33", "fd00::/129", "storage.example", "ftp://x", "http://u@x", "http://x/y", "10.0.0.0/x"]
        {
            assert!(bad.parse::<AllowedTarget>().is_err(), "{bad}");
        }
    }
}
