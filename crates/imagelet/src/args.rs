//! The command line: commands, their arguments and the help texts. Parses and checks the form of values, nothing more.
//! Called by `main`; the commands take their arguments from here.

pub(crate) mod archives;
mod collecting;
pub(crate) mod configuration;
mod creds;
mod doctor;
mod examples;
mod fleet;
mod listen;
mod lists;
mod logs;
mod manifests;
mod names;
mod podman_store;
mod pods;
mod push;
mod reach;
mod remote;
mod root_help;
mod streaming;
mod suggest;
mod times;
mod topic;
mod trees;
mod watch;
pub(crate) mod whole;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, FromArgMatches as _, Parser, Subcommand, ValueHint};

pub(crate) use self::fleet::{
    Fleet, FleetAction, FleetApply, FleetBake, FleetController, FleetInstall, FleetPause, FleetStatusArgs, FleetWatch,
    FleetWhy,
};
use crate::config::NamedFiles;
use crate::config::flags::SettingFlags;
use crate::output::{Format, Printer};
use crate::progress;
pub(crate) use archives::{Export, ExportCompression, ExportFormat, Import, Load, Save};
pub(crate) use collecting::{Check, Convert, Gc, GcAction, GcContainers, GcExplain, PinArgs, UnpinArgs};
pub(crate) use configuration::{CheckConfig, ConfigAction, MigrateConfig, ShowConfig};
pub(crate) use creds::Creds;
pub(crate) use doctor::Doctor;
use listen::ListenArg;
pub(crate) use lists::{ListArgs, ManPages, SortKey};
pub(crate) use logs::Logs;
pub(crate) use manifests::{Recursive, SkipOtherKinds};
pub(crate) use names::{History, Prune, Tag, Untag};
pub(crate) use podman_store::PodmanStore;
pub(crate) use pods::{Describe, Events, Pods, Run, Scope};
pub(crate) use push::{Login, Logout, Push};
use reach::ReachArgs;
pub(crate) use remote::{Exists, Pull, Tags};
pub(crate) use streaming::{Attach, Exec, PortForward, Ports, ThePod};
use times::timeout;
pub(crate) use topic::ShowSettings;
pub(crate) use trees::{Cat, Cp, Ls};
pub(crate) use watch::Watch;

const AFTER_HELP: &str = "\
Examples:
  imagelet ensure -f pod.yaml                   pull the images of a pod that are missing
  imagelet pull docker.io/library/busybox:1     pull one image
  imagelet images -o wide                       list images
  imagelet gc --dry-run                         show which images would be removed, and why the others stay
  imagelet -i unix:///run/containerd/containerd.sock images
  imagelet run --manifests ./pods               run the pods of a directory
  imagelet serve --listen unix:///run/imagelet/imagelet.sock

Exit codes:
  0 done   1 the operation failed   2 wrong usage   64 the configuration is wrong
  69 an endpoint or registry cannot be reached   77 not permitted
  130, 143 ended by Ctrl-C or SIGTERM

`imagelet help settings` shows all settings. Each is a flag, an IMAGELET_… variable and a
field of the configuration file (see `imagelet config`).";

/// Ensures that the images of pods are present on a node, and removes unused images
#[derive(Debug, Parser)]
#[command(name = "imagelet", version, max_term_width = 120, propagate_version = false)]
#[command(subcommand_required = true, arg_required_else_help = true, args_override_self = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(flatten)]
    pub(crate) settings: SettingFlags,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Parses with a parser of one command only: clap gives each of its commands a copy of every setting, which takes longer than a pull of
    /// a present image. Returns `None` if the whole parser has to decide, which also words the error.
    ///
    /// The whole parser also accepts everything that this one accepts: only options may precede the command, and all of them have the same
    /// meaning in both.
    fn of_one_command(words: &[OsString]) -> Option<Self> {
        let commands = Command::augment_subcommands(clap::Command::new("imagelet"));
        let named = words.iter().skip(1).find_map(|word| commands.find_subcommand(word))?.clone();
        let root = clap::Command::new("imagelet").subcommand_required(true).args_override_self(true);
        let root = SettingFlags::augment_args(Global::augment_args(root)).subcommand(named);
        let matches = root.try_get_matches_from(words).ok()?;
        Self::from_arg_matches(&matches).ok()
    }
}

