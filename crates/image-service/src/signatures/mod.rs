//! Signatures: checks the policy's demands on an image before its layers are requested, before its commit, and before a present
//! image is used. The `signature` crate decides. These modules read the policy ([`file`]), search for signatures at the registry
//! ([`find`]), and keep them with the images in the engine's store ([`evidence`]) or a runtime's store ([`recorded`]). Called by
//! pulls, imports, and calls about present images.

pub(crate) mod evidence;
mod file;
mod find;
pub(crate) mod recorded;

use std::path::PathBuf;
use std::sync::Arc;

use cri_api::{Error, Result};
use oci::{Digest, Reference, ReferenceOrId, RegistryAuth};
use registry::{Client, Repository};
use signature::{Check, Demand, Rule, Signature};
use store::ImageRecord;

use crate::background::Background;
use crate::content::Content;
use crate::error;
use crate::source::registry::open_repository;
use evidence::Evidence;
pub(crate) use file::PolicyFile;
pub(crate) use find::with_payloads;
use find::{Payloads, Search};

/// At most this many signatures of an image are checked, the newest first.
pub(crate) const MAX_SIGNATURES: usize = 64;

/// The policy's demand on an image by one name.
pub(crate) struct Guard {
    rule: Rule,
    /// `None`: the image has no name.
    image: Option<Reference>,
    /// The policy's file, for messages.
    policy: PathBuf,
}

/// A name of an image, `None` for an image without one, and the evidence of it on this node.
pub(crate) type Claim = (Option<Reference>, Arc<Evidence>);

