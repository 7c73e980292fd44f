//! Tests over real sockets in temporary directories: the client of this crate against the server of this crate with
//! the fake behind it, and each against raw peers that behave as other programs do.

mod authorities;
mod calls;
mod conformance;
mod connecting;
mod ending;
mod lists;
mod passing;
mod pod_peer;
mod pods;
mod serving;
mod sockets;
mod support;
mod wire;
