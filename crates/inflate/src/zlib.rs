//! zlib-rs as an inflater: straight from the input into the room, without a reader in between. Called by `gzip`.

use flate2::{Decompress, FlushDecompress, Status};

use crate::gzip::{Inflater, Step, WRONG};

/// Inflates with zlib-rs.
pub(crate) struct ZlibRs(Decompress);

impl ZlibRs {
    pub(crate) fn new() -> Self {
        Self(Decompress::new(false))
    }
}

impl Inflater for ZlibRs {
    fn step(&mut self, input: &[u8], room: &mut [u8]) -> Result<Step, &'static str> {
        let before = (self.0.total_in(), self.0.total_out());
        let status = self.0.decompress(input, room, FlushDecompress::None).map_err(|_| WRONG)?;
        // Never more than the lengths of two slices.
        let since = |now: u64, before: u64| usize::try_from(now - before).expect("no more than was given");
        let mut step = Step::new(since(self.0.total_in(), before.0), since(self.0.total_out(), before.1));
        if matches!(status, Status::StreamEnd) {
            step.end(&[]);
        }
        Ok(step)
    }

    fn reset(&mut self) {
        self.0.reset(false);
    }
}
