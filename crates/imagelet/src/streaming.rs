//! Streams to containers, at the URL that a runtime returns for exec, attach and port-forward. They use SPDY/3.1 over an upgraded HTTP
//! connection, which every CRI runtime supports. Only SPDY can signal the end of standard input. The runtimes' WebSockets cannot, so `exec
//! -i` with a pipe would never end. Knows no pod; called by the commands.

mod connect;
pub(crate) mod port_forward;
pub(crate) mod remote_command;
mod session;
mod spdy;
pub(crate) mod terminal;

pub(crate) use connect::connect;

#[cfg(test)]
#[path = "streaming/streaming_tests.rs"]
mod tests;
