//! The commands, one file each: they call the image service, and report the result. Decisions about images are made elsewhere. Called by
//! `main`.

mod backoff;
mod cat;
mod check;
pub(crate) mod completion;
pub(crate) mod config;
mod convert;
mod cp;
mod describe;
mod df;
mod doctor;
mod ensure;
mod events;
mod exec;
mod exists;
mod explain;
mod explain_credentials;
mod export;
pub(crate) mod fleet;
mod gc;
mod gc_containers;
mod gc_explain;
mod gc_interrupted;
mod history;
mod image_filter;
mod images;
mod import;
mod inspect;
mod load;
mod login;
mod logs;
mod ls;
pub(crate) mod man;
mod manifest_files;
mod metrics;
mod mount;
mod mounts;
mod names;
mod not_started;
mod pins;
mod pod_list;
mod podman_store;
mod pods;
mod port_forward;
mod prune;
mod pull;
mod push;
mod registry;
mod rmi;
mod run;
mod run_dry;
mod run_foreground;
mod save;
mod serve;
mod status;
mod tags;
pub(crate) mod target;
mod top;
mod tree;
mod typed_credential;
pub(crate) mod version;
mod wait;
mod watch;

use crate::app::App;
use crate::args::Command;
use crate::exit::Outcome;

/// Runs one command.
pub(crate) async fn run(app: &App, command: &Command) -> Outcome {
    match command {
        Command::Ensure(args) => ensure::run(app, args).await,
        Command::Pull(args) => pull::run(app, args).await,
        Command::Images(args) => images::run(app, args).await,
        Command::Exists(args) => exists::run(app, args).await,
        Command::Tags(args) => tags::run(app, args).await,
        Command::Inspect(args) => inspect::run(app, args).await,
        Command::Rmi(args) => rmi::run(app, args).await,
        Command::Df => df::run(app).await,
        Command::Gc(args) => gc::run(app, args).await,
        Command::Pin(args) => pins::pin(app, args).await,
        Command::Unpin(args) => pins::unpin(app, args).await,
        Command::Pins => pins::list(app).await,
        Command::Status => status::run(app).await,
        Command::Doctor(args) => doctor::run(app, args).await,
        Command::Check(args) => check::run(app, args).await,
        Command::Convert(args) => convert::run(app, args).await,
        Command::Mount(args) => mount::mount(app, args).await,
        Command::Unmount(args) => mount::unmount(args).await,
        Command::Mounts(args) => mounts::run(app, args),
        Command::Ls(args) => ls::run(app, args).await,
        Command::Cat(args) => cat::run(app, args).await,
        Command::Cp(args) => cp::run(app, args).await,
        Command::PodmanStore(args) => podman_store::run(app, args).await,
        Command::Explain(args) => explain::run(app, args).await,
        Command::Run(args) => run::run(app, args).await,
        Command::Pods(args) => pod_list::run(app, args).await,
        Command::Describe(args) => describe::run(app, args).await,
        Command::Events(args) => events::run(app, args).await,
        Command::Logs(args) => logs::run(app, args).await,
        Command::Exec(args) => exec::exec(app, args).await,
        Command::Attach(args) => exec::attach(app, args).await,
        Command::PortForward(args) => port_forward::run(app, args).await,
        Command::Serve(_) => serve::run(app).await,
        Command::Fleet(args) => fleet::run(app, args).await,
        Command::Registry(args) => registry::run(app, args).await,
        Command::Import(args) => import::run(app, args).await,
        Command::Export(args) => export::run(app, args).await,
        Command::Push(args) => push::run(app, args).await,
        Command::Tag(args) => names::tag(app, args).await,
        Command::Untag(args) => names::untag(app, args).await,
        Command::History(args) => history::run(app, args).await,
        Command::Prune(args) => prune::run(app, args).await,
        Command::Login(args) => login::login(app, args).await,
        Command::Logout(args) => login::logout(app, args).await,
        Command::Save(args) => save::run(app, args).await,
        Command::Load(args) => load::run(app, args).await,
        Command::Backoff(args) => backoff::run(app, args).await,
        Command::Top => top::run(app).await,
        Command::Metrics => metrics::run(app).await,
        Command::Completion(args) => completion::run(app.printer, args),
        Command::Version => version::run(app.printer),
        Command::Config(args) => config::run(app, args),
        Command::Man(args) => man::run(app.printer, args),
        Command::Settings(_) => app.printer.lines([crate::args::whole::settings_help().trim_end()]),
    }
}
