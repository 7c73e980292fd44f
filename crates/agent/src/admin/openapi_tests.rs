//! The OpenAPI document as a reader of that format understands it, which shares no code with what writes it.

use std::collections::BTreeSet;

use oas3::spec::{ParameterIn, Spec};
use serde_json::Value;

/// Every reference in a document.
fn references(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| references(item, into)),
        Value::Object(members) => {
            into.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
            members.values().for_each(|member| references(member, into));
        }
        _ => {}
    }
}

/// The places at which what was read differs from what was written.
fn compare(written: &Value, read: &Value, at: &str, into: &mut Vec<String>) {
    match (written, read) {
        (Value::Object(members), Value::Object(others)) => {
            let names: BTreeSet<&String> = members.keys().chain(others.keys()).collect();
            for name in names {
                let of = |object: &serde_json::Map<String, Value>| object.get(name).cloned().unwrap_or_default();
                compare(&of(members), &of(others), &format!("{at}/{name}"), into);
            }
        }
        (Value::Array(items), Value::Array(others)) if items.len() == others.len() => {
            for (index, (item, other)) in items.iter().zip(others).enumerate() {
                compare(item, other, &format!("{at}/{index}"), into);
            }
        }
        _ if written == read => {}
        _ => into.push(format!("{at}: {written}, read as {read}")),
    }
}

#[test]
fn a_reader_of_openapi_understands_all_of_the_document() {
    let document = super::openapi_document();
    let spec: Spec = oas3::from_json(document.to_string()).expect("OpenAPI 3.1");
    let version = spec.validate_version().expect("a version");
    assert_eq!((version.major, version.minor), (3, 1));
    // Nothing is passed over: what was read is the document, but for members that are null.
    let mut lost = Vec::new();
    compare(&document, &serde_json::to_value(&spec).expect("JSON"), "", &mut lost);
    assert_eq!(lost, Vec::<String>::new());

    let mut ids = BTreeSet::new();
    for (path, method, operation) in spec.operations() {
        let at = format!("{method} {path}");
        let id = operation.operation_id.as_deref().unwrap_or_else(|| panic!("{at} has no operationId"));
        assert!(ids.insert(id.to_owned()), "{id} is there twice");
        let parameters = operation.parameters(&spec).unwrap_or_else(|error| panic!("{at}: {error}"));
        let in_path: BTreeSet<&str> = parameters
            .iter()
            .filter(|parameter| parameter.location == ParameterIn::Path && parameter.required == Some(true))
            .map(|parameter| parameter.name.as_str())
            .collect();
        let named: BTreeSet<&str> = path.split('{').skip(1).filter_map(|rest| rest.split('}').next()).collect();
        assert_eq!(in_path, named, "{at}");
        operation.request_body(&spec).unwrap_or_else(|error| panic!("{at}: {error}"));
        let responses = operation.responses(&spec);
        assert_eq!(
            Some(responses.len()),
            operation.responses.as_ref().map(|all| all.len()),
            "{at}: some do not resolve"
        );
        for content in responses.values().flat_map(|response| response.content.values()) {
            content.schema(&spec).unwrap_or_else(|error| panic!("{at}: {error}"));
        }
    }
    assert!(ids.len() > 30, "{ids:?}");

    let mut all = BTreeSet::new();
    references(&document, &mut all);
    for reference in &all {
        let target = reference.strip_prefix('#').and_then(|pointer| document.pointer(pointer));
        assert!(target.is_some(), "{reference} leads nowhere");
    }
    // And no schema that nothing uses.
    let schemas = document["components"]["schemas"].as_object().expect("schemas");
    let unused: Vec<_> = schemas.keys().filter(|name| !all.contains(&format!("#/components/schemas/{name}"))).collect();
    assert!(unused.is_empty(), "{unused:?}");
}
