//! The arguments of `imagelet logs`. See [`super`].

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;

/// Show what containers wrote
///
/// POD is a pod's name with or without the node behind it, namespace/name, or a uid; the runtime knows them, no other process
/// needs to run. Without -c the log is that of the container that the pod's annotation
/// kubectl.kubernetes.io/default-container names, or of its first. Logs that were rotated are a part of it, compressed ones as
/// well. What containers wrote to stdout and to stderr both goes to stdout.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet logs web
  imagelet logs -f --tail 20 web -c app
  imagelet logs --since 10m --timestamps shop/web --all-containers --prefix
  imagelet logs -p web                          what the run before the latest one wrote")]
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
    /// Go on until the container ends
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// The run of the container before the latest one
    #[arg(long, short)]
    pub(crate) previous: bool,
    /// Only the last lines, so many [default: all]
    #[arg(long, value_name = "LINES", allow_negative_numbers = true, value_parser = lines)]
    pub(crate) tail: Option<Lines>,
    /// Nothing that is older than this, for example 5s, 2m or 3h
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "since_time")]
    pub(crate) since: Option<Duration>,
    /// Nothing of before this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    pub(crate) since_time: Option<Timestamp>,
    /// Each line begins with its time
    #[arg(long)]
    pub(crate) timestamps: bool,
    /// Each line begins with the names of its pod and its container
    #[arg(long)]
    pub(crate) prefix: bool,
    /// No more bytes than that of each container
    #[arg(long, value_name = "BYTES")]
    pub(crate) limit_bytes: Option<u64>,
}

/// How many lines; `None`: all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lines(pub(crate) Option<u64>);

/// As in kubectl, a number below zero asks for all.
fn lines(text: &str) -> Result<Lines, String> {
    let number: i64 = text.parse().map_err(|_| "it must be a number of lines, or -1 for all".to_owned())?;
    Ok(Lines(u64::try_from(number).ok()))
}

fn duration(text: &str) -> Result<Duration, String> {
    let read = crate::config::value::parse_duration(text).filter(|time| !time.is_zero());
    read.ok_or_else(|| "it must be a duration such as 5s, 2m or 3h".to_owned())
}
