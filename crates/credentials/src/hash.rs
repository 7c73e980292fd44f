//! [`credential_hash`]: the kubelet's hash of a credential, by which its pulled records know one again. It must not
//! change by a byte: records outlive the program, and move between kubelets and imagelets.

use std::fmt::Write as _;

use oci::RegistryAuth;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// Lower-case hexadecimal SHA-256 of the credential as the kubelet writes it in JSON (reference: kubelet,
/// `AuthConfig`; fields in a fixed order, empty ones left out).
#[must_use]
pub fn credential_hash(auth: &RegistryAuth) -> String {
    with_email(auth, "")
}

/// The same with the e-mail address that a docker configuration may give, and that is of no other use.
pub(crate) fn with_email(auth: &RegistryAuth, email: &str) -> String {
    let fields = [
        ("username", auth.username.as_str()),
        ("password", auth.password.expose()),
        ("auth", auth.auth.expose()),
        ("email", email),
        ("serveraddress", &auth.server_address),
        ("identitytoken", auth.identity_token.expose()),
        ("registrytoken", auth.registry_token.expose()),
    ];
    // Large enough that it never moves and leaves a copy behind: six bytes for one are the most that escaping makes.
    let room = fields.iter().map(|(name, value)| name.len() + 6 * value.len() + 6).sum::<usize>() + 2;
    let mut json = Zeroizing::new(String::with_capacity(room));
    for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
        let before = if json.is_empty() { "{\"" } else { ",\"" };
        json.push_str(before);
        json.push_str(name);
        json.push_str("\":\"");
        escape(&mut json, value);
        json.push('"');
    }
    let end = if json.is_empty() { "{}" } else { "}" };
    json.push_str(end);
    hex::encode(Sha256::digest(json.as_bytes()))
}

/// Escapes as Go's `encoding/json` does by default, which has HTML in mind.
fn escape(json: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\u{8}' => json.push_str("\\b"),
            '\u{c}' => json.push_str("\\f"),
            '\0'..'\u{20}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                write!(json, "\\u{:04x}", u32::from(c)).expect("a String takes everything");
            }
            _ => json.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use oci::Secret;

    use super::*;

    #[test]
    fn hashes_match_the_kubelets_vectors() {
        let cases = [
            ("ada", "smash", "ada@example.com", "353258b53f5e9a57b059eab3f05312fc35bbeb874f08ce101e7bf0bf46977423"),
            (
                "grace",
                "squash",
                "grace@example.com",
                "f949b3837a1eb733a951b6aeda0b3327c09ec50c917de9ca35818e8fbf567e29",
            ),
            ("rex", "tiny arms", "rex@example.com", "899748fec74c8dd761845fca727f4249b05be275ff24026676fcd4351f656363"),
        ];
        for (user, password, email, want) in cases {
            assert_eq!(with_email(&RegistryAuth::basic(user, password), email), want, "{user}");
        }
    }

    #[test]
    fn text_is_escaped_as_go_does() {
        let cases = [
            ("plain ~ é \u{7f}", "plain ~ é \u{7f}"),
            ("a\"b\\c", "a\\\"b\\\\c"),
            ("<>&", "\\u003c\\u003e\\u0026"),
            ("\n\r\t\u{8}\u{c}\0\u{1f}", "\\n\\r\\t\\b\\f\\u0000\\u001f"),
            ("\u{2028}\u{2029}", "\\u2028\\u2029"),
        ];
        for (text, want) in cases {
            let mut json = String::new();
            escape(&mut json, text);
            assert_eq!(json, want, "{text:?}");
        }
    }

    #[test]
    fn every_field_changes_the_hash() {
        let all = RegistryAuth {
            username: "u".into(),
            password: Secret::new("p"),
            auth: Secret::new("a"),
            server_address: "s".into(),
            identity_token: Secret::new("i"),
            registry_token: Secret::new("r"),
        };
        let json =
            r#"{"username":"u","password":"p","auth":"a","serveraddress":"s","identitytoken":"i","registrytoken":"r"}"#;
        assert_eq!(credential_hash(&all), hex::encode(Sha256::digest(json)));
        assert_eq!(credential_hash(&RegistryAuth::default()), hex::encode(Sha256::digest("{}")));
    }
}
