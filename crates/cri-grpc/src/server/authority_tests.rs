//! Requests as gRPC's libraries write them, and the bytes that the transport receives.

use super::fuzz::filtered;
use super::*;

const PREFACE_BYTES: &[u8; PREFACE] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame of stream 1.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
}

/// A field that enters the dynamic table, as C-core writes it.
fn entered(name: &str, value: &str) -> Vec<u8> {
    let mut field = Vec::new();
    encode(name.as_bytes(), value.as_bytes(), &mut field);
    field[0] = 0x40;
    field
}

fn request(authority: &str) -> Vec<u8> {
    let path = entered(":path", "/runtime.v1.ImageService/ListImages");
    [&[0x83, 0x86], &path[..], &entered(":authority", authority), &entered("te", "trailers")].concat()
}

fn connection(frames: &[Vec<u8>]) -> Vec<u8> {
    [&PREFACE_BYTES[..], &frames.concat()].concat()
}

struct Seen {
    flags: u8,
    fields: Vec<(String, String)>,
}

/// The header blocks of a connection, each read by a decoder without a table; other frames are skipped.
fn blocks(output: &[u8]) -> Vec<Seen> {
    let mut rest = &output[PREFACE..];
    let mut seen = Vec::new();
    let mut block: Option<(u8, Vec<u8>)> = None;
    while let Some((header, after)) = rest.split_first_chunk::<FRAME_HEADER>() {
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        assert!(length <= MAX_FRAME);
        let (payload, after) = after.split_at(length);
        rest = after;
        match header[3] {
            HEADERS => {
                let skip = if header[4] & PRIORITY == 0 { 0 } else { PRIORITY_LENGTH };
                block = Some((header[4], payload[skip..].to_vec()));
            }
            CONTINUATION => block.as_mut().expect("a block").1.extend_from_slice(payload),
            _ => continue,
        }
        if header[4] & END_HEADERS != 0 {
            let (flags, bytes) = block.take().expect("a block");
            let mut fields = Vec::new();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
            let field = |name: &[u8], value: &[u8]| fields.push((text(name), text(value)));
            Decoder::new().decode(&bytes, field).expect("a block that depends on no other");
            seen.push(Seen { flags, fields });
        }
    }
    assert!(rest.is_empty() && block.is_none());
    seen
}

fn authorities(seen: &[Seen]) -> Vec<&str> {
    let all = seen.iter().flat_map(|seen| &seen.fields);
    all.filter(|(name, _)| name == ":authority").map(|(_, value)| value.as_str()).collect()
}

#[test]
fn every_authority_becomes_localhost_and_nothing_else_changes() {
    for authority in ["/run/imagelet.sock", "%2Frun%2Fimagelet.sock", "", "localhost", "a b", "[", "unix:///x", "é"] {
        // The second request refers to the entries of the first.
        let again = [0x83, 0x86, 0xc0, 0xbf, 0xbe];
        let input =
            connection(&[frame(HEADERS, END_HEADERS, &request(authority)), frame(HEADERS, END_HEADERS, &again)]);
        let seen = blocks(&filtered(&input, 7));
        assert_eq!(authorities(&seen), ["localhost", "localhost"], "{authority}");
        let want = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/runtime.v1.ImageService/ListImages"),
            (":authority", "localhost"),
            ("te", "trailers"),
        ];
        for request in &seen {
            let fields: Vec<_> = request.fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            assert_eq!(fields, want, "{authority}");
        }
    }
    let none = connection(&[frame(HEADERS, END_HEADERS, &[0x83, 0x86])]);
    assert!(authorities(&blocks(&filtered(&none, 1))).is_empty(), "none is made up");
    let empty = connection(&[frame(HEADERS, END_HEADERS, &[0x83, 0x86, 0x81])]);
    assert_eq!(authorities(&blocks(&filtered(&empty, 1))), ["localhost"], "the static table's is empty");
}

#[test]
fn blocks_in_many_frames_with_padding_and_priority_are_read() {
    let block = request("/run/imagelet.sock");
    let (first, rest) = block.split_at(20);
    let (second, third) = rest.split_at(3);
    let padded = [&[4][..], &[0, 0, 0, 0, 16], first, &[0; 4]].concat();
    let input = connection(&[
        frame(0x4, 0, &[]),
        frame(HEADERS, PADDED | PRIORITY | END_STREAM, &padded),
        frame(CONTINUATION, 0, second),
        frame(CONTINUATION, 0, &[]),
        frame(CONTINUATION, END_HEADERS, third),
        frame(0x0, 0, &[7; 300]),
    ]);
    for part in [1, 2, 64, input.len()] {
        let output = filtered(&input, part);
        let seen = blocks(&output);
        assert_eq!(authorities(&seen), ["localhost"]);
        assert_eq!(seen[0].flags, PRIORITY | END_STREAM | END_HEADERS);
        assert!(output.ends_with(&frame(0x0, 0, &[7; 300])), "data pass as they are");
    }
}

#[test]
fn violations_are_named_and_end_the_connection() {
    let open = || frame(HEADERS, 0, &[0x83]);
    let long = entered("x", &"y".repeat(MAX_FRAME - 100));
    let cases: Vec<(&str, Vec<Vec<u8>>, Violation)> = vec![
        ("index", vec![frame(HEADERS, END_HEADERS, &[0xbe])], Violation::Hpack(HpackError::Index(62))),
        ("data within a block", vec![open(), frame(0x0, 0, &[1])], Violation::Interrupted),
        ("block within a block", vec![open(), frame(HEADERS, END_HEADERS, &[0x86])], Violation::Interrupted),
        ("endless block", [vec![open()], vec![frame(CONTINUATION, 0, &long); 5]].concat(), Violation::BlockSize),
        ("empty frames", [vec![open()], vec![frame(CONTINUATION, 0, &[]); 64]].concat(), Violation::BlockSize),
    ];
    for (name, frames, want) in cases {
        let mut filter = AuthorityFilter::new();
        let mut input = connection(&frames);
        input.extend(frame(HEADERS, END_HEADERS, &request("x")));
        let mut rest = &input[..];
        let mut output = Vec::new();
        while !rest.is_empty() {
            rest = &rest[filter.read(rest)..];
            output.extend_from_slice(filter.ready());
            filter.take(filter.ready().len());
        }
        assert_eq!(filter.take_violation(), Some(want), "{name}");
        assert!(!output.windows(9).any(|bytes| bytes == b"localhost"), "{name}: a request after it passes");
        assert!(output.len() > PREFACE, "{name}: the transport sees a violation");
    }
}

#[test]
fn header_fields_above_the_limit_are_refused() {
    let entry = entered("x", &"y".repeat(4000));
    let block = [&request("x")[..], &entry, &[0xbe; 4000]].concat();
    let mut filter = AuthorityFilter::new();
    let input = connection(&[frame(HEADERS, END_HEADERS, &block)]);
    assert_eq!(filter.read(&input), input.len());
    assert_eq!(filter.take_violation(), Some(Violation::HeaderList));
    let seen = blocks(filter.ready());
    let list: usize = seen[0].fields.iter().map(|(name, value)| name.len() + value.len() + ENTRY_OVERHEAD).sum();
    assert!((16 * 1024..20 * 1024).contains(&list), "{list}");
}
