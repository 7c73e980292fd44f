//! [`KeepRule`] and [`Pins`]: images that the administrator of the node keeps. Patterns match names and ids; pure.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use cri_api::Image;
use serde::{Deserialize, Serialize};

use super::name_glob::NameGlob;

/// The images that a rule or a pin is for.
///
/// By name: `registry.example/team/*` one level, `registry.example/**` everything below; without a tag every tag; `*` within
/// a part fits any text of that part. An image id, or the beginning of one with at least 12 digits, fits that image. By the
/// namespace of the pod that used it last: `namespace=NAME`, with `*` as in names. Names of images contain no `=`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern {
    text: String,
    subject: PatternSubject,
}

/// Subject of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum PatternSubject {
    /// Names, in normal form: `docker.io/library/busybox:*`; and ids. A host in any spelling is the same host.
    Name(NameGlob),
    Namespace(NameGlob),
    /// A label, in pins of an earlier version. Fits no image.
    Label,
}

/// The reason why a text is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("image pattern {text:?}: {problem}")]
pub struct PatternError {
    text: String,
    problem: String,
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// Empty, with white space in it, or with a host that has no normal form.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let wrong = |problem: &str| Err(PatternError { text: text.to_owned(), problem: problem.to_owned() });
        if text.is_empty() {
            return wrong("it is empty");
        }
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return wrong("there is white space in it");
        }
        let subject = match text.split_once('=') {
            None => normal(text).and_then(|normal| NameGlob::of_names(&normal)).map(PatternSubject::Name),
            Some(("namespace", name)) if !name.is_empty() => NameGlob::new(name).map(PatternSubject::Namespace),
            Some((key, _)) if is_label(key) => return wrong("rules by label were removed: name the images"),
            Some(_) => return wrong("only namespace may be before the ="),
        };
        subject.map(|subject| Self { text: text.to_owned(), subject }).or_else(|problem| wrong(&problem))
    }

    /// Returns the pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns true if the id or a name of a listed image matches.
    #[must_use]
    pub fn matches(&self, image: &Image) -> bool {
        self.fits(image, "")
    }

    /// Returns true if an image with this last user (`namespace/pod/container`, empty if it is not known) matches.
    #[must_use]
    pub fn fits(&self, image: &Image, last_user: &str) -> bool {
        self.fits_names(&image.id, &normal_names(image), last_user)
    }

    /// Returns true if an image with this ID, these names in normal form, and this last user matches.
    fn fits_names(&self, id: &str, names: &[Cow<'_, str>], last_user: &str) -> bool {
        match &self.subject {
            PatternSubject::Name(glob) => self.is_id(id) || names.iter().any(|name| glob.matches(name)),
            PatternSubject::Label => false,
            PatternSubject::Namespace(name) => {
                let namespace = last_user.split_once('/').map(|(namespace, _)| namespace);
                namespace.is_some_and(|namespace| name.matches(namespace))
            }
        }
    }

    /// Returns true for a stored pin of a kind that is not supported any more.
    pub(super) fn is_obsolete(&self) -> bool {
        self.subject == PatternSubject::Label
    }

    fn is_id(&self, id: &str) -> bool {
        let hex = id.strip_prefix("sha256:").unwrap_or(id);
        let text = self.text.strip_prefix("sha256:").unwrap_or(&self.text);
        text.len() >= 12 && text.bytes().all(|b| b.is_ascii_hexdigit()) && hex.starts_with(text)
    }
}

fn is_label(key: &str) -> bool {
    key.strip_prefix("label.").is_some_and(|key| !key.is_empty())
}

/// Returns the names of an image with hosts in normal form.
fn normal_names(image: &Image) -> Vec<Cow<'_, str>> {
    image.repo_tags.iter().chain(&image.repo_digests).map(|name| normal_name(name)).collect()
}

/// Returns a name with its host in normal form. A runtime may list a name as it was asked for.
fn normal_name(name: &str) -> Cow<'_, str> {
    let (host, below) = name.split_at(name.find('/').unwrap_or(0));
    match oci::normal_host(host) {
        Ok(spelled) if spelled != host && !below.is_empty() => Cow::Owned(format!("{spelled}{below}")),
        _ => Cow::Borrowed(name),
    }
}

impl TryFrom<String> for Pattern {
    type Error = PatternError;

    /// Reads a stored pin. One by a label, or one whose host has no normal form, fits no image, and is no reason to lose the others.
    fn try_from(text: String) -> Result<Self, PatternError> {
        Self::parse(&text).or_else(|error| match (text.split_once('='), normal(&text), NameGlob::of_names(&text)) {
            (Some((key, _)), ..) if is_label(key) => Ok(Self { subject: PatternSubject::Label, text }),
            (None, Err(_), Ok(glob)) => Ok(Self { subject: PatternSubject::Name(glob), text }),
            _ => Err(error),
        })
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.text
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({:?})", self.text)
    }
}

