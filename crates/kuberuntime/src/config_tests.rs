//! Configs for the runtime: one large pod, and the choices that depend on more than one field.

use cri_api::{Capabilities, EnvVar, NamespaceMode, Protocol, SecurityProfile, SupplementalGroupsPolicy};
use serde_json::{Value, json};

use super::*;
use crate::documents::Documents;
use crate::environment::{PodContext, resolve};
use crate::pod::{ContainerKind, Pod};

fn pod(spec: Value) -> Pod {
    let manifest = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec,
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "labels": {"app": "web"}, "annotations": {"a": "b"}}});
    let mut pod = Pod::from_json(&manifest).expect("a pod");
    crate::set_defaults(&mut pod);
    pod
}

fn one(container: Value, mut spec: Value) -> Pod {
    let mut container = container;
    container["name"] = json!("main");
    container["image"] = json!("app:1");
    spec["containers"] = json!([container]);
    pod(spec)
}

fn config(pod: &Pod, input: ContainerInput) -> cri_api::ContainerConfig {
    container_config(pod, ContainerKind::Normal, &pod.spec.containers[0], input)
}

#[test]
fn a_sandbox() {
    let mut pod = pod(json!({
        "shareProcessNamespace": true,
        "securityContext": {
            "runAsUser": 1000, "runAsGroup": 2000, "fsGroup": 3000, "supplementalGroups": [4000],
            "supplementalGroupsPolicy": "Strict", "seLinuxOptions": {"level": "s0"},
            "sysctls": [{"name": "net/ipv4/conf/eno1.100/forwarding", "value": "1"}, {"name": "kernel.msgmax", "value": "2"}],
        },
        "initContainers": [
            {"name": "i", "image": "x", "ports": [{"containerPort": 1, "hostPort": 1}]},
            {"name": "s", "image": "x", "restartPolicy": "Always", "ports": [{"containerPort": 53, "hostPort": 5353, "protocol": "UDP"}]},
        ],
        "containers": [
            {"name": "a", "image": "x", "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": "127.0.0.1"}, {"containerPort": 9}]},
            {"name": "b", "image": "x", "securityContext": {"privileged": true}},
        ],
    }));
    let input = SandboxInput {
        attempt: 2,
        hostname: "web".into(),
        log_directory: pod_log_directory("/var/log/pods/", &pod),
        cgroup_parent: "/pods".into(),
        ..SandboxInput::default()
    };
    let got = sandbox_config(&pod, input.clone());
    assert_eq!((&*got.metadata.name, &*got.metadata.uid, got.metadata.attempt), ("web", "u", 2));
    assert_eq!((&*got.hostname, &*got.log_directory), ("web", "/var/log/pods/shop_web_u"));
    assert_eq!((got.labels["app"].as_str(), got.annotations["a"].as_str()), ("web", "b"));
    let ports: Vec<_> =
        got.port_mappings.iter().map(|p| (p.container_port, p.host_port, &*p.host_ip, p.protocol)).collect();
    assert_eq!(ports, [(80, 8080, "127.0.0.1", Protocol::Tcp), (53, 5353, "", Protocol::Udp)]);
    let security = &got.linux.security;
    assert_eq!((security.run_as_user, security.run_as_group, security.privileged), (Some(1000), Some(2000), true));
    assert_eq!(security.supplemental_groups, [3000, 4000]);
    assert_eq!(security.supplemental_groups_policy, SupplementalGroupsPolicy::Strict);
    assert_eq!(security.namespaces.pid, NamespaceMode::Pod);
    assert_eq!(security.seccomp, Some(SecurityProfile::RuntimeDefault));
    assert_eq!(got.linux.sysctls.keys().collect::<Vec<_>>(), ["kernel.msgmax", "net.ipv4.conf.eno1/100.forwarding"]);

    pod.spec.host_network = true;
    let got = sandbox_config(&pod, input);
    assert_eq!((&*got.hostname, got.port_mappings.len()), ("", 0));
    assert_eq!(got.linux.security.namespaces.network, NamespaceMode::Node);
}

