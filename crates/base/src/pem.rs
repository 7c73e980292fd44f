//! Documents in PEM (RFC 7468). Does not interpret their content. Called by code that keeps keys and certificates in files.

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

/// The first document of this label in a text; `None` if there is none.
#[must_use]
pub fn read(label: &str, text: &str) -> Option<Vec<u8>> {
    let (_, after) = text.split_once(&format!("-----BEGIN {label}-----"))?;
    let (body, _) = after.split_once(&format!("-----END {label}-----"))?;
    STANDARD.decode(body.split_whitespace().collect::<String>()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_documents_round_trip() {
        for length in [0, 1, 47, 48, 49, 96, 1000] {
            let document = vec![0xA5; length];
            let text = format!("x\n{}{}", write("OTHER", b"y"), write("THING", &document));
            assert!(text.lines().all(|line| line.len() <= 64), "{text}");
            assert_eq!(read("THING", &text), Some(document), "{length}");
        }
        for text in ["", "-----BEGIN THING-----", "-----BEGIN THING-----\n*\n-----END THING-----\n"] {
            assert_eq!(read("THING", text), None, "{text}");
        }
    }
}
