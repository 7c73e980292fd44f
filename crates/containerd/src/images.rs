//! Records of images: a name and the blob that it resolves to.

use oci::Digest;

use crate::client::{answer, empty};
use crate::error::unless;
use crate::{Client, Error, ErrorKind, Labels, Lease, Result, filter, pb};

/// Times that a record is written again because another client removes or makes it at the same moment.
const MAX_RACES: usize = 5;

/// Record of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRecord {
    /// Name in normal form, or `sha256:…` for the record by image id.
    pub name: String,
    /// Labels.
    pub labels: Labels,
    /// Media type of the target.
    pub media_type: String,
    /// Digest of the manifest or index that the name resolved to.
    pub target: Digest,
    /// Size of the target in bytes.
    pub size: u64,
    /// Time at which the name was recorded first, in nanoseconds since 1970; containerd sets it.
    pub created_at: i64,
    /// Time of the last change, in seconds since 1970; containerd sets it.
    pub updated_at: i64,
}

impl ImageRecord {
    fn to_message(&self) -> pb::images::Image {
        let target = pb::types::Descriptor {
            media_type: self.media_type.clone(),
            digest: self.target.to_string(),
            size: i64::try_from(self.size).unwrap_or(i64::MAX),
        };
        pb::images::Image {
            name: self.name.clone(),
            labels: self.labels.clone(),
            target: Some(target),
            created_at: None,
            updated_at: None,
        }
    }

    fn from_message(call: &'static str, image: pb::images::Image) -> Result<Self> {
        let target = image.target.ok_or_else(|| empty(call, &image.name))?;
        let digest = target.digest.parse();
        let digest = digest.map_err(|error| {
            Error::new(ErrorKind::Failed, call, &image.name, format!("its target {:?}: {error}", target.digest))
        })?;
        Ok(Self {
            name: image.name,
            labels: image.labels,
            media_type: target.media_type,
            target: digest,
            size: u64::try_from(target.size).unwrap_or(0),
            created_at: image.created_at.map_or(0, nanoseconds),
            updated_at: image.updated_at.map_or(0, |time| time.seconds),
        })
    }
}

fn nanoseconds(time: pb::types::Timestamp) -> i64 {
    time.seconds.saturating_mul(1_000_000_000).saturating_add(time.nanos.into())
}

impl Client {
    /// Returns the record of this name, or `None` if there is none.
    ///
    /// # Errors
    /// The call failed, or the answer has no target.
    pub async fn image(&self, name: &str) -> Result<Option<ImageRecord>> {
        const CALL: &str = "Images.Get";
        let request = pb::images::GetImageRequest { name: name.to_owned() };
        let found = unless(ErrorKind::NotFound, answer(CALL, name, self.images().get(request)).await)?;
        let Some(found) = found else { return Ok(None) };
        ImageRecord::from_message(CALL, found.image.ok_or_else(|| empty(CALL, name))?).map(Some)
    }

    /// Returns the records with this value of a label.
    ///
    /// # Errors
    /// The call failed, or a record has no target.
    pub async fn images_with_label(&self, key: &str, value: &str) -> Result<Vec<ImageRecord>> {
        self.images_by(vec![filter::label(key, value)], key).await
    }

    /// Returns the records that one of these filters selects.
    pub(crate) async fn images_by(&self, filters: Vec<String>, subject: &str) -> Result<Vec<ImageRecord>> {
        const CALL: &str = "Images.List";
        let request = pb::images::ListImagesRequest { filters };
        let list = answer(CALL, subject, self.images().list(request)).await?;
        list.images.into_iter().map(|image| ImageRecord::from_message(CALL, image)).collect()
    }

    /// Writes labels of a record, and removes those without a value. Its other labels and its target stay. An absent record is success.
    ///
    /// # Errors
    /// The call failed.
    pub async fn label_image(&self, record: &ImageRecord, labels: Labels) -> Result<()> {
        let paths = labels.keys().map(|key| format!("labels.{key}")).collect();
        let image = Some(ImageRecord { labels, ..record.clone() }.to_message());
        let request = pb::images::UpdateImageRequest { image, update_mask: Some(pb::types::FieldMask { paths }) };
        let updated = answer("Images.Update", &record.name, self.images().update(request)).await;
        unless(ErrorKind::NotFound, updated).map(drop)
    }

    /// Deletes the record of this name, with `wait` after the collection that this starts. An absent name is success.
    ///
    /// # Errors
    /// The call failed.
    pub async fn delete_image(&self, name: &str, wait: bool) -> Result<()> {
        let request = pb::images::DeleteImageRequest { name: name.to_owned(), sync: wait };
        let deleted = answer("Images.Delete", name, self.images().delete(request)).await;
        unless(ErrorKind::NotFound, deleted).map(drop)
    }
}

impl Lease {
    /// Writes a record: a new one, or over the target and the given labels of one that is there; its other labels stay.
    ///
    /// # Errors
    /// A call failed.
    pub async fn put_image(&self, record: &ImageRecord) -> Result<()> {
        let paths = record.labels.keys().map(|key| format!("labels.{key}"));
        let paths: Vec<String> = std::iter::once("target".to_owned()).chain(paths).collect();
        let mut races = 0;
        loop {
            let request = pb::images::CreateImageRequest { image: Some(record.to_message()) };
            let created = answer("Images.Create", &record.name, self.images().create(request)).await;
            if unless(ErrorKind::AlreadyExists, created)?.is_some() {
                return Ok(());
            }
            let update_mask = Some(pb::types::FieldMask { paths: paths.clone() });
            let request = pb::images::UpdateImageRequest { image: Some(record.to_message()), update_mask };
            let updated = answer("Images.Update", &record.name, self.images().update(request)).await;
            match updated {
                Err(error) if error.kind() == ErrorKind::NotFound && races < MAX_RACES => races += 1,
                other => return other.map(drop),
            }
        }
    }
}
