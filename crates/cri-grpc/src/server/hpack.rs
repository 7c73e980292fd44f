//! [`Decoder`]: header blocks of HTTP/2 (HPACK, RFC 7541) as fields. It does not judge names, values or their order, which is
//! the transport's duty. Memory: one dynamic table of at most [`TABLE_SIZE`] bytes. Called by `authority`.

use std::collections::VecDeque;

use super::hpack_tables::{CODE_LENGTHS, END_OF_STRING, LONGEST, STATIC, SYMBOLS};

/// Size of the dynamic table that a client may use. The default of the protocol: the server announces no other.
const TABLE_SIZE: usize = 4096;
/// Bytes that an entry of the dynamic table counts for in addition to its name and value.
pub(super) const ENTRY_OVERHEAD: usize = 32;
/// Greatest number in a block: no block is that long.
const GREATEST: usize = 1 << 24;

/// A header block that breaks the rules of HPACK. The state of the decoder is lost with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HpackError {
    /// A representation or string is longer than the block.
    #[error("a header block is cut off")]
    Truncated,
    /// A number of too many bytes.
    #[error("a number in a header block is too large")]
    Number,
    /// An index without an entry.
    #[error("a header block refers to entry {0}, which is not in its table")]
    Index(usize),
    /// A string that is not in the Huffman code.
    #[error("a string in a header block is not Huffman code")]
    Huffman,
    /// A change of the table's size that is too large or not at the start of the block.
    #[error("a header block changes the size of its table where it must not")]
    Resize,
}

/// The state that header blocks of one direction of a connection share.
pub(super) struct Decoder {
    /// Newest entry first.
    entries: VecDeque<(Vec<u8>, Vec<u8>)>,
    size: usize,
    limit: usize,
}

impl Decoder {
    pub(super) fn new() -> Self {
        Self { entries: VecDeque::new(), size: 0, limit: TABLE_SIZE }
    }

    /// Reads a whole block and passes each field to `field`.
    pub(super) fn decode(&mut self, block: &[u8], mut field: impl FnMut(&[u8], &[u8])) -> Result<(), HpackError> {
        let mut rest = block;
        let mut may_resize = true;
        while let Some(&first) = rest.first() {
            if first & 0xe0 == 0x20 {
                let limit = number(&mut rest, 5)?;
                if !may_resize || limit > TABLE_SIZE {
                    return Err(HpackError::Resize);
                }
                self.limit = limit;
                self.evict();
                continue;
            }
            may_resize = false;
            if first & 0x80 != 0 {
                let index = number(&mut rest, 7)?;
                let (name, value) = self.entry(index)?;
                field(name, value);
                continue;
            }
            let is_indexed = first & 0x40 != 0;
            let index = number(&mut rest, if is_indexed { 6 } else { 4 })?;
            let name = if index == 0 { string(&mut rest)? } else { self.entry(index)?.0.to_vec() };
            let value = string(&mut rest)?;
            field(&name, &value);
            if is_indexed {
                self.size += name.len() + value.len() + ENTRY_OVERHEAD;
                self.entries.push_front((name, value));
                self.evict();
            }
        }
        Ok(())
    }

    fn entry(&self, index: usize) -> Result<(&[u8], &[u8]), HpackError> {
        let missing = HpackError::Index(index);
        let index = index.checked_sub(1).ok_or(missing)?;
        if let Some((name, value)) = STATIC.get(index) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        self.entries.get(index - STATIC.len()).map(|(name, value)| (&name[..], &value[..])).ok_or(missing)
    }

    fn evict(&mut self) {
        while self.size > self.limit
            && let Some((name, value)) = self.entries.pop_back()
        {
            self.size -= name.len() + value.len() + ENTRY_OVERHEAD;
        }
    }
}

