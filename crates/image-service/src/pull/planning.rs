//! Makes the [`Plan`] of an image: fetches and checks its config, and looks up the layers that are present.

use std::sync::Arc;

use bytes::Bytes;
use cri_api::Result;

use super::assembler::Assembler;
use super::choose::{check_layers, check_platform, parse_config};
use super::plan::Plan;
use crate::destination::image::{PresentLayer, chain};
use crate::error::cancelled;

impl Assembler<'_> {
    /// Returns true if the config is present.
    pub(super) fn has_config(&self) -> bool {
        let chosen = &self.image.chosen;
        chosen.config.is_some() || self.parts.content.hints.has_config(chosen.id())
    }

    /// Makes the plan. With `others_first`, pulls that fetch layers before they know the diff IDs read their configs first.
    pub(super) async fn plan(&self, others_first: bool) -> Result<Plan> {
        let (chosen, name) = (&self.image.chosen, &self.image.name);
        let bytes = self.config().await?;
        if others_first {
            self.parts.in_flight.by_diff_id.all_resolved().await;
        }
        let config = parse_config(&bytes, &chosen.manifest.config)?;
        if !chosen.platform_known {
            check_platform(&config, &self.parts.options.platform, name)?;
        }
        check_layers(&config, &chosen.manifest, name)?;
        let chain = chain(&config.rootfs.diff_ids);
        let commits = self.parts.content.commit_mark();
        let mut present = self.writer.find_present(chain.clone()).await?;
        for (layer, link) in present.iter_mut().zip(&chain) {
            // The files of the other chain could not be linked, or have been removed.
            if self.exclusive.contains(&link.chain_id) && matches!(layer, Some(PresentLayer::OtherChain { .. })) {
                *layer = None;
            }
        }
        self.drop_unauthorized_layers(&chain, &mut present).await;
        Ok(Plan { config: bytes, chain, present, commits })
    }

    /// Returns the config, which pulls from the same origin fetch once.
    async fn config(&self) -> Result<Bytes> {
        if let Some(bytes) = &self.image.chosen.config {
            return Ok(bytes.clone());
        }
        let descriptor = self.image.chosen.manifest.config.clone();
        let (source, key) = (Arc::clone(self.source), (self.source.origin().clone(), descriptor.digest.clone()));
        let limit = self.parts.budgets.limits.config_bytes;
        let mut job = self.parts.in_flight.configs.join(&key, |context| async move {
            tokio::select! {
                biased;
                () = context.token.cancelled() => Err(cancelled()),
                bytes = source.small_blob(&descriptor, limit) => bytes,
            }
        });
        match job.wait().await {
            // The other pull may have failed because of its registry or credential.
            Err(_) if !job.led && !self.token.is_cancelled() => {
                self.source.small_blob(&self.image.chosen.manifest.config, limit).await
            }
            result => result,
        }
    }
}
