//! The binary: reads the command line, the environment and the configuration, starts log and signals, runs one command
//! and ends with its exit code. Holds no rule of its own; the commands are in [`cli`].

mod access;
mod app;
mod args;
mod cli;
mod config;
mod config_source;
mod endpoint;
mod environment;
mod exit;
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
mod signals;
mod streaming;
mod traces;
mod wiring;

use std::ffi::OsString;
use std::process::ExitCode;

use tokio_util::task::TaskTracker;
use tracing_subscriber::filter::LevelFilter;

use access::Access;
use app::App;
use args::{Cli, Command};
use config::LogFormat;
use config::names::UnknownVariables;
use config_source::ConfigSource;
use environment::Environment;
use exit::{Code, Failure, Outcome};
use logging::Stderr;
use progress::Progress;
use signals::Signals;
use traces::Traces;

fn main() -> ExitCode {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    name_service::use_built_in();
    let words: Vec<OsString> = std::env::args_os().collect();
    match cli::completion::answer(&words) {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => error.exit(),
    }
    let cli = args::whole::read(&words);
    let printer = cli.global.printer();
    // These two need no configuration, and must work where everything else fails.
    match &cli.command {
        Command::Completion(args) => {
            return end(cli::completion::run(printer, args), LogFormat::Text, &Stderr::default());
        }
        Command::Man(args) => return end(cli::man::run(printer, args), LogFormat::Text, &Stderr::default()),
        Command::Settings(_) => {
            let help = args::whole::settings_help();
            return end(printer.lines([help.trim_end()]), LogFormat::Text, &Stderr::default());
        }
        Command::Version => return end(cli::version::run(printer), LogFormat::Text, &Stderr::default()),
        _ => {}
    }

    // Before anything secret is read.
    if let Err(error) = memory::keep_to_itself() {
        return end(Err(error), LogFormat::Text, &Stderr::default());
    }
    let sockets = match &cli.command {
        Command::Serve(_) | Command::Run(_) => Environment::take_sockets(),
        _ => Ok(Vec::new()),
    };
    let sockets = match sockets {
        Ok(sockets) => sockets,
        Err(error) => {
            let failure = Failure::caused(Code::Config, "sockets of systemd", &error);
            return end(Err(failure), LogFormat::Text, &Stderr::default());
        }
    };
    let environment = Environment::read();
    let unknown = UnknownVariables::among(&environment.names(), Cli::variables);
    if let Err(error) = unknown.refuse_misspelt() {
        return end(Err(error.into()), LogFormat::Text, &Stderr::default());
    }
    if let Command::Config(args) = &cli.command
        && let Some(outcome) = cli::config::run_alone(args, cli.global.config(), printer, &environment)
    {
        return end(outcome, LogFormat::Text, &Stderr::default());
    }
    let source = ConfigSource::of(&cli);
    let config = match source.load(&environment) {
        Ok(config) => config,
        Err(error) => return end(Err(error.into()), LogFormat::Text, &Stderr::default()),
    };
    let format = config.log_format;
    let progress = Progress::new(cli.global.progress, cli.global.quiet, environment.dumb_terminal);
    let stderr = progress.bars().map(Stderr::with_bars).unwrap_or_default();
    let service = match &cli.command {
        Command::Serve(_) | Command::Registry(_) => true,
        Command::Run(args) => args.files.is_empty(),
        _ => false,
    };
    let waits = match &cli.command {
        Command::Ensure(args) => args.wait,
        Command::Run(_) | Command::PortForward(_) => true,
        _ => false,
    };
    let is_quiet = cli.global.quiet && !service && !config.origins.contains_key("logging.level");
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
    logging::start(&config, level, stderr.clone(), service, environment.no_color, exported);
    let (runtime, traces) = match (runtime, traces) {
        (Ok(runtime), Ok(traces)) => (runtime, traces),
        (Err(failure), _) | (_, Err(failure)) => return end(Err(failure), format, &stderr),
    };

    for variable in unknown.strange() {
        tracing::warn!(%variable, "unknown variable");
    }
    for note in &config.notes {
        tracing::info!("{note}");
    }

    let outcome = runtime.block_on(async {
        let signals = Signals::listen(&TaskTracker::new()).map_err(|e| Failure::caused(Code::Failed, "signals", &e))?;
        let (access, backs_off) = (Access::of(&cli.command), service || waits);
        let mut app = App::new(environment, config, printer, progress.clone(), signals.clone(), backs_off, access);
        app.traces.clone_from(&traces);
        app.pass_sockets(sockets);
        app.reloads_from(source);
        let outcome = tokio::select! {
            outcome = cli::run(&app, &cli.command) => outcome,
            // Running work ends by itself when it is asked to; everything else is dropped at its current await point.
            () = signals.stop.cancelled(), if !service && !waits => Err(Failure::new(signals.code(), "ended by a signal")),
        };
        app.close().await;
        outcome
    });
    if let Some(traces) = traces {
        traces.close();
    }
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
