//! The watch over frames of the server, in parts of every length.

use super::*;

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, 0, 0, 0, 0, 1], payload].concat()
}

#[test]
fn transport_refusals_are_detected_in_any_fragments() {
    let reset = |code: u8| frame(RST_STREAM, &[0, 0, 0, code]);
    let goaway = |code: u8| frame(GOAWAY, &[&[0, 0, 0, 1, 0, 0, 0, code][..], b"debug data"].concat());
    let cases = [
        ("data", frame(0x0, &[3; 40]), false),
        ("empty settings", frame(0x4, &[]), false),
        ("reset: cancel", reset(8), false),
        ("reset: no error", reset(0), false),
        ("reset: refused, to be sent again", reset(7), false),
        ("reset: protocol error", reset(1), true),
        ("close: no error", goaway(0), false),
        ("close: compression error", goaway(9), true),
    ];
    for (name, bytes, want) in cases {
        let sent = [frame(0x0, &[1; 20]), bytes, frame(0x0, &[0; 13]), frame(0x4, &[])].concat();
        for part in 1..=sent.len() {
            let mut refusals = Refusals::new(None);
            sent.chunks(part).for_each(|part| refusals.watch(part));
            assert_eq!(refusals.is_warned, want, "{name} in parts of {part}");
            assert_eq!((refusals.length, refusals.skip), (0, 0), "{name}: ends between frames");
        }
    }
}
