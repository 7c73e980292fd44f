//! [`volume_files`]: the files of a volume with documents or fields of the pod: configMap,
//! secret, downwardAPI, projected. Pure: returns the desired files, and writes nothing. Called when the volumes of a
//! pod are made, and again when documents change.

use std::collections::BTreeMap;

use crate::documents::{DocumentContent, DocumentKind, Documents, MissingDocument};
use crate::environment::{FieldUse, PodContext, PodField, amount};
use crate::pod::{
    DocumentFiles, DownwardAPIVolumeFile, Pod, ProjectedSource, ServiceAccountTokenProjection, VolumeSource, token_key,
};

/// Mode where none is set.
const MODE: i32 = 0o644;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeFile {
    /// Mode, before the group of the volume adds to it.
    pub mode: u32,
    pub content: DocumentContent,
}

/// The files of a volume, by their paths below it. No path leads out of the volume.
pub(crate) type VolumeFiles = BTreeMap<String, VolumeFile>;

/// Failure to get the files of a volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("volume {volume:?}: {reason}")]
pub(crate) struct VolumeError {
    pub volume: String,
    pub reason: String,
}

/// Input from which the files of one volume are made.
struct VolumeFilesMaker<'a> {
    pod: &'a Pod,
    volume: &'a str,
    documents: &'a Documents,
    context: &'a PodContext,
    files: VolumeFiles,
}

/// Returns the files of the pod's volume `name`, or `None` if there is no such volume, or none with files like these.
///
/// # Errors
/// A document or key that must be there is not.
pub(crate) fn volume_files(
    pod: &Pod,
    name: &str,
    documents: &Documents,
    context: &PodContext,
) -> Option<Result<VolumeFiles, VolumeError>> {
    let volume = pod.spec.volumes.iter().find(|volume| volume.name == name)?;
    let mut maker = VolumeFilesMaker { pod, volume: name, documents, context, files: VolumeFiles::new() };
    let made = match VolumeSource::of(volume) {
        VolumeSource::ConfigMap(volume) => maker.document(DocumentKind::ConfigMap, volume, volume.default_mode),
        VolumeSource::Secret(volume) => maker.document(DocumentKind::Secret, volume, volume.default_mode),
        VolumeSource::DownwardApi(volume) => {
            maker.downward(volume.items.as_deref().unwrap_or_default(), volume.default_mode)
        }
        VolumeSource::Projected(volume) => {
            let mode = volume.default_mode;
            volume.sources.iter().flatten().try_for_each(|source| match ProjectedSource::of(source) {
                ProjectedSource::ConfigMap(volume) => maker.document(DocumentKind::ConfigMap, volume, mode),
                ProjectedSource::Secret(volume) => maker.document(DocumentKind::Secret, volume, mode),
                ProjectedSource::DownwardApi(items) => maker.downward(items, mode),
                ProjectedSource::ServiceAccountToken(token) => maker.token(token, mode),
                ProjectedSource::Unclear(_) => Err(maker.no_field("a source")),
            })
        }
        VolumeSource::HostPath(_) | VolumeSource::EmptyDir(_) | VolumeSource::Image(_) => return None,
    };
    Some(made.map(|()| maker.files))
}

