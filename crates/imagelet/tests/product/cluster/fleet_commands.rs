//! `imagelet fleet` as a person types it, next to kubectl, against a real API server with the rights of deploy/fleet: a set is applied, its
//! rollout fails on one node, the cause is found and mended, and everything becomes ready.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::fleet::{FleetScene, ask_metrics, leads};
use crate::support::browser::Browser;
use crate::support::control_plane::ControlPlane;
use crate::support::network::enter_own_network;
use crate::support::process::{Daemon, run, tool};
use crate::support::scene::{Scene, blobs_in};
use crate::support::{Containerd, Imagelet};
use crate::{dashboards, status_page};

/// Writes a set as YAML, with these lines at the end of its spec.
fn set_file(fleet: &FleetScene, image: &str, more: &str) -> PathBuf {
    let file = fleet.plane.file("web.yaml");
    let text = format!(
        "apiVersion: imagelet.dev/v1alpha1\nkind: ImageSet\nmetadata: {{name: web}}\nspec:\n  images:\n  - name: {image}\n  \
         nodeSelector: {{matchLabels: {{role: web}}}}\n{more}"
    );
    fs::write(&file, text).expect("written");
    file
}

/// A user with these permissions alone.
fn user(fleet: &FleetScene, name: &str, rules: &Value) -> Imagelet {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    });
    fleet.plane.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [role, binding]}));
    let kubeconfig = fleet.plane.user(&format!("/O=people/CN={name}"));
    Imagelet::bare().global("--kubeconfig", &kubeconfig.display().to_string())
}