/// Appends a field that refers to no table and enters none.
pub(super) fn encode(name: &[u8], value: &[u8], block: &mut Vec<u8>) {
    block.push(0);
    for text in [name, value] {
        let mut rest = text.len();
        if rest < 0x7f {
            block.push(u8::try_from(rest).unwrap_or(0x7f));
        } else {
            block.push(0x7f);
            rest -= 0x7f;
            while rest >= 0x80 {
                block.push(u8::try_from(rest & 0x7f).unwrap_or(0) | 0x80);
                rest >>= 7;
            }
            block.push(u8::try_from(rest).unwrap_or(0));
        }
        block.extend_from_slice(text);
    }
}

/// Reads a number whose first byte has `bits` bits of it.
fn number(rest: &mut &[u8], bits: u32) -> Result<usize, HpackError> {
    let mask = (1_u8 << bits) - 1;
    let mut value = usize::from(byte(rest)? & mask);
    if value < usize::from(mask) {
        return Ok(value);
    }
    for shift in [0, 7, 14, 21] {
        let next = byte(rest)?;
        value += usize::from(next & 0x7f) << shift;
        if next & 0x80 == 0 {
            return if value > GREATEST { Err(HpackError::Number) } else { Ok(value) };
        }
    }
    Err(HpackError::Number)
}

fn string(rest: &mut &[u8]) -> Result<Vec<u8>, HpackError> {
    let is_coded = rest.first().is_some_and(|first| first & 0x80 != 0);
    let length = number(rest, 7)?;
    let (text, after) = rest.split_at_checked(length).ok_or(HpackError::Truncated)?;
    *rest = after;
    if is_coded { decoded(text) } else { Ok(text.to_vec()) }
}

fn byte(rest: &mut &[u8]) -> Result<u8, HpackError> {
    let (first, after) = rest.split_first().ok_or(HpackError::Truncated)?;
    *rest = after;
    Ok(*first)
}

/// The codes of one length: the first one, their number, and where their symbols begin in [`Huffman::symbols`].
#[derive(Clone, Copy)]
struct Codes {
    first: u32,
    count: u32,
    offset: usize,
}

struct Huffman {
    /// By length of the code.
    codes: [Codes; LONGEST + 1],
    /// Sorted by length of the code, then by symbol.
    symbols: [u16; SYMBOLS],
}

const HUFFMAN: Huffman = huffman();

#[expect(clippy::cast_possible_truncation, reason = "symbols are below 257; TryFrom is not for const functions")]
const fn huffman() -> Huffman {
    let mut codes = [Codes { first: 0, count: 0, offset: 0 }; LONGEST + 1];
    let mut symbols = [0; SYMBOLS];
    let (mut length, mut placed, mut next) = (1, 0, 0);
    while length <= LONGEST {
        codes[length].first = next;
        codes[length].offset = placed;
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if CODE_LENGTHS[symbol] as usize == length {
                symbols[placed] = symbol as u16;
                placed += 1;
                codes[length].count += 1;
            }
            symbol += 1;
        }
        next = (next + codes[length].count) << 1;
        length += 1;
    }
    Huffman { codes, symbols }
}

