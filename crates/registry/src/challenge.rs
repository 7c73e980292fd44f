//! Parser of `WWW-Authenticate` as registries write it, which is not always as the standard wants it: several
//! challenges in one header or in several, quoted strings, values with characters that should have been quoted. Foreign
//! input: returns a list for any input, and never panics.

/// A challenge of a `WWW-Authenticate` header (RFC 9110, section 11.6.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Challenge {
    /// The scheme in lower case.
    pub(crate) scheme: String,
    params: Vec<(String, String)>,
}

impl Challenge {
    /// Returns true if the challenge can be answered: `Basic` and `Bearer` can.
    pub(crate) fn is_known(&self) -> bool {
        matches!(self.scheme.as_str(), "basic" | "bearer")
    }

    /// The first parameter of this name (lower case) that is not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.params.iter().find(|(n, v)| n == name && !v.is_empty()).map(|(_, v)| v.as_str())
    }
}

/// Every challenge of every header, in order.
pub(crate) fn parse<'a>(headers: impl IntoIterator<Item = &'a [u8]>) -> Vec<Challenge> {
    let mut out = Vec::new();
    for header in headers {
        let text = String::from_utf8_lossy(header);
        parse_one(&text, &mut out);
    }
    out
}

fn parse_one(text: &str, out: &mut Vec<Challenge>) {
    let start = out.len();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|c: char| c == ',' || c.is_whitespace());
        if rest.is_empty() {
            return;
        }
        let (word, after) = split_at(rest, |c| c == '=' || c == ',' || c.is_whitespace());
        let spaced = after.trim_start();
        match spaced.strip_prefix('=') {
            Some(value) if !word.is_empty() && out.len() > start => {
                let (value, after) = take_value(value.trim_start());
                if let Some(challenge) = out.last_mut() {
                    challenge.params.push((word.to_ascii_lowercase(), value));
                }
                rest = after;
            }
            // A parameter before any scheme: skipped.
            Some(value) => rest = take_value(value.trim_start()).1,
            None => {
                // A scheme, or a token68 after one, which no scheme known to this client uses. The only difference is
                // that no parameter follows a token68, and taking one for a scheme is harmless.
                out.push(Challenge { scheme: word.to_ascii_lowercase(), params: Vec::new() });
                rest = after;
            }
        }
    }
}

/// A quoted string, unescaped (one without an end takes the rest), or everything up to a comma or space.
fn take_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = split_at(text, |c| c == ',' || c.is_whitespace());
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    (value, "")
}

fn split_at(text: &str, stop: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(stop).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(headers: &[&str]) -> String {
        let parts: Vec<String> = parse(headers.iter().map(|h| h.as_bytes()))
            .into_iter()
            .map(|c| {
                let params: Vec<String> = c.params.iter().map(|(n, v)| format!("{n}={v}")).collect();
                format!("{}[{}]", c.scheme, params.join("|"))
            })
            .collect();
        parts.join(" ")
    }

    #[test]
    fn headers_as_registries_write_them() {
        let cases: Vec<(&[&str], &str)> = vec![
            (&[r#"Basic realm="x""#], "basic[realm=x]"),
            (&["Basic"], "basic[]"),
            (
                &[
                    r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/busybox:pull""#,
                ],
                "bearer[realm=https://auth.docker.io/token|service=registry.docker.io|scope=repository:library/busybox:pull]",
            ),
            (
                &[r#"Bearer realm="https://a/t",scope="repository:a:pull,push" , error="invalid_token""#],
                "bearer[realm=https://a/t|scope=repository:a:pull,push|error=invalid_token]",
            ),
            (&[r#"BEARER Realm="r", Basic realm="b""#], "bearer[realm=r] basic[realm=b]"),
            (&[r#"Bearer realm="r""#, r#"Basic realm="b""#], "bearer[realm=r] basic[realm=b]"),
            (&["Negotiate, Basic realm=b"], "negotiate[] basic[realm=b]"),
            (&["Bearer realm=https://a/t?x=1,service=s"], "bearer[realm=https://a/t?x=1|service=s]"),
            (&[r#"Bearer realm = "r" , service = s"#], "bearer[realm=r|service=s]"),
            (&[r#"Basic realm="a \"q\" \\ b""#], r#"basic[realm=a "q" \ b]"#),
            (&[r#"Basic realm="open"#], "basic[realm=open]"),
            (&[r#"Basic realm="","#], "basic[realm=]"),
            (&[",,, Basic ,realm=x,,"], "basic[realm=x]"),
            (&["realm=x, Basic"], "basic[]"),
            (&["Digest abc==, Basic realm=x"], "digest[abc==] basic[realm=x]"),
            (&[""], ""),
            (&["="], ""),
            (&["\"\\"], "\"\\[]"),
        ];
        for (headers, want) in cases {
            assert_eq!(shown(headers), want, "{headers:?}");
        }
    }

    #[test]
    fn empty_parameters_are_absent() {
        let got = parse([br#"Bearer realm="",realm="x""#.as_slice()]);
        assert_eq!(got[0].get("realm"), Some("x"));
        assert_eq!(got[0].get("service"), None);
    }

    proptest::proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let _ = parse([bytes.as_slice()]);
        }

        #[test]
        fn never_panics_on_near_misses(text in r#"(Bearer|Basic|[ ,="\\]|realm|é){0,30}"#) {
            let _ = parse([text.as_bytes()]);
        }

        #[test]
        fn quoted_values_round_trip(value in "[^\\x00-\\x1f]{1,40}") {
            let header = format!(r#"Bearer a="{}", b=c"#, value.replace('\\', "\\\\").replace('"', "\\\""));
            let got = parse([header.as_bytes()]);
            proptest::prop_assert_eq!(got[0].get("a"), Some(value.as_str()));
            proptest::prop_assert_eq!(got[0].get("b"), Some("c"));
        }
    }
}
