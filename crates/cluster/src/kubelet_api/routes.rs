//! Requests and their answers. A request is parsed once into a [route](crate::kubelet_api::route); a malformed path is answered with 404 without
//! a check of access. Every other request passes the [gate](crate::kubelet_api::access) with the access of its route, also for a path that is
//! not served.

use std::sync::Arc;

use cri_api::{ContainerStats, Error, Kind, PodSandboxFilter, PodSandboxMetadata, PodSandboxStats, RuntimeService};
use http::{Request, StatusCode};
use hyper::body::Incoming;
use jiff::Timestamp;
use kuberuntime::labels;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::kubelet_api::access::{Gate, Refusal};
use crate::kubelet_api::answer::{self, Answer};
use crate::kubelet_api::authority::Identity;
use crate::kubelet_api::machine::MachineUsage;
use crate::kubelet_api::parts::Parts;
use crate::kubelet_api::port::Client;
use crate::kubelet_api::route::{ContainerPath, PodPath, Route, Target};
use crate::kubelet_api::summary::Summary;
use crate::kubelet_api::{logs, pods, query, streams};

const PLAIN: &str = "text/plain; charset=utf-8";
/// The type of metrics as text.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers requests.
pub(crate) struct Routes {
    pub(crate) parts: Parts,
    pub(crate) gate: Gate,
    pub(crate) tracker: TaskTracker,
    pub(crate) stop: CancellationToken,
    pub(crate) started: Timestamp,
}

/// The client of a connection, and the subject of its certificate.
pub(crate) struct Asker {
    pub(crate) client: Arc<Client>,
    pub(crate) certified: Option<Identity>,
}

impl Routes {
    /// Answers a request.
    pub(crate) async fn answer(&self, asker: &Asker, request: Request<Incoming>) -> Answer {
        let Some(route) = Route::parse(request.method(), request.uri().path()) else {
            return not_found().answer();
        };
        let answered = async {
            let identity = self.gate.authenticate(asker.certified.as_ref(), request.headers()).await?;
            if !asker.client.authenticate() {
                let text = "too many clients are connected\n".to_owned();
                return Err(Refusal(StatusCode::SERVICE_UNAVAILABLE, text));
            }
            self.gate.authorize(&identity, &route.access).await?;
            tracing::debug!(user = identity.name, method = %request.method(), path = request.uri().path(), "a request");
            self.dispatch(route.target, request).await
        };
        answered.await.unwrap_or_else(Refusal::answer)
    }

