//! The model that manifests are read into, and the fields that are refused.

use image_manager::PullPolicy;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{FieldProblem, set_defaults};
use oci::Quantity;

/// A manifest in YAML.
fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).expect("YAML")
}

const LARGE: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: shop
  labels: {app: shop}
  creationTimestamp: null
spec:
  restartPolicy: OnFailure
  terminationGracePeriodSeconds: 5
  activeDeadlineSeconds: 600
  hostNetwork: true
  hostPID: true
  dnsPolicy: None
  dnsConfig: {nameservers: [192.0.2.53], searches: [lab.example], options: [{name: ndots, value: "2"}]}
  hostAliases: [{ip: 192.0.2.9, hostnames: [db, cache]}]
  imagePullSecrets: [{name: pull}]
  serviceAccountName: clerk
  automountServiceAccountToken: false
  runtimeClassName: kata
  priorityClassName: system-node-critical
  nodeSelector: {zone: a}
  tolerations: [{operator: Exists}]
  os: {name: linux}
  securityContext:
    runAsUser: 1000
    fsGroup: 2000
    supplementalGroups: [3000]
    seccompProfile: {type: RuntimeDefault}
    sysctls: [{name: kernel.shm_rmid_forced, value: "1"}]
  volumes:
  - {name: host, hostPath: {path: /srv, type: DirectoryOrCreate}}
  - {name: scratch, emptyDir: {medium: Memory, sizeLimit: 64Mi}}
  - {name: plain}
  - name: settings
    configMap: {name: settings, items: [{key: a, path: b/c, mode: 256}], optional: true}
  - {name: login, secret: {secretName: login, defaultMode: 0o400}}
  - name: self
    downwardAPI:
      items:
      - {path: labels, fieldRef: {fieldPath: metadata.labels}}
      - {path: memory, resourceFieldRef: {containerName: web, resource: limits.memory}}
  - name: all
    projected:
      sources:
      - configMap: {name: settings}
      - secret: {name: login}
      - downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}
  - {name: data, image: {reference: registry.example/data:1}}
  initContainers:
  - {name: first, image: tool}
  - name: sidecar
    image: tool:2
    restartPolicy: Always
    startupProbe: {exec: {command: [up]}, periodSeconds: 1}
  containers:
  - name: web
    image: registry.example/web:1
    command: [serve]
    args: ["--port=$(PORT)"]
    workingDir: /srv
    ports: [{name: http, containerPort: 80}, {containerPort: 53, protocol: UDP}]
    envFrom: [{prefix: S_, configMapRef: {name: settings}}, {secretRef: {name: login, optional: true}}]
    env:
    - {name: PORT, value: "80"}
    - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
    - {name: KEY, valueFrom: {secretKeyRef: {name: login, key: k}}}
    resources: {limits: {cpu: 1.5, memory: 1Gi}, requests: {cpu: 250m}}
    volumeMounts:
    - {name: host, mountPath: /host, subPath: a/b, readOnly: true, mountPropagation: HostToContainer}
    - {name: data, mountPath: /data}
    livenessProbe: {httpGet: {port: http, httpHeaders: [{name: X-A, value: b}]}, initialDelaySeconds: 3}
    readinessProbe: {tcpSocket: {port: 80}, failureThreshold: 1}
    startupProbe: {grpc: {port: 9000, service: health}}
    lifecycle: {postStart: {sleep: {seconds: 1}}, preStop: {exec: {command: [bye]}}, stopSignal: SIGINT}
    securityContext:
      privileged: false
      readOnlyRootFilesystem: true
      allowPrivilegeEscalation: false
      capabilities: {add: [NET_ADMIN], drop: [ALL]}
    restartPolicy: Never
    restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42, 43]}}]
status: {phase: Running}
"#;