/// Installs the fleet as an administrator does. The second time, nothing changes.
#[track_caller]
fn install_twice(plane: &ControlPlane, imagelet: &Imagelet) {
    let install = ["fleet", "install", "--image", "r.example/imagelet:1"];
    let first = imagelet.run(&install);
    assert_eq!(first.code, Some(0), "{first:?}");
    for object in ["customresourcedefinition/imagesets.imagelet.dev", "deployment/imagelet-fleet-controller"] {
        assert!(first.stdout.contains(&format!("{object} created\n")), "{first:?}");
    }
    let (_, minor) = plane.version();
    assert_eq!(first.stderr.contains("admission policies are left out"), minor < 30, "{first:?}");
    assert_eq!(first.stderr.contains("validation rules are left out"), minor < 29, "{first:?}");
    let template = &plane.get(&["-n", "imagelet-fleet", "daemonset", "imagelet-fleet-node"])["spec"]["template"];
    assert_eq!(template["spec"]["containers"][0]["image"], "r.example/imagelet:1");
    plane.wait(&["--for=condition=Established", "crd", "imagesets.imagelet.dev", "nodeimages.imagelet.dev"]);
    let second = imagelet.ok(&install);
    assert!(second.lines().all(|line| line.ends_with(" unchanged")), "{second}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_failing_rollout_is_found_and_mended_at_a_shell() {
    enter_own_network();
    let fleet = FleetScene { plane: ControlPlane::start() };
    let plane = &fleet.plane;
    let images = Scene::new();
    let (app, image) = images.push_file("fleet/web:1", "etc/web", "web");
    for (node, role) in [("n0", "web"), ("n1", "db")] {
        plane.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": {"role": role}}}));
    }
    // The kubeconfig is that of the environment, as for kubectl; a file of the list may be missing. That of a configuration file belongs
    // to the node.
    let files = format!("/not/there:{}", plane.admin().display());
    let config = plane.file("config.yaml");
    let of_node =
        json!({"apiVersion": "imagelet.dev/v1alpha1", "kind": "ImageletConfiguration", "kubeconfig": plane.node("n0")});
    fs::write(&config, of_node.to_string()).expect("written");
    let imagelet = Imagelet::bare().env("KUBECONFIG", &files).global("--config", &config.display().to_string());
    let run = |args: &[&str]| imagelet.ok(&[&["fleet"], args].concat());
    install_twice(plane, &imagelet);

    // A typing error is found before anything is sent, and a pod is not for this command.
    let file = set_file(&fleet, &app, "  rollout: {maxFaild: 0}\n");
    let path = file.display().to_string();
    let error = imagelet.fails(1, &["fleet", "apply", "-f", &path]);
    assert!(error.contains("web.yaml:8: spec.rollout.maxFaild: Unknown field; did you mean \"maxFailed\"?"), "{error}");
    assert!(plane.try_get(&["imageset", "web"]).is_none());
    let error = imagelet.fails(1, &["fleet", "status", "web"]);
    assert!(error.contains("there is no ImageSet web"), "{error}");

    // The node has too little space for the set.
    set_file(&fleet, &app, "  minFree: 100%\n  rollout: {maxFailed: 0}\n");
    assert_eq!(run(&["apply", "-f", &path, "--dry-run"]), "imageset/web created (server dry run)\n");
    assert!(plane.try_get(&["imageset", "web"]).is_none());
    assert_eq!(run(&["apply", "-f", &path]), "imageset/web created\n");
    assert_eq!(run(&["apply", "-f", &path]), "imageset/web unchanged\n");
    let why = run(&["why", "n0", &app]);
    assert!(why.contains("the controller has not handled the last change of web."), "{why}");
    let controller = fleet.controller("one");
    leads(&controller);
    plane.until_object(&["imageset", "web"], "the node is released", |set| set["status"]["released"].is_string());
    let why = run(&["why", "n0", &app]);
    assert!(why.contains("n0 may start, but has never reported"), "{why}");

    let kubeconfig = plane.node("n0").display().to_string();
    let agent = images.imagelet.clone().global("--fleet-kubeconfig", &kubeconfig).global("--node-name", "n0");
    let agent = agent.global("--fleet-namespace", "imagelet-fleet").global("--metrics-address", "127.0.0.1:0");
    let agent = agent.global("--status-address", "127.0.0.1:0").serve(&images.scratch.join("cri.sock"));
    // The watch ends with the failure, and its lines are those of the changes.
    let watched = imagelet.run(&["fleet", "watch", "web", "--timeout", "60s"]);
    assert_eq!(watched.code, Some(1), "{watched:?}");
    assert!(watched.stderr.contains("the rollout of web failed: TooManyFailures"), "{watched:?}");
    assert!(watched.stdout.lines().all(|line| line.contains(" imageset/web ")), "{watched:?}");
    let status = run(&["status", "web"]);
    assert!(status.contains("InsufficientSpace  1 node  ") && status.contains("    on n0\n"), "{status}");
    assert!(status.lines().all(|line| line.chars().count() <= 80), "{status}");
    assert!(status.contains(&format!("  {}\n", &image.manifest.digest.to_string()[..19])), "{status}");
    let why = run(&["why", "n0", &app]);
    assert!(why.contains(&format!("n0 cannot pull {app}: InsufficientSpace: ")), "{why}");
    assert!(why.contains("Next: free space on the node, or lower minFree of the set"), "{why}");
    exports(&fleet, &images, &controller, &agent, &["failed", "Degraded"]);
    let listed = sets_of(&images);
    assert_eq!((&listed["sets"][0]["name"], &listed["sets"][0]["images"][0]["name"]), (&json!("web"), &json!(app)));
    assert!(listed["lastReport"].is_string(), "{listed:#}");
    let mut page = failure_is_shown(&agent, &app);
    let other = run(&["why", "n1", &app]);
    assert!(other.contains("does not select n1: role=web is required, and the node has role=db."), "{other}");
    let unknown = imagelet.fails(1, &["fleet", "why", "node-0", &app]);
    assert!(unknown.contains("there is no Node node-0"), "{unknown}");
    assert!(run(&["why", "n0", "nothing:1"]).contains("no set names nothing:1."));

    // Another manager owns a field: kubectl set it.
    let patch = [
        "patch",
        "imageset",
        "web",
        "--type=merge",
        "-p",
        r#"{"spec":{"releaseAfter":"1h"}}"#,
        "--field-manager=operator",
    ];
    plane.kubectl(&patch);
    set_file(&fleet, &app, "  minFree: 0%\n  releaseAfter: 2h\n  rollout: {maxFailed: 0}\n");
    let conflict = imagelet.fails(1, &["fleet", "apply", "-f", &path]);
    assert!(conflict.contains("spec.releaseAfter is managed by \"operator\""), "{conflict}");
    assert_eq!(run(&["apply", "-f", &path, "--force-conflicts"]), "imageset/web configured\n");
    // The node tries again by itself.
    let watched = imagelet.run(&["fleet", "watch", "web", "--timeout", "90s"]);
    plane.kubectl(&["wait", "--for=condition=Ready", "imageset/web", "--timeout=60s"]);
    // The rollout may still count as failed when the watch begins.
    assert!(watched.code == Some(0) || watched.stderr.contains("TooManyFailures"), "{watched:?}");
    run(&["watch", "web", "--timeout", "60s"]);
    assert!(run(&["why", "n0", &app]).contains(&format!("n0 has {app}: it reported so ")));
    let table = run(&["status"]);
    let row: Vec<&str> = table.lines().nth(1).expect("a row").split_whitespace().collect();
    assert_eq!(&row[..6], ["web", "1", "1", "1", "0", "Complete"], "{table}");
    let ready = run(&["status", "web", "-o", "jsonpath={.nodes.ready} {.images[0].digest}"]);
    assert_eq!(ready.trim(), format!("1 {}", image.manifest.digest));
    exports(&fleet, &images, &controller, &agent, &["ready", "Ready"]);
    let listed = sets_of(&images);
    assert_eq!(
        (&listed["sets"][0]["phase"], &listed["sets"][0]["images"][0]["phase"]),
        (&json!("Ready"), &json!("Ready"))
    );
    page.wait_for("the set is ready", "document.querySelector('#sets').innerText.includes('1 of 1 image ready')");
    // How full the disk of the machine is does not matter here.
    let text = "document.querySelector('#attention').textContent.includes('for image set web')";
    page.wait_for("the image needs no attention", &format!("!{text}"));
    page.assert_clean(&status_page::url(&agent));
    drop(page);
    drop(agent);

    pauses(&fleet, &imagelet);
    rights(&fleet, &app);
}

/// The controller and the agent export the state of the set, and every metric of the dashboard and the alerts.
#[track_caller]
fn exports(fleet: &FleetScene, images: &Scene, controller: &Daemon, agent: &Daemon, state: &[&str; 2]) {
    let [phase, condition] = state;
    let of_controller = [
        "imagelet_fleet_leader 1".to_owned(),
        "imagelet_fleet_nodes 2".to_owned(),
        format!("imagelet_fleet_set_nodes{{set=\"web\",state=\"{phase}\"}} 1"),
        format!("imagelet_fleet_set_condition{{set=\"web\",type=\"{condition}\"}} 1"),
    ];
    let of_agent = [
        format!("imagelet_image_set_phase{{set=\"web\",phase=\"{phase}\"}} 1"),
        format!("imagelet_image_set_images{{set=\"web\",phase=\"{phase}\"}} 1"),
    ];
    // A failed node tries again from time to time.
    fleet.plane.until("the state is exported", || {
        let all = [(controller, &of_controller[..]), (agent, &of_agent[..])];
        all.iter().all(|(daemon, wanted)| {
            let text = ask_metrics(daemon, "/metrics");
            wanted.iter().all(|line| text.lines().any(|known| known == line))
        })
    });
    let (of_controller, of_agent) = (ask_metrics(controller, "/metrics"), ask_metrics(agent, "/metrics"));
    assert!(of_agent.contains("imagelet_image_set_pull_failures_total{reason=\"InsufficientSpace\"} "), "{of_agent}");
    assert!(!of_agent.contains("imagelet_node_images_last_report_timestamp_seconds 0\n"), "{of_agent}");
    for text in [&of_controller, &of_agent] {
        assert_eq!(dashboards::lint(images.scratch.path(), text), Vec::<String>::new());
    }
    let documented = include_str!("../../../../../docs/admin.md");
    for name in dashboards::metrics_of_fleets() {
        let is_exported = [&of_controller, &of_agent].iter().any(|text| text.contains(&format!("# TYPE {name} ")));
        // A write fails seldom.
        let is_documented = documented.contains(&format!("| `{name}` |"));
        assert!(is_documented && (is_exported || name == "imagelet_fleet_write_failures_total"), "no metric {name}");
    }
    assert_eq!(ask_metrics(controller, "/livez"), "ok\n");
}

/// The sets of a node, by the API of its agent.
#[track_caller]
fn sets_of(images: &Scene) -> Value {
    let socket = images.scratch.join("store/admin.sock").display().to_string();
    let mut curl = tool("curl");
    let answer = run(curl.args(["-sSf", "--unix-socket", &socket, "http://imagelet/v1/image-sets"]));
    serde_json::from_str(&answer).expect("JSON")
}

/// The page of the node shows the failed image once as a trouble, and in its set with the reason and the next attempt.
#[track_caller]
fn failure_is_shown(agent: &Daemon, app: &str) -> Browser {
    let mut browser = Browser::start();
    browser.emulate(1280, 900, "light");
    browser.open(&status_page::url(agent));
    browser.wait_for("it is live", status_page::LIVE);
    browser.wait_for("it retries", "document.title.includes('1 pull retrying')");
    // The node tries again meanwhile: what belongs together is read at once.
    browser.wait_for(
        "the failure with the next attempt",
        "document.querySelector('#attention').innerText.split('for image set web').length === 2
         && /InsufficientSpace.*next retry in/s.test(document.querySelector('#attention').innerText)
         && /0 of 1 image ready, 1 failed/.test(document.querySelector('#sets').innerText)
         && /InsufficientSpace, next attempt in/.test(document.querySelector('#sets').innerText)",
    );
    let folded = "document.querySelector('#sets tbody')?.checkVisibility()";
    assert_eq!(browser.js(folded), json!(false), "images are folded");
    browser.js("document.querySelector('#sets summary').click()");
    let name = app.rsplit('/').next().unwrap_or(app);
    browser.wait_for("images", &format!("document.querySelector('#sets tbody').innerText.includes('{name}')"));
    for (width, scheme) in [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")] {
        browser.emulate(width, 844, scheme);
        browser.assert_accessible(&format!("{width} {scheme}"));
        browser.picture(&format!("sets-{width}-{scheme}"));
        let wide = browser.js("document.documentElement.scrollWidth");
        assert!(wide.as_u64() <= Some(u64::from(width)), "{wide} at {width}");
        assert_eq!(browser.js(status_page::OVERLAPS), json!([]), "texts overlap at {width} {scheme}");
    }
    browser
}

/// A set and the fleet are paused and resumed, next to what kubectl sees.
fn pauses(fleet: &FleetScene, imagelet: &Imagelet) {
    let run = |args: &[&str]| imagelet.ok(&[&["fleet"], args].concat());
    assert_eq!(run(&["pause", "web"]), "imageset/web paused\n");
    assert_eq!(run(&["pause", "web"]), "imageset/web is paused already\n");
    assert_eq!(fleet.plane.get(&["imageset", "web"])["spec"]["rollout"]["paused"], true);
    assert_eq!(run(&["resume", "web"]), "imageset/web resumed\n");
    assert_eq!(run(&["resume", "web"]), "imageset/web is not paused\n");
    assert_eq!(fleet.plane.get(&["imageset", "web"])["spec"]["rollout"]["paused"], false);
    assert_eq!(run(&["resume", "--all"]), "fleet/default is not paused\n");
    assert_eq!(run(&["pause", "--all"]), "fleet/default paused\n");
    assert_eq!(fleet.plane.get(&["fleet.imagelet.dev", "default"])["spec"]["paused"], true);
    assert_eq!(run(&["resume", "--all"]), "fleet/default resumed\n");
    let error = imagelet.fails(1, &["fleet", "pause", "wep"]);
    assert!(error.contains("there is no ImageSet wep; did you mean web?"), "{error}");
}

/// A user who may not list reports sees the rest, and one without any right gets a reason.
fn rights(fleet: &FleetScene, app: &str) {
    let rules = json!([
        {"apiGroups": ["imagelet.dev"], "resources": ["imagesets", "fleets"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
    ]);
    let viewer = user(fleet, "viewer", &rules);
    assert!(viewer.ok(&["fleet", "status", "web"]).contains("AllNodesReady"));
    viewer.ok(&["fleet", "watch", "web", "--timeout", "60s"]);
    let why = viewer.ok(&["fleet", "why", "n0", app]);
    assert!(why.contains("you may not read NodeImages"), "{why}");
    let refused = viewer.fails(77, &["fleet", "pause", "web"]);
    assert!(refused.contains("change ImageSet web: ") && refused.contains("viewer"), "{refused}");
    let stranger = user(fleet, "stranger", &json!([]));
    assert!(stranger.fails(77, &["fleet", "status"]).contains("list ImageSets: "));
    let nothing = Imagelet::bare().env("HOME", "/not/there").fails(64, &["fleet", "status"]);
    assert!(nothing.contains("/not/there/.kube/config"), "{nothing}");
}

/// A disk is made without an API server. The node that starts on it reports the set as ready, and fetches no layer.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_node_on_a_baked_disk_fetches_no_layer() {
    enter_own_network();
    let fleet = FleetScene::new();
    let plane = &fleet.plane;
    let s = Scene::new();
    let (app, image) = s.push_file("fleet/web:1", "etc/web", "web");
    let (other, _) = s.push_file("fleet/other:1", "etc/other", "other");
    let (pinned, fixed) = s.push_file("fleet/fixed:1", "etc/fixed", "fixed");
    let fixed = format!("{}@{}", pinned.trim_end_matches(":1"), fixed.manifest.digest);
    let file = set_file(&fleet, &app, &format!("  - name: {fixed}\n"));
    // The second image belongs to the list above the selector.
    let text = fs::read_to_string(&file).expect("read");
    let (head, tail) = text.split_once("  nodeSelector").expect("a selector");
    let line = format!("  - name: {fixed}\n");
    let text = format!("{head}{line}  nodeSelector{}", tail.replace(&line, ""));
    let more = format!(
        "---\napiVersion: imagelet.dev/v1alpha1\nkind: ImageSet\nmetadata: {{name: db}}\nspec:\n  images: [{{name: '{other}'}}]\n  \
         nodeSelector: {{matchLabels: {{role: db}}}}\n"
    );
    fs::write(&file, format!("{text}{more}")).expect("written");
    let path = file.display().to_string();
    let bake = ["fleet", "bake", "--set", &path, "--node-labels", "role=web"];
    let baked = s.imagelet.ok(&[&bake[..], &["-o", "json"]].concat());
    let baked: Value = serde_json::from_str(&baked).expect("JSON");
    assert_eq!(baked["sets"], json!(["web"]), "{baked:#}");
    let digests: Vec<&Value> =
        baked["images"].as_array().expect("a list").iter().map(|image| &image["digest"]).collect();
    assert!(digests.contains(&&json!(image.manifest.digest.to_string())), "{baked:#}");
    assert_eq!(digests.len(), 2, "{baked:#}");
    let explained = s.imagelet.ok(&["gc", "explain", &app]);
    assert!(explained.contains("pinned by an image set of the cluster"), "{explained}");
    // Again: no layer is fetched. An image that does not exist is named, and the others stay.
    let again = s.reads_while(&bake);
    assert_eq!(blobs_in(&again), 0, "{again:?}");
    let wrong = text.replace(&line, &format!("{line}  - name: {}\n", s.registry.name("fleet/none:1")));
    fs::write(&file, wrong).expect("written");
    let failed = s.imagelet.fails(1, &bake);
    assert!(failed.contains("fleet/none"), "{failed}");
    assert_eq!(s.imagelet.images().len(), 2);
    fs::write(&file, text).expect("written");

    // The node starts.
    let before = s.registry.requests().len();
    let web = json!({"metadata": {"name": "n0", "labels": {"role": "web"}}, "apiVersion": "v1", "kind": "Node"});
    plane.apply(&web);
    let admin = Imagelet::bare().global("--kubeconfig", &plane.admin().display().to_string());
    admin.ok(&["fleet", "apply", "-f", &path]);
    let controller = fleet.controller("one");
    leads(&controller);
    let kubeconfig = plane.node("n0").display().to_string();
    let agent = s.imagelet.clone().global("--fleet-kubeconfig", &kubeconfig).global("--node-name", "n0");
    let _agent = agent.global("--fleet-namespace", "imagelet-fleet").serve(&s.scratch.join("cri.sock"));
    plane.wait(&["--for=condition=Ready", "imageset/web"]);
    let requests = s.registry.requests().split_off(before);
    assert_eq!(blobs_in(&requests), 0, "{requests:?}");
    // The controller resolves by HEAD; the node asks for nothing.
    assert!(
        requests.iter().all(|request| request.contains("HEAD") || !request.contains("/manifests/")),
        "{requests:?}"
    );
    let report = plane.get(&["nodeimages", "n0"]);
    assert_eq!(report["status"]["sets"][0]["phase"], "Ready", "{report:#}");
}

/// The store of a runtime is baked in the same way.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_containerd_is_baked_with_pins() {
    let s = Scene::new();
    let containerd = Containerd::start(s.registry.host());
    let (app, image) = s.push_file("fleet/web:1", "etc/web", "web");
    let file = s.scratch.join("web.yaml");
    let text = format!(
        "apiVersion: imagelet.dev/v1alpha1\nkind: ImageSet\nmetadata: {{name: web}}\nspec:\n  images: [{{name: '{app}'}}]\n  \
         nodeSelector: {{}}\n"
    );
    fs::write(&file, text).expect("written");
    let imagelet = s.imagelet.clone().global("--image-endpoint", &containerd.endpoint());
    let bake = ["fleet", "bake", "--set", &file.display().to_string(), "-o", "json"];
    let baked: Value = serde_json::from_str(&imagelet.ok(&bake)).expect("JSON");
    assert_eq!(baked["images"][0]["digest"], image.manifest.digest.to_string(), "{baked:#}");
    let listed = imagelet.images();
    assert_eq!(listed.len(), 1, "{listed:?}");
    imagelet.ok(&["gc", "--all-unused", "--now"]);
    assert_eq!(imagelet.images().len(), 1, "the image is pinned");
    let before = s.registry.requests().len();
    imagelet.ok(&bake);
    assert_eq!(blobs_in(&s.registry.requests().split_off(before)), 0);
}