/// Returns the pattern in the form in which names are recorded: with a registry whose host is in the normal form, and with any tag
/// if it has none.
fn normal(text: &str) -> Result<String, String> {
    let (first, rest) = text.split_once('/').unwrap_or(("", text));
    let is_domain = first.contains(['.', ':', '*']) || first == "localhost" || first.chars().any(char::is_uppercase);
    let named = match (first, is_domain) {
        ("", _) => format!("docker.io/library/{text}"),
        (_, false) => format!("docker.io/{text}"),
        (_, true) => match normal_host(first)?.as_str() {
            "index.docker.io" => format!("docker.io/{rest}"),
            host => format!("{host}/{rest}"),
        },
    };
    let last = named.rsplit('/').next().unwrap_or_default();
    Ok(if last.contains([':', '@']) || last == "**" { named } else { named + ":*" })
}

/// Returns the normal form of a host that may contain stars.
fn normal_host(host: &str) -> Result<String, String> {
    let failed = |why: oci::HostError| format!("host {host:?}: {why}");
    if !host.contains('*') {
        return oci::normal_host(host).map(Cow::into_owned).map_err(failed);
    }
    let lower = host.to_ascii_lowercase();
    let Some((name, port)) = lower.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())) else {
        return Ok(lower);
    };
    match oci::normal_port(port).map_err(failed)? {
        "443" if name.contains('.') => Ok(name.to_owned()),
        "443" => Err(format!("host {host:?}: port 443 is left out of names, and so it is here")),
        port => Ok(format!("{name}:{port}")),
    }
}

/// A rule of the configuration about images that collection considers.
#[derive(Clone, Debug, PartialEq)]
pub struct KeepRule {
    /// The images.
    pub pattern: Pattern,
    /// Effect of the rule.
    pub effect: RuleEffect,
}

/// Effect of a rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RuleEffect {
    /// The images are kept.
    Keep,
    /// The cost of losing the images is multiplied by this factor.
    Weigh(f64),
}

/// Owner of pins. The pins of each are in a file of their own, so that neither loses those of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PinOwner {
    /// The administrator of the node.
    Administrator,
    /// The image sets of a cluster.
    ImageSets,
}

/// Patterns of the images that are pinned in imagelet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pins(BTreeSet<Pattern>);

impl Pins {
    /// Adds a pin. Returns true if it is new.
    pub fn pin(&mut self, pattern: Pattern) -> bool {
        self.0.insert(pattern)
    }

    /// Removes a pin. Returns true if there was one.
    pub fn unpin(&mut self, pattern: &Pattern) -> bool {
        self.0.remove(pattern)
    }

    /// Returns these pins together with others.
    #[must_use]
    pub fn with(&self, others: &Self) -> Self {
        Self(self.0.union(&others.0).cloned().collect())
    }

    /// Returns the pins, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Pattern> {
        self.0.iter()
    }

    /// Returns the pin that matches a listed image.
    #[must_use]
    pub fn holds(&self, image: &Image) -> Option<&Pattern> {
        self.hold(image, "")
    }

    /// Returns the pin that matches an image with this last user.
    #[must_use]
    pub fn hold(&self, image: &Image, last_user: &str) -> Option<&Pattern> {
        let names = normal_names(image);
        self.0.iter().find(|pattern| pattern.fits_names(&image.id, &names, last_user))
    }
}

