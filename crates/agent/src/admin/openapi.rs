//! The OpenAPI 3.1 document of the API, made from the table of routes and the types of their bodies. Reads declarations, and nothing else.
//! Called by the route `/v1/openapi.json`; docs/openapi.json is a copy, which a test compares.

use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use super::table::{Access, Content, Parameter, Route, SchemaOf, Sockets, Verb};
use crate::api::wire::{API_VERSION, ApiError};

/// The document.
pub(super) fn document<'a>(routes: impl Iterator<Item = (Sockets, &'a Route)>) -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.contract = schemars::generate::Contract::Serialize;
            settings.meta_schema = None;
        })
        .into_generator();
    let error = generator.subschema_for::<ApiError>();
    let mut paths = Map::new();
    for (sockets, route) in routes {
        let verb = match route.verb {
            Verb::Get => "get",
            Verb::Post => "post",
        };
        let operation = operation(sockets, route, verb, &mut generator);
        let path = paths.entry(format!("/v1{}", route.path)).or_insert_with(|| json!({}));
        path[verb] = operation;
    }
    for (path, summary) in [
        ("/healthz", "The process is alive"),
        ("/livez", "The process is alive"),
        ("/readyz", "The image service is ready, and for `run` the runtime; otherwise 503 with the reason"),
        ("/metrics", "Metrics for Prometheus: OpenMetrics for clients that accept it, otherwise the older text format"),
    ] {
        let text = json!({"description": "done", "content": {"text/plain": {"schema": {"type": "string"}}}});
        let unready = json!({"description": "not now", "content": {"text/plain": {"schema": {"type": "string"}}}});
        let responses = json!({"200": text, "503": unready});
        paths.insert(
            path.to_owned(),
            json!({"get": {"operationId": &path[1..], "summary": summary, "responses": responses}}),
        );
    }
    paths.insert("/configz".to_owned(), configuration());
    let schemas: Map<String, Value> = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "imagelet",
            "version": API_VERSION,
            "summary": "API of an imagelet agent on its admin socket, and of the owner of a store on the socket `store.sock` of its root",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://imagelet", "description": "Unix socket of the agent"}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {
                "Error": {
                    "description": "The request failed",
                    "content": {"application/json": {"schema": error}},
                },
            },
        },
    })
}

/// The operation of `/configz`. The fields of a configuration have a schema of their own.
fn configuration() -> Value {
    let schema = json!({
        "type": "object",
        "required": ["imageletconfig"],
        "properties": {"imageletconfig": {"type": "object", "additionalProperties": true}},
    });
    json!({"get": {
        "operationId": "configz",
        "summary": "The configuration in force, in the form of its file and without secrets",
        "responses": {
            "200": {"description": "done", "content": {"application/json": {"schema": schema}}},
            "default": {"$ref": "#/components/responses/Error"},
        },
    }})
}

fn operation(sockets: Sockets, route: &Route, verb: &str, generator: &mut SchemaGenerator) -> Value {
    let words: Vec<&str> = route.path.split(['/', '.', '{', '}']).filter(|word| !word.is_empty()).collect();
    let may = match route.access {
        _ if sockets == Sockets::Store => "Only on the socket of a store, for the user of its owner and root.",
        Access::Everyone => "Allowed for every client of the socket.",
        Access::Privileged => "Allowed for root, the owner of the root directory, and members of adminGroup.",
    };
    let may = if sockets == Sockets::Both { format!("{may} Also on the socket of a store.") } else { may.to_owned() };
    let mut operation = json!({
        "operationId": format!("{verb}-{}", words.join("-")),
        "summary": route.summary,
        "description": may,
        "responses": {
            "200": {"description": "done", "content": content(&route.answer, generator)},
            "default": {"$ref": "#/components/responses/Error"},
        },
    });
    if !route.parameters.is_empty() {
        operation["parameters"] = route.parameters.iter().map(parameter).collect();
    }
    if let Some(body) = &route.body {
        operation["requestBody"] = json!({"required": true, "content": content(body, generator)});
    }
    operation
}

fn parameter(parameter: &Parameter) -> Value {
    let one = if parameter.integer { json!({"type": "integer", "minimum": 0}) } else { json!({"type": "string"}) };
    let schema = if parameter.repeated { json!({"type": "array", "items": one}) } else { one };
    json!({
        "name": parameter.name,
        "in": if parameter.in_path { "path" } else { "query" },
        "description": parameter.description,
        "required": parameter.required,
        "schema": schema,
    })
}

fn content(content: &Content, generator: &mut SchemaGenerator) -> Value {
    // OpenAPI 3.1 has no words for streams of events: each event is named, with the schema of its data.
    let mut events = |list: &[(&str, SchemaOf)]| {
        let data = list.iter().map(|(name, schema)| {
            json!({"title": name, "description": format!("data of the event `{name}`"), "allOf": [schema(generator)]})
        });
        let data: Vec<Value> = data.collect();
        json!({"schema": {"type": "string", "description": "server-sent events"}, "x-events": data})
    };
    match content {
        Content::Json(schema) => json!({"application/json": {"schema": schema(generator)}}),
        Content::Events(list) => json!({"text/event-stream": events(list)}),
        Content::JsonOrEvents(schema, list) => {
            let events = events(list);
            json!({"application/json": {"schema": schema(generator)}, "text/event-stream": events})
        }
        Content::Bytes(media_type) => json!({*media_type: {"schema": {}}}),
    }
}
