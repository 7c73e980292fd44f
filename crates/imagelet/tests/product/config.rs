//! A kubelet's configuration file, secrets and service accounts in manifests and in a directory, the node's docker
//! configuration, and `ensure --wait`: through the built program and a registry that wants TLS and a password.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::Imagelet;
use crate::support::cli::end_of;
use crate::support::process::{eventually, signal};
use crate::support::registry::GuardedRegistry;
use crate::support::scene::Scene;

const USER: &str = "tenant";
const PASSWORD: &str = "gr33n-h0rse";

/// A registry that refuses every request without the password, and imagelet that trusts its certificate.
struct Guarded {
    scene: Scene,
    registry: GuardedRegistry,
    imagelet: Imagelet,
    name: String,
    id: String,
}

impl Guarded {
    fn new() -> Self {
        let scene = Scene::new();
        let (_, image) = scene.push_file("team/app:1", "a", "app");
        let registry = GuardedRegistry::start(&scene.scratch.join("registry"), &[(USER, PASSWORD)]);
        let host = &registry.host;
        let directory = scene.scratch.directory(&format!("certs.d/{host}"));
        let text = format!("server = \"https://{host}\"\nca = \"{}\"\n", registry.authority.display());
        fs::write(directory.join("hosts.toml"), text).expect("write a hosts file");
        let certs = scene.scratch.join("certs.d").display().to_string();
        let imagelet = scene.imagelet.clone().global("--registry-config-path", &certs);
        let name = format!("{host}/team/app:1");
        Self { scene, registry, imagelet, name, id: image.id }
    }

    fn docker_config(&self, password: &str) -> String {
        let auths = serde_json::json!({ &self.registry.host: { "username": USER, "password": password } });
        serde_json::json!({ "auths": auths }).to_string()
    }