/// Fields that `LARGE` does not have.
const RARE: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: rare, namespace: shop, uid: u-1, annotations: {k: v}}
spec:
  shareProcessNamespace: false
  setHostnameAsFQDN: true
  hostname: h
  subdomain: s
  priority: -5
  securityContext:
    runAsNonRoot: false
    supplementalGroupsPolicy: Strict
    seLinuxOptions: {level: s0, type: t}
    appArmorProfile: {type: Localhost, localhostProfile: mine}
  volumes:
  - {name: any, hostPath: {path: /any}}
  - name: fields
    projected: {defaultMode: 256, sources: [{configMap: {name: m, items: [{key: a, path: b}], optional: true}}]}
  containers:
  - name: a
    image: x@sha256:0000000000000000000000000000000000000000000000000000000000000000
    imagePullPolicy: Never
    stdin: true
    stdinOnce: true
    tty: true
    ports: [{containerPort: 1, hostPort: 2, hostIP: 127.0.0.1, protocol: SCTP}]
    env:
    - {name: EMPTY}
    - {name: MAP, valueFrom: {configMapKeyRef: {name: m, key: k, optional: true}}}
    - {name: M, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
    terminationMessagePath: /last
    terminationMessagePolicy: FallbackToLogsOnError
    volumeMounts: [{name: any, mountPath: /any, subPathExpr: $(EMPTY)x, readOnly: true, recursiveReadOnly: IfPossible}]
    livenessProbe: {exec: {command: [x]}, terminationGracePeriodSeconds: 3, timeoutSeconds: 2, successThreshold: 1}
    securityContext: {capabilities: {}, runAsUser: 0, runAsGroup: 5, procMount: Default, seccompProfile: {type: Unconfined}}
"#;

#[test]
fn what_is_written_is_the_same_pod_again() {
    let small = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: x}]}}";
    for text in [LARGE, RARE, small] {
        let manifest = yaml(text);
        let read = Pod::from_json(&manifest).expect("readable");
        assert_eq!(Pod::from_json(&read.to_json()), Ok(read), "as it was written");
        let admitted = crate::admit(&manifest, "edge", crate::Origin::Stdin).expect("admitted");
        let written = admitted.to_json();
        assert_eq!(Pod::from_json(&written), Ok(admitted.clone()), "{written:#}");
        assert_eq!((&written["apiVersion"], &written["kind"]), (&json!("v1"), &json!("Pod")));
        assert_eq!(written["metadata"]["uid"], json!(admitted.metadata.uid));
    }
}

