//! The binary: reads the command line, the environment and the configuration, starts log and signals, runs one command
//! and ends with its exit code. Holds no rule of its own; the commands are in [`cli`].

mod access;
#[cfg(target_env = "gnu")]
mod allocator;
mod app;
mod args;
mod cli;
mod config;
mod config_source;
mod endpoint;
mod environment;
mod exit;
mod follow;
mod images;
mod layout_registry;
mod logging;
mod manager;
mod memory;
#[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
mod name_service;
mod output;
mod pods;
mod progress;
mod runtime;
mod sandbox_image;
mod signals;
mod streaming;
mod traces;
mod wiring;

use std::ffi::OsString;
use std::os::unix::net::UnixListener;
use std::process::ExitCode;

use tokio_util::task::TaskTracker;
use tracing_subscriber::filter::LevelFilter;

use access::Access;
use app::App;
use args::{Cli, Command};
use config::names::UnknownVariables;
use config::{Config, LogFormat};
use config_source::ConfigSource;
use environment::Environment;
use exit::{Code, Failure, Outcome};
use logging::Stderr;
use progress::Progress;
use signals::Signals;
use traces::Traces;

fn main() -> ExitCode {
    #[cfg(target_env = "gnu")]
    allocator::return_large_blocks();
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    name_service::use_built_in();
    let words: Vec<OsString> = std::env::args_os().collect();
    match cli::completion::answer(&words) {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => error.exit(),
    }
    let cli = args::whole::read(&words);
    // There is no log yet.
    let end_early = |outcome| end(outcome, LogFormat::Text, &Stderr::default());
    if let Some(outcome) = run_without_configuration(&cli) {
        return end_early(outcome);
    }
    let process = match Process::read(&cli) {
        Ok(process) => process,
        Err(failure) => return end_early(Err(failure)),
    };
    if let Command::Config(args) = &cli.command
        && let Some(outcome) =
            cli::config::run_alone(args, cli.global.config(), cli.global.printer(), &process.environment)
    {
        return end_early(outcome);
    }
    let source = ConfigSource::of(&cli);
    match source.load(&process.environment) {
        Ok(config) => run_command(&cli, process, source, config),
        Err(error) => end_early(Err(error.into())),
    }
}

/// Runs a command that needs no configuration, and must work where everything else fails.
fn run_without_configuration(cli: &Cli) -> Option<Outcome> {
    let printer = cli.global.printer();
    match &cli.command {
        Command::Completion(args) => Some(cli::completion::run(printer, args)),
        Command::Man(args) => Some(cli::man::run(printer, args)),
        Command::Settings(_) => Some(printer.lines([args::whole::settings_help().trim_end()])),
        Command::Version => Some(cli::version::run(printer)),
        Command::Fleet(args) => cli::fleet::run_without_configuration(printer, args),
        _ => None,
    }
}

/// The state that the process was started with, besides its arguments.
struct Process {
    /// Sockets that systemd passed.
    sockets: Vec<UnixListener>,
    environment: Environment,
    variables: UnknownVariables,
}

impl Process {
    /// Reads the state, and protects the memory of the process before anything secret is read.
    fn read(cli: &Cli) -> Outcome<Self> {
        memory::keep_to_itself()?;
        let sockets = match &cli.command {
            Command::Serve(_) | Command::Run(_) => Environment::take_sockets(),
            _ => Ok(Vec::new()),
        };
        let sockets = sockets.map_err(|error| Failure::caused(Code::Config, "sockets of systemd", &error))?;
        let environment = Environment::read();
        let variables = UnknownVariables::among(&environment.names(), Cli::variables);
        variables.refuse_misspelt()?;
        Ok(Self { sockets, environment, variables })
    }
}

/// How long a command runs.
#[derive(Clone, Copy)]
struct Lifetime {
    /// The command runs until a signal arrives, and its log has times.
    is_service: bool,
    /// The command ends by itself at a signal, and may wait for long until then.
    waits: bool,
}

