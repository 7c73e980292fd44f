//! [`AuthorityFilter`]: what a client sends over HTTP/2, with `localhost` in place of every `:authority`.
//!
//! A Unix socket has no host. gRPC's libraries send the path of the socket, as it is or percent-encoded, `localhost`, or nothing as the
//! authority; the transport resets streams whose authority is not one of a URL. Header blocks depend on those before them, so all of
//! them are decoded, and written as literals that depend on none. Other frames pass as they are. Rules of the protocol are left to the
//! transport, which sees each violation, or one in its place; a violation that it cannot be given ends the connection in the same way.
//! Memory is bounded: one header block, one dynamic table, and [`MAX_READY`] bytes of output. No I/O; called by `filtered`.

use super::hpack::{Decoder, ENTRY_OVERHEAD, HpackError, encode};

/// Size of a request's header fields (names, values, and 32 bytes for each), above which the transport answers 431.
pub(super) const MAX_HEADER_LIST: u16 = 16 * 1024;
/// Bytes that a client sends before its first frame.
const PREFACE: usize = 24;
/// Length of a frame's header.
const FRAME_HEADER: usize = 9;
/// Greatest payload of a frame, unless the server announces another, which it does not.
const MAX_FRAME: usize = 16 * 1024;
/// Greatest header block. A list of the greatest size is never that long, whatever its encoding.
const MAX_BLOCK: usize = 4 * 16 * 1024;
/// Greatest number of frames of a header block.
const MAX_FRAGMENTS: usize = 64;
/// Reading stops while this many bytes of output wait.
const MAX_READY: usize = 32 * 1024;
/// The authority that the transport sees.
const AUTHORITY: &[u8] = b"localhost";

const HEADERS: u8 = 0x1;
const CONTINUATION: u8 = 0x9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// Length of the priority in a frame of headers.
const PRIORITY_LENGTH: usize = 5;

/// Requests that the filter does not pass on as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Violation {
    /// The header fields of a request are larger than the server allows.
    #[error("the header fields of a request are larger than {MAX_HEADER_LIST} bytes")]
    HeaderList,
    /// The header block of a request is larger than any allowed one.
    #[error("a header block is larger than {MAX_BLOCK} bytes or {MAX_FRAGMENTS} frames")]
    BlockSize,
    /// A header block that cannot be decoded.
    #[error(transparent)]
    Hpack(#[from] HpackError),
    /// Another frame within a header block.
    #[error("a header block is interrupted by another frame")]
    Interrupted,
}

enum State {
    /// This many bytes pass unchanged.
    Pass(usize),
    /// The header of a frame is read.
    Header,
    /// This many bytes of a frame's part of a header block are still expected.
    Fragment(usize),
    /// Nothing passes any more: the transport closes the connection.
    Broken,
}

/// A header block whose end has not arrived.
struct Block {
    stream: [u8; 4],
    /// Flags of the first frame that are passed on.
    flags: u8,
    priority: Option<[u8; PRIORITY_LENGTH]>,
    bytes: Vec<u8>,
    fragments: usize,
}

/// The filter of one connection.
pub(super) struct AuthorityFilter {
    state: State,
    /// The header of the present frame, or the start of it.
    header: [u8; FRAME_HEADER],
    header_length: usize,
    /// The payload of the present frame, if it belongs to a header block.
    payload: Vec<u8>,
    block: Option<Block>,
    decoder: Decoder,
    ready: Vec<u8>,
    taken: usize,
    violation: Option<Violation>,
}

impl AuthorityFilter {
    pub(super) fn new() -> Self {
        Self {
            state: State::Pass(PREFACE),
            header: [0; FRAME_HEADER],
            header_length: 0,
            payload: Vec::new(),
            block: None,
            decoder: Decoder::new(),
            ready: Vec::new(),
            taken: 0,
            violation: None,
        }
    }

    /// Bytes for the transport.
    pub(super) fn ready(&self) -> &[u8] {
        &self.ready[self.taken..]
    }

    /// Says that the transport has read `count` bytes of [`Self::ready`].
    pub(super) fn take(&mut self, count: usize) {
        self.taken += count;
        if self.taken >= self.ready.len() {
            self.ready.clear();
            self.taken = 0;
        }
    }

    /// The first violation since the last call.
    pub(super) fn take_violation(&mut self) -> Option<Violation> {
        self.violation.take()
    }

    /// Reads bytes of the client, as long as few enough wait for the transport; returns how many were read.
    pub(super) fn read(&mut self, input: &[u8]) -> usize {
        let mut rest = input;
        while !rest.is_empty() && self.ready().len() < MAX_READY {
            match self.state {
                State::Pass(length) => {
                    let (now, after) = rest.split_at(length.min(rest.len()));
                    self.ready.extend_from_slice(now);
                    rest = after;
                    self.state = if now.len() == length { State::Header } else { State::Pass(length - now.len()) };
                }
                State::Header => {
                    let missing = &mut self.header[self.header_length..];
                    let count = missing.len().min(rest.len());
                    missing[..count].copy_from_slice(&rest[..count]);
                    self.header_length += count;
                    rest = &rest[count..];
                    if self.header_length == FRAME_HEADER {
                        self.header_length = 0;
                        self.begin_frame();
                    }
                }
                State::Fragment(length) => {
                    let (now, after) = rest.split_at(length.min(rest.len()));
                    self.payload.extend_from_slice(now);
                    rest = after;
                    self.state = State::Fragment(length - now.len());
                    if now.len() == length {
                        self.end_fragment();
                    }
                }
                State::Broken => return input.len(),
            }
        }
        input.len() - rest.len()
    }

