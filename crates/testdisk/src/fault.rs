//! The faults of a disk: which operations, where, from when on, how often, and with which error. Plain values, which go to the
//! server as a line of text.

use std::ops::Range;

/// A read or a write failed.
pub const EIO: i32 = 5;
/// There is no space left on the device.
pub const ENOSPC: i32 = 28;

/// A request of a file system to its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// To read a range.
    Read,
    /// To write a range.
    Write,
    /// To make sure of what was written.
    Flush,
}

impl Op {
    const ALL: [(Self, &str); 3] = [(Self::Read, "read"), (Self::Write, "write"), (Self::Flush, "flush")];
}

/// A fault. Several may be set; the first that matches is returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub(crate) op: Op,
    pub(crate) bytes: Range<u64>,
    pub(crate) skip: u64,
    pub(crate) times: u64,
    pub(crate) errno: i32,
}

impl Fault {
    /// Every operation of this kind fails, everywhere, from now on.
    #[must_use]
    pub fn of(op: Op, errno: i32) -> Self {
        Self { op, bytes: 0..u64::MAX, skip: 0, times: u64::MAX, errno }
    }

    /// Only what touches these bytes of the disk. A flush touches none, and is not asked.
    #[must_use]
    pub fn within(self, bytes: Range<u64>) -> Self {
        Self { bytes, ..self }
    }

    /// So many that would fail succeed before.
    #[must_use]
    pub fn after(self, skip: u64) -> Self {
        Self { skip, ..self }
    }

    /// So many fail, those after them succeed.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }

    pub(crate) fn to_line(&self) -> String {
        let name = Op::ALL.iter().find(|(op, _)| *op == self.op).map_or("", |(_, name)| name);
        let Self { bytes, skip, times, errno, .. } = self;
        format!("{name} {} {} {skip} {times} {errno}", bytes.start, bytes.end)
    }

    pub(crate) fn of_line(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let name = words.next()?;
        let (op, _) = Op::ALL.into_iter().find(|(_, known)| *known == name)?;
        let mut number = || words.next()?.parse::<u64>().ok();
        let bytes = number()?..number()?;
        let (skip, times) = (number()?, number()?);
        Some(Self { op, bytes, skip, times, errno: i32::try_from(number()?).ok()? })
    }

    /// Counts an operation, and returns the error that it gets.
    pub(crate) fn judge(&mut self, op: Op, bytes: &Range<u64>) -> Option<i32> {
        let touches = op == Op::Flush || bytes.start < self.bytes.end && self.bytes.start < bytes.end;
        if op != self.op || !touches {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.times = self.times.checked_sub(1)?;
        Some(self.errno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_asked_in_its_place_and_turn() {
        let fault = Fault::of(Op::Write, EIO).within(100..200).after(1).times(2);
        let mut fault = Fault::of_line(&fault.to_line()).expect("as it was written");
        assert_eq!(fault.judge(Op::Write, &(0..100)), None, "before the range");
        assert_eq!(fault.judge(Op::Write, &(200..300)), None, "behind it");
        assert_eq!(fault.judge(Op::Read, &(100..200)), None, "another operation");
        let verdicts: Vec<_> = (0..4).map(|_| fault.judge(Op::Write, &(199..200))).collect();
        assert_eq!(verdicts, [None, Some(EIO), Some(EIO), None]);
        let mut always = Fault::of(Op::Flush, ENOSPC);
        assert_eq!(always.judge(Op::Flush, &(0..0)), Some(ENOSPC));
        assert_eq!(Fault::of_line("write 1 2"), None);
    }
}
