//! Forms of names, keys, paths and addresses, each with the sentence that apimachinery has for it; and [`UniqueNames`], names
//! of which each may stand in a list once. Pure.

use std::collections::BTreeSet;

use manifest::{FieldErrors, FieldPath};

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
     and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
     must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
     must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
     validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
     'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// Returns the message for a text that is too long.
pub(super) fn too_long(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

fn is_label(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

/// Letters, digits, `-`, `_` and `.`, with letters or digits at both ends.
fn is_qualified(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

/// Sentences of the rules that a text breaks.
fn broken<const N: usize>(rules: [(bool, &str); N]) -> Vec<String> {
    rules.into_iter().filter(|(is_broken, _)| *is_broken).map(|(_, sentence)| sentence.to_owned()).collect()
}

/// Validates a DNS label: namespaces, containers, volumes, host names.
pub(super) fn label(text: &str) -> Vec<String> {
    broken([(text.len() > 63, &too_long(63)), (!is_label(text), LABEL)])
}

/// Validates a DNS subdomain: pods, ConfigMaps, Secrets.
pub(crate) fn subdomain(text: &str) -> Vec<String> {
    broken([(text.len() > 253, &too_long(253)), (!text.split('.').all(is_label), SUBDOMAIN)])
}

pub(super) fn label_value(text: &str) -> Vec<String> {
    broken([(text.len() > 63, &too_long(63)), (!text.is_empty() && !is_qualified(text), LABEL_VALUE)])
}

/// Validates the key of a label or an annotation: a name, optionally with a domain in front.
pub(super) fn qualified_name(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((prefix, name)) if !name.contains('/') => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".to_owned());
            } else {
                wrong.extend(subdomain(prefix).into_iter().map(|text| format!("prefix part {text}")));
            }
            name
        }
        Some(_) => {
            return vec![format!(
                "a qualified name {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                NAME_PART.trim_start_matches("name part ")
            )];
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        wrong.push(format!("name part {}", too_long(63)));
    }
    if !is_qualified(name) {
        wrong.push(NAME_PART.to_owned());
    }
    wrong
}

/// Validates the key of a ConfigMap or Secret.
pub(crate) fn config_key(text: &str) -> Vec<String> {
    let is_valid = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    broken([
        (text.len() > 253, &too_long(253)),
        (!is_valid, CONFIG_KEY),
        (text == ".", "must not be '.'"),
        (text == "..", "must not be '..'"),
        (text != ".." && text.starts_with(".."), "must not start with '..'"),
    ])
}

pub(super) fn variable(text: &str) -> Vec<String> {
    let rule = "a valid environment variable name must consist only of printable ASCII characters other than '='";
    broken([(!crate::environment::is_name(text), rule)])
}

pub(super) fn port_name(text: &str) -> Vec<String> {
    let is_valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    broken([
        (text.len() > 15, &too_long(15)),
        (!text.bytes().all(is_valid), "must contain only alphanumeric characters (a-z, 0-9), and hyphens (-)"),
        (!text.bytes().any(|b| b.is_ascii_lowercase()), "must contain at least one letter (a-z)"),
        (text.contains("--"), "must not contain consecutive hyphens"),
        (text.starts_with('-') || text.ends_with('-'), "must not begin or end with a hyphen"),
    ])
}

pub(super) fn port(number: i32) -> Vec<String> {
    broken([(!(1..=65535).contains(&number), "must be between 1 and 65535, inclusive")])
}

pub(super) fn ip(text: &str) -> Vec<String> {
    let rule = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    broken([(text.parse::<std::net::IpAddr>().is_err(), rule)])
}

/// Validates a path that must not leave its directory.
pub(super) fn relative_path(text: &str) -> Vec<String> {
    broken([
        (text.starts_with('/'), "must be a relative path"),
        (text.split('/').any(|part| part == ".."), "must not contain '..'"),
    ])
}

/// Checks the path of a file that a volume makes: it may not resemble one that belongs to the volume itself.
pub(super) fn file_path(text: &str) -> Vec<String> {
    let mut wrong = relative_path(text);
    if text.starts_with("..") && wrong.is_empty() {
        wrong.push("must not start with '..'".to_owned());
    }
    wrong
}

/// Tells each sentence of `wrong` about the text at `path`.
pub(super) fn report(errors: &mut FieldErrors, path: &FieldPath, text: &str, wrong: Vec<String>) {
    for detail in wrong {
        errors.invalid(path.clone(), text, detail);
    }
}

/// Checks a text that must be set and valid.
pub(super) fn needed(errors: &mut FieldErrors, path: FieldPath, text: &str, look: impl Fn(&str) -> Vec<String>) {
    if text.is_empty() {
        errors.required(path, "");
    } else {
        report(errors, &path, text, look(text));
    }
}

/// The names of a list that were seen so far.
#[derive(Default)]
pub(super) struct UniqueNames<'a>(BTreeSet<&'a str>);

impl<'a> UniqueNames<'a> {
    pub(super) fn check(&mut self, errors: &mut FieldErrors, path: FieldPath, name: &'a str) {
        if !name.is_empty() && !self.0.insert(name) {
            errors.duplicate(path, name);
        }
    }
}
