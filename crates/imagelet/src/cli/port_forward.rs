//! `imagelet port-forward`: listens on this machine, and forwards each connection through the runtime to a port of a pod. Asks the runtime
//! and no agent. Ends when the pod ends, or when it is asked to.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use cluster::kubelet_api::StreamAddress;
use cri_api::RuntimeService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::target::{FoundPod, PodName, runtime};
use crate::app::App;
use crate::args::{PortForward, Ports};
use crate::exit::{Code, Failure, Outcome, chain};
use crate::streaming::connect;
use crate::streaming::port_forward::{ForwardError, PROTOCOLS, run as carry};

/// A pod whose ports are forwarded.
struct Forward {
    runtime: Arc<dyn RuntimeService>,
    sandbox: String,
    title: String,
}

pub(super) async fn run(app: &App, args: &PortForward) -> Outcome {
    let name = PodName::parse(&args.pod.pod, args.pod.namespace.as_deref())?;
    let runtime = runtime(app).await?;
    let found = FoundPod::find(runtime.as_ref(), &name).await?;
    let (sandbox, title) = (found.ready_sandbox()?.id.clone(), found.known.title());
    let forward = Arc::new(Forward { runtime, sandbox, title });
    let mut listeners = Vec::new();
    for ports in &args.ports {
        for (listener, at) in listen(*ports, &args.address).await? {
            app.printer.lines([format!("Forwarding from {at} -> {}", ports.remote)])?;
            listeners.push((listener, ports.remote));
        }
    }
    let (tasks, stop) = (TaskTracker::new(), app.stop.child_token());
    let (pod_ended, mut ended_receiver) = mpsc::channel(1);
    for (listener, port) in listeners {
        tasks.spawn(accept(Arc::clone(&forward), listener, port, tasks.clone(), stop.clone(), pod_ended.clone()));
    }
    let ended = tokio::select! {
        () = stop.cancelled() => Ok(()),
        Some(failure) = ended_receiver.recv() => Err(failure),
    };
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    ended
}

/// Listens on one port: by default on both loopback addresses, of which one is enough.
async fn listen(ports: Ports, addresses: &[IpAddr]) -> Outcome<Vec<(TcpListener, SocketAddr)>> {
    let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let chosen = if addresses.is_empty() { &loopback[..] } else { addresses };
    let (mut bound, mut failures, mut port) = (Vec::new(), Vec::new(), ports.local);
    for address in chosen {
        let at = SocketAddr::new(*address, port);
        match bind(at).await {
            Ok((listener, at)) => {
                // If any port will do, use the same one on every address.
                port = at.port();
                bound.push((listener, at));
            }
            Err(error) => failures.push(Failure::caused(Code::Failed, format!("listen on {at}"), &error)),
        }
    }
    match Failure::all(failures) {
        Some(failure) if bound.is_empty() || !addresses.is_empty() => Err(failure),
        Some(failure) => {
            tracing::debug!(error = failure.lines().join("; "), "not every address can be listened on");
            Ok(bound)
        }
        None => Ok(bound),
    }
}

async fn bind(at: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(at).await?;
    let at = listener.local_addr()?;
    Ok((listener, at))
}

async fn accept(
    forward: Arc<Forward>,
    listener: TcpListener,
    port: u16,
    tasks: TaskTracker,
    stop: CancellationToken,
    pod_ended: mpsc::Sender<Failure>,
) {
    loop {
        let client = tokio::select! {
            () = stop.cancelled() => return,
            client = listener.accept() => client,
        };
        let client = match client {
            Ok((client, _)) => client,
            Err(error) => {
                // Most likely too many open files, which is temporary.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        tracing::debug!(port, "connection");
        let (forward, stop, pod_ended) = (Arc::clone(&forward), stop.clone(), pod_ended.clone());
        tasks.spawn(async move {
            let carried = tokio::select! {
                () = stop.cancelled() => return,
                carried = forward.carry(client, port) => carried,
            };
            if let Err(failure) = carried {
                match forward.has_ended().await {
                    true => {
                        let _ = pod_ended.try_send(Failure::failed(format!("pod {} runs no longer", forward.title)));
                    }
                    false => tracing::warn!(port, error = failure.lines().join("; "), "connection failed"),
                }
            }
        });
    }
}

impl Forward {
    /// Forwards one connection. The runtime accepts each URL once, so each connection requests its own.
    async fn carry(&self, client: TcpStream, port: u16) -> Outcome {
        let url = self.runtime.port_forward(&self.sandbox, &[port]).await;
        let url = url.map_err(|error| Failure::call(format!("forward to port {port}"), &error))?;
        let session = connect(&StreamAddress::parse(&url)?, &PROTOCOLS).await?;
        let _ = client.set_nodelay(true);
        let (reader, writer) = client.into_split();
        carry(session, port, reader, writer).await.map_err(|error: ForwardError| {
            Failure::failed(format!("forward to port {port} of pod {}: {}", self.title, chain(&error)))
        })
    }

    /// Returns true if the sandbox no longer exists. If the runtime does not answer, it is assumed to exist.
    async fn has_ended(&self) -> bool {
        match self.runtime.pod_sandbox_status(&self.sandbox, false).await {
            Ok(status) => !status.ready,
            Err(error) => error.kind() == cri_api::Kind::NotFound,
        }
    }
}
