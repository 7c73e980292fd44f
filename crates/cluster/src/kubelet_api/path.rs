//! Splits the path of a request into segments. A path that two readers could parse differently has none: `//exec`, `/./exec`, `/%65xec`. Knows no route.
//! Called by the kubelet's port, the status page and the admin API before anything else is asked.

/// Returns the segments of a path, none for `/`. Returns `None` for a path with an empty segment, a dot segment, an escape, or a character
/// that RFC 3986 does not allow in a segment (section 3.3, `pchar`): no client of ours sends one, and every one has a second spelling.
#[must_use]
pub fn path_segments(path: &str) -> Option<Vec<&str>> {
    let rest = path.strip_prefix('/')?;
    if rest.is_empty() {
        return Some(Vec::new());
    }
    let segments: Vec<&str> = rest.split('/').collect();
    segments.iter().all(|segment| is_plain(segment)).then_some(segments)
}

fn is_plain(segment: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte);
    !matches!(segment, "" | "." | "..") && segment.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_paths_have_no_segments() {
        for (path, want) in [
            ("/", Some(vec![])),
            ("/pods", Some(vec!["pods"])),
            ("/exec/a/b/c", Some(vec!["exec", "a", "b", "c"])),
            ("/v2/...", Some(vec!["v2", "..."])),
            ("", None),
            ("*", None),
            ("pods", None),
            ("//", None),
            ("//pods", None),
            ("/pods/", None),
            ("/a//b", None),
            ("/.", None),
            ("/a/..", None),
            ("/./pods", None),
            ("/%70ods", None),
            ("/a%2fb", None),
            ("/%", None),
            ("/a\\b", None),
            ("/pods\t", None),
            ("/p\u{f6}ds", None),
        ] {
            assert_eq!(path_segments(path), want, "{path:?}");
        }
    }
}
