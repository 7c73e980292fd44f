//! The flags about the reach of registries, for commands that a user types. Parses and checks the form of values, nothing
//! more.

use clap::{ArgAction, Args};
use image_service::Reach;

/// How registries are reached, in addition to the settings of hosts.toml.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ReachArgs {
    /// Verify the certificates of registries. With =false, any certificate is accepted, and plain HTTP if a
    /// registry does not use TLS: anyone on the network path can read the traffic
    #[arg(long, value_name = "BOOL", default_value_t = true, default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    pub(crate) tls_verify: bool,
    /// Use plain HTTP for registries
    #[arg(long, conflicts_with = "tls_verify")]
    pub(crate) plain_http: bool,
}

impl ReachArgs {
    /// Returns the combined meaning of both flags.
    pub(crate) fn reach(self) -> Reach {
        match self {
            Self { plain_http: true, .. } => Reach::PlainHttp,
            Self { tls_verify: false, .. } => Reach::AnyCertificate,
            Self { .. } => Reach::AsConfigured,
        }
    }
}