impl PolicyFile {
    /// Returns the policy's demand on an image by this name; `None` if there is none. Blocks.
    ///
    /// # Errors
    /// The policy refuses it in any case, or cannot be read.
    fn guard(&self, image: Option<Reference>) -> Result<Option<Guard>> {
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

impl PolicyFile {
    /// Returns why the policy does not accept a present image by this name or ID. Blocks.
    fn objection_to(&self, image: &ImageRecord, named: &ReferenceOrId) -> Result<Option<Error>> {
        let evidence = Arc::new(Evidence::of(image));
        if let Some(name) = name_in(image, named) {
            return self.objection(vec![(Some(name), evidence)]);
        }
        let all: Vec<Claim> = image.references().map(|name| (Some(name), Arc::clone(&evidence))).collect();
        self.objection(if all.is_empty() { vec![(None, evidence)] } else { all })
    }
}

/// The signature policy of an engine, applied to the images that it pulls and has.
pub(crate) struct ImagePolicy {
    /// `None`: every image is accepted.
    file: Option<Arc<PolicyFile>>,
    content: Arc<Content>,
}

impl ImagePolicy {
    pub(crate) fn new(file: Option<PolicyFile>, content: &Arc<Content>) -> Self {
        Self { file: file.map(Arc::new), content: Arc::clone(content) }
    }

    /// Returns true if there is a policy.
    pub(crate) fn is_set(&self) -> bool {
        self.file.is_some()
    }

    /// Returns the policy's demand on an image by this name; `None` if there is none.
    ///
    /// # Errors
    /// The policy refuses it in any case, or cannot be read.
    pub(crate) async fn guard(&self, image: Option<&Reference>) -> Result<Option<Guard>> {
        let Some(policy) = self.file.clone() else { return Ok(None) };
        let image = image.cloned();
        self.content.background.run(move || policy.guard(image)).await
    }

    /// Returns the image with this name or ID if it is whole and the policy accepts it: by this name, or by any of its names if
    /// it is given by ID.
    pub(crate) async fn find_usable(&self, named: ReferenceOrId) -> Result<Option<ImageRecord>> {
        let Some(image) = self.content.find_whole(named.clone()).await? else { return Ok(None) };
        let Some(policy) = self.file.clone() else { return Ok(Some(image)) };
        self.content
            .background
            .run(move || match policy.objection_to(&image, &named)? {
                None => Ok(Some(image)),
                Some(why) => {
                    tracing::debug!(image = named.as_str(), reason = %why, "signature policy refuses a present image");
                    Ok(None)
                }
            })
            .await
    }

    /// Returns why the policy does not accept a present image by this name or ID; `None` if it does. An ID is accepted if any
    /// name of the image is; the policy's default applies to an image without names. Blocks.
    ///
    /// # Errors
    /// The policy cannot be read.
    pub(crate) fn objection_to_use(&self, image: &ImageRecord, named: &ReferenceOrId) -> Result<Option<Error>> {
        self.file.as_ref().map_or(Ok(None), |policy| policy.objection_to(image, named))
    }

    /// Returns the check of an image by this name that is repeated right before its commit.
    pub(crate) fn final_check(
        &self,
        name: Option<Reference>,
        digests: Vec<Digest>,
        signatures: Vec<Signature>,
    ) -> FinalCheck {
        FinalCheck { policy: self.file.clone(), name, digests, signatures }
    }
}

/// The check of an image right before its commit: the policy of that moment must accept it, so that a key that was withdrawn during
/// the pull does not count.
#[derive(Clone)]
pub(crate) struct FinalCheck {
    policy: Option<Arc<PolicyFile>>,
    name: Option<Reference>,
    digests: Vec<Digest>,
    signatures: Vec<Signature>,
}

impl FinalCheck {
    /// Checks the image on a blocking thread.
    ///
    /// # Errors
    /// The policy refuses it, or cannot be read.
    pub(crate) async fn run(&self, background: &Background) -> Result<()> {
        if self.policy.is_none() {
            return Ok(());
        }
        let check = self.clone();
        background.run(move || check.run_blocking()).await
    }

    /// Checks the image. Blocks.
    ///
    /// # Errors
    /// The policy refuses it, or cannot be read.
    pub(crate) fn run_blocking(&self) -> Result<()> {
        let Some(policy) = &self.policy else { return Ok(()) };
        let Some(guard) = policy.guard(self.name.clone())? else { return Ok(()) };
        let mut check = guard.check(self.digests.clone());
        for signature in &self.signatures {
            check.offer(signature);
        }
        if check.is_met() {
            return Ok(());
        }
        let why = why(&check, &self.digests, &[]);
        Err(guard.refuses(&format!("policy or keys have changed while the image came, and {why}")))
    }
}

/// Returns the name by which the image is given; `None` if it does not have it.
fn name_in(image: &ImageRecord, named: &ReferenceOrId) -> Option<Reference> {
    let name = named.reference()?.clone().canonical();
    let spelled = name.to_string();
    (image.tags.contains(&spelled) || image.repo_digests.contains(&spelled)).then_some(name)
}

impl Guard {
    /// Finds the demanded signatures among those that are `kept` with the image, or else at its registry, and returns those that
    /// meet the demands. `digests` are those that the image may have been signed by.
    pub(crate) async fn check_pull(
        self,
        (background, client): (&Background, &Client),
        auth: Option<RegistryAuth>,
        digests: Vec<Digest>,
        kept: Vec<Signature>,
    ) -> Result<Vec<Signature>> {
        let reference = self.image.as_ref().expect("a pull has a name");
        let mut trial = Trial::new(self.check(digests.clone()));
        for signature in kept {
            trial.offer(background, signature).await?;
        }
        if trial.check.is_met() {
            return Ok(trial.used);
        }
        trial = Trial::new(self.check(digests.clone()));
        // A separate session: a mirror without the signatures may have the layers.
        let repository = open_repository(background, client, reference, auth).await?;
        let mut notes = Vec::new();
        for digest in &digests {
            let search = Search::start(&repository, digest).await?;
            notes.extend(search.notes.iter().cloned());
            trial.check_found(background, &repository, search).await?;
            if trial.check.is_met() {
                tracing::debug!(image = %reference, signatures = trial.used.len(), "signatures satisfy the policy");
                return Ok(trial.used);
            }
        }
        Err(self.refuses(&why(&trial.check, &digests, &notes)))
    }

    /// Checks signatures without a registry; `where_from` names their place for the message.
    pub(crate) async fn check_offline(
        self,
        background: &Background,
        digests: Vec<Digest>,
        signatures: Vec<Signature>,
        where_from: &str,
    ) -> Result<Vec<Signature>> {
        let mut trial = Trial::new(self.check(digests.clone()));
        for signature in signatures.into_iter().take(MAX_SIGNATURES) {
            if trial.check.is_met() {
                break;
            }
            trial.offer(background, signature).await?;
        }
        if trial.check.is_met() {
            return Ok(trial.used);
        }
        Err(self.refuses(&format!("{} {where_from}", why(&trial.check, &digests, &[]))))
    }

    /// Returns why the signatures that are kept with an image do not meet the demands; `None` if they do.
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

/// A check in progress, with the signatures that count so far.
struct Trial {
    check: Check,
    used: Vec<Signature>,
    checked: usize,
}

impl Trial {
    fn new(check: Check) -> Self {
        Self { check, used: Vec::new(), checked: 0 }
    }

    /// Checks one signature on a blocking thread.
    async fn offer(&mut self, background: &Background, signature: Signature) -> Result<()> {
        let mut check = self.check.clone();
        let (check, signature, is_new) = background
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

    /// Checks the signatures that a search found, the newest first, until the demands are met.
    async fn check_found(&mut self, background: &Background, repository: &Repository, search: Search) -> Result<()> {
        let mut payloads = Payloads::new(repository);
        for candidate in search.candidates.into_iter().rev() {
            if self.checked == MAX_SIGNATURES {
                self.check.pass_over("there are more than are checked");
                return Ok(());
            }
            self.checked += 1;
            match payloads.of(&candidate).await? {
                Ok(payload) => self.offer(background, Signature { payload, signature: candidate.signature }).await?,
                Err(why) => self.check.pass_over(why),
            }
            if self.check.is_met() {
                return Ok(());
            }
        }
        Ok(())
    }
}
