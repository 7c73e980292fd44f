//! Settings of credentials: their sources, their use, and which pods may use an image that is already on the node.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use crate::config::declare::settings;
use crate::config::kind::POLICIES;
use crate::config::kind::{directories, duration, path, text, unset, words};

/// The kubelet's default `imagePullCredentialsVerificationPolicy`.
pub(crate) const DEFAULT_POLICY: &str = "NeverVerifyPreloadedImages";

settings! {
    /// Which pods may have an image that is on the node already. As written: the kubelet's validation words its own errors.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Verification() {
        Credentials {
            policy: String = DEFAULT_POLICY.to_owned() =>
                "imagePullCredentialsVerificationPolicy", "image-pull-credentials-verification-policy", text("POLICY", "the name of a policy").schema(json!({"enum": POLICIES})),
                "When a pod must present credentials for an image that is on the node already: NeverVerify, \
                 NeverVerifyPreloadedImages (if imagelet pulled it), NeverVerifyAllowlistedImages (unless it \
                 is on preloadedImagesVerificationAllowlist) or AlwaysVerify", kubelet(), reloads();
            allowlist: Vec<String> = Vec::new() =>
                "preloadedImagesVerificationAllowlist", "preloaded-images-verification-allowlist", words("IMAGE", Ok),
                "Images without tag and digest, or prefixes that end in /*, which every pod may have; only \
                 with the policy NeverVerifyAllowlistedImages; may be given again", kubelet(), reloads();
        }
    }
}

settings! {
    /// Sources of credentials.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Credentials() {
        Credentials {
            provider_config: Option<PathBuf> = None =>
                "imageCredentialProviderConfig", "image-credential-provider-config", unset(path("PATH")),
                "CredentialProviderConfig: a file, or a directory whose *.json, *.yaml and *.yml files count \
                 together";
            provider_bin_dir: Option<PathBuf> = None =>
                "imageCredentialProviderBinDir", "image-credential-provider-bin-dir", unset(path("DIR")),
                "Directory of the credential providers' programs";
            /// `None`: the kubelet's search paths.
            docker_config_paths: Option<Vec<PathBuf>> = None =>
                "credentials.dockerConfigPaths", "docker-config-path", unset(directories()),
                "Files with docker's or podman's credentials, or directories that are searched for config.json, and then for \
                 .dockercfg; may be given again [default: the root, the working directory of an agent, ~/.docker, \
                 /.docker; for a command of a person $REGISTRY_AUTH_FILE, or podman's auth.json and $DOCKER_CONFIG, too]", reloads();
            provider_timeout: Duration = Duration::from_secs(60) =>
                "credentials.providerTimeout", "credential-provider-timeout", duration(Duration::from_millis(100)..=Duration::from_secs(600)),
                "Timeout of an exec credential provider. A docker credential helper has 30s, or this if it is less";
            secrets_directory: Option<PathBuf> = None =>
                "secretsDirectory", "secrets-dir", unset(path("DIR")),
                "Directory of Secret and ServiceAccount manifests (*.yaml, *.yml, *.json) that pods may name";
            token_directory: Option<PathBuf> = None =>
                "serviceAccountTokenDirectory", "service-account-token-dir", unset(path("DIR")),
                "Directory with the service accounts' tokens for credential providers: \
                 NAMESPACE/NAME/AUDIENCE, the audience with `/` and `:` as `_`";
        }
    }
}