impl Cli {
    /// Returns the environment variables of arguments.
    pub(crate) fn variables() -> BTreeSet<String> {
        fn add(command: &clap::Command, names: &mut BTreeSet<String>) {
            let variables = command.get_arguments().filter_map(clap::Arg::get_env);
            names.extend(variables.filter_map(|name| name.to_str().map(str::to_owned)));
            command.get_subcommands().for_each(|command| add(command, names));
        }
        let mut names = BTreeSet::new();
        add(&<Self as clap::CommandFactory>::command(), &mut names);
        names
    }
}

/// Arguments of every command.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Configuration file [default: /etc/imagelet/config.yaml, if it exists]
    #[arg(long, value_name = "FILE", env = "IMAGELET_CONFIG", hide_env_values = true, global = true, value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Directory of further configuration files (*.yaml, *.yml, *.conf), read in the order of their names; later ones override
    /// earlier ones [default: the configuration file's name and `.d`, if it exists]
    #[arg(long, value_name = "DIR", env = "IMAGELET_CONFIG_DIR", hide_env_values = true, global = true, hide = true, value_hint = ValueHint::DirPath)]
    pub(crate) config_dir: Option<PathBuf>,
    /// The same as --config, before the command: behind it, `-c` is a container
    #[arg(short = 'c', value_name = "FILE", hide_short_help = true, value_hint = ValueHint::FilePath)]
    pub(crate) early_config: Option<PathBuf>,
    /// Output format
    // Text and not a type of its own: `export` has an argument of the same name, and clap carries both in one place.
    #[arg(long, short, value_name = "FORMAT", global = true, value_parser = lists::OutputParser)]
    pub(crate) output: Option<String>,
    /// Print only ids
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// Do not truncate ids
    #[arg(long, global = true)]
    pub(crate) no_trunc: bool,
    /// Progress display on stderr
    #[arg(
        long,
        value_name = "HOW",
        global = true,
        env = "IMAGELET_PROGRESS",
        hide_env_values = true,
        default_value = "auto"
    )]
    pub(crate) progress: progress::Mode,
}

impl Global {
    /// Returns the configuration files that the command line names.
    pub(crate) fn config(&self) -> NamedFiles {
        NamedFiles { file: self.early_config.clone().or(self.config.clone()), directory: self.config_dir.clone() }
    }

