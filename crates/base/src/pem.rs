//! Writes documents in PEM (RFC 7468); `rustls-pki-types` reads them. Called by code that keeps keys and certificates in files.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The document as text, in lines of 64 characters.
#[must_use]
pub fn write(label: &str, document: &[u8]) -> String {
    let text = STANDARD.encode(document);
    let mut lines = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(64) {
        lines.extend(line.iter().copied().map(char::from));
        lines.push('\n');
    }
    lines + "-----END " + label + "-----\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_is_base64_in_lines_of_64_characters() {
        for (length, lines) in [(0, 0), (1, 1), (47, 1), (48, 1), (49, 2), (96, 2), (1000, 21)] {
            let document = vec![0xA5; length];
            let text = write("THING", &document);
            let body =
                text.strip_prefix("-----BEGIN THING-----\n").and_then(|t| t.strip_suffix("-----END THING-----\n"));
            let body = body.expect("the labels");
            assert!(body.lines().count() == lines && body.lines().all(|line| line.len() <= 64), "{text}");
            assert_eq!(STANDARD.decode(body.replace('\n', "")).expect("base64"), document, "{length}");
        }
    }
}