    fn begin_frame(&mut self) {
        let [a, b, c, kind, ..] = self.header;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        let is_fragment = match &self.block {
            Some(block) => {
                if kind != CONTINUATION || self.header[5..] != block.stream {
                    return self.refuse(Violation::Interrupted);
                }
                true
            }
            None => kind == HEADERS,
        };
        // The transport refuses larger ones by their header.
        if !is_fragment || length > MAX_FRAME {
            self.ready.extend_from_slice(&self.header);
            self.state = if length == 0 { State::Header } else { State::Pass(length) };
            return;
        }
        self.payload.clear();
        self.state = State::Fragment(length);
        if length == 0 {
            self.end_fragment();
        }
    }

    /// Handles the payload of a frame that belongs to a header block.
    fn end_fragment(&mut self) {
        self.state = State::Header;
        let flags = self.header[4];
        let mut block = match self.block.take() {
            Some(mut block) => {
                block.bytes.extend_from_slice(&self.payload);
                block.fragments += 1;
                block
            }
            None => match self.first_fragment() {
                Some(block) => block,
                None => {
                    // Padding or priority longer than the frame: the transport refuses the frame.
                    self.ready.extend_from_slice(&self.header);
                    self.ready.extend_from_slice(&self.payload);
                    self.state = State::Broken;
                    return;
                }
            },
        };
        if block.bytes.len() > MAX_BLOCK || block.fragments > MAX_FRAGMENTS {
            return self.refuse(Violation::BlockSize);
        }
        if flags & END_HEADERS == 0 {
            self.block = Some(block);
            return;
        }
        let mut fields = Vec::with_capacity(block.bytes.len() * 2);
        let mut list = 0;
        let decoded = self.decoder.decode(&block.bytes, |name, value| {
            // The start of one field above the limit is enough for the transport to refuse the request.
            if list <= usize::from(MAX_HEADER_LIST) {
                list += name.len() + value.len() + ENTRY_OVERHEAD;
                let value = if name == b":authority" { AUTHORITY } else { value };
                encode(start(name), start(value), &mut fields);
            }
        });
        if let Err(error) = decoded {
            return self.refuse(Violation::Hpack(error));
        }
        if list > usize::from(MAX_HEADER_LIST) {
            self.violation.get_or_insert(Violation::HeaderList);
        }
        block.bytes = fields;
        self.write(&block);
    }

    /// The part of a header block in a frame of headers, without padding.
    fn first_fragment(&self) -> Option<Block> {
        let flags = self.header[4];
        let mut rest = &self.payload[..];
        if flags & PADDED != 0 {
            let (padding, after) = rest.split_first()?;
            rest = after.get(..after.len().checked_sub(usize::from(*padding))?)?;
        }
        let mut priority = None;
        if flags & PRIORITY != 0 {
            let (first, after) = rest.split_first_chunk()?;
            (priority, rest) = (Some(*first), after);
        }
        let mut stream = [0; 4];
        stream.copy_from_slice(&self.header[5..]);
        Some(Block { stream, flags: flags & (END_STREAM | PRIORITY), priority, bytes: rest.to_vec(), fragments: 1 })
    }

    /// Writes frames that make up the block.
    fn write(&mut self, block: &Block) {
        let priority: &[u8] = block.priority.as_ref().map_or(&[], |priority| priority);
        let (first, mut rest) = block.bytes.split_at(block.bytes.len().min(MAX_FRAME - PRIORITY_LENGTH));
        let end = |rest: &[u8]| if rest.is_empty() { END_HEADERS } else { 0 };
        self.frame(HEADERS, block.flags | end(rest), block.stream, &[priority, first]);
        while !rest.is_empty() {
            let (next, after) = rest.split_at(rest.len().min(MAX_FRAME));
            rest = after;
            self.frame(CONTINUATION, end(rest), block.stream, &[next]);
        }
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: [u8; 4], payload: &[&[u8]]) {
        let length = payload.iter().map(|part| part.len()).sum::<usize>();
        let length = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
        self.ready.extend_from_slice(&length[1..]);
        self.ready.extend_from_slice(&[kind, flags]);
        self.ready.extend_from_slice(&stream);
        for part in payload {
            self.ready.extend_from_slice(part);
        }
    }

    /// Ends the connection: gives the transport a frame for which it does so, and nothing more.
    fn refuse(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
        self.state = State::Broken;
        // A part of a header block that has no start.
        self.frame(CONTINUATION, END_HEADERS, [0, 0, 0, 1], &[]);
    }
}

/// As much of a name or value as is never within the limit.
fn start(text: &[u8]) -> &[u8] {
    &text[..text.len().min(usize::from(MAX_HEADER_LIST))]
}

#[cfg(any(test, feature = "fuzzing"))]
#[path = "authority_fuzz.rs"]
pub(crate) mod fuzz;

#[cfg(test)]
#[path = "authority_tests.rs"]
mod tests;
