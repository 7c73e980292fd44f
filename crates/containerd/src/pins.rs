//! [`PinLabels`]: pins as labels of image records, by which containerd's CRI plugin reports images as pinned to every kubelet. Needs the
//! socket only. Removes no label that another program wrote. Built by the binary, called by image collection.

use std::collections::BTreeSet;
use std::path::Path;

use async_trait::async_trait;
use cri_api::engine::RuntimePins;
use oci::Digest;

use crate::labels::{PINNED, PINNED_BY};
use crate::{CRI_NAMESPACE, Client, ErrorKind, ImageRecord, Labels, Result, filter};

/// Pins as labels of image records. An image has a record by its ID in addition to those by name. This one is labeled: it stays as long as
/// the image does, and administrators label records by name.
#[derive(Clone, Debug)]
pub struct PinLabels {
    client: Client,
    /// Root of this imagelet. Another imagelet with the same runtime has another root, and its labels are foreign.
    root: String,
}

impl PinLabels {
    /// Creates the pins of the imagelet with this root in the containerd at this socket.
    ///
    /// # Errors
    /// The socket cannot be named.
    pub fn new(socket: &Path, root: &Path) -> Result<Self> {
        Ok(Self { client: Client::new(socket, CRI_NAMESPACE)?, root: root.display().to_string() })
    }

    /// Returns the records that one of these filters selects; `None` if the runtime is not containerd.
    async fn records(&self, filters: Vec<String>) -> Result<Option<Vec<ImageRecord>>> {
        crate::error::unless(ErrorKind::Unimplemented, self.client.images_by(filters, "pins").await)
    }
}

#[async_trait]
impl RuntimePins for PinLabels {
    async fn replace(&self, ids: &BTreeSet<String>) -> cri_api::Result<usize> {
        let mut filters = vec![filter::label(PINNED_BY, &self.root)];
        filters.extend((!ids.is_empty()).then(filter::image_ids));
        let Some(records) = self.records(filters).await? else { return Ok(0) };
        let mut changed = 0;
        let mut failure = None;
        for record in &records {
            let Some(labels) = changes(record, ids.contains(&record.name), &self.root) else { continue };
            match self.client.label_image(record, labels).await {
                Ok(()) => changed += 1,
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(changed), |error| Err(error.into()))
    }

    async fn pinned_by_others(&self) -> cri_api::Result<Option<BTreeSet<String>>> {
        let filters = vec![filter::label(PINNED.0, PINNED.1), filter::image_ids()];
        let records = self.records(filters).await?;
        Ok(records.map(|records| foreign(&records, &self.root)))
    }
}

fn is_own(record: &ImageRecord, root: &str) -> bool {
    record.labels.get(PINNED_BY).is_some_and(|by| by == root)
}

/// Returns the labels to write to a record, with an empty value for those to remove; `None` if it is as it should be. A record that another
/// program has pinned needs no pin, and keeps that one.
fn changes(record: &ImageRecord, is_wanted: bool, root: &str) -> Option<Labels> {
    let pinned = record.labels.get(PINNED.0);
    let labels: &[(&str, &str)] = match (is_wanted, is_own(record, root), pinned) {
        (true, _, None) => &[(PINNED.0, PINNED.1), (PINNED_BY, root)],
        (false, true, Some(value)) if value == PINNED.1 => &[(PINNED.0, ""), (PINNED_BY, "")],
        (false, true, _) => &[(PINNED_BY, "")],
        (true, _, Some(_)) | (false, false, _) => return None,
    };
    Some(labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
}

/// Returns the names of records that another program has pinned, and the IDs of their images. CRI does not list every name, so that the ID
/// must be among them.
fn foreign(records: &[ImageRecord], root: &str) -> BTreeSet<String> {
    let is_foreign = |record: &&ImageRecord| {
        record.labels.get(PINNED.0).is_some_and(|value| value == PINNED.1) && !is_own(record, root)
    };
    let targets: BTreeSet<&Digest> = records.iter().filter(is_foreign).map(|record| &record.target).collect();
    records.iter().filter(|record| targets.contains(&record.target)).map(|record| record.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "/var/lib/imagelet";
    const OWN: (&str, &str) = (PINNED_BY, ROOT);
    const OF_ANOTHER: (&str, &str) = (PINNED_BY, "/var/lib/other");

    fn labels(of: &[(&str, &str)]) -> Labels {
        of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn record(name: &str, target: &str, of: &[(&str, &str)]) -> ImageRecord {
        ImageRecord {
            name: name.to_owned(),
            labels: labels(of),
            media_type: String::new(),
            target: Digest::sha256(target.as_bytes()),
            size: 1,
            created_at: 0,
            updated_at: 0,
        }
    }

    #[test]
    fn only_own_labels_are_written_and_removed() {
        let write: &[(&str, &str)] = &[PINNED, OWN];
        let remove: &[(&str, &str)] = &[(PINNED.0, ""), (PINNED_BY, "")];
        for (has, when_wanted, when_not) in [
            (&[][..], Some(write), None),
            (&[PINNED, OWN], None, Some(remove)),
            // The runtime's label was removed by hand, or by another imagelet.
            (&[OWN], Some(write), Some(&[(PINNED_BY, "")][..])),
            (&[OF_ANOTHER], Some(write), None),
            // Labels of an administrator and of another imagelet.
            (&[PINNED], None, None),
            (&[PINNED, OF_ANOTHER], None, None),
            (&[(PINNED.0, "no")], None, None),
            (&[(PINNED.0, "no"), OWN], None, Some(&[(PINNED_BY, "")])),
        ] {
            let record = record("sha256:a", "a", has);
            assert_eq!(changes(&record, true, ROOT), when_wanted.map(labels), "wanted: {has:?}");
            assert_eq!(changes(&record, false, ROOT), when_not.map(labels), "not wanted: {has:?}");
        }
    }

    #[test]
    fn labels_of_other_programs_pin_the_name_and_the_image() {
        let records = [
            record("sha256:own", "own", &[PINNED, OWN]),
            record("sha256:none", "none", &[]),
            record("sha256:by-name", "by-name", &[PINNED, OWN]),
            record("[fd00::1]:5000/by-name:1", "by-name", &[PINNED]),
            record("sha256:another", "another", &[PINNED, OF_ANOTHER]),
            record("sha256:refused", "refused", &[(PINNED.0, "no")]),
        ];
        let names: Vec<String> = foreign(&records, ROOT).into_iter().collect();
        assert_eq!(names, ["[fd00::1]:5000/by-name:1", "sha256:another", "sha256:by-name"]);
    }
}
