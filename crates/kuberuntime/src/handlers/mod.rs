//! [`Handlers`]: what is done to a container from outside, by a hook or by a probe: a program in it, a request over HTTP, a
//! connection, a request over gRPC, a pause. Decides nothing from the answers.

mod exec;
mod target;

use std::sync::Arc;
use std::time::Duration;

use cri_api::RuntimeService;

use crate::pod::{HTTPGetAction, IntOrString, LifecycleHandler, Probe, Scheme, Word as _};
use crate::probe::{self, HttpGet, ProbeOutcome, ProbeReply};
pub(crate) use target::HandlerTarget;
use target::HostPort;

/// Maximum number of attempts of a call that the runtime does not accept.
const ATTEMPTS: usize = 3;

/// Runs hooks and asks probes.
pub struct Handlers {
    runtime: Arc<dyn RuntimeService>,
}

/// Failure of a hook, as a whole sentence for the log. The event only reports that the hook failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct HookError(pub(crate) String);

impl Handlers {
    /// Over this runtime.
    #[must_use]
    pub fn new(runtime: Arc<dyn RuntimeService>) -> Self {
        Self { runtime }
    }

    /// Runs a hook to its end, or until `limit` has passed. Dropping the future abandons the hook; a program of the
    /// hook then keeps running until the limit, or the container, ends.
    ///
    /// # Errors
    /// The hook failed, or took too long.
    pub(crate) async fn run_hook(
        &self,
        handler: &LifecycleHandler,
        target: &HandlerTarget<'_>,
        limit: Option<Duration>,
    ) -> Result<(), HookError> {
        let run = self.run(handler, target, limit);
        let outcome = match limit {
            None => run.await,
            Some(limit) => tokio::time::timeout(limit, run)
                .await
                .unwrap_or_else(|_| Err(format!("error: not completed within {}s", limit.as_secs_f64()))),
        };
        outcome.map_err(|text| {
            let what = match handler {
                LifecycleHandler { exec: Some(exec), .. } => {
                    format!("Exec lifecycle hook ([{}])", exec.command.as_deref().unwrap_or_default().join(" "))
                }
                LifecycleHandler { http_get: Some(http), .. } => {
                    format!("HTTP lifecycle hook ({})", http.path.as_deref().unwrap_or_default())
                }
                LifecycleHandler { sleep: Some(sleep), .. } => format!("Sleep lifecycle hook ({})", sleep.seconds),
                _ => "Lifecycle hook".to_owned(),
            };
            HookError(format!("{what} for Container {:?} in Pod {:?} failed - {text}", target.name, target.pod))
        })
    }

    async fn run(
        &self,
        handler: &LifecycleHandler,
        target: &HandlerTarget<'_>,
        limit: Option<Duration>,
    ) -> Result<(), String> {
        match handler {
            LifecycleHandler { exec: Some(exec), .. } => {
                let command = exec.command.as_deref().unwrap_or_default();
                exec::hook(&*self.runtime, target.container_id, command, limit).await
            }
            LifecycleHandler { http_get: Some(http), .. } => {
                hook_http(http, target).await.map_err(|e| format!("error: {e}"))
            }
            LifecycleHandler { sleep: Some(sleep), .. } => {
                tokio::time::sleep(Duration::from_secs(sleep.seconds.max(0).unsigned_abs())).await;
                Ok(())
            }
            // Validation lets none of them pass.
            _ => Err("error: invalid handler: it is neither exec, httpGet nor sleep".to_owned()),
        }
    }