    /// Returns the printer for these arguments.
    pub(crate) fn printer(&self) -> Printer {
        let format = self.output.as_deref().and_then(Format::from_name);
        Printer { format, quiet: self.quiet, whole: self.no_trunc }
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Ensure(Ensure),
    Pull(Pull),
    Images(Images),
    Exists(Exists),
    Tags(Tags),
    Inspect(Inspect),
    Rmi(Rmi),
    /// Show the disk usage of images
    ///
    /// ON DISK is the size of the whole image, FREED what the removal of this image alone would free, SHARED what other images also use.
    Df,
    Gc(Gc),
    Pin(PinArgs),
    Unpin(UnpinArgs),
    /// List pins and the images to which each applies
    Pins,
    /// Show the node's status of images and their disk
    ///
    /// Disk pressure, the file systems, and the thresholds of evictionHard; with -o wide the images as well. With -o json in
    /// the shapes of a Kubernetes Node: `images`, the largest first and as many as nodeStatusMaxImages says, and
    /// `conditions`.
    Status,
    Doctor(Doctor),
    Check(Check),
    Convert(Convert),
    Mount(Mount),
    Unmount(Unmount),
    Mounts(Mounts),
    Ls(Ls),
    Cat(Cat),
    Cp(Cp),
    PodmanStore(PodmanStore),
    Explain(Explain),
    Run(Run),
    Pods(Pods),
    Describe(Describe),
    Events(Events),
    Logs(Logs),
    Exec(Exec),
    Attach(Attach),
    PortForward(PortForward),
    Serve(Serve),
    Fleet(Fleet),
    Registry(Registry),
    Import(Import),
    Export(Export),
    Push(Push),
    Tag(Tag),
    Untag(Untag),
    History(History),
    Prune(Prune),
    Login(Login),
    Logout(Logout),
    Save(Save),
    Load(Load),
    Backoff(Backoff),
    /// Show an agent at work: pulls, disk, pods and images
    ///
    /// The display is updated until `q` or Ctrl-C ends it. The arrow keys select a row, Enter shows its details, and `?` lists the keys.
    /// If standard output is not a terminal, it is printed once as plain text. Asks the agent (`serve`, `run`, `ensure --wait`) over its
    /// admin socket.
    Top,
    /// Show the metrics of an agent
    ///
    /// In the text format of Prometheus. For a scraper, use --metrics-address.
    Metrics,
    Completion(Completion),
    /// Show the version
    Version,
    Config(ShowConfig),
    Settings(ShowSettings),
    #[command(hide = true)]
    Man(ManPages),
}

impl Command {
    /// Returns how registries are reached, in addition to the configuration.
    pub(crate) fn reach(&self) -> image_service::Reach {
        let args = match self {
            Self::Ensure(args) => args.reach,
            Self::Pull(args) => args.reach,
            Self::Push(args) => args.reach,
            Self::Tags(args) => args.reach,
            Self::Login(args) => args.reach,
            Self::Fleet(args) => return args.reach(),
            _ => return image_service::Reach::default(),
        };
        args.reach()
    }
}

/// Make sure that the images of pods are present
///
/// Reads Pods and the pod templates of Deployments, ReplicaSets, StatefulSets, DaemonSets, ReplicationControllers, Jobs,
/// CronJobs and Lists of them, as YAML or JSON, and of custom resources with a pod template at spec.template or
/// spec.jobTemplate.spec.template, such as a Rollout of Argo or a CloneSet of OpenKruise. Skips other objects. Includes init and
/// ephemeral containers and image volumes. The pull policy decides whether an image is pulled; the default is Always for the tag
/// `latest` or no tag, otherwise IfNotPresent. Images are pulled in parallel; one that fails does not stop the others.
///
/// Pull secrets are Secrets in the same files or in --secrets-dir, named by imagePullSecrets or by the pod's service account;
/// then the node's docker configuration and the credential providers are tried. Pulls have no limit on number or rate unless a
/// setting limits them (--registry-qps, --serialize-image-pulls, --max-parallel-image-pulls).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet ensure -f pod.yaml
  kubectl get deployment web -o yaml | imagelet ensure -f -
  imagelet ensure -R -f manifests/
  kubectl kustomize overlays/site | imagelet ensure -f -
  helm template chart/ | imagelet ensure -f -
  imagelet ensure --wait --timeout 10m -f pod.yaml -f secrets.yaml

Exit code: 0 if every image is present; 69 if every failure is a registry that cannot be reached; 77 if every one is a
credential that is missing or refused; otherwise 1.")]
pub(crate) struct Ensure {
    #[command(flatten)]
    pub(crate) manifests: Manifests,
    /// Retry failed pulls with the kubelet's back-off until all images are present
    #[arg(long)]
    pub(crate) wait: bool,
    /// Longest time to wait, for example 90s or 10m [default: no limit]
    #[arg(long, value_name = "DURATION", requires = "wait", value_parser = timeout)]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) reach: ReachArgs,
}

/// Sources of pods.
#[derive(Debug, Args)]
pub(crate) struct Manifests {
    /// Manifest, directory of manifests (*.yaml, *.yml, *.json), or URL; `-` is standard input; may be given again
    #[arg(long = "filename", short, value_name = "FILE", required = true, value_hint = ValueHint::AnyPath, num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) below: Recursive,
    #[command(flatten)]
    _other_kinds: SkipOtherKinds,
}

/// List images
///
/// ON DISK is the size of the whole image with the layers that it shares with others; `imagelet df` shows what its removal would free.
#[derive(Debug, Args)]
#[command(visible_alias = "list")]
pub(crate) struct Images {
    /// Only these images: by name or id; a repository alone means all of its tags
    #[arg(value_name = "IMAGE", value_parser = remote::image)]
    pub(crate) images: Vec<String>,
    #[command(flatten)]
    pub(crate) list: ListArgs,
    #[command(flatten)]
    pub(crate) watch: Watch,
}

/// Show details of images: record, config, size on disk
///
/// Prints a list, as JSON unless -o yaml is given.
#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// Image by name or id
    #[arg(required = true, value_name = "IMAGE", value_parser = remote::image)]
    pub(crate) images: Vec<String>,
}

