//! Reads ConfigMaps and Secrets as manifests have them. An error names the key, never what stands there. Called by
//! [`super::manifest`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::documents::{Document, DocumentContent, DocumentKind};
use crate::validate::{config_key, subdomain};

/// The most bytes that a document may hold, as in Kubernetes.
const MAX_BYTES: usize = 1 << 20;

/// A ConfigMap or a Secret, and what names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DocumentObject {
    pub(super) kind: DocumentKind,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) secret_type: String,
    pub(super) document: Document,
}

impl DocumentObject {
    /// `ConfigMap default/settings`.
    pub(super) fn title(&self) -> String {
        format!("{} {}/{}", self.kind, self.namespace, self.name)
    }
}

pub(super) fn read(kind: DocumentKind, object: &Map<String, Value>) -> Result<DocumentObject, String> {
    let none = Map::new();
    let metadata = match object.get("metadata") {
        Some(Value::Object(metadata)) => metadata,
        None | Some(Value::Null) => &none,
        Some(_) => return Err(format!("{kind}: metadata must be a map")),
    };
    let word = |map: &Map<String, Value>, key: &str, default: &str| match map.get(key) {
        None | Some(Value::Null) => Ok(default.to_owned()),
        Some(Value::String(text)) if text.is_empty() => Ok(default.to_owned()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(format!("{kind}: {key} must be text")),
    };
    let name = word(metadata, "name", "")?;
    let namespace = word(metadata, "namespace", "default")?;
    if name.is_empty() {
        return Err(format!("{kind} has no metadata.name"));
    }
    let title = format!("{kind} {namespace}/{name}");
    for (field, text) in [("name", &name), ("namespace", &namespace)] {
        if let Some(wrong) = subdomain(text).into_iter().next() {
            return Err(format!("{title}: metadata.{field}: {wrong}"));
        }
    }
    let mut read = DocumentObject {
        kind,
        uid: word(metadata, "uid", "")?,
        secret_type: word(object, "type", "Opaque")?,
        document: Document::default(),
        namespace,
        name,
    };
    for (field, value) in object.iter().filter(|(_, value)| !value.is_null()) {
        match (kind, field.as_str()) {
            (_, "apiVersion" | "kind" | "metadata" | "immutable") | (DocumentKind::Secret, "type") => {}
            (DocumentKind::ConfigMap, "data") => take(&mut read.document, &title, field, value, plain)?,
            (DocumentKind::Secret, "data") => take(&mut read.document, &title, field, value, decoded)?,
            (DocumentKind::ConfigMap, "binaryData") => {
                let mut binary = Document::default();
                take(&mut binary, &title, field, value, decoded)?;
                read.document.binary = binary.data;
            }
            // Handled after the others, because it takes precedence over `data`.
            (DocumentKind::Secret, "stringData") => {}
            _ => return Err(format!("{title}: unknown field {field:?}")),
        }
    }
    if let (DocumentKind::Secret, Some(value)) = (kind, object.get("stringData").filter(|value| !value.is_null())) {
        take(&mut read.document, &title, "stringData", value, plain)?;
    }
    if let Some(key) = read.document.binary.keys().find(|key| read.document.data.contains_key(*key)) {
        return Err(format!("{title}: the key {key:?} is in data and in binaryData"));
    }
    let bytes: usize = read.document.files().map(|(key, content)| key.len() + content.bytes().len()).sum();
    if bytes > MAX_BYTES {
        return Err(format!("{title}: it holds more than {MAX_BYTES} bytes"));
    }
    Ok(read)
}

type Decode = fn(&str) -> Option<DocumentContent>;

fn take(document: &mut Document, title: &str, field: &str, value: &Value, decode: Decode) -> Result<(), String> {
    let Value::Object(map) = value else { return Err(format!("{title}: {field} must be a map")) };
    for (key, value) in map {
        if let Some(wrong) = config_key(key).into_iter().next() {
            return Err(format!("{title}: {field}: the key {key:?}: {wrong}"));
        }
        let text = match value {
            Value::String(text) => text.as_str(),
            // As the API server has it.
            Value::Null => "",
            _ => return Err(format!("{title}: {field}.{key} must be text")),
        };
        let content = decode(text).ok_or_else(|| format!("{title}: {field}.{key} is not base64"))?;
        document.data.insert(key.clone(), content);
    }
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "one of two decoders")]
fn plain(text: &str) -> Option<DocumentContent> {
    Some(DocumentContent::new(text))
}

fn decoded(text: &str) -> Option<DocumentContent> {
    let text: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    STANDARD.decode(text).ok().map(DocumentContent::new)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(kind: DocumentKind, value: Value) -> Result<DocumentObject, String> {
        read(kind, value.as_object().expect("a map"))
    }

    #[test]
    fn documents_are_read() {
        let map =
            json!({"metadata": {"name": "m"}, "data": {"a": "1"}, "binaryData": {"b": "AP8="}, "immutable": true});
        let map = of(DocumentKind::ConfigMap, map).expect("read");
        assert_eq!(map.title(), "ConfigMap default/m");
        assert_eq!(map.document.file("a").map(DocumentContent::bytes), Some(&b"1"[..]));
        assert_eq!(map.document.binary["b"].bytes(), [0, 255]);
        let secret = json!({"metadata": {"name": "s", "namespace": "shop"}, "stringData": {"k": "new", "l": null},
                            "data": {"k": "b2xk", "x": "b\nGQ=\n"}, "type": "kubernetes.io/tls"});
        let secret = of(DocumentKind::Secret, secret).expect("read");
        assert_eq!((&*secret.secret_type, &*secret.namespace), ("kubernetes.io/tls", "shop"));
        let held: Vec<_> = secret.document.files().map(|(key, c)| (key.as_str(), c.text().expect("text"))).collect();
        assert_eq!(held, [("k", "new"), ("l", ""), ("x", "ld")]);
    }

    #[test]
    fn what_is_wrong_is_named_and_not_shown() {
        let cases = [
            (json!({}), "Secret has no metadata.name"),
            (json!({"metadata": {"name": "s"}, "data": {"k": "swordfish!"}}), "Secret default/s: data.k is not base64"),
            (json!({"metadata": {"name": "s"}, "stringData": {"k": 7}}), "Secret default/s: stringData.k must be text"),
            (json!({"metadata": {"name": "s"}, "dta": {"k": "swordfish!"}}), "Secret default/s: unknown field \"dta\""),
            (json!({"metadata": {"name": "s"}, "stringData": {"../k": "x"}}), "Secret default/s: stringData: the key"),
            (json!({"metadata": {"name": "S"}}), "Secret default/S: metadata.name: a lowercase RFC 1123 subdomain"),
            (
                json!({"metadata": {"name": "s"}, "stringData": {"k": "x".repeat(1 << 20)}}),
                "Secret default/s: it holds",
            ),
        ];
        for (value, want) in cases {
            let error = of(DocumentKind::Secret, value).expect_err(want);
            assert!(error.starts_with(want) && !error.contains("swordfish"), "{error}");
        }
        let twice = json!({"metadata": {"name": "m"}, "binaryData": {"k": ""}, "data": {"k": ""}});
        let error = of(DocumentKind::ConfigMap, twice).expect_err("refused");
        assert_eq!(error, "ConfigMap default/m: the key \"k\" is in data and in binaryData");
    }
}
