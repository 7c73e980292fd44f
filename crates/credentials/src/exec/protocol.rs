//! The kubelet's credential provider protocol: [`request`] is what a provider reads, [`response`] reads what it printed.
//! Pure. No error of this file quotes what a provider printed: it may be a secret.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use oci::Secret;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{SerializeStruct as _, Serializer as _};
use zeroize::Zeroizing;

use base::GoDuration;

const GROUP: &str = "credentialprovider.kubelet.k8s.io/";
const KIND: &str = "CredentialProviderResponse";

/// Request to a provider.
pub(super) struct Request<'a> {
    pub(super) image: &'a str,
    pub(super) token: &'a Secret,
    pub(super) annotations: &'a BTreeMap<String, String>,
}

/// The request in one line of JSON, with the newline.
pub(super) fn request(request: &Request<'_>, api_version: &str) -> Zeroizing<Vec<u8>> {
    // The token is written once and wiped afterwards: there is room for everything from the start.
    let annotations: usize = request.annotations.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
    let room = 6 * (request.image.len() + request.token.expose().len() + annotations) + 512;
    let mut line = Zeroizing::new(Vec::with_capacity(room));
    write(&mut serde_json::Serializer::new(&mut *line), request, api_version)
        .expect("texts can be written as JSON into memory");
    line.push(b'\n');
    line
}

fn write(
    to: &mut serde_json::Serializer<&mut Vec<u8>>,
    request: &Request<'_>,
    api_version: &str,
) -> Result<(), serde_json::Error> {
    let mut fields = to.serialize_struct("CredentialProviderRequest", 5)?;
    fields.serialize_field("kind", "CredentialProviderRequest")?;
    fields.serialize_field("apiVersion", api_version)?;
    fields.serialize_field("image", request.image)?;
    if !request.token.is_empty() {
        fields.serialize_field("serviceAccountToken", request.token.expose())?;
    }
    if !request.annotations.is_empty() {
        fields.serialize_field("serviceAccountAnnotations", request.annotations)?;
    }
    fields.end()
}

/// For what an answer may be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CacheKeyType {
    Image,
    Registry,
    Global,
}

/// Response of a provider.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Response {
    /// `None` when it is none of the three.
    pub(super) cache_key_type: Option<CacheKeyType>,
    /// `None` if the response has none.
    pub(super) cache_duration: Option<GoDuration>,
    /// User name and password by pattern of images, sorted.
    pub(super) auth: BTreeMap<String, (String, Secret)>,
}

/// Why an answer is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ResponseError {
    #[error("error reading GVK from response: it is not a JSON object with kind and apiVersion")]
    NotAnObject,
    #[error(
        "apiVersion from credential plugin response did not match expected apiVersion:{expected}, \
         actual apiVersion:{actual}"
    )]
    Version { expected: String, actual: String },
    #[error("error decoding credential provider plugin response from stdout")]
    Decode,
}

/// Reads an answer. As strict as the kubelet: an unknown or a duplicate field is an error.
pub(super) fn response(stdout: &[u8], api_version: &str) -> Result<Response, ResponseError> {
    // A structure could be given as a list of its values as well.
    if !stdout.trim_ascii_start().starts_with(b"{") {
        return Err(ResponseError::NotAnObject);
    }
    let kind: TypeMeta = serde_json::from_slice(stdout).map_err(|_| ResponseError::NotAnObject)?;
    let actual = kind.api_version.unwrap_or_default();
    if actual != api_version {
        return Err(ResponseError::Version { expected: api_version.to_owned(), actual: shown(&actual) });
    }
    if kind.kind.as_deref() != Some(KIND) || !actual.starts_with(GROUP) {
        return Err(ResponseError::Decode);
    }
    let wire: WireResponse = serde_json::from_slice(stdout).map_err(|_| ResponseError::Decode)?;
    Ok(Response {
        cache_key_type: match wire.cache_key_type.as_deref() {
            Some("Image") => Some(CacheKeyType::Image),
            Some("Registry") => Some(CacheKeyType::Registry),
            Some("Global") => Some(CacheKeyType::Global),
            _ => None,
        },
        cache_duration: match wire.cache_duration {
            None => None,
            Some(text) => Some(GoDuration::parse(&text).ok_or(ResponseError::Decode)?),
        },
        auth: credentials(wire.auth)?,
    })
}

/// An answer is one for the version that was asked for, and an error quotes nothing of what was not understood.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzzed_response(bytes: &[u8]) {
    for version in ["v1", "v1beta1", "v1alpha1"] {
        if let Err(error) = response(bytes, &format!("{GROUP}{version}")) {
            assert!(error.to_string().len() < 400, "{error}");
        }
    }
    let _ = passwords(bytes);
}

fn credentials(auth: Option<ResponseCredentials>) -> Result<BTreeMap<String, (String, Secret)>, ResponseError> {
    let mut found = BTreeMap::new();
    for (pattern, fields) in auth.map(|auth| auth.0).unwrap_or_default() {
        let (mut username, mut password) = (String::new(), Secret::default());
        for (name, value) in fields.map(|fields| fields.0).unwrap_or_default() {
            match name.as_str() {
                "username" => username = value.unwrap_or_default(),
                "password" => password = Secret::new(value.unwrap_or_default()),
                _ => return Err(ResponseError::Decode),
            }
        }
        found.insert(pattern, (username, password));
    }
    Ok(found)
}

/// Returns every password of an answer, even of an invalid one. They are never shown, even where they also occur in other
/// output.
pub(super) fn passwords(stdout: &[u8]) -> Vec<Secret> {
    #[derive(serde::Deserialize)]
    struct Loose {
        auth: BTreeMap<String, LooseEntry>,
    }
    #[derive(serde::Deserialize)]
    struct LooseEntry {
        password: String,
    }
    let loose: Option<Loose> = serde_json::from_slice(stdout).ok();
    loose.into_iter().flat_map(|l| l.auth.into_values()).map(|entry| Secret::new(entry.password)).collect()
}

/// A version that is fit to be shown, which is one of this protocol; anything else could be a part of a secret.
fn shown(api_version: &str) -> String {
    let version = api_version.strip_prefix(GROUP).and_then(|version| version.strip_prefix('v'));
    let fit = version.is_some_and(|v| v.len() <= 10 && v.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()));
    if fit || api_version.is_empty() { api_version.to_owned() } else { "<hidden>".to_owned() }
}

#[derive(serde::Deserialize)]
struct TypeMeta {
    kind: Option<String>,
    #[serde(rename = "apiVersion")]
    api_version: Option<String>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WireResponse {
    #[serde(rename = "kind")]
    _kind: Option<String>,
    #[serde(rename = "apiVersion")]
    _api_version: Option<String>,
    cache_key_type: Option<String>,
    cache_duration: Option<String>,
    auth: Option<ResponseCredentials>,
}

/// The fields of credentials, by pattern of images. Maps and not structures, which could be given as lists.
type ResponseCredentials = Once<Option<Once<Option<String>>>>;

/// A map without duplicate keys.
struct Once<T>(BTreeMap<String, T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Once<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OnceVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for OnceVisitor<T> {
            type Value = Once<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Once<T>, A::Error> {
                let mut map = BTreeMap::new();
                while let Some((key, value)) = access.next_entry()? {
                    if map.insert(key, value).is_some() {
                        return Err(A::Error::custom("a key comes twice"));
                    }
                }
                Ok(Once(map))
            }
        }
        deserializer.deserialize_map(OnceVisitor(PhantomData))
    }
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
