//! As much of DER as certificates need: values are put together, and read one after the other. Knows no certificate. A value that
//! does not fit its length is rejected. Called by code that makes or reads certificates and requests for them.

/// Tags of ASN.1.
pub mod tag {
    /// True or false, one byte.
    pub const BOOLEAN: u8 = 0x01;
    /// A whole number, two's complement, the first byte first.
    pub const INTEGER: u8 = 0x02;
    /// Bits, behind the number of those that the last byte leaves over.
    pub const BIT_STRING: u8 = 0x03;
    /// Bytes.
    pub const OCTET_STRING: u8 = 0x04;
    /// The name of an algorithm, an attribute or an extension.
    pub const OBJECT_IDENTIFIER: u8 = 0x06;
    /// Text in UTF-8.
    pub const UTF8_STRING: u8 = 0x0C;
    /// Text of letters, digits and a few signs.
    pub const PRINTABLE_STRING: u8 = 0x13;
    /// A time with two digits for its year.
    pub const UTC_TIME: u8 = 0x17;
    /// A time with four digits for its year.
    pub const GENERALIZED_TIME: u8 = 0x18;
    /// Values in an order that means something.
    pub const SEQUENCE: u8 = 0x30;
    /// Values in the order of their bytes.
    pub const SET: u8 = 0x31;

    /// `[number]`, of values.
    pub const fn explicit(number: u8) -> u8 {
        0xA0 | number
    }

    /// `[number]`, in place of a type of bytes.
    pub const fn implicit(number: u8) -> u8 {
        0x80 | number
    }
}

/// A value of these parts.
pub fn value(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = vec![tag];
    let bytes = length.to_be_bytes();
    match length {
        0..=127 => out.push(bytes[bytes.len() - 1]),
        _ => {
            let significant = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
            out.push(0x80 | u8::try_from(significant.len()).unwrap_or(u8::MAX));
            out.extend_from_slice(significant);
        }
    }
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

/// Takes the first value of `input`: its tag and content, and what follows it.
pub fn take(input: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = input.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7F => (usize::from(*first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7F))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

/// The content of the first value, which has this tag, and what follows it.
pub fn expect(tag: u8, input: &[u8]) -> Option<(&[u8], &[u8])> {
    take(input).filter(|(found, ..)| *found == tag).map(|(_, content, rest)| (content, rest))
}

/// Every value of a content; ends where there is none.
pub fn each(mut input: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (tag, content, rest) = take(input)?;
        input = rest;
        Some((tag, content))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_length_round_trip() {
        for length in [0, 1, 127, 128, 255, 256, 65_535, 65_536] {
            let content = vec![7; length];
            let made = value(tag::OCTET_STRING, &[&content]);
            assert_eq!(take(&made), Some((tag::OCTET_STRING, &content[..], &[][..])), "{length}");
            assert_eq!(expect(tag::SET, &made), None);
            assert_eq!(take(&made[..made.len() - 1]), None, "{length}: cut off");
        }
        assert_eq!(value(tag::SEQUENCE, &[&[1, 2], &[3]]), [0x30, 3, 1, 2, 3]);
    }

    #[test]
    fn invalid_values_are_refused() {
        for input in
            [&[][..], &[0x30], &[0x30, 0x80], &[0x30, 0x85, 0, 0, 0, 0, 1, 0], &[0x30, 0x84, 0xFF, 0xFF, 0xFF, 0xFF, 0]]
        {
            assert_eq!(take(input), None, "{input:?}");
        }
        assert_eq!(each(&[0x02, 1, 5, 0x02, 1, 6, 0x02]).count(), 2);
    }
}
