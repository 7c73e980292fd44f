//! [`DockerConfig`]: the three spellings of docker's configuration, read as the kubelet reads them: `config.json`, a
//! secret's `.dockerconfigjson` (the same), and `.dockercfg` (only the credentials).
//!
//! Beyond the kubelet it reads `identitytoken` and `registrytoken` of an entry, and `credHelpers` and `credsStore`. Errors
//! name a place, never its content. Pull secrets and node files are read with it.

use std::collections::HashMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use oci::{RegistryAuth, Secret};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::{Candidate, Source, hash};

/// Why a docker configuration cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DockerConfigError {
    /// Not JSON, or a value of the wrong type. The words before the colon are the kubelet's.
    #[error("error occurred while trying to unmarshal json: {problem} in line {line}, column {column}")]
    Json {
        /// Category of the error.
        problem: &'static str,
        /// Line, from 1.
        line: usize,
        /// Column, from 1; 0 where the parser does not know.
        column: usize,
    },
    /// An entry's `auth` is not base64.
    #[error("illegal base64 data in the auth field of entry {entry}")]
    Base64 {
        /// Which entry, from 1.
        entry: usize,
    },
    /// An entry's `auth` has no colon. The words before "of" are the kubelet's.
    #[error("unable to parse auth field, must be formatted as base64(username:password) (entry {entry})")]
    Auth {
        /// Which entry, from 1.
        entry: usize,
    },
}

/// A docker configuration.
#[derive(Default)]
pub(crate) struct DockerConfig {
    /// Location and credential, in the order of the text.
    pub(crate) auths: Vec<(String, Entry)>,
    /// Location and helper.
    pub(crate) helpers: Vec<(String, String)>,
    /// The helper of all other locations.
    pub(crate) store: Option<String>,
}

/// A credential with its hash.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) auth: RegistryAuth,
    pub(crate) hash: String,
}

impl Entry {
    pub(crate) fn candidate(&self, source: Source) -> Candidate {
        Candidate { auth: self.auth.clone(), source, hash: self.hash.clone() }
    }
}

impl DockerConfig {
    /// Reads `config.json` or `.dockerconfigjson`.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, DockerConfigError> {
        let mut raw: RawConfig = json(text)?;
        let store = std::mem::take(&mut raw.store).filter(|store| !store.is_empty());
        Ok(Self { auths: entries(raw.auths)?, helpers: raw.helpers, store })
    }

    /// Reads `.dockercfg`.
    pub(crate) fn parse_legacy(text: &[u8]) -> Result<Self, DockerConfigError> {
        let raw: Option<OrderedMap<Option<RawEntry>>> = json(text)?;
        Ok(Self { auths: entries(raw.unwrap_or_default().0)?, ..Self::default() })
    }
}

fn json<'de, T: Deserialize<'de>>(text: &'de [u8]) -> Result<T, DockerConfigError> {
    serde_json::from_slice(text).map_err(|error| DockerConfigError::Json {
        // Not the error's own text, which quotes values.
        problem: match error.classify() {
            serde_json::error::Category::Data => "a value of the wrong type",
            serde_json::error::Category::Eof => "an unexpected end",
            serde_json::error::Category::Syntax | serde_json::error::Category::Io => "no valid JSON",
        },
        line: error.line(),
        column: error.column(),
    })
}

fn entries(raw: Vec<(String, Option<RawEntry>)>) -> Result<Vec<(String, Entry)>, DockerConfigError> {
    let entry = |(at, (location, raw)): (usize, (String, Option<RawEntry>))| {
        Ok((location, raw.unwrap_or_default().into_entry(at + 1)?))
    };
    raw.into_iter().enumerate().map(entry).collect()
}

impl RawEntry {
    fn into_entry(self, entry: usize) -> Result<Entry, DockerConfigError> {
        let (mut username, password) = match self.auth.is_empty() {
            true => (self.username, self.password),
            false => decode_auth(self.auth.expose(), entry)?,
        };
        if !self.identity_token.is_empty() && password.is_empty() {
            // `docker login` writes a placeholder next to an identity token, and other clients would try it as a user.
            username.clear();
        }
        let (identity_token, registry_token) = (self.identity_token, self.registry_token);
        let auth = RegistryAuth { username, password, identity_token, registry_token, ..RegistryAuth::default() };
        let hash = hash::with_email(&auth, &self.email);
        Ok(Entry { auth, hash })
    }
}

