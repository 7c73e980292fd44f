//! Settings of credentials: their sources, their use, and which pods may use an image that is already on the node.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::flag::Group::Credentials as Group;
use crate::config::flag::flag;
use crate::config::form::POLICIES;

/// The kubelet's default `imagePullCredentialsVerificationPolicy`.
pub(crate) const DEFAULT_POLICY: &str = "NeverVerifyPreloadedImages";

/// Which pods may have an image that is on the node already. As written: the kubelet's validation words its own errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Verification {
    #[serde(rename = "imagePullCredentialsVerificationPolicy")]
    #[schemars(
        description = "When a pod must present credentials for an image that is on the node already: NeverVerify, \
                       NeverVerifyPreloadedImages (if imagelet pulled it), NeverVerifyAllowlistedImages (unless it is on \
                       preloadedImagesVerificationAllowlist) or AlwaysVerify",
        extend("imagelet" = flag(Group, "image-pull-credentials-verification-policy").value("POLICY")
            .allowed("the name of a policy").kubelet().reloads(), "enum" = POLICIES)
    )]
    pub(crate) policy: String,
    #[serde(rename = "preloadedImagesVerificationAllowlist")]
    #[schemars(
        description = "Images without tag and digest, or prefixes that end in /*, which every pod may have; only with the policy \
                       NeverVerifyAllowlistedImages; may be given again",
        extend("imagelet" = flag(Group, "preloaded-images-verification-allowlist").value("IMAGE").kubelet().reloads())
    )]
    pub(crate) allowlist: Vec<String>,
}

impl Default for Verification {
    fn default() -> Self {
        Self { policy: DEFAULT_POLICY.to_owned(), allowlist: Vec::new() }
    }
}

/// Sources of credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Credentials {
    #[serde(rename = "imageCredentialProviderConfig")]
    #[schemars(
        description = "CredentialProviderConfig: a file, or a directory whose *.json, *.yaml and *.yml files count together",
        extend("imagelet" = flag(Group, "image-credential-provider-config").value("PATH"))
    )]
    pub(crate) provider_config: Option<PathBuf>,
    #[serde(rename = "imageCredentialProviderBinDir")]
    #[schemars(
        description = "Directory of the credential providers' programs",
        extend("imagelet" = flag(Group, "image-credential-provider-bin-dir").value("DIR"))
    )]
    pub(crate) provider_bin_dir: Option<PathBuf>,
    /// `None`: the kubelet's search paths.
    #[serde(rename = "credentials.dockerConfigPaths")]
    #[schemars(
        description = "Files with docker's or podman's credentials, or directories that are searched for config.json, and then for \
                       .dockercfg; may be given again [default: the root, the working directory of an agent, ~/.docker, /.docker; for \
                       a command of a person $REGISTRY_AUTH_FILE, or podman's auth.json and $DOCKER_CONFIG, too]",
        extend("imagelet" = flag(Group, "docker-config-path").value("DIR").reloads(), "minItems" = 1)
    )]
    pub(crate) docker_config_paths: Option<Vec<PathBuf>>,
    #[serde(rename = "secretsDirectory")]
    #[schemars(
        description = "Directory of Secret and ServiceAccount manifests (*.yaml, *.yml, *.json) that pods may name. Service accounts' \
                       tokens for credential providers are in its directory tokens: NAMESPACE/NAME/AUDIENCE, the audience with `/` \
                       and `:` as `_`",
        extend("imagelet" = flag(Group, "secrets-dir").value("DIR"))
    )]
    pub(crate) secrets_directory: Option<PathBuf>,
}
