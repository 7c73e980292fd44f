//! The reload of the configuration on SIGHUP: reads it again, passes the settings that can change at run time to the parts that use them,
//! and logs every change. An invalid configuration changes nothing. Decides nothing about images. Called by `run` and `serve`.

use agent::collection::Collection;
use agent::node::notify::Notify;
use image_manager::PullRecords;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::config::Config;
use crate::config::reload::reload;
use crate::exit::{Code, Failure, Outcome};
use crate::manager::{Managed, collection, policy};

/// The signal that asks for a reload. Once there is a listener, it no longer ends the process.
pub(crate) struct ReloadSignal(Signal);

impl ReloadSignal {
    /// Starts to listen.
    pub(crate) fn listen() -> Outcome<Self> {
        signal(SignalKind::hangup()).map(Self).map_err(|error| Failure::caused(Code::Failed, "signals", &error))
    }

    /// Reloads at each signal until `stop`. `status` is sent to systemd afterwards.
    pub(crate) async fn keep(
        mut self,
        (app, stop): (&App, &CancellationToken),
        users: Users<'_>,
        notify: &Notify,
        status: &str,
    ) {
        while stop.run_until_cancelled(self.0.recv()).await.flatten().is_some() {
            notify.reloading();
            if let Err(failure) = users.reload(app).await {
                for error in failure.lines() {
                    tracing::error!(error, "configuration is not reloaded, the one before stays in force");
                }
            }
            notify.ready(status);
        }
    }
}

/// The parts of the process that use the configuration.
pub(crate) struct Users<'a> {
    /// The image managers.
    pub(crate) managed: Vec<&'a Managed>,
    pub(crate) records: Option<PullRecords>,
    pub(crate) collection: &'a Collection,
}

impl Users<'_> {
    async fn reload(&self, app: &App) -> Outcome {
        let (Some(source), environment) = (app.source(), app.environment.clone()) else { return Ok(()) };
        let read = tokio::task::spawn_blocking(move || source.load(&environment)).await;
        let read = read.map_err(|_| Failure::failed("read the configuration: the reader panicked"))??;
        let reload = reload(&app.in_force(), read);
        self.adopt(app, &reload.config)?;
        for change in &reload.changed {
            let (old, new) = (or_none(&change.old), or_none(&change.new));
            tracing::info!("configuration: {}: {old} → {new}", change.field);
        }
        for change in &reload.pending {
            let (old, new) = (or_none(&change.old), or_none(&change.new));
            tracing::warn!("configuration: {}: {old} → {new} needs a restart", change.field);
        }
        let (changed, pending) = (reload.changed.len(), reload.pending.len());
        app.put_in_force(reload.config);
        tracing::info!(changed, pending, "configuration reloaded");
        Ok(())
    }

    /// Applies the configuration to all parts, or to none.
    fn adopt(&self, app: &App, config: &Config) -> Outcome {
        let policy = policy(config)?;
        if let Some(records) = &self.records {
            records.set_policy(policy);
        }
        for managed in &self.managed {
            managed.adopt(config, &app.environment);
        }
        let containers = collection::of_containers(config).policy;
        self.collection.adopt_rules(collection::of_images(config, self.collection.images()), containers);
        app.network.bandwidth.set_rate(config.pulls.bandwidth);
        Ok(())
    }
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}
