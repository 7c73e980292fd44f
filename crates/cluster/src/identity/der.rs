//! DER, as far as a request for a certificate is written in it, and the times of a certificate are read from it. Pure. Called by
//! [`super::request`] and [`super::certificate`].

/// Tags of the types in use.
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OID: u8 = 0x06;
pub(super) const UTF8: u8 = 0x0c;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const GENERALIZED_TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
pub(super) const CONTEXT_0: u8 = 0xa0;

/// A value with its tag and length.
pub(super) fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    match u8::try_from(content.len()) {
        Ok(length @ ..128) => bytes.push(length),
        _ => {
            let length: Vec<u8> = content.len().to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
            bytes.push(0x80 | u8::try_from(length.len()).unwrap_or(8));
            bytes.extend(length);
        }
    }
    bytes.extend_from_slice(content);
    bytes
}

/// Values one after the other, in one of this tag.
pub(super) fn of(tag: u8, parts: &[Vec<u8>]) -> Vec<u8> {
    value(tag, &parts.concat())
}

/// A value that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Element<'a> {
    pub(super) tag: u8,
    pub(super) content: &'a [u8],
}

/// Reads one value; what follows it comes back. `None`: this is no DER.
pub(super) fn read(bytes: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let length = match first {
        ..=0x7f => usize::from(first),
        0x81..=0x84 => {
            let (length, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
            rest = after;
            length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((Element { tag, content }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_length_come_back() {
        for length in [0, 1, 127, 128, 255, 256, 70_000] {
            let content = vec![7; length];
            let mut bytes = value(SEQUENCE, &content);
            bytes.push(9);
            let (element, rest) = read(&bytes).expect("DER");
            assert_eq!((element.tag, element.content, rest), (SEQUENCE, &*content, &[9][..]), "{length}");
        }
    }

    #[test]
    fn what_is_no_der_is_refused() {
        for bytes in [
            &[][..],
            &[0x30],
            &[0x30, 2, 1],
            &[0x30, 0x80],
            &[0x30, 0x85, 1, 1, 1, 1, 1],
            &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff],
        ] {
            assert_eq!(read(bytes), None, "{bytes:x?}");
        }
    }
}
