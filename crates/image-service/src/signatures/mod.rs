//! Signatures: what the policy demands of an image, and whether it is met, before anything of the image is requested but its
//! documents, and before an image that is here is used. The `signature` crate decides; here the policy is read ([`file`]), are
//! signatures searched at the registry ([`find`]) and kept with the images, in our own store ([`evidence`]) and in that of a runtime
//! ([`recorded`]). Called by pulls, imports, and the calls that answer for what is present. Without a policy nothing of this is done.

pub(crate) mod evidence;
mod file;
mod find;
pub(crate) mod recorded;

use std::path::PathBuf;
use std::sync::Arc;

use cri_api::{Error, Result};
use oci::{Digest, Reference, RegistryAuth};
use registry::Repository;
use signature::{Check, Demand, Rule, Signature};
use store::ImageRecord;

use crate::error;
use crate::shared::Shared;
use evidence::Evidence;
pub(crate) use file::PolicyFile;
pub(crate) use find::with_payloads;
use find::{Payloads, Search};

/// So many signatures of an image are looked at, the newest first.
pub(crate) const MAX_SIGNATURES: usize = 64;

/// The policy's demand on an image by one name.
pub(crate) struct Guard {
    rule: Rule,
    /// `None`: it has no name.
    image: Option<Reference>,
    /// The policy's file, for messages.
    policy: PathBuf,
}

/// A name of an image, `None` for an image without one, and the evidence of it on this node.
pub(crate) type Claim = (Option<Reference>, Arc<Evidence>);

impl PolicyFile {
    /// The policy's demand on an image by this name; `None`: nothing. Blocks.
    ///
    /// # Errors
    /// The policy refuses it in any case, or cannot be read.
    pub(crate) fn guard(&self, image: Option<Reference>) -> Result<Option<Guard>> {
        let policy = self.current()?;
        let rule = image.as_ref().map_or_else(|| policy.unnamed(), |image| policy.rule(image));
        let guard = Guard { rule, image, policy: self.path().to_owned() };
        match guard.rule.demand() {
            Demand::Nothing => Ok(None),
            Demand::Refused => Err(guard.rejects()),
            Demand::Signatures => Ok(Some(guard)),
        }
    }

    /// Returns why the policy of this moment refuses each of these claims; `None`: it accepts one. Blocks.
    ///
    /// # Errors
    /// The policy cannot be read.
    pub(crate) fn objection(&self, claims: Vec<Claim>) -> Result<Option<Error>> {
        // A fault of the file is no objection to one image, but an error for all of them.
        self.current()?;
        let mut objection = None;
        for (name, evidence) in claims {
            let why = match self.guard(name) {
                Ok(None) => return Ok(None),
                Ok(Some(guard)) => match guard.check_kept(&evidence) {
                    None => return Ok(None),
                    Some(why) => why,
                },
                Err(why) => why,
            };
            objection.get_or_insert(why);
        }
        Ok(objection)
    }
}

impl Shared {
    /// The policy's demand on an image by this name; `None`: nothing.
    ///
    /// # Errors
    /// The policy refuses it in any case, or cannot be read.
    pub(crate) async fn guard(self: &Arc<Self>, image: Option<&Reference>) -> Result<Option<Guard>> {
        if self.policy.is_none() {
            return Ok(None);
        }
        let (shared, image) = (Arc::clone(self), image.cloned());
        self.background.run(move || shared.guard_of(image)).await
    }

    /// The same, on a thread that may block.
    fn guard_of(&self, image: Option<Reference>) -> Result<Option<Guard>> {
        self.policy.as_ref().map_or(Ok(None), |policy| policy.guard(image))
    }

    /// Why the policy does not let an image that is here be used by this text, a name or an id; `None`: it does. By id it
    /// may be used if it may by any of its names; an image without names has the policy's default. Blocks.
    ///
    /// # Errors
    /// The policy cannot be read.
    pub(crate) fn objection_to_use(&self, image: &ImageRecord, text: &str) -> Result<Option<Error>> {
        let Some(policy) = &self.policy else { return Ok(None) };
        let evidence = Arc::new(Evidence::of(image));
        if let Some(name) = name_in(image, text) {
            return policy.objection(vec![(Some(name), evidence)]);
        }
        let all = image.tags.iter().chain(&image.repo_digests).filter_map(|name| Reference::parse(name).ok());
        let all: Vec<Claim> = all.map(|name| (Some(name), Arc::clone(&evidence))).collect();
        policy.objection(if all.is_empty() { vec![(None, evidence)] } else { all })
    }

    /// Verifies once more, right before a commit, that the policy of this moment lets an image be used by this name: a key that
    /// was withdrawn while the image came counts no more. Blocks.
    ///
    /// # Errors
    /// The policy refuses it, or cannot be read.
    pub(crate) fn verify_at_commit(
        &self,
        name: Option<&Reference>,
        digests: &[Digest],
        signatures: &[Signature],
    ) -> Result<()> {
        let Some(guard) = self.guard_of(name.cloned())? else { return Ok(()) };
        let mut check = guard.check(digests.to_vec());
        for signature in signatures {
            check.offer(signature);
        }
        if check.is_met() {
            return Ok(());
        }
        let why = why(&check, digests, &[]);
        Err(guard.refuses(&format!("policy or keys have changed while the image came, and {why}")))
    }

    /// The signatures that are kept with an image.
    async fn kept_signatures(self: &Arc<Self>, image: &Reference, id: &Digest) -> Result<Vec<Signature>> {
        if let Some(target) = &self.options.runtime {
            let record = target.store.record(&image.to_string()).await?;
            return Ok(record.map(|record| recorded::read(&record, id).signatures).unwrap_or_default());
        }
        let (store, id) = (self.store.clone(), id.clone());
        let load = move || store.image(&id).map_err(|e| crate::error::from_store(store.root(), &e));
        Ok(self.background.run(load).await?.map(|image| evidence::of(&image)).unwrap_or_default())
    }
}

