//! The order of fields in their document. Errors are reported in this order, so that a user can correct a manifest from
//! top to bottom. Called by the readers of pods.

use serde_json::Value;

use super::{FieldErrors, FieldPath};

impl FieldErrors {
    /// Puts the errors in the order of `document`, whose place is `root`. What is missing counts as where it should be: at the
    /// beginning of the object that lacks it.
    pub fn in_order_of(mut self, document: &Value, root: &FieldPath) -> Self {
        self.0.sort_by_cached_key(|error| {
            let below = error.field.as_str().strip_prefix(root.as_str()).unwrap_or_default();
            steps(document, below)
        });
        self
    }
}

/// Numbers of the entries on the way to a field, as far as there are any.
fn steps(document: &Value, path: &str) -> Vec<usize> {
    let (mut value, mut rest, mut steps) = (document, path, Vec::new());
    while let Some((index, next, left)) = step(value, rest) {
        steps.push(index);
        (value, rest) = (next, left);
    }
    steps
}

/// Returns the entry of the first step of a path: its number, its value, and the rest of the path.
fn step<'v, 'p>(value: &'v Value, path: &'p str) -> Option<(usize, &'v Value, &'p str)> {
    match value {
        Value::Array(list) => {
            let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
            let index = index.parse().ok()?;
            Some((index, list.get(index)?, rest))
        }
        // A key may have dots and brackets itself: the longest one that fits is meant.
        Value::Object(map) => {
            let entries = map.iter().enumerate().filter_map(|(index, (key, value))| {
                let rest = match path.strip_prefix('[') {
                    Some(inner) => inner.strip_prefix(key.as_str())?.strip_prefix(']')?,
                    None => path.strip_prefix('.').unwrap_or(path).strip_prefix(key.as_str())?,
                };
                (rest.is_empty() || rest.starts_with(['.', '['])).then_some((index, value, rest))
            });
            entries.min_by_key(|(.., rest)| rest.len())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_stand_as_their_fields_do() {
        let document = json!({
            "spec": {"volumes": [{"name": 1}], "containers": [{"image": 2}, {"name": 3, "env": 4}]},
            "metadata": {"labels": {"a.b/c[0]": 5, "z": 6}, "name": 7},
        });
        let fields = [
            "metadata.name",
            "spec.containers[1].env",
            "metadata.labels[z]",
            "spec.containers[0].image",
            "spec.containers[1].name",
            "metadata.labels[a.b/c[0]]",
            "spec.containers[0].name",
            "spec.volumes[0].name",
            "kind",
        ];
        let sorted = |document: &Value, root: &str| {
            let mut errors = FieldErrors::default();
            for field in fields {
                errors.required(FieldPath::new(&format!("{root}{field}")), "");
            }
            let root = FieldPath::new(root.trim_end_matches('.'));
            let errors = errors.in_order_of(document, &root);
            let shown = errors.iter().map(|error| error.field.as_str().trim_start_matches("template.").to_owned());
            shown.collect::<Vec<_>>()
        };
        let want = [
            "kind",
            "spec.volumes[0].name",
            "spec.containers[0].name",
            "spec.containers[0].image",
            "spec.containers[1].name",
            "spec.containers[1].env",
            "metadata.labels[a.b/c[0]]",
            "metadata.labels[z]",
            "metadata.name",
        ];
        assert_eq!(sorted(&document, ""), want);
        assert_eq!(sorted(&document, "template."), want);
    }
}
