//! [`only`]: the fields of an object that its readers use. An API server has no call that leaves out the others, and a process that watches
//! thousands of Nodes would hold their lists of images and conditions. Pure. Called by [`super::object`].

use serde_json::Value;

/// Returns the object with the fields at these paths alone, in the form of JSON pointers: `/metadata/name`. No path may lead into another
/// one. Without paths, the object is complete.
pub(super) fn only(mut object: Value, paths: &[&str]) -> Value {
    if paths.is_empty() {
        return object;
    }
    let mut kept = Value::Null;
    for path in paths {
        if let Some(field) = object.pointer_mut(path) {
            let place = path.split('/').skip(1).fold(&mut kept, |parent, key| &mut parent[key]);
            *place = field.take();
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn other_fields_are_left_out() {
        let object =
            json!({"kind": "Node", "metadata": {"name": "n", "labels": {"a": "b"}}, "status": {"images": [1, 2]}});
        for (paths, want) in [
            (&[][..], object.clone()),
            (&["/kind", "/metadata/name"], json!({"kind": "Node", "metadata": {"name": "n"}})),
            (&["/metadata/labels", "/spec/taints"], json!({"metadata": {"labels": {"a": "b"}}})),
            (&["/spec/taints"], Value::Null),
        ] {
            assert_eq!(only(object.clone(), paths), want, "{paths:?}");
        }
    }
}
