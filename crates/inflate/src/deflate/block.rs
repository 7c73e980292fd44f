//! [`Decoder`]: from block to block. Called by whoever decodes in order, and by helpers.

use std::sync::Arc;

use super::bits::Bits;
use super::codes;
use super::out::Out;
use super::tables::{DISTANCE_BITS, DISTANCE_ROOM, LITERAL_BITS, LITERAL_ROOM, build, code_length, distance, literal};

/// The longest header of a block, and a bit more.
const HEADER: u64 = 384;

/// Where a decoder stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// Before a block.
    Block,
    /// Within a block of codes.
    Codes { last: bool },
    /// Within a stored block.
    Stored { last: bool, left: usize },
    /// Behind the last block.
    End,
}

/// Why a decoder stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It stands before a block.
    Block,
    /// It stands behind the last block.
    End,
    /// It wants more input.
    Input,
    /// It wants more room.
    Room,
}

/// This is no deflate stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wrong;

/// What the codes of a block mean.
#[derive(Clone)]
pub(super) struct Tables {
    pub(super) literals: [u32; LITERAL_ROOM],
    pub(super) distances: [u32; DISTANCE_ROOM],
}

/// A decoder somewhere in a stream. A clone stands at the same place, and costs little.
#[derive(Clone)]
pub(crate) struct Decoder {
    at: At,
    /// The bit of the stream, counted from its beginning.
    bit: u64,
    tables: Arc<Tables>,
}

impl Decoder {
    /// A decoder that stands before the block at this bit.
    pub(crate) fn new(bit: u64) -> Self {
        let tables = Arc::new(Tables { literals: [0; LITERAL_ROOM], distances: [0; DISTANCE_ROOM] });
        Self { at: At::Block, bit, tables }
    }

    pub(crate) fn at(&self) -> At {
        self.at
    }

    pub(crate) fn bit(&self) -> u64 {
        self.bit
    }

    /// Stands before the block at this bit instead.
    pub(crate) fn place(&mut self, bit: u64) {
        self.at = At::Block;
        self.bit = bit;
    }

    /// Whether what stands at this bit, which is none of the last block, is the header of a block with codes of its own.
    pub(super) fn begins(&mut self, data: &[u8], base: u64, bit: u64) -> bool {
        self.place(bit);
        match bit.checked_sub(base * 8).and_then(|ahead| before_header(data, ahead)) {
            Some(mut bits) => {
                bits.drop(3);
                self.dynamic(&mut bits).is_some()
            }
            None => false,
        }
    }

    /// Goes on, up to the end of the block at most. `data` is the stream from byte `base` on. Answers what was decoded into,
    /// and why it stopped. Where that is wrong, the decoder stands behind the bits that are, and does not go on.
    pub(crate) fn decode<O: Out>(&mut self, data: &[u8], base: u64, mut out: O) -> Result<(O, Stop), Wrong> {
        let Some(ahead) = self.bit.checked_sub(base * 8) else { return Ok((out, Stop::Input)) };
        if self.at == At::Block {
            let Some(mut bits) = before_header(data, ahead) else { return Ok((out, Stop::Input)) };
            let at = self.header(&mut bits);
            self.bit = base * 8 + bits.bit();
            self.at = at.ok_or(Wrong)?;
        }
        match self.at {
            At::Codes { last } => {
                let Some(mut bits) = Bits::at(data, self.bit - base * 8) else { return Ok((out, Stop::Input)) };
                let ran = codes::run(&self.tables, &mut bits, out);
                self.bit = base * 8 + bits.bit();
                let (out, stop) = ran?;
                Ok((out, self.ended(stop, last)))
            }
            At::Stored { last, left } => {
                let start = usize::try_from(self.bit / 8 - base).map_err(|_| Wrong)?;
                let there = data.get(start..).unwrap_or_default();
                let n = out.stored(&there[..left.min(there.len())]);
                self.bit += n as u64 * 8;
                self.at = At::Stored { last, left: left - n };
                let stop = match left - n {
                    0 => Stop::Block,
                    _ if n < there.len() => Stop::Room,
                    _ => Stop::Input,
                };
                Ok((out, self.ended(stop, last)))
            }
            At::Block | At::End => Ok((out, Stop::End)),
        }
    }

