//! Classes of network addresses, by who can be behind them. Judges addresses and the literal hosts of URLs;
//! [`crate::resolve`] finds the addresses of names, and [`crate::target`] decides what follows.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

/// Classes of addresses, by who can be behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Reachable by any client.
    Public,
    /// A private network.
    Private,
    /// This machine.
    Loopback,
    /// Link-local (where cloud metadata services live), unspecified, multicast, broadcast, reserved.
    Special,
}

/// Metadata and host services of clouds that lie outside of the link-local networks.
const METADATA_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(192, 0, 0, 192)];
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Prefix of translations to IPv4 that a network makes for itself (RFC 8215): where an address leads is its own business.
const LOCAL_NAT64: [u16; 3] = [0x64, 0xff9b, 1];

/// The class of a URL's host as far as its text shows: a name other than `localhost` counts as public.
pub(crate) fn class_of(url: &Url) -> Class {
    match url.host() {
        Some(Host::Domain(name)) if is_localhost(name) => Class::Loopback,
        Some(Host::Domain(_)) => Class::Public,
        _ => literal(url).map_or(Class::Special, class_of_ip),
    }
}

/// Returns true if a name means this machine, independent of the resolver.
pub(crate) fn is_localhost(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// The address that is a URL's host, in its canonical form; `None` where the host is a name.
pub(crate) fn literal(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Domain(_) => None,
        Host::Ipv4(ip) => Some(ip.into()),
        Host::Ipv6(ip) => Some(IpAddr::V6(ip).to_canonical()),
    }
}

pub(crate) fn class_of_ip(ip: IpAddr) -> Class {
    match ip {
        IpAddr::V4(ip) => class_v4(ip),
        IpAddr::V6(ip) => class_v6(ip),
    }
}

fn class_v4(ip: Ipv4Addr) -> Class {
    let [a, b, c, _] = ip.octets();
    if ip.is_loopback() {
        Class::Loopback
    } else if ip.is_link_local() || ip.is_multicast() || a == 0 || a >= 240 || METADATA_V4.contains(&ip) {
        Class::Special
    } else if ip.is_private()
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && (b == 18 || b == 19))
    {
        Class::Private
    } else {
        Class::Public
    }
}

fn class_v6(ip: Ipv6Addr) -> Class {
    if let Some(v4) = embedded_v4(ip) {
        return class_v4(v4);
    }
    let first = ip.segments()[0];
    if ip.is_loopback() {
        Class::Loopback
    } else if ip.is_unspecified() || ip.is_multicast() || first & 0xffc0 == 0xfe80 || ip == METADATA_V6 {
        Class::Special
    } else if first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfec0 || ip.segments()[..3] == LOCAL_NAT64 {
        Class::Private
    } else {
        Class::Public
    }
}

/// The IPv4 address that an IPv6 address stands for: mapped, compatible, of the well-known NAT64 prefix, or 6to4.
fn embedded_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, high, low] = ip.segments();
    let v4 = |high: u16, low: u16| {
        let ([p, q], [r, s]) = (high.to_be_bytes(), low.to_be_bytes());
        Some(Ipv4Addr::new(p, q, r, s))
    };
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0xffff] | [0x64, 0xff9b, 0, 0, 0, 0] => v4(high, low),
        // Neither `::` nor `::1`.
        [0, 0, 0, 0, 0, 0] if high != 0 => v4(high, low),
        [0x2002, ..] => v4(b, c),
        _ => None,
    }
}

/// A network: the addresses that have their first bits in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    ip: IpAddr,
    /// The number of these bits.
    length: u8,
}

impl Network {
    /// The network of one address.
    pub(crate) fn of(ip: IpAddr) -> Self {
        Self { ip, length: bits(ip) }
    }

    /// Parses `ADDRESS` or `ADDRESS/LENGTH`. `None`: the text is neither.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let Some((ip, length)) = text.split_once('/') else { return text.parse().ok().map(Self::of) };
        let (ip, length) = (ip.parse().ok()?, length.parse().ok()?);
        (length <= bits(ip)).then_some(Self { ip, length })
    }

    /// Returns true if the address, which is in its canonical form, belongs to the network.
    pub(crate) fn has(&self, ip: IpAddr) -> bool {
        let shift = u32::from(bits(self.ip) - self.length);
        match (self.ip, ip) {
            (IpAddr::V4(own), IpAddr::V4(ip)) => (own.to_bits() ^ ip.to_bits()).checked_shr(shift).unwrap_or(0) == 0,
            (IpAddr::V6(own), IpAddr::V6(ip)) => (own.to_bits() ^ ip.to_bits()).checked_shr(shift).unwrap_or(0) == 0,
            _ => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.length)
    }
}

/// The number of bits of an address.
fn bits(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// Returns true if both URLs have the same scheme, host and port.
pub(crate) fn same_origin(a: &Url, b: &Url) -> bool {
    a.scheme() == b.scheme() && a.host() == b.host() && a.port_or_known_default() == b.port_or_known_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn u(text: &str) -> Url {
        Url::parse(text).expect("parses")
    }

    #[test]
    fn classes() {
        let cases = [
            ("203.0.113.9", Class::Public),
            ("8.8.8.8", Class::Public),
            ("10.1.2.3", Class::Private),
            ("172.31.0.1", Class::Private),
            ("172.32.0.1", Class::Public),
            ("192.168.0.1", Class::Private),
            ("100.64.0.1", Class::Private),
            ("198.19.0.1", Class::Private),
            ("127.8.8.8", Class::Loopback),
            ("0.0.0.0", Class::Special),
            ("169.254.169.254", Class::Special),
            ("100.100.100.200", Class::Special),
            ("168.63.129.16", Class::Special),
            ("224.0.0.1", Class::Special),
            ("255.255.255.255", Class::Special),
            ("::", Class::Special),
            ("::1", Class::Loopback),
            ("fe80::1", Class::Special),
            ("ff02::1", Class::Special),
            ("fd00::1", Class::Private),
            ("fd00:ec2::254", Class::Special),
            ("fec0::1", Class::Private),
            ("2001:db8::1", Class::Public),
            ("::ffff:10.0.0.1", Class::Private),
            ("::ffff:169.254.169.254", Class::Special),
            ("::127.0.0.1", Class::Loopback),
            ("64:ff9b::a9fe:a9fe", Class::Special),
            ("64:ff9b::808:808", Class::Public),
            ("64:ff9b:1::808:808", Class::Private),
            ("2002:a00:1::", Class::Private),
        ];
        for (ip, want) in cases {
            assert_eq!(class_of_ip(ip.parse().expect("an address")), want, "{ip}");
        }
    }

    #[test]
    fn hosts_of_urls() {
        let cases = [
            ("http://localhost/", Class::Loopback),
            ("http://LOCALHOST./", Class::Loopback),
            ("http://a.localhost/", Class::Loopback),
            ("http://localhost.example/", Class::Public),
            ("http://0x7f000001/", Class::Loopback),
            ("http://2130706433/", Class::Loopback),
            ("http://0251.0376.0251.0376/", Class::Special),
            ("http://[::ffff:a00:1]/", Class::Private),
            ("http://r.example/", Class::Public),
        ];
        for (url, want) in cases {
            assert_eq!(class_of(&u(url)), want, "{url}");
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
