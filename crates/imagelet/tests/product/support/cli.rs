//! Runs the built `imagelet`, as a person or a script would. Reads its answers; knows nothing of its insides.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::clock::Time;
use super::process::{Daemon, PATIENCE, tool, wait, watch_held};

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_imagelet");

/// `imagelet` with a root of its own and no environment but what a test gives it.
#[derive(Clone)]
pub(crate) struct Imagelet {
    globals: Vec<String>,
    environment: Vec<(String, String)>,
    /// Run as this user and group.
    user: Option<u32>,
    program: PathBuf,
    time: Time,
    /// The program that execs imagelet, with its arguments; empty: none.
    through: Vec<String>,
}

/// The form of layers in the stores of containerd under test: `RUNTIME_LAYERS=erofs` runs the suites once more with EROFS files.
fn runtime_layers() -> Vec<String> {
    let form = std::env::var("RUNTIME_LAYERS").unwrap_or_default();
    if form.is_empty() { Vec::new() } else { vec!["--runtime-layers".to_owned(), form] }
}

/// Returns true if the layers in the stores of containerd are EROFS files: see [`runtime_layers`].
pub(crate) fn are_files() -> bool {
    runtime_layers().iter().any(|word| word == "erofs")
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Imagelet {
    /// The embedded engine on `root`.
    pub(crate) fn on(root: &Path) -> Self {
        super::secrets::note_root(root);
        Self::bare().global("--root", &root.display().to_string())
    }

    /// The same with layers of one shape, as `--layer-format` has it.
    pub(crate) fn shaped(format: &str, root: &Path) -> Self {
        Self::on(root).global("--layer-format", format)
    }

    /// A remote runtime behind this endpoint.
    pub(crate) fn remote(endpoint: &str) -> Self {
        Self::bare().global("--image-endpoint", endpoint)
    }

    /// No global option at all.
    pub(crate) fn bare() -> Self {
        Self {
            globals: runtime_layers(),
            environment: Vec::new(),
            user: None,
            program: PathBuf::from(PROGRAM),
            time: Time::default(),
            through: Vec::new(),
        }
    }

    /// With one more global option.
    pub(crate) fn global(mut self, name: &str, value: &str) -> Self {
        self.globals.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// With one more global option that is one word.
    pub(crate) fn flag(mut self, word: &str) -> Self {
        self.globals.push(word.to_owned());
        self
    }

    /// With one more variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs this many seconds later: the wall clock, and the time since boot.
    pub(crate) fn later(mut self, seconds: i64) -> Self {
        self.time.passed += seconds;
        self
    }

    /// Runs with a wall clock that was moved by this many seconds.
    pub(crate) fn clock_set_by(mut self, seconds: i64) -> Self {
        self.time.set += seconds;
        self
    }

    /// Runs as on a machine that was booted this many seconds ago.
    pub(crate) fn booted(mut self, seconds_ago: i64) -> Self {
        self.time.booted = Some(seconds_ago);
        self
    }

    /// Runs with clocks that are this many times as fast, for tests of long timeouts.
    pub(crate) fn hurried(mut self, times: u32) -> Self {
        self.time.speed = Some(times);
        self
    }

    /// Uses a copy of the program at another path.
    pub(crate) fn program(mut self, path: PathBuf) -> Self {
        self.program = path;
        self
    }

    /// On one core, which is all that it sees.
    pub(crate) fn one_core(self) -> Self {
        let taskset = tool("taskset");
        let cpu = rustix::thread::sched_getcpu().to_string();
        self.through(&[&taskset.get_program().display().to_string(), "-c", &cpu])
    }

    /// Started through another program, which becomes it.
    pub(crate) fn through(mut self, words: &[&str]) -> Self {
        self.through = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// As another user.
    pub(crate) fn user(mut self, id: u32) -> Self {
        self.user = Some(id);
        self
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = match self.user {
            None if self.through.is_empty() => self.time.command(&self.program),
            None => {
                let mut command = Command::new(&self.through[0]);
                command.args(&self.through[1..]).arg(&self.program);
                command
            }
            Some(id) => {
                let mut command = tool("setpriv");
                let id = id.to_string();
                command
                    .args(["--reuid", &id, "--regid", &id, "--clear-groups", "--inh-caps=-all", "--"])
                    .arg(&self.program);
                command
            }
        };
        command.env_clear().env("RUST_BACKTRACE", "0").envs(self.time.environment());
        command.envs(self.environment.iter().cloned());
        command.args(&self.globals).args(args).stdin(Stdio::null());
        command
    }

    /// Runs it to its end, whatever that is.
    #[track_caller]
    pub(crate) fn run(&self, args: &[&str]) -> Done {
        let mut command = self.command(args);
        let output = command.output().unwrap_or_else(|e| panic!("start {command:?}: {e}"));
        let done = Done {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        assert!(!done.stderr.contains("panicked at"), "imagelet {args:?} panicked:\n{}", done.stderr);
        done.search_for_secrets(args);
        done
    }

    /// Runs it to its end with `input` as its standard input.
    #[track_caller]
    pub(crate) fn run_with_input(&self, args: &[&str], input: &str) -> Done {
        use std::io::Write as _;
        let mut command = self.command(args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
        child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("imagelet reads its standard input");
        let output = child.wait_with_output().expect("it is our child");
        let done = Done {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        done.search_for_secrets(args);
        done
    }

    /// Runs a line as a person types it into a shell in `directory`, where `imagelet` stands for this one. Binary output is replaced
    /// by its length.
    #[track_caller]
    pub(crate) fn typed(&self, directory: &Path, line: &str) -> Done {
        let command = self.command(&[]);
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<String> = words.map(|word| format!("'{}'", word.to_str().expect("text"))).collect();
        let script = format!("imagelet() {{ {} \"$@\"; }}\n{line}", words.join(" "));
        let mut shell = tool("sh");
        shell
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
        let output = shell.arg("-c").arg(script).current_dir(directory).output().expect("start a shell");
        let text = |bytes: Vec<u8>| {
            let length = bytes.len();
            String::from_utf8(bytes)
                .ok()
                .filter(|text| !text.contains('\0'))
                .unwrap_or_else(|| format!("{length} bytes"))
        };
        let done = Done { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) };
        assert!(!done.stderr.contains("panicked at"), "{line} panicked:\n{}", done.stderr);
        done.search_for_secrets(&[line]);
        done
    }

    /// Runs it to its end, which must be a good one. The answer is its standard output.
    #[track_caller]
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let done = self.run(args);
        assert_eq!(done.code, Some(0), "imagelet {args:?}:\n{}{}", done.stdout, done.stderr);
        done.stdout
    }

    /// Runs it to an end with this exit code and one line on standard error, which is the answer.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, args: &[&str]) -> String {
        let done = self.run(args);
        done.fails(code, args)
    }

    /// Runs it to a good end. The answer is the most memory that it had, in bytes, without the pages of the program itself, of
    /// which a test's build has several times as many as a release.
    #[track_caller]
    pub(crate) fn peak_memory(&self, args: &[&str]) -> u64 {
        let over = Arc::new(AtomicBool::new(false));
        let child = self.spawn(args);
        let watch = watch_held(child.id(), Arc::clone(&over));
        let output = child.wait_with_output().expect("it ends");
        over.store(true, Ordering::Relaxed);
        assert!(output.status.success(), "imagelet {args:?}:\n{}", String::from_utf8_lossy(&output.stderr));
        watch.join().expect("no panic")
    }

    /// Starts it and leaves it running; the caller waits for it.
    #[track_caller]
    pub(crate) fn spawn(&self, args: &[&str]) -> Child {
        let mut command = self.command(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("start {command:?}: {e}"));
        // The output is searched for secrets before it reaches its reader.
        let what = |output: &str| format!("imagelet {args:?}, standard {output}");
        child.stdout = child.stdout.take().map(|from| super::secrets::watched(what("output"), from.into()).into());
        child.stderr = child.stderr.take().map(|from| super::secrets::watched(what("error"), from.into()).into());
        child
    }

    /// Starts it as a daemon of the test.
    #[track_caller]
    pub(crate) fn daemon(&self, args: &[&str]) -> Daemon {
        let program = self.program.display().to_string();
        let words = self.through.iter().map(String::as_str).chain([program.as_str()]);
        let words = words.chain(self.globals.iter().map(String::as_str)).chain(args.iter().copied());
        let words: Vec<&str> = words.collect();
        Daemon::start(Path::new(words[0]), &words[1..])
    }

    /// Serves CRI on `socket`; returns when a client can connect.
    #[track_caller]
    pub(crate) fn serve(&self, socket: &Path) -> Daemon {
        let endpoint = format!("unix://{}", socket.display());
        let daemon = self.daemon(&["serve", "--listen", &endpoint]);
        daemon.wait_for("where it serves", |line| (line == endpoint).then_some(()));
        daemon
    }

    /// The images, as `images -o json` lists them.
    #[track_caller]
    pub(crate) fn images(&self) -> Vec<Value> {
        let text = self.ok(&["images", "-o", "json"]);
        let mut value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("images -o json: {e}:\n{text}"));
        match value["images"].take() {
            Value::Array(images) => images,
            other => panic!("images -o json has no list of images, but {other}:\n{text}"),
        }
    }

    /// Ids of the images.
    #[track_caller]
    pub(crate) fn ids(&self) -> Vec<String> {
        let mut ids: Vec<String> =
            self.images().iter().map(|i| i["id"].as_str().expect("an image has an id").to_owned()).collect();
        ids.sort();
        ids
    }

    /// Mounts an image on a new directory and answers that directory. It is unmounted with the test's scratch.
    #[track_caller]
    pub(crate) fn mount(&self, image: &str, on: PathBuf) -> PathBuf {
        std::fs::create_dir_all(&on).expect("create the directory to mount on");
        self.ok(&["mount", image, &on.display().to_string()]);
        on
    }
}

impl Done {
    /// No secret stands in what was written.
    #[track_caller]
    fn search_for_secrets(&self, args: &[&str]) {
        super::secrets::search(&format!("imagelet {args:?}, standard output"), self.stdout.as_bytes());
        super::secrets::search(&format!("imagelet {args:?}, standard error"), self.stderr.as_bytes());
    }

    /// Asserts this exit code and one line on standard error, which is the answer.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, args: &[&str]) -> String {
        assert_eq!(self.code, Some(code), "imagelet {args:?}:\n{}{}", self.stdout, self.stderr);
        let lines: Vec<&str> = self.stderr.lines().collect();
        let errors: Vec<&&str> = lines.iter().filter(|l| l.starts_with("error")).collect();
        assert_eq!(errors.len(), 1, "imagelet {args:?} does not say one line of error:\n{}", self.stderr);
        (**errors[0]).to_owned()
    }
}

/// Waits for a child that was spawned, and answers its exit status.
#[track_caller]
pub(crate) fn end_of(child: &mut Child) -> std::process::ExitStatus {
    match wait(child, PATIENCE) {
        Some(status) => status,
        None => {
            let _ = child.kill();
            panic!("imagelet did not come to an end")
        }
    }
}
