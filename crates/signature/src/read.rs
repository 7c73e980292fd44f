//! A policy's text: the JSON of `containers-policy.json(5)`, as in `/etc/containers/policy.json`. The parser is strict: an
//! unknown or duplicate field, or an unsupported demand, is an error that names the place in the file, because a policy of
//! which a part is skipped demands less than its author thinks. The caller supplies the keys, by path.
//!
//! Only `default` and `transports.docker` are used, because imagelet pulls and finds images by registry names only. The
//! other transports of containers/image are known by name; their content is not read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::policy::PolicyError;
use crate::policy::{Policy, Requirement, Signed, host_of_scopes};
use crate::written::RequirementText;

/// Transports of containers/image other than `docker`.
const OTHER_TRANSPORTS: [&str; 10] = [
    "atomic",
    "containers-storage",
    "dir",
    "docker-archive",
    "docker-daemon",
    "oci",
    "oci-archive",
    "ostree",
    "sif",
    "tarball",
];

/// Stands between the parts of a place within the texts of errors that pass through the JSON reader.
const MARK: char = '\u{1f}';

impl Policy {
    /// Reads a policy. `read_key` returns the contents of a key's file by its path, or the reason why it cannot.
    ///
    /// # Errors
    /// See [`PolicyError`].
    pub fn parse(text: &[u8], read_key: &mut dyn FnMut(&str) -> Result<Vec<u8>, String>) -> Result<Self, PolicyError> {
        let Top { default, docker } = serde_json::from_slice(text).map_err(|error| of_json(&error))?;
        let scopes = docker
            .into_iter()
            .map(|(scope, list)| Ok((scope.clone(), list.keyed(&format!("transports.docker.{scope:?}"), read_key)?)))
            .collect::<Result<BTreeMap<_, _>, PolicyError>>()?;
        Ok(Self { default: default.keyed("default", read_key)?, scopes })
    }
}

/// Splits an error of the JSON reader into place and message.
fn of_json(error: &serde_json::Error) -> PolicyError {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let text = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
    let (path, message) = text.rsplit_once(MARK).unwrap_or(("", text));
    let place = path.split(MARK).fold(String::new(), |place, part| {
        if place.is_empty() || part.starts_with('[') { place + part } else { format!("{place}.{part}") }
    });
    PolicyError { place, line: (line > 0).then_some((line, column)), message: message.to_owned() }
}

/// The error within a part.
fn within<E: serde::de::Error>(part: impl fmt::Display, error: E) -> E {
    let text = error.to_string();
    // The place is put in front of the deeper places, and those in front of the message.
    E::custom(format_args!("{part}{MARK}{text}"))
}

struct Top {
    default: Requirements,
    docker: BTreeMap<String, Requirements>,
}

impl<'de> Deserialize<'de> for Top {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TopVisitor;
        impl<'de> Visitor<'de> for TopVisitor {
            type Value = Top;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with default and transports")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Top, A::Error> {
                let (mut default, mut transports) = (None, None);
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "default" if default.is_none() => {
                            default = Some(map.next_value().map_err(|e| within("default", e))?);
                        }
                        "transports" if transports.is_none() => {
                            transports = Some(map.next_value().map_err(|e| within("transports", e))?);
                        }
                        "default" | "transports" => return Err(A::Error::custom(format_args!("it has {key:?} twice"))),
                        _ => {
                            return Err(A::Error::custom(format_args!(
                                "unknown field {key:?}, there are \"default\" and \"transports\""
                            )));
                        }
                    }
                }
                let default = default.ok_or_else(|| A::Error::custom("it has no \"default\""))?;
                let Transports(docker) = transports.unwrap_or_default();
                Ok(Top { default, docker })
            }
        }
        deserializer.deserialize_map(TopVisitor)
    }
}

/// The scopes of `docker`.
#[derive(Default)]
struct Transports(BTreeMap<String, Requirements>);

impl<'de> Deserialize<'de> for Transports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TransportsVisitor;
        impl<'de> Visitor<'de> for TransportsVisitor {
            type Value = Transports;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a key for each transport")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Transports, A::Error> {
                let (mut docker, mut seen) = (None, Vec::new());
                while let Some(key) = map.next_key::<String>()? {
                    if seen.contains(&key) {
                        return Err(A::Error::custom(format_args!("it has {key:?} twice")));
                    }
                    if key == "docker" {
                        docker = Some(map.next_value().map_err(|e| within("docker", e))?);
                    } else if OTHER_TRANSPORTS.contains(&key.as_str()) {
                        map.next_value::<IgnoredAny>().map_err(|e| within(&key, e))?;
                    } else {
                        return Err(A::Error::custom(format_args!("unknown transport {key:?}")));
                    }
                    seen.push(key);
                }
                let Scopes(docker) = docker.unwrap_or_default();
                Ok(Transports(docker))
            }
        }
        deserializer.deserialize_map(TransportsVisitor)
    }
}

