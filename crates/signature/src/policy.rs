//! [`Policy`]: the demands on images. A policy is a map from scopes to demands; the longest scope that contains an
//! image's name decides alone: demands of a shorter one are not added. [`crate::read`] parses a policy,
//! [`crate::check`] verifies that a demand is met.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use oci::Reference;

use crate::identity::Identity;
use crate::key::PublicKey;

/// The content of a policy's file, with the keys that it names.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(crate) default: Arc<[Requirement]>,
    /// By scope: a reference, a repository, a namespace, a host, `*.` and a domain, or nothing for all images.
    pub(crate) scopes: BTreeMap<String, Arc<[Requirement]>>,
}

/// A demand. All of a scope's must be met.
#[derive(Clone, Debug)]
pub(crate) enum Requirement {
    Accept,
    Reject,
    Signed(Signed),
}

/// A signature by one of these keys.
#[derive(Clone, Debug)]
pub(crate) struct Signed {
    pub(crate) keys: Vec<NamedKey>,
    pub(crate) identity: Identity,
}

/// A key, and how the policy names it.
#[derive(Clone, Debug)]
pub(crate) struct NamedKey {
    pub(crate) name: String,
    pub(crate) key: PublicKey,
}

/// The demands on one image, and the scope that has them.
#[derive(Clone, Debug)]
pub struct Rule {
    scope: Scope,
    pub(crate) requirements: Arc<[Requirement]>,
}

/// Which entry of a policy decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The entry of `transports.docker` with this key.
    Docker(String),
    /// `default`.
    Default,
}

/// The consequence of a rule for an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// The image is accepted.
    Nothing,
    /// The image is refused, whatever signatures it has.
    Refused,
    /// The image must have signatures.
    Signatures,
}

impl Policy {
    /// Returns the rule for an image by its name. The name must be in its normal form and have a tag or a digest.
    #[must_use]
    pub fn rule(&self, image: &Reference) -> Rule {
        for scope in scopes_of(image) {
            if let Some(requirements) = self.scopes.get(&scope) {
                return Rule { scope: Scope::Docker(scope), requirements: Arc::clone(requirements) };
            }
        }
        self.unnamed()
    }

    /// Returns the rule for an image that has no name, as one from an archive may.
    #[must_use]
    pub fn unnamed(&self) -> Rule {
        match self.scopes.get("") {
            Some(all) => Rule { scope: Scope::Docker(String::new()), requirements: Arc::clone(all) },
            None => Rule { scope: Scope::Default, requirements: Arc::clone(&self.default) },
        }
    }
}

impl Rule {
    /// Which entry of the policy it is.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Returns the consequence of the rule.
    #[must_use]
    pub fn demand(&self) -> Demand {
        if self.requirements.iter().any(|requirement| matches!(requirement, Requirement::Reject)) {
            Demand::Refused
        } else if self.requirements.iter().any(|requirement| matches!(requirement, Requirement::Signed(_))) {
            Demand::Signatures
        } else {
            Demand::Nothing
        }
    }

    /// The keys of which a signature is demanded, in words: `key /a.pub`, `key /a.pub or /b.pub, and key /c.pub`.
    #[must_use]
    pub fn keys(&self) -> String {
        let mut words = String::new();
        for signed in self.signed() {
            if !words.is_empty() {
                words.push_str(", and ");
            }
            let names: Vec<&str> = signed.keys.iter().map(|key| key.name.as_str()).collect();
            words.push_str(&format!("key {}", names.join(" or ")));
        }
        words
    }

    pub(crate) fn signed(&self) -> impl Iterator<Item = &Signed> {
        self.requirements.iter().filter_map(|requirement| match requirement {
            Requirement::Signed(signed) => Some(signed),
            Requirement::Accept | Requirement::Reject => None,
        })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Docker(scope) => write!(f, "scope {scope:?}"),
            Self::Default => f.write_str("its default"),
        }
    }
}

