//! Redaction: what errors and logs show of URLs and of foreign text. Every word that leaves this crate in an error or a
//! log is redacted here: queries and user information of URLs are cut, known secrets and texts with the form of tokens
//! are replaced, control characters become spaces, and the length is limited.

use base::lock::Mutex;
use base64::Engine as _;
use oci::{RegistryAuth, Secret};
use url::Url;

/// Stands for text that was taken out.
const GONE: &str = "…";
/// Secrets shorter than this are not searched for: replacing them would eat ordinary words.
const SHORTEST: usize = 4;

/// The URL without user information, query and fragment.
pub(crate) fn url(url: &Url) -> String {
    let mut shown = without_user(url.clone());
    shown.set_fragment(None);
    if url.query().is_some() {
        shown.set_query(None);
        return format!("{shown}?{GONE}");
    }
    shown.to_string()
}

/// The URL without user information, which would become a credential.
pub(crate) fn without_user(mut url: Url) -> Url {
    // Both fail only for URLs that cannot have user information.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url
}

/// `base64(user:password)`, as a `Basic` header has it.
pub(crate) fn basic(user: &str, password: &str) -> Secret {
    let plain = Secret::new(format!("{user}:{password}"));
    Secret::new(base64::engine::general_purpose::STANDARD.encode(plain.expose()))
}

/// The media type of an answer, for an error.
pub(crate) fn content_type(text: &str) -> String {
    if text.is_empty() { "no type".to_owned() } else { self::text(text, 60) }
}

/// The URL's scheme, host and port: of a place that we were sent to, where the path may be a part of a signature.
pub(crate) fn origin(url: &Url) -> String {
    match url.host_str() {
        Some(_) => format!("{}://{}/{GONE}", url.scheme(), host(url)),
        None => format!("{}:{GONE}", url.scheme()),
    }
}

/// Returns the secrets of a URL's user information: as written, percent-decoded, and as a `Basic` header has them.
pub(crate) fn user_secrets(url: &Url) -> Vec<String> {
    let Some(written) = url.password() else { return Vec::new() };
    // A form's rules, without those that user information has not.
    let meant = |text: &str| {
        let form = format!("{}=", text.replace('+', "%2B").replace('&', "%26").replace('=', "%3D"));
        url::form_urlencoded::parse(form.as_bytes()).next().map(|(name, _)| name.into_owned()).unwrap_or_default()
    };
    let (user, password) = (meant(url.username()), meant(written));
    let header = basic(&user, &password).expose().to_owned();
    vec![written.to_owned(), password, header]
}

/// Shorter ones are words and numbers.
const SHORTEST_SIGNATURE: usize = 12;

/// Returns the parts of a redirect's query that may be signatures: all of it, and each value, percent-decoded.
pub(crate) fn signatures(url: &Url) -> impl Iterator<Item = String> {
    let values = url.query_pairs().map(|(_, value)| value.into_owned());
    url.query().map(str::to_owned).into_iter().chain(values).filter(|text| text.len() >= SHORTEST_SIGNATURE)
}

/// `host[:port]` of a URL.
pub(crate) fn host(url: &Url) -> String {
    match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_owned(),
        (None, _) => GONE.to_owned(),
    }
}

/// A stranger's text made fit for one line: no control characters, single spaces, URLs cut at their query, bearer
/// tokens and the like replaced, at most `max` characters.
pub(crate) fn text(text: &str, max: usize) -> String {
    let mut out = String::new();
    let mut after_scheme = false;
    for word in text.split(|c: char| c.is_whitespace() || !oci::text::is_printable(c)).filter(|w| !w.is_empty()) {
        if !out.is_empty() {
            out.push(' ');
        }
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        if after_scheme && word.len() >= SHORTEST {
            out.push_str(GONE);
        } else {
            out.push_str(&self::word(word));
        }
        after_scheme = bare.eq_ignore_ascii_case("bearer") || bare.eq_ignore_ascii_case("basic");
    }
    cap(&out, max)
}

/// Redacts one word: removes user information and query of a URL, and replaces a JSON web token.
fn word(word: &str) -> String {
    let mut rest = word;
    let mut out = String::new();
    while let Some(at) = rest.find("://") {
        out.push_str(&rest[..at + 3]);
        let tail = &rest[at + 3..];
        let end = tail.find(['"', '\'', '<', '>', ')', ']', '}', ',']).unwrap_or(tail.len());
        let (address, after) = tail.split_at(end);
        let (shown, cut) = match address.find(['?', '#']) {
            Some(query) => (&address[..query], true),
            None => (address, false),
        };
        let authority_end = shown.find('/').unwrap_or(shown.len());
        let shown = match shown[..authority_end].rfind('@') {
            Some(user) => &shown[user + 1..],
            None => shown,
        };
        out.push_str(shown);
        if cut {
            out.push('?');
            out.push_str(GONE);
        }
        rest = after;
    }
    out.push_str(rest);
    let mut from = 0;
    while let Some(at) = out[from..].find("eyJ").map(|at| from + at) {
        let end = out[at..]
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '=')))
            .map_or(out.len(), |n| at + n);
        if end - at < 12 {
            // Too short for a token: continue with the next.
            from = end;
            continue;
        }
        out.replace_range(at..end, GONE);
        from = at + GONE.len();
    }
    out
}