impl Lifetime {
    fn of(command: &Command) -> Self {
        let (is_service, waits) = match command {
            Command::Serve(_) | Command::Registry(_) => (true, false),
            Command::Fleet(args) => (args.is_service(), false),
            Command::Run(args) => (args.files.is_empty(), true),
            Command::Ensure(args) => (false, args.wait),
            Command::PortForward(_) => (false, true),
            _ => (false, false),
        };
        Self { is_service, waits }
    }
}

/// Starts log, traces and the async runtime, runs the command, and ends them.
fn run_command(cli: &Cli, process: Process, source: ConfigSource, mut config: Config) -> ExitCode {
    let Process { sockets, environment, variables } = process;
    let lifetime = Lifetime::of(&cli.command);
    let format = config.log_format;
    let progress = Progress::new(cli.global.progress, cli.global.quiet, environment.dumb_terminal);
    let stderr = progress.bars().map(Stderr::with_bars).unwrap_or_default();
    let is_quiet = cli.global.quiet && !lifetime.is_service && !config.origins.contains_key("logging.level");
    let level = if is_quiet { config.log_level.min(LevelFilter::WARN) } else { config.log_level };
    let (shown, bars) = (stderr.clone(), progress.clone());
    let refused = move |failure: Failure| {
        bars.finish();
        logging::failure(failure.lines(), format, &shown);
        std::process::exit(i32::from(failure.code() as u8));
    };
    let runtime = runtime::start(refused);
    let traces = match &runtime {
        Ok(runtime) => {
            let _within = runtime.enter();
            Traces::start(&config.traces)
        }
        Err(_) => Ok(None),
    };
    let exported = traces.as_ref().ok().and_then(Option::as_ref);
    logging::start(&config, level, stderr.clone(), lifetime.is_service, environment.no_color, exported);
    let (runtime, traces) = match (runtime, traces) {
        (Ok(runtime), Ok(traces)) => (runtime, traces),
        (Err(failure), _) | (_, Err(failure)) => return end(Err(failure), format, &stderr),
    };
    for variable in variables.strange() {
        tracing::warn!(%variable, "unknown variable");
    }
    for note in &config.notes {
        tracing::info!("{note}");
    }
    let outcome = runtime.block_on(async {
        let signals = Signals::listen(&TaskTracker::new()).map_err(|e| Failure::caused(Code::Failed, "signals", &e))?;
        let (printer, access) = (cli.global.printer(), Access::of(&cli.command));
        let backs_off = lifetime.is_service || lifetime.waits;
        let followed = if access.follows_agent {
            tokio::select! {
                followed = follow::follow(&mut config, &environment) => followed?,
                () = signals.stop.cancelled() => return Err(Failure::new(signals.code(), "ended by a signal")),
            }
        } else {
            None
        };
        let mut app = App::new(environment, config, printer, progress.clone(), signals.clone(), backs_off, access);
        app.followed = followed;
        app.traces.clone_from(&traces);
        app.pass_sockets(sockets);
        app.reloads_from(source);
        let outcome = tokio::select! {
            outcome = cli::run(&app, &cli.command) => outcome,
            // Running work ends by itself when it is asked to; everything else is dropped at its current await point.
            () = signals.stop.cancelled(), if !backs_off => Err(Failure::new(signals.code(), "ended by a signal")),
        };
        app.close().await;
        outcome
    });
    if let Some(traces) = traces {
        traces.close();
    }
    credentials::end_programs();
    // Do not wait for a thread that is still reading standard input.
    runtime.shutdown_background();
    progress.finish();
    end(outcome, format, &stderr)
}

/// Reports the outcome to the user, and returns the exit code for the shell.
fn end(outcome: Outcome, format: LogFormat, stderr: &Stderr) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            logging::failure(failure.lines(), format, stderr);
            failure.exit_code()
        }
    }
}
