//! [`validate`]: whether a CredentialProviderConfig makes sense, with the kubelet's words for what does not. Pure. Called
//! by [`super::Providers::load`] after the files are decoded.

use std::collections::BTreeSet;

use super::decode::{ProviderConfig, TokenAttributes};
use crate::pattern::Pattern;

/// Versions of the protocol, sorted as they are shown.
pub(super) const API_VERSIONS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
];
/// The version that knows service account tokens.
const WITH_TOKENS: &str = API_VERSIONS[0];
/// A credential for all pods of a service account, or for each token.
pub(super) const CACHE_TYPES: [&str; 2] = ["ServiceAccount", "Token"];

/// Returns every problem. `tokens` is true if providers may use service account tokens at all.
pub(super) fn validate(config: &[ProviderConfig], tokens: bool) -> Vec<String> {
    let mut found = Vec::new();
    if config.is_empty() {
        found.push(required("providers", "at least 1 item in plugins is required"));
    }
    let mut names = BTreeSet::new();
    for provider in config {
        name(provider, &mut names, &mut found);
        if provider.api_version.is_empty() {
            found.push(required("providers.apiVersion", ""));
        } else if !API_VERSIONS.contains(&provider.api_version.as_str()) {
            found.push(unsupported("providers.apiVersion", &provider.api_version, &API_VERSIONS));
        }
        if provider.match_images.is_empty() {
            found.push(required("providers.matchImages", "at least 1 item in matchImages is required"));
        }
        for image in &provider.match_images {
            if let Some(reason) = bad_pattern(image) {
                let detail = format!("match image is invalid: {reason}");
                found.push(invalid("providers.matchImages", image, &detail));
            }
        }
        match provider.default_cache_duration {
            None => found.push(required("providers.defaultCacheDuration", "")),
            Some(duration) if duration.is_negative() => found.push(format!(
                "providers.defaultCacheDuration: Invalid value: {duration}: \
                 defaultCacheDuration must be greater than or equal to 0"
            )),
            Some(_) => {}
        }
        if let Some(attributes) = &provider.token_attributes {
            token_attributes(provider, attributes, tokens, &mut found);
        }
    }
    found
}

/// Returns all problems in one line, each once.
pub(super) fn in_one_line(problems: &[String]) -> String {
    let mut once: Vec<&str> = Vec::new();
    for problem in problems {
        if !once.contains(&problem.as_str()) {
            once.push(problem);
        }
    }
    match once.as_slice() {
        [one] => (*one).to_owned(),
        all => format!("[{}]", all.join(", ")),
    }
}

fn name<'a>(provider: &'a ProviderConfig, names: &mut BTreeSet<&'a str>, found: &mut Vec<String>) {
    let name = provider.name.as_str();
    let mut refuse = |detail: &str| found.push(invalid("providers.name", name, detail));
    if name.contains('/') {
        refuse("provider name cannot contain '/'");
    }
    if name.contains(' ') {
        refuse("provider name cannot contain spaces");
    }
    if name == "." {
        refuse("provider name cannot be '.'");
    }
    if name == ".." {
        refuse("provider name cannot be '..'");
    }
    if !names.insert(name) {
        found.push(duplicate("providers.name", name));
    }
}

