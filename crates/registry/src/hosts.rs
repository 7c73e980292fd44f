//! containerd's `hosts.toml`, read strictly: an unknown key or a value of the wrong type is an error that names the
//! line and the key, where containerd ignores the file. Text in, values out; certificates stay paths until the caller,
//! which knows the directory, passes their bytes.
//!
//! Meaning as in containerd's `docs/hosts.md`: hosts in file order, then the `server` (the registry's own address when
//! absent). Three differences: TLS settings at a plain `http://` address have no effect (containerd tries HTTPS first),
//! a credential without a server address is for the registry itself, not for its mirrors, and a `proxy` speaks HTTP.

use std::io;
use std::time::Duration;

use base::GoDuration;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use url::Url;

use crate::namespace::{DIAL_TIMEOUT, HostCapabilities, HostConfig, HostsError, Namespace, TlsConfig};
use crate::proxy::as_go_does;
use crate::redact;

/// A parsed `hosts.toml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostsFile {
    /// The root's own settings; its URL is `server`, where that is given.
    server: HostTable,
    hosts: Vec<HostTable>,
}

#[derive(Clone, Default, PartialEq, Eq)]
struct HostTable {
    /// Name of the table in errors.
    table: String,
    url: Option<Url>,
    capabilities: Option<HostCapabilities>,
    ca: Vec<String>,
    /// Certificate and key; the key is in the certificate's file where there is none.
    client: Vec<(String, Option<String>)>,
    skip_verify: bool,
    headers: Vec<(String, String)>,
    override_path: bool,
    dial_timeout: Option<Duration>,
    /// The proxy's URL, which may have a password in it.
    proxy: Option<Url>,
}

impl std::fmt::Debug for HostTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let url = self.url.as_ref().map(redact::url);
        f.debug_struct("Entry").field("table", &self.table).field("url", &url).finish_non_exhaustive()
    }
}

/// Parses the text of a `hosts.toml`.
///
/// # Errors
/// [`HostsError::Syntax`] or [`HostsError::Key`].
pub fn parse(text: &str) -> Result<HostsFile, HostsError> {
    let root = DeTable::parse(text).map_err(|e| HostsError::Syntax {
        line: e.span().map_or(1, |span| line_of(text, span.start)),
        message: redact::text(e.message(), 200),
    })?;
    let cx = HostsParser { text };
    let mut file = HostsFile { server: HostTable::default(), hosts: Vec::new() };
    for (key, value) in root.get_ref() {
        match key.get_ref().as_ref() {
            "server" => {
                let text = cx.string(value, "server")?;
                if !text.is_empty() {
                    file.server.url = Some(cx.url(value, "server", text)?);
                }
            }
            "host" => {
                for (url, table) in cx.table(value, "host")? {
                    let name = format!("host.{:?}", redact::text(url.get_ref(), 200));
                    let mut entry = HostTable { table: name.clone(), ..HostTable::default() };
                    entry.url = Some(cx.url(url, &name, url.get_ref())?);
                    for (key, value) in cx.table(table, &name)? {
                        let path = format!("{name}.{}", key.get_ref());
                        if !cx.setting(&mut entry, key.get_ref(), value, &path)? {
                            return Err(cx.key(key, &path, "unknown key"));
                        }
                    }
                    file.hosts.push(entry);
                }
            }
            name => {
                if !cx.setting(&mut file.server, name, value, name)? {
                    return Err(cx.key(key, name, "unknown key"));
                }
            }
        }
    }
    Ok(file)
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1
}

struct HostsParser<'t> {
    text: &'t str,
}