#[test]
fn a_container() {
    let pod = one(
        json!({
            "command": ["serve", "$(PORT)"], "args": ["$(NONE)", "$$(PORT)"], "workingDir": "/srv", "tty": true, "stdin": true,
            "env": [{"name": "PORT", "value": "80"}],
            "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}, "requests": {"cpu": "250m", "memory": "1Gi"}},
            "lifecycle": {"stopSignal": "SIGINT"},
            "securityContext": {
                "runAsUser": 5, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
                "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
                "seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"},
            },
        }),
        json!({"securityContext": {"runAsUser": 1, "runAsGroup": 2, "seccompProfile": {"type": "RuntimeDefault"}}}),
    );
    let container = &pod.spec.containers[0];
    let environment = resolve(&pod, container, &Documents::default(), &PodContext::default()).expect("resolved");
    let input = ContainerInput {
        restart_count: 3,
        image_ref: "sha256:1".into(),
        runtime_handler: "kata".into(),
        environment,
        node: NodeResources { memory: 4 << 30, cgroup_v2: true },
        ..ContainerInput::default()
    };
    let got = config(&pod, input);
    assert_eq!((&*got.metadata.name, got.metadata.attempt, &*got.log_path), ("main", 3, "main/3.log"));
    assert_eq!(
        (&*got.image.image, &*got.image.user_specified_image, &*got.image.runtime_handler),
        ("sha256:1", "app:1", "kata")
    );
    assert_eq!(
        (&got.command[..], &got.args[..]),
        (&["serve".into(), "80".into()][..], &["$(NONE)".into(), "$(PORT)".into()][..])
    );
    assert_eq!(
        (&*got.working_dir, got.tty, got.stdin, &got.envs[..]),
        ("/srv", true, true, &[EnvVar::new("PORT", "80")][..])
    );
    assert_eq!(got.stop_signal.map(cri_api::Signal::as_str), Some("SIGINT"));
    let resources = &got.linux.resources;
    assert_eq!((resources.cpu_shares, resources.cpu_quota, resources.cpu_period), (256, 150_000, 100_000));
    assert_eq!((resources.memory_limit_in_bytes, resources.oom_score_adj), (1 << 30, 750));
    assert_eq!(resources.unified["memory.oom.group"], "1");
    let security = &got.linux.security;
    assert_eq!(
        (security.run_as_user, security.run_as_group, security.run_as_username.as_str()),
        (Some(5), Some(2), "")
    );
    assert!(security.readonly_rootfs && security.no_new_privs && !security.privileged);
    let capabilities = Capabilities { add: vec!["NET_ADMIN".into()], drop: vec!["ALL".into()], add_ambient: vec![] };
    assert_eq!(security.capabilities, capabilities);
    assert_eq!(security.seccomp, Some(SecurityProfile::Localhost("p.json".into())));
    assert!(
        security.masked_paths.contains(&"/proc/kcore".to_owned())
            && security.readonly_paths.contains(&"/proc/sys".to_owned())
    );
    assert_eq!(security.namespaces.pid, NamespaceMode::Container);
    assert_eq!(got.annotations["io.kubernetes.container.restartCount"], "3");
}

