//! [`Key`]: the keys of `imagelet top`, parsed from the bytes that a terminal sends. Pure. Called by [`super::screen`].

/// A key that has a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Tab,
    Enter,
    Back,
    Help,
    Quit,
}

/// Escape sequences of keys, without the escape character: those of xterm, of the Linux console and of the keypad mode.
const SEQUENCES: [(&[u8], Key); 15] = [
    (b"[A", Key::Up),
    (b"OA", Key::Up),
    (b"[B", Key::Down),
    (b"OB", Key::Down),
    (b"[5~", Key::PageUp),
    (b"[6~", Key::PageDown),
    (b"[H", Key::Home),
    (b"OH", Key::Home),
    (b"[1~", Key::Home),
    (b"[7~", Key::Home),
    (b"[F", Key::End),
    (b"OF", Key::End),
    (b"[4~", Key::End),
    (b"[8~", Key::End),
    (b"[D", Key::Back),
];

/// Returns the keys in what was read at once. Keys without a meaning are left out.
pub(super) fn parse(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let [first, rest @ ..] = bytes {
        bytes = rest;
        keys.extend(match first {
            0x1b => {
                let (key, rest) = sequence(bytes);
                bytes = rest;
                key
            }
            b'q' | b'Q' | 0x03 => Some(Key::Quit),
            b'?' | b'h' => Some(Key::Help),
            b'k' => Some(Key::Up),
            b'j' => Some(Key::Down),
            b'g' => Some(Key::Home),
            b'G' => Some(Key::End),
            b' ' => Some(Key::PageDown),
            b'b' => Some(Key::PageUp),
            b'\t' => Some(Key::Tab),
            b'\r' | b'\n' => Some(Key::Enter),
            0x08 | 0x7f => Some(Key::Back),
            _ => None,
        });
    }
    keys
}

/// Returns the key of the bytes after an escape character, and the bytes that follow it.
fn sequence(bytes: &[u8]) -> (Option<Key>, &[u8]) {
    for (sequence, key) in SEQUENCES {
        if let Some(rest) = bytes.strip_prefix(sequence) {
            return (Some(key), rest);
        }
    }
    match bytes {
        // An unknown sequence ends with its first letter or tilde.
        [b'[', rest @ ..] => {
            let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte)).map_or(rest.len(), |at| at + 1);
            (None, &rest[end..])
        }
        [b'O', _, rest @ ..] => (None, rest),
        _ => (Some(Key::Back), bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_terminals_are_read() {
        let cases: [(&[u8], &[Key]); 12] = [
            (b"q", &[Key::Quit]),
            (b"\x03", &[Key::Quit]),
            (b"jjk", &[Key::Down, Key::Down, Key::Up]),
            (b"\x1b[A\x1bOB", &[Key::Up, Key::Down]),
            (b"\x1b[5~\x1b[6~", &[Key::PageUp, Key::PageDown]),
            (b"\x1b[H\x1b[4~", &[Key::Home, Key::End]),
            (b"\x1b", &[Key::Back]),
            (b"\x1b\x1b[B", &[Key::Back, Key::Down]),
            (b"\x1b[1;5C?", &[Key::Help]),
            (b"\x1b[", &[]),
            (b"\t\r\n", &[Key::Tab, Key::Enter, Key::Enter]),
            (b"\xff\x00xyz", &[]),
        ];
        for (bytes, want) in cases {
            assert_eq!(parse(bytes), want, "{bytes:?}");
        }
    }
}