/// Base64 with or without padding and with line breaks anywhere, as Go reads it, of `user:password`; a password may have
/// colons.
fn decode_auth(field: &str, entry: usize) -> Result<(String, Secret), DockerConfigError> {
    let padded = field.trim().ends_with('=');
    let padding = if padded { DecodePaddingMode::RequireCanonical } else { DecodePaddingMode::RequireNone };
    let config = GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true).with_decode_padding_mode(padding);
    let engine = GeneralPurpose::new(&base64::alphabet::STANDARD, config);
    let mut text = zeroize::Zeroizing::new(String::with_capacity(field.len()));
    text.extend(field.chars().filter(|c| !matches!(c, '\r' | '\n')));
    let decoded = engine.decode(text.as_bytes()).map_err(|_| DockerConfigError::Base64 { entry })?;
    let decoded = String::from_utf8(decoded).map(Secret::new).map_err(|error| {
        drop(zeroize::Zeroizing::new(error.into_bytes()));
        DockerConfigError::Auth { entry }
    })?;
    let (username, password) = decoded.expose().split_once(':').ok_or(DockerConfigError::Auth { entry })?;
    Ok((username.to_owned(), Secret::new(password)))
}

#[derive(Default)]
struct RawConfig {
    auths: Vec<(String, Option<RawEntry>)>,
    helpers: Vec<(String, String)>,
    store: Option<String>,
}

#[derive(Default)]
struct RawEntry {
    username: String,
    password: Secret,
    auth: Secret,
    email: String,
    identity_token: Secret,
    registry_token: Secret,
}

/// Reads an object field by field. As in Go, names fit in any case, `null` changes nothing, and the last of several wins.
trait JsonFields: Default {
    const WHAT: &'static str;

    fn field<'de, M: MapAccess<'de>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error>;
}

struct FieldsVisitor<T>(std::marker::PhantomData<T>);

impl<'de, T: JsonFields> Visitor<'de> for FieldsVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::WHAT)
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<T, M::Error> {
        let mut value = T::default();
        while let Some(mut name) = map.next_key::<String>()? {
            name.make_ascii_lowercase();
            value.field(&name, &mut map)?;
        }
        Ok(value)
    }
}

impl JsonFields for RawConfig {
    const WHAT: &'static str = "a docker configuration";

    fn field<'de, M: MapAccess<'de>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "auths" => self.auths = map.next_value::<Option<OrderedMap<_>>>()?.unwrap_or_default().0,
            "credhelpers" => {
                let helpers = map.next_value::<Option<OrderedMap<Option<String>>>>()?.unwrap_or_default().0;
                self.helpers =
                    helpers.into_iter().map(|(location, helper)| (location, helper.unwrap_or_default())).collect();
            }
            "credsstore" => self.store = map.next_value()?,
            _ => {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

impl JsonFields for RawEntry {
    const WHAT: &'static str = "an entry of a docker configuration";

    fn field<'de, M: MapAccess<'de>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        let secret = |map: &mut M| Ok(map.next_value::<Option<String>>()?.map(Secret::new).unwrap_or_default());
        match name {
            "username" => self.username = map.next_value::<Option<String>>()?.unwrap_or_default(),
            "email" => self.email = map.next_value::<Option<String>>()?.unwrap_or_default(),
            "password" => self.password = secret(map)?,
            "auth" => self.auth = secret(map)?,
            "identitytoken" => self.identity_token = secret(map)?,
            "registrytoken" => self.registry_token = secret(map)?,
            _ => {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for RawConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FieldsVisitor(std::marker::PhantomData))
    }
}

impl<'de> Deserialize<'de> for RawEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FieldsVisitor(std::marker::PhantomData))
    }
}

/// An object in the order of its text; the last value of a repeated name, at the first one's place.
struct OrderedMap<T>(Vec<(String, T)>);

impl<T> Default for OrderedMap<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrderedMap<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OrderedVisitor<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for OrderedVisitor<T> {
            type Value = OrderedMap<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut values: Vec<(String, T)> = Vec::new();
                let mut places: HashMap<String, usize> = HashMap::new();
                while let Some((name, value)) = map.next_entry::<String, T>()? {
                    match places.get(&name) {
                        Some(at) => values[*at].1 = value,
                        None => {
                            places.insert(name.clone(), values.len());
                            values.push((name, value));
                        }
                    }
                }
                Ok(OrderedMap(values))
            }
        }

        deserializer.deserialize_map(OrderedVisitor(std::marker::PhantomData))
    }
}

#[cfg(test)]
#[path = "docker_config_tests.rs"]
mod tests;