/// Remove images
///
/// As in CRI, an image is removed with all its names, whichever name is given. A repository without a tag means its only tag. Prints the
/// removed names and ids. An absent image is an error; the others are removed all the same.
#[derive(Debug, Args)]
pub(crate) struct Rmi {
    /// Image by name or id
    #[arg(required_unless_present = "all", value_name = "IMAGE", value_parser = remote::image)]
    pub(crate) images: Vec<String>,
    /// All images
    #[arg(long, short, conflicts_with = "images")]
    pub(crate) all: bool,
}

/// Mount an image's file system on a directory
///
/// Read-only, or with a writable layer on top (--writable). Needs root (CAP_SYS_ADMIN) and a kernel with overlayfs. Without arguments, lists
/// the mounted images.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet mount docker.io/library/busybox:1 /mnt
  imagelet mount                          what is mounted
  imagelet unmount /mnt")]
pub(crate) struct Mount {
    /// Image by name or id
    #[arg(value_name = "IMAGE", requires = "directory")]
    pub(crate) image: Option<String>,
    /// Mount point; must exist
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
    /// Directory of the writable layer; it is kept
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "image")]
    pub(crate) writable: Option<PathBuf>,
}

/// Unmount an image's file system from a directory
#[derive(Debug, Args)]
#[command(alias = "umount")]
pub(crate) struct Unmount {
    /// Mount point
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
}

/// List the layers in container runtimes' stores that are EROFS files
///
/// Such a layer is mounted once for all containers, by the host and not by a process. The unit imagelet-mounts.service mounts all of them
/// when the machine starts, before the runtime.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet mounts                         how many there are, and how many are mounted
  imagelet mounts --all                   mount all that are not mounted")]
pub(crate) struct Mounts {
    /// Mount all layers that are not mounted. Needs no runtime and no agent
    #[arg(long)]
    pub(crate) all: bool,
}

/// Explain what `ensure` would do and why, without changing anything
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet explain -f pod.yaml
  imagelet explain docker.io/library/busybox:1 --policy IfNotPresent
  imagelet explain --check-credentials registry.example/team/app:2")]
#[command(group(clap::ArgGroup::new("what").required(true).args(["files", "images"])))]
pub(crate) struct Explain {
    /// Manifest, directory of manifests (*.yaml, *.yml, *.json), or URL; `-` is standard input; may be given again
    #[arg(long = "filename", short, value_name = "FILE", value_hint = ValueHint::AnyPath, num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) below: Recursive,
    #[command(flatten)]
    _other_kinds: SkipOtherKinds,
    /// Image by name
    #[arg(value_name = "IMAGE", conflicts_with = "files", value_parser = remote::image)]
    pub(crate) images: Vec<String>,
    /// Also run credential helpers and providers, and ask the registry which credential it accepts. Pulls nothing
    #[arg(long)]
    pub(crate) check_credentials: bool,
    /// Pull policy of the images [default: as the API server would fill it in]
    #[arg(long, value_name = "POLICY", conflicts_with = "files", value_parser = PossibleValuesParser::new(["Always", "IfNotPresent", "Never"]))]
    pub(crate) policy: Option<String>,
}

/// Serve images on a CRI socket, for a kubelet, crictl or any CRI client
///
/// The images are those of the embedded store, or with --image-endpoint those of the runtime behind it. With
/// --runtime-endpoint all calls for pods and containers are forwarded to that runtime. Runtimes cannot use the images of the
/// embedded store: a kubelet that is served from it starts no container.
///
/// Waits for a runtime that is not up yet. When ready, prints the endpoint on stdout and notifies systemd (Type=notify). With
/// the socket of a systemd socket unit (LISTEN_FDS), calls wait while the service restarts, and none fails. Ends on SIGTERM or
/// Ctrl-C when long calls have ended, at the latest after ten seconds; SIGTERM keeps the socket's file for the next process.
/// SIGHUP reloads the configuration: see `imagelet config print`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet serve --listen unix:///run/imagelet/imagelet.sock
  systemd-socket-activate -l /run/between.sock imagelet serve -i unix:///run/containerd/containerd.sock
  imagelet serve --listen unix:///run/between.sock -i unix:///run/containerd/containerd.sock -r unix:///run/containerd/containerd.sock")]
