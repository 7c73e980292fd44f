//! Proxies: the settings of the usual variables, and the proxy, if any, through which a URL is requested. The rules are
//! those of Go's `httpproxy`, which containerd, docker and the kubelet use: hosts, domains, addresses and networks,
//! with ports or without. Connects to nothing; `connector` asks.

use std::fmt;
use std::net::IpAddr;

use url::{Host, Url};

use crate::address::{Class, Network, class_of, literal};
use crate::error::Cause;

/// Proxies, from the environment or a configuration; this machine itself is never reached through one.
#[derive(Clone, Default)]
pub struct ProxySettings {
    /// For plain HTTP.
    pub http: Option<String>,
    /// For HTTPS.
    pub https: Option<String>,
    /// Hosts, domains and networks that are reached directly, with commas between them.
    pub no_proxy: Option<String>,
}

impl ProxySettings {
    /// Reads the usual variables, upper or lower case, with a lookup function of the caller (`HTTP_PROXY`, `HTTPS_PROXY`,
    /// `NO_PROXY`).
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let get = |name: &str| {
            lookup(name)
                .filter(|v| !v.is_empty())
                .or_else(|| lookup(&name.to_ascii_lowercase()))
                .filter(|v| !v.is_empty())
        };
        Self { http: get("HTTP_PROXY"), https: get("HTTPS_PROXY"), no_proxy: get("NO_PROXY") }
    }
}

impl fmt::Debug for ProxySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URLs may have a password in them.
        f.debug_struct("ProxySettings")
            .field("http", &self.http.is_some())
            .field("https", &self.https.is_some())
            .field("no_proxy", &self.no_proxy)
            .finish()
    }
}

/// Parsed [`ProxySettings`], or the one proxy of a host. The URLs may have passwords in them: not for printing.
#[derive(Default)]
pub(crate) struct HostProxies {
    /// The one for everything, where a host has its own.
    own: Option<Url>,
    http: Option<Url>,
    https: Option<Url>,
    never: Vec<NoProxyEntry>,
}

/// An entry of `NO_PROXY`: destinations that are reached directly.
#[derive(Debug, PartialEq, Eq)]
enum NoProxyEntry {
    /// Every destination.
    All,
    /// Addresses of a network, at this port or any.
    Network { network: Network, port: Option<u16> },
    /// Names that end with this suffix, which begins with a dot, and where `itself` also the name without the dot.
    Domain { suffix: String, itself: bool, port: Option<u16> },
}

impl HostProxies {
    pub(crate) fn new(settings: &ProxySettings) -> Result<Self, Cause> {
        let proxy = |text: &Option<String>, what: &str| {
            let Some(text) = text.as_deref().map(str::trim).filter(|text| !text.is_empty()) else { return Ok(None) };
            let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
            let url = Url::parse(&whole)
                .map_err(|_| Cause::Config(format!("the address of the {what} proxy is not a URL")))?;
            if !matches!(url.scheme(), "http" | "https" | "socks5" | "socks5h") || url.host().is_none() {
                return Err(Cause::Config(format!("the {what} proxy must be at an http, https or socks5 address")));
            }
            Ok(Some(as_go_does(url)))
        };
        Ok(Self {
            own: None,
            http: proxy(&settings.http, "HTTP")?,
            https: proxy(&settings.https, "HTTPS")?,
            never: settings.no_proxy.as_deref().unwrap_or_default().split(',').filter_map(never).collect(),
        })
    }

    /// Returns settings with one proxy for everything, this machine included: an administrator has written down that
    /// this host is behind it.
    pub(crate) fn own(proxy: Url) -> Self {
        Self { own: Some(proxy), ..Self::default() }
    }

    /// The proxy for a URL.
    pub(crate) fn of(&self, url: &Url) -> Option<&Url> {
        if self.own.is_some() {
            return self.own.as_ref();
        }
        let proxy = match url.scheme() {
            "http" => self.http.as_ref(),
            "https" => self.https.as_ref(),
            _ => None,
        }?;
        let direct = class_of(url) == Class::Loopback || self.never.iter().any(|never| never.is_for(url));
        (!direct).then_some(proxy)
    }

    /// Returns all proxies.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Url> {
        [&self.own, &self.http, &self.https].into_iter().flatten()
    }

    /// Returns true if a proxy is at this host.
    pub(crate) fn has_host(&self, host: &str) -> bool {
        self.all().filter_map(Url::host_str).any(|name| name.eq_ignore_ascii_case(host))
    }
}

/// Follows Go: a SOCKS proxy resolves all names itself, with either of its two schemes, and its default port is 1080.
pub(crate) fn as_go_does(mut url: Url) -> Url {
    if url.scheme().starts_with("socks5") {
        // Neither can fail: both schemes are of one kind, and there is a host.
        let _ = url.set_scheme("socks5h");
        let _ = url.set_port(url.port().or(Some(1080)));
    }
    url
}

/// Parses an entry of `NO_PROXY`. An entry that makes no sense is passed over, as Go does.
fn never(text: &str) -> Option<NoProxyEntry> {
    let text = text.trim().to_ascii_lowercase();
    if text == "*" {
        return Some(NoProxyEntry::All);
    }
    if text.contains('/') {
        return Network::parse(&text).map(|network| NoProxyEntry::Network { network, port: None });
    }
    let bare = |text: &str| text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
    if let Some(ip) = bare(&text) {
        return Some(NoProxyEntry::Network { network: Network::of(ip), port: None });
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, Some(port.parse::<u16>().ok()?)),
        None => (text.as_str(), None),
    };
    if let Some(ip) = bare(host) {
        return Some(NoProxyEntry::Network { network: Network::of(ip), port });
    }
    let host = host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host).trim_end_matches('.');
    if host.is_empty() {
        return None;
    }
    let itself = !host.starts_with('.');
    Some(NoProxyEntry::Domain { suffix: if itself { format!(".{host}") } else { host.to_owned() }, itself, port })
}