impl HostsParser<'_> {
    fn key<T>(&self, at: &Spanned<T>, key: &str, message: impl Into<String>) -> HostsError {
        HostsError::Key {
            line: line_of(self.text, at.span().start),
            key: redact::text(key, 300),
            message: message.into(),
        }
    }

    fn wrong(&self, value: &Spanned<DeValue<'_>>, key: &str, want: &str) -> HostsError {
        self.key(value, key, format!("want {want}, not {}", value.get_ref().type_str()))
    }

    fn table<'v>(&self, value: &'v Spanned<DeValue<'v>>, key: &str) -> Result<&'v DeTable<'v>, HostsError> {
        value.get_ref().as_table().ok_or_else(|| self.wrong(value, key, "a table"))
    }

    fn string<'v>(&self, value: &'v Spanned<DeValue<'_>>, key: &str) -> Result<&'v str, HostsError> {
        value.get_ref().as_str().ok_or_else(|| self.wrong(value, key, "a string"))
    }

    fn boolean(&self, value: &Spanned<DeValue<'_>>, key: &str) -> Result<bool, HostsError> {
        value.get_ref().as_bool().ok_or_else(|| self.wrong(value, key, "true or false"))
    }

    /// A string, or a list of strings.
    fn strings(&self, value: &Spanned<DeValue<'_>>, key: &str) -> Result<Vec<String>, HostsError> {
        let Some(list) = value.get_ref().as_array() else {
            let text =
                value.get_ref().as_str().ok_or_else(|| self.wrong(value, key, "a string or a list of strings"))?;
            return Ok(vec![text.to_owned()]);
        };
        list.iter().map(|item| Ok(self.string(item, key)?.to_owned())).collect()
    }

    fn url<T>(&self, at: &Spanned<T>, key: &str, text: &str) -> Result<Url, HostsError> {
        let whole = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
        let mut url = Url::parse(&whole).map_err(|e| self.key(at, key, format!("not a URL: {e}")))?;
        let bad = if !matches!(url.scheme(), "http" | "https") {
            "the scheme must be http or https"
        } else if url.host().is_none() {
            "the URL has no host"
        } else if !url.username().is_empty() || url.password().is_some() {
            "the URL must not have a user or password: use a header"
        } else if url.query().is_some() || url.fragment().is_some() {
            "the URL must not have a query or fragment"
        } else {
            // The name that people know leads to a web site.
            if matches!(url.host_str(), Some("docker.io" | "index.docker.io")) {
                url.set_host(Some("registry-1.docker.io")).map_err(|e| self.key(at, key, e.to_string()))?;
            }
            return Ok(url);
        };
        Err(self.key(at, key, bad))
    }

    /// Takes in one setting. Returns false when there is none of this name.
    fn setting(
        &self,
        entry: &mut HostTable,
        name: &str,
        value: &Spanned<DeValue<'_>>,
        key: &str,
    ) -> Result<bool, HostsError> {
        match name {
            "capabilities" => {
                let mut got = HostCapabilities { pull: false, resolve: false, push: false };
                let list = value.get_ref().as_array().ok_or_else(|| self.wrong(value, key, "a list of strings"))?;
                for item in list {
                    match self.string(item, key)?.to_ascii_lowercase().as_str() {
                        "pull" => got.pull = true,
                        "resolve" => got.resolve = true,
                        "push" => got.push = true,
                        "referrers" => {}
                        other => {
                            let known = "pull, resolve, push, referrers";
                            let other = redact::text(other, 100);
                            return Err(self.key(
                                item,
                                key,
                                format!("unknown capability {other:?}; known are {known}"),
                            ));
                        }
                    }
                }
                // An empty list is none, for containerd.
                entry.capabilities = (!list.is_empty()).then_some(got);
            }
            "ca" => entry.ca = self.strings(value, key)?,
            "client" => entry.client = self.client(value, key)?,
            "skip_verify" => entry.skip_verify = self.boolean(value, key)?,
            "override_path" => entry.override_path = self.boolean(value, key)?,
            "header" => {
                for (name, values) in self.table(value, key)? {
                    let path = format!("{key}.{}", name.get_ref());
                    if http::HeaderName::try_from(name.get_ref().as_ref()).is_err() {
                        return Err(self.key(name, &path, "not a header name"));
                    }
                    for text in self.strings(values, &path)? {
                        if http::HeaderValue::try_from(&text).is_err() {
                            return Err(self.key(values, &path, "not a header value"));
                        }
                        entry.headers.push((name.get_ref().to_string(), text));
                    }
                }
            }
            "dial_timeout" => {
                let text = self.string(value, key)?;
                if text.is_empty() {
                    return Ok(true);
                }
                let timeout = GoDuration::parse_unsigned(text).filter(|d| !d.is_zero());
                let bad = || self.key(value, key, "want a duration such as \"10s\" or \"1m30s\"");
                entry.dial_timeout = Some(timeout.ok_or_else(bad)?);
            }
            "proxy" => {
                let text = self.string(value, key)?;
                if !text.is_empty() {
                    entry.proxy = Some(proxy(text).map_err(|what| self.key(value, key, what))?);
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A file with certificate and key, a list of such files, or a list with pairs of files.
    fn client(&self, value: &Spanned<DeValue<'_>>, key: &str) -> Result<Vec<(String, Option<String>)>, HostsError> {
        if let Some(path) = value.get_ref().as_str() {
            return Ok(vec![(path.to_owned(), None)]);
        }
        let want = "a string, a list of strings or a list of [certificate, key] pairs";
        let list = value.get_ref().as_array().ok_or_else(|| self.wrong(value, key, want))?;
        let mut out = Vec::new();
        for item in list {
            if let Some(path) = item.get_ref().as_str() {
                out.push((path.to_owned(), None));
                continue;
            }
            let pair = item.get_ref().as_array().ok_or_else(|| self.wrong(item, key, want))?;
            let pair: Vec<&Spanned<DeValue<'_>>> = pair.iter().collect();
            match pair.as_slice() {
                [both] => out.push((self.string(both, key)?.to_owned(), None)),
                [certificate, private] => {
                    let private = self.string(private, key)?;
                    let private = (!private.is_empty()).then(|| private.to_owned());
                    out.push((self.string(certificate, key)?.to_owned(), private));
                }
                other => {
                    return Err(self.key(
                        item,
                        key,
                        format!("want a certificate and a key, not {} items", other.len()),
                    ));
                }
            }
        }
        Ok(out)
    }
}

/// Parses the address of a proxy. Errors do not repeat it, since it may contain a password.
fn proxy(text: &str) -> Result<Url, &'static str> {
    let Ok(url) = Url::parse(text) else { return Err("not a URL such as \"http://proxy.example:3128\"") };
    match url.scheme() {
        "http" | "https" | "socks5" | "socks5h" => {}
        _ => return Err("the scheme must be http, https or socks5"),
    }
    if url.host().is_none() {
        return Err("the URL has no host");
    }
    if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return Err("the URL must not have a path, query or fragment");
    }
    Ok(as_go_does(url))
}

impl HostsFile {
    /// The hosts for `domain`, with the files that the text names read by `read`, which knows where relative paths
    /// begin.
    ///
    /// # Errors
    /// [`HostsError::Certificate`] for a file that cannot be read or has no certificate or key,
    /// [`HostsError::Domain`].
    pub fn into_namespace(
        self,
        domain: &str,
        read: &mut dyn FnMut(&str) -> io::Result<Vec<u8>>,
    ) -> Result<Namespace, HostsError> {
        let defaults = Namespace::default_for(domain)?;
        let is_upstream = |url: &Url| {
            defaults.hosts.iter().any(|d| {
                d.base.host() == url.host()
                    // The same port, or the default port of the scheme if the domain names none.
                    && (d.base.port_or_known_default() == url.port_or_known_default()
                        || (d.base.port().is_none() && url.port().is_none()))
            })
        };
        let mut hosts = Vec::new();
        for mut entry in self.hosts {
            if let Some(url) = entry.url.take() {
                let upstream = is_upstream(&url);
                // The table of the registry itself, whose scheme is a guess, too: the server at the end adds nothing to it.
                let is_guess = self.server.url.is_none() && entry.headers.is_empty();
                let either_scheme = is_guess && defaults.hosts.iter().any(|d| d.either_scheme && d.base == url);
                let host = entry.into_host(url, upstream, read)?;
                hosts.push(HostConfig { either_scheme, ..host });
            }
        }
        let mut server = self.server;
        match server.url.take() {
            Some(url) => {
                let upstream = is_upstream(&url);
                hosts.push(server.into_host(url, upstream, read)?);
            }
            None => {
                for default in &defaults.hosts {
                    // Configured headers may be secrets, which are not sent to find out.
                    let either_scheme = default.either_scheme && server.headers.is_empty();
                    let host = server.clone().into_host(default.base.clone(), true, read)?;
                    hosts.push(HostConfig { either_scheme, ..host });
                }
            }
        }
        Ok(Namespace { hosts })
    }
}

impl HostTable {
    fn into_host(
        self,
        url: Url,
        upstream: bool,
        read: &mut dyn FnMut(&str) -> io::Result<Vec<u8>>,
    ) -> Result<HostConfig, HostsError> {
        let name = |key: &str| if self.table.is_empty() { key.to_owned() } else { format!("{}.{key}", self.table) };
        let fail = |key: &str, path: &str, message: String| HostsError::Certificate {
            key: name(key),
            path: path.to_owned(),
            message,
        };
        let mut tls = TlsConfig { skip_verify: self.skip_verify, ..TlsConfig::default() };
        for path in &self.ca {
            let pem = read(path).map_err(|e| fail("ca", path, e.to_string()))?;
            let mut count = 0;
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                certificate.map_err(|e| fail("ca", path, format!("not a PEM certificate: {e}")))?;
                count += 1;
            }
            if count == 0 {
                return Err(fail("ca", path, "has no PEM certificate".into()));
            }
            tls.ca_pem.push(pem);
        }
        for (certificate, private) in &self.client {
            let chain = read(certificate).map_err(|e| fail("client", certificate, e.to_string()))?;
            let key = match private {
                Some(path) => read(path).map_err(|e| fail("client", path, e.to_string()))?,
                None => chain.clone(),
            };
            crate::tls::check_identity(&chain, &key)
                .map_err(|message| fail("client", private.as_ref().unwrap_or(certificate), message))?;
            tls.client_identity_pem.push((chain, key));
        }
        Ok(HostConfig {
            base: url,
            capabilities: self.capabilities.unwrap_or_default(),
            tls,
            headers: self.headers,
            override_path: self.override_path,
            dial_timeout: self.dial_timeout.unwrap_or(DIAL_TIMEOUT),
            proxy: self.proxy,
            upstream,
            either_scheme: false,
        })
    }
}

#[cfg(test)]
#[path = "hosts_tests.rs"]
mod tests;