pub(crate) struct Serve {
    #[command(flatten)]
    _listen: ListenArg,
}

/// Serve an OCI layout as a registry
///
/// For sites without a network: copy a layout to one machine and let the nodes pull from it. Names are the annotations
/// io.containerd.image.name or org.opencontainers.image.ref.name in index.json: a full name gives repository and tag, a single
/// word a repository with the tag latest. Prints the address on stdout when it is ready.
///
/// With --writable, any tool can also push images to it. It has no authentication: keep it on loopback.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet registry --layout ./images --listen 127.0.0.1:5000
  imagelet registry --layout ./images --listen 127.0.0.1:0      any free port; the address is printed
  imagelet registry --layout ./images --writable                images can be pushed to it")]
pub(crate) struct Registry {
    /// Directory with oci-layout, index.json and blobs
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) layout: PathBuf,
    /// Address and port
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:5000")]
    pub(crate) listen: String,
    /// Use names of a single word as tags of this repository
    #[arg(long, value_name = "NAME")]
    pub(crate) repository: Option<String>,
    /// Accept uploads from every client that reaches the address. Creates a missing layout
    #[arg(long)]
    pub(crate) writable: bool,
}

/// Show which images are in back-off, and why
///
/// After a failed pull the next one waits: 10 seconds, then twice as long each time, up to 5 minutes. Asks the agent
/// (`serve`, `run`, `ensure --wait`) over its admin socket.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet backoff
  imagelet backoff reset --pod shop/web
  imagelet backoff reset --registry registry.example:5000")]
pub(crate) struct Backoff {
    #[command(subcommand)]
    pub(crate) action: Option<BackoffAction>,
}

/// Subcommands of `imagelet backoff`.
#[derive(Debug, Subcommand)]
pub(crate) enum BackoffAction {
    Reset(BackoffReset),
}

/// Reset the back-off: the next request pulls, and waiting ones retry at once
///
/// Prints how many entries were reset.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("whose").required(true).args(["image", "pod", "registry", "all"])))]
pub(crate) struct BackoffReset {
    /// Of this image, by the name in the pod
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,
    /// Of this pod
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub(crate) pod: Option<String>,
    /// Of all images from this registry
    #[arg(long, value_name = "HOST")]
    pub(crate) registry: Option<String>,
    /// Of all images and pods
    #[arg(long)]
    pub(crate) all: bool,
}

/// Write a completion script
///
/// The script runs imagelet for each completion and offers the images, pods and containers of the node.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  imagelet completion bash > /etc/bash_completion.d/imagelet
  imagelet completion zsh > ~/.zfunc/_imagelet
  imagelet completion fish > ~/.config/fish/completions/imagelet.fish")]