impl VolumeFilesMaker<'_> {
    fn document(
        &mut self,
        kind: DocumentKind,
        volume: DocumentFiles<'_>,
        mode: Option<i32>,
    ) -> Result<(), VolumeError> {
        let (kind_name, name) = (kind.lower_case(), volume.name);
        let Some(document) = self.documents.get(kind, name) else {
            return match self.documents.missing(kind, name) {
                MissingDocument::Absent(..) if volume.optional => Ok(()),
                missing => Err(self.error(missing.to_string())),
            };
        };
        if volume.items.is_empty() {
            return document.files().try_for_each(|(key, content)| self.put(key, mode, content.clone()));
        }
        for item in volume.items {
            match document.file(&item.key) {
                Some(content) => self.put(&item.path, item.mode.or(mode), content.clone())?,
                None if volume.optional => {}
                None => {
                    let key = &item.key;
                    return Err(self.error(format!("{kind_name} {name:?} references non-existent config key: {key}")));
                }
            }
        }
        Ok(())
    }

    /// Owners of the volume alone may read a token, where the volume has some.
    fn token(&mut self, token: &ServiceAccountTokenProjection, mode: Option<i32>) -> Result<(), VolumeError> {
        let content = match self.documents.tokens.get(&token_key(token)) {
            Some(Ok(content)) => content.clone(),
            Some(Err(reason)) => return Err(self.error(format!("failed to fetch token: {reason}"))),
            None => {
                return Err(
                    self.error("failed to fetch token: this node has no issuer of service account tokens".to_owned())
                );
            }
        };
        let shared = self.pod.spec.security_context.fs_group.is_some();
        self.put(&token.path, if shared { Some(0o600) } else { mode }, content)
    }

    fn downward(&mut self, items: &[DownwardAPIVolumeFile], mode: Option<i32>) -> Result<(), VolumeError> {
        for item in items {
            let text = match (&item.field_ref, &item.resource_field_ref) {
                (Some(field), _) => PodField::parse(&field.field_path, FieldUse::File)
                    .map(|read| read.value(self.pod, self.context))
                    .ok_or_else(|| self.no_field(&field.field_path))?,
                (None, Some(reference)) => {
                    amount(self.pod, None, reference, self.context).ok_or_else(|| self.no_field(&reference.resource))?
                }
                (None, None) => return Err(self.no_field(&item.path)),
            };
            self.put(&item.path, item.mode.or(mode), DocumentContent::new(text))?;
        }
        Ok(())
    }

    /// Adds a file, which replaces an earlier one of the same path.
    fn put(&mut self, path: &str, mode: Option<i32>, content: DocumentContent) -> Result<(), VolumeError> {
        let stays = !path.is_empty() && !path.starts_with('/') && path.split('/').all(|part| part != "..");
        if !stays {
            return Err(self.error(format!("{path:?} does not stay below the volume")));
        }
        let mode = u32::try_from(mode.unwrap_or(MODE)).unwrap_or(0) & 0o777;
        self.files.insert(path.to_owned(), VolumeFile { mode, content });
        Ok(())
    }

    fn no_field(&self, what: &str) -> VolumeError {
        self.error(format!("{what:?} cannot be shown in a file"))
    }

    fn error(&self, reason: String) -> VolumeError {
        VolumeError { volume: self.volume.to_owned(), reason }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::documents::Document;

    fn documents() -> Documents {
        let content = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), DocumentContent::new(*value)))
                .collect::<BTreeMap<_, _>>()
        };
        let binary = [("logo".to_owned(), DocumentContent::new(vec![0xff, 0xfe]))].into();
        let settings = Document { data: content(&[("a", "1"), ("b", "2")]), binary };
        let login = Document { data: content(&[("password", "swordfish")]), ..Document::default() };
        let odd = Document { data: content(&[("..", "x")]), ..Document::default() };
        Documents {
            config_maps: [("settings".to_owned(), settings), ("odd".to_owned(), odd)].into(),
            secrets: [("login".to_owned(), login)].into(),
            ..Documents::default()
        }
    }

    /// Path, mode and content of each file.
    fn files(mut volume: Value) -> Result<Vec<(String, u32, Vec<u8>)>, String> {
        volume["name"] = json!("v");
        let mut pod = Pod::from_json(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}},
            "spec": {"volumes": [volume], "containers": [{"name": "c", "image": "x", "resources": {"limits": {"memory": "64Mi"}}}]},
        }))
        .expect("a pod");
        crate::set_defaults(&mut pod);
        let made = volume_files(&pod, "v", &documents(), &PodContext::default()).expect("made of files");
        let made = made.map_err(|error| error.to_string())?;
        assert!(!format!("{made:?}").contains("swordfish"));
        Ok(made.into_iter().map(|(path, file)| (path, file.mode, file.content.bytes().to_vec())).collect())
    }

    fn is(list: &[(&str, u32, &[u8])]) -> Result<Vec<(String, u32, Vec<u8>)>, String> {
        Ok(list.iter().map(|(path, mode, bytes)| ((*path).to_owned(), *mode, bytes.to_vec())).collect())
    }

    #[test]
    fn documents_become_files() {
        let all = files(json!({"configMap": {"name": "settings"}}));
        assert_eq!(all, is(&[("a", 0o644, b"1"), ("b", 0o644, b"2"), ("logo", 0o644, &[0xff, 0xfe])]));
        let items = json!([{"key": "b", "path": "x/y", "mode": 256}, {"key": "logo", "path": "z"}]);
        let some = files(json!({"configMap": {"name": "settings", "items": items, "defaultMode": 384}}));
        assert_eq!(some, is(&[("x/y", 0o400, b"2"), ("z", 0o600, &[0xff, 0xfe])]));
        let secret = files(json!({"secret": {"secretName": "login", "defaultMode": 256}}));
        assert_eq!(secret, is(&[("password", 0o400, b"swordfish")]));
    }

    #[test]
    fn the_pod_becomes_files() {
        let items = json!([
            {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}, "mode": 292},
            {"path": "memory", "resourceFieldRef": {"containerName": "c", "resource": "limits.memory", "divisor": "1Mi"}},
        ]);
        let own = files(json!({"downwardAPI": {"items": items}}));
        assert_eq!(own, is(&[("labels", 0o444, b"app=\"web\""), ("memory", 0o644, b"64")]));
        let all = files(json!({"projected": {"defaultMode": 288, "sources": [
            {"configMap": {"name": "settings", "items": [{"key": "a", "path": "a"}]}},
            {"secret": {"name": "login"}},
            {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        ]}}));
        assert_eq!(all, is(&[("a", 0o440, b"1"), ("name", 0o440, b"web"), ("password", 0o440, b"swordfish")]));
    }

    #[test]
    fn what_is_missing() {
        let no = |text: &str| Err(text.to_owned());
        assert_eq!(files(json!({"configMap": {"name": "x"}})), no("volume \"v\": configmap \"x\" not found"));
        assert_eq!(files(json!({"configMap": {"name": "x", "optional": true}})), is(&[]));
        assert_eq!(files(json!({"secret": {"secretName": "x"}})), no("volume \"v\": secret \"x\" not found"));
        let items = json!([{"key": "none", "path": "p"}]);
        assert_eq!(
            files(json!({"secret": {"secretName": "login", "items": items}})),
            no("volume \"v\": secret \"login\" references non-existent config key: none")
        );
        assert_eq!(files(json!({"secret": {"secretName": "login", "items": items, "optional": true}})), is(&[]));
        assert_eq!(
            files(json!({"configMap": {"name": "odd"}})),
            no("volume \"v\": \"..\" does not stay below the volume")
        );
        let pod = Pod::default();
        assert!(volume_files(&pod, "v", &documents(), &PodContext::default()).is_none());
    }
}
