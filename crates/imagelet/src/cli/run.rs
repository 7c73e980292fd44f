//! `imagelet run`: pods from manifests, kept running until a signal comes.

use std::sync::Arc;

use kuberuntime::Documents;
use kuberuntime::sources::DesiredPods;
use kuberuntime::sync::PodCredentials;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use crate::admin::{Admin, Places};
use crate::app::App;
use crate::args::Run;
use crate::exit::{Failure, Outcome};
use crate::node::lock::PodsLock;
use crate::node::notify::Notify;
use crate::node::{self, Node, Wanted};

pub(super) async fn run(app: &App, args: &Run) -> Outcome {
    if !args.files.is_empty() {
        return Err(Failure::failed("-f is not there yet"));
    }
    let _lock = PodsLock::take(&app.config.root)?;
    let (_keeps, desired) = watch::channel(DesiredPods::default());
    let wanted = Wanted {
        stays: true,
        desired,
        credentials: Arc::new(|_| PodCredentials::default()),
        documents: Arc::new(|_| Documents::default()),
    };
    let node = match Node::new(app, wanted).await {
        // It was asked to end while it waited for the runtime.
        Err(_) if app.stop.is_cancelled() => return Ok(()),
        made => made?,
    };
    let registered = |registry: &mut Registry| node.collection.register(registry);
    let admin = Admin::new(registered, app.service().await?).with_collection(Arc::clone(&node.collection));
    let admin = admin.start(&Places::of(&app.config), &app.stop).await?;
    let notify = Notify::of(&app.environment);
    notify.ready();
    let (tasks, stop) = (TaskTracker::new(), app.stop.child_token());
    node::keep(app, &node, &stop).await;
    notify.stopping();
    admin.stop().await;
    tasks.close();
    tasks.wait().await;
    Ok(())
}
