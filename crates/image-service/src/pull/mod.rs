//! Pulls an image by its name: one job per image, credential and platform at a time, which callers that arrive while it runs join.
//! [`image_job`] takes an image from its name to its destination; imports start at a chosen manifest. [`run`] gets the
//! layers of an image, [`layer_job`] one layer. Called by the image service's calls.

pub(crate) mod choose;
pub(crate) mod image_job;

mod access;
mod assembler;
mod blob;
mod layer_job;
mod plan;
mod planning;
mod present;
mod run;
mod wait;

use std::sync::Arc;

use cri_api::{BeforeVisible, Result};
use oci::{Digest, Reference, RegistryAuth};

use crate::error;
use crate::in_flight::{JobContext, PullKey};
use crate::parts::EngineParts;
use image_job::{ImageJob, ImageState};

/// A pull of an image by name.
pub(crate) struct PullJob {
    pub(crate) parts: Arc<EngineParts>,
    /// In canonical form.
    pub(crate) reference: Reference,
    pub(crate) auth: Option<RegistryAuth>,
    pub(crate) before_visible: BeforeVisible,
}

impl PullJob {
    pub(crate) fn key(&self) -> PullKey {
        let platform = self.parts.options.platform.clone();
        PullKey::new(self.reference.clone(), self.auth.as_ref(), platform)
    }

    /// Pulls the image, and returns its ID.
    pub(crate) async fn run(self, context: JobContext) -> Result<Digest> {
        let Self { parts, reference, auth, before_visible } = self;
        let name = reference.to_string();
        let JobContext { token, hub } = &context;
        let job = ImageJob { parts: &parts, before_visible, hub, token };
        let result = job.run(ImageState::Named { reference, auth }).await;
        if let Err(error) = &result {
            tracing::debug!(image = %name, %error, "pull failed");
        }
        result.map_err(|error| error::of_pull(&name, &error))
    }
}
