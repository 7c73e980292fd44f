//! The objects of the [`super::FakeServer`], with their versions and the log of their changes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::answers::value;
use super::merge::merge;

/// Status, reason and details of a refusal.
pub(super) type Refusal = (u16, &'static str, Value);

#[derive(Default)]
pub(super) struct Store {
    objects: BTreeMap<String, Value>,
    version: u64,
    /// Everything that happened: version, kind of event, path, object.
    log: Vec<(u64, &'static str, String, Value)>,
    /// Versions before are forgotten.
    oldest: u64,
    /// Counts tokens.
    tokens: u64,
    pub(super) last_token_request: Value,
}

impl Store {
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn compact(&mut self) {
        self.version += 1;
        self.oldest = self.version;
        self.log.clear();
    }

    pub(super) fn paths(&self, prefix: &str) -> Vec<String> {
        self.objects.keys().filter(|path| path.starts_with(prefix)).cloned().collect()
    }

    pub(super) fn get(&self, path: &str) -> Option<&Value> {
        self.objects.get(path)
    }

    pub(super) fn put(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        let known = self.objects.get(path);
        let event = if known.is_some() { "MODIFIED" } else { "ADDED" };
        let metadata = &mut object["metadata"];
        if metadata["uid"].is_null() {
            metadata["uid"] = match known {
                Some(known) => known["metadata"]["uid"].clone(),
                None => json!(format!("uid-{}", self.version)),
            };
        }
        metadata["resourceVersion"] = json!(self.version.to_string());
        let mut parts = path.rsplit('/');
        metadata["name"] = json!(parts.next());
        let mut segments = path.split('/').skip_while(|segment| *segment != "namespaces").skip(1);
        if let (Some(namespace), Some(_)) = (segments.next(), segments.next()) {
            metadata["namespace"] = json!(namespace);
        }
        self.objects.insert(path.to_owned(), object.clone());
        self.log.push((self.version, event, path.to_owned(), object.clone()));
        object
    }

    /// Removes an object and returns it with its last version.
    pub(super) fn remove(&mut self, path: &str) -> Option<Value> {
        let mut object = self.objects.remove(path)?;
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.log.push((self.version, "DELETED", path.to_owned(), object.clone()));
        Some(object)
    }

    /// Returns the objects of a collection that match a selector.
    pub(super) fn list(&self, path: &str, fields: &str) -> Vec<Value> {
        let all = self.objects.iter().filter(|(at, object)| is_in(at, path) && selects(fields, object));
        all.map(|(_, object)| object.clone()).collect()
    }

    /// Events after a version; `None`: they are not known any more.
    pub(super) fn events(&self, path: &str, fields: &str, after: u64) -> Option<(u64, Vec<Value>)> {
        if after < self.oldest {
            return None;
        }
        let all = self
            .log
            .iter()
            .filter(|(version, _, at, object)| *version > after && is_in(at, path) && selects(fields, object));
        let events = all.map(|(_, kind, _, object)| json!({"type": kind, "object": object}));
        Some((self.version, events.collect()))
    }

    pub(super) fn read(&self, path: &str, query: &[(String, String)]) -> Result<Value, Refusal> {
        if let Some(object) = self.objects.get(path) {
            return Ok(object.clone());
        }
        let fields = match value(query, "fieldSelector") {
            Some(fields) => fields,
            None if is_collection(path) => "",
            None => return Err(not_found()),
        };
        let metadata = json!({"resourceVersion": self.version.to_string()});
        Ok(json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": self.list(path, fields)}))
    }

    pub(super) fn patch(&mut self, path: &str, patch: &Value) -> Result<Value, Refusal> {
        let (path, part) = match path.strip_suffix("/status") {
            Some(path) => (path, "status"),
            None => (path, ""),
        };
        let mut object = self.objects.get(path).cloned().ok_or_else(not_found)?;
        let uid = &patch["metadata"]["uid"];
        if !uid.is_null() && *uid != object["metadata"]["uid"] {
            return Err((409, "Conflict", json!("Precondition failed: UID in precondition")));
        }
        let before = object.clone();
        match part {
            "status" => merge(&mut object["status"], &patch["status"]),
            _ => merge(&mut object, patch),
        }
        if object == before {
            return Ok(object);
        }
        Ok(self.put(path, object))
    }

    /// Applies an object as its only manager: the object, or its status, is as the patch has it, and is created if it is missing.
    pub(super) fn apply(&mut self, path: &str, patch: &Value) -> Result<Value, Refusal> {
        if let Some(path) = path.strip_suffix("/status") {
            let mut object = self.objects.get(path).cloned().ok_or_else(not_found)?;
            let before = object.clone();
            object["status"] = patch["status"].clone();
            return Ok(if object == before { object } else { self.put(path, object) });
        }
        let mut object = patch.clone();
        let Some(before) = self.objects.get(path) else { return Ok(self.put(path, object)) };
        let mut metadata = before["metadata"].clone();
        merge(&mut metadata, &patch["metadata"]);
        object["metadata"] = metadata;
        if !before["status"].is_null() {
            object["status"] = before["status"].clone();
        }
        Ok(if object == *before { object } else { self.put(path, object) })
    }

    pub(super) fn create(&mut self, path: &str, object: Value) -> Result<Value, Refusal> {
        if let Some(account) = path.strip_suffix("/token") {
            if !account.contains("/serviceaccounts/") {
                return Err(not_found());
            }
            self.tokens += 1;
            self.last_token_request = object.clone();
            let mut answer = object;
            answer["status"] = json!({
                "token": format!("token-{}", self.tokens),
                // By a clock that is off.
                "expirationTimestamp": "2000-01-01T00:00:00Z",
            });
            return Ok(answer);
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{path}/{name}");
        if self.objects.contains_key(&path) {
            return Err((409, "AlreadyExists", json!(format!("{name} already exists"))));
        }
        Ok(self.put(&path, object))
    }

    pub(super) fn replace(&mut self, path: &str, object: Value) -> Result<Value, Refusal> {
        let known = self.objects.get(path).ok_or_else(not_found)?;
        let version = &object["metadata"]["resourceVersion"];
        if !version.is_null() && *version != known["metadata"]["resourceVersion"] {
            return Err((409, "Conflict", json!("the object has been modified")));
        }
        Ok(self.put(path, object))
    }

    pub(super) fn delete(&mut self, path: &str, options: &Value) -> Result<Value, Refusal> {
        let object = self.objects.get(path).cloned().ok_or_else(not_found)?;
        let uid = &options["preconditions"]["uid"];
        if !uid.is_null() && *uid != object["metadata"]["uid"] {
            return Err((409, "Conflict", json!("Precondition failed: UID in precondition")));
        }
        self.remove(path);
        Ok(object)
    }
}

fn not_found() -> Refusal {
    (404, "NotFound", json!("not found"))
}

/// Returns true if a path of a group names a collection of a cluster-scoped kind, and no object.
fn is_collection(path: &str) -> bool {
    path.strip_prefix("/apis/").is_some_and(|path| path.split('/').count() == 3)
}

/// Returns true if an object is of a collection: in its namespace, or in any where the collection has none.
fn is_in(at: &str, collection: &str) -> bool {
    let Some((parent, _)) = at.rsplit_once('/') else { return false };
    if parent == collection {
        return true;
    }
    let kind = collection.rsplit('/').next().unwrap_or_default();
    !collection.contains("/namespaces/") && parent.contains("/namespaces/") && parent.rsplit('/').next() == Some(kind)
}

fn selects(fields: &str, object: &Value) -> bool {
    fields.split(',').filter_map(|term| term.split_once('=')).all(|(field, want)| {
        let pointer = format!("/{}", field.replace('.', "/"));
        object.pointer(&pointer).and_then(Value::as_str).unwrap_or_default() == want
    })
}