pub(crate) struct Completion {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

#[cfg(test)]
mod comparison_tests;

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        std::iter::once("imagelet").chain(line.split_whitespace()).map(OsString::from).collect()
    }

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        let whole = Cli::try_parse_from(words(line));
        // A parser for a single command either agrees or declines.
        if let Some(one) = Cli::of_one_command(&words(line)) {
            assert_eq!(format!("{one:?}"), format!("{:?}", whole.as_ref().expect(line)), "{line}");
        }
        whole
    }

    #[test]
    fn a_parser_that_knows_one_command_is_asked_first() {
        for line in [
            "pull busybox",
            "--root /r -q pull --creds a:b busybox alpine --progress none",
            "-c f images -o json --no-trunc",
            "list busybox",
            "gc --dry-run --root=/r",
            "version",
        ] {
            parse(line).expect(line);
            assert!(Cli::of_one_command(&words(line)).is_some(), "{line}");
        }
        // A value that is spelled like a command; only the whole parser may have the right error.
        for line in ["--config pull images", "images --root pull", "--root images pull busybox"] {
            parse(line).expect(line);
        }
        for line in ["", "help pull", "pull --help", "pull", "pull --unknown x", "pul busybox", "--version"] {
            assert!(Cli::of_one_command(&words(line)).is_none(), "{line}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn output_is_a_format_everywhere_but_in_export() {
        for line in ["-o json images", "images -o json", "images --output=json x"] {
            assert!(matches!(parse(line).expect(line).global.printer().format, Some(Format::Json)), "{line}");
        }
        let cli = parse("export a b -o out.tar --format oci-archive").expect("parses");
        let Command::Export(export) = &cli.command else { panic!("an export") };
        assert_eq!((export.path.as_str(), export.format), ("out.tar", Some(ExportFormat::OciArchive)));
        assert!(cli.global.printer().format.is_none());
        assert!(parse("images -o xml").is_err());
        for (output, want) in
            [("json", "prints no json"), ("oci-archive", "--format oci-archive"), ("jsonpath={}", "prints no")]
        {
            let error = parse(&format!("export a -o {output}")).expect_err(output).to_string();
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn platforms_of_imports_are_no_setting() {
        for line in ["import x --platform linux/arm64 --platform all", "--platform linux/arm64 export x -o y", "load"] {
            assert!(parse(line).expect(line).settings.given().is_empty(), "{line}");
        }
        let cli = parse("--platform linux/arm64 import x").expect("parses");
        let Command::Import(import) = &cli.command else { panic!("an import") };
        assert_eq!(import.platforms.platforms, ["linux/arm64"]);
        let given = parse("pull x --platform linux/arm64").expect("parses").settings.given();
        assert_eq!(given[0].2, "linux/arm64");
        let Command::Load(load) = parse("load -i x.tar").expect("parses").command else { panic!("a load") };
        assert_eq!(load.input.as_deref(), Some(std::path::Path::new("x.tar")));
    }

    #[test]
    fn settings_are_flags_on_both_sides_of_the_command() {
        for line in ["--root /r -r unix:///x images", "images --root /r --runtime-endpoint unix:///x"] {
            let given = parse(line).expect(line).settings.given();
            let got: Vec<_> = given.iter().map(|(s, o, v)| (s.field, o.to_string(), v.as_str())).collect();
            let want = [
                ("root", "--root".to_owned(), "/r"),
                ("containerRuntimeEndpoint", "--runtime-endpoint".to_owned(), "unix:///x"),
            ];
            assert_eq!(got, want, "{line}");
        }
        let given =
            parse("images --registry-config-path /a --registry-config-path /b").expect("parses").settings.given();
        assert_eq!(given[0].2, "/a:/b");
        let given = parse("ensure -f x --serialize-image-pulls").expect("parses").settings.given();
        assert_eq!(given[0].2, "true");
        assert_eq!(parse("ensure -f x --serialize-image-pulls=false").expect("parses").settings.given()[0].2, "false");
    }

    #[test]
    fn waiting_has_its_time() {
        let Command::Ensure(ensure) = parse("ensure -f x --wait --timeout 1m30s").expect("parses").command else {
            panic!("an ensure")
        };
        assert_eq!((ensure.wait, ensure.timeout), (true, Some(Duration::from_secs(90))));
        for line in ["ensure -f x --timeout 1m", "ensure -f x --wait --timeout 90", "ensure -f x --wait --timeout 0s"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_credential_is_not_shown() {
        let cli = parse("pull x --creds user:s3cret").expect("parses");
        assert!(!format!("{cli:?}").contains("s3cret"), "{cli:?}");
    }

    #[test]
    fn a_reset_says_whose() {
        for line in ["backoff reset", "backoff reset --all --image x", "backoff reset x", "backoff list"] {
            assert!(parse(line).is_err(), "{line}");
        }
        for line in ["backoff", "backoff reset --all", "backoff -o json", "backoff reset --pod a/b -o yaml"] {
            assert!(parse(line).is_ok(), "{line}");
        }
    }

    #[test]
    fn explain_takes_manifests_or_images() {
        for line in ["explain", "explain -f a b -f c x --policy Never", "explain x --policy Sometimes"] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(parse("explain x --policy Never").is_ok());
        assert!(parse("explain -f a.yaml").is_ok());
    }
}
