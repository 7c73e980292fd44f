//! The arguments of `imagelet logs`. See [`super`].

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;

/// Show the logs of containers
///
/// POD is a pod's name with or without the node behind it, namespace/name, or a uid. Uses the container runtime; no agent needs
/// to run. Without -c, shows the container of the annotation kubectl.kubernetes.io/default-container or the first one. Includes
/// rotated logs, also compressed ones. Prints stdout and stderr of the containers to stdout.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet logs web
  imagelet logs -f --tail 20 web -c app
  imagelet logs --since 10m --timestamps shop/web --all-containers --prefix
  imagelet logs -p web                          the log of the previous run")]
pub(crate) struct Logs {
    /// The pod
    #[arg(value_name = "POD")]
    pub(crate) pod: String,
    /// The container
    #[arg(long, short, value_name = "NAME", conflicts_with = "all_containers")]
    pub(crate) container: Option<String>,
    /// All containers of the pod, in its order
    #[arg(long)]
    pub(crate) all_containers: bool,
    /// Namespace of the pod [default: any]
    #[arg(long, short, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Follow the log until the container ends
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// The previous run of the container
    #[arg(long, short)]
    pub(crate) previous: bool,
    /// Only this many of the last lines [default: all]
    #[arg(long, value_name = "LINES", allow_negative_numbers = true, value_parser = lines)]
    pub(crate) tail: Option<Lines>,
    /// Only lines newer than this, for example 5s, 2m or 3h
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "since_time")]
    pub(crate) since: Option<Duration>,
    /// Only lines since this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    pub(crate) since_time: Option<Timestamp>,
    /// Begin each line with its time
    #[arg(long)]
    pub(crate) timestamps: bool,
    /// Begin each line with the names of its pod and container
    #[arg(long)]
    pub(crate) prefix: bool,
    /// At most this many bytes of each container
    #[arg(long, value_name = "BYTES")]
    pub(crate) limit_bytes: Option<u64>,
}

/// Number of lines; `None`: all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lines(pub(crate) Option<u64>);

/// Parses a number of lines. As in kubectl, a number below zero means all.
fn lines(text: &str) -> Result<Lines, String> {
    let number: i64 = text.parse().map_err(|_| "it must be a number of lines, or -1 for all".to_owned())?;
    Ok(Lines(u64::try_from(number).ok()))
}

fn duration(text: &str) -> Result<Duration, String> {
    let read = base::GoDuration::parse_unsigned(text).filter(|time| !time.is_zero());
    read.ok_or_else(|| "it must be a duration such as 5s, 2m or 3h".to_owned())
}