#[test]
fn defaults_apply_where_the_pod_sets_nothing() {
    let image = |uid: Option<i64>, name: &str| ImageUser { uid, username: name.into() };
    let of = |pod: &Pod, image_user: ImageUser| {
        config(pod, ContainerInput { image_user, ..ContainerInput::default() }).linux.security
    };
    let plain = one(json!({}), json!({}));
    let security = of(&plain, image(None, "www"));
    assert_eq!((security.run_as_user, &*security.run_as_username, security.run_as_group), (None, "www", None));
    assert_eq!(
        (security.seccomp, security.apparmor, security.no_new_privs),
        (Some(SecurityProfile::Unconfined), None, false)
    );
    assert_eq!(of(&plain, image(Some(33), "")).run_as_user, Some(33));
    assert_eq!(of(&plain, image(None, "")).run_as_user, Some(0));
    // CRI refuses a group without a user.
    let group = one(json!({"securityContext": {"runAsGroup": 7}}), json!({}));
    let security = of(&group, image(None, ""));
    assert_eq!((security.run_as_user, security.run_as_group), (Some(0), Some(7)));
    assert_eq!(of(&group, image(Some(1), "")).run_as_group, Some(7));
    let all = one(
        json!({"securityContext": {"privileged": true}}),
        json!({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}),
    );
    let security = of(&all, image(None, ""));
    assert!(security.privileged && security.masked_paths.is_empty() && security.readonly_paths.is_empty());
    assert_eq!(security.seccomp, Some(SecurityProfile::Unconfined));
    let input = ContainerInput { target_id: Some("c1".into()), ..ContainerInput::default() };
    let security = config(&plain, input).linux.security;
    assert_eq!((security.namespaces.pid, &*security.namespaces.target_id), (NamespaceMode::Target, "c1"));
    let resources = config(&plain, ContainerInput::default()).linux.resources;
    assert_eq!((resources.cpu_shares, resources.cpu_quota, resources.memory_limit_in_bytes), (2, 0, 0));
    assert_eq!((resources.oom_score_adj, resources.unified.len()), (1000, 0));
}

#[test]
fn root_is_refused_where_it_must_not_be() {
    let image = |uid: Option<i64>, name: &str| ImageUser { uid, username: name.into() };
    let check = |container: Value, of_pod: Value, image: ImageUser| {
        let pod = one(json!({"securityContext": container}), json!({"securityContext": of_pod}));
        verify_run_as_non_root(&pod, &pod.spec.containers[0], &image).map_err(|error| error.to_string())
    };
    let non_root = || json!({"runAsNonRoot": true});
    assert_eq!(check(json!({}), json!({}), image(Some(0), "")), Ok(()));
    assert_eq!(check(json!({"runAsNonRoot": false}), non_root(), image(Some(0), "")), Ok(()));
    assert_eq!(check(json!({"runAsUser": 1}), non_root(), image(Some(0), "")), Ok(()));
    assert_eq!(check(json!({}), non_root(), image(Some(33), "")), Ok(()));
    let tail = "(pod: \"web_shop(u)\", container: main)";
    assert_eq!(
        check(json!({"runAsUser": 0}), non_root(), image(Some(33), "")),
        Err(format!("container's runAsUser breaks non-root policy {tail}"))
    );
    for root in [image(Some(0), ""), image(None, "")] {
        assert_eq!(
            check(json!({}), non_root(), root),
            Err(format!("container has runAsNonRoot and image will run as root {tail}"))
        );
    }
    assert_eq!(
        check(json!({}), non_root(), image(None, "www")),
        Err(format!(
            "container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root {tail}"
        ))
    );
}

#[test]
fn host_names() {
    let name = |spec: Value, cluster: &str| {
        let mut spec = spec;
        spec["containers"] = json!([{"name": "a", "image": "x"}]);
        pod_hostname(&pod(spec), cluster).map(|name| (name.hostname, name.domain)).map_err(|e| e.to_string())
    };
    let is = |hostname: &str, domain: &str| Ok((hostname.to_owned(), domain.to_owned()));
    assert_eq!(name(json!({}), ""), is("web", ""));
    assert_eq!(name(json!({"hostname": "h", "subdomain": "d"}), ""), is("h", "d"));
    assert_eq!(name(json!({"subdomain": "d"}), "cluster.local"), is("web", "d.shop.svc.cluster.local"));
    assert_eq!(name(json!({"subdomain": "d", "setHostnameAsFQDN": true}), ""), is("web.d", "d"));
    assert_eq!(name(json!({"hostnameOverride": "other.example"}), "x"), is("other.example", ""));
    let long = format!("{}.example", "d".repeat(60));
    let error = name(json!({"subdomain": "d", "setHostnameAsFQDN": true}), &long).expect_err("too long");
    assert!(error.contains("is too long (64 characters is the max, 83 characters requested)"), "{error}");
    let mut cut = pod(json!({"containers": [{"name": "a", "image": "x"}]}));
    cut.metadata.name = format!("{}-.{}", "a".repeat(61), "b".repeat(60));
    assert_eq!(pod_hostname(&cut, "").map(|name| name.hostname), Ok("a".repeat(61)));
}

