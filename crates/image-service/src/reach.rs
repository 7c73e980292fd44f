//! [`Reach`]: the way to registries that a person asks for. A plain value; [`crate::registries`] follows it.

/// How registries are reached, in addition to the configuration of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// As it is configured.
    #[default]
    AsConfigured,
    /// Whatever certificate they show, and in plain HTTP where they do not speak TLS.
    AnyCertificate,
    /// In plain HTTP.
    PlainHttp,
}
