//! [`tcp`]: whether a port takes connections. Says nothing over the connection.

use std::time::Duration;

use crate::Said;
use crate::dial::{dial, join};

/// Connects, and closes the connection.
pub async fn tcp(host: &str, port: u16, timeout: Duration) -> Said {
    match tokio::time::timeout(timeout, dial(host, port)).await {
        Ok(Ok(_connection)) => Said::success(""),
        Ok(Err(text)) => Said::failure(text),
        Err(_) => Said::failure(format!("dial tcp {}: i/o timeout", join(host, port))),
    }
}
