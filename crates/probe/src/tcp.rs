//! [`tcp`]: whether a port takes connections. Says nothing over the connection.

use std::time::Duration;

use crate::ProbeReply;
use crate::dial::{dial, join};

/// Connects, and closes the connection.
pub async fn tcp(host: &str, port: u16, timeout: Duration) -> ProbeReply {
    match tokio::time::timeout(timeout, dial(host, port)).await {
        Ok(Ok(_connection)) => ProbeReply::success(""),
        Ok(Err(text)) => ProbeReply::failure(text),
        Err(_) => ProbeReply::failure(format!("dial tcp {}: i/o timeout", join(host, port))),
    }
}
