//! [`ProvidersConfig`]: the kubelet's CredentialProviderConfig. Plain data.

use base::GoDuration;

/// The configured providers, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProvidersConfig {
    pub(super) providers: Vec<ProviderConfig>,
}

/// A provider of the configuration. Fields that the file does not set are empty.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct ProviderConfig {
    pub(super) name: String,
    pub(super) match_images: Vec<String>,
    pub(super) default_cache_duration: Option<GoDuration>,
    pub(super) api_version: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) token_attributes: Option<TokenAttributes>,
}

impl std::fmt::Debug for ProviderConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the arguments and the environment: they may hold secrets.
        f.debug_struct("ProviderConfig").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How a provider uses service account tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TokenAttributes {
    pub(super) audience: String,
    /// `ServiceAccount` or `Token`.
    pub(super) cache_type: String,
    pub(super) require_service_account: Option<bool>,
    pub(super) required_annotations: Vec<String>,
    pub(super) optional_annotations: Vec<String>,
}