/// The name of the image that this text is, in its normal form; `None`: it is none, but an id.
fn name_in(image: &ImageRecord, text: &str) -> Option<Reference> {
    let name = Reference::parse(text).ok()?.canonical();
    let spelled = name.to_string();
    (image.tags.contains(&spelled) || image.repo_digests.contains(&spelled)).then_some(name)
}

impl Guard {
    /// Finds the signatures that are demanded: among those that are kept with the image, or else at its registry. `digests`
    /// are those of what the name stands for and of the manifest. Answers the signatures by which the demands are met.
    pub(crate) async fn check_pull(
        self,
        shared: &Arc<Shared>,
        auth: Option<RegistryAuth>,
        digests: Vec<Digest>,
        id: &Digest,
    ) -> Result<Vec<Signature>> {
        let reference = self.image.as_ref().expect("a pull has a name");
        let kept = shared.kept_signatures(reference, id).await?;
        let mut trial = Trial::new(self.check(digests.clone()));
        for signature in kept {
            trial.offer(shared, signature).await?;
        }
        if trial.check.is_met() {
            return Ok(trial.used);
        }
        // What is kept says nothing about what the registry has.
        trial = Trial::new(self.check(digests.clone()));
        // A session of its own: a mirror that has no signatures may well have the layers.
        let repository = crate::pull::repository(shared, reference, auth).await?;
        let mut notes = Vec::new();
        for digest in &digests {
            let search = Search::start(&repository, digest).await?;
            notes.extend(search.notes.iter().cloned());
            trial.look_at(shared, &repository, search).await?;
            if trial.check.is_met() {
                tracing::debug!(image = %reference, signatures = trial.used.len(), "signatures satisfy the policy");
                return Ok(trial.used);
            }
        }
        Err(self.refuses(&why(&trial.check, &digests, &notes)))
    }

    /// Looks at signatures that are at hand; `where_from` says of which place they are all.
    pub(crate) async fn check_offline(
        self,
        shared: &Arc<Shared>,
        digests: Vec<Digest>,
        signatures: Vec<Signature>,
        where_from: &str,
    ) -> Result<Vec<Signature>> {
        let mut trial = Trial::new(self.check(digests.clone()));
        for signature in signatures.into_iter().take(MAX_SIGNATURES) {
            if trial.check.is_met() {
                break;
            }
            trial.offer(shared, signature).await?;
        }
        if trial.check.is_met() {
            return Ok(trial.used);
        }
        Err(self.refuses(&format!("{} {where_from}", why(&trial.check, &digests, &[]))))
    }

    /// Why the signatures that are kept with an image are not those that are demanded; `None`: they are.
    fn check_kept(&self, evidence: &Evidence) -> Option<Error> {
        let mut check = self.check(evidence.digests.clone());
        for signature in &evidence.signatures {
            check.offer(signature);
        }
        if check.is_met() {
            return None;
        }
        Some(self.refuses(&format!("{} on this node", why(&check, &evidence.digests, &[]))))
    }

    fn check(&self, digests: Vec<Digest>) -> Check {
        Check::new(self.rule.clone(), self.image.clone(), digests)
    }

    fn refuses(&self, why: &str) -> Error {
        let (policy, scope, keys) = (self.policy.display(), self.rule.scope(), self.rule.keys());
        error::signature(format!("signature policy {policy} ({scope}) demands a signature by {keys}: {why}"))
    }

    fn rejects(&self) -> Error {
        let (policy, scope) = (self.policy.display(), self.rule.scope());
        error::signature(format!("signature policy {policy} ({scope}) rejects it"))
    }
}

/// Message about signatures that are absent, or not as they should be.
fn why(check: &Check, digests: &[Digest], notes: &[String]) -> String {
    let of = digests.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and of ");
    let mut text = match check.offered() {
        0 => format!("no signature of {of} was found"),
        1 => format!("the one signature that was found of {of} does not count: {}", check.reasons()),
        n => format!("none of {n} signatures of {of} counts: {}", check.reasons()),
    };
    for note in notes {
        text.push_str("; ");
        text.push_str(note);
    }
    text
}

/// A check on its way, with the signatures that it took.
struct Trial {
    check: Check,
    used: Vec<Signature>,
    looked_at: usize,
}

impl Trial {
    fn new(check: Check) -> Self {
        Self { check, used: Vec::new(), looked_at: 0 }
    }

    /// Looks at one signature, on a thread that may take its time.
    async fn offer(&mut self, shared: &Shared, signature: Signature) -> Result<()> {
        let mut check = self.check.clone();
        let (check, signature, is_new) = shared
            .background
            .run(move || {
                let is_new = check.offer(&signature);
                Ok((check, signature, is_new))
            })
            .await?;
        self.check = check;
        if is_new {
            self.used.push(signature);
        }
        Ok(())
    }

    /// Looks at what a search found, the newest first, until the demands are met.
    async fn look_at(&mut self, shared: &Shared, repository: &Repository, search: Search) -> Result<()> {
        let mut payloads = Payloads::new(repository);
        for candidate in search.candidates.into_iter().rev() {
            if self.looked_at == MAX_SIGNATURES {
                self.check.pass_over("there are more than are looked at");
                return Ok(());
            }
            self.looked_at += 1;
            match payloads.of(&candidate).await? {
                Ok(payload) => self.offer(shared, Signature { payload, signature: candidate.signature }).await?,
                Err(why) => self.check.pass_over(why),
            }
            if self.check.is_met() {
                return Ok(());
            }
        }
        Ok(())
    }
}
