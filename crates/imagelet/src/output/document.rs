//! JSON and YAML of results. Characters that could control a terminal are escaped in the format's own way, so that nothing is lost and the
//! text can be shown. Called by the parent module.

use oci::text::{escaped, is_printable};
use serde::Serialize;
use serde_json::Value;

use crate::exit::{Code, Failure, Outcome};

/// Returns JSON in lines, without a final line end.
pub(super) fn json(value: &impl Serialize) -> Outcome<String> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::caused(Code::Failed, "write the result as JSON", &error))?;
    // Outside of strings, line ends are the only control characters.
    Ok(escaped(&text, &['\n']).into_owned())
}

/// Forces the writer to double-quote a text that contains it, since only double-quoted texts can have escapes.
const MARK: char = '\u{1}';
/// The mark in the form that the YAML writer produces.
const MARK_WRITTEN: &str = r"\x01";

/// Returns YAML.
pub(super) fn yaml(value: &impl Serialize) -> Outcome<String> {
    let text = write(value)?;
    if !text.chars().any(is_left_alone) {
        return Ok(text);
    }
    let value = serde_json::to_value(value).map_err(|error| failed(&error))?;
    let text = write(&marked(value))?;
    // Every character that the writer leaves alone follows a mark now, and is within double quotes.
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_left_alone(c) {
            out.truncate(out.strip_suffix(MARK_WRITTEN).map_or(out.len(), str::len));
            out.push_str(&escaped(c.encode_utf8(&mut [0; 4]), &[]));
        } else {
            out.push(c);
        }
    }
    Ok(out)
}

fn write(value: &impl Serialize) -> Outcome<String> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(value, options).map_err(|error| failed(&error))
}

fn failed(error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::caused(Code::Failed, "write the result as YAML", error)
}

/// Returns true if the YAML writer leaves a character as it is although it is not printable. The writer escapes control characters,
/// separators and U+FEFF by itself.
fn is_left_alone(c: char) -> bool {
    !is_printable(c) && !c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// Returns the value with a mark before each character that would be left alone.
fn marked(value: Value) -> Value {
    let mark = |text: String| {
        if !text.contains(is_left_alone) {
            return text;
        }
        let marked = |c: char| is_left_alone(c).then_some(MARK).into_iter().chain([c]);
        text.chars().flat_map(marked).collect()
    };
    match value {
        Value::String(text) => Value::String(mark(text)),
        Value::Array(items) => items.into_iter().map(marked).collect(),
        Value::Object(entries) => entries.into_iter().map(|(key, value)| (mark(key), marked(value))).collect(),
        plain => plain,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn is_shown(text: &str) -> bool {
        text.chars().all(|c| is_printable(c) || c == '\n')
    }

    #[test]
    fn documents_escape_what_drives_a_terminal() {
        let value = json!({
            "plain": "é \\x01",
            "c1": "\u{9b}31m\u{85}\u{7f}\u{1b}[0m",
            "directions": ["a\u{202e}b", "\u{2066}", "\u{61c}", "\\\u{200e}", "\\x01\u{200f}", "\u{1}\u{202a}", "\"\u{202e}'"],
            "key \u{202e}: \u{9b}": { "nested": [{ "\u{2069}": 1 }] },
        });
        let text = json(&value).expect("JSON");
        assert!(is_shown(&text) && text.contains(r"a\u202eb") && text.contains(r"\u009b31m"), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), value);
        let text = yaml(&value).expect("YAML");
        assert!(is_shown(&text) && text.contains(r#"- "a\u202eb""#) && text.contains(r"\x9B31m"), "{text}");
        assert_eq!(manifest::yaml::json(&text).expect("YAML"), value, "{text}");
        // Text that needs no escape is unchanged.
        let plain = json!({ "a": ["b c", "1", "x: y"], "d": null });
        assert_eq!(yaml(&plain).expect("YAML"), "a:\n- b c\n- \"1\"\n- \"x: y\"\nd: null\n");
    }

    proptest! {
        #[test]
        fn documents_are_shown_and_read_back(
            texts in prop::collection::vec(r"[ -~\x00-\x1f\x7f-\x9f\u{61c}\u{200b}-\u{200f}\u{2028}-\u{202e}\u{2060}-\u{206f}\u{feff}é]{0,12}", 1..6)
        ) {
            let value = json!({ "list": texts, "map": { texts[0].as_str(): texts } });
            let text = json(&value).expect("JSON");
            prop_assert!(is_shown(&text), "{:?}", text);
            prop_assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), value.clone());
            let text = yaml(&value).expect("YAML");
            prop_assert!(is_shown(&text), "{:?}", text);
            prop_assert_eq!(manifest::yaml::json(&text).map_err(TestCaseError::fail)?, value);
        }
    }
}