#[derive(Default)]
struct Scopes(BTreeMap<String, Requirements>);

impl<'de> Deserialize<'de> for Scopes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ScopesVisitor;
        impl<'de> Visitor<'de> for ScopesVisitor {
            type Value = Scopes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a key for each scope")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scopes, A::Error> {
                let (mut scopes, mut written) = (BTreeMap::new(), BTreeSet::new());
                while let Some(scope) = map.next_key::<String>()? {
                    let part = format!("{scope:?}");
                    if !written.insert(scope.clone()) {
                        return Err(A::Error::custom(format_args!("it has {part} twice")));
                    }
                    let normal = normal_scope(&scope).map_err(|why| within(&part, A::Error::custom(why)))?;
                    if scopes.contains_key(&normal) {
                        return Err(A::Error::custom(format_args!("it has {normal:?} twice, once written {part}")));
                    }
                    let list = map.next_value().map_err(|e| within(&part, e))?;
                    scopes.insert(normal, list);
                }
                Ok(Scopes(scopes))
            }
        }
        deserializer.deserialize_map(ScopesVisitor)
    }
}

/// Returns the scope with its host in the form by which scopes are found.
fn normal_scope(scope: &str) -> Result<String, String> {
    check_scope(scope)?;
    if scope.is_empty() || scope.starts_with('*') {
        return Ok(scope.to_ascii_lowercase());
    }
    let (host, below) = scope.split_at(scope.find('/').unwrap_or(scope.len()));
    let normal = oci::normal_host(host).map_err(|why| format!("host {host:?}: {why}"))?;
    Ok(format!("{}{below}", host_of_scopes(&normal)))
}

/// Refuses scopes that contain no image: they are mistakes.
fn check_scope(scope: &str) -> Result<(), &'static str> {
    let domain = scope.split('/').next().unwrap_or_default();
    if scope.contains("://") {
        Err("a scope has no scheme in front")
    } else if scope.ends_with('/') || scope.starts_with('/') || scope.contains("//") {
        Err("a scope neither begins nor ends with a slash, nor has two of them together")
    } else if scope.contains(|c: char| c.is_whitespace() || c.is_control()) {
        Err("a scope has no blanks")
    } else if scope.contains('*') && (scope.matches('*').count() > 1 || !scope.starts_with("*.") || scope != domain) {
        Err("a wildcard stands at the beginning of a domain, as in \"*.example.com\"")
    } else if scope.starts_with("*.") && domain.contains(':') {
        Err("a wildcard has no port: it is for all of them")
    } else {
        Ok(())
    }
}

#[derive(Default)]
struct Requirements(Vec<RequirementText>);

impl<'de> Deserialize<'de> for Requirements {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RequirementsVisitor;
        impl<'de> Visitor<'de> for RequirementsVisitor {
            type Value = Requirements;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of requirements")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Requirements, A::Error> {
                let mut requirements = Vec::new();
                while let Some(next) = {
                    let at = requirements.len();
                    list.next_element().map_err(|e| within(format_args!("[{at}]"), e))?
                } {
                    requirements.push(next);
                }
                if requirements.is_empty() {
                    return Err(A::Error::custom("the list has no requirement; to accept everything, say so"));
                }
                Ok(Requirements(requirements))
            }
        }
        deserializer.deserialize_seq(RequirementsVisitor)
    }
}

impl Requirements {
    /// The demands with their keys.
    fn keyed(
        self,
        place: &str,
        read_key: &mut dyn FnMut(&str) -> Result<Vec<u8>, String>,
    ) -> Result<Arc<[Requirement]>, PolicyError> {
        let mut requirements = Vec::with_capacity(self.0.len());
        for (at, written) in self.0.into_iter().enumerate() {
            requirements.push(match written {
                RequirementText::Accept => Requirement::Accept,
                RequirementText::Reject => Requirement::Reject,
                RequirementText::Signed { keys, identity } => {
                    let keys = keys.into_iter().map(|source| source.key(place, at, read_key));
                    Requirement::Signed(Signed { keys: keys.collect::<Result<_, _>>()?, identity })
                }
            });
        }
        Ok(requirements.into())
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