    fn ended(&mut self, stop: Stop, last: bool) -> Stop {
        if stop != Stop::Block {
            return stop;
        }
        self.at = if last { At::End } else { At::Block };
        if last { Stop::End } else { Stop::Block }
    }

    /// The tables to be filled anew; a clone keeps those that it has.
    fn tables(&mut self) -> &mut Tables {
        if Arc::get_mut(&mut self.tables).is_none() {
            self.tables = Self::new(0).tables;
        }
        Arc::make_mut(&mut self.tables)
    }

    /// Reads a block's header. There is enough input.
    fn header(&mut self, bits: &mut Bits<'_>) -> Option<At> {
        bits.refill();
        let last = bits.take(1) == 1;
        Some(match bits.take(2) {
            0 => {
                bits.drop(bits.count() % 8);
                bits.refill();
                let (length, inverse) = (bits.take(16), bits.take(16));
                if length ^ inverse != 0xffff {
                    return None;
                }
                // Whole bytes that were read ahead are read again, as content.
                At::Stored { last, left: usize::try_from(length).ok()? }
            }
            1 => {
                let mut lengths = [8; 288];
                lengths[144..256].fill(9);
                lengths[256..280].fill(7);
                let tables = self.tables();
                build(&lengths, LITERAL_BITS, &mut tables.literals, literal, false)?;
                build(&[5; 32], DISTANCE_BITS, &mut tables.distances, distance, false)?;
                At::Codes { last }
            }
            2 => {
                self.dynamic(bits)?;
                At::Codes { last }
            }
            _ => return None,
        })
    }

    /// Reads the codes of a block that has its own.
    fn dynamic(&mut self, bits: &mut Bits<'_>) -> Option<()> {
        const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
        let literals = usize::try_from(bits.take(5)).ok()? + 257;
        let distances = usize::try_from(bits.take(5)).ok()? + 1;
        let given = usize::try_from(bits.take(4)).ok()? + 4;
        if literals > 286 || distances > 30 {
            return None;
        }
        let mut lengths = [0_u8; 19];
        for symbol in &ORDER[..given] {
            bits.refill();
            lengths[*symbol] = u8::try_from(bits.take(3)).ok()?;
        }
        let mut table = [0_u32; 128];
        build(&lengths, 7, &mut table, code_length, false)?;
        let mut lengths = [0_u8; 320];
        let mut at = 0;
        while at < literals + distances {
            if !bits.refill() {
                return None;
            }
            let entry = table[bits.look(7)];
            bits.drop(entry & 15);
            let (value, times) = match entry >> 16 {
                16 => (*lengths.get(at.checked_sub(1)?)?, 3 + bits.take(2)),
                17 => (0, 3 + bits.take(3)),
                18 => (0, 11 + bits.take(7)),
                length => (u8::try_from(length).ok()?, 1),
            };
            let end = at + usize::try_from(times).ok()?;
            if end > literals + distances {
                return None;
            }
            lengths[at..end].fill(value);
            at = end;
        }
        // A block without an end is none.
        if lengths[256] == 0 {
            return None;
        }
        let tables = self.tables();
        build(&lengths[..literals], LITERAL_BITS, &mut tables.literals, literal, true)?;
        build(&lengths[literals..literals + distances], DISTANCE_BITS, &mut tables.distances, distance, true)
    }
}

/// The bits of a slice from this one on, if a whole header is there for sure.
fn before_header(data: &[u8], bit: u64) -> Option<Bits<'_>> {
    (data.len() as u64 >= bit / 8 + HEADER).then(|| Bits::at(data, bit)).flatten()
}
