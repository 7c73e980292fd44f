//! [`Holding`]: what a pull keeps from being collected while it goes on, in the engine's own store and in that of a runtime; and which
//! layers it finds there. Used by assemblies and their layer jobs.

use std::collections::BTreeMap;
use std::sync::Arc;

use cri_api::Result;
use cri_api::engine::runtime_store::Deposit;
use oci::{Digest, chain_id};
use store::Lease;

use super::image::PresentLayer;
use crate::background::BlockingDrop;
use crate::error;
use crate::parts::EngineParts;

/// See the file's head.
#[derive(Clone)]
pub(crate) struct Holding {
    pub(crate) lease: Arc<BlockingDrop<Lease>>,
    /// The image on its way into the runtime's store, where it goes there.
    pub(crate) deposit: Option<Arc<dyn Deposit>>,
}

impl Holding {
    /// The layers that are here of those with these diff ids and chain ids, held from now on.
    pub(super) async fn find_present(
        &self,
        parts: &Arc<EngineParts>,
        stacked: Vec<(Digest, Digest)>,
    ) -> Result<Vec<Option<PresentLayer>>> {
        if let Some(deposit) = &self.deposit {
            return find_in_runtime(deposit.as_ref(), stacked).await;
        }
        let (store, lease) = (parts.content.store.clone(), Arc::clone(&self.lease));
        let find = move || {
            let find = |(diff_id, chain_id): &(Digest, Digest)| {
                let found = store.find_layer(&lease, diff_id, chain_id);
                Ok(found.map_err(|e| error::from_store(store.root(), &e))?.map(PresentLayer::Own))
            };
            stacked.iter().map(find).collect()
        };
        parts.content.background.run(find).await
    }
}

async fn find_in_runtime(deposit: &dyn Deposit, stacked: Vec<(Digest, Digest)>) -> Result<Vec<Option<PresentLayer>>> {
    let there = |diff_id: &Digest| Some(PresentLayer::Runtime { diff_id: diff_id.clone() });
    let mut found = vec![None; stacked.len()];
    if is_whole_chain(&stacked) {
        // Below a snapshot all others are: the highest one that is there is looked for.
        let (mut present, mut absent) = (0, stacked.len());
        while present < absent {
            // The first look is at the lowest: most images are all there or not at all.
            let at = if present == 0 && absent == stacked.len() { 0 } else { present.midpoint(absent) };
            if deposit.hold(&stacked[at].1).await? { present = at + 1 } else { absent = at }
        }
        for (place, (diff_id, _)) in stacked[..present].iter().enumerate() {
            found[place] = there(diff_id);
        }
    } else {
        for (place, (diff_id, chain_id)) in stacked.iter().enumerate() {
            if deposit.hold(chain_id).await? {
                found[place] = there(diff_id);
            }
        }
    }
    if found.iter().any(Option::is_none) {
        let elsewhere: BTreeMap<Digest, Digest> = deposit.independent_layers().await?;
        for (place, (diff_id, _)) in stacked.iter().enumerate().filter(|_| !elsewhere.is_empty()) {
            if found[place].is_none()
                && let Some(chain_id) = elsewhere.get(diff_id)
                && deposit.hold(chain_id).await?
            {
                found[place] = Some(PresentLayer::OtherChain { diff_id: diff_id.clone(), chain_id: chain_id.clone() });
            }
        }
    }
    Ok(found)
}

fn is_whole_chain(stacked: &[(Digest, Digest)]) -> bool {
    let mut below = None;
    stacked.iter().all(|(diff_id, chain)| {
        let is_next = chain_id(below, diff_id) == *chain;
        below = Some(chain);
        is_next
    })
}