fn token_attributes(provider: &ProviderConfig, attributes: &TokenAttributes, tokens: bool, found: &mut Vec<String>) {
    const PATH: &str = "providers.tokenAttributes";
    const REQUIRED: &str = "providers.tokenAttributes.requiredServiceAccountAnnotationKeys";
    const OPTIONAL: &str = "providers.tokenAttributes.optionalServiceAccountAnnotationKeys";
    if !tokens {
        found.push(forbidden(
            PATH,
            "tokenAttributes is not supported when KubeletServiceAccountTokenForCredentialProviders feature gate is \
             disabled",
        ));
    }
    if attributes.audience.is_empty() {
        found.push(required("providers.tokenAttributes.serviceAccountTokenAudience", ""));
    }
    if attributes.require_service_account.is_none() {
        found.push(required("providers.tokenAttributes.requireServiceAccount", ""));
    }
    if provider.api_version != WITH_TOKENS {
        found.push(forbidden(PATH, &format!("tokenAttributes is only supported for {WITH_TOKENS} API version")));
    }
    if attributes.require_service_account == Some(false) && !attributes.required_annotations.is_empty() {
        found.push(forbidden(
            REQUIRED,
            "requireServiceAccount cannot be false when requiredServiceAccountAnnotationKeys is set",
        ));
    }
    annotation_keys(REQUIRED, &attributes.required_annotations, found);
    annotation_keys(OPTIONAL, &attributes.optional_annotations, found);
    let both: BTreeSet<&String> =
        attributes.required_annotations.iter().filter(|key| attributes.optional_annotations.contains(key)).collect();
    if !both.is_empty() {
        let keys: Vec<String> = both.iter().map(|key| format!("{key:?}")).collect();
        found.push(format!(
            "{PATH}: Invalid value: []string{{{}}}: annotation keys cannot be both required and optional",
            keys.join(", ")
        ));
    }
    const CACHE_TYPE: &str = "providers.tokenAttributes.cacheType";
    if attributes.cache_type.is_empty() {
        let detail = format!(
            "cacheType is required to be set when tokenAttributes is specified. Supported values are: {}",
            CACHE_TYPES.join(", ")
        );
        found.push(required(CACHE_TYPE, &detail));
    } else if !CACHE_TYPES.contains(&attributes.cache_type.as_str()) {
        found.push(unsupported(CACHE_TYPE, &attributes.cache_type, &CACHE_TYPES));
    }
}

fn annotation_keys(path: &str, keys: &[String], found: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for key in keys {
        // The case does not matter for annotations.
        for detail in qualified_name(&key.to_lowercase()) {
            found.push(invalid(path, key, &detail));
        }
        if !seen.insert(key) {
            found.push(duplicate(path, key));
        }
    }
}

/// The error of an image pattern; where Go's URL parser has words for it, with these.
fn bad_pattern(text: &str) -> Option<String> {
    let error = Pattern::parse(text).err()?;
    let escape = text.match_indices('%').map(|(at, _)| &text[at..]).find(|rest| {
        let digits = rest.as_bytes().get(1..3);
        !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    });
    Some(match escape {
        Some(rest) => {
            let url = format!("https://{text}");
            let escape: String = rest.chars().take(3).collect();
            format!("parse {url:?}: invalid URL escape {escape:?}")
        }
        None => error.to_string(),
    })
}

/// The error of a Kubernetes qualified name, `[prefix/]name`.
fn qualified_name(value: &str) -> Vec<String> {
    const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
        alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
        '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let mut found = Vec::new();
    let parts: Vec<&str> = value.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                found.push("prefix part must be non-empty".to_owned());
            } else {
                found.extend(subdomain(prefix).into_iter().map(|detail| format!("prefix part {detail}")));
            }
            *name
        }
        _ => {
            found.push(format!(
                "a qualified name {NAME} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
            return found;
        }
    };
    if name.is_empty() {
        found.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        found.push("name part must be no more than 63 characters".to_owned());
    }
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if !between(name, u8::is_ascii_alphanumeric, inner) {
        found.push(format!("name part {NAME}"));
    }
    found
}

/// The error of a lower-case DNS subdomain.
fn subdomain(value: &str) -> Vec<String> {
    let mut found = Vec::new();
    if value.len() > 253 {
        found.push("must be no more than 253 characters".to_owned());
    }
    let edge = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    if !value.split('.').all(|label| between(label, edge, |b| edge(&b) || b == b'-')) {
        found.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    found
}

/// Returns true if `edge` accepts the first and the last character of `text`, and `inner` all of them.
fn between(text: &str, edge: impl Fn(&u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(&edge) && bytes.last().is_some_and(&edge) && bytes.iter().copied().all(inner)
}

fn required(path: &str, detail: &str) -> String {
    if detail.is_empty() { format!("{path}: Required value") } else { format!("{path}: Required value: {detail}") }
}

fn invalid(path: &str, value: &str, detail: &str) -> String {
    format!("{path}: Invalid value: {value:?}: {detail}")
}

fn forbidden(path: &str, detail: &str) -> String {
    format!("{path}: Forbidden: {detail}")
}

fn duplicate(path: &str, value: &str) -> String {
    format!("{path}: Duplicate value: {value:?}")
}

fn unsupported(path: &str, value: &str, supported: &[&str]) -> String {
    let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
    format!("{path}: Unsupported value: {value:?}: supported values: {}", supported.join(", "))
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
