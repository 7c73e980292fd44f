//! The origins to which secrets are sent: the pull's credential, a token made of it, and a host's configured headers and client
//! certificate. [`is_for`] decides which hosts of a namespace get the credential; [`RedirectChain::secrets`] decides what is
//! left of them after redirects, and [`RedirectChain::redirect_token`] which anonymous token is sent there instead. Where a
//! registry may send us at all is the rule of [`crate::target`]. Pure: `session` and `transport` ask.

use http::header::LOCATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use oci::RegistryAuth;
use url::Url;

use crate::address::{Class, class_of, same_origin};
use crate::error::Cause;
use crate::redact;

/// A request and the redirects that answered it so far.
pub(crate) struct RedirectChain<'a> {
    /// The registry host's own URL.
    base: &'a Url,
    /// The URL that was asked first: the registry's, or its token service's.
    first: Url,
    left_origin: bool,
}

/// The secrets that travel with one request of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ForwardedSecrets {
    /// The host's configured headers and client certificate.
    pub(crate) of_host: bool,
    /// `Authorization`.
    pub(crate) authorization: bool,
}

/// An anonymous token for a registry to which a host redirects.
#[derive(Clone, Debug)]
pub(crate) struct RedirectToken {
    /// The URL that asked for the token. The token is for the origin of this URL alone.
    pub(crate) at: Url,
    /// `Authorization`.
    pub(crate) header: HeaderValue,
}

/// Returns the token for exactly the origin of `url`.
pub(crate) fn token_for<'t>(tokens: &'t [RedirectToken], url: &Url) -> Option<&'t HeaderValue> {
    tokens.iter().find(|token| same_origin(&token.at, url)).map(|token| &token.header)
}

impl<'a> RedirectChain<'a> {
    /// A chain that begins at `first`. `left_origin` is true where the host redirected to that URL before, as if it had done
    /// so just now.
    pub(crate) fn new(base: &'a Url, first: Url, left_origin: bool) -> Self {
        Self { base, first, left_origin }
    }

    /// Returns the secrets for a request to `url`, the next of the chain.
    ///
    /// `Authorization` is sent to the origin of the first request. A host's configured headers and client certificate are sent to the
    /// host's own origin. After the first redirect to another origin neither is sent any more, not even if a
    /// later redirect leads back. An origin is scheme, host and port, as browsers have it.
    pub(crate) fn secrets(&self, url: &Url) -> ForwardedSecrets {
        ForwardedSecrets { of_host: !self.left_origin && same_origin(url, self.base), authorization: !self.left_origin }
    }

    /// Returns the anonymous token that travels to `url`: the one that this very origin asked for, once a redirect has led away
    /// from the origin that was asked first.
    pub(crate) fn redirect_token<'t>(&self, url: &Url, tokens: &'t [RedirectToken]) -> Option<&'t HeaderValue> {
        if self.left_origin { token_for(tokens, url) } else { None }
    }

    /// Returns true if a redirect led to another origin.
    pub(crate) fn left_origin(&self) -> bool {
        self.left_origin
    }

    /// Takes a redirect to `next`. Returns false if it is not followed, since it turns a POST into a GET, which would lose the
    /// form (RFC 9110, section 15.4); the caller then has the redirect as its answer.
    ///
    /// # Errors
    /// [`Cause::Redirect`], when a form with a credential would be sent to another origin.
    pub(crate) fn follow(&mut self, status: StatusCode, next: &Url, has_form: bool) -> Result<bool, Cause> {
        let leaves_origin = !same_origin(&self.first, next);
        if has_form && (self.left_origin || leaves_origin) {
            return Err(Cause::Redirect(format!("the credential was not sent on to {}", redact::origin(next))));
        }
        let keeps_method = matches!(status.as_u16(), 307 | 308);
        if has_form && !keeps_method {
            return Ok(false);
        }
        self.left_origin |= leaves_origin;
        Ok(true)
    }
}

/// Returns the URL that an answer redirects to, without user information.
///
/// # Errors
/// [`Cause::Redirect`], when the answer is a redirect and names no URL.
pub(crate) fn redirect_target(status: StatusCode, headers: &HeaderMap, at: &Url) -> Result<Option<Url>, Cause> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let location = headers.get(LOCATION).map(|l| String::from_utf8_lossy(l.as_bytes()).into_owned());
    let Some(location) = location else {
        return Err(Cause::Redirect(format!("{} without a Location", status.as_u16())));
    };
    let bad = |_| Cause::Redirect(format!("Location is no URL ({})", redact::text(&location, 100)));
    let mut next = redact::without_user(at.join(&location).map_err(bad)?);
    next.set_fragment(None);
    Ok(Some(next))
}

