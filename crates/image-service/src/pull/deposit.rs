//! A chosen image on its way into the store of a container runtime: its layers by [`super::stack`] while they come, then its records.
//! A pull ends when the runtime shows the image. Called by the pull.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cri_api::engine::runtime_store::{Deposit, Document, Documents, RuntimeStore};
use cri_api::{Error, Image, ImageSpec, ImageStatus, Kind, PullEvent, Result};
use oci::{Digest, Platform, Reference};
use tokio::time::{Instant, sleep};

use super::assembly::Assembly;
use super::holding::Holding;
use super::image::{Assembled, ImageLayer};
use super::stack::{Listening, Planned, Stack, StackError, Stacking};
use super::{COMMIT_ATTEMPTS, Incoming, choose, present};
use crate::error;
use crate::options::RuntimeTarget;
use crate::signatures::recorded;
use crate::source::resume;

/// Longest time in which the runtime shows an image after its records were written: it learns of them by events.
const VISIBLE_WITHIN: Duration = Duration::from_secs(5);

/// Longest time in which the runtime shows the names of an image that it shows already.
const NAMES_WITHIN: Duration = Duration::from_millis(500);

impl Incoming<'_> {
    /// Fetches what is missing, and puts the image into the runtime's store. `resolved` is what the name stands for.
    pub(crate) async fn deposit(&self, target: &RuntimeTarget, resolved: &Digest) -> Result<()> {
        let Self { parts, chosen, hub, .. } = self;
        let layers = chosen.manifest.layers.iter().map(|l| (l.digest.clone(), l.size)).collect();
        hub.report(PullEvent::Resolved { digest: resolved.clone(), layers });
        if self.is_there(target, resolved).await?
            && let Some(config) = self.present_config(target).await?
        {
            choose::check_present(chosen, &config, &parts.options.platform, self.name)?;
            self.verify().await?;
            // A pull that was cut off behind its records could not end.
            parts.content.leftovers.end_earlier(target, &chosen.raw.digest).await;
            present::report_all_present(chosen, hub);
            return Ok(());
        }
        // The runtime takes a single manifest as it is.
        if !chosen.indexes.is_empty() {
            check_runtime_platform(&parts.options.platform)?;
        }
        for layer in &chosen.manifest.layers {
            hub.layer(&layer.digest, cri_api::LayerState::Waiting);
        }
        let manifest = &chosen.raw.digest;
        let id = target.store.new_id();
        let begun = target.store.begin(&id, target.workplace, manifest);
        let (deposit, ()) = tokio::join!(begun, self.learn(target));
        let deposit = match deposit {
            Ok(deposit) => deposit,
            Err(error) => {
                // The runtime may have died behind it, before it could answer.
                parts.content.leftovers.add_interrupted(id, manifest.clone(), parts.content.now());
                return Err(error);
            }
        };
        let brought = self.bring_to(target, &deposit).await;
        match brought {
            Ok(()) => {
                // The records keep all of it: nothing is to be collected.
                if let Err(error) = deposit.end().await {
                    tracing::debug!(%error, id, "what a pull held stays until the next sweep");
                    parts.content.leftovers.add_interrupted(id, manifest.clone(), parts.content.now());
                }
                parts.content.leftovers.end_earlier(target, manifest).await;
                Ok(())
            }
            Err(error) => {
                if let Err(undo) = deposit.undo_records().await {
                    tracing::warn!(error = %undo, image = self.name, "records of a failed pull stay until the next collection");
                }
                // What is there already, a later pull need not fetch.
                if resume::is_interruption(&error) {
                    parts.content.leftovers.add_interrupted(id, manifest.clone(), parts.content.now());
                } else {
                    parts.content.leftovers.end(target, &id, manifest).await;
                }
                Err(error)
            }
        }
    }

    /// Asks which layers the runtime has. None of these is fetched before the config gives their diff IDs.
    async fn learn(&self, target: &RuntimeTarget) {
        let blobs: Vec<Digest> = self.chosen.manifest.layers.iter().map(|layer| layer.digest.clone()).collect();
        match target.store.diff_ids(&blobs).await {
            Ok(found) => self.parts.content.hints.set_layers(blobs, found),
            Err(error) => tracing::debug!(%error, "nobody says which layers are there"),
        }
    }

    async fn bring_to(&self, target: &RuntimeTarget, deposit: &Arc<dyn Deposit>) -> Result<()> {
        let Self { parts, chosen, name, hub, .. } = self;
        let lease = Arc::new(parts.content.background.hold(parts.content.store.lease()));
        let holding = Holding { lease, deposit: Some(Arc::clone(deposit)) };
        let (mut alone, pull) = (BTreeSet::new(), parts.budgets.memory.pull());
        for attempt in 1.. {
            let (stacking, listening) = Stacking::new();
            let assembly = Assembly { stacking: Some(stacking), ..self.assembly(&holding, &alone, pull) };
            let assembled = async {
                let assembled = assembly.run().await;
                drop(assembly);
                assembled.map_err(StackError::Failed)
            };
            let before = async { self.before_visible.done().await.map_err(StackError::Failed) };
            let put = async { self.put_layers(target, deposit, listening).await };
            match futures::try_join!(assembled, before, put) {
                // A record without all of its layers would be an image that cannot start.
                Ok((_, (), false)) => {
                    let message =
                        format!("{name}: not all layers came to the runtime's store: this is a fault of the program");
                    return Err(Error::new(Kind::Internal, message));
                }
                Ok((assembled, (), true)) => {
                    hub.report(PullEvent::Committing);
                    return self.record(target, deposit.as_ref(), assembled).await;
                }
                Err(StackError::Taken(chain_id)) if attempt < COMMIT_ATTEMPTS + chosen.manifest.layers.len() => {
                    tracing::info!(image = %name, %chain_id, "another image has taken a layer: unpack it again");
                    alone.insert(chain_id);
                }
                Err(StackError::Taken(chain_id)) => {
                    let message =
                        format!("{name}: other images took the layer for the chain {chain_id} again and again");
                    return Err(Error::new(Kind::Internal, message));
                }
                Err(StackError::Failed(error)) => return Err(error),
            }
        }
        unreachable!("the loop ends by returning")
    }

    /// Puts documents and layers there while layers still come. Returns true if all are there.
    async fn put_layers(
        &self,
        target: &RuntimeTarget,
        deposit: &Arc<dyn Deposit>,
        mut listening: Listening,
    ) -> std::result::Result<bool, StackError> {
        let blobs = self.chosen.manifest.layers.iter().map(|layer| layer.digest.clone()).collect();
        let from = (self.source.origin().to_string(), blobs);
        let Some((stack, planned)) = Stack::begin(self.parts, deposit, from, &mut listening).await else {
            return Ok(false);
        };
        let Planned { config, top } = planned;
        let reference = self.source_reference()?;
        if let Some(why) = target.store.undecodable(&config) {
            return Err(StackError::Failed(error::invalid(format!(
                "the runtime cannot decode the image config: {why}"
            ))));
        }
        let documents = async {
            deposit.write_documents(&self.documents(&config, top.as_ref(), reference)).await.map_err(StackError::Failed)
        };
        futures::try_join!(documents, stack.put(listening)).map(|((), is_whole)| is_whole)
    }

    /// Everything is there but the records. They make it visible.
    async fn record(&self, target: &RuntimeTarget, deposit: &dyn Deposit, image: Assembled) -> Result<()> {
        let reference = self.source_reference()?;
        for part in &image.layers {
            if let Some(blob) = part.blob() {
                let file = self.parts.content.background.run({
                    let (blob, store) = (Arc::clone(&blob), self.parts.content.store.clone());
                    move || blob.open().map_err(|e| error::from_store(store.root(), &e))
                });
                deposit.write_blob(blob.digest(), file.await?, reference).await?;
            }
        }
        // The policy of this moment decides, and not the one under which the pull began.
        self.verify().await?;
        let documents = self.documents(&image.config, None, reference);
        // The id first: no name leads to an image that the runtime cannot decode.
        let id = self.chosen.manifest.config.digest.to_string();
        let names = [&self.names.tag, &self.names.repo_digest].map(Option::as_ref);
        deposit.write_record(&documents, &id).await?;
        self.wait_until_visible(target).await?;
        for name in names.into_iter().flatten() {
            deposit.write_record(&documents, name).await?;
        }
        let last = image.layers.into_iter().filter_map(|part| match part {
            ImageLayer::New(ready) => ready.into_last(),
            ImageLayer::Present(_) => None,
        });
        self.parts.content.background.discard(last.collect::<Vec<_>>()).await;
        self.wait_for_names(target, &names).await
    }

    fn documents<'d>(&'d self, config: &'d [u8], top: Option<&'d Digest>, source: &'d Reference) -> Documents<'d> {
        let raw = &self.chosen.raw;
        let manifest = Document { bytes: &raw.bytes, media_type: &raw.media_type };
        let index = |bytes: &'d bytes::Bytes| Document { bytes, media_type: index_type(bytes) };
        let layers = self.chosen.manifest.layers.iter().map(|layer| &layer.digest);
        let kept_blobs = if self.parts.content.keeps_blobs { layers.collect() } else { Vec::new() };
        Documents {
            indexes: self.chosen.indexes.iter().map(index).collect(),
            manifest,
            config,
            top,
            source,
            kept_blobs,
            evidence: self.evidence(),
        }
    }

    /// The name that it is pulled by; an image from a file has none.
    fn source_reference(&self) -> Result<&Reference> {
        let lost =
            || Error::new(Kind::Internal, "an image without a name cannot be pulled: this is a fault of the program");
        self.reference.ok_or_else(lost)
    }

    /// The evidence of the policy's demands, for the records by name.
    fn evidence(&self) -> Option<String> {
        recorded::write(&self.chosen.manifest.config.digest, &self.digests, &self.signatures)
    }

    /// Returns true if a pull would change nothing at all.
    async fn is_there(&self, target: &RuntimeTarget, resolved: &Digest) -> Result<bool> {
        let (id, evidence) = (self.chosen.manifest.config.digest.to_string(), self.evidence());
        let names = [self.names.tag.as_ref(), self.names.repo_digest.as_ref()].into_iter().flatten();
        for (name, evidence) in names.map(|name| (name, &evidence)).chain([(&id, &None)]) {
            let Some(record) = target.store.record(name).await? else { return Ok(false) };
            if record.target != *resolved || evidence.is_some() && record.evidence != *evidence {
                return Ok(false);
            }
        }
        let status = target.images.image_status(&ImageSpec::new(id), true).await?;
        Ok(status.image.is_some() && !lacks_layers(target.store.as_ref(), &status).await?)
    }

    /// The config of the present image; `None` if the runtime lost it. Empty where the platform is known without it.
    async fn present_config(&self, target: &RuntimeTarget) -> Result<Option<Vec<u8>>> {
        if self.chosen.platform_known {
            return Ok(Some(Vec::new()));
        }
        let limit = usize::try_from(self.parts.budgets.limits.config_bytes).unwrap_or(usize::MAX);
        target.store.read_blob(&self.chosen.manifest.config.digest, limit).await
    }

    /// Waits until the runtime shows the image.
    async fn wait_until_visible(&self, target: &RuntimeTarget) -> Result<()> {
        if self.is_shown_within(target, VISIBLE_WITHIN, |_| true).await? {
            return Ok(());
        }
        // Not for the runtime's own pull: the content of an image does not select an engine.
        let seconds = VISIBLE_WITHIN.as_secs();
        let message = format!("the runtime does not show the image {seconds} s after its record was written");
        Err(Error::new(Kind::FailedPrecondition, message))
    }

    /// Waits for a moment until the runtime shows the image by its names as well. Some it never shows, such as addresses of IPv6.
    async fn wait_for_names(&self, target: &RuntimeTarget, names: &[Option<&String>]) -> Result<()> {
        let has_names = |image: &Image| {
            let is_shown = |name: &&String| image.repo_tags.contains(name) || image.repo_digests.contains(name);
            names.iter().flatten().all(is_shown)
        };
        self.is_shown_within(target, NAMES_WITHIN, has_names).await.map(drop)
    }

    async fn is_shown_within(
        &self,
        target: &RuntimeTarget,
        limit: Duration,
        is_shown: impl Fn(&Image) -> bool + Send,
    ) -> Result<bool> {
        let spec = ImageSpec::new(self.chosen.manifest.config.digest.to_string());
        let (deadline, mut pause) = (Instant::now() + limit, Duration::from_millis(1));
        loop {
            let found = target.images.image_status(&spec, false).await?.image;
            if found.is_some_and(|image| is_shown(&image)) {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}

/// Refuses a platform that the runtime does not choose: it follows an index to the manifest for its own machine.
pub(crate) fn check_runtime_platform(wanted: &Platform) -> Result<()> {
    let own = Platform::host();
    if own.runnable().iter().any(|own| own.os == wanted.os && own.architecture == wanted.architecture) {
        return Ok(());
    }
    let message =
        format!("not for {wanted}: a container runtime takes from an index what is for its own machine, {own}");
    Err(Error::new(Kind::FailedPrecondition, message))
}

/// Returns true if the layers of an image are not where containers would look for them: it has to be pulled again. `status` is verbose.
pub(crate) async fn lacks_layers(store: &dyn RuntimeStore, status: &ImageStatus) -> Result<bool> {
    let Some(chain_id) = chain_id(status) else { return Ok(false) };
    Ok(!store.has_snapshot(&chain_id).await?)
}

/// The chain ID of the top layer, as the runtime reports it. Images without layers have none.
pub(crate) fn chain_id(status: &ImageStatus) -> Option<String> {
    let info: serde_json::Value = serde_json::from_str(status.info.get("info")?).ok()?;
    let chain_id = info.get("chainID")?.as_str().filter(|id| !id.is_empty())?;
    Some(chain_id.to_owned())
}

/// The media type of an index, as its own text names it.
fn index_type(bytes: &[u8]) -> &'static str {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Typed {
        media_type: Option<String>,
    }
    let typed: Option<Typed> = oci::json::from_slice(bytes).ok();
    match typed.and_then(|typed| typed.media_type) {
        Some(named) if named == oci::media_type::DOCKER_INDEX => oci::media_type::DOCKER_INDEX,
        _ => oci::media_type::OCI_INDEX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_is_read_as_containerd_writes_it() {
        let status = |info: &str| ImageStatus {
            info: std::collections::BTreeMap::from([("info".to_owned(), info.to_owned())]),
            ..ImageStatus::default()
        };
        assert_eq!(chain_id(&status(r#"{"chainID": "sha256:ab", "imageSpec": {}}"#)).as_deref(), Some("sha256:ab"));
        for none in [r#"{"chainID": ""}"#, "{}", "no JSON"] {
            assert_eq!(chain_id(&status(none)), None, "{none}");
        }
        assert_eq!(chain_id(&ImageStatus::default()), None);
    }

    #[test]
    fn an_index_says_what_it_is() {
        let docker = "application/vnd.docker.distribution.manifest.list.v2+json";
        assert_eq!(index_type(format!(r#"{{"mediaType": "{docker}", "manifests": []}}"#).as_bytes()), docker);
        assert_eq!(index_type(br#"{"manifests": []}"#), "application/vnd.oci.image.index.v1+json");
    }
}
