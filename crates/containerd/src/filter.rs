//! Filters of containerd's lists.

/// Returns the filter for objects with this value of a label.
pub(crate) fn label(key: &str, value: &str) -> String {
    format!("labels.{}=={}", quoted(key), quoted(value))
}

/// Returns the filter for records of images by their IDs.
pub(crate) fn image_ids() -> String {
    format!("name~={}", quoted("^sha256:"))
}

/// Quotes a text for a filter: in double quotes, with `\` before quotes and before itself.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(character);
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
#[test]
fn labels_are_quoted() {
    assert_eq!(label("a.b/c", "sha256:00"), r#"labels."a.b/c"=="sha256:00""#);
    assert_eq!(image_ids(), r#"name~="^sha256:""#);
    assert_eq!(label("a", r#"x"y\z"#), r#"labels."a"=="x\"y\\z""#);
}
