//! [`Failure`]: why a request to the API server failed, as far as callers act differently. Pure.

/// The ways in which a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No such object, or no such kind of objects.
    NotFound,
    /// An object of this name exists.
    AlreadyExists,
    /// The object changed meanwhile, or is another one of the same name.
    Conflict,
    /// The watch or list is too old to continue.
    Expired,
    /// The server does not authenticate the client.
    Unauthorized,
    /// This node may not do that.
    Forbidden,
    /// The request can never succeed as it is.
    Invalid,
    /// The server has too much to do.
    TooManyRequests,
    /// Everything else: no connection, an error of the server, an answer that cannot be parsed.
    Unavailable,
}

/// Returns an error in one line: the server's message, if there is one.
#[must_use]
pub fn text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        kube::Error::Api(status) => format!("status {}", status.code),
        kube::Error::Service(error) => chain(error.as_ref()),
        other => chain(other),
    }
}

/// Returns an error and its causes in one line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    cri_api::Error::from_source(cri_api::Kind::Unknown, error).message().to_owned()
}

/// Classifies the failure of a request.
#[must_use]
pub fn failure(error: &kube::Error) -> Failure {
    let kube::Error::Api(status) = error else {
        return Failure::Unavailable;
    };
    match (status.code, status.reason.as_str()) {
        (404, _) => Failure::NotFound,
        (409, "AlreadyExists") => Failure::AlreadyExists,
        (409, _) => Failure::Conflict,
        (410, _) => Failure::Expired,
        (401, _) => Failure::Unauthorized,
        (403, _) => Failure::Forbidden,
        (400 | 405 | 406 | 413 | 415 | 422, _) => Failure::Invalid,
        (429, _) => Failure::TooManyRequests,
        _ => Failure::Unavailable,
    }
}