impl NoProxyEntry {
    fn is_for(&self, url: &Url) -> bool {
        let at = |port: &Option<u16>| port.is_none_or(|port| url.port_or_known_default() == Some(port));
        match (self, url.host()) {
            (Self::All, _) => true,
            (Self::Network { network, port }, _) => at(port) && literal(url).is_some_and(|ip| network.has(ip)),
            (Self::Domain { suffix, itself, port }, Some(Host::Domain(name))) => {
                let name = name.trim_end_matches('.').to_ascii_lowercase();
                at(port) && (name.ends_with(suffix.as_str()) || (*itself && name == suffix[1..]))
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_reached_without_a_proxy() {
        let cases: [(&str, &[&str], &[&str]); 17] = [
            ("", &[], &["https://r.example", "https://10.0.0.1"]),
            ("*", &["https://r.example", "https://10.0.0.1"], &[]),
            ("r.example", &["https://r.example", "https://a.r.example", "https://R.EXAMPLE."], &["https://xr.example"]),
            (".r.example", &["https://a.r.example"], &["https://r.example"]),
            ("*.r.example", &["https://a.r.example"], &["https://r.example"]),
            ("r.example:5000", &["https://r.example:5000"], &["https://r.example", "https://r.example:5001"]),
            ("r.example:443", &["https://r.example"], &["https://r.example:5000"]),
            ("10.0.0.1", &["https://10.0.0.1:5000"], &["https://10.0.0.2"]),
            ("10.0.0.1:5000", &["https://10.0.0.1:5000"], &["https://10.0.0.1"]),
            ("10.0.0.0/8", &["https://10.255.0.1"], &["https://11.0.0.1", "https://10.example"]),
            ("0.0.0.0/0", &["https://203.0.113.1"], &["https://[2001:db8::1]", "https://r.example"]),
            ("2001:db8::/32", &["https://[2001:db8::1]"], &["https://[2001:db9::1]"]),
            ("[2001:db8::1]:5000", &["https://[2001:db8::1]:5000"], &["https://[2001:db8::1]"]),
            ("2001:db8::1", &["https://[2001:db8::1]"], &["https://[2001:db8::2]"]),
            (" a.example , B.example ", &["https://a.example", "https://b.example"], &["https://c.example"]),
            ("a.example,,/,:,:80,10.0.0.0/33,x:y", &["https://a.example"], &["https://x", "https://10.0.0.1"]),
            ("example", &["https://r.example"], &["https://r.examples"]),
        ];
        for (list, direct, by_proxy) in cases {
            let settings =
                ProxySettings { http: None, https: Some("proxy.example:3128".into()), no_proxy: Some(list.to_owned()) };
            let proxies = HostProxies::new(&settings).expect("settings");
            let through = |url: &&str| proxies.of(&Url::parse(url).expect("a URL")).map(Url::as_str);
            for url in direct {
                assert_eq!(through(url), None, "{list:?}: {url}");
            }
            for url in by_proxy {
                assert_eq!(through(url), Some("http://proxy.example:3128/"), "{list:?}: {url}");
            }
            // This machine is never proxied, whatever the list contains.
            for url in ["https://localhost", "https://127.1.2.3:5000", "https://[::1]:5000", "https://a.localhost"] {
                assert_eq!(through(&url), None, "{list:?}: {url}");
            }
        }
    }

    #[test]
    fn each_scheme_has_its_own_proxy() {
        let settings = ProxySettings {
            http: Some("http://plain.example".into()),
            https: Some("https://u:p@secure.example".into()),
            no_proxy: None,
        };
        let proxies = HostProxies::new(&settings).expect("settings");
        let through = |url: &str| proxies.of(&Url::parse(url).expect("a URL")).and_then(Url::host_str);
        assert_eq!(through("http://r.example"), Some("plain.example"));
        assert_eq!(through("https://r.example"), Some("secure.example"));
        assert_eq!(through("ftp://r.example"), None);
        assert!(proxies.has_host("SECURE.example") && !proxies.has_host("r.example"));
        for (text, want) in [
            ("socks5://u:p@s.example", "socks5h://u:p@s.example:1080"),
            ("socks5h://10.0.0.1:9050", "socks5h://10.0.0.1:9050"),
            ("SOCKS5://[2001:db8::1]", "socks5h://[2001:db8::1]:1080"),
            ("s.example", "http://s.example/"),
        ] {
            let settings = ProxySettings { https: Some(text.into()), ..ProxySettings::default() };
            let proxies = HostProxies::new(&settings).expect(text);
            assert_eq!(proxies.of(&Url::parse("https://r.example").expect("a URL")).map(Url::as_str), Some(want));
        }
        for bad in ["socks4://u:secret@p", "ftp://p", "socks5://", "http://", "http://u:secret@["] {
            let settings = ProxySettings { https: Some(bad.into()), ..ProxySettings::default() };
            let error = HostProxies::new(&settings).err().expect(bad).to_string();
            assert!(error.contains("HTTPS proxy") && !error.contains("secret"), "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn never_panics(text in "[a-z0-9.:/\\[\\]*,]{0,40}") {
            let _ = text.split(',').filter_map(never).collect::<Vec<_>>();
        }
    }
}
