//! Streams to containers: what a runtime offers at the URL that it answers to exec, attach and port-forward. SPDY/3.1 over
//! an upgraded HTTP connection, which every CRI runtime speaks, and which alone can say that standard input has ended:
//! their WebSockets cannot, so that `exec -i` with a pipe would never end. Knows no pod; called by the commands.

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
