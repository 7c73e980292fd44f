//! [`FleetRequests`]: the requests of a person to the API server, each sent once. Holds no rule. Called by the commands of the binary.

use std::collections::BTreeMap;

use cluster::ClusterClient;
use cluster::client::{Failure, failure, text, within};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::api::{FLEET, Fleet, GROUP_VERSION, ImageSet, NodeImages};

/// Name under which applied fields are owned.
const MANAGER: &str = "imagelet-fleet";
/// Name under which a pause is owned, so that it neither removes nor is removed by other fields that are applied.
const PAUSE: &str = "imagelet-fleet-pause";
/// Number of reports in one answer.
const PAGE: u32 = 500;

/// Failure of a request.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {}", text(source))]
pub struct RequestError {
    what: String,
    source: kube::Error,
}

impl RequestError {
    /// Returns how the request failed, as far as callers act differently.
    #[must_use]
    pub fn failure(&self) -> Failure {
        failure(&self.source)
    }

    /// Returns true if the server does not know the kinds of a fleet.
    #[must_use]
    pub fn is_not_installed(&self) -> bool {
        matches!(&self.source, kube::Error::Api(status) if status.code == 404)
    }

    /// Returns the fields that another manager owns, if that is why the request failed.
    #[must_use]
    pub fn conflicts(&self) -> Vec<FieldConflict> {
        let kube::Error::Api(status) = &self.source else { return Vec::new() };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        let conflicts = causes.filter(|cause| cause.reason == "FieldManagerConflict");
        conflicts
            .map(|cause| FieldConflict {
                field: cause.field.trim_start_matches('.').to_owned(),
                manager: cause.message.split('"').nth(1).unwrap_or(&cause.message).to_owned(),
            })
            .collect()
    }
}

/// A field that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldConflict {
    /// Path of the field.
    pub field: String,
    /// Name of its manager, such as `kubectl`.
    pub manager: String,
}

/// Change that an apply made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The object did not exist.
    Created,
    /// The object changed.
    Configured,
    /// The object had these values already.
    Unchanged,
}

impl Applied {
    /// Returns the word that kubectl prints.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
        }
    }
}

/// Facts about a Node by which sets select it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Time of its creation.
    pub created: Option<Timestamp>,
}

/// Sends the requests of a person.
#[derive(Clone, Debug)]
pub struct FleetRequests {
    client: ClusterClient,
}

impl FleetRequests {
    /// Creates requests over this client.
    #[must_use]
    pub fn new(client: ClusterClient) -> Self {
        Self { client }
    }

    /// Returns the client, for watches.
    #[must_use]
    pub fn client(&self) -> &ClusterClient {
        &self.client
    }

    /// Returns all sets, by name.
    pub async fn sets(&self) -> Result<Vec<ImageSet>, RequestError> {
        let list = within(self.sets_api().list(&ListParams::default())).await;
        let mut sets = list.map_err(|source| failed("list ImageSets", source))?.items;
        sets.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
        Ok(sets)
    }

    /// Returns a set; `None` if there is none of this name.
    pub async fn set(&self, name: &str) -> Result<Option<ImageSet>, RequestError> {
        let set = within(self.sets_api().get_opt(name)).await;
        set.map_err(|source| failed(format!("get ImageSet {name}"), source))
    }

    /// Returns the settings of the whole fleet, if there are any.
    pub async fn fleet(&self) -> Result<Option<Fleet>, RequestError> {
        let fleet = within(Api::<Fleet>::all(self.client.current()).get_opt(FLEET)).await;
        fleet.map_err(|source| failed("get the Fleet", source))
    }

    /// Returns the reports of all nodes; `None` if the user may not list them.
    pub async fn reports(&self) -> Result<Option<Vec<NodeImages>>, RequestError> {
        let api = Api::<NodeImages>::all(self.client.current());
        let mut parameters = ListParams::default().limit(PAGE);
        let mut reports = Vec::new();
        loop {
            match within(api.list(&parameters)).await {
                Ok(page) => {
                    reports.extend(page.items);
                    match page.metadata.continue_.filter(|token| !token.is_empty()) {
                        Some(token) => parameters.continue_token = Some(token),
                        None => return Ok(Some(reports)),
                    }
                }
                Err(error) if failure(&error) == Failure::Forbidden => return Ok(None),
                Err(source) => return Err(failed("list NodeImages", source)),
            }
        }
    }

    /// Returns the report of a node; `None` if it has none.
    pub async fn report(&self, node: &str) -> Result<Option<NodeImages>, RequestError> {
        let report = within(Api::<NodeImages>::all(self.client.current()).get_opt(node)).await;
        report.map_err(|source| failed(format!("get NodeImages {node}"), source))
    }

