//! The connection of a person to the API server: the credentials, and the words of failures. Called by the commands of this directory.

use std::path::PathBuf;

use cluster::ClusterClient;
use cluster::client::Failure as Cause;
use fleet::console::{FleetRequests, RequestError};

use crate::app::App;
use crate::config::Origin;
use crate::exit::{Code, Failure, Outcome};

/// Returns the requests of the user: with `--kubeconfig`, else the files of `$KUBECONFIG`, else `~/.kube/config`. A configuration file has
/// the identity of the node, which is not the user's.
pub(super) async fn requests(app: &App) -> Outcome<FleetRequests> {
    let is_of_node = matches!(app.config.origins.get("kubeconfig"), Some(Origin::File { .. }));
    let given = app.config.cluster.kubeconfig.as_ref().filter(|_| !is_of_node);
    let files = match (given, app.environment.kubeconfigs.as_slice()) {
        (Some(path), _) => vec![path.clone()],
        (None, []) => app.environment.home.iter().map(|home| home.join(".kube/config")).collect::<Vec<PathBuf>>(),
        (None, files) => files.to_vec(),
    };
    if !files.iter().any(|path| path.exists()) {
        let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
        let line = format!("no kubeconfig: {} does not exist (--kubeconfig names another one)", names.join(", "));
        return Err(Failure::new(Code::Config, line));
    }
    Ok(FleetRequests::new(ClusterClient::open_merged(&files).await?))
}

/// Words a failed request.
pub(super) fn failed(error: &RequestError) -> Failure {
    if error.is_not_installed() {
        let hint = "the kinds of a fleet are not installed: `imagelet fleet install`";
        return Failure::failed(format!("{error} ({hint})"));
    }
    let code = match error.failure() {
        Cause::Forbidden | Cause::Unauthorized => Code::NotPermitted,
        Cause::Unavailable | Cause::TooManyRequests => Code::Unreachable,
        _ => Code::Failed,
    };
    Failure::new(code, error.to_string())
}

/// Returns the failure for a set that does not exist.
pub(super) async fn no_set(requests: &FleetRequests, name: &str) -> Failure {
    let sets = requests.sets().await.unwrap_or_default();
    let names = sets.iter().filter_map(|set| set.metadata.name.as_deref());
    let hint = base::nearest(name, names)
        .map_or_else(|| "`imagelet fleet status` lists the sets".to_owned(), |near| format!("did you mean {near}?"));
    Failure::failed(format!("there is no ImageSet {name}; {hint}"))
}
