//! [`Cause`]s of errors of the HTTP client. Distinguishes refused names, TLS failures, failures to connect and broken
//! transfers, and passes their texts through [`redact`]. Called by the transport.

use std::error::Error;
use std::io;

use crate::connector::DialTimeout;
use crate::error::Cause;
use crate::redact;
use crate::resolve::RefusedTarget;
use crate::tls;

/// Converts an error of the HTTP client.
pub(crate) fn cause(error: &(dyn Error + 'static), is_connect: bool) -> Cause {
    if let Some(refused) = sources(error).find_map(|error| error.downcast_ref::<RefusedTarget>()) {
        return Cause::Redirect(refused.to_string());
    }
    let tls = tls_below(error);
    if let Some(words) = tls.and_then(tls::clock_mismatch) {
        return Cause::Tls(words);
    }
    let is_tls = tls.is_some();
    let innermost = sources(error).last().unwrap_or(error);
    let words = redact::text(&innermost.to_string(), 300);
    match (is_tls, is_connect) {
        (true, _) if words.contains("InvalidContentType") => {
            Cause::Tls(format!("{words} (it looks like a server that speaks plain HTTP)"))
        }
        (true, _) => Cause::Tls(words),
        (false, true) => Cause::Connect(words),
        (false, false) => Cause::Transport(words),
    }
}

/// An error and its sources, outermost first.
fn sources<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'e (dyn Error + 'static)| (*error).source())
}

/// Returns the TLS error among the sources of an error. An I/O error does not name the error that it wraps as its source.
fn tls_below<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    if let Some(tls) = error.downcast_ref::<rustls::Error>() {
        return Some(tls);
    }
    if let Some(io) = error.downcast_ref::<io::Error>()
        && let Some(inner) = io.get_ref()
    {
        return tls_below(inner);
    }
    error.source().and_then(tls_below)
}

/// Returns true if a connection took too long to be made, by our own limit or the system's.
pub(crate) fn is_timeout(error: &(dyn Error + 'static)) -> bool {
    let by_system = |io: &io::Error| io.kind() == io::ErrorKind::TimedOut;
    sources(error).any(|error| error.is::<DialTimeout>() || error.downcast_ref().is_some_and(by_system))
}
