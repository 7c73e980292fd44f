//! The grammar of references, part by part, each in one pass over the bytes. Returns positions, no values and no
//! reasons; the parsers of references and digests call it.

const MAX_TAG: usize = 128;

/// The classes of a byte, as bits.
const LOWER_OR_DIGIT: u8 = 1;
const UPPER: u8 = 1 << 1;
const LOWER_HEX: u8 = 1 << 2;
const UPPER_HEX: u8 = 1 << 3;
/// Anywhere in a tag but at its beginning.
const IN_TAG: u8 = 1 << 4;
/// Bytes that only a domain has, and no first component of a path.
const IN_DOMAIN: u8 = 1 << 5;
const NOT_ASCII: u8 = 1 << 6;
/// Anywhere in a part of a host name but at its ends.
const IN_LABEL: u8 = 1 << 7;

const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0u8;
    loop {
        let mut class = 0;
        if byte.is_ascii_lowercase() || byte.is_ascii_digit() {
            class |= LOWER_OR_DIGIT | IN_TAG;
        }
        if byte.is_ascii_uppercase() {
            class |= UPPER | IN_TAG;
        }
        if matches!(byte, b'0'..=b'9' | b'a'..=b'f') {
            class |= LOWER_HEX;
        }
        if matches!(byte, b'A'..=b'F') {
            class |= UPPER_HEX;
        }
        if matches!(byte, b'.' | b'_' | b'-') {
            class |= IN_TAG;
        }
        if matches!(byte, b'.' | b':') {
            class |= IN_DOMAIN;
        }
        if byte.is_ascii_alphanumeric() || byte == b'-' {
            class |= IN_LABEL;
        }
        if !byte.is_ascii() {
            class |= NOT_ASCII;
        }
        classes[byte as usize] = class;
        if byte == u8::MAX {
            break classes;
        }
        byte += 1;
    }
};

fn is(byte: u8, class: u8) -> bool {
    CLASSES[usize::from(byte)] & class != 0
}

/// Letters, digits and `_`, with `.` and `-` behind the first; at most 128.
pub(crate) fn is_tag(tag: &str) -> bool {
    tag.len() <= MAX_TAG
        && tag.bytes().next().is_some_and(|b| b == b'_' || is(b, LOWER_OR_DIGIT | UPPER))
        && tag.bytes().all(|b| is(b, IN_TAG))
}

/// The form of a digest; whether it is of a known algorithm and of the right length is asked elsewhere.
pub(crate) fn is_digest_text(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else { return false };
    let component = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic()) && part.bytes().all(|b| is(b, LOWER_OR_DIGIT | UPPER))
    };
    hex.len() >= 32
        && (is_lower_hex(hex) || hex.bytes().all(|b| b.is_ascii_hexdigit()))
        && algorithm.split(['+', '.', '_', '-']).all(component)
}

/// Digits and the letters from `a` to `f`.
pub(crate) fn is_lower_hex(text: &str) -> bool {
    // Without a way out in between, so that many bytes are looked at at once.
    text.bytes().fold(true, |all, b| all & (b.wrapping_sub(b'0') < 10 || b.wrapping_sub(b'a') < 6))
}

/// A host name or an IPv6 address in brackets, and a port.
pub(crate) fn is_domain(text: &str) -> bool {
    if let Some(rest) = text.strip_prefix('[') {
        let Some((address, after)) = rest.split_once(']') else { return false };
        let is_address = !address.is_empty() && address.bytes().all(|b| b == b':' || is(b, LOWER_HEX | UPPER_HEX));
        return is_address && (after.is_empty() || after.strip_prefix(':').is_some_and(is_port));
    }
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        let start = at;
        while at < bytes.len() && is(bytes[at], IN_LABEL) {
            at += 1;
        }
        if at == start || bytes[start] == b'-' || bytes[at - 1] == b'-' {
            return false;
        }
        match bytes.get(at) {
            None => return true,
            Some(b'.') => at += 1,
            Some(b':') => return is_port(&text[at + 1..]),
            Some(_) => return false,
        }
    }
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Returns the end of the path at the beginning of `text`, behind which tag and digest stand: components between
/// slashes, runs of lower-case letters and digits, joined by `.`, `_`, `__` or any number of `-`. `None`: there is no
/// such path.
pub(crate) fn path_end(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        let start = at;
        while at < bytes.len() && is(bytes[at], LOWER_OR_DIGIT) {
            at += 1;
        }
        if at == start {
            return None;
        }
        // A slash stands between two runs as a separator does.
        at += match &bytes[at..] {
            [] | [b':' | b'@', ..] => return Some(at),
            [b'_', b'_', ..] => 2,
            [b'_' | b'.' | b'/', ..] => 1,
            [b'-', rest @ ..] => 1 + rest.iter().take_while(|b| **b == b'-').count(),
            _ => return None,
        };
    }
}

/// Returns the text before the first slash, and its form; `None`: there is no slash.
pub(crate) fn first_component(text: &str) -> Option<(&str, FirstComponent)> {
    let bytes = text.as_bytes();
    let (mut at, mut classes) = (0, 0);
    while *bytes.get(at)? != b'/' {
        classes |= CLASSES[usize::from(bytes[at])];
        at += 1;
    }
    let looks = match classes {
        has if has & (IN_DOMAIN | UPPER) != 0 => FirstComponent::Domain,
        has if has & NOT_ASCII != 0 => FirstComponent::Foreign,
        _ => FirstComponent::Plain,
    };
    Some((&text[..at], looks))
}

/// The form of the text before the first slash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstComponent {
    /// With a dot, a colon or an upper-case letter, as only a domain may have them.
    Domain,
    /// Neither.
    Plain,
    /// With letters of which this table knows nothing.
    Foreign,
}