/// Returns true if a credential may be sent to a host: to that of its server address, or, without one, to the registry
/// itself (`upstream`) and none of its mirrors. A credential with an HTTPS address is sent over plain HTTP only to loopback.
pub(crate) fn is_for(auth: &RegistryAuth, upstream: bool, base: &Url) -> bool {
    if auth.server_address.is_empty() {
        return upstream;
    }
    let canonical = |host: &str| match host {
        "docker.io" | "index.docker.io" | "registry-1.docker.io" => "docker.io".to_owned(),
        other => other.to_ascii_lowercase(),
    };
    // A credential for HTTPS is not sent where any host on the path may read it. The reverse is harmless.
    let is_https = auth.server_address.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://"));
    if is_https && base.scheme() == "http" && class_of(base) != Class::Loopback {
        return false;
    }
    let server = server_host(&auth.server_address);
    // What is no host in an image's name is none here: a parser of URLs takes `127.1` for an address.
    let Ok(_) = oci::normal_host(&server) else { return false };
    // `host:443` and `host` are the same over HTTPS, `host:80` and `host` over HTTP.
    let Ok(server) = Url::parse(&format!("{}://{server}/", base.scheme())) else { return false };
    let (Some(theirs), Some(own)) = (server.host_str(), base.host_str()) else { return false };
    canonical(theirs) == canonical(own) && server.port_or_known_default() == base.port_or_known_default()
}