    async fn dispatch(&self, target: Target, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let query = request.uri().query().unwrap_or_default().to_owned();
        match target {
            Target::Health => match (self.parts.healthy)() {
                Ok(()) => Ok(answer::text(StatusCode::OK, PLAIN, "ok")),
                Err(why) => Err(Refusal(StatusCode::INTERNAL_SERVER_ERROR, why)),
            },
            Target::Pods => Ok(answer::json(&(self.parts.pods)())),
            Target::Configuration => {
                Ok(answer::json(&serde_json::json!({"imageletconfig": (self.parts.configuration)()})))
            }
            Target::Metrics => Ok(answer::text(StatusCode::OK, METRICS, (self.parts.metrics)())),
            Target::ResourceMetrics => Ok(answer::text(StatusCode::OK, METRICS, self.summary().await?.metrics())),
            Target::Summary => Ok(answer::json(&self.summary().await?.value())),
            Target::Logs(ContainerPath { pod, container }) => {
                let query = query::logs(&query, Timestamp::now())?;
                let id = self.pod(&pod, |pod| pods::logged(pod, &container, query.previous))?;
                let runtime = Arc::clone(&self.parts.runtime);
                logs::send(runtime, id, query, (&self.tracker, self.stop.clone())).await
            }
            Target::Exec(ContainerPath { pod, container }) => {
                streams::must_upgrade(request.headers())?;
                let id = self.pod(&pod, |pod| pods::running(pod, &container))?;
                let url = self.parts.runtime.exec(&query::exec(&query, id)?).await.map_err(failed)?;
                self.connect(request, &url).await
            }
            Target::Attach(ContainerPath { pod, container }) => {
                streams::must_upgrade(request.headers())?;
                let id = self.pod(&pod, |pod| pods::running(pod, &container))?;
                let url = self.parts.runtime.attach(&query::attach(&query, id)?).await.map_err(failed)?;
                self.connect(request, &url).await
            }
            Target::PortForward(pod) => {
                streams::must_upgrade(request.headers())?;
                let ports = query::ports(&query)?;
                let uid = self.pod(&pod, |pod| Ok(pods::uid(pod).to_owned()))?;
                let sandbox = self.sandbox(&uid).await?;
                let url = self.parts.runtime.port_forward(&sandbox, &ports).await.map_err(failed)?;
                self.connect(request, &url).await
            }
            Target::OtherMethod => Err(Refusal(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed".to_owned())),
            Target::Unknown => Err(not_found()),
        }
    }

    async fn connect(&self, request: Request<Incoming>, url: &str) -> Result<Answer, Refusal> {
        streams::connect(request, url, (&self.tracker, self.stop.clone())).await
    }

    fn pod<T>(&self, path: &PodPath, of: impl FnOnce(&serde_json::Value) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let list = (self.parts.pods)();
        of(pods::find(&list, path)?)
    }

    /// Returns the ID of the ready sandbox of a pod.
    async fn sandbox(&self, uid: &str) -> Result<String, Refusal> {
        let filter = PodSandboxFilter {
            labels: [(labels::POD_UID.to_owned(), uid.to_owned())].into(),
            ..PodSandboxFilter::default()
        };
        let listed = self.parts.runtime.list_pod_sandboxes(Some(&filter)).await.map_err(failed)?;
        let ready = listed.into_iter().find(|sandbox| sandbox.ready);
        ready.map(|sandbox| sandbox.id).ok_or_else(|| Refusal(StatusCode::NOT_FOUND, "pod does not run".to_owned()))
    }

    async fn summary(&self) -> Result<Summary, Refusal> {
        let by_pod = pod_stats(&*self.parts.runtime).await.map_err(failed)?;
        let machine = base::blocking(|| MachineUsage::read(Timestamp::now())).await.unwrap_or_default();
        let node = self.parts.node.clone();
        let running = pods::started(&(self.parts.pods)());
        Ok(Summary { node, started: self.started, machine, pods: by_pod, running })
    }
}

/// Returns the resource usage of pods. If the runtime has no statistics of pods, those of containers are used; containerd 1.6
/// has none while any sandbox has ended.
async fn pod_stats(runtime: &dyn RuntimeService) -> cri_api::Result<Vec<PodSandboxStats>> {
    let listed = match runtime.list_pod_sandbox_stats(None).await {
        Ok(pods) => return Ok(pods),
        Err(error) => error,
    };
    tracing::debug!(error = listed.message(), "the runtime has no statistics by pods");
    Ok(by_pod(runtime.list_container_stats(None).await?))
}

fn by_pod(containers: Vec<ContainerStats>) -> Vec<PodSandboxStats> {
    let mut pods: Vec<PodSandboxStats> = Vec::new();
    for container in containers {
        let label = |name: &str| container.attributes.labels.get(name).cloned().unwrap_or_default();
        let uid = label(labels::POD_UID);
        let metadata = PodSandboxMetadata {
            name: label(labels::POD_NAME),
            namespace: label(labels::POD_NAMESPACE),
            uid: uid.clone(),
            attempt: 0,
        };
        if uid.is_empty() {
            continue;
        }
        let index = pods.iter().position(|pod| pod.attributes.metadata.uid == uid).unwrap_or_else(|| {
            let mut pod = PodSandboxStats::default();
            pod.attributes.metadata = metadata;
            pods.push(pod);
            pods.len() - 1
        });
        pods[index].containers.push(container);
    }
    pods
}

fn not_found() -> Refusal {
    Refusal(StatusCode::NOT_FOUND, "404 page not found\n".to_owned())
}

/// Returns the refusal for a failure of the runtime.
fn failed(error: Error) -> Refusal {
    let status = match error.kind() {
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Refusal(status, error.to_string())
}
