//! [`decode`]: a CredentialProviderConfig out of a parsed document, strictly: what the version does not know is refused
//! by its path, with the kubelet's words. Values are not shown: arguments and environment may hold secrets.

use serde_json::{Map, Value};

use base::GoDuration;

const GROUP: &str = "kubelet.config.k8s.io";
const KIND: &str = "CredentialProviderConfig";
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

/// A provider of the configuration. Fields that the file does not set are empty.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct ProviderConfig {
    pub(super) name: String,
    pub(super) match_images: Vec<String>,
    pub(super) default_cache_duration: Option<GoDuration>,
    pub(super) api_version: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) token_attributes: Option<TokenAttributes>,
}

impl std::fmt::Debug for ProviderConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the arguments and the environment: they may hold secrets.
        f.debug_struct("ProviderConfig").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How a provider uses service account tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TokenAttributes {
    pub(super) audience: String,
    /// `ServiceAccount` or `Token`.
    pub(super) cache_type: String,
    pub(super) require_service_account: Option<bool>,
    pub(super) required_annotations: Vec<String>,
    pub(super) optional_annotations: Vec<String>,
}

/// Decodes one document.
pub(super) fn decode(document: &Value) -> Result<Vec<ProviderConfig>, String> {
    let fields = fields(document, "the document")?;
    let word = |name: &str| match fields.and_then(|fields| fields.get(name)) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(value) => text(value, name),
    };
    let (kind, api_version) = (word("kind")?, word("apiVersion")?);
    if kind.is_empty() {
        return Err("Object 'Kind' is missing".to_owned());
    }
    if api_version.is_empty() {
        return Err("Object 'apiVersion' is missing".to_owned());
    }
    let version = api_version.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/'));
    if kind == "KubeletConfiguration" && version == Some("v1beta1") {
        return Err(format!("failed to decode {kind:?} (wrong Kind)"));
    }
    let Some(version) = version.filter(|version| kind == KIND && VERSIONS.contains(version)) else {
        return Err(format!("no kind {kind:?} is registered for version {api_version:?}"));
    };

    let mut unknown = Vec::new();
    let mut config = Vec::new();
    for (name, value) in fields.into_iter().flatten() {
        match name.as_str() {
            "kind" | "apiVersion" => {}
            "providers" => {
                for (index, value) in list(value, name)?.iter().enumerate() {
                    let path = format!("providers[{index}]");
                    config.push(provider(value, &path, version == "v1", &mut unknown)?);
                }
            }
            _ => unknown.push(name.clone()),
        }
    }
    if !unknown.is_empty() {
        let fields: Vec<String> = unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
        return Err(format!("strict decoding error: {}", fields.join(", ")));
    }
    Ok(config)
}

fn provider(value: &Value, path: &str, tokens: bool, unknown: &mut Vec<String>) -> Result<ProviderConfig, String> {
    let mut provider = ProviderConfig::default();
    for (name, value) in fields(value, path)?.into_iter().flatten() {
        let path = format!("{path}.{name}");
        match name.as_str() {
            "name" => provider.name = text(value, &path)?,
            "matchImages" => provider.match_images = texts(value, &path)?,
            "defaultCacheDuration" => provider.default_cache_duration = duration(value, &path)?,
            "apiVersion" => provider.api_version = text(value, &path)?,
            "args" => provider.args = texts(value, &path)?,
            "env" => {
                for (index, value) in list(value, &path)?.iter().enumerate() {
                    provider.env.push(variable(value, &format!("{path}[{index}]"), unknown)?);
                }
            }
            "tokenAttributes" if tokens => {
                if !value.is_null() {
                    provider.token_attributes = Some(token_attributes(value, &path, unknown)?);
                }
            }
            _ => unknown.push(path),
        }
    }
    Ok(provider)
}

fn variable(value: &Value, path: &str, unknown: &mut Vec<String>) -> Result<(String, String), String> {
    let mut variable = (String::new(), String::new());
    for (name, value) in fields(value, path)?.into_iter().flatten() {
        let path = format!("{path}.{name}");
        match name.as_str() {
            "name" => variable.0 = text(value, &path)?,
            "value" => variable.1 = text(value, &path)?,
            _ => unknown.push(path),
        }
    }
    Ok(variable)
}

fn token_attributes(value: &Value, path: &str, unknown: &mut Vec<String>) -> Result<TokenAttributes, String> {
    let mut attributes = TokenAttributes::default();
    for (name, value) in fields(value, path)?.into_iter().flatten() {
        let path = format!("{path}.{name}");
        match name.as_str() {
            "serviceAccountTokenAudience" => attributes.audience = text(value, &path)?,
            "cacheType" => attributes.cache_type = text(value, &path)?,
            "requireServiceAccount" => {
                attributes.require_service_account = match value {
                    Value::Null => None,
                    Value::Bool(required) => Some(*required),
                    other => return Err(wrong(&path, "true or false", other)),
                }
            }
            "requiredServiceAccountAnnotationKeys" => attributes.required_annotations = texts(value, &path)?,
            "optionalServiceAccountAnnotationKeys" => attributes.optional_annotations = texts(value, &path)?,
            _ => unknown.push(path),
        }
    }
    Ok(attributes)
}

/// Null means empty, as everywhere in Kubernetes.
fn text(value: &Value, path: &str) -> Result<String, String> {
    match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        other => Err(wrong(path, "a string", other)),
    }
}

fn texts(value: &Value, path: &str) -> Result<Vec<String>, String> {
    list(value, path)?.iter().enumerate().map(|(index, value)| text(value, &format!("{path}[{index}]"))).collect()
}

fn list<'a>(value: &'a Value, path: &str) -> Result<&'a [Value], String> {
    match value {
        Value::Null => Ok(&[]),
        Value::Array(list) => Ok(list),
        other => Err(wrong(path, "a list", other)),
    }
}

fn fields<'a>(value: &'a Value, path: &str) -> Result<Option<&'a Map<String, Value>>, String> {
    match value {
        Value::Null => Ok(None),
        Value::Object(fields) => Ok(Some(fields)),
        other => Err(wrong(path, "a map", other)),
    }
}

fn duration(value: &Value, path: &str) -> Result<Option<GoDuration>, String> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => match GoDuration::parse(text) {
            Some(duration) => Ok(Some(duration)),
            None => Err(format!("{path}: {text:?} is no duration like 10m or 1h30m")),
        },
        other => Err(wrong(path, "a duration like 10m", other)),
    }
}

fn wrong(path: &str, wanted: &str, got: &Value) -> String {
    let got = match got {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    };
    format!("{path}: must be {wanted}, but is {got}")
}
