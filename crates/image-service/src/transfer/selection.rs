//! [`Selection`]: which of an archive's images a person wants, by name, tag or digest, and whether each of them was there. Pure.
//! Called by the import.

use std::collections::BTreeSet;

use cri_api::{Error, Kind, Result};
use oci::Reference;

/// So many images of an archive are named in an error.
const MAX_NAMED: usize = 10;

/// The wanted images. Nothing wanted means all of them.
#[derive(Debug)]
pub(crate) struct Selection {
    wanted: Vec<SelectedName>,
    offered: BTreeSet<String>,
}

#[derive(Debug)]
struct SelectedName {
    text: String,
    name: Option<Reference>,
    found: bool,
}

/// How an image of an archive may be called.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Labels<'a> {
    /// As a name in normal form.
    pub(crate) name: Option<&'a Reference>,
    /// As the archive writes it.
    pub(crate) text: Option<&'a str>,
    /// The digests that stand for it.
    pub(crate) digests: &'a [String],
}

impl Selection {
    pub(crate) fn new(images: &[String]) -> Self {
        let wanted = |text: &String| SelectedName {
            text: text.clone(),
            name: Reference::parse(text).ok().map(Reference::canonical),
            found: false,
        };
        Self { wanted: images.iter().map(wanted).collect(), offered: BTreeSet::new() }
    }

    /// Returns true if every image is wanted.
    pub(crate) fn is_all(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Returns true if an image that is called so is wanted. Errors offer what it is called.
    pub(crate) fn takes(&mut self, labels: Labels<'_>) -> bool {
        let shown = labels.name.map(ToString::to_string).or_else(|| labels.text.map(str::to_owned));
        self.offered.extend(shown.or_else(|| labels.digests.first().cloned()));
        self.is_wanted(labels)
    }

    /// The same, and errors offer nothing.
    pub(crate) fn is_wanted(&mut self, labels: Labels<'_>) -> bool {
        let mut taken = self.is_all();
        for wanted in &mut self.wanted {
            let is_name = wanted.name.is_some() && wanted.name.as_ref() == labels.name;
            let is_text = labels.text == Some(wanted.text.as_str());
            if is_name || is_text || labels.digests.contains(&wanted.text) {
                wanted.found = true;
                taken = true;
            }
        }
        taken
    }

    /// Checks that every wanted image was there.
    pub(crate) fn check(&self) -> Result<()> {
        let Some(missing) = self.wanted.iter().find(|wanted| !wanted.found) else { return Ok(()) };
        let names: Vec<&str> = self.offered.iter().take(MAX_NAMED).map(String::as_str).collect();
        let more = if self.offered.len() > MAX_NAMED { " and others" } else { "" };
        let message = format!("it has no image {:?}, but {}{more}", missing.text, names.join(", "));
        Err(Error::new(Kind::NotFound, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_chosen_by_name_tag_and_digest() {
        let name = Reference::parse("docker.io/library/app:latest").expect("a name");
        let digests = ["sha256:11".to_owned()];
        let labels = Labels { name: Some(&name), text: Some("v1"), digests: &digests };
        for wanted in ["app", "app:latest", "docker.io/library/app", "v1", "sha256:11"] {
            let mut selection = Selection::new(&[wanted.to_owned()]);
            assert!(selection.takes(labels), "{wanted}");
            assert!(!selection.takes(Labels { text: Some("v2"), ..Labels::default() }), "{wanted}");
            selection.check().expect(wanted);
        }
        let mut selection = Selection::new(&["other".to_owned()]);
        assert!(!selection.takes(labels));
        assert!(!selection.takes(Labels::default()), "what has no name is not what has none");
        let error = selection.check().expect_err("it is not there").to_string();
        assert_eq!(error, r#"it has no image "other", but docker.io/library/app:latest"#);
        let mut all = Selection::new(&[]);
        assert!(all.takes(Labels::default()) && all.check().is_ok());
    }
}
