//! [`StreamAddress`]: where the streams of a runtime are, from the URL that it returns for Exec, Attach and PortForward. Opens
//! no connection. Called by the kubelet's port and by the commands of the binary that stream by themselves.

use url::{Host, Url};

/// Host, port and target of streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamAddress {
    /// Name or address; an IPv6 address without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Path and query.
    pub target: String,
}

/// The URL of a runtime leads to no streams.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the runtime answers the URL {url:?}: {why}")]
pub struct StreamAddressError {
    url: String,
    why: String,
}

impl StreamAddress {
    /// Reads a URL. A runtime that listens everywhere is on this machine: its endpoint is a socket here.
    ///
    /// # Errors
    /// The URL cannot be read, or names another protocol than HTTP.
    pub fn parse(url: &str) -> Result<Self, StreamAddressError> {
        let failed = |why: String| StreamAddressError { url: url.to_owned(), why };
        let parsed = Url::parse(url).map_err(|error| failed(error.to_string()))?;
        match parsed.scheme() {
            "http" => {}
            // The runtime's certificate is self-signed and cannot be verified.
            "https" => return Err(failed("streams over TLS (enable_tls_streaming) are not supported".to_owned())),
            other => return Err(failed(format!("{other} is not known"))),
        }
        let host = match parsed.host() {
            Some(Host::Ipv4(ip)) if ip.is_unspecified() => "127.0.0.1".to_owned(),
            Some(Host::Ipv6(ip)) if ip.is_unspecified() => "127.0.0.1".to_owned(),
            Some(Host::Ipv6(ip)) => ip.to_string(),
            Some(host) => host.to_string(),
            None => return Err(failed("it has no host".to_owned())),
        };
        let port = parsed.port_or_known_default().ok_or_else(|| failed("it has no port".to_owned()))?;
        let path = parsed.path();
        let target = parsed.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
        Ok(Self { host, port, target })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_where_the_runtime_says() {
        for (url, want) in [
            ("http://127.0.0.1:41/exec/x", Ok("127.0.0.1 41 /exec/x")),
            ("http://[::]:41/exec/x?y=z", Ok("127.0.0.1 41 /exec/x?y=z")),
            ("http://0.0.0.0:41/exec/x", Ok("127.0.0.1 41 /exec/x")),
            ("http://[fe80::1]:41/exec/x", Ok("fe80::1 41 /exec/x")),
            ("http://10.0.0.1/exec/x", Ok("10.0.0.1 80 /exec/x")),
            ("https://h/exec/x", Err("streams over TLS")),
            ("ftp://h/exec/x", Err("ftp is not known")),
            ("/exec/x", Err("relative URL")),
        ] {
            let parsed = StreamAddress::parse(url).map(|at| format!("{} {} {}", at.host, at.port, at.target));
            match (parsed, want) {
                (Ok(address), Ok(want)) => assert_eq!(address, want, "{url}"),
                (Err(error), Err(want)) => assert!(error.to_string().contains(want), "{error}"),
                (other, _) => panic!("{url}: {other:?}"),
            }
        }
    }
}