/// Returns `host[:port]` of a server address, which may be a URL.
pub(crate) fn server_host(address: &str) -> String {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit_once('@').map_or(authority, |(_, host)| host).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn u(text: &str) -> Url {
        Url::parse(text).expect("parses")
    }

    #[test]
    fn secrets_after_redirects() {
        const BASE: &str = "https://r.example";
        let (all, none) = (Some((true, true)), Some((false, false)));
        // The URL that is asked first, where redirects lead, and what travels there; none where a form is not sent on.
        let cases: [(&str, &[(u16, &str)], _, _); 12] = [
            (BASE, &[], all, all),
            (BASE, &[(307, "https://r.example/other")], all, all),
            (BASE, &[(307, "https://r.example:443/other")], all, all),
            (BASE, &[(302, "https://r.example/other")], all, None),
            (BASE, &[(307, "https://cdn.example/x")], none, None),
            (BASE, &[(307, "https://sub.r.example/x")], none, None),
            (BASE, &[(307, "http://r.example/x")], none, None),
            (BASE, &[(307, "https://r.example:444/x")], none, None),
            (BASE, &[(307, "https://cdn.example/x"), (307, "https://r.example/back")], none, None),
            // A token service is no place for what is configured for the registry.
            ("https://auth.example", &[], Some((false, true)), Some((false, true))),
            ("https://auth.example", &[(308, "https://auth.example/v2")], Some((false, true)), Some((false, true))),
            ("https://auth.example", &[(308, BASE)], none, None),
        ];
        for (first, redirects, without_form, with_form) in cases {
            for (has_form, want) in [(false, without_form), (true, with_form)] {
                let base = u(BASE);
                let mut chain = RedirectChain::new(&base, u(first), false);
                let mut at = u(first);
                let mut followed = Ok(true);
                for (status, next) in redirects {
                    at = u(next);
                    let status = StatusCode::from_u16(*status).expect("valid");
                    followed = match followed {
                        Ok(true) => chain.follow(status, &at, has_form),
                        ended => ended,
                    };
                }
                let ForwardedSecrets { of_host, authorization } = chain.secrets(&at);
                let got = matches!(followed, Ok(true)).then_some((of_host, authorization));
                assert_eq!(got, want, "{first} {redirects:?}, form: {has_form}");
            }
        }
        let base = u(BASE);
        let elsewhere = RedirectChain::new(&base, u("https://cdn.example/x"), true);
        assert_eq!(elsewhere.secrets(&base), ForwardedSecrets { of_host: false, authorization: false });
    }

    #[test]
    fn redirected_forms() {
        let base = u("https://r.example");
        let first = u("https://auth.example/token");
        let follow = |status: u16, next: &str, has_form: bool| {
            let mut chain = RedirectChain::new(&base, first.clone(), false);
            chain.follow(StatusCode::from_u16(status).expect("valid"), &u(next), has_form).ok()
        };
        for status in [301, 302, 303] {
            assert_eq!(follow(status, "https://auth.example/token/", true), Some(false), "{status} loses the form");
            assert_eq!(follow(status, "https://auth.example/token/", false), Some(true), "{status}");
        }
        for status in [307, 308] {
            assert_eq!(follow(status, "https://auth.example/token/", true), Some(true), "{status} keeps the form");
        }
        for status in [301, 302, 303, 307, 308] {
            for other in ["https://r.example/x", "http://auth.example/token", "https://auth.example:444/token"] {
                assert_eq!(follow(status, other, true), None, "{status} to {other}");
            }
        }
    }

    #[test]
    fn tokens_of_redirect_targets_go_to_their_origin() {
        let token = |at: &str| RedirectToken { at: u(at), header: HeaderValue::from_static("Bearer t") };
        let tokens = [token("https://other.example/v2/app/manifests/1"), token("https://r.example/v2/app")];
        let base = u("https://r.example");
        let mut chain = RedirectChain::new(&base, u("https://r.example/v2/app"), false);
        assert!(chain.redirect_token(&u("https://r.example/v2/app"), &tokens).is_none(), "it is no redirect");
        chain.follow(StatusCode::TEMPORARY_REDIRECT, &u("https://other.example/x"), false).expect("followed");
        for (url, want) in [
            ("https://other.example/y", true),
            ("https://other.example:443/y", true),
            ("http://other.example/y", false),
            ("https://other.example:444/y", false),
            ("https://sub.other.example/y", false),
            ("https://example/y", false),
        ] {
            assert_eq!(chain.redirect_token(&u(url), &tokens).is_some(), want, "{url}");
        }
    }

    #[test]
    fn targets_have_no_user_information() {
        let at = u("https://r.example/v2/");
        let target = |location: &str| {
            let headers = HeaderMap::from_iter([(LOCATION, location.parse().expect("a header"))]);
            redirect_target(StatusCode::FOUND, &headers, &at).map(|target| target.map(String::from))
        };
        assert_eq!(target("//u:p@cdn.example/x?y#z").ok(), Some(Some("https://cdn.example/x?y".into())));
        assert!(target("https://[").is_err());
        assert!(redirect_target(StatusCode::FOUND, &HeaderMap::new(), &at).is_err());
        assert!(redirect_target(StatusCode::OK, &HeaderMap::new(), &at).is_ok_and(|target| target.is_none()));
    }

    #[test]
    fn credentials_are_for_their_host() {
        let cases = [
            ("", true, "https://r.example", true),
            ("", false, "https://mirror.example", false),
            ("r.example", true, "https://r.example", true),
            ("r.example", true, "https://other.example", false),
            ("https://r.example/v1/", true, "https://r.example", true),
            ("https://r.example", true, "http://r.example:443", false),
            ("HTTPS://r.example:5000", true, "http://r.example:5000", false),
            ("https://127.0.0.1:5000", true, "http://127.0.0.1:5000", true),
            ("http://r.example:5000", true, "https://r.example:5000", true),
            ("r.example", true, "http://r.example", true),
            ("r.example:443", true, "https://r.example", true),
            ("r.example:5000", true, "https://r.example", false),
            ("mirror.example", false, "https://mirror.example", true),
            ("https://index.docker.io/v1/", true, "https://registry-1.docker.io", true),
            ("docker.io", true, "https://registry-1.docker.io", true),
            ("docker.io", false, "https://mirror.example", false),
            ("127.0.0.1:5000", true, "http://127.0.0.1:5000", true),
            ("R.Example", true, "https://r.example", true),
            ("user@r.example", true, "https://r.example", true),
            ("r.example", true, "https://sub.r.example", false),
            ("///", true, "https://r.example", false),
            ("R.example:0443", true, "https://r.example", true),
            ("127.1:5000", true, "http://127.0.0.1:5000", false),
            ("0x7f000001:5000", true, "http://127.0.0.1:5000", false),
        ];
        for (server, upstream, base, want) in cases {
            let auth = RegistryAuth { server_address: server.into(), ..RegistryAuth::basic("u", "p") };
            let base = u(base);
            assert_eq!(is_for(&auth, upstream, &base), want, "{server:?} at {base}");
        }
    }
}
