//! [`Names`]: the names under which an image is recorded. Made by pulls and imports, compared with those of an image that is present, and
//! handed to the commit.

/// Names to record of an image, in normal form; `None` adds none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) tag: Option<String>,
    pub(crate) repo_digest: Option<String>,
}