/// Returns the host by which scopes are found, for a host in its normal form. `localhost` is tried on port 443 and then on port 80, so
/// a rule for one of the three applies to all: otherwise another name of the same registry would evade a demand.
pub(crate) fn host_of_scopes(host: &str) -> &str {
    let bare = host.strip_suffix(":443").or_else(|| host.strip_suffix(":80"));
    match bare.filter(|_| oci::is_loopback_host(host)) {
        Some(bare) => bare,
        None if host == "index.docker.io" => "docker.io",
        None => host,
    }
}

/// Returns the scopes that contain a name, the narrowest first: the reference, the repository, the namespaces above it, the
/// host with its port, domains above the host, everything.
fn scopes_of(image: &Reference) -> Vec<String> {
    let host = host_of_scopes(image.domain());
    let below = |name: String| format!("{host}{}", &name[image.domain().len()..]);
    let mut scopes = vec![below(image.to_string())];
    let mut rest = below(image.repository());
    while let Some((above, _)) = rest.rsplit_once('/') {
        let above = above.to_owned();
        scopes.push(std::mem::replace(&mut rest, above));
    }
    let host = rest.split(':').next().unwrap_or_default().to_owned();
    scopes.push(rest);
    let mut domain = host.as_str();
    while let Some((_, above)) = domain.split_once('.') {
        scopes.push(format!("*.{above}"));
        domain = above;
    }
    scopes.push(String::new());
    scopes
}

/// A fault of a policy, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{message}", place_text(.place), line_text(.line))]
pub struct PolicyError {
    /// The part of it, as `transports.docker."r.example"[0].keyPath`; empty where it is the whole.
    pub place: String,
    /// Line and column, where they are known.
    pub line: Option<(usize, usize)>,
    /// The fault, as a text.
    pub message: String,
}

fn place_text(place: &str) -> String {
    if place.is_empty() { String::new() } else { format!("{place}: ") }
}

fn line_text(line: &Option<(usize, usize)>) -> String {
    line.map(|(line, column)| format!("line {line}, column {column}: ")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_matching_scope_decides() {
        let accept: Arc<[Requirement]> = [Requirement::Accept].into();
        let reject: Arc<[Requirement]> = [Requirement::Reject].into();
        let policy = |scopes: &[&str]| {
            let scopes = scopes.iter().map(|scope| ((*scope).to_owned(), Arc::clone(&accept))).collect();
            Policy { default: Arc::clone(&reject), scopes }
        };
        let all = [
            "r.b.example:5000/team/app:1",
            "r.b.example:5000/team/app",
            "r.b.example:5000/team",
            "r.b.example:5000",
            "*.b.example",
            "*.example",
            "",
        ];
        let image = Reference::parse("r.b.example:5000/team/app:1").expect("a reference");
        for from in 0..all.len() {
            let rule = policy(&all[from..]).rule(&image);
            assert_eq!((rule.scope(), rule.demand()), (&Scope::Docker(all[from].into()), Demand::Nothing));
        }
        let strangers = [
            "r.b.example:5000/team/app:2",
            "r.b.example:5000/team/ap",
            "r.b.example:5000/tea",
            "r.b.example",
            "b.example",
            "*.r.b.example",
            "*.xample",
        ];
        let rule = policy(&strangers).rule(&image);
        assert_eq!((rule.scope(), rule.demand()), (&Scope::Default, Demand::Refused));
        let short = Reference::parse("busybox:1").expect("a reference");
        assert_eq!(*policy(&["docker.io/library"]).rule(&short).scope(), Scope::Docker("docker.io/library".into()));
        assert_eq!(*policy(&["", "docker.io"]).unnamed().scope(), Scope::Docker(String::new()));
        assert_eq!(*policy(&["docker.io"]).unnamed().scope(), Scope::Default);
    }

    #[test]
    fn loopback_host_without_port_covers_all_ports() {
        for (host, want) in [
            ("localhost", "localhost"),
            ("localhost:443", "localhost"),
            ("localhost:80", "localhost"),
            ("[::1]:443", "[::1]"),
            ("127.0.0.1:80", "127.0.0.1"),
            ("localhost:5000", "localhost:5000"),
            ("localhost:8080", "localhost:8080"),
            ("r.example:80", "r.example:80"),
            ("url:443", "url:443"),
        ] {
            assert_eq!(host_of_scopes(host), want);
        }
    }
}
