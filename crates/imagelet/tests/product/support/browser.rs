//! Debian's Chromium without a window, driven over a pipe by the DevTools protocol. Everything that goes wrong in a page, and every request that
//! it makes, is kept for [`Browser::assert_clean`]. Knows no page. `scripts/prerequisites.sh` installs the browser, `scripts/axe-core.sh` fetches
//! axe-core.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::process::{run, tool, wait};
use super::scratch::Scratch;

/// How long an answer may take: the machine is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(90);

/// The browser reads descriptor 3 and writes 4, which a shell makes of what it is given.
const START: &str = "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";

/// Flags that keep the browser from everything but the page.
const FLAGS: [&str; 14] = [
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-sync",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-proxy-server",
    "--force-color-profile=srgb",
];

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    last: u64,
    session: Option<String>,
    /// Events of the page so far.
    events: Vec<Value>,
    _profile: Scratch,
}

impl Browser {
    /// A browser whose page is empty.
    #[track_caller]
    pub(crate) fn start() -> Self {
        let profile = Scratch::new();
        let chromium = tool("chromium").get_program().to_owned();
        let mut child = tool("setpriv")
            .args(["--pdeathsig", "KILL", "--", "/bin/sh", "-c", START, "sh"])
            .arg(chromium)
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("start chromium");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let (sender, messages) = channel();
        thread::spawn(move || {
            for message in BufReader::new(output).split(0).map_while(Result::ok) {
                let value = serde_json::from_slice(&message).expect("the browser writes JSON");
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        let mut browser =
            Self { child, input, messages, last: 0, session: None, events: Vec::new(), _profile: profile };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Calls a method of the protocol, and answers its result.
    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.try_call(method, &parameters).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// The same, where an error is an answer.
    #[track_caller]
    fn try_call(&mut self, method: &str, parameters: &Value) -> Result<Value, Value> {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.input.write_all(format!("{message}\0").as_bytes()).expect("the browser reads");
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let message = self.messages.recv_timeout(left).unwrap_or_else(|e| panic!("{method}: no answer: {e}"));
            if message["id"] == json!(self.last) {
                return match message.get("error") {
                    Some(error) => Err(error.clone()),
                    None => Ok(message["result"].clone()),
                };
            }
            self.events.push(message);
        }
    }

    /// Opens a page, and returns when it is loaded.
    #[track_caller]
    pub(crate) fn open(&mut self, url: &str) {
        let gone = self.call("Page.navigate", json!({"url": url}));
        assert!(gone.get("errorText").is_none(), "{url}: {gone}");
        self.wait_for("the page is loaded", "document.readyState === 'complete' && location.href !== 'about:blank'");
    }

    /// The value of an expression in the page.
    #[track_caller]
    pub(crate) fn js(&mut self, expression: &str) -> Value {
        self.try_js(expression).unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// Evaluates an expression in the same way, while the page may be about to be replaced.
    #[track_caller]
    fn try_js(&mut self, expression: &str) -> Result<Value, Value> {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.try_call("Runtime.evaluate", &parameters)?;
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {}", answer["exceptionDetails"]);
        Ok(answer["result"]["value"].clone())
    }

    /// Waits until an expression is true in the page.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, what: &str, expression: &str) {
        let until = Instant::now() + PATIENCE;
        // A page that is replaced during a query answers with an error. The next page is queried then.
        while self.try_js(&format!("Boolean({expression})")) != Ok(json!(true)) {
            if Instant::now() > until {
                let text = self.js("document.body.innerText");
                panic!("it never comes to this: {what}: {expression}\n{}", text.as_str().unwrap_or_default());
            }
            thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// The size of the window, and light or dark.
    pub(crate) fn emulate(&mut self, width: u32, height: u32, scheme: &str) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let features = json!([
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Writes a picture of the whole page below `target/screenshots`.
    pub(crate) fn picture(&mut self, name: &str) {
        let shot = self.call("Page.captureScreenshot", json!({"format": "png", "captureBeyondViewport": true}));
        let bytes = STANDARD.decode(shot["data"].as_str().expect("a picture")).expect("base64");
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/screenshots");
        std::fs::create_dir_all(&directory).expect("a directory");
        std::fs::write(directory.join(format!("{name}.png")), bytes).expect("written");
    }

    /// Fails where axe-core finds a violation that is serious or worse.
    #[track_caller]
    pub(crate) fn assert_accessible(&mut self, when: &str) {
        if self.js("typeof axe") != json!("object") {
            let source = std::fs::read_to_string(axe_core()).expect("axe-core");
            self.call("Runtime.evaluate", json!({"expression": source}));
        }
        let found = self
            .js("axe.run().then(result => result.violations.filter(v => ['serious', 'critical'].includes(v.impact))\
             .map(v => `${v.id}: ${v.help}: ` + v.nodes.map(n => n.html).slice(0, 3).join(' ')))");
        assert_eq!(found, json!([]), "{when}");
    }

    /// Fails if a page of this session sent a request to another origin than `origin`, wrote an error to the console, or broke its policy.
    #[track_caller]
    pub(crate) fn assert_clean(&mut self, origin: &str) {
        self.js("0");
        let mut asked = 0;
        for event in std::mem::take(&mut self.events) {
            let parameters = &event["params"];
            match event["method"].as_str().unwrap_or_default() {
                "Network.requestWillBeSent" => {
                    let url = parameters["request"]["url"].as_str().unwrap_or_default();
                    assert!(url.starts_with(origin) || url == "about:blank", "{url} is not of {origin}");
                    asked += 1;
                }
                "Runtime.exceptionThrown" => panic!("{parameters}"),
                "Runtime.consoleAPICalled" if parameters["type"] == json!("error") => panic!("{parameters}"),
                "Log.entryAdded" if parameters["entry"]["level"] == json!("error") => panic!("{parameters}"),
                _ => {}
            }
        }
        assert!(asked > 0, "requests are seen at all");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.input.write_all(format!("{}\0", json!({"id": 0, "method": "Browser.close"})).as_bytes());
        if wait(&mut self.child, Duration::from_secs(10)).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The file that `scripts/axe-core.sh` keeps.
fn axe_core() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/axe-core.sh");
    run(tool("bash").arg(script)).trim().into()
}