fn cap(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((at, _)) => format!("{}{GONE}", &text[..at]),
        None => text.to_owned(),
    }
}

/// The secrets of one pull, so that a registry that echoes them cannot put them into an error.
#[derive(Default)]
pub(crate) struct Secrets(Mutex<Vec<Secret>>);

impl Secrets {
    /// Remembers a secret and its percent-encoded form.
    pub(crate) fn add(&self, secret: &str) {
        if secret.len() < SHORTEST {
            return;
        }
        let encoded: String = url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
        let mut secrets = self.0.lock();
        for form in [secret.to_owned(), encoded] {
            if !secrets.iter().any(|s| s.expose() == form) {
                secrets.push(Secret::new(form));
            }
        }
    }

    /// Remembers all that is secret in a credential, and what it becomes on the wire.
    pub(crate) fn add_credential(&self, credential: &RegistryAuth) {
        let RegistryAuth { password, auth, identity_token, registry_token, .. } = credential;
        for secret in [password, auth, identity_token, registry_token] {
            self.add(secret.expose());
        }
        if let Some((user, password)) = credential.user_and_password() {
            self.add(password.expose());
            self.add(basic(&user, password.expose()).expose());
        }
        if !identity_token.is_empty() {
            self.add(basic("", identity_token.expose()).expose());
        }
    }

    /// The text without any of the secrets.
    pub(crate) fn scrub(&self, text: &str) -> String {
        let secrets = self.0.lock();
        let mut out = text.to_owned();
        // A secret that contains another one is replaced first.
        let mut ordered: Vec<&Secret> = secrets.iter().collect();
        ordered.sort_by_key(|s| std::cmp::Reverse(s.expose().len()));
        for secret in ordered {
            if out.contains(secret.expose()) {
                out = out.replace(secret.expose(), GONE);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let cases = [
            ("a\r\nb\u{1b}[31mc", "a b [31mc"),
            ("see https://u:p@h.example/x?sig=abc&y=1 now", "see https://h.example/x?… now"),
            (r#""https://h/x?sig=abc","https://h/y?sig=d""#, r#""https://h/x?…","https://h/y?…""#),
            ("Authorization: Bearer abcdefgh rejected", "Authorization: Bearer … rejected"),
            ("token eyJhbGciOi.J9abc-def_x expired", "token … expired"),
            ("eyJ/eyJhbGciOi.J9abc-def_x", "eyJ/…"),
            ("a\u{202e}b", "a b"),
            ("plain words stay", "plain words stay"),
            ("Bearer", "Bearer"),
            ("", ""),
        ];
        for (given, want) in cases {
            assert_eq!(text(given, 200), want, "{given:?}");
        }
        assert_eq!(text(&"é".repeat(10), 4), "éééé…");
    }

    #[test]
    fn urls() {
        let u = |t: &str| url(&Url::parse(t).expect("parses"));
        assert_eq!(u("https://u:p@h:5000/v2/x?token=a#f"), "https://h:5000/v2/x?…");
        assert_eq!(u("http://h/v2/"), "http://h/v2/");
        let o = |t: &str| origin(&Url::parse(t).expect("parses"));
        assert_eq!(o("https://u:p@h:5000/sig=abc/x?token=a#f"), "https://h:5000/…");
        assert_eq!(o("file:///etc/passwd"), "file:…");
    }

    #[test]
    fn secrets_of_user_information() {
        let of = |text: &str| user_secrets(&Url::parse(text).expect("parses"));
        let header = base64::engine::general_purpose::STANDARD.encode("a b:p+&=%w");
        assert_eq!(of("http://a%20b:p+%26%3D%25w@h"), ["p+%26%3D%25w", "p+&=%w", header.as_str()]);
        assert_eq!(of("http://ada@h"), Vec::<String>::new());
    }

    #[test]
    fn known_secrets_are_redacted() {
        let secrets = Secrets::default();
        secrets.add("sword fish");
        secrets.add("sword");
        secrets.add("abc");
        assert_eq!(secrets.scrub("x sword fish y sword+fish abc sword"), "x … y … abc …");
    }

    proptest::proptest! {
        #[test]
        fn text_never_panics(given in "\\PC*", max in 0usize..50) {
            let shown = text(&given, max);
            proptest::prop_assert!(shown.chars().count() <= max + 1);
        }
    }
}