#[test]
fn a_large_manifest_is_read_whole() {
    let pod = crate::admit(&yaml(LARGE), "Edge", crate::Origin::File("/etc/pods/shop.yaml")).expect("admitted");
    let spec = &pod.spec;
    assert_eq!(spec.restart_policy(), RestartPolicy::OnFailure);
    assert_eq!((spec.priority, spec.termination_grace_period_seconds), (Some(2_000_001_000), Some(5)));
    assert_eq!((&*spec.service_account_name, &*spec.runtime_class_name), ("clerk", "kata"));
    assert_eq!((&spec.image_pull_secrets[..], spec.dns_policy), (&["pull".to_owned()][..], Some(DnsPolicy::None)));
    let source = |index: usize| VolumeSource::of(&spec.volumes[index]);
    let VolumeSource::EmptyDir(scratch) = source(1) else { panic!("an empty directory") };
    assert_eq!((is_in_memory(scratch), size_limit(scratch)), (true, Some(Quantity::bytes(64 << 20))));
    let VolumeSource::EmptyDir(plain) = source(2) else { panic!("an empty directory") };
    assert_eq!((is_in_memory(plain), size_limit(plain)), (false, None));
    let VolumeSource::ConfigMap(settings) = source(3) else { panic!("a ConfigMap") };
    assert_eq!((settings.default_mode, settings.items[0].mode, settings.optional), (Some(0o644), Some(0o400), true));
    let VolumeSource::Secret(login) = source(4) else { panic!("a Secret") };
    assert_eq!((login.name, login.default_mode), ("login", Some(0o400)));
    let VolumeSource::Projected(projected) = source(6) else { panic!("projected") };
    assert_eq!(projected.sources.as_ref().map(Vec::len), Some(3));
    let VolumeSource::Image(image) = source(7) else { panic!("an image") };
    let read = (image.reference.as_deref(), image.pull_policy.as_deref());
    assert_eq!(read, (Some("registry.example/data:1"), Some("IfNotPresent")));
    assert!(spec.init_containers[1].is_sidecar() && !spec.init_containers[0].is_sidecar());
    assert_eq!(spec.init_containers[0].image_pull_policy, Some(PullPolicy::Always));

    let web = &spec.containers[0];
    assert_eq!((web.ports[0].host_port, Protocol::of_port(&web.ports[1])), (Some(80), Protocol::Udp));
    assert_eq!(web.resources.requests["memory"], Quantity::bytes(1 << 30));
    assert_eq!(web.resources.limits["cpu"], Quantity::milli(1500));
    let EnvSource::Field(field) = EnvSource::of(&web.env[1]) else { panic!("a field") };
    assert_eq!((field.api_version.as_deref(), &*field.field_path), (Some("v1"), "status.podIP"));
    let probe = web.liveness_probe.as_ref().expect("there");
    assert_eq!((probe.period_seconds, probe.failure_threshold, probe.timeout_seconds), (Some(10), Some(3), Some(1)));
    let http = probe.http_get.as_ref().expect("there");
    let read = (http.path.as_deref(), http.scheme.as_deref(), &http.port);
    assert_eq!(read, (Some("/"), Some("HTTP"), &IntOrString::String("http".into())));
    let codes = web.restart_policy_rules[0].exit_codes.as_ref().and_then(|codes| codes.values.as_deref());
    assert_eq!(codes, Some(&[42, 43][..]));
    assert_eq!(
        (web.termination_message_path.as_str(), web.restart_policy),
        ("/dev/termination-log", Some(RestartPolicy::Never))
    );
    let mut twice = pod.clone();
    set_defaults(&mut twice);
    assert_eq!(twice, pod);
}

#[test]
fn images_come_in_the_order_of_their_use() {
    let (pod, _) = Pod::read_all(&yaml(LARGE));
    let images: Vec<String> =
        pod.images().iter().map(|i| format!("{} {} {}", i.field_path(), i.image, i.policy)).collect();
    let want = [
        "spec.volumes{data} registry.example/data:1 IfNotPresent",
        "spec.initContainers{first} tool Always",
        "spec.initContainers{sidecar} tool:2 IfNotPresent",
        "spec.containers{web} registry.example/web:1 IfNotPresent",
    ];
    assert_eq!(images, want);
}

#[test]
fn no_value_of_a_variable_is_shown() {
    let manifest = spec(json!({"containers": [{"name": "c", "env": [{"name": "TOKEN", "value": "swordfish"}]}]}));
    let shown = format!("{:?}", Pod::read_all(&manifest));
    assert!(shown.contains("TOKEN") && !shown.contains("swordfish"), "{shown}");
}

#[test]
fn handlers_and_ports_are_written_to_annotations_and_read_again() {
    let mut pod = Pod::from_json(&yaml(LARGE)).expect("read");
    set_defaults(&mut pod);
    let web = &pod.spec.containers[0];
    for handler in [&web.lifecycle.pre_stop, &web.lifecycle.post_start] {
        let handler = handler.as_ref().expect("there");
        let text = serde_json::to_string(handler).expect("JSON");
        assert_eq!(manifest::decode_text::<LifecycleHandler>(&text, "handler").as_ref(), Ok(handler), "{text}");
    }
    assert_eq!(
        serde_json::to_value(&web.ports).expect("JSON"),
        json!([
            {"name": "http", "containerPort": 80, "hostPort": 80, "protocol": "TCP"},
            {"containerPort": 53, "hostPort": 53, "protocol": "UDP"},
        ])
    );
}

