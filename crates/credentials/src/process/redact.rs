//! [`one_line`]: what a program wrote to its standard error, fit to be shown: one line, short, without secrets.

/// Stands for what is not shown.
const HIDDEN: &str = "<hidden>";
/// The most characters that are shown.
const SHOWN: usize = 512;
/// Words that precede a credential.
const SCHEMES: [&str; 2] = ["bearer", "basic"];

/// `text` in one line, at most [`SHOWN`] characters, without `secrets`, without what follows `Bearer` and `Basic`, and
/// without signed tokens. `cut` is true if `text` is the beginning of a longer text.
pub(super) fn one_line(text: &[u8], cut: bool, secrets: &[&str]) -> String {
    // The longest first: one secret may be a part of another.
    let mut secrets: Vec<&str> = secrets.iter().copied().filter(|s| !s.trim().is_empty()).collect();
    secrets.sort_by_key(|s| std::cmp::Reverse(s.len()));
    // The end of what was cut may be the beginning of a secret.
    let whole = if cut { text.len().saturating_sub(secrets.first().map_or(0, |s| s.len())) } else { text.len() };
    let mut text = String::from_utf8_lossy(&text[..whole]).into_owned();
    for secret in secrets {
        text = text.replace(secret, HIDDEN);
    }

    let mut line = String::new();
    let mut after_scheme = false;
    for word in text.split(|c: char| c.is_whitespace() || !oci::text::is_printable(c)).filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(if after_scheme || is_signed_token(word) { HIDDEN } else { word });
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        after_scheme = SCHEMES.iter().any(|scheme| bare.eq_ignore_ascii_case(scheme));
        if line.len() > 4 * SHOWN {
            break;
        }
    }
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None if cut => format!("{line}…"),
        None => line,
    }
}

/// Returns true if the word contains a JSON web token: they begin with `{"`, which is `eyJ` in base64.
fn is_signed_token(word: &str) -> bool {
    word.find("eyJ").is_some_and(|at| word[at..].len() > 20 && word[at..].contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stderr_is_shown_in_one_line_without_secrets() {
        let token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln";
        let cases = [
            ("nothing", "".to_owned(), vec![], ""),
            ("one line", "no access\n\tto the vault\r\n".to_owned(), vec![], "no access to the vault"),
            ("control characters", "a\u{1b}[31mred\u{7}".to_owned(), vec![], "a [31mred"),
            ("C1 and directions", "a\u{9b}31mred\u{202e}der".to_owned(), vec![], "a 31mred der"),
            ("a secret", "wrong password hunter2!".to_owned(), vec!["hunter2"], "wrong password <hidden>!"),
            ("one within another", "ab abc".to_owned(), vec!["ab", "abc"], "<hidden> <hidden>"),
            ("an empty secret", "fine".to_owned(), vec!["", " "], "fine"),
            (
                "a header",
                "sent Authorization: Basic dTpw to x".to_owned(),
                vec![],
                "sent Authorization: Basic <hidden> to x",
            ),
            (
                "a quoted header",
                "\"authorization: bearer\" abc".to_owned(),
                vec![],
                "\"authorization: bearer\" <hidden>",
            ),
            ("a token", format!("token={token} refused"), vec![], "<hidden> refused"),
            ("the word", "eyJ is no token".to_owned(), vec![], "eyJ is no token"),
        ];
        for (name, text, secrets, want) in cases {
            assert_eq!(one_line(text.as_bytes(), false, &secrets), want, "{name}");
        }
    }

    #[test]
    fn truncated_text_shows_no_partial_secret() {
        let long = "word ".repeat(1000);
        let shown = one_line(long.as_bytes(), false, &[]);
        assert_eq!(shown.chars().count(), SHOWN + 1);
        assert!(shown.ends_with('…'));
        // The cut is within the secret.
        assert_eq!(one_line(b"password swordf", true, &["swordfish"]), "passwo…");
        // Not even when the text before it shrinks a lot.
        let text = format!("{}swordf", "swordfish".repeat(100));
        assert!(!one_line(text.as_bytes(), true, &["swordfish"]).contains("sw"), "shown");
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        assert_eq!(one_line(&[0xff, 0xfe, b'x', 0], false, &[]), "\u{fffd}\u{fffd}x");
    }
}
