//! [`Route`]: the declaration of a route of the API, from which the router and the OpenAPI document are made. Plain data; the files of
//! routes declare, [`super::routes`] and [`super::openapi`] read.

use std::sync::Arc;

use axum::routing::MethodRouter;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::state::Admin;

/// The schema of a type, which is entered into the document's components.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// The schema of `T`.
pub(super) fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// A route below `/v1`.
#[derive(Clone, Copy)]
pub(super) struct Route {
    pub(super) verb: Verb,
    pub(super) path: &'static str,
    pub(super) access: Access,
    pub(super) summary: &'static str,
    pub(super) parameters: &'static [Parameter],
    pub(super) body: Option<Content>,
    pub(super) answer: Content,
    pub(super) handler: fn() -> MethodRouter<Arc<Admin>>,
}

/// The method of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    Post,
}

/// The callers that a route answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Everyone who reaches the socket.
    Everyone,
    /// Those who may change things.
    Privileged,
}

/// The sockets that answer the routes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sockets {
    /// The admin socket of an agent.
    Admin,
    /// The store's socket, to which only its owner's user can connect: for routes that use paths of the client or hand over files.
    Store,
    /// Both.
    Both,
}

/// The content of a body.
#[derive(Clone, Copy)]
pub(super) enum Content {
    Json(SchemaOf),
    /// JSON, or with `Accept: text/event-stream` events; each entry is the name of an event and its data.
    JsonOrEvents(SchemaOf, &'static [(&'static str, SchemaOf)]),
    /// Server-sent events.
    Events(&'static [(&'static str, SchemaOf)]),
    /// Bytes of this media type.
    Bytes(&'static str),
}

/// A parameter of a route.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) in_path: bool,
    pub(super) required: bool,
    pub(super) repeated: bool,
    pub(super) integer: bool,
}

impl Parameter {
    pub(super) const fn query(name: &'static str, description: &'static str) -> Self {
        Self { name, description, in_path: false, required: false, repeated: false, integer: false }
    }

    pub(super) const fn path(name: &'static str, description: &'static str) -> Self {
        Self { in_path: true, required: true, ..Self::query(name, description) }
    }

    pub(super) const fn required(self) -> Self {
        Self { required: true, ..self }
    }

    /// The parameter may be given several times, and must be given once.
    pub(super) const fn repeated(self) -> Self {
        Self { repeated: true, ..self }
    }

    pub(super) const fn integer(self) -> Self {
        Self { integer: true, ..self }
    }
}

impl Route {
    const fn new(
        verb: Verb,
        access: Access,
        path: &'static str,
        summary: &'static str,
        answer: Content,
        handler: fn() -> MethodRouter<Arc<Admin>>,
    ) -> Self {
        Self { verb, path, access, summary, parameters: &[], body: None, answer, handler }
    }

    /// A question that everyone may ask who reaches the socket.
    pub(super) const fn get(
        path: &'static str,
        summary: &'static str,
        answer: Content,
        handler: fn() -> MethodRouter<Arc<Admin>>,
    ) -> Self {
        Self::new(Verb::Get, Access::Everyone, path, summary, answer, handler)
    }

    /// A question whose answer may hold secrets.
    pub(super) const fn private(
        path: &'static str,
        summary: &'static str,
        answer: Content,
        handler: fn() -> MethodRouter<Arc<Admin>>,
    ) -> Self {
        Self::new(Verb::Get, Access::Privileged, path, summary, answer, handler)
    }

    /// A request that changes something.
    pub(super) const fn change(
        path: &'static str,
        summary: &'static str,
        answer: Content,
        handler: fn() -> MethodRouter<Arc<Admin>>,
    ) -> Self {
        Self::new(Verb::Post, Access::Privileged, path, summary, answer, handler)
    }

    /// The same with parameters.
    pub(super) const fn with(self, parameters: &'static [Parameter]) -> Self {
        Self { parameters, ..self }
    }

    /// The same with a body.
    pub(super) const fn with_body(self, body: Content) -> Self {
        Self { body: Some(body), ..self }
    }
}
