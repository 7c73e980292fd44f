//! [`Reach`]: the way to registries that a person asks for. A plain value; [`crate::registries`] follows it.

/// How registries are reached, beside what is configured for each.
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
