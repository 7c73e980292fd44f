//! Errors of pods that are not valid: a base pod that is, and one change a row.

use serde_json::{Value, json};

use crate::pod::Pod;
use crate::{set_defaults, validate};

fn base() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "volumes": [{"name": "data"}],
            "containers": [
                {"name": "a", "image": "app:1", "volumeMounts": [{"name": "data", "mountPath": "/data"}]},
                {"name": "b", "image": "app:1"},
            ],
        },
    })
}

/// The errors of the base pod with `value` at `way`.
fn errors_of(way: &str, value: Value) -> Vec<String> {
    let mut manifest = base();
    let (parent, last) = way.rsplit_once('/').expect("a way");
    let place = manifest.pointer_mut(parent).unwrap_or_else(|| panic!("{parent} is there"));
    match place {
        Value::Array(list) => list.push(value),
        other => other[last] = value,
    }
    let mut pod = Pod::from_json(&manifest).unwrap_or_else(|errors| panic!("{way}: {errors}"));
    set_defaults(&mut pod);
    match validate(&pod) {
        Ok(()) => Vec::new(),
        Err(errors) => errors.iter().map(|error| shortened(&error.to_string())).collect(),
    }
}

/// Without the sentence about what a name must look like, and without a long list.
fn shortened(text: &str) -> String {
    let text = text.split_once(" must consist").map_or(text, |(start, _)| start);
    text.split_once(", \"SIGALRM\"").map_or(text, |(start, _)| start).to_owned()
}

const CONTAINER: &str = "/spec/containers/0";

#[test]
fn the_base_is_valid() {
    assert_eq!(errors_of("/metadata/uid", json!("u-1")), Vec::<String>::new());
}