impl FromIterator<Pattern> for Pins {
    fn from_iter<I: IntoIterator<Item = Pattern>>(patterns: I) -> Self {
        Self(patterns.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use cri_api::ImageSpec;

    use super::*;

    #[test]
    fn patterns() {
        let digest = format!("sha256:{}", "d".repeat(64));
        let id = format!("sha256:{}", "0123456789ab".repeat(6).split_at(64).0);
        let image = Image {
            id,
            repo_tags: vec!["docker.io/library/busybox:1.37".into(), "r.example:5000/team/web/app:v2".into()],
            repo_digests: vec![format!("ghcr.io/o/tool@{digest}")],
            ..Image::default()
        };
        let cases = [
            ("busybox", true),
            ("busybox:1.37", true),
            ("busybox:1.*", true),
            ("busybox:2", false),
            ("library/busybox", true),
            ("docker.io/library/*", true),
            ("docker.io/*", false),
            ("docker.io/**", true),
            ("r.example:5000/team/*", false),
            ("r.example:5000/team/*/*", true),
            ("r.example:5000/team/**", true),
            ("r.example:5000/**/app:v2", true),
            ("r.example:5000/**/app:v1", false),
            ("r.example:*/team/web/app", true),
            ("*/o/tool", true),
            ("ghcr.io/o/tool", true),
            ("ghcr.io/o/tool:v1", false),
            ("ghcr.io/o/too", false),
            (&format!("ghcr.io/o/tool@{digest}"), true),
            ("0123456789ab", true),
            ("sha256:0123456789ab", true),
            ("01234567", false),
            ("0123456789ac", false),
            ("**", true),
        ];
        for (text, want) in cases {
            assert_eq!(Pattern::parse(text).expect("a pattern").matches(&image), want, "{text}");
        }
        for text in ["", "a b", "a\n", "team=web", "label.=x", "label.team=web", "namespace="] {
            let error = Pattern::parse(text).expect_err("refused").to_string();
            assert!(error.starts_with(&format!("image pattern {text:?}: ")), "{error}");
        }
    }

    #[test]
    fn a_host_is_the_same_in_every_spelling() {
        let hosts: [&[&str]; 5] = [
            &["localhost:5999", "LOCALHOST:5999", "LocalHost:05999"],
            &["127.0.0.1:5999", "127.0.0.1:05999"],
            &["docker.io", "Docker.io", "docker.io:443", "Index.docker.io:0443"],
            &["a.r.example", "A.R.Example", "a.r.example:443"],
            &["[::1]:5999", "[0:0::1]:05999"],
        ];
        for spellings in hosts {
            for pattern in spellings {
                let rule = Pattern::parse(&format!("{pattern}/team/*")).expect("a pattern");
                assert_eq!(rule.as_str(), format!("{pattern}/team/*"), "as it was written");
                for host in spellings {
                    // Images of a runtime that leaves names as they were written, too.
                    let image = Image { repo_tags: vec![format!("{host}/team/app:1")], ..Image::default() };
                    assert!(
                        rule.matches(&image) || host.to_ascii_lowercase().starts_with("index."),
                        "{host} by {rule}"
                    );
                }
            }
        }
        let image = Image { repo_tags: vec!["a.r.example/team/app:1".into()], ..Image::default() };
        for text in ["*.R.Example/team/*", "*.r.example:443/team/app", "*/team/*"] {
            assert!(Pattern::parse(text).expect("a pattern").matches(&image), "{text}");
        }
        for text in [
            "127.1/x",
            "127.1:5999/**",
            "2130706433:1/x",
            "0177.0.0.1/x",
            "r.example:0/x",
            "*.example:70000/x",
            "*:443/x",
        ] {
            let error = Pattern::parse(text).expect_err("refused").to_string();
            assert!(error.starts_with(&format!("image pattern {text:?}: host ")), "{error}");
        }
        let stored: Pins = serde_json::from_str(r#"["127.1/x","busybox"]"#).expect("pins of an earlier version");
        assert_eq!(stored.iter().map(Pattern::as_str).collect::<Vec<_>>(), ["127.1/x", "busybox"]);
    }

    #[test]
    fn namespaces() {
        for (text, want) in [("namespace=kube-system", true), ("namespace=kube-*", true), ("namespace=kube", false)] {
            let pattern = Pattern::parse(text).expect("a pattern");
            assert_eq!(pattern.fits(&Image::default(), "kube-system/coredns-0/coredns"), want, "{text}");
            assert!(!pattern.matches(&Image::default()), "{text}: no user is known");
        }
        // A container without a pod has no namespace.
        assert!(!Pattern::parse("namespace=*").expect("a pattern").fits(&Image::default(), "container 1234"));
    }

    #[test]
    fn stored_pins_by_label_fit_nothing_and_keep_the_others() {
        let text = r#"["busybox","label.team=pay*"]"#;
        let pins: Pins = serde_json::from_str(text).expect("pins of an earlier version");
        let annotations = [("team".to_owned(), "payments".to_owned())].into();
        let image = Image { spec: Some(ImageSpec { annotations, ..ImageSpec::default() }), ..Image::default() };
        assert_eq!(pins.holds(&image), None);
        let obsolete = pins.iter().filter(|pattern| pattern.is_obsolete()).map(Pattern::as_str);
        assert_eq!(obsolete.collect::<Vec<_>>(), ["label.team=pay*"]);
        let named = Image { repo_tags: vec!["docker.io/library/busybox:1".into()], ..Image::default() };
        assert!(pins.holds(&named).is_some());
        assert_eq!(serde_json::to_string(&pins).expect("plain data"), text, "it can still be removed by its text");
    }

    #[test]
    fn pins_are_kept_as_they_were_written() {
        let mut pins = Pins::default();
        assert!(pins.pin(Pattern::parse("busybox").expect("a pattern")));
        assert!(!pins.pin(Pattern::parse("busybox").expect("a pattern")));
        let text = serde_json::to_string(&pins).expect("plain data");
        assert_eq!(text, "[\"busybox\"]");
        assert_eq!(serde_json::from_str::<Pins>(&text).expect("its own text"), pins);
        assert!(serde_json::from_str::<Pins>("[\"\"]").is_err());
        assert!(pins.unpin(&Pattern::parse("busybox").expect("a pattern")));
        assert_eq!(pins.iter().count(), 0);
    }
}
