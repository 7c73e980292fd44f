//! [`Namespace`]: the hosts of a registry domain in order of preference, with the settings of each, and the defaults
//! for a domain without configuration; [`HostsError`] where that configuration is wrong. Plain values; [`crate::hosts`] and
//! the caller's loader make them.

use std::fmt;
use std::io;
use std::time::Duration;

use url::Url;

use crate::address::same_origin;
use crate::redact;

/// How long making a connection may take, unless configured.
pub(crate) const DIAL_TIMEOUT: Duration = Duration::from_secs(30);

/// The operations that a host may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostCapabilities {
    /// Content by digest.
    pub pull: bool,
    /// Tags.
    pub resolve: bool,
    /// Uploads.
    pub push: bool,
}

impl Default for HostCapabilities {
    fn default() -> Self {
        Self { pull: true, resolve: true, push: true }
    }
}

/// The TLS settings of a host.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct TlsConfig {
    /// Certificate authorities in addition to the system's, each a PEM text of one or more certificates.
    pub ca_pem: Vec<Vec<u8>>,
    /// Client certificate chains and their keys, PEM.
    pub client_identity_pem: Vec<(Vec<u8>, Vec<u8>)>,
    /// True if any certificate is accepted.
    pub skip_verify: bool,
}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConfig")
            .field("ca_pem", &self.ca_pem.len())
            .field("client_identity_pem", &self.client_identity_pem.len())
            .field("skip_verify", &self.skip_verify)
            .finish()
    }
}

/// Everything about one origin of a registry namespace.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct HostConfig {
    /// `scheme://host[:port][/prefix]`; see [`HostConfig::api_root`].
    pub base: Url,
    /// The operations that it may be used for.
    pub capabilities: HostCapabilities,
    /// TLS settings; of no meaning for plain HTTP.
    pub tls: TlsConfig,
    /// Headers that go with every request to this origin. Their values are treated as secrets.
    pub headers: Vec<(String, String)>,
    /// True if `base` is the whole prefix already, without `/v2` after it.
    pub override_path: bool,
    /// How long making a connection may take.
    pub dial_timeout: Duration,
    /// The proxy for this host and its redirects, instead of that of the environment. The URL may contain a password.
    pub proxy: Option<Url>,
    /// True for the registry itself, which gets the pull's credential and no `ns` parameter.
    pub upstream: bool,
    /// True if the scheme of `base` is no more than the likelier one: where the server turns out to speak the other of HTTP and
    /// HTTPS, it is asked in that, at the same port. No credential is sent before it is known.
    pub either_scheme: bool,
}

impl HostConfig {
    /// A host with nothing special about it.
    #[must_use]
    pub fn new(base: Url, upstream: bool) -> Self {
        Self {
            base,
            capabilities: HostCapabilities::default(),
            tls: TlsConfig::default(),
            headers: Vec::new(),
            override_path: false,
            dial_timeout: DIAL_TIMEOUT,
            proxy: None,
            upstream,
            either_scheme: false,
        }
    }

    /// The same host in the other of HTTP and HTTPS; `None` where its scheme is certain.
    pub(crate) fn in_other_scheme(&self) -> Option<Self> {
        let mut base = self.base.clone();
        let other = if base.scheme() == "https" { "http" } else { "https" };
        let changed = self.either_scheme && base.set_scheme(other).is_ok();
        changed.then(|| Self { base, either_scheme: false, ..self.clone() })
    }

    /// Returns true if this host is the same endpoint as another one and leads nowhere else: the same requests would be sent, over a
    /// connection that trusts no one more.
    pub(crate) fn adds_nothing_to(&self, other: &Self) -> bool {
        let (own, theirs) = (&self.tls, &other.tls);
        let trusts_no_more = self.base.scheme() == "http" && !self.either_scheme
            || own.client_identity_pem == theirs.client_identity_pem
                && own.ca_pem.iter().all(|ca| theirs.ca_pem.contains(ca))
                && (theirs.skip_verify || !own.skip_verify);
        same_origin(&self.base, &other.base)
            && self.api_root() == other.api_root()
            && self.headers == other.headers
            && self.proxy == other.proxy
            && trusts_no_more
            && (other.either_scheme || !self.either_scheme)
    }

    /// Returns the path of the API, without a trailing slash: `/v2` is appended to `base` unless it is
    /// there already or `override_path` marks `base` as complete.
    #[must_use]
    pub fn api_root(&self) -> String {
        let path = self.base.path().trim_end_matches('/');
        if self.override_path || path.ends_with("/v2") { path.to_owned() } else { format!("{path}/v2") }
    }

    /// `host[:port]`, as errors name it.
    #[must_use]
    pub fn name(&self) -> String {
        redact::host(&self.base)
    }
}

