//! [`DocumentStore`]: the ConfigMaps and Secrets on this node, by namespace, with notifications of changes. Reads no
//! file; the sources fill it. Called by the code that makes environments and volumes, and by the lookup of pull
//! secrets.

use base::lock::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

use image_manager::{Origin, PullSecret};
use oci::Secret;
use tokio::sync::watch;

use super::documents::DocumentObject;
use crate::documents::{DocumentContent, DocumentKind, Documents};
use crate::hash::fnv128a;

type DocumentKey = (DocumentKind, String, String);

/// ConfigMaps and Secrets. Clones are the same store.
#[derive(Clone)]
pub struct DocumentStore(Arc<DocumentTable>);

struct DocumentTable {
    /// Guards what there is; held for as long as it takes to copy from it.
    documents: Mutex<BTreeMap<DocumentKey, Arc<DocumentObject>>>,
    changed: watch::Sender<u64>,
}

impl Default for DocumentStore {
    fn default() -> Self {
        Self(Arc::new(DocumentTable { documents: Mutex::default(), changed: watch::Sender::new(0) }))
    }
}

impl DocumentStore {
    /// Returns the documents of a namespace.
    #[must_use]
    pub fn of(&self, namespace: &str) -> Documents {
        let mut found = Documents::default();
        for object in self.0.documents.lock().values().filter(|object| object.namespace == namespace) {
            found.insert(object.kind, &object.name, object.document.clone());
        }
        found
    }

    /// Returns a Secret as pull secret. Keys that are not text are left out, since no pull secret has such.
    #[must_use]
    pub fn pull_secret(&self, namespace: &str, name: &str) -> Option<PullSecret> {
        let key = (DocumentKind::Secret, namespace.to_owned(), name.to_owned());
        let object = self.0.documents.lock().get(&key).map(Arc::clone)?;
        let text = |content: &DocumentContent| content.text().map(Secret::new);
        let data = object.document.data.iter().filter_map(|(key, content)| Some((key.clone(), text(content)?)));
        Some(PullSecret {
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            uid: match object.uid.is_empty() {
                true => format!("{:032x}", fnv128a(object.title().as_bytes())),
                false => object.uid.clone(),
            },
            // All documents of this store count as manifests, whatever program wrote them.
            origin: Origin::Manifest,
            kind: object.secret_type.clone(),
            data: data.collect(),
        })
    }

    /// Changes whenever a document does: everything made of documents is to be checked again.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// Holds these from now on. Whether that changed anything.
    pub(super) fn set(&self, documents: Vec<Arc<DocumentObject>>) -> bool {
        let documents = documents.into_iter().map(|o| ((o.kind, o.namespace.clone(), o.name.clone()), o)).collect();
        let mut held = self.0.documents.lock();
        if *held == documents {
            return false;
        }
        *held = documents;
        drop(held);
        self.0.changed.send_modify(|count| *count += 1);
        true
    }
}