#[test]
fn fields_of_schedulers_and_servers_are_passed_over_whatever_is_in_them() {
    let plain = spec(json!({"containers": [{"name": "c", "image": "x:1"}]}));
    let mut manifest = plain.clone();
    manifest["status"] = json!({"phase": 7, "odd": 1});
    manifest["metadata"]["managedFields"] = json!([{"manager": 1, "odd": 1}]);
    manifest["metadata"]["clusterName"] = json!("");
    manifest["metadata"]["resourceVersion"] = json!("7");
    manifest["spec"]["affinity"] = json!({"nodeAffinity": 7, "odd": {}});
    manifest["spec"]["tolerations"] = json!("all");
    manifest["spec"]["overhead"] = json!({"cpu": []});
    manifest["spec"]["securityContext"] = json!({"fsGroupChangePolicy": "Odd"});
    manifest["spec"]["containers"][0]["resizePolicy"] = json!([{"odd": 1}, 7]);
    let written = Pod::from_json(&manifest).expect("readable").to_json();
    assert_eq!(written, Pod::from_json(&plain).expect("readable").to_json());
}

#[test]
fn what_cannot_be_honoured_is_refused_with_the_reason() {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
        "resourceClaims": [{"name": "gpu"}],
        "readinessGates": [{"conditionType": "x"}],
        "hostUsers": false,
        "os": {"name": "windows"},
        "automountServiceAccountToken": true,
        "priorityClassName": "gold",
        "volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "b", "csi": {"driver": "d"}},
            {"name": "c", "nfs": {"server": "s", "path": "/"}},
            {"name": "d", "emptyDir": {"medium": "HugePages-2Mi"}},
            {"name": "e", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        ],
        "containers": [{
            "name": "c", "image": "x:1",
            "resources": {"limits": {"vendor.example/gpu": 1, "ephemeral-storage": "1Gi"}, "claims": [{"name": "gpu"}]},
            "volumeDevices": [{"name": "a", "devicePath": "/dev/x"}],
            "securityContext": {"procMount": "Unmasked", "windowsOptions": {}},
            "lifecycle": {"preStop": {"tcpSocket": {"port": 1}}},
        }],
    }});
    let errors = crate::admit(&pod, "n", crate::Origin::Stdin).expect_err("refused");
    for error in errors.iter() {
        assert!(matches!(error.problem, FieldProblem::NotSupported { .. }), "{error}");
    }
    let paths: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(
        paths,
        [
            "spec.resourceClaims",
            "spec.readinessGates",
            "spec.hostUsers",
            "spec.os.name",
            "spec.automountServiceAccountToken",
            "spec.priorityClassName",
            "spec.volumes[0].persistentVolumeClaim",
            "spec.volumes[1].csi",
            "spec.volumes[2].nfs",
            "spec.volumes[3].emptyDir.medium",
            "spec.volumes[4].projected.sources[0].serviceAccountToken",
            "spec.containers[0].resources.limits[vendor.example/gpu]",
            "spec.containers[0].resources.limits[ephemeral-storage]",
            "spec.containers[0].resources.claims",
            "spec.containers[0].volumeDevices",
            "spec.containers[0].securityContext.procMount",
            "spec.containers[0].securityContext.windowsOptions",
            "spec.containers[0].lifecycle.preStop.tcpSocket",
        ]
    );
    // What is there and says nothing is no reason.
    pod["spec"] = json!({
        "resourceClaims": [], "readinessGates": null, "automountServiceAccountToken": false, "hostUsers": true,
        "containers": [{"name": "c", "image": "x:1", "volumeDevices": []}],
    });
    assert_eq!(crate::admit(&pod, "n", crate::Origin::Stdin).map(|_| ()), Ok(()));
}

