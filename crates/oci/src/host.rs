//! [`normal_host`]: the one normal form of a registry's host, by which names, rules, credentials and directories are
//! compared. Asks no resolver: two names of one machine are two hosts. Called by the parser of references, and by every
//! reader of hosts from elsewhere: scopes of signature policies, locations of credentials, patterns of images, names of
//! directories.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::grammar::is_domain;

/// The port of HTTPS.
const HTTPS: &str = "443";
const LOCALHOST: &str = "localhost";

/// The reason why a host has no normal form. The caller names the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The grammar does not fit.
    #[error("neither a host name nor an IPv6 address in brackets, each with or without a port")]
    Format,
    /// No port, or none that there is.
    #[error("the port is not a number from 1 to 65535")]
    Port,
    /// A text that some programs take for an IPv4 address, and others for a name: `127.1`, `0x7f.1`, `2130706433`,
    /// `0177.0.0.1`.
    #[error("a host that ends in a number must be an IPv4 address of four decimal numbers without leading zeros")]
    Ipv4,
    /// In brackets stands no address.
    #[error("not an IPv6 address")]
    Ipv6,
    /// `::ffff:127.0.0.1`, which leads where `127.0.0.1` does.
    #[error("an IPv4 address in the form of an IPv6 address; write the IPv4 address")]
    Mapped,
}

/// The normal form of `host[:port]`: lower-case letters, an IPv6 address as RFC 5952 writes it, a port without leading zeros.
/// Port 443 is left out, since HTTPS goes there anyway, but for hosts where no port means something else: loopback (no port is
/// HTTPS, and then plain HTTP), and a name of one part, which without a port is no host but the beginning of a path: there port
/// 443 is written.
///
/// # Errors
/// See [`HostError`].
pub fn normal_host(text: &str) -> Result<Cow<'_, str>, HostError> {
    if is_domain(text) { normal(text) } else { Err(HostError::Format) }
}

/// Returns true if a host in its normal form is this machine by its very text: `localhost` and what ends in `.localhost`,
/// 127.0.0.0/8, `::1`.
#[must_use]
pub fn is_loopback_host(host: &str) -> bool {
    let (name, _) = split_port(host);
    name.strip_suffix(LOCALHOST).is_some_and(|above| above.is_empty() || above.ends_with('.'))
        || name == "[::1]"
        || name.parse().is_ok_and(|address: Ipv4Addr| address.is_loopback())
}

/// Returns [`normal_host`] of a text that the grammar accepts as a domain.
pub(crate) fn normal(text: &str) -> Result<Cow<'_, str>, HostError> {
    let (name, port) = split_port(text);
    let port = port.map(normal_port).transpose()?;
    let name = match name.strip_prefix('[') {
        Some(address) => normal_ipv6(name, address.trim_end_matches(']'))?,
        None => normal_name(name)?,
    };
    let port = match port {
        None if is_one_part(&name) => Some(HTTPS),
        Some(HTTPS) if !is_one_part(&name) && !is_loopback_host(&name) => None,
        port => port,
    };
    Ok(match (name, port) {
        (name, None) => name,
        (Cow::Borrowed(name), Some(port)) if name.len() + 1 + port.len() == text.len() => Cow::Borrowed(text),
        (name, Some(port)) => Cow::Owned(format!("{name}:{port}")),
    })
}

/// A name that is taken for the beginning of a path where no port follows it.
fn is_one_part(name: &str) -> bool {
    name != LOCALHOST && !name.contains(['.', ':'])
}

fn split_port(text: &str) -> (&str, Option<&str>) {
    let address = text.find(']').map_or(0, |end| end + 1);
    match text[address..].find(':') {
        Some(colon) => (&text[..address + colon], Some(&text[address + colon + 1..])),
        None => (text, None),
    }
}

/// A port without leading zeros.
///
/// # Errors
/// [`HostError::Port`].
pub fn normal_port(text: &str) -> Result<&str, HostError> {
    let port = text.trim_start_matches('0');
    let is_port = port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok();
    if is_port { Ok(port) } else { Err(HostError::Port) }
}

fn normal_name(name: &str) -> Result<Cow<'_, str>, HostError> {
    let name = if name.bytes().any(|b| b.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_number = last.bytes().all(|b| b.is_ascii_digit())
        || last.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
    if is_number && name.parse::<Ipv4Addr>().is_err() {
        return Err(HostError::Ipv4);
    }
    Ok(name)
}

fn normal_ipv6<'a>(name: &'a str, address: &str) -> Result<Cow<'a, str>, HostError> {
    let address: Ipv6Addr = address.parse().map_err(|_| HostError::Ipv6)?;
    if address.to_ipv4_mapped().is_some() {
        return Err(HostError::Mapped);
    }
    let normal = format!("[{address}]");
    Ok(if normal == name { Cow::Borrowed(name) } else { Cow::Owned(normal) })
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
