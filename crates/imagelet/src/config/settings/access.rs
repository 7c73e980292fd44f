//! The rows about credentials: where they come from, what they are for, and who may have an image that is here already.

use std::time::Duration;

use serde_json::json;

use super::{Group, Setting, word};
use crate::config::PathMatch;
use crate::config::value::show_duration;

const PATH_MATCHES: [(&str, PathMatch); 2] = [("segments", PathMatch::Segments), ("compat", PathMatch::Compat)];

pub(super) static ROWS: &[Setting] = &[
    Setting {
        field: "imagePullCredentialsVerificationPolicy",
        flag: "image-pull-credentials-verification-policy",
        variable: "IMAGELET_IMAGE_PULL_CREDENTIALS_VERIFICATION_POLICY",
        short: None,
        value_name: "POLICY",
        list: None,
        group: Group::Credentials,
        help: "When a pod must show credentials for an image that is on the node already: NeverVerify, \
               NeverVerifyPreloadedImages (if imagelet pulled it), NeverVerifyAllowlistedImages (unless it is on \
               preloadedImagesVerificationAllowlist) or AlwaysVerify",
        apply: |c, raw| raw.text("the name of a policy").map(|v| c.verification.policy = v),
        show: |c| json!(c.verification.policy),
    },
    Setting {
        field: "preloadedImagesVerificationAllowlist",
        flag: "preloaded-images-verification-allowlist",
        variable: "IMAGELET_PRELOADED_IMAGES_VERIFICATION_ALLOWLIST",
        short: None,
        value_name: "IMAGE",
        list: Some(','),
        group: Group::Credentials,
        help: "Images without tag and digest, or prefixes that end in /*, which every pod may have; only with the policy \
               NeverVerifyAllowlistedImages; may be given again",
        apply: |c, raw| raw.words().map(|v| c.verification.allowlist = v),
        show: |c| if c.verification.allowlist.is_empty() { json!(null) } else { json!(c.verification.allowlist) },
    },
    Setting {
        field: "imageCredentialProviderConfig",
        flag: "image-credential-provider-config",
        variable: "IMAGELET_IMAGE_CREDENTIAL_PROVIDER_CONFIG",
        short: None,
        value_name: "PATH",
        list: None,
        group: Group::Credentials,
        help: "CredentialProviderConfig: a file, or a directory whose *.json, *.yaml and *.yml files count together",
        apply: |c, raw| raw.path().map(|v| c.credentials.provider_config = Some(v)),
        show: |c| json!(c.credentials.provider_config),
    },
    Setting {
        field: "imageCredentialProviderBinDir",
        flag: "image-credential-provider-bin-dir",
        variable: "IMAGELET_IMAGE_CREDENTIAL_PROVIDER_BIN_DIR",
        short: None,
        value_name: "DIR",
        list: None,
        group: Group::Credentials,
        help: "Directory of the credential providers' programs",
        apply: |c, raw| raw.path().map(|v| c.credentials.provider_bin_dir = Some(v)),
        show: |c| json!(c.credentials.provider_bin_dir),
    },
    Setting {
        field: "credentials.pathMatch",
        flag: "credential-path-match",
        variable: "IMAGELET_CREDENTIAL_PATH_MATCH",
        short: None,
        value_name: "segments|compat",
        list: None,
        group: Group::Credentials,
        help: "segments: a credential for reg/a is for reg/a and reg/a/b; compat: for reg/ab as well, as the kubelet has it",
        apply: |c, raw| raw.choice(&PATH_MATCHES).map(|v| c.credentials.path_match = v),
        show: |c| word(&PATH_MATCHES, c.credentials.path_match),
    },
    Setting {
        field: "credentials.anonymousFallback",
        flag: "credential-anonymous-fallback",
        variable: "IMAGELET_CREDENTIAL_ANONYMOUS_FALLBACK",
        short: None,
        value_name: "BOOL",
        list: None,
        group: Group::Credentials,
        help: "Try without a credential when every one was refused",
        apply: |c, raw| raw.boolean().map(|v| c.credentials.anonymous_fallback = v),
        show: |c| json!(c.credentials.anonymous_fallback),
    },
    Setting {
        field: "credentials.dockerConfigPaths",
        flag: "docker-config-path",
        variable: "IMAGELET_DOCKER_CONFIG_PATH",
        short: None,
        value_name: "DIR",
        list: Some(':'),
        group: Group::Credentials,
        help: "Directories in which config.json, and then .dockercfg, is looked for; may be given again \
               [default: the root, the working directory of an agent, ~/.docker, /.docker]",
        apply: |c, raw| raw.paths().map(|v| c.credentials.docker_config_paths = Some(v)),
        show: |c| json!(c.credentials.docker_config_paths),
    },
    Setting {
        field: "credentials.helperTimeout",
        flag: "credential-helper-timeout",
        variable: "IMAGELET_CREDENTIAL_HELPER_TIMEOUT",
        short: None,
        value_name: "DURATION",
        list: None,
        group: Group::Credentials,
        help: "How long a docker credential helper may take to answer",
        apply: |c, raw| {
            let range = Duration::from_millis(100)..=Duration::from_secs(600);
            raw.duration(range).map(|v| c.credentials.helper_timeout = v)
        },
        show: |c| json!(show_duration(c.credentials.helper_timeout)),
    },
    Setting {
        field: "credentials.providerTimeout",
        flag: "credential-provider-timeout",
        variable: "IMAGELET_CREDENTIAL_PROVIDER_TIMEOUT",
        short: None,
        value_name: "DURATION",
        list: None,
        group: Group::Credentials,
        help: "How long an exec credential provider may take to answer",
        apply: |c, raw| {
            let range = Duration::from_millis(100)..=Duration::from_secs(600);
            raw.duration(range).map(|v| c.credentials.provider_timeout = v)
        },
        show: |c| json!(show_duration(c.credentials.provider_timeout)),
    },
    Setting {
        field: "secretsDirectory",
        flag: "secrets-dir",
        variable: "IMAGELET_SECRETS_DIR",
        short: None,
        value_name: "DIR",
        list: None,
        group: Group::Credentials,
        help: "Directory of Secret and ServiceAccount manifests (*.yaml, *.yml, *.json) that pods may name",
        apply: |c, raw| raw.path().map(|v| c.credentials.secrets_directory = Some(v)),
        show: |c| json!(c.credentials.secrets_directory),
    },
    Setting {
        field: "serviceAccountTokenDirectory",
        flag: "service-account-token-dir",
        variable: "IMAGELET_SERVICE_ACCOUNT_TOKEN_DIR",
        short: None,
        value_name: "DIR",
        list: None,
        group: Group::Credentials,
        help: "Directory with the service accounts' tokens for credential providers: NAMESPACE/NAME/AUDIENCE, the \
               audience with `/` and `:` as `_`",
        apply: |c, raw| raw.path().map(|v| c.credentials.token_directory = Some(v)),
        show: |c| json!(c.credentials.token_directory),
    },
];
