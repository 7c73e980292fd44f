//! ISA-L as an inflater: the feature `isal`, which builds the library from source (autoconf, automake, libtool and nasm are
//! needed then) and links it statically. The only module with unsafe code: the crates around the library have no safe
//! interface to its stream state. Called by `gzip`.
#![expect(unsafe_code, reason = "calls into a C library, each of which is argued for")]

use isal_sys::igzip_lib as c;

use crate::gzip::{Inflater, Step, WRONG};

/// Inflates with ISA-L.
pub(crate) struct Isal(Box<c::inflate_state>);

impl Isal {
    pub(crate) fn new() -> Self {
        // SAFETY: `inflate_state` is plain old data (integers, arrays and raw pointers), for which zeros are valid values; zeros
        // also mean that no part of it is uninitialised. `isal_inflate_init` sets what is not to be zero.
        let mut state: Box<c::inflate_state> = Box::new(unsafe { std::mem::zeroed() });
        // SAFETY: the pointer is to a whole, exclusively borrowed state.
        unsafe { c::isal_inflate_init(&raw mut *state) };
        state.crc_flag = c::ISAL_DEFLATE;
        Self(state)
    }
}

// SAFETY: the raw pointers in the state are set at the beginning of each step from slices that live through it, and to null at
// its end; the library keeps no state outside of the structure.
unsafe impl Send for Isal {}

impl Isal {
    /// Takes this as what was before the stream. Only after [`Inflater::reset`].
    pub(crate) fn dictionary(&mut self, window: &[u8]) -> Result<(), &'static str> {
        let length = u32::try_from(window.len()).map_err(|_| WRONG)?;
        // SAFETY: the state is whole and exclusively borrowed; the library copies from the dictionary what fits into its window,
        // and only reads it, whatever the type says.
        let result = unsafe { c::isal_inflate_set_dict(&raw mut *self.0, window.as_ptr().cast_mut(), length) };
        if result == 0 { Ok(()) } else { Err(WRONG) }
    }

    /// If it stands before a block (whose header may have begun to arrive): how many bits of what it was given it has not used,
    /// provided that all output is out.
    pub(crate) fn bits_before_block(&self) -> Option<u32> {
        let state = &*self.0;
        let before = state.block_state == c::isal_block_state_ISAL_BLOCK_NEW_HDR
            || state.block_state == c::isal_block_state_ISAL_BLOCK_HDR;
        let out = state.tmp_out_valid == state.tmp_out_processed;
        let bits =
            state.read_in_length.max(0).cast_unsigned() + u32::from(state.tmp_in_size.max(0).cast_unsigned()) * 8;
        (before && out).then_some(bits)
    }
}

impl Inflater for Isal {
    fn step(&mut self, input: &[u8], room: &mut [u8]) -> Result<Step, &'static str> {
        let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let (given, space) = (length(input.len()), length(room.len()));
        let state = &mut *self.0;
        // The library only reads from here, whatever the type says.
        state.next_in = input.as_ptr().cast_mut();
        state.avail_in = given;
        state.next_out = room.as_mut_ptr();
        state.avail_out = space;
        // SAFETY: the state was initialised; next_in and next_out point to as many readable and writable bytes as avail_in and
        // avail_out say, which do not overlap, since one of the slices is borrowed exclusively.
        let result = unsafe { c::isal_inflate(&raw mut *state) };
        state.next_in = std::ptr::null_mut();
        state.next_out = std::ptr::null_mut();
        if result != c::ISAL_DECOMP_OK.cast_signed() {
            return Err(WRONG);
        }
        let (left_in, left_out) = (state.avail_in, state.avail_out);
        if left_in > given || left_out > space {
            return Err(WRONG);
        }
        let mut step = Step::new((given - left_in) as usize, (space - left_out) as usize);
        if state.block_state == c::isal_block_state_ISAL_BLOCK_FINISH {
            // What has been read ahead, in whole bytes; some of it may be from input before this one.
            let bits = state.read_in_length.clamp(0, 64).cast_unsigned();
            let ahead = (bits / 8) as usize;
            let bytes = state.read_in.checked_shr(bits % 8).unwrap_or(0).to_le_bytes();
            step.end(&bytes[..ahead]);
            state.read_in = 0;
            state.read_in_length = 0;
        }
        Ok(step)
    }

    fn reset(&mut self) {
        // SAFETY: the pointer is to a whole, exclusively borrowed and initialised state.
        unsafe { c::isal_inflate_reset(&raw mut *self.0) };
    }
}