#[test]
fn the_pod() {
    let cases: &[(&str, Value, &[&str])] = &[
        ("/metadata/name", json!(""), &["metadata.name: Required value: name or generateName is required"]),
        ("/metadata/name", json!("Web"), &["metadata.name: Invalid value: \"Web\": a lowercase RFC 1123 subdomain"]),
        (
            "/metadata/name",
            json!("a".repeat(254)),
            &[&format!("metadata.name: Invalid value: \"{}\": must be no more than 253 bytes", "a".repeat(254))],
        ),
        (
            "/metadata/namespace",
            json!("a.b"),
            &["metadata.namespace: Invalid value: \"a.b\": a lowercase RFC 1123 label"],
        ),
        ("/metadata/uid", json!("../x"), &["metadata.uid: Invalid value: \"../x\":"]),
        (
            "/metadata/labels",
            json!({"a b": "c", "d": "-"}),
            &[
                "metadata.labels: Invalid value: \"a b\": name part",
                "metadata.labels[d]: Invalid value: \"-\": a valid label must be an empty string or consist of alphanumeric \
             characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
             'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            ],
        ),
        (
            "/metadata/annotations",
            json!({"x.example/": "a"}),
            &[
                "metadata.annotations: Invalid value: \"x.example/\": name part must be non-empty",
                "metadata.annotations: Invalid value: \"x.example/\": name part",
            ],
        ),
        (
            "/metadata/annotations",
            json!({"a": "x".repeat(300_000)}),
            &["metadata.annotations: Too long: may not be more than 262144 bytes"],
        ),
        ("/spec/containers", json!([]), &["spec.containers: Required value"]),
        (
            "/spec/activeDeadlineSeconds",
            json!(0),
            &["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"],
        ),
        (
            "/spec/terminationGracePeriodSeconds",
            json!(-1),
            &["spec.terminationGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0"],
        ),
        (
            "/spec/imagePullSecrets",
            json!([{}, {"name": "A"}]),
            &[
                "spec.imagePullSecrets[0].name: Required value",
                "spec.imagePullSecrets[1].name: Invalid value: \"A\": a lowercase RFC 1123 subdomain",
            ],
        ),
        ("/spec/hostname", json!("a.b"), &["spec.hostname: Invalid value: \"a.b\": a lowercase RFC 1123 label"]),
        (
            "/spec/hostAliases",
            json!([{"ip": "1.2.3", "hostnames": ["x_y"]}]),
            &[
                "spec.hostAliases[0].ip: Invalid value: \"1.2.3\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                "spec.hostAliases[0].hostnames[0]: Invalid value: \"x_y\": a lowercase RFC 1123 subdomain",
            ],
        ),
        (
            "/spec/dnsPolicy",
            json!("None"),
            &["spec.dnsConfig: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None"],
        ),
        (
            "/spec/dnsConfig",
            json!({"nameservers": ["1.1.1.1", "1.1.1.2", "1.1.1.3", "x"], "options": [{"value": "1"}]}),
            &[
                "spec.dnsConfig.nameservers: Invalid value: 4: must not have more than 3 nameservers",
                "spec.dnsConfig.nameservers[3]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or \
             2001:db8::ffff)",
                "spec.dnsConfig.options[0].name: Required value",
            ],
        ),
        (
            "/spec/securityContext",
            json!({"runAsUser": -1, "sysctls": [{"name": "vm.swappiness", "value": "1"}]}),
            &[
                "spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
                "spec.securityContext.sysctls[0].name: Not supported: vm.swappiness is of the whole node, not of a pod's \
             namespaces",
            ],
        ),
        (
            "/spec/securityContext",
            json!({"seccompProfile": {"type": "Localhost"}, "appArmorProfile": {}}),
            &[
                "spec.securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is \
             Localhost",
                "spec.securityContext.appArmorProfile.type: Required value",
            ],
        ),
    ];
    for (way, value, want) in cases {
        assert_eq!(errors_of(way, value.clone()), *want, "{way} {value}");
    }
}

#[test]
fn containers() {
    let at = |field: &str| format!("{CONTAINER}/{field}");
    let cases: &[(&str, Value, &[&str])] = &[
        ("name", json!(""), &["spec.containers[0].name: Required value"]),
        ("name", json!("b"), &["spec.containers[1].name: Duplicate value: \"b\""]),
        (
            "image",
            json!(" x"),
            &["spec.containers[0].image: Invalid value: \" x\": must not have leading or trailing whitespace"],
        ),
        (
            "ports",
            json!([{"name": "Http", "containerPort": 0, "hostPort": 70000, "hostIP": "x"}]),
            &[
                "spec.containers[0].ports[0].name: Invalid value: \"Http\": must contain only alphanumeric characters (a-z, \
             0-9), and hyphens (-)",
                "spec.containers[0].ports[0].containerPort: Required value",
                "spec.containers[0].ports[0].hostPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
                "spec.containers[0].ports[0].hostIP: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or \
             2001:db8::ffff)",
            ],
        ),
        (
            "ports",
            json!([{"name": "p", "containerPort": 1, "hostPort": 9}, {"name": "p", "containerPort": 2, "hostPort": 9}]),
            &[
                "spec.containers[0].ports[1].name: Duplicate value: \"p\"",
                "spec.containers[0].ports[1].hostPort: Duplicate value: \"TCP//9\"",
            ],
        ),
        (
            "env",
            json!([{"name": "A=B"}, {"value": "x"}, {"name": "C", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "D", "valueFrom": {}}]),
            &[
                "spec.containers[0].env[0].name: Invalid value: \"A=B\": a valid environment variable name",
                "spec.containers[0].env[1].name: Required value",
                "spec.containers[0].env[2].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty, \
             and may not have more than one field specified at a time",
                "spec.containers[0].env[3].valueFrom: Invalid value: \"\": must specify one of: `fieldRef`, \
             `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`",
            ],
        ),
        (
            "env",
            json!([
                {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.containers"}}},
                {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.disk", "containerName": "z"}}},
                {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "2m"}}},
                {"name": "D", "valueFrom": {"secretKeyRef": {"name": "s", "key": "a/b"}}},
            ]),
            &[
                "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.containers\": error converting \
             fieldPath: field label not supported: spec.containers",
                "spec.containers[0].env[1].valueFrom.resourceFieldRef.containerName: Not found: \"z\"",
                "spec.containers[0].env[1].valueFrom.resourceFieldRef.resource: Unsupported value: \"limits.disk\": supported \
             values: \"limits.cpu\", \"limits.ephemeral-storage\", \"limits.memory\", \"requests.cpu\", \
             \"requests.ephemeral-storage\", \"requests.memory\"",
                "spec.containers[0].env[2].valueFrom.resourceFieldRef.divisor: Invalid value: \"2m\": only divisor's values 1m \
             and 1 are supported with the cpu resource",
                "spec.containers[0].env[3].valueFrom.secretKeyRef.key: Invalid value: \"a/b\": a valid config key",
            ],
        ),
        (
            "envFrom",
            json!([{}, {"configMapRef": {}}, {"configMapRef": {"name": "a"}, "secretRef": {"name": "a"}}]),
            &[
                "spec.containers[0].envFrom[0]: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`",
                "spec.containers[0].envFrom[1].configMapRef.name: Required value",
                "spec.containers[0].envFrom[2]: Invalid value: \"\": may not have more than one field specified at a time",
            ],
        ),
        (
            "resources",
            json!({"limits": {"cpu": "1", "disk": "1"}, "requests": {"cpu": "2", "memory": "-1"}}),
            &[
                "spec.containers[0].resources.limits[disk]: Invalid value: \"disk\": must be a standard resource for containers",
                "spec.containers[0].resources.requests[cpu]: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
                "spec.containers[0].resources.requests[memory]: Invalid value: \"-1\": must be greater than or equal to 0",
            ],
        ),
        (
            "resources",
            json!({"limits": {"hugepages-2Mi": "4Mi"}}),
            &["spec.containers[0].resources: Forbidden: HugePages require cpu or memory"],
        ),
        (
            "volumeMounts",
            json!([{"name": "none", "mountPath": "/a"}, {"name": "data", "mountPath": "/a", "subPath": "../x"}, {"name": "data"}]),
            &[
                "spec.containers[0].volumeMounts[0].name: Not found: \"none\"",
                "spec.containers[0].volumeMounts[1].mountPath: Invalid value: \"/a\": must be unique",
                "spec.containers[0].volumeMounts[1].subPath: Invalid value: \"../x\": must not contain '..'",
                "spec.containers[0].volumeMounts[2].mountPath: Required value",
            ],
        ),
        (
            "volumeMounts",
            json!([{"name": "data", "mountPath": "/a", "subPath": "x", "subPathExpr": "/y", "mountPropagation": "Bidirectional", "recursiveReadOnly": "Enabled"}]),
            &[
                "spec.containers[0].volumeMounts[0].subPathExpr: Invalid value: \"/y\": must be a relative path",
                "spec.containers[0].volumeMounts[0].subPathExpr: Invalid value: \"/y\": subPathExpr and subPath are mutually \
             exclusive",
                "spec.containers[0].volumeMounts[0].mountPropagation: Forbidden: Bidirectional mount propagation is available \
             only to privileged containers",
                "spec.containers[0].volumeMounts[0].recursiveReadOnly: Forbidden: may only be specified when readOnly is true",
                "spec.containers[0].volumeMounts[0].recursiveReadOnly: Forbidden: may only be specified when mountPropagation \
             is None or not specified",
            ],
        ),
        (
            "livenessProbe",
            json!({"successThreshold": 2, "timeoutSeconds": -1, "terminationGracePeriodSeconds": 0}),
            &[
                "spec.containers[0].livenessProbe: Required value: must specify a handler type",
                "spec.containers[0].livenessProbe.timeoutSeconds: Invalid value: -1: must be greater than or equal to 0",
                "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
                "spec.containers[0].livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0",
            ],
        ),
        (
            "readinessProbe",
            json!({"exec": {}, "httpGet": {"port": 0, "httpHeaders": [{"name": "a b", "value": "x\r\n"}]}, "terminationGracePeriodSeconds": 1}),
            &[
                "spec.containers[0].readinessProbe: Forbidden: may not specify more than 1 handler type",
                "spec.containers[0].readinessProbe.exec.command: Required value",
                "spec.containers[0].readinessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.containers[0].readinessProbe.httpGet.httpHeaders[0].name: Invalid value: \"a b\": a valid HTTP header",
                "spec.containers[0].readinessProbe.httpGet.httpHeaders[0].value: Invalid value: text: must not hold line breaks \
             or NUL",
                "spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 1: must not be set for \
             readinessProbes",
            ],
        ),
        (
            "lifecycle",
            json!({"postStart": {}, "preStop": {"sleep": {"seconds": -1}}, "stopSignal": "TERM"}),
            &[
                "spec.containers[0].lifecycle.stopSignal: Unsupported value: \"TERM\": supported values: \"SIGABRT\"",
                "spec.containers[0].lifecycle.postStart: Required value: must specify a handler type",
                "spec.containers[0].lifecycle.preStop.sleep.seconds: Invalid value: -1: must be greater than or equal to 0",
            ],
        ),
        (
            "securityContext",
            json!({"privileged": true, "allowPrivilegeEscalation": false, "capabilities": {"add": ["CAP_SYS_ADMIN"]}}),
            &[
                "spec.containers[0].securityContext.allowPrivilegeEscalation: Invalid value: false: cannot set \
             `allowPrivilegeEscalation` to false and `privileged` to true",
                "spec.containers[0].securityContext.allowPrivilegeEscalation: Invalid value: false: cannot set \
             `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
            ],
        ),
        (
            "restartPolicyRules",
            json!([{}, {"action": "Restart", "exitCodes": {"operator": "In", "values": [1, 1]}}]),
            &[
                "spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used",
                "spec.containers[0].restartPolicyRules[0].action: Required value",
                "spec.containers[0].restartPolicyRules[0].exitCodes.operator: Required value",
                "spec.containers[0].restartPolicyRules[0].exitCodes.values: Invalid value: an empty list: at least one value \
             must be specified",
                "spec.containers[0].restartPolicyRules[1].exitCodes.values[1]: Duplicate value: \"1\"",
            ],
        ),
        (
            "stdinOnce",
            json!(true),
            &["spec.containers[0].stdinOnce: Invalid value: true: may only be set when stdin is true"],
        ),
    ];
    for (field, value, want) in cases {
        assert_eq!(errors_of(&at(field), value.clone()), *want, "{field} {value}");
    }
}

#[test]
fn init_and_ephemeral_containers() {
    let cases: &[(&str, Value, &[&str])] = &[
        (
            "/spec/initContainers",
            json!([{"name": "a", "image": "x", "livenessProbe": {"exec": {"command": ["x"]}}, "lifecycle": {"preStop": {"exec": {"command": ["x"]}}}}]),
            &[
                "spec.initContainers[0].name: Duplicate value: \"a\"",
                "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without \
             restartPolicy=Always",
                "spec.initContainers[0].lifecycle: Forbidden: may not be set for init containers without restartPolicy=Always",
            ],
        ),
        (
            "/spec/initContainers",
            json!([{"name": "s", "image": "x", "restartPolicy": "Always", "livenessProbe": {"exec": {"command": ["x"]}}}]),
            &[],
        ),
        (
            "/spec/initContainers",
            json!([{"name": "s", "image": "x", "restartPolicy": "Always", "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]}]),
            &[
                "spec.initContainers[0].restartPolicyRules: Forbidden: restartPolicyRules are not allowed for init containers \
             with restart policy Always",
            ],
        ),
        (
            "/spec/ephemeralContainers",
            json!([{"name": "d", "image": "x", "ports": [{"containerPort": 1}], "restartPolicy": "Never", "targetContainerName": "z"}]),
            &[
                "spec.ephemeralContainers[0].restartPolicy: Forbidden: cannot be set for an Ephemeral Container",
                "spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container",
                "spec.ephemeralContainers[0].targetContainerName: Not found: \"z\"",
            ],
        ),
    ];
    for (way, value, want) in cases {
        assert_eq!(errors_of(way, value.clone()), *want, "{way} {value}");
    }
}

#[test]
fn volumes() {
    let cases: &[(Value, &[&str])] = &[
        (json!({"name": "data"}), &["spec.volumes[1].name: Duplicate value: \"data\""]),
        (
            json!({"name": "x", "hostPath": {"path": "a/../b"}, "emptyDir": {}, "configMap": {"name": "c"}}),
            &[
                "spec.volumes[1].emptyDir: Forbidden: may not specify more than 1 volume type",
                "spec.volumes[1].configMap: Forbidden: may not specify more than 1 volume type",
                "spec.volumes[1].hostPath.path: Invalid value: \"a/../b\": must not contain '..'",
            ],
        ),
        (
            json!({"name": "x", "secret": {"items": [{"key": "", "path": "/a", "mode": 512}, {"key": "k", "path": "..a"}]}}),
            &[
                "spec.volumes[1].secret.secretName: Required value",
                "spec.volumes[1].secret.items[0].key: Required value",
                "spec.volumes[1].secret.items[0].path: Invalid value: \"/a\": must be a relative path",
                "spec.volumes[1].secret.items[0].mode: Invalid value: 512: must be a number between 0 and 0777 (octal), both \
             inclusive",
                "spec.volumes[1].secret.items[1].path: Invalid value: \"..a\": must not start with '..'",
            ],
        ),
        (
            json!({"name": "x", "downwardAPI": {"items": [{"path": "a"}, {"path": "b", "fieldRef": {"fieldPath": "status.podIP"}}, {"path": "c", "resourceFieldRef": {"resource": "limits.cpu"}}]}}),
            &[
                "spec.volumes[1].downwardAPI.items[0]: Required value: one of fieldRef and resourceFieldRef is required",
                "spec.volumes[1].downwardAPI.items[1].fieldRef.fieldPath: Invalid value: \"status.podIP\": error converting \
             fieldPath: field label not supported: status.podIP",
                "spec.volumes[1].downwardAPI.items[2].resourceFieldRef.containerName: Required value",
            ],
        ),
        (
            json!({"name": "x", "projected": {"sources": [{}, {"secret": {"name": "s", "items": [{"key": "k", "path": "p"}]}}, {"configMap": {"name": "s", "items": [{"key": "k", "path": "p"}]}}]}}),
            &[
                "spec.volumes[1].projected.sources[0]: Required value: one of configMap, secret and downwardAPI is required",
                "spec.volumes[1].projected.sources[2].configMap.items[0].path: Invalid value: \"p\": conflicting duplicate paths",
            ],
        ),
        (json!({"name": "x", "image": {}}), &["spec.volumes[1].image.reference: Required value"]),
        (
            json!({"name": "x", "emptyDir": {"sizeLimit": "-1"}}),
            &[
                "spec.volumes[1].emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity, not -1",
            ],
        ),
    ];
    for (value, want) in cases {
        assert_eq!(errors_of("/spec/volumes/-", value.clone()), *want, "{value}");
    }
}
