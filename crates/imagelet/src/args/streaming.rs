//! The arguments of the commands that stream to containers. See [`super`].

use std::ffi::OsString;
use std::net::IpAddr;

use clap::Args;
use clap::error::ErrorKind;

use crate::config::flags::WithoutI;

/// The pod of a command.
#[derive(Debug, Args)]
pub(crate) struct ThePod {
    /// Pod: its name with or without the node behind it, NAMESPACE/NAME or uid
    #[arg(value_name = "POD")]
    pub(crate) pod: String,
    /// Namespace of the pod, if several namespaces have one of this name
    #[arg(long, short, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
}

/// Run a command in a container
///
/// Uses the container runtime; no agent needs to run. The exit code is that of the command. -i passes standard input on; with -t
/// as well the command gets a terminal. Without -c, uses the container of the annotation kubectl.kubernetes.io/default-container
/// or the first one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet exec web hostname
  imagelet exec web -- cat -n /etc/hosts
  imagelet exec -it shop/web -c app -- sh
  tar c site | imagelet exec -i web -- tar x -C /srv")]
pub(crate) struct Exec {
    #[command(flatten)]
    pub(crate) pod: ThePod,
    /// Container
    #[arg(long, short, value_name = "NAME")]
    pub(crate) container: Option<String>,
    /// Pass standard input on
    #[arg(long, short = 'i')]
    pub(crate) stdin: bool,
    /// Allocate a terminal; only together with -i
    #[arg(long, short)]
    pub(crate) tty: bool,
    /// Program and arguments without `--`
    #[arg(hide = true, conflicts_with = "command", value_name = "COMMAND")]
    plain: Vec<String>,
    /// Program and arguments; `--` may be left out if they contain no flag
    #[arg(last = true, required_unless_present = "plain", value_name = "COMMAND")]
    command: Vec<String>,
    #[command(flatten)]
    pub(crate) without_i: WithoutI,
}

impl Exec {
    /// Returns the command to run in the container.
    pub(crate) fn command(&self) -> &[String] {
        if self.plain.is_empty() { &self.command } else { &self.plain }
    }

    /// Checks that no flag follows a command without `--`: it may be one of imagelet or one of the command. `words` is the command line.
    ///
    /// # Errors
    /// The error for the user.
    pub(super) fn check(&self, words: &[OsString]) -> Result<(), clap::Error> {
        if self.plain.is_empty() || words.ends_with(&self.plain.iter().map(OsString::from).collect::<Vec<_>>()) {
            return Ok(());
        }
        let plain = self.plain.join(" ");
        let message = format!(
            "a flag after `{plain}` may be one of imagelet or one of the command\n\n  \
             tip: add `--` before the command: imagelet exec POD -- {plain} …\n"
        );
        Err(clap::Error::raw(ErrorKind::ArgumentConflict, message))
    }
}

/// Attach to the process of a container
///
/// Shows its output from now on. -i passes standard input on if the container has one (`stdin: true`); with -t as well this
/// terminal becomes the container's (`tty: true`), until the container ends or Ctrl-P Ctrl-Q is typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet attach web
  imagelet attach -it console -c shell")]
pub(crate) struct Attach {
    #[command(flatten)]
    pub(crate) pod: ThePod,
    /// Container
    #[arg(long, short, value_name = "NAME")]
    pub(crate) container: Option<String>,
    /// Pass standard input on
    #[arg(long, short = 'i')]
    pub(crate) stdin: bool,
    /// The container has a terminal
    #[arg(long, short)]
    pub(crate) tty: bool,
    #[command(flatten)]
    pub(crate) without_i: WithoutI,
}

/// Forward local ports to a pod
///
/// Listens on 127.0.0.1 and ::1, and forwards each connection through the container runtime to the port of the pod, also where the
/// pod's network is not reachable. If a client closes its sending side, the whole connection ends, as in the runtimes. Ends with the
/// pod, on SIGTERM or Ctrl-C.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet port-forward web 8080:80
  imagelet port-forward web 5432                the same port on both sides
  imagelet port-forward web :80                 any free local port, which is printed")]
pub(crate) struct PortForward {
    #[command(flatten)]
    pub(crate) pod: ThePod,
    /// Local port and port of the pod
    #[arg(required = true, value_name = "[LOCAL:]REMOTE", value_parser = Ports::parse)]
    pub(crate) ports: Vec<Ports>,
    /// Address to listen on instead; may be given again
    #[arg(long, value_name = "ADDR")]
    pub(crate) address: Vec<IpAddr>,
}

/// A local port and a port of the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    /// Zero: any free port.
    pub(crate) local: u16,
    pub(crate) remote: u16,
}

impl Ports {
    fn parse(text: &str) -> Result<Self, String> {
        let (local, remote) = text.split_once(':').unwrap_or((text, text));
        let port = |text: &str| text.parse::<u16>().ok();
        let local = if local.is_empty() { Some(0) } else { port(local) };
        match (local, port(remote).filter(|port| *port > 0)) {
            (Some(local), Some(remote)) => Ok(Self { local, remote }),
            _ => Err("ports are numbers from 1 to 65535, such as 8080:80".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn commands_need_two_dashes_only_before_flags() {
        let parse = |line: &str| -> Result<Exec, clap::Error> {
            let words: Vec<OsString> = std::iter::once("imagelet").chain(line.split(' ')).map(OsString::from).collect();
            let Command::Exec(exec) = Cli::try_parse_from(&words)?.command else { panic!("{line}") };
            exec.check(&words).map(|()| exec)
        };
        for (line, want) in [
            ("exec web sh", vec!["sh"]),
            ("--root /r -r unix:///x -q exec -it -c app web ls /", vec!["ls", "/"]),
            ("exec web -it sh", vec!["sh"]),
            ("exec web -- ls -l", vec!["ls", "-l"]),
            ("exec web -c app -- sh -c app", vec!["sh", "-c", "app"]),
            ("exec web tar x -", vec!["tar", "x", "-"]),
        ] {
            let exec = parse(line).expect(line);
            assert_eq!((exec.pod.pod.as_str(), exec.command().join(" ")), ("web", want.join(" ")), "{line}");
        }
        for line in ["exec web sh -c app", "exec web sh -it", "exec web sh --root /r", "exec web grep -q a"] {
            let error = parse(line).expect_err(line).to_string();
            assert!(error.contains("may be one of imagelet") && error.contains("exec POD -- "), "{error}");
        }
        for line in ["exec web", "exec web ls -l", "exec web sh -- -c x"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn ports_are_read() {
        let ports = |local, remote| Ok(Ports { local, remote });
        let wrong = || Err("ports are numbers from 1 to 65535, such as 8080:80".to_owned());
        let cases = [
            ("80", ports(80, 80)),
            ("8080:80", ports(8080, 80)),
            (":80", ports(0, 80)),
            ("0:80", ports(0, 80)),
            ("0", wrong()),
            ("80:", wrong()),
            ("http", wrong()),
            ("1:65536", wrong()),
            ("1:2:3", wrong()),
            ("", wrong()),
        ];
        for (text, want) in cases {
            assert_eq!(Ports::parse(text), want, "{text}");
        }
    }
}
