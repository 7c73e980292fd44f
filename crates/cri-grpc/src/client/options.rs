//! [`ClientOptions`]: timeouts and limits of the client. Defaults are those of the kubelet's client.

use std::time::Duration;

use crate::MAX_MESSAGE_BYTES;

/// How the client behaves. The default is the kubelet's.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Time for every call but PullImage, and for a whole streamed list (`runtimeRequestTimeout`): 2 minutes.
    pub request_timeout: Duration,
    /// Time for the peer to take the connection and to say its first word: 5 seconds.
    pub connect_timeout: Duration,
    /// How long to keep trying if nothing answers at first. Zero, the default: fail at once.
    pub wait: Duration,
    /// Pauses between attempts to connect. A call during a pause fails at once with the last attempt's error.
    pub backoff: ConnectBackoff,
    /// Largest message that is accepted: 16 MiB.
    pub max_message_bytes: usize,
    /// Ask for lists as streams, falling back for good where the peer does not know them: true.
    pub stream_lists: bool,
    /// Sent with every call.
    pub user_agent: String,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(120),
            connect_timeout: Duration::from_secs(5),
            wait: Duration::ZERO,
            backoff: ConnectBackoff::default(),
            max_message_bytes: MAX_MESSAGE_BYTES,
            stream_lists: true,
            user_agent: concat!("imagelet/", env!("CARGO_PKG_VERSION")).into(),
        }
    }
}

/// Exponential pauses between attempts to connect.
#[derive(Clone, Copy, Debug)]
pub struct ConnectBackoff {
    /// The first pause: 100 ms.
    pub base: Duration,
    /// The longest pause: 3 s.
    pub max: Duration,
    /// Growth per failure: 1.6.
    pub multiplier: f64,
    /// Share of the pause by which it may be longer or shorter: 0.2.
    pub jitter: f64,
}

impl Default for ConnectBackoff {
    fn default() -> Self {
        Self { base: Duration::from_millis(100), max: Duration::from_secs(3), multiplier: 1.6, jitter: 0.2 }
    }
}

impl ConnectBackoff {
    /// Returns the pause after a number of failures in a row. `random` is in 0 to 1.
    pub(super) fn pause(&self, failures: u32, random: f64) -> Duration {
        let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        let grown = self.base.as_secs_f64() * self.multiplier.powi(exponent);
        let capped = grown.min(self.max.as_secs_f64());
        Duration::try_from_secs_f64(capped * (1.0 + self.jitter * (2.0 * random - 1.0))).unwrap_or(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_limit_and_jitter() {
        let backoff = ConnectBackoff::default();
        let millis = |failures, random| backoff.pause(failures, random).as_millis();
        let middle: Vec<_> = (1..=10).map(|n| millis(n, 0.5)).collect();
        assert_eq!(middle, [100, 160, 256, 409, 655, 1048, 1677, 2684, 3000, 3000]);
        assert_eq!((millis(1, 0.0), millis(1, 1.0)), (80, 120));
        assert_eq!((millis(u32::MAX, 0.0), millis(u32::MAX, 1.0)), (2400, 3600));
        assert_eq!(millis(0, 0.5), 100);
    }
}
