//! [`Creds`]: a credential as it is typed. Checks nothing; the commands do.

/// `USER:PASSWORD`, unchecked: an error of clap's parser would show it.
#[derive(Clone, Debug)]
pub(crate) struct Creds(pub(crate) oci::Secret);

impl Creds {
    #[expect(clippy::unnecessary_wraps, reason = "the form that clap asks for")]
    pub(super) fn parse(text: &str) -> Result<Self, std::convert::Infallible> {
        Ok(Self(oci::Secret::new(text)))
    }
}
