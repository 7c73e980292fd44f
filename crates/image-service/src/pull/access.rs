//! The access of a pull to present layers: those that were fetched from its own repository are used at once, those of another one
//! only after the registry has confirmed, for this pull's credential, that it has the blob.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::stream::{self, StreamExt as _};
use oci::{Descriptor, Digest};

use super::assembler::Assembler;
use crate::destination::image::{ChainLink, PresentLayer};
use crate::origin::{Access, SharedContent};

/// Number of blobs of an image that are asked for in parallel.
const PARALLEL_REQUESTS: usize = 8;

impl Assembler<'_> {
    /// Removes from `present` the layers that this pull must not use.
    pub(super) async fn drop_unauthorized_layers(&self, chain: &[ChainLink], present: &mut [Option<PresentLayer>]) {
        if self.parts.content.sharing == SharedContent::Open {
            return;
        }
        let blobs = &self.image.chosen.manifest.layers;
        let access = chain.iter().zip(blobs).zip(&*present).map(|((link, blob), layer)| async move {
            match layer {
                None => Access::Denied,
                // The origin is recorded with the layer that is to be linked.
                Some(PresentLayer::OtherChain { chain_id, .. }) => {
                    let link = ChainLink { diff_id: link.diff_id.clone(), chain_id: chain_id.clone() };
                    self.writer.access(self.source.origin(), &blob.digest, &link).await
                }
                Some(_) => self.writer.access(self.source.origin(), &blob.digest, link).await,
            }
        });
        let access: Vec<_> = access.collect();
        let access: Vec<Access> = stream::iter(access).buffered(PARALLEL_REQUESTS).collect().await;
        let confirmed = self.confirmed(blobs.iter().zip(&access)).await;
        for ((blob, access), layer) in blobs.iter().zip(access).zip(present) {
            if access == Access::Denied || (access == Access::Ask && !confirmed.contains(&blob.digest)) {
                *layer = None;
            }
        }
    }

    /// Returns those blobs with the access [`Access::Ask`] that the source confirms to have.
    async fn confirmed(&self, blobs: impl Iterator<Item = (&Descriptor, &Access)>) -> HashSet<Digest> {
        let unsure: HashMap<&Digest, &Descriptor> =
            blobs.filter(|(_, access)| **access == Access::Ask).map(|(blob, _)| (&blob.digest, blob)).collect();
        let requests: Vec<_> = unsure
            .into_values()
            .map(|blob| {
                let (source, blob) = (Arc::clone(self.source), blob.clone());
                async move { source.has(&blob).await.then_some(blob.digest) }
            })
            .collect();
        stream::iter(requests).buffer_unordered(PARALLEL_REQUESTS).filter_map(std::future::ready).collect().await
    }
}