    /// Runs a probe once, within its own timeout, and returns its outcome and output. If the runtime does not accept the call, it is
    /// repeated at once, at most twice.
    pub(crate) async fn ask(&self, probe: &Probe, target: &HandlerTarget<'_>) -> (ProbeOutcome, String) {
        let timeout = Duration::from_secs(u64::from(probe.timeout_seconds.unwrap_or(1).max(1).unsigned_abs()));
        if let Some(exec) = &probe.exec {
            let written = exec.command.as_deref().unwrap_or_default();
            let command = exec::expanded(written, target.env);
            let ask = || exec::ask(&*self.runtime, target.container_id, written, &command, timeout);
            let mut asked = ask().await;
            for _ in 1..ATTEMPTS {
                if asked.again {
                    asked = ask().await;
                }
            }
            return (asked.answer, asked.text);
        }
        match over_network(probe, target, timeout).await {
            Ok(said) => (said.outcome, said.text),
            Err(text) => (ProbeOutcome::Unknown, text),
        }
    }
}

/// Runs a handler that does not go through the runtime.
///
/// # Errors
/// The handler's host or port cannot be determined.
async fn over_network(probe: &Probe, target: &HandlerTarget<'_>, timeout: Duration) -> Result<ProbeReply, String> {
    if let Some(http) = &probe.http_get {
        let HostPort { host, port } = HostPort::of(http.host.as_deref(), &http.port, target)?;
        let headers = headers(http);
        let get = HttpGet { timeout: Some(timeout), ..request(http, host, port, &headers, "probe") };
        Ok(probe::ask_http(&get).await)
    } else if let Some(tcp) = &probe.tcp_socket {
        let HostPort { host, port } = HostPort::of(tcp.host.as_deref(), &tcp.port, target)?;
        Ok(probe::tcp(host, port, timeout).await)
    } else if let Some(grpc) = &probe.grpc {
        let HostPort { host, port } = HostPort::of(None, &IntOrString::Int(grpc.port), target)?;
        Ok(probe::grpc(host, port, grpc.service.as_deref().unwrap_or_default(), timeout).await)
    } else {
        Err(format!("missing probe handler for {}:{}", target.pod, target.name))
    }
}

fn headers(http: &HTTPGetAction) -> Vec<(&str, &str)> {
    http.http_headers.iter().flatten().map(|header| (&*header.name, &*header.value)).collect()
}

fn request<'a>(
    http: &'a HTTPGetAction,
    host: &'a str,
    port: u16,
    headers: &'a [(&'a str, &'a str)],
    purpose: &'a str,
) -> HttpGet<'a> {
    let tls = Scheme::of(http.scheme.as_deref()) == Some(Scheme::Https);
    HttpGet { tls, host, port, path: http.path.as_deref().unwrap_or_default(), headers, purpose, timeout: None }
}

/// Runs an HTTP hook. As in the kubelet, any response is a success, and a server without TLS is requested again without it and
/// without credentials.
async fn hook_http(http: &HTTPGetAction, target: &HandlerTarget<'_>) -> Result<(), String> {
    let HostPort { host, port } = HostPort::of(http.host.as_deref(), &http.port, target)?;
    let mut headers = headers(http);
    let error = match probe::http_get(&request(http, host, port, &headers, "lifecycle")).await {
        Ok(reply) => return check_status(&reply, target),
        Err(error) => error,
    };
    if !error.not_tls {
        return Err(error.text);
    }
    tracing::warn!(
        pod = target.pod,
        container = target.name,
        "HTTPS request to lifecycle hook got HTTP response, retrying with HTTP"
    );
    headers.retain(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
    let plain = HttpGet { tls: false, ..request(http, host, port, &headers, "lifecycle") };
    match probe::http_get(&plain).await {
        Ok(reply) => check_status(&reply, target),
        // What was asked for did not work either.
        Err(_) => Err(error.text),
    }
}

fn check_status(reply: &probe::HttpReply, target: &HandlerTarget<'_>) -> Result<(), String> {
    if reply.status >= 400 {
        let HandlerTarget { pod, name, .. } = target;
        tracing::warn!(pod, container = name, status = reply.status, "hook got an error status");
    }
    Ok(())
}

#[cfg(test)]
#[path = "../handlers_tests.rs"]
mod tests;
