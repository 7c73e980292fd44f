//! [`expand`]: `$(VAR)` in commands, arguments, values and sub-paths. Pure text.

/// Replaces every `$(VAR)` that `value_of` knows; one that it does not know stays as it is, and so does a `$` that
/// begins nothing. `$$` is one `$`, and a `(VAR)` after it is not expanded.
pub(crate) fn expand<'v>(text: &str, mut value_of: impl FnMut(&str) -> Option<&'v str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match value_of(name) {
                Some(value) => out.push_str(value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

/// Names that `text` refers to, each once for each time it stands there.
pub(crate) fn names(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    expand(text, |name| {
        names.push(name.to_owned());
        None
    });
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced() {
        let value_of = |name: &str| match name {
            "VAR_A" => Some("A"),
            "VAR_B" => Some("B"),
            "VAR_REF" => Some("$(VAR_A)"),
            "VAR_EMPTY" => Some(""),
            _ => None,
        };
        let cases = [
            ("", ""),
            ("plain", "plain"),
            ("$(VAR_A)", "A"),
            ("___$(VAR_B)___", "___B___"),
            ("$(VAR_A)$(VAR_B)", "AB"),
            ("$(VAR_A)-1", "A-1"),
            ("f000-$$VAR_A", "f000-$VAR_A"),
            ("$$(VAR_A)", "$(VAR_A)"),
            ("$$$(VAR_A)", "$A"),
            ("$$$$(VAR_A)", "$$(VAR_A)"),
            ("$(VAR_A", "$(VAR_A"),
            ("$(VAR_A$(VAR_B)", "$(VAR_A$(VAR_B)"),
            ("$VAR_A", "$VAR_A"),
            ("${VAR_A}", "${VAR_A}"),
            ("$(MISSING)", "$(MISSING)"),
            ("$()", "$()"),
            ("$(VAR_EMPTY)x", "x"),
            ("$(VAR_REF)", "$(VAR_A)"),
            ("foo$", "foo$"),
            ("$", "$"),
            ("$$", "$"),
            ("ü$(VAR_A)ß", "üAß"),
        ];
        for (text, want) in cases {
            assert_eq!(expand(text, value_of), want, "{text}");
        }
        assert_eq!(names("$(A) $$(B) $(C"), ["A"]);
    }
}
