//! Connections to a host and a port, the messages of failures, and [`tcp`], the probe that only connects. Called by all other
//! probes.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};

use super::ProbeReply;

/// Joins a host and a port, as in URLs and headers.
pub(crate) fn join(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => format!("[{address}]:{port}"),
        _ => format!("{host}:{port}"),
    }
}

/// Connects to the first address of `host` that answers.
///
/// # Errors
/// Why none does: the last one's reason.
pub(crate) async fn dial(host: &str, port: u16) -> Result<TcpStream, String> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let addresses = lookup_host((host, port)).await.map_err(|error| format!("lookup {host}: {}", plain(&error)))?;
    let mut last = format!("lookup {host}: no such host");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // What is asked is one small packet; it should not wait for company.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "cannot set TCP_NODELAY");
                }
                return Ok(stream);
            }
            Err(error) => last = format!("dial tcp {address}: connect: {}", plain(&error)),
        }
    }
    Err(last)
}

/// Returns the system's message without its number, and in lower case.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error ").next().unwrap_or(&text);
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => String::new(),
    }
}

/// Checks that a port accepts connections: connects, and closes the connection without sending anything.
pub async fn tcp(host: &str, port: u16, timeout: Duration) -> ProbeReply {
    match tokio::time::timeout(timeout, dial(host, port)).await {
        Ok(Ok(_connection)) => ProbeReply::success(""),
        Ok(Err(text)) => ProbeReply::failure(text),
        Err(_) => ProbeReply::failure(format!("dial tcp {}: i/o timeout", join(host, port))),
    }
}
