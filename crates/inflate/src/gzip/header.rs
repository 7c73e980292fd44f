//! The header of a gzip member (RFC 1952, 2.3): checked and passed over; nobody wants the name or the time in it. Called
//! for each member.

use crate::crc::Crc;

use super::{cut_off, damaged};
use crate::Error;
use crate::input::Input;

const HEADER_CRC: u8 = 1 << 1;
const EXTRA: u8 = 1 << 2;
const NAME: u8 = 1 << 3;
const COMMENT: u8 = 1 << 4;
const RESERVED: u8 = 0xe0;

/// Reads past a header.
pub(super) fn skip(input: &mut Input<'_>) -> Result<(), Error> {
    let mut crc = Crc::default();
    let head = input.at_least(10)?;
    let start = &head[..head.len().min(3)];
    if !start.is_empty() && start != &[0x1f, 0x8b, 8][..start.len()] {
        return Err(damaged("what follows its end is no gzip"));
    }
    let Some(&[_, _, _, flags, ..]) = head.first_chunk::<10>() else { return Err(cut_off()) };
    if flags & RESERVED != 0 {
        return Err(damaged("its header has flags that nobody knows"));
    }
    take(input, 10, &mut crc)?;
    if flags & EXTRA != 0 {
        let Some(&len) = input.at_least(2)?.first_chunk() else { return Err(cut_off()) };
        take(input, 2 + usize::from(u16::from_le_bytes(len)), &mut crc)?;
    }
    for flag in [NAME, COMMENT] {
        if flags & flag != 0 {
            text(input, &mut crc)?;
        }
    }
    if flags & HEADER_CRC != 0 {
        let Some(&said) = input.at_least(2)?.first_chunk() else { return Err(cut_off()) };
        if u32::from(u16::from_le_bytes(said)) != crc.sum() & 0xffff {
            return Err(damaged("the checksum of its header is another"));
        }
        input.consume(2);
    }
    Ok(())
}

fn take(input: &mut Input<'_>, mut amount: usize, crc: &mut Crc) -> Result<(), Error> {
    while amount > 0 {
        let bytes = input.fill()?;
        let n = bytes.len().min(amount);
        if n == 0 {
            return Err(cut_off());
        }
        crc.update(&bytes[..n]);
        input.consume(n);
        amount -= n;
    }
    Ok(())
}

/// Text up to and with its NUL.
fn text(input: &mut Input<'_>, crc: &mut Crc) -> Result<(), Error> {
    loop {
        let bytes = input.fill()?;
        if bytes.is_empty() {
            return Err(cut_off());
        }
        let end = bytes.iter().position(|byte| *byte == 0);
        let n = end.map_or(bytes.len(), |at| at + 1);
        crc.update(&bytes[..n]);
        input.consume(n);
        if end.is_some() {
            return Ok(());
        }
    }
}
