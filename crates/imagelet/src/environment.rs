//! The environment of the process, read once: user, home directories, proxies, colours. The only file that reads
//! environment variables; clap reads the `IMAGELET_…` ones. Called by `main`.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The variable of `imagelet pull --creds`.
const CREDENTIAL: &str = "IMAGELET_CREDS";
/// The variable of `--manifest-url-header`, whose value may also hold a credential.
const HEADERS: &str = "IMAGELET_MANIFEST_URL_HEADER";

/// Facts about the process and its user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    /// True if the user is root.
    pub(crate) privileged: bool,
    /// `$HOME`.
    pub(crate) home: Option<PathBuf>,
    /// `$XDG_DATA_HOME`.
    pub(crate) data_home: Option<PathBuf>,
    /// Locations where users' tools keep credentials.
    pub(crate) auth: AuthPlaces,
    /// `$TMPDIR`, or `/var/tmp`: as in podman, large data is not put into memory.
    pub(crate) temporary: PathBuf,
    /// True if `$NO_COLOR` is set and not empty, or `$TERM` is `dumb`.
    pub(crate) no_color: bool,
    /// True if `$TERM` is `dumb`: the cursor cannot be moved.
    pub(crate) dumb_terminal: bool,
    /// Proxies towards registries.
    pub(crate) proxies: Proxies,
    /// `$PATH`.
    pub(crate) path: Option<OsString>,
    /// `$NOTIFY_SOCKET`: systemd's socket for readiness.
    pub(crate) notify_socket: Option<OsString>,
    /// `$WATCHDOG_USEC`, the interval within which systemd expects a keep-alive from this process.
    pub(crate) watchdog: Option<Duration>,
    /// `$KUBECONFIG`: the user's kubeconfig files.
    pub(crate) kubeconfigs: Vec<PathBuf>,
    /// The working directory.
    pub(crate) working: Option<PathBuf>,
    /// All variables.
    pub(crate) variables: Variables,
}

