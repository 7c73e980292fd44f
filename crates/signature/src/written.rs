//! Requirement of a policy's text: its fields, which of them go together, and what is not supported. The keys are
//! read afterwards. Part of [`crate::read`].

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use oci::Reference;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::identity::Identity;
use crate::key::PublicKey;
use crate::policy::NamedKey;
use crate::policy::PolicyError;

/// Maximum number of alternative keys in one demand.
pub const MAX_KEYS: usize = 64;

/// A requirement as it is written, its keys not read yet.
#[derive(Deserialize)]
#[serde(try_from = "RawRequirement")]
pub(crate) enum RequirementText {
    Accept,
    Reject,
    Signed { keys: Vec<KeySource>, identity: Identity },
}

pub(crate) enum KeySource {
    Path { field: &'static str, path: String },
    Data { field: &'static str, base64: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawRequirement {
    r#type: String,
    key_type: Option<String>,
    key_path: Option<String>,
    key_paths: Option<Vec<String>>,
    key_data: Option<String>,
    key_datas: Option<Vec<String>>,
    signed_identity: Option<RawIdentity>,
    fulcio: Option<IgnoredAny>,
    pki: Option<IgnoredAny>,
    rekor_public_key_path: Option<IgnoredAny>,
    rekor_public_key_paths: Option<IgnoredAny>,
    rekor_public_key_data: Option<IgnoredAny>,
    rekor_public_key_datas: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawIdentity {
    r#type: String,
    docker_reference: Option<String>,
    docker_repository: Option<String>,
    prefix: Option<String>,
    signed_prefix: Option<String>,
}

impl TryFrom<RawRequirement> for RequirementText {
    type Error = String;

    fn try_from(raw: RawRequirement) -> Result<Self, String> {
        let kind = raw.r#type.as_str();
        if kind == "signedBy" {
            return Err("type \"signedBy\" (GPG) is not supported: sign with cosign, and say sigstoreSigned".into());
        }
        if !matches!(kind, "insecureAcceptAnything" | "reject" | "sigstoreSigned") {
            return Err(format!("unknown type {kind:?}, there are insecureAcceptAnything, reject and sigstoreSigned"));
        }
        for (field, given) in [
            ("fulcio", raw.fulcio.is_some()),
            ("pki", raw.pki.is_some()),
            ("rekorPublicKeyPath", raw.rekor_public_key_path.is_some()),
            ("rekorPublicKeyPaths", raw.rekor_public_key_paths.is_some()),
            ("rekorPublicKeyData", raw.rekor_public_key_data.is_some()),
            ("rekorPublicKeyDatas", raw.rekor_public_key_datas.is_some()),
            ("keyType", raw.key_type.is_some()),
        ] {
            if given {
                return Err(format!("{field} is not supported: signatures are verified by public keys alone"));
            }
        }
        let mut keys = Vec::new();
        let mut forms = 0;
        if let Some(path) = raw.key_path {
            forms += 1;
            keys.push(KeySource::Path { field: "keyPath", path });
        }
        if let Some(base64) = raw.key_data {
            forms += 1;
            keys.push(KeySource::Data { field: "keyData", base64 });
        }
        if let Some(paths) = raw.key_paths {
            forms += 1;
            keys.extend(paths.into_iter().map(|path| KeySource::Path { field: "keyPaths", path }));
        }
        if let Some(datas) = raw.key_datas {
            forms += 1;
            keys.extend(datas.into_iter().map(|base64| KeySource::Data { field: "keyDatas", base64 }));
        }
        if kind != "sigstoreSigned" {
            if forms > 0 || raw.signed_identity.is_some() {
                return Err(format!("{kind} takes no other fields"));
            }
            return Ok(if kind == "reject" { Self::Reject } else { Self::Accept });
        }
        if forms != 1 || keys.is_empty() {
            return Err("sigstoreSigned needs exactly one of keyPath, keyPaths, keyData and keyDatas".into());
        }
        if keys.len() > MAX_KEYS {
            return Err(format!("{} keys, at most {MAX_KEYS} are allowed", keys.len()));
        }
        let identity = match raw.signed_identity {
            None => Identity::MatchRepoDigestOrExact,
            Some(raw) => raw.identity().map_err(|error| format!("signedIdentity: {error}"))?,
        };
        Ok(Self::Signed { keys, identity })
    }
}

impl RawIdentity {
    fn identity(self) -> Result<Identity, String> {
        let Self { r#type, docker_reference, docker_repository, prefix, signed_prefix } = self;
        let given = [
            ("dockerReference", docker_reference.is_some()),
            ("dockerRepository", docker_repository.is_some()),
            ("prefix", prefix.is_some()),
            ("signedPrefix", signed_prefix.is_some()),
        ];
        let wants: &[&str] = match r#type.as_str() {
            "matchExact" | "matchRepoDigestOrExact" | "matchRepository" => &[],
            "exactReference" => &["dockerReference"],
            "exactRepository" => &["dockerRepository"],
            "remapIdentity" => &["prefix", "signedPrefix"],
            other => {
                return Err(format!(
                    "unknown type {other:?}, there are matchExact, matchRepoDigestOrExact, matchRepository, \
                     exactReference, exactRepository and remapIdentity"
                ));
            }
        };
        for (field, is_given) in given {
            match (is_given, wants.contains(&field)) {
                (true, false) => return Err(format!("{type} takes no {field}", type = r#type)),
                (false, true) => return Err(format!("{type} needs {field}", type = r#type)),
                _ => {}
            }
        }
        let reference = |text: &str| Reference::parse(text).map_err(|error| format!("{text:?}: {error}"));
        Ok(match (r#type.as_str(), docker_reference, docker_repository, prefix, signed_prefix) {
            ("matchExact", ..) => Identity::MatchExact,
            ("matchRepository", ..) => Identity::MatchRepository,
            (_, Some(text), ..) => {
                let exact = reference(&text)?;
                if exact.tag().is_none() && exact.digest().is_none() {
                    return Err(format!("dockerReference {text:?} has neither tag nor digest"));
                }
                Identity::ExactReference(exact)
            }
            (_, _, Some(text), ..) => {
                let exact = reference(&text)?;
                if exact.tag().is_some() || exact.digest().is_some() {
                    return Err(format!("dockerRepository {text:?} has a tag or a digest"));
                }
                Identity::ExactRepository(exact.repository())
            }
            (_, _, _, Some(prefix), Some(signed_prefix)) => {
                for part in [&prefix, &signed_prefix] {
                    check_prefix(part).map_err(|why| format!("{part:?}: {why}"))?;
                }
                Identity::Remap { prefix, signed_prefix }
            }
            _ => Identity::MatchRepoDigestOrExact,
        })
    }
}

/// A prefix is a name in its normal form, or the host of one.
fn check_prefix(prefix: &str) -> Result<(), String> {
    let name = if prefix.contains('/') { prefix.to_owned() } else { format!("{prefix}/x/y") };
    let parsed = Reference::parse(&name).map_err(|error| error.to_string())?;
    if parsed.to_string() == name { Ok(()) } else { Err(format!("its normal form is {parsed}")) }
}

impl KeySource {
    /// Returns the key itself; `place` and `at` are the location of its requirement.
    pub(crate) fn key(
        self,
        place: &str,
        at: usize,
        read_key: &mut dyn FnMut(&str) -> Result<Vec<u8>, String>,
    ) -> Result<NamedKey, PolicyError> {
        let failed =
            |field: &str, message: String| PolicyError { place: format!("{place}[{at}].{field}"), line: None, message };
        match self {
            Self::Path { field, path } => {
                if !path.starts_with('/') {
                    return Err(failed(field, format!("key {path:?} is no absolute path")));
                }
                let text = read_key(&path).map_err(|why| failed(field, format!("key {path}: {why}")))?;
                let key = PublicKey::from_pem(&text).map_err(|why| failed(field, format!("key {path}: {why}")))?;
                Ok(NamedKey { name: path, key })
            }
            Self::Data { field, base64 } => {
                let text =
                    BASE64_STANDARD.decode(base64).map_err(|_| failed(field, "the key is not in base64".to_owned()))?;
                let key = PublicKey::from_pem(&text).map_err(|why| failed(field, format!("the key: {why}")))?;
                Ok(NamedKey { name: format!("in {field}"), key })
            }
        }
    }
}
