//! [`Steps`]: what a stream says to do, for one who does not know yet what is to be done it with: literals, and matches by their
//! distance. To carry them out takes about a third of what decoding takes, and none of it is what the window was for. Filled
//! by helpers, carried out in order.

use super::block::{Decoder, Stop, Wrong};
use super::out::{LITTLE, Out, repeat};
use super::{MARGIN, WINDOW};

/// Room for so many literals and matches.
const LITERALS: usize = 64 * 1024;
const MATCHES: usize = 16 * 1024;
/// So many literals before a match at most; the number itself says that no match comes after them.
const MANY: usize = 511;

const _: () = assert!(MANY + 258 + 4 * LITTLE < MARGIN && WINDOW <= 1 << 15);

/// A part of a stream.
pub(crate) struct Steps {
    literals: Box<[u8; LITERALS]>,
    /// Of each, bits 0 to 14 are the distance less one, bits 15 to 22 the length less three, and the others how many literals come
    /// before it.
    matches: Box<[u32; MATCHES]>,
    filled: Filled,
}

/// How far they are filled.
#[derive(Clone, Copy, Default)]
struct Filled {
    literals: usize,
    matches: usize,
    /// Literals before the last match.
    matched: usize,
}

/// How far they have been carried out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    literals: usize,
    matches: usize,
}

impl Steps {
    /// Memory that they take.
    pub(crate) const MEMORY: usize = LITERALS + 4 * MATCHES;

    pub(crate) fn new() -> Self {
        fn zeros<T: Clone + Default, const N: usize>() -> Box<[T; N]> {
            let zeros = vec![T::default(); N].into_boxed_slice();
            zeros.try_into().unwrap_or_else(|_| unreachable!("as many as were asked for"))
        }
        Self { literals: zeros(), matches: zeros(), filled: Filled::default() }
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.filled = Filled::default();
    }

    /// Decodes, up to the end of the block at most, behind what there is.
    pub(crate) fn decode(&mut self, decoder: &mut Decoder, data: &[u8], base: u64) -> Result<Stop, Wrong> {
        let Self { literals, matches, filled } = self;
        let (out, stop) = decoder.decode(data, base, Filling { literals, matches, filled: *filled })?;
        *filled = out.filled;
        Ok(stop)
    }

    /// Carries out what there is room for, from this place of `out` on, and answers how far it is filled then. What was before
    /// its beginning ends `before`.
    pub(crate) fn carry_out(
        &self,
        done: &mut Done,
        out: &mut [u8],
        mut at: usize,
        before: &[u8],
    ) -> Result<usize, Wrong> {
        let limit = out.len().saturating_sub(MARGIN);
        let literals = &self.literals[..];
        let Done { literals: mut literal, matches: mut next } = *done;
        for entry in &self.matches[next..self.filled.matches] {
            if at >= limit {
                break;
            }
            next += 1;
            let run = (entry >> 23) as usize;
            let from = literals.get(literal..).and_then(|part| part.first_chunk::<LITTLE>());
            let to = out.get_mut(at..).and_then(|part| part.first_chunk_mut::<LITTLE>());
            match (from, to) {
                (Some(from), Some(to)) if run <= LITTLE => *to = *from,
                _ => out[at..at + run].copy_from_slice(&literals[literal..literal + run]),
            }
            at += run;
            literal += run;
            if run != MANY {
                let length = ((entry >> 15) & 0xff) as usize + 3;
                repeat(out, at, (entry & 0x7fff) as usize + 1, length, before)?;
                at += length;
            }
        }
        if next == self.filled.matches {
            let n = (out.len() - at).min(self.filled.literals - literal);
            out[at..at + n].copy_from_slice(&literals[literal..literal + n]);
            at += n;
            literal += n;
        }
        *done = Done { literals: literal, matches: next };
        Ok(at)
    }

    /// Whether all has been carried out.
    pub(crate) fn all(&self, done: Done) -> bool {
        done.matches == self.filled.matches && done.literals == self.filled.literals
    }

    /// Whether there is nothing in them.
    pub(crate) fn is_empty(&self) -> bool {
        self.all(Done::default())
    }
}

/// Steps that are being filled.
struct Filling<'a> {
    literals: &'a mut [u8; LITERALS],
    matches: &'a mut [u32; MATCHES],
    filled: Filled,
}

impl Out for Filling<'_> {
    #[inline(always)]
    fn full(&self) -> bool {
        // A round has three literals at most; long runs of them take an entry each, and there is no more than all.
        self.filled.literals > LITERALS - 8 || self.filled.matches >= MATCHES - LITERALS / MANY - 1
    }

    #[inline(always)]
    fn literal(&mut self, byte: u8) {
        self.literals[self.filled.literals] = byte;
        self.filled.literals += 1;
    }

    #[inline(always)]
    fn again(&mut self, distance: usize, length: usize) -> Result<(), Wrong> {
        let Filled { literals, matches, matched } = &mut self.filled;
        let mut run = *literals - *matched;
        *matched = *literals;
        while run >= MANY {
            self.matches[*matches] = (MANY as u32) << 23;
            *matches += 1;
            run -= MANY;
        }
        self.matches[*matches] = (distance as u32 - 1) | ((length as u32 - 3) << 15) | ((run as u32) << 23);
        *matches += 1;
        Ok(())
    }

    fn stored(&mut self, bytes: &[u8]) -> usize {
        let at = self.filled.literals;
        let n = (LITERALS - at).min(bytes.len());
        self.literals[at..at + n].copy_from_slice(&bytes[..n]);
        self.filled.literals += n;
        n
    }
}
