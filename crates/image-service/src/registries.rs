//! [`Registries`]: registries without a store: uploads, and whether a registry takes a credential. The client that pulls is
//! made here as well, so that both reach a registry in the same way. Called by the binary and by the engine.

use std::fmt;
use std::sync::Arc;

use cri_api::{Error, Kind, Result};
use oci::{Reference, RegistryAuth};
use registry::{Client, HostConfig, ManifestHead, Memory, Namespace, NamespaceLoader, Repository};

use crate::certs_d;
use crate::error;
use crate::options::EngineOptions;
use crate::reach::Reach;

/// The client of registries for these options.
pub(crate) fn client(options: &EngineOptions, memory: Arc<dyn Memory>) -> Client {
    Client::new(registry::Options {
        memory,
        user_agent: options.user_agent.clone(),
        retry: options.retry.clone(),
        proxy: options.proxy.clone(),
        ranges: options.ranges.clone(),
        bandwidth: options.bandwidth.clone(),
        traffic: options.traffic.clone(),
        allowed_targets: options.allowed_targets.clone(),
        limits: registry::Limits {
            manifest: options.limits.manifest_bytes,
            config: options.limits.config_bytes,
            ..registry::Limits::default()
        },
        ..registry::Options::new(loader(certs_d::loader(options.hosts_roots.clone()), options.reach))
    })
}

fn loader(configured: NamespaceLoader, reach: Reach) -> NamespaceLoader {
    if reach == Reach::AsConfigured {
        return configured;
    }
    Arc::new(move |domain| {
        let Namespace { mut hosts } = configured(domain)?;
        hosts.iter_mut().for_each(|host| reached(host, reach));
        hosts.dedup();
        Ok(Namespace { hosts })
    })
}

fn reached(host: &mut HostConfig, reach: Reach) {
    match reach {
        Reach::AsConfigured => {}
        Reach::AnyCertificate => {
            host.tls.skip_verify = true;
            // Configured headers may be secrets, which are not sent to find out.
            host.either_scheme |= host.headers.is_empty() && host.base.scheme() == "https";
        }
        Reach::PlainHttp => {
            host.either_scheme = false;
            if host.base.set_scheme("http").is_err() {
                tracing::debug!(host = host.name(), "host keeps its scheme");
            }
        }
    }
}

/// Registries, without a store.
#[derive(Clone)]
pub struct Registries {
    client: Client,
}

impl Registries {
    /// Nothing is asked of any registry yet. The root and what is of a store in the options is not looked at.
    #[must_use]
    pub fn new(options: &EngineOptions) -> Self {
        Self { client: client(options, Arc::new(registry::Allowance::default())) }
    }

    /// Returns the client, for callers that need more than is offered here.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The session of an upload.
    pub(crate) fn repository(&self, reference: &Reference, auth: Option<RegistryAuth>) -> Result<Repository> {
        self.client.repository(reference, auth).map_err(|e| error::from_registry(&e))
    }

    /// Asks a registry, by its host, whether it takes a credential; without one, whether it asks for any.
    ///
    /// # Errors
    /// `Unauthenticated` and `PermissionDenied` where it does not; `InvalidArgument` where the text is no host.
    pub async fn check_access(&self, host: &str, auth: Option<RegistryAuth>) -> Result<()> {
        let any = Reference::parse(&format!("{host}/any/name"))
            .ok()
            .filter(|reference| oci::normal_host(host).is_ok_and(|normal| normal == reference.domain()));
        let any =
            any.ok_or_else(|| Error::new(Kind::InvalidArgument, format!("{host:?} is not the host of a registry")))?;
        let session = self.client.registry(&any, auth).map_err(|e| error::from_registry(&e))?;
        session.check_access().await.map_err(|e| error::one_line(error::from_registry(&e)))
    }

    /// Returns all tags of a repository in its registry, sorted. The tag of `name` does not matter.
    ///
    /// # Errors
    /// Those of the registry; `NotFound` if there is no such repository.
    pub async fn tags(&self, name: &Reference, auth: Option<RegistryAuth>) -> Result<Vec<String>> {
        let tags = self.repository(name, auth)?.tags().await;
        tags.map_err(|e| error::one_line(error::from_registry(&e)))
    }

    /// Asks a registry whether a credential may read an image's manifest.
    ///
    /// # Errors
    /// Those of the registry.
    pub async fn check_image(&self, image: &Reference, auth: Option<RegistryAuth>) -> Result<()> {
        let resolved = self.repository(image, auth)?.resolve().await;
        resolved.map(drop).map_err(|e| error::one_line(error::from_registry(&e)))
    }

    /// Asks a registry or its mirrors for the head of an image's manifest with a credential.
    ///
    /// # Errors
    /// Those of the registry.
    pub async fn image_head(&self, image: &Reference, auth: Option<RegistryAuth>) -> Result<ManifestHead> {
        let head = self.repository(image, auth)?.head().await;
        head.map_err(|e| error::one_line(error::from_registry(&e)))
    }
}

impl fmt::Debug for Registries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registries").finish_non_exhaustive()
    }
}