#[test]
fn unreadable_fields_are_reported_with_their_path() {
    let cases = [
        (json!([]), "the object: Invalid value: a list: must be a map"),
        (json!({"kind": "Pod", "spec": {}}), "apiVersion: Required value"),
        (
            json!({"apiVersion": "v1", "kind": "Job", "spec": {}}),
            "kind: Unsupported value: \"Job\": supported values: \"Pod\"",
        ),
        (json!({"apiVersion": "v1", "kind": "Pod"}), "spec: Required value"),
        (spec(json!({"containers": {}})), "spec.containers: Invalid value: a map: must be a list"),
        (spec(json!({"hostNetwork": "yes"})), "spec.hostNetwork: Invalid value: \"yes\": must be true or false"),
        (
            spec(json!({"priority": 3_000_000_000_i64})),
            "spec.priority: Invalid value: 3000000000: must be a whole number of 32 bits",
        ),
        (spec(json!({"nodeName": 7})), "spec.nodeName: Invalid value: 7: must be text"),
        (spec(json!({"hostnetwork": true})), "spec.hostnetwork: Unknown field; did you mean \"hostNetwork\"?"),
        (spec(json!({"foo": 1})), "spec.foo: Unknown field"),
        (
            spec(json!({"containers": [{"lifecycle": {"postStart": {"grpc": {"port": 1}}}}]})),
            "spec.containers[0].lifecycle.postStart.grpc: Unknown field",
        ),
        (
            spec(json!({"containers": [{"livenessProbe": {"sleep": {"seconds": 1}}}]})),
            "spec.containers[0].livenessProbe.sleep: Unknown field",
        ),
        (
            spec(json!({"containers": [{"volumeMounts": [{"mountPropagation": "Both"}]}]})),
            "spec.containers[0].volumeMounts[0].mountPropagation: Unsupported value: \"Both\": supported values: \"None\", \
             \"HostToContainer\", \"Bidirectional\"",
        ),
        (
            spec(json!({"workloadRef": {"name": "w"}})),
            "spec.workloadRef: Not supported: pods of this node belong to no workload",
        ),
        (
            spec(json!({"containers": [{"resources": {"limits": {"cpu": "1 core"}}}]})),
            "spec.containers[0].resources.limits[cpu]: Invalid value: \"1 core\": quantities must match the regular \
             expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            spec(json!({"containers": [{"env": [{"name": "A", "value": 8080}]}]})),
            "spec.containers[0].env[0].value: Invalid value: 8080: must be text",
        ),
    ];
    for (manifest, want) in cases {
        let errors = Pod::from_json(&manifest).expect_err("refused");
        assert_eq!(errors.to_string(), want, "{manifest}");
    }
}

fn spec(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
}

/// Any JSON, with names that pods have.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z$(){}/.%]{0,8}".prop_map(Value::from),
        prop::sample::select(vec!["Always", "Never", "1Gi", "-5m", "metadata.labels['x']", "limits.cpu"])
            .prop_map(Value::from),
    ];
    let names = prop::sample::select(vec![
        "apiVersion",
        "kind",
        "metadata",
        "spec",
        "containers",
        "initContainers",
        "name",
        "image",
        "env",
        "value",
        "valueFrom",
        "fieldRef",
        "fieldPath",
        "resources",
        "limits",
        "requests",
        "cpu",
        "volumes",
        "volumeMounts",
        "mountPath",
        "ports",
        "containerPort",
        "hostPort",
        "livenessProbe",
        "httpGet",
        "port",
        "restartPolicy",
        "restartPolicyRules",
        "exitCodes",
        "values",
        "operator",
        "securityContext",
        "runAsUser",
        "sysctls",
        "projected",
        "sources",
        "items",
        "path",
        "emptyDir",
        "sizeLimit",
        "labels",
        "annotations",
        "dnsConfig",
        "searches",
        "x",
    ]);
    leaf.prop_recursive(6, 96, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((names.clone(), inner), 0..6)
                .prop_map(|entries| entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn nothing_makes_reading_or_validation_panic(metadata in any_value(), inner in any_value(), container in any_value()) {
        let mut manifest = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": inner});
        let _ = crate::admit(&manifest, "n", crate::Origin::Stdin);
        manifest["spec"] = json!({"containers": [container, {"name": "a", "image": "b"}]});
        if let Err(errors) = crate::admit(&manifest, "n", crate::Origin::Stdin) {
            prop_assert!(!errors.is_empty() && !errors.to_string().is_empty());
        }
    }
}