    /// Returns a node; `None` if there is none of this name.
    pub async fn node(&self, name: &str) -> Result<Option<NodeFacts>, RequestError> {
        let node = within(Api::<Node>::all(self.client.current()).get_opt(name)).await;
        let node = node.map_err(|source| failed(format!("get Node {name}"), source))?;
        Ok(node.map(|node| NodeFacts {
            name: node.metadata.name.unwrap_or_default(),
            labels: node.metadata.labels.unwrap_or_default(),
            created: node.metadata.creation_timestamp.map(|time| time.0),
        }))
    }

    /// Returns the names of all nodes.
    pub async fn node_names(&self) -> Result<Vec<String>, RequestError> {
        let list = within(Api::<Node>::all(self.client.current()).list_metadata(&ListParams::default())).await;
        let list = list.map_err(|source| failed("list Nodes", source))?;
        Ok(list.items.into_iter().filter_map(|node| node.metadata.name).collect())
    }

    /// Returns the minor version of the server's Kubernetes 1.
    pub async fn server_minor(&self) -> Result<u32, RequestError> {
        let version = within(self.client.current().apiserver_version()).await;
        let version = version.map_err(|source| failed("get the version of the server", source))?;
        // Vendors add a plus sign. An unknown form is a new one.
        Ok(version.minor.trim_end_matches('+').parse().unwrap_or(u32::MAX))
    }

    /// Applies an object on the server. `force` takes fields over from other managers; a dry run changes nothing.
    pub async fn apply(&self, object: &Value, force: bool, dry_run: bool) -> Result<Applied, RequestError> {
        let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        let what = format!("apply {kind} {name}");
        let api = self.api_of(object);
        let before = within(api.get_opt(&name)).await.map_err(|source| failed(&what, source))?;
        let mut parameters = PatchParams::apply(MANAGER);
        (parameters.force, parameters.dry_run) = (force, dry_run);
        let after = within(api.patch(&name, &parameters, &Patch::Apply(object))).await;
        let after = after.map_err(|source| failed(&what, source))?;
        let after = content(after);
        Ok(match before.map(content) {
            None => Applied::Created,
            Some(before) if before == after => Applied::Unchanged,
            Some(_) => Applied::Configured,
        })
    }

    /// Pauses or resumes a set. Returns `None` if there is no such set, and false if nothing changed.
    pub async fn pause_set(&self, name: &str, paused: bool) -> Result<Option<bool>, RequestError> {
        let Some(set) = self.set(name).await? else { return Ok(None) };
        if set.spec.rollout.paused == paused {
            return Ok(Some(false));
        }
        self.apply_pause("ImageSet", name, &json!({"rollout": {"paused": paused}})).await.map(|()| Some(true))
    }

    /// Pauses or resumes all sets. Returns false if nothing changed.
    pub async fn pause_all(&self, paused: bool) -> Result<bool, RequestError> {
        if self.fleet().await?.is_some_and(|fleet| fleet.spec.paused) == paused {
            return Ok(false);
        }
        self.apply_pause("Fleet", FLEET, &json!({"paused": paused})).await.map(|()| true)
    }

    async fn apply_pause(&self, kind: &str, name: &str, spec: &Value) -> Result<(), RequestError> {
        let patch = json!({"apiVersion": GROUP_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec});
        let parameters = PatchParams::apply(PAUSE).force();
        let patched = within(self.api_of(&patch).patch(name, &parameters, &Patch::Apply(&patch))).await;
        patched.map(drop).map_err(|source| failed(format!("change {kind} {name}"), source))
    }

    fn sets_api(&self) -> Api<ImageSet> {
        Api::all(self.client.current())
    }

    /// Returns the API of the object's kind, in its namespace if it has one.
    fn api_of(&self, object: &Value) -> Api<DynamicObject> {
        let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
        match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.client.current(), namespace, &resource),
            None => Api::all_with(self.client.current(), &resource),
        }
    }
}

/// Returns the parts of an object that people write: the server adds the others.
fn content(object: DynamicObject) -> (BTreeMap<String, String>, BTreeMap<String, String>, Value) {
    let DynamicObject { metadata, mut data, .. } = object;
    if let Some(data) = data.as_object_mut() {
        data.remove("status");
    }
    (metadata.labels.unwrap_or_default(), metadata.annotations.unwrap_or_default(), data)
}

fn failed(what: impl Into<String>, source: kube::Error) -> RequestError {
    RequestError { what: what.into(), source }
}
