//! [`Creds`]: a credential as typed. Validates nothing; the commands do.

/// `USER:PASSWORD`, not validated: an error of clap's parser would show the value.
#[derive(Clone, Debug)]
pub(crate) struct Creds(pub(crate) oci::Secret);

impl Creds {
    #[expect(clippy::unnecessary_wraps, reason = "the form that clap asks for")]
    pub(super) fn parse(text: &str) -> Result<Self, std::convert::Infallible> {
        Ok(Self(oci::Secret::new(text)))
    }
}
