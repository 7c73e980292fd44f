//! The loop that everything else is for: the codes of a block. Called by the decoder.

use super::bits::Bits;
use super::block::{Stop, Tables, Wrong};
use super::out::Out;
use super::tables::{
    DISTANCE_BITS, DISTANCE_ROOM, END, FURTHER, LITERAL, LITERAL_BITS, LITERAL_ROOM, SPECIAL, code, total,
};

/// Goes on with a block's codes, to its end at most. The bits then are those behind what it has read, be it wrong.
#[inline]
pub(super) fn run<O: Out>(tables: &Tables, bits: &mut Bits<'_>, mut out: O) -> Result<(O, Stop), Wrong> {
    let Tables { literals, distances } = tables;
    // In registers as long as it goes on.
    let mut here = *bits;
    // The next entry is looked up as soon as its bits are there.
    let mut entry = literals[here.look(LITERAL_BITS)];
    let stop = loop {
        if out.full() {
            break Ok(Stop::Room);
        }
        if !here.refill_twice() {
            break Ok(Stop::Input);
        }
        if entry & LITERAL != 0 {
            // 56 bits hold three looks and what comes after.
            here.drop(total(entry));
            out.literal((entry >> 16) as u8);
            entry = literals[here.look(LITERAL_BITS)];
            if entry & LITERAL != 0 {
                here.drop(total(entry));
                out.literal((entry >> 16) as u8);
                entry = literals[here.look(LITERAL_BITS)];
                if entry & LITERAL != 0 {
                    here.drop(total(entry));
                    out.literal((entry >> 16) as u8);
                    entry = literals[here.look(LITERAL_BITS)];
                    continue;
                }
            }
        }
        if entry & SPECIAL != 0 {
            if entry & FURTHER != 0 {
                here.drop(LITERAL_BITS);
                let index = (entry >> 16) as usize + here.look(code(entry));
                entry = literals[index & (LITERAL_ROOM - 1)];
                if entry & LITERAL != 0 {
                    here.drop(total(entry));
                    out.literal((entry >> 16) as u8);
                    entry = literals[here.look(LITERAL_BITS)];
                    continue;
                }
            }
            if entry & SPECIAL != 0 {
                if entry & END == 0 {
                    break Err(Wrong);
                }
                here.drop(total(entry));
                break Ok(Stop::Block);
            }
        }
        let length = (entry >> 24) as usize + 3 + extra(&here, entry);
        here.drop(total(entry));
        here.refill();
        let mut far = distances[here.look(DISTANCE_BITS)];
        if far & SPECIAL != 0 {
            if far & FURTHER == 0 {
                break Err(Wrong);
            }
            here.drop(DISTANCE_BITS);
            let index = (far >> 16) as usize + here.look(code(far));
            far = distances[index & (DISTANCE_ROOM - 1)];
            if far & SPECIAL != 0 {
                break Err(Wrong);
            }
        }
        let distance = (far >> 16) as usize + extra(&here, far);
        here.drop(total(far));
        entry = literals[here.look(LITERAL_BITS)];
        if out.again(distance, length).is_err() {
            break Err(Wrong);
        }
    };
    *bits = here;
    Ok((out, stop?))
}

/// What the extra bits behind an entry's codes say.
#[inline(always)]
fn extra(bits: &Bits<'_>, entry: u32) -> usize {
    bits.look(total(entry)) >> code(entry)
}