    fn secret(&self, name: &str, password: &str) -> String {
        let config = self.docker_config(password);
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: shop}}\n\
             type: kubernetes.io/dockerconfigjson\nstringData:\n  .dockerconfigjson: '{config}'\n---\n"
        )
    }

    fn pod(&self, more: &str) -> String {
        let name = &self.name;
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: web, namespace: shop}}\nspec:\n  containers: [{{name: main, \
             image: '{name}'}}]\n{more}---\n"
        )
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.scene.scratch.join(name);
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("permissions");
        path.display().to_string()
    }

    /// The line of `ensure` about the image, and everything that it wrote.
    fn ensure(&self, imagelet: &Imagelet, text: &str) -> (String, String) {
        let file = self.write("pods.yaml", text);
        let done = imagelet.run(&["--log-level", "trace", "ensure", "-o", "json", "-f", &file]);
        let all = format!("{}{}", done.stdout, done.stderr);
        assert!(!all.contains(PASSWORD), "a password is told:\n{all}");
        let value: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{e}\n{all}"));
        (value["containers"][0]["result"].as_str().expect("a result").to_owned(), all)
    }

    fn forget(&self) {
        self.imagelet.ok(&["rmi", "--all"]);
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn secrets_come_with_the_manifests_or_lie_in_a_directory() {
    let g = Guarded::new();
    let names = "  imagePullSecrets: [{name: wrong}, {name: right}]\n";
    let secrets = g.secret("wrong", "no") + &g.secret("right", PASSWORD);

    let (result, all) = g.ensure(&g.imagelet, &g.pod(""));
    assert_eq!(result, "ErrImagePull", "{all}");
    let (result, all) = g.ensure(&g.imagelet, &(g.pod(names) + &secrets));
    assert_eq!(result, "pulled", "{all}");
    assert_eq!(g.imagelet.ids().join(" "), g.id);

    // The account's secrets are the pod's when it has none itself.
    g.forget();
    let account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: builder, namespace: shop}\n\
                   imagePullSecrets: [{name: right}]\n---\n";
    let (result, all) = g.ensure(&g.imagelet, &(g.pod("  serviceAccountName: builder\n") + account + &secrets));
    assert_eq!(result, "pulled", "{all}");

    // A secret of another namespace is another secret.
    g.forget();
    let (result, all) =
        g.ensure(&g.imagelet, &(g.pod(names) + &secrets.replace("namespace: shop", "namespace: other")));
    assert_eq!(result, "ErrImagePull", "{all}");
    assert!(all.contains("Unable to retrieve some image pull secrets (wrong, right)"), "{all}");

    let directory = g.scene.scratch.directory("secrets");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).expect("permissions");
    fs::write(directory.join("shop.yaml"), &secrets).expect("written");
    fs::write(directory.join("broken.yaml"), format!("stringData: {{a: {PASSWORD}\n- x")).expect("written");
    let with_directory = g.imagelet.clone().global("--secrets-dir", &directory.display().to_string());
    let (result, all) = g.ensure(&with_directory, &g.pod(names));
    assert_eq!(result, "pulled", "{all}");
    assert!(all.contains("shop.yaml: every user of this machine can read it"), "{all}");
    assert!(all.contains("broken.yaml:") && all.contains("it is not YAML"), "{all}");

    let nowhere = g.imagelet.clone().global("--secrets-dir", "/nowhere");
    let file = g.write("pod.yaml", &g.pod(""));
    let said = nowhere.fails(64, &["ensure", "-f", &file]);
    assert!(said.contains("secretsDirectory /nowhere: No such file"), "{said}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_bad_secret_is_named_and_not_shown() {
    let g = Guarded::new();
    let text = g.pod("") + "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\ndata: {a: 'gr33n-h0rse!'}\n";
    let file = g.write("pods.yaml", &text);
    let said = g.imagelet.fails(1, &["ensure", "-f", &file]);
    assert!(said.contains("pods.yaml:10: document 2: Secret default/x: data.a is not base64"), "{said}");
    assert!(!said.contains(PASSWORD), "{said}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn the_nodes_docker_configuration_is_for_pods_and_for_pull() {
    let g = Guarded::new();
    g.imagelet.fails(77, &["pull", &g.name]);
    let home = g.scene.scratch.directory("home/.docker");
    fs::write(home.join("config.json"), g.docker_config(PASSWORD)).expect("written");
    let home = home.parent().expect("a parent").display().to_string();
    let at_home = g.imagelet.clone().env("HOME", &home);
    let explained = at_home.ok(&["explain", &g.name, "--policy", "Always"]);
    assert!(explained.contains("file ") && explained.contains("/.docker/config.json"), "{explained}");
    assert_eq!(at_home.ok(&["pull", &g.name]).trim(), g.id);
    g.forget();
    let (result, all) = g.ensure(&at_home, &g.pod(""));
    assert_eq!(result, "pulled", "{all}");
    // An image that the node's credential pulled is available to every pod of the node.
    let (result, all) = g.ensure(&g.imagelet, &g.pod(""));
    assert_eq!(result, "present", "{all}");

    g.forget();
    let elsewhere = g.scene.scratch.directory("docker");
    fs::write(elsewhere.join("config.json"), g.docker_config(PASSWORD)).expect("written");
    let configured = g.imagelet.clone().global("--docker-config-path", &elsewhere.display().to_string());
    assert_eq!(configured.ok(&["pull", &g.name]).trim(), g.id);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_kubelets_file_is_taken_and_its_origin_is_shown() {
    let s = Scene::new();
    let file = s.scratch.join("kubelet.yaml");
    let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: none\n\
                cgroupDriver: systemd\nserializeImagePulls: false\nmaxParallelImagePulls: 3\nregistryPullQPS: 0\n";
    fs::write(&file, text).expect("written");
    let path = file.display().to_string();
    let shown = |imagelet: &Imagelet| {
        let done = imagelet.run(&["config", "-o", "table"]);
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        (done.stdout, done.stderr)
    };
    let imagelet = s.imagelet.clone().env("IMAGELET_KUBELET_CONFIG", &path);
    let (table, notes) = shown(&imagelet.clone().global("--registry-qps", "7"));
    let line = |field: &str| table.lines().find(|l| l.starts_with(field)).unwrap_or_else(|| panic!("{field}\n{table}"));
    assert!(line("maxParallelImagePulls ").ends_with(&format!("{path}:6")), "{table}");
    assert!(line("registryPullQPS ").ends_with("--registry-qps"), "{table}");
    assert!(line("kubeletConfig ").ends_with("IMAGELET_KUBELET_CONFIG"), "{table}");
    let told: Vec<&str> = notes.lines().filter(|l| l.contains("passed over")).collect();
    assert_eq!(told.len(), 1, "{notes}");
    assert!(told[0].ends_with("cpuManagerPolicy, cgroupDriver"), "{notes}");

    for (text, code, want) in [
        (
            "registryPullQps: 1\n",
            64,
            "kubelet.yaml:3: KubeletConfiguration has no field \"registryPullQps\"; did you mean",
        ),
        (
            "serializeImagePulls: true\nmaxParallelImagePulls: 2\n",
            64,
            "invalid configuration: maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls",
        ),
        (
            "registryBurst: -1\n",
            64,
            "invalid configuration: registryBurst (--registry-burst) -1 must not be a negative number",
        ),
    ] {
        let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        fs::write(&file, format!("{head}{text}")).expect("written");
        let said = imagelet.fails(code, &["images"]);
        assert!(said.contains(want), "{said}");
    }
    let said = s.imagelet.fails(64, &["--kubelet-config", "/nowhere", "images"]);
    assert!(said.contains("read configuration /nowhere: No such file"), "{said}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn wait_ends_with_the_image_or_the_timeout() {
    let s = Scene::new();
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec: {{containers: [{{name: main, image: '{}'}}]}}\n",
        s.registry.name("late/app:1")
    );
    let file = s.scratch.join("pod.yaml");
    fs::write(&file, text).expect("written");
    let file = file.display().to_string();
    let done = s.imagelet.run(&["ensure", "--wait", "--timeout", "300ms", "-f", &file]);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert!(
        done.stdout.contains("ErrImagePull") && done.stderr.contains("the time is over"),
        "{}{}",
        done.stdout,
        done.stderr
    );

    let quick = ["ensure", "--wait", "--image-pull-back-off-initial", "50ms", "--timeout", "60s", "-f", &file];
    let waiting = s.imagelet.daemon(&quick);
    waiting.wait_for("the first failure", |line| line.contains("pod=pod/web container=main").then_some(()));
    s.push_file("late/app:1", "a", "late");
    waiting.wait_for("that it is there", |line| {
        (line.contains("pod=pod/web container=main") && line.contains("result=pulled")).then_some(())
    });
    drop(waiting);
    assert_eq!(s.imagelet.images().len(), 1);

    // Asked to end, it says what is missing.
    let text = fs::read_to_string(&file).expect("read").replace("late/app:1", "never/app:1");
    fs::write(&file, text).expect("written");
    let mut waiting = s.imagelet.spawn(&["--image-pull-back-off-initial", "50ms", "ensure", "--wait", "-f", &file]);
    eventually("the registry is asked", || s.registry.requests().iter().any(|r| r.contains("/never/app/")));
    signal(waiting.id(), Signal::TERM);
    assert_eq!(end_of(&mut waiting).code(), Some(143));
    let mut said = String::new();
    waiting.stderr.take().expect("piped").read_to_string(&mut said).expect("read");
    assert!(said.contains("error: pod/web: main: "), "{said}");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_provider_gets_the_token_of_the_pods_account() {
    let g = Guarded::new();
    let programs = g.scene.scratch.directory("programs");
    let answer = serde_json::json!({
        "kind": "CredentialProviderResponse",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "cacheKeyType": "Registry",
        "cacheDuration": "0s",
        "auth": { &g.registry.host: { "username": USER, "password": PASSWORD } },
    });
    // Only who shows the token of the account gets the password.
    let script = format!(
        "#!/bin/sh\nread -r request\ncase $request in\n*'\"serviceAccountToken\":\"t0ken-of-builder\"'*) printf '%s' '{answer}';;\n\
         *) echo 'no token' >&2; exit 1;;\nesac\n"
    );
    fs::write(programs.join("vault"), script).expect("written");
    fs::set_permissions(programs.join("vault"), fs::Permissions::from_mode(0o755)).expect("permissions");
    let config = format!(
        "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- name: vault\n  \
         apiVersion: credentialprovider.kubelet.k8s.io/v1\n  matchImages: ['{}']\n  defaultCacheDuration: 0s\n  \
         tokenAttributes: {{serviceAccountTokenAudience: 'https://vault.example:1', cacheType: Token, requireServiceAccount: \
         true}}\n",
        g.registry.host
    );
    let config = g.write("providers.yaml", &config);
    let secrets = g.scene.scratch.directory("secrets");
    let tokens = g.scene.scratch.directory("secrets/tokens/shop/builder");
    fs::write(tokens.join("https___vault.example_1"), "t0ken-of-builder\n").expect("written");
    let with_provider = g
        .imagelet
        .clone()
        .global("--image-credential-provider-config", &config)
        .global("--image-credential-provider-bin-dir", &programs.display().to_string())
        .global("--secrets-dir", &secrets.display().to_string());

    let pod = g.pod("  serviceAccountName: builder\n");
    let file = g.write("explained.yaml", &pod);
    let explained = with_provider.ok(&["explain", "-f", &file]);
    assert!(explained.contains("ask credential provider vault"), "{explained}");
    let (result, all) = g.ensure(&with_provider, &g.pod("  serviceAccountName: stranger\n"));
    assert_eq!(result, "ErrImagePull", "{all}");
    let (result, all) = g.ensure(&with_provider, &pod);
    assert_eq!(result, "pulled", "{all}");
    assert!(!all.contains("t0ken-of-builder"), "{all}");
    // It was pulled for one account: another one must prove its access, and cannot.
    let (result, all) = g.ensure(&with_provider, &g.pod("  serviceAccountName: stranger\n"));
    assert_eq!(result, "ErrImagePull", "{all}");
    let (result, all) = g.ensure(&with_provider, &pod);
    assert_eq!(result, "present", "{all}");

    let broken = with_provider.global("--image-credential-provider-config", "/nowhere");
    let said = broken.fails(64, &["ensure", "-f", &file]);
    assert!(said.contains("credential providers: ") && said.contains("/nowhere"), "{said}");
}
