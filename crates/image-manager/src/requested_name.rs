//! [`RequestedName`]: an image name of a request, as text and parsed. The manager makes it; the pull records compare it with recorded
//! names in other spellings.

use std::borrow::Cow;
use std::sync::OnceLock;

use oci::Reference;

/// The name by which a container asks for an image. The text is parsed when its parts are first needed, and only once: most
/// requests for present images need none of them.
#[derive(Clone, Debug)]
pub(crate) struct RequestedName<'a> {
    text: Cow<'a, str>,
    reference: OnceLock<Option<Reference>>,
}

impl<'a> RequestedName<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text: Cow::Borrowed(text), reference: OnceLock::new() }
    }

    /// Returns the text as it was requested. Pull records and intents are kept by it.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the parsed name, without a default tag; `None` for a text that is no name.
    pub(crate) fn reference(&self) -> Option<&Reference> {
        self.reference.get_or_init(|| Reference::parse(&self.text).ok()).as_ref()
    }

    /// Returns a copy that a blocking thread can own.
    pub(crate) fn to_static(&self) -> RequestedName<'static> {
        RequestedName { text: Cow::Owned(self.text.clone().into_owned()), reference: self.reference.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_spelling_and_is_parsed_when_asked() {
        let name = RequestedName::new("R.example:443/app");
        let copy = name.to_static();
        for name in [&name, &copy] {
            assert_eq!(name.text(), "R.example:443/app");
            assert_eq!(name.reference().map(ToString::to_string).as_deref(), Some("r.example/app"));
        }
        assert_eq!(RequestedName::new("Not A Name").reference(), None);
    }
}
