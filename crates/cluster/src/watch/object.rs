//! [`Object`]: an object of any kind as JSON, as kube's watcher receives it. Accepts every JSON: the caller asks whether it is sound,
//! since an error of deserialization would have kube log the whole answer, which may have Secrets in it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope, ObjectMeta};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::fields;

/// An object, without `managedFields`. Clones share its value.
#[derive(Clone)]
pub(crate) struct Object {
    /// Name, namespace, uid and version; nothing else is read.
    metadata: ObjectMeta,
    pub(crate) value: Arc<Value>,
}

impl Object {
    /// Returns the uid, which is not empty in a valid object.
    pub(crate) fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Returns the object with the fields at these paths alone; without paths, it is complete.
    pub(super) fn with_fields(self, paths: &[&str]) -> Self {
        Self { value: Arc::new(fields::only(Arc::unwrap_or_clone(self.value), paths)), ..self }
    }

    /// Returns true if the object has what every object of a server has.
    pub(crate) fn is_sound(&self) -> bool {
        let metadata = &self.metadata;
        let fields = [&metadata.name, &metadata.uid, &metadata.resource_version];
        fields.into_iter().all(|field| field.as_deref().is_some_and(|text| !text.is_empty()))
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        let fields = &value["metadata"];
        let text = |field: &str| fields[field].as_str().map(str::to_owned);
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        // Half of an object's metadata, and no caller reads it.
        if let Some(fields) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            fields.remove("managedFields");
        }
        Ok(Self { metadata, value: Arc::new(value) })
    }
}

/// Prints no content: an object may be a Secret.
impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ObjectMeta { name, namespace, uid, .. } = &self.metadata;
        f.debug_struct("Object")
            .field("name", name)
            .field("namespace", namespace)
            .field("uid", uid)
            .finish_non_exhaustive()
    }
}

impl Resource for Object {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.kind)
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.group)
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.version)
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.plural)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_answer_is_read_and_only_objects_are_sound() {
        let whole = json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "1", "managedFields": []}, "data": {"k": "secret"}});
        let object: Object = serde_json::from_value(whole.clone()).expect("an object");
        assert!(object.is_sound() && object.uid() == "u");
        assert_eq!(
            *object.value,
            json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "1"}, "data": {"k": "secret"}})
        );
        assert!(!format!("{object:?}").contains("secret"), "{object:?}");
        for field in ["name", "uid", "resourceVersion"] {
            for value in [json!(""), json!(7), Value::Null] {
                let mut other = whole.clone();
                other["metadata"][field] = value;
                let object: Object = serde_json::from_value(other).expect("JSON");
                assert!(!object.is_sound(), "{field}");
            }
        }
        for nonsense in [json!({}), json!([]), json!(7), Value::Null, json!({"metadata": "x"})] {
            let object: Object = serde_json::from_value(nonsense.clone()).expect("JSON");
            assert!(!object.is_sound() && *object.value == nonsense, "{nonsense}");
        }
    }
}
