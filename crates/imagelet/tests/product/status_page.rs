//! The status page of a real agent, in Debian's Chromium and by a plain client: it is live, accessible, works without scripts,
//! requests nothing from other origins, and is shown only to clients with access.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use serde_json::json;
use tokio::runtime::Runtime;

use crate::support::browser::Browser;
use crate::support::gate::Gate;
use crate::support::network::{NODE_IP, enter_own_network};
use crate::support::node::Node;
use crate::support::process::{Daemon, run, tool};
use crate::support::random::noise_of;
use crate::support::scene::Scene;
use crate::support::{Imagelet, Packing};

/// The URL of the page in a line of an agent's log.
fn url_in(line: &str) -> Option<String> {
    let at = line.find("status page").map(|at| &line[at..])?;
    let from = at.find("http")?;
    Some(at[from..].split(['"', ' ']).next()?.to_owned())
}

#[track_caller]
pub(crate) fn url(agent: &Daemon) -> String {
    agent.wait_for("the URL of the page", url_in)
}

/// An agent with a page, and a client of its socket.
fn serve(s: &Scene) -> (Daemon, Imagelet, String) {
    let socket = s.scratch.join("cri.sock");
    let agent = s.imagelet.clone().global("--status-address", "127.0.0.1:0").serve(&socket);
    let at = url(&agent);
    (agent, Imagelet::remote(&format!("unix://{}", socket.display())), at)
}