impl fmt::Debug for HostConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostConfig")
            .field("base", &redact::url(&self.base))
            .field("capabilities", &self.capabilities)
            .field("tls", &self.tls)
            .field("headers", &self.headers.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .field("override_path", &self.override_path)
            .field("dial_timeout", &self.dial_timeout)
            .field("proxy", &self.proxy.as_ref().map(redact::host))
            .field("upstream", &self.upstream)
            .field("either_scheme", &self.either_scheme)
            .finish()
    }
}

/// The hosts of one registry domain in order of preference: mirrors first, the registry itself last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// The hosts.
    pub hosts: Vec<HostConfig>,
}

impl Namespace {
    /// The hosts of a domain that nothing is configured for: HTTPS, with `docker.io` at `registry-1.docker.io`.
    ///
    /// Loopback names and addresses (`localhost`, 127.0.0.0/8, `::1`) with a port other than 443 are spoken to in plain
    /// HTTP, as all container tools do, and in HTTPS where they turn out to speak that; with port 443 in HTTPS; without a
    /// port in HTTPS first and then in plain HTTP.
    ///
    /// # Errors
    /// [`HostsError::Domain`] when the domain is not `host[:port]`.
    pub fn default_for(domain: &str) -> Result<Self, HostsError> {
        let base = |scheme: &str| -> Result<Url, HostsError> {
            let bad = || HostsError::Domain { domain: redact::text(domain, 200) };
            let name = if domain == "docker.io" { "registry-1.docker.io" } else { domain };
            let url = Url::parse(&format!("{scheme}://{name}/")).map_err(|_| bad())?;
            let plain = url.username().is_empty()
                && url.password().is_none()
                && url.path() == "/"
                && url.query().is_none()
                && url.fragment().is_none()
                && url.host().is_some();
            if plain { Ok(url) } else { Err(bad()) }
        };
        // By the rule that decides where a name keeps its port 443: else leaving it out would lead elsewhere.
        let schemes: &[&str] = match (oci::is_loopback_host(domain), explicit_port(domain)) {
            (true, Some(443)) => &["https"],
            (true, Some(_)) => &["http"],
            (true, None) => &["https", "http"],
            _ => &["https"],
        };
        let host = |scheme: &&str| -> Result<HostConfig, HostsError> {
            let base = base(scheme)?;
            // Port 80, which URLs leave out, would become port 443.
            let either_scheme = base.scheme() == "http" && base.port().is_some();
            Ok(HostConfig { either_scheme, ..HostConfig::new(base, true) })
        };
        Ok(Self { hosts: schemes.iter().map(host).collect::<Result<Vec<_>, HostsError>>()? })
    }
}

/// The port that the domain's text has.
pub(crate) fn explicit_port(domain: &str) -> Option<u16> {
    let after = match domain.rfind(']') {
        Some(at) => &domain[at + 1..],
        None => domain,
    };
    after.rsplit_once(':').and_then(|(_, port)| port.parse().ok())
}

/// An error in the configuration of a registry's hosts.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// The text is no TOML.
    #[error("line {line}: {message}")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// The TOML parser's message.
        message: String,
    },
    /// A key is unknown, or its value is of no use.
    #[error("line {line}: {key}: {message}")]
    Key {
        /// Line, from 1.
        line: usize,
        /// The key with its tables, for example `host."https://m.example".ca`.
        key: String,
        /// The fault, as a text.
        message: String,
    },
    /// A file that the text names cannot be read or used.
    #[error("{key}: {path}: {message}")]
    Certificate {
        /// The key that names it.
        key: String,
        /// The path as it stands in the text.
        path: String,
        /// The fault, as a text.
        message: String,
    },
    /// The domain is not `host[:port]`.
    #[error("{domain:?} is not a registry host")]
    Domain {
        /// The text.
        domain: String,
    },
    /// A loader could not read a file or directory.
    #[error("{path}: {source}")]
    Read {
        /// The file or directory.
        path: String,
        /// The I/O error.
        source: io::Error,
    },
    /// An error with the file that it is in.
    #[error("{path}: {source}")]
    In {
        /// The file.
        path: String,
        /// The error.
        source: Box<HostsError>,
    },
}