/// Decodes a string in the Huffman code. Its padding is the start of the end-of-string symbol, shorter than a byte.
fn decoded(text: &[u8]) -> Result<Vec<u8>, HpackError> {
    // The shortest code has five bits.
    let mut output = Vec::with_capacity(text.len() * 8 / 5);
    let (mut code, mut length) = (0_u32, 0_usize);
    for byte in text {
        for shift in (0..8).rev() {
            code = code << 1 | u32::from(byte >> shift & 1);
            length += 1;
            let codes = HUFFMAN.codes.get(length).ok_or(HpackError::Huffman)?;
            let Some(place) = code.checked_sub(codes.first).filter(|place| *place < codes.count) else { continue };
            let symbol = HUFFMAN.symbols[codes.offset + place as usize];
            debug_assert!(symbol <= END_OF_STRING, "no other symbols");
            output.push(u8::try_from(symbol).map_err(|_| HpackError::Huffman)?);
            (code, length) = (0, 0);
        }
    }
    if length > 7 || code != (1 << length) - 1 {
        return Err(HpackError::Huffman);
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hexadecimal"))
            .collect()
    }

    fn fields(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<(String, String)>, HpackError> {
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        decoder.decode(block, |name, value| fields.push((text(name), text(value))))?;
        Ok(fields)
    }

    /// The examples of RFC 7541, C.4: three requests on one connection.
    #[test]
    fn examples_of_the_specification_are_read() {
        let mut decoder = Decoder::new();
        let request = |more: &[(&str, &str)], scheme: &str, path: &str| -> Vec<(String, String)> {
            let base = [(":method", "GET"), (":scheme", scheme), (":path", path), (":authority", "www.example.com")];
            base.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let first = fields(&mut decoder, &hex("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff")).expect("the first");
        assert_eq!(first, request(&[], "http", "/"));
        let second = fields(&mut decoder, &hex("8286 84be 5886 a8eb 1064 9cbf")).expect("the second");
        assert_eq!(second, request(&[("cache-control", "no-cache")], "http", "/"));
        let third = hex("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf");
        let third = fields(&mut decoder, &third).expect("the third");
        assert_eq!(third, request(&[("custom-key", "custom-value")], "https", "/index.html"));
        assert_eq!((decoder.entries.len(), decoder.size), (3, 164));
    }

    #[test]
    fn encoded_fields_are_read_back() {
        for length in [0, 1, 126, 127, 128, 254, 255, 256, 16_383, 16_510, 16_511, 70_000] {
            let (name, value) = ("n".repeat(length), "v".repeat(length / 2));
            let mut block = Vec::new();
            encode(name.as_bytes(), value.as_bytes(), &mut block);
            let mut decoder = Decoder::new();
            assert_eq!(fields(&mut decoder, &block), Ok(vec![(name, value)]), "{length}");
            assert_eq!(decoder.size, 0, "nothing is entered");
        }
    }

    #[test]
    fn full_table_evicts_the_oldest_entries() {
        let mut decoder = Decoder::new();
        let entered = |name: &str, value: &str| {
            let mut block = Vec::new();
            encode(name.as_bytes(), value.as_bytes(), &mut block);
            block[0] = 0x40;
            block
        };
        for name in ["a", "b", "c"] {
            fields(&mut decoder, &entered(name, &"x".repeat(1400))).expect("entered");
        }
        assert_eq!(decoder.entries.len(), 2, "the first one is evicted");
        assert_eq!(fields(&mut decoder, &[0xbe]).expect("the newest")[0].0, "c");
        assert_eq!(fields(&mut decoder, &[0xc0]), Err(HpackError::Index(64)));
        fields(&mut decoder, &entered("d", &"x".repeat(5000))).expect("read");
        assert!(decoder.entries.is_empty() && decoder.size == 0, "larger than the table: it is empty");
    }

    #[test]
    fn broken_blocks_are_refused() {
        let cases: &[(&str, HpackError)] = &[
            ("80", HpackError::Index(0)),
            ("be", HpackError::Index(62)),
            ("ff", HpackError::Truncated),
            ("ff ff ff ff ff 01", HpackError::Number),
            ("ff ff ff ff 7f", HpackError::Number),
            ("41", HpackError::Truncated),
            ("41 05 61", HpackError::Truncated),
            ("3f e2 1f", HpackError::Resize),
            ("82 20", HpackError::Resize),
            ("41 81 00", HpackError::Huffman),
            ("41 82 ff ff", HpackError::Huffman),
            ("41 84 ff ff ff ff", HpackError::Huffman),
        ];
        for (block, want) in cases {
            assert_eq!(fields(&mut Decoder::new(), &hex(block)), Err(*want), "{block}");
        }
        assert_eq!(fields(&mut Decoder::new(), &hex("20 3f e1 1f 82")).expect("two changes").len(), 1);
    }
}