/// An answer to a request as it is written.
#[track_caller]
fn ask(url: &str, request: &str) -> String {
    let host = url.strip_prefix("http://").expect("HTTP").trim_end_matches('/');
    let mut stream = TcpStream::connect(host).expect("connect");
    let request = request.replace("HOST", host);
    stream.write_all(format!("{request}\r\nConnection: close\r\n\r\n").as_bytes()).expect("written");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

/// The expression that says whether the live page is connected.
pub(crate) const LIVE: &str = "document.getElementById('state').textContent === 'Live'";

/// Pairs of visible texts that overlap by more than two pixels in both directions.
pub(crate) const OVERLAPS: &str = "(() => {
  const boxes = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.data.trim() || parent.closest('.sr, .skip, script, noscript, .matrix')) continue;
    if (parent.checkVisibility && !parent.checkVisibility()) continue;
    // On phones the heads of tables are there for screen readers alone.
    const head = parent.closest('thead');
    if (head && getComputedStyle(head).clipPath !== 'none') continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    // Texts that end with an ellipsis are cut at the box of the element that hides the rest.
    const hides = parent.closest('.name, .status');
    const limit = hides ? hides.getBoundingClientRect().right : Infinity;
    for (const box of range.getClientRects()) {
      const right = Math.min(box.right, limit);
      if (right - box.left > 1 && box.height > 1) boxes.push({ text: node.data.trim().slice(0, 40), left: box.left, right, top: box.top, bottom: box.bottom });
    }
  }
  const found = [];
  boxes.sort((a, b) => a.top - b.top);
  for (let i = 0; i < boxes.length; i++) {
    for (let j = i + 1; j < boxes.length && boxes[j].top < boxes[i].bottom; j++) {
      const [a, b] = [boxes[i], boxes[j]];
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 2 && high > 4) found.push(`${a.text} / ${b.text}`);
    }
  }
  return found.slice(0, 10);
})()";

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_page_lives() {
    let s = Scene::new();
    let base = s.file_layer("base", noise_of("base", 3 << 20), Packing::Gzip);
    for name in ["one", "two"] {
        let own = s.file_layer(name, noise_of(name, 1 << 20), Packing::Gzip);
        s.registry.push(&s.layout, &s.layout.image(&[base.clone(), own]), &format!("page/{name}:1"));
    }
    let long = s.layout.image(&[
        s.file_layer("a", vec![0_u8; 24 << 20], Packing::Plain),
        s.file_layer("b", vec![1_u8; 8 << 20], Packing::Plain),
    ]);
    s.registry.push(&s.layout, &long, "page/long:1");
    let runtime = Runtime::new().expect("a runtime");
    let gate = runtime.block_on(Gate::start(s.registry.host().to_owned()));
    gate.slow_answers(2 << 20);
    let (_agent, client, at) = serve(&s);
    for name in ["one", "two"] {
        client.ok(&["pull", &s.registry.name(&format!("page/{name}:1"))]);
    }
    client.fails(1, &["pull", &s.registry.name("page/missing:1")]);

    let mut browser = Browser::start();
    browser.emulate(1280, 900, "light");
    browser.open(&at);
    browser.wait_for("it is live", LIVE);
    assert_eq!(browser.js("document.getElementById('sets').hidden"), json!(true), "the agent follows no image sets");
    let text = browser.js("document.body.innerText");
    let text = text.as_str().expect("text");
    assert!(browser.js("document.title").as_str().is_some_and(|title| title.contains("1 pull failed")));
    for word in [
        "one:1",
        "two:1",
        "Sharing saves",
        "1 pull failed",
        "not found",
        "imagelet explain",
        "No pull is running.",
        "Download",
        "Freed if removed",
    ] {
        assert!(text.contains(word), "{word} in\n{text}");
    }

    // The bar of a pull moves, and typing meanwhile is not disturbed.
    browser.js("document.getElementById('image-filter').focus()");
    browser.js("document.getElementById('image-filter').value = 'typed'");
    let mut pull = client.spawn(&["pull", &format!("{}/page/long:1", gate.host())]);
    browser.wait_for("bytes come", "document.querySelector('#pulls progress')?.value > 1000000");
    let before = browser.js("document.querySelector('#pulls progress').value").as_f64().expect("bytes");
    assert!(browser.js("document.querySelectorAll('#pulls .layers li').length").as_u64() > Some(0), "layers are shown");
    browser.wait_for("the bar moves", &format!("document.querySelector('#pulls progress').value > {before}"));
    assert_eq!(browser.js("document.activeElement.id + document.activeElement.value"), json!("image-filtertyped"));
    for (width, scheme) in [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")] {
        browser.emulate(width, 900, scheme);
        browser.assert_accessible(&format!("{width} {scheme}"));
        browser.picture(&format!("pulling-{width}-{scheme}"));
        let wide = browser.js("document.documentElement.scrollWidth");
        assert!(wide.as_u64() <= Some(u64::from(width)), "{wide} at {width}");
        assert_eq!(browser.js(OVERLAPS), json!([]), "texts overlap at {width} {scheme}");
    }
    browser.emulate(1280, 900, "light");
    assert!(
        browser.js("document.querySelector('#pulls').innerText").as_str().is_some_and(|text| text.contains(" left,"))
    );

    gate.open();
    assert!(pull.wait().expect("it ends").success());
    browser.wait_for("the pull is over", "document.querySelector('#pulls').innerText.includes('No pull is running.')");
    browser.wait_for("its image is there", "document.querySelector('#images').innerText.includes('long:1')");
    browser
        .wait_for("it is announced", "document.getElementById('announcement').textContent.includes('long:1 pulled')");
    client.ok(&["rmi", &s.registry.name("page/one:1")]);
    browser.wait_for("a removed image is gone", "!document.querySelector('#images').innerText.includes('one:1')");
    assert_eq!(browser.js("document.activeElement.value"), json!("typed"));

    // Paused, nothing changes; resumed, it does again.
    browser.js("document.getElementById('pause').click()");
    assert_eq!(browser.js("document.getElementById('state').textContent"), json!("Paused"));
    client.ok(&["rmi", &s.registry.name("page/two:1")]);
    assert_eq!(browser.js("document.querySelector('#images').innerText.includes('two:1')"), json!(true));
    browser.js("document.getElementById('pause').click()");
    browser.wait_for("it is live again", "!document.querySelector('#images').innerText.includes('two:1')");
    browser.assert_clean(&at);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_page_connects_again() {
    let s = Scene::new();
    let socket = s.scratch.join("cri.sock");
    let port = free_port();
    let imagelet = s.imagelet.clone().global("--status-address", &format!("127.0.0.1:{port}"));
    let mut agent = imagelet.serve(&socket);
    let mut browser = Browser::start();
    browser.open(&url(&agent));
    browser.wait_for("it is live", LIVE);
    agent.stop();
    browser.wait_for("it has noticed", "document.getElementById('state').textContent === 'Reconnecting…'");
    let _agent = imagelet.serve(&socket);
    browser.wait_for("it is live again", LIVE);
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port()
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_page_works_without_scripts() {
    let s = Scene::new();
    let (_agent, client, at) = serve(&s);
    for name in ["apple", "pear"] {
        let (name, _) = s.push_file(&format!("page/{name}:1"), "a", noise_of(name, 1 << 16));
        client.ok(&["pull", &name]);
    }
    let mut browser = Browser::start();
    browser.call("Emulation.setScriptExecutionDisabled", json!({"value": true}));
    browser.emulate(360, 800, "light");
    browser.open(&at);
    let rows = "[...document.querySelectorAll('#images tbody th')].map(row => row.innerText.trim().split(' ')[0].split('/').pop()).join()";
    assert_eq!(browser.js("document.getElementById('pause').hidden"), json!(true));
    browser.js("document.querySelector('#images thead a').click()");
    browser.wait_for(
        "the page in the order of names",
        "location.search === '?sort=name' && document.readyState === 'complete'",
    );
    let named = browser.js(rows);
    assert!(named.as_str().is_some_and(|rows| rows.starts_with("apple:1,pear:1")), "{named}");
    browser.js("document.getElementById('image-filter').value = 'PEAR'");
    browser.js("document.querySelector('#images form').requestSubmit()");
    browser.wait_for(
        "the page of one image",
        "location.search.includes('image=PEAR') && document.readyState === 'complete'",
    );
    assert_eq!(browser.js("document.querySelectorAll('#images tbody tr').length"), json!(1));
    assert!(browser.js("document.documentElement.scrollWidth").as_u64() <= Some(360));
    // axe-core is a script itself; those of the page are not run after its load.
    browser.call("Emulation.setScriptExecutionDisabled", json!({"value": false}));
    browser.assert_accessible("without scripts");
    browser.assert_clean(&at);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn answers_are_guarded() {
    let s = Scene::new();
    let (_agent, _, at) = serve(&s);
    let page = ask(&at, "GET / HTTP/1.1\r\nHost: HOST");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    let headers = [
        "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'\r\n",
        "x-content-type-options: nosniff\r\n",
        "x-frame-options: DENY\r\n",
        "referrer-policy: no-referrer\r\n",
        "cross-origin-resource-policy: same-origin\r\n",
        "cross-origin-opener-policy: same-origin\r\n",
    ];
    let asset = page.split('"').find(|part| part.ends_with("/page.js")).expect("a script").to_owned();
    let script = ask(&at, &format!("GET {asset} HTTP/1.1\r\nHost: HOST"));
    assert!(script.contains("cache-control: private, max-age=31536000, immutable\r\n"), "{script}");
    let lost = ask(&at, "GET /admin HTTP/1.1\r\nHost: HOST");
    let foreign = ask(&at, "GET / HTTP/1.1\r\nHost: rebound.example:10260");
    let respelled = ask(&at, "GET //live HTTP/1.1\r\nHost: HOST");
    for (status, answer) in [(200, &page), (200, &script), (404, &lost), (404, &respelled)] {
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        for header in headers {
            assert!(answer.contains(header), "{header} in\n{answer}");
        }
    }
    assert!(page.contains("cache-control: no-store\r\n") && foreign.contains("cache-control: no-store\r\n"));
    assert!(foreign.starts_with("HTTP/1.1 421 ") && !foreign.contains("<html"), "{foreign}");
    assert!(foreign.contains("x-content-type-options: nosniff\r\n"), "{foreign}");
    let cases = [
        ("POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 0", 405),
        ("DELETE /live HTTP/1.1\r\nHost: HOST", 405),
        ("GET /?sort=colour HTTP/1.1\r\nHost: HOST", 400),
        ("GET /live?colour=red HTTP/1.1\r\nHost: HOST", 400),
        ("GET /assets/0000000000000000/page.js HTTP/1.1\r\nHost: HOST", 404),
        ("GET / HTTP/1.1\r\nHost: HOST\r\nHost: HOST", 421),
        ("GET / HTTP/1.0", 421),
    ];
    for (request, status) in cases {
        let answer = ask(&at, request);
        assert!(
            answer.starts_with(&format!("HTTP/1.{} {status} ", u8::from(!request.contains("1.0")))),
            "{request}: {answer}"
        );
    }
}

/// Runs openssl in a directory.
#[track_caller]
fn openssl(directory: &Path, words: &str) {
    run(tool("openssl").args(words.split(' ')).current_dir(directory));
}

/// The status with which curl is answered; 000 where there is no answer.
fn curl(words: &[&str], at: &str) -> String {
    let output = tool("curl").args(["-sk", "-o", "/dev/null", "-w", "%{http_code}"]).args(words).arg(at).output();
    String::from_utf8(output.expect("curl").stdout).expect("text")
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn the_network_sees_a_page_with_a_token_alone_under_the_certificate_of_the_root() {
    enter_own_network();
    let s = Scene::new();
    let address = format!("{NODE_IP}:0");
    let line =
        s.imagelet.clone().global("--status-address", &address).fails(64, &["serve", "--listen", "unix:///tmp/x"]);
    assert!(line.contains("statusTokenFile must say who may read the page"), "{line}");
    let directory = s.scratch.path();
    let file = |name: &str| directory.join(name).display().to_string();
    // A directory that is no store yet and not empty is refused as a root.
    let (name, _) = s.push_file("page/one:1", "a", "a");
    s.imagelet.ok(&["pull", &name]);
    let page = s.scratch.directory("store/status-page");
    openssl(
        &page,
        &format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=page -addext \
             subjectAltName=IP:{NODE_IP} -keyout tls.key -out tls.crt"
        ),
    );
    let token = "token-of-readers-0123";
    std::fs::write(directory.join("token"), format!("{token}\n")).expect("written");
    let imagelet = s.imagelet.clone().global("--status-address", &address);
    let imagelet = imagelet.global("--status-token-file", &file("token"));
    let (key, aside) = (page.join("tls.key"), page.join("aside"));
    std::fs::rename(&key, &aside).expect("moved");
    let line = imagelet.fails(64, &["serve", "--listen", "unix:///tmp/x"]);
    assert!(line.contains("status-page/tls.crt and no ") && line.contains("status-page/tls.key"), "{line}");
    std::fs::rename(&aside, &key).expect("moved");
    let agent = imagelet.serve(&s.scratch.join("cri.sock"));
    let at = url(&agent);
    assert!(at.starts_with(&format!("https://{NODE_IP}:")), "{at}");
    let bearer = format!("Authorization: Bearer {token}");
    let basic = format!("reader:{token}");
    let cases: [(&[&str], &str); 5] = [
        (&[], "401"),
        (&["-H", &bearer], "200"),
        (&["-u", &basic], "200"),
        (&["-u", "reader:token-of-readers-0124"], "401"),
        (&["--tls-max", "1.1"], "000"),
    ];
    for (words, want) in cases {
        assert_eq!(curl(words, &at), want, "{words:?}");
    }
    assert_eq!(curl(&[], &at.replace("https", "http")), "000", "nothing is answered in clear text");
    let authority = page.join("tls.crt").display().to_string();
    let known = run(tool("curl").args(["-sS", "--fail", "--cacert", &authority, "-H", &bearer, &at]));
    assert!(known.contains("<html"), "the certificate of the root is served: {known}");
    assert!(!agent.lines().join("\n").contains(token), "the log has no token");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn pods_and_their_events_are_shown() {
    let node = Node::with(&json!({"statusAddress": "127.0.0.1:0"}));
    node.eventually("the page listens", || node.log().iter().any(|line| url_in(line).is_some()));
    let at = node.log().iter().find_map(|line| url_in(line)).expect("a URL");
    let mut container = node.container("main", "sleep 1000");
    container["env"] = json!([{"name": "SECRET_OF_A_CONTAINER", "value": "not-for-the-page"}]);
    node.write("web.yaml", &node.pod("web", json!({"containers": [container]})));
    let mut browser = Browser::start();
    browser.open(&at);
    browser.wait_for(
        "the pod runs",
        "document.querySelector('#pods summary')?.innerText.replace(/\\s+/g, ' ').match(/web.* Running .*1\\/1/)",
    );
    assert_eq!(
        browser.js("document.querySelector('#pods li ol')?.checkVisibility()"),
        json!(false),
        "events are folded"
    );
    browser.js("document.querySelector('#pods summary').click()");
    browser.wait_for("its events are shown", "document.querySelector('#pods li').innerText.includes('Started')");
    browser.wait_for("its containers are shown", "document.querySelector('#pods tbody').innerText.includes('running')");
    let html = browser.js("document.documentElement.outerHTML");
    let html = html.as_str().expect("text");
    assert!(!html.contains("SECRET_OF_A_CONTAINER") && !html.contains("not-for-the-page"));
    browser.assert_accessible("with pods");
    browser.picture("pods-light");
    browser.assert_clean(&at);
    node.remove("web.yaml");
    browser.wait_for("the pod is gone", "!document.querySelector('#pods').innerText.includes('web')");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_page_leads_to_what_fails() {
    let node = Node::with(&json!({"statusAddress": "127.0.0.1:0"}));
    node.eventually("the page listens", || node.log().iter().any(|line| url_in(line).is_some()));
    let at = node.log().iter().find_map(|line| url_in(line)).expect("a URL");
    let absent = node.scene.registry.name("team/absent:1");
    let mut missing = node.container("main", "true");
    missing["image"] = json!(absent);
    let pods = [
        ("web", node.container("main", "sleep 1000")),
        ("crash", node.container("main", "exit 3")),
        ("missing-1", missing.clone()),
        ("missing-2", missing),
    ];
    for (name, container) in pods {
        let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [container]});
        node.write(&format!("{name}.json"), &node.pod(name, spec));
    }
    node.write_bytes("odd.yaml", b"apiVersion: v1\nkind: Pod\nmetadata: {name: odd}\nspec: {containers: []}\n");
    node.ready("web");
    node.waits("crash", "main", "CrashLoopBackOff");
    node.waits("missing-1", "main", "ImagePullBackOff");
    node.waits("missing-2", "main", "ImagePullBackOff");

    let mut browser = Browser::start();
    browser.emulate(1280, 900, "light");
    browser.open(&at);
    browser.wait_for(
        "the line of health",
        "document.querySelector('#health').innerText.replace(/\\s+/g, ' ').includes('3 of 4 pods not ready 1 manifest refused 1 pull retrying disk OK')",
    );
    let title = browser.js("document.title");
    let wanted = "3 of 4 pods not ready · 1 manifest refused · 1 pull retrying · disk OK – ";
    assert!(title.as_str().is_some_and(|title| title.starts_with(wanted)), "{title}");
    let parts = browser.js("[...document.querySelectorAll('[id]')].map(part => part.id).filter(id => document.getElementById(id).matches('nav, section')).join()");
    assert_eq!(parts, json!("health,attention,pulls,pods,sets,disk,images,layers,speed,ended,events"));

    // One entry for each failure, with the command to type, which works.
    let count = |browser: &mut Browser, text: &str| {
        let text = json!(text);
        browser.js(&format!("document.body.innerText.split({text}).length - 1")).as_u64()
    };
    assert_eq!(browser.js("document.querySelectorAll('#attention li').length"), json!(3));
    let attention = browser.js("document.querySelector('#attention').innerText");
    let attention = attention.as_str().expect("text");
    for piece in ["not found, ", "next retry", "for 2 pods: ", "exited with code 3, container main", "refused: "] {
        assert!(attention.contains(piece), "{piece} in\n{attention}");
    }
    assert_eq!(count(&mut browser, "not found, "), Some(1), "{attention}");
    assert_eq!(count(&mut browser, "Back-off pulling image"), Some(0), "messages are folded");
    let commands = browser.js("[...document.querySelectorAll('#attention code')].map(code => code.innerText)");
    let commands: Vec<&str> = commands.as_array().expect("commands").iter().filter_map(|one| one.as_str()).collect();
    assert!(commands.contains(&format!("imagelet explain {absent}").as_str()), "{commands:?}");
    for command in commands {
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        let done = node.imagelet.run(&words);
        assert!(!matches!(done.code, Some(2 | 64) | None), "{command}: {}", done.stderr);
    }
    browser.js("document.querySelector('#attention summary').click()");
    browser.js("document.querySelector('#health a').click()");
    assert_eq!(browser.js("location.hash"), json!("#attention"));

    for (width, scheme) in [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")] {
        browser.emulate(width, 844, scheme);
        browser.assert_accessible(&format!("{width} {scheme}"));
        browser.picture(&format!("failing-{width}-{scheme}"));
        let wide = browser.js("document.documentElement.scrollWidth");
        assert!(wide.as_u64() <= Some(u64::from(width)), "{wide} at {width}");
        assert_eq!(browser.js(OVERLAPS), json!([]), "texts overlap at {width} {scheme}");
    }
    let lines =
        "[...document.querySelectorAll('.pods summary')].every(line => line.getBoundingClientRect().height < 40)";
    assert_eq!(browser.js(lines), json!(true), "a pod has one line on a phone");
    assert_eq!(
        browser.js("document.querySelector('#layers picture, .matrix')?.checkVisibility() ?? false"),
        json!(false)
    );

    // The page follows a repair.
    for file in ["crash.json", "missing-1.json", "missing-2.json", "odd.yaml"] {
        node.remove(file);
    }
    browser.wait_for("the node is well", "document.title.startsWith('1 pod ready · disk OK – ')");
    browser.wait_for("nothing needs attention", "document.getElementById('attention').hidden");
    browser.assert_clean(&at);
    node.clear();
}