impl HostsError {
    /// Wraps the error with the path of the file that it is about.
    #[must_use]
    pub fn in_file(self, path: impl Into<String>) -> Self {
        Self::In { path: path.into(), source: Box::new(self) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults() {
        let cases: [(&str, &[&str]); 10] = [
            ("docker.io", &["https://registry-1.docker.io/"]),
            ("quay.io", &["https://quay.io/"]),
            ("r.example:5000", &["https://r.example:5000/"]),
            ("10.0.0.1:5000", &["https://10.0.0.1:5000/"]),
            ("127.0.0.1:5000", &["http://127.0.0.1:5000/"]),
            ("127.1.2.3:80", &["http://127.1.2.3/"]),
            ("[::1]:5000", &["http://[::1]:5000/"]),
            ("localhost:443", &["https://localhost/"]),
            ("localhost", &["https://localhost/", "http://localhost/"]),
            ("localhost.example:5000", &["https://localhost.example:5000/"]),
        ];
        for (domain, want) in cases {
            let got: Vec<String> =
                Namespace::default_for(domain).expect(domain).hosts.iter().map(|h| h.base.to_string()).collect();
            assert_eq!(got, want, "{domain}");
        }
        for bad in ["", "a/b", "u@h", "h?x", "h:port", "a b"] {
            assert!(Namespace::default_for(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn normalised_host_has_the_same_endpoint() {
        let hosts = [
            "docker.io",
            "quay.io",
            "localhost",
            "a.localhost",
            "127.0.0.1",
            "10.0.0.1",
            "[::1]",
            "[2001:db8::1]",
            "[64:ff9b::7f00:1]",
            "[2002:7f00:1::]",
            "url",
        ];
        for host in hosts {
            for port in ["", ":443", ":80", ":5000"] {
                let domain = format!("{host}{port}");
                let normal = oci::normal_host(&domain).expect("a host");
                let places = |domain: &str| -> Vec<Url> {
                    Namespace::default_for(domain).expect("a domain").hosts.into_iter().map(|host| host.base).collect()
                };
                // By port 443 of the name that people know, too.
                let before = if domain == "docker.io:443" { places("docker.io") } else { places(&domain) };
                assert_eq!(places(&normal), before, "{domain} and {normal}");
            }
        }
    }

    #[test]
    fn repeated_endpoints() {
        let host = |url: &str| HostConfig::new(Url::parse(url).expect("parses"), true);
        let plain = host("https://r.example");
        type Change = fn(&mut HostConfig);
        let same: [(&str, HostConfig); 3] = [
            ("itself", plain.clone()),
            ("another spelling", host("https://R.example:443/")),
            ("the API's root written out", host("https://r.example/v2")),
        ];
        for (name, other) in same {
            assert!(other.adds_nothing_to(&plain) && plain.adds_nothing_to(&other), "{name}");
        }
        for other in ["http://r.example", "https://r.example:5000", "https://r.example/prefix", "https://s.example"] {
            assert!(!host(other).adds_nothing_to(&plain), "{other}");
        }
        // The more trusting one adds something to the other, and the other nothing to it.
        let trusts: [(&str, Change); 2] =
            [("ca", |h| h.tls.ca_pem.push(b"pem".to_vec())), ("skip_verify", |h| h.tls.skip_verify = true)];
        for (name, change) in trusts {
            let mut other = plain.clone();
            change(&mut other);
            assert!(plain.adds_nothing_to(&other) && !other.adds_nothing_to(&plain), "{name}");
        }
        // What changes the answers, or the way to them, counts in both directions.
        let differs: [(&str, Change); 4] = [
            ("headers", |h| h.headers.push(("x".into(), "y".into()))),
            ("client", |h| h.tls.client_identity_pem.push((b"c".to_vec(), b"k".to_vec()))),
            ("proxy", |h| h.proxy = Url::parse("http://proxy.example").ok()),
            ("override_path", |h| h.override_path = true),
        ];
        for (name, change) in differs {
            let mut other = plain.clone();
            change(&mut other);
            assert!(!plain.adds_nothing_to(&other) && !other.adds_nothing_to(&plain), "{name}");
        }
        let mut asked_once = plain.clone();
        asked_once.capabilities.push = false;
        assert!(plain.adds_nothing_to(&asked_once), "capabilities are compared by who asks");
    }

    #[test]
    fn api_roots() {
        let root = |url: &str, override_path: bool| {
            let mut host = HostConfig::new(Url::parse(url).expect("parses"), true);
            host.override_path = override_path;
            host.api_root()
        };
        assert_eq!(root("https://h", false), "/v2");
        assert_eq!(root("https://h/v2/", false), "/v2");
        assert_eq!(root("https://h/proxy", false), "/proxy/v2");
        assert_eq!(root("https://h/proxy/", true), "/proxy");
        assert_eq!(root("https://h", true), "");
    }

    #[test]
    fn debug_hides_headers_and_keys() {
        let mut host = HostConfig::new(Url::parse("https://h").expect("parses"), true);
        host.headers.push(("x-key".into(), "swordfish".into()));
        host.tls.client_identity_pem.push((b"cert".to_vec(), b"swordfish".to_vec()));
        host.proxy = Url::parse("http://ada:swordfish@proxy").ok();
        assert!(!format!("{host:?}").contains("swordfish"), "{host:?}");
    }
}
