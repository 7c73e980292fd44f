//! Connections to a host and a port, and what is said when there is none. Called by everything here that asks.

use std::io;
use std::net::IpAddr;

use tokio::net::{TcpStream, lookup_host};

/// A host and a port as URLs and headers write them.
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

/// The system's words, without its number and with a small first letter.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error ").next().unwrap_or(&text);
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => String::new(),
    }
}