#[test]
fn names_of_others() {
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let node =
        cri_api::DnsConfig { servers: texts(&["192.0.2.53"]), searches: texts(&["lab"]), options: texts(&["rotate"]) };
    let cluster = ClusterDns { servers: texts(&["10.0.0.10"]), domain: "cluster.local".into() };
    let ask = |spec: Value, cluster: &ClusterDns| {
        let mut spec = spec;
        spec["containers"] = json!([{"name": "a", "image": "x"}]);
        dns_config(&pod(spec), &node, cluster)
    };
    assert_eq!(ask(json!({}), &ClusterDns::default()), node);
    let of_cluster = ask(json!({}), &cluster);
    assert_eq!(of_cluster.servers, ["10.0.0.10"]);
    assert_eq!(of_cluster.searches, ["shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "lab"]);
    assert_eq!(of_cluster.options, ["ndots:5"]);
    assert_eq!(ask(json!({"hostNetwork": true}), &cluster), node);
    assert_eq!(ask(json!({"hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"}), &cluster), of_cluster);
    assert_eq!(ask(json!({"dnsPolicy": "Default"}), &cluster), node);
    let own = json!({"nameservers": ["192.0.2.53", "1.1.1.1", "1.1.1.2", "1.1.1.3"], "searches": ["lab", "own"],
                     "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}]});
    let none = ask(json!({"dnsPolicy": "None", "dnsConfig": own}), &cluster);
    assert_eq!((none.servers.len(), &none.options[..]), (3, &texts(&["ndots:2", "edns0"])[..]));
    let both = ask(json!({"dnsConfig": own}), &cluster);
    assert_eq!(both.servers, ["10.0.0.10", "192.0.2.53", "1.1.1.1"]);
    assert_eq!(
        (both.searches.last().map(String::as_str), &both.options[..]),
        (Some("own"), &texts(&["ndots:2", "edns0"])[..])
    );
}

#[test]
fn hosts_files() {
    let pod = pod(json!({"hostAliases": [{"ip": "192.0.2.9", "hostnames": ["db", "cache"]}],
                         "containers": [{"name": "a", "image": "x"}]}));
    let name = PodHostname { hostname: "web".into(), domain: "d.example".into() };
    let text = hosts_file(&pod, &["10.0.0.7".to_owned(), "2001:db8::7".to_owned()], &name);
    assert!(text.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"));
    assert!(text.contains("\n10.0.0.7\tweb.d.example\tweb\n2001:db8::7\tweb.d.example\tweb\n"));
    assert!(text.ends_with("\n\n# Entries added by HostAliases.\n192.0.2.9\tdb\tcache\n"));
    let full = PodHostname { hostname: "web.d.example".into(), ..name };
    assert!(hosts_file(&pod, &["10.0.0.7".to_owned()], &full).contains("\n10.0.0.7\tweb.d.example\n"));
    assert!(
        hosts_file(&pod, &["10.0.0.7".to_owned()], &PodHostname { hostname: "web".into(), domain: String::new() })
            .contains("\n10.0.0.7\tweb\n")
    );
    let shared = managed_hosts_file(&pod, "127.0.0.1 node\n");
    assert!(shared.contains("(host network).\n127.0.0.1 node\n\n# Entries"), "{shared}");
}