/// The variables that say where users' tools keep credentials.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuthPlaces {
    /// `$REGISTRY_AUTH_FILE`, a file.
    pub(crate) auth_file: Option<PathBuf>,
    /// `$DOCKER_CONFIG`, a directory.
    pub(crate) docker_config: Option<PathBuf>,
    /// `$XDG_RUNTIME_DIR`.
    pub(crate) runtime_dir: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME`.
    pub(crate) config_home: Option<PathBuf>,
    /// Number of the user.
    pub(crate) uid: u32,
}

impl AuthPlaces {
    /// Returns the `auth.json` files of podman, the preferred first (containers-auth.json(5)).
    pub(crate) fn containers(&self, home: Option<&Path>) -> Vec<PathBuf> {
        let runtime = match &self.runtime_dir {
            Some(directory) => directory.join("containers/auth.json"),
            None => PathBuf::from(format!("/run/containers/{}/auth.json", self.uid)),
        };
        let config = |directory: &Path| directory.join("containers/auth.json");
        let home = home.map(|home| config(&home.join(".config")));
        let mut files: Vec<PathBuf> =
            [Some(runtime), self.config_home.as_deref().map(config), home].into_iter().flatten().collect();
        files.dedup();
        files
    }

    /// Returns the directory of docker's `config.json`.
    pub(crate) fn docker(&self, home: Option<&Path>) -> Option<PathBuf> {
        self.docker_config.clone().or_else(|| home.map(|home| home.join(".docker")))
    }
}

/// All variables, for the programs that the configuration names.
#[derive(Clone, Default)]
pub(crate) struct Variables(Vec<(OsString, OsString)>);

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Any of them may be a password.
        write!(f, "{} variables", self.0.len())
    }
}

/// `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`, in upper or lower case.
#[derive(Clone, Default)]
pub(crate) struct Proxies {
    pub(crate) http: Option<String>,
    pub(crate) https: Option<String>,
    pub(crate) no_proxy: Option<String>,
}

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URLs may have a password in them.
        f.debug_struct("Proxies").field("http", &self.http.is_some()).field("https", &self.https.is_some()).finish()
    }
}

impl Environment {
    /// Reads the environment of this process.
    #[expect(clippy::disallowed_methods, reason = "the edge: the environment is read here and nowhere else")]
    pub(crate) fn read() -> Self {
        let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let proxy = |name: &str| text(name).or_else(|| text(&name.to_ascii_lowercase()));
        let path = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let any_path = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let auth = AuthPlaces {
            auth_file: any_path("REGISTRY_AUTH_FILE"),
            docker_config: any_path("DOCKER_CONFIG"),
            runtime_dir: path("XDG_RUNTIME_DIR"),
            config_home: path("XDG_CONFIG_HOME"),
            uid: rustix::process::geteuid().as_raw(),
        };
        let dumb_terminal = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        Self {
            auth,
            temporary: path("TMPDIR").unwrap_or_else(|| "/var/tmp".into()),
            privileged: rustix::process::geteuid().is_root(),
            home: path("HOME"),
            data_home: path("XDG_DATA_HOME"),
            no_color: std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty()) || dumb_terminal,
            dumb_terminal,
            path: std::env::var_os("PATH"),
            notify_socket: std::env::var_os("NOTIFY_SOCKET"),
            watchdog: watchdog(text("WATCHDOG_USEC"), text("WATCHDOG_PID")),
            kubeconfigs: std::env::var_os("KUBECONFIG").map_or_else(Vec::new, |list| {
                std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect()
            }),
            working: std::env::current_dir().ok(),
            variables: Variables(std::env::vars_os().collect()),
            proxies: Proxies { http: proxy("HTTP_PROXY"), https: proxy("HTTPS_PROXY"), no_proxy: proxy("NO_PROXY") },
        }
    }

    /// Takes the sockets that systemd passes to this process (`$LISTEN_FDS`), which no child inherits. Must run before any thread is
    /// started, since it also removes the variables. A descriptor that is not a unix stream socket is an error.
    pub(crate) fn take_sockets() -> std::io::Result<Vec<UnixListener>> {
        let mut passed = listenfd::ListenFd::from_env();
        (0..passed.len()).filter_map(|index| passed.take_unix_listener(index).transpose()).collect()
    }

    /// Returns the environment of credential helpers and providers: ours, without our own credentials.
    pub(crate) fn of_children(&self) -> Vec<(OsString, OsString)> {
        self.variables.0.iter().filter(|(name, _)| name != CREDENTIAL && name != HEADERS).cloned().collect()
    }

    /// Returns the names of all variables that are text.
    pub(crate) fn names(&self) -> Vec<String> {
        self.variables.0.iter().filter_map(|(name, _)| name.to_str().map(str::to_owned)).collect()
    }

    /// Returns the default root of the embedded store. An ordinary user without a home gets the system's path, which
    /// then fails to open with a clear error.
    pub(crate) fn default_root(&self) -> PathBuf {
        let own = || {
            let home = self.home.as_ref().map(|home| home.join(".local/share"));
            self.data_home.clone().or(home).map(|dir| dir.join("imagelet"))
        };
        let system = || Path::new("/var/lib/imagelet").to_owned();
        if self.privileged { system() } else { own().unwrap_or_else(system) }
    }
}

/// Returns the interval within which systemd expects a keep-alive from this process, if there is one.
fn watchdog(micros: Option<String>, pid: Option<String>) -> Option<Duration> {
    let is_ours = pid.is_none_or(|pid| pid.parse() == Ok(std::process::id()));
    let micros = micros?.parse().ok().filter(|micros| *micros > 0 && is_ours)?;
    Some(Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_do_not_get_our_credential() {
        let variables = [("PATH", "/bin"), (CREDENTIAL, "user:s3cret"), (HEADERS, "Authorization:s3cret"), ("X", "y")];
        let variables = variables.map(|(k, v)| (k.into(), v.into()));
        let environment = Environment { variables: Variables(variables.into()), ..Environment::default() };
        let names: Vec<_> = environment.of_children().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["PATH", "X"]);
        assert!(!format!("{environment:?}").contains("s3cret"), "{environment:?}");
    }

    #[test]
    fn the_watchdog_is_for_one_process() {
        let of = |micros: &str, pid: Option<u32>| watchdog(Some(micros.to_owned()), pid.map(|pid| pid.to_string()));
        assert_eq!(of("3000000", None), Some(Duration::from_secs(3)));
        assert_eq!(of("3000000", Some(std::process::id())), Some(Duration::from_secs(3)));
        assert_eq!(of("3000000", Some(1)), None);
        assert_eq!((of("0", None), of("x", None), watchdog(None, None)), (None, None, None));
    }

    #[test]
    fn roots() {
        let user = Environment { home: Some("/h/u".into()), ..Environment::default() };
        assert_eq!(user.default_root(), Path::new("/h/u/.local/share/imagelet"));
        let xdg = Environment { data_home: Some("/data".into()), ..user.clone() };
        assert_eq!(xdg.default_root(), Path::new("/data/imagelet"));
        let root = Environment { privileged: true, ..xdg };
        assert_eq!(root.default_root(), Path::new("/var/lib/imagelet"));
        assert_eq!(Environment::default().default_root(), Path::new("/var/lib/imagelet"));
    }
}
