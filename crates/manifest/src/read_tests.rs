//! Tables of manifests: what each kind gives, and how each mistake is named.

use std::collections::BTreeMap;

use image_manager::PullPolicy;

use super::*;
use crate::error::ObjectOrigin;
use crate::images::Role;
use crate::object::{AccountObject, Pod, SecretObject};

fn pods(text: &str) -> Vec<Pod> {
    parse("f.yaml", text).unwrap_or_else(|e| panic!("{e}\n{text}")).pods
}

fn error(text: &str) -> String {
    parse("f.yaml", text).expect_err(text).to_string()
}

fn images(pod: &Pod) -> Vec<(Role, &str, &str, PullPolicy)> {
    pod.images.iter().map(|i| (i.role, i.name.as_str(), i.image.as_str(), i.policy)).collect()
}

#[test]
fn a_pod_with_everything() {
    let text = "\
apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: shop
  uid: abc
  annotations: {a: b}
spec:
  initContainers:
  - {name: setup, image: setup:1}
  containers:
  - {name: main, image: web}
  - {name: side, image: side:2, imagePullPolicy: Always}
  - {name: pinned, image: web:latest, imagePullPolicy: Never}
  - {name: digest, image: web@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef}
  ephemeralContainers:
  - {name: debug, image: 'localhost:5000/debug:latest'}
  volumes:
  - {name: scratch, emptyDir: {}}
  - {name: data, image: {reference: 'data:3', pullPolicy: IfNotPresent}}
  - {name: main, image: {reference: model}}
";
    let pods = pods(text);
    assert_eq!(pods.len(), 1);
    let pod = &pods[0];
    assert_eq!(
        (pod.kind.as_str(), pod.namespace.as_str(), pod.name.as_str(), pod.uid.as_str()),
        ("Pod", "shop", "web", "abc")
    );
    assert_eq!(pod.annotations, BTreeMap::from([("a".into(), "b".into())]));
    assert_eq!(pod.source, ObjectOrigin { file: "f.yaml".into(), document: 1, line: 1 });
    let want = [
        (Role::Volume, "data", "data:3", PullPolicy::IfNotPresent),
        (Role::Volume, "main", "model", PullPolicy::Always),
        (Role::Ephemeral, "debug", "localhost:5000/debug:latest", PullPolicy::Always),
        (Role::Init, "setup", "setup:1", PullPolicy::IfNotPresent),
        (Role::Container, "main", "web", PullPolicy::Always),
        (Role::Container, "side", "side:2", PullPolicy::Always),
        (Role::Container, "pinned", "web:latest", PullPolicy::Never),
        (
            Role::Container,
            "digest",
            "web@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            PullPolicy::IfNotPresent,
        ),
    ];
    assert_eq!(images(pod), want);
    assert_eq!(pod.images[3].field_path(), "spec.initContainers{setup}");
    assert_eq!((pod.images[0].title(), pod.images[4].title()), ("volume/data".into(), "main".into()));
}

#[test]
fn every_kind_gives_its_template() {
    let template = "{metadata: {annotations: {x: y}}, spec: {containers: [{name: c, image: 'i:1'}]}}";
    let cases = [
        ("v1", "ReplicationController", format!("{{template: {template}}}")),
        ("apps/v1", "Deployment", format!("{{replicas: 2, template: {template}}}")),
        ("apps/v1", "ReplicaSet", format!("{{template: {template}}}")),
        ("apps/v1", "StatefulSet", format!("{{serviceName: s, template: {template}}}")),
        ("apps/v1", "DaemonSet", format!("{{template: {template}}}")),
        ("batch/v1", "Job", format!("{{template: {template}}}")),
        ("batch/v1", "CronJob", format!("{{schedule: '* * * * *', jobTemplate: {{spec: {{template: {template}}}}}}}")),
    ];
    for (version, kind, spec) in cases {
        let text = format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: n}}\nspec: {spec}\n");
        let pods = pods(&text);
        assert_eq!(images(&pods[0]), [(Role::Container, "c", "i:1", PullPolicy::IfNotPresent)], "{kind}");
        assert_eq!(pods[0].annotations.get("x").map(String::as_str), Some("y"), "{kind}");
        assert_eq!(pods[0].title(), format!("{}/n", kind.to_lowercase()));
    }
}

const SMALL: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: NAME}\nspec: {containers: [{name: c, image: i}]}\n";

#[test]
fn several_documents_and_lists() {
    let text = format!("{}---\n# nothing\n---\n{}", SMALL.replace("NAME", "a"), SMALL.replace("NAME", "b"));
    let got: Vec<_> = pods(&text).into_iter().map(|p| (p.name, p.source.document, p.source.line)).collect();
    assert_eq!(got, [("a".to_owned(), 1, 1), ("b".to_owned(), 2, 8)]);

    let list = r#"{"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "y"},
         "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}]}"#;
    let got: Vec<_> = pods(list).into_iter().map(|p| (p.title(), p.source.line)).collect();
    assert_eq!(got, [("pod/x".to_owned(), 2), ("daemonset/y".to_owned(), 3)]);

    // As an API server answers: the items of a typed list have no kind.
    let typed = r#"{"apiVersion": "v1", "kind": "PodList", "items": [
        {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}]}"#;
    assert_eq!(pods(typed)[0].title(), "pod/x");
}

#[test]
fn mistakes_are_named_with_their_place() {
    let pod = |spec: &str| format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n{spec}");
    let cases = [
        (
            format!("{}---\napiVersion: apps/v2\nkind: Deployment\n", SMALL),
            "f.yaml:6: document 2: Deployment of apps/v2 is not known, only of apps/v1, apps/v1beta1, apps/v1beta2, \
             extensions/v1beta1",
        ),
        ("kind: Pod\n".to_owned(), "f.yaml:1: document 1: apiVersion of Pod is missing"),
        ("apiVersion: v1\n".to_owned(), "f.yaml:1: document 1: kind is missing"),
        ("just text\n".to_owned(), "f.yaml:1: document 1: an object was expected, not text"),
        (
            pod("  contaners: [{name: c, image: i}]\n"),
            "f.yaml:5: document 1: spec.contaners: Unknown field; did you mean \"containers\"?",
        ),
        (
            pod("  initContainer: [{name: c, image: i}]\n  containers: [{name: c, image: i}]\n"),
            "f.yaml:5: document 1: spec.initContainer: Unknown field; did you mean \"initContainers\"?",
        ),
        (
            pod("  containers:\n  - name: c\n    image: i\n    imagePullPolcy: Never\n"),
            "f.yaml:8: document 1: spec.containers[0].imagePullPolcy: Unknown field; did you mean \"imagePullPolicy\"?",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespce: x}\nspec: {containers: [{name: c, image: i}]}\n".to_owned(),
            "f.yaml:3: document 1: metadata.namespce: Unknown field; did you mean \"namespace\"?",
        ),
        (
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: p}\nspec:\n  tempalte: {}\n".to_owned(),
            "f.yaml:5: document 1: Deployment p has no spec.template; spec.tempalte: Unknown field; did you mean \"template\"?",
        ),
        (
            "apiVersion: apps/v1\nkind: Deploymnet\nmetadata: {name: p}\n".to_owned(),
            "f.yaml:1: document 1: kind Deploymnet (apps/v1) is not known; did you mean \"Deployment\"?",
        ),
        // The first of several mistakes is reported.
        (
            pod("  priority: high\n  containers:\n  - image: 1\n    name: 2\n"),
            "f.yaml:5: document 1: spec.priority must be a whole number of 32 bits, not \"high\"",
        ),
        (
            pod("  containers:\n  - image: 1\n    name: 2\n  priority: high\n"),
            "f.yaml:6: document 1: spec.containers[0].image must be text, not 1",
        ),
        (
            "apiVersion: v1\nkind: Pod\nspec:\n  containers: 1\nmetadata: {name: 2}\n".to_owned(),
            "f.yaml:4: document 1: spec.containers must be a list, not 1",
        ),
        (
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a.yaml]\n".to_owned(),
            "f.yaml:1: document 1: a kustomization is not built here: `kubectl kustomize DIR | imagelet ensure -f -`",
        ),
        ("apiVersion: v1\nkind: Pod\nspec: {}\n".to_owned(), "f.yaml:1: document 1: Pod has no metadata.name"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n".to_owned(), "f.yaml:1: document 1: Pod p has no spec"),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: \"a\\nb\"}\n".to_owned(),
            "f.yaml:1: document 1: Pod a\\u000ab has no spec",
        ),
        (
            "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: p}\nspec: {jobTemplate: {}}\n".to_owned(),
            "f.yaml:4: document 1: CronJob p has no spec.jobTemplate.spec",
        ),
        (pod("  containers: []\n"), "f.yaml:1: document 1: Pod p has no containers"),
        (
            pod("  initContainers: [{name: i, image: x}]\n"),
            "f.yaml:1: document 1: Pod p has no containers",
        ),
        (pod("  containers: {name: c}\n"), "f.yaml:5: document 1: spec.containers must be a list, not a map"),
        (pod("  containers:\n  - name: c\n"), "f.yaml:6: document 1: spec.containers[0] \"c\" has no image"),
        (
            pod("  containers:\n  - {name: c, image: ''}\n"),
            "f.yaml:6: document 1: spec.containers[0] \"c\" has no image",
        ),
        (pod("  containers:\n  - image: i\n"), "f.yaml:6: document 1: spec.containers[0] has no name"),
        (
            pod("  containers:\n  - name: c\n    image: 1.5\n"),
            "f.yaml:7: document 1: spec.containers[0].image must be text, not 1.5",
        ),
        (
            pod("  containers:\n  - {name: c, image: i}\n  - {name: c, image: j}\n"),
            "f.yaml:7: document 1: spec.containers[1]: the name \"c\" is taken in containers already",
        ),
        (
            pod("  containers:\n  - {name: c, image: i}\n  initContainers:\n  - {name: c, image: j}\n"),
            "f.yaml:6: document 1: spec.containers[0]: the name \"c\" is taken in initContainers already",
        ),
        (
            pod("  containers:\n  - name: c\n    image: i\n    imagePullPolicy: Sometimes\n"),
            "f.yaml:8: document 1: spec.containers[0].imagePullPolicy: \"Sometimes\" is not allowed, must be Always, \
             IfNotPresent or Never",
        ),
        (
            pod("  containers: [{name: c, image: i}]\n  volumes:\n  - {name: v, image: {}}\n"),
            "f.yaml:7: document 1: spec.volumes[0] \"v\" has no reference",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {a: 1}}\nspec: {containers: [{name: c, image: i}]}\n".to_owned(),
            "f.yaml:3: document 1: metadata.annotations: a must be text, not 1",
        ),
    ];
    for (text, want) in cases {
        assert_eq!(error(&text), want, "{text}");
    }
}

#[test]
fn bad_yaml_names_file_and_line() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: p\nspec:\n";
    let got = error(text);
    assert!(got.starts_with("f.yaml:") && !got.contains('\n'), "{got}");
    let line: u64 = got["f.yaml:".len()..].split(':').next().and_then(|n| n.parse().ok()).expect("a line number");
    assert!((3..=5).contains(&line), "{got}");
    let got = error(&format!("{SMALL}spec: {{}}\n"));
    assert!(got.starts_with("f.yaml:5:") && got.ends_with("the key \"spec\" stands twice"), "{got}");
    let got = parse("-", "a: [").expect_err("refused").to_string();
    assert!(got.starts_with("standard input:1:"), "{got}");
}

#[test]
fn kinds_of_others_are_read_by_their_shape() {
    let rollout = "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec:\n  strategy: {canary: {}}\n  \
                   template: {spec: {containers: [{name: c, image: 'i:1', imagePullPolcy: Never}], odd: 1}}\n";
    let objects = parse("f.yaml", rollout).expect("parses");
    assert_eq!(objects.pods[0].title(), "rollout/r");
    assert_eq!(images(&objects.pods[0]), [(Role::Container, "c", "i:1", PullPolicy::IfNotPresent)]);
    // Fields of their own are no mistakes; a misspelt one is, and may be one of their own all the same.
    let notes: Vec<_> = objects.notes.iter().map(|note| format!("{}: {}", note.at, note.message)).collect();
    let want = "f.yaml:6: document 1: spec.template.spec.containers[0].imagePullPolcy: Unknown field; did you mean \
                \"imagePullPolicy\"?";
    assert_eq!(notes, [want]);

    // A container of Knative has no name; an image of OpenShift may be filled in by a trigger.
    let text = "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: hello}\nspec:\n  template:\n    spec:\n      \
                containerConcurrency: 3\n      containers: [{image: 'i:1'}]\n---\n\
                apiVersion: apps.openshift.io/v1\nkind: DeploymentConfig\nmetadata: {name: d}\nspec:\n  template: {spec: \
                {containers: [{name: a, image: ' '}, {name: b, image: 'i:2'}]}}\n";
    let objects = parse("f.yaml", text).expect("parses");
    let got: Vec<_> = objects.pods.iter().map(|pod| (pod.title(), images(pod))).collect();
    let container = |name, image| vec![(Role::Container, name, image, PullPolicy::IfNotPresent)];
    assert_eq!(
        got,
        [
            ("service/hello".to_owned(), container("containers[0]", "i:1")),
            ("deploymentconfig/d".to_owned(), container("b", "i:2"))
        ]
    );
    assert_eq!(objects.notes[0].message, "spec.template.spec.containers[0] has no image yet: it is passed by");
}

#[test]
fn fields_that_decide_nothing_are_noted() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  hostNetwrk: true\n  containers: [{name: c, image: i, \
                prots: []}]\n  newField: 1\nstatus: {phase: Running}\n";
    let notes: Vec<_> = parse("f.yaml", text).expect("parses").notes.into_iter().map(|note| note.message).collect();
    let want = [
        "spec.hostNetwrk: Unknown field; did you mean \"hostNetwork\"?",
        "spec.containers[0].prots: Unknown field; did you mean \"ports\"?",
        "spec.newField: Unknown field",
    ];
    assert_eq!(notes, want);
}

#[test]
fn objects_without_pods_are_passed_by() {
    let other = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {template: odd}\n---\n";
    let list = "apiVersion: example.dev/v1\nkind: AllowList\nitems: [a, b]\n---\n";
    let objects = parse("f", &format!("# head\n{other}---\n{list}{SMALL}---\n")).expect("parses");
    assert_eq!((objects.pods.len(), objects.pods[0].source.document), (1, 3));
    assert_eq!(objects.passed_by, ["service/s", "allowlist"]);
    check(&objects, None).expect("there is a pod");
    for (text, want) in [
        (other.to_owned(), "f: there is no pod in it, only service/s"),
        (
            other.repeat(7),
            "f: there is no pod in it, only service/s, service/s, service/s, service/s, service/s and 2 more",
        ),
        ("# nothing\n---\n".to_owned(), "f: there is no pod in it"),
        (String::new(), "f: there is no pod in it"),
    ] {
        let error = check(&parse("f", &text).expect("parses"), Some("f")).expect_err("refused");
        assert_eq!(error.to_string(), want);
    }
    let error = check(&Objects::default(), None).expect_err("refused");
    assert_eq!(error.to_string(), "there is no pod in any of the manifests");
}

#[test]
fn one_object_cannot_be_given_twice() {
    let text = SMALL.replace("NAME", "a");
    let mut all = parse("one.yaml", &text).expect("parses");
    check(&all, None).expect("one is fine");
    all.extend(parse("two.yaml", &text).expect("parses"));
    let error = check(&all, None).expect_err("refused").to_string();
    assert_eq!(error, "two.yaml:1: document 1: Pod default/a was given before, at one.yaml:1: document 1");
}

#[test]
fn a_made_uid_is_stable_and_differs() {
    let uid = |name: &str| pods(&SMALL.replace("NAME", name))[0].uid.clone();
    assert_eq!(uid("a"), uid("a"));
    assert_ne!(uid("a"), uid("b"));
    assert_eq!(uid("a").len(), 32);
}

#[test]
fn what_decides_who_may_have_images_and_when() {
    let pod = |spec: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{{name: c, image: i}}]{spec}}}\n"
        );
        let mut pods = pods(&text);
        let pod = pods.remove(0);
        (pod.pull_secrets.join(","), pod.service_account, pod.priority)
    };
    let cases = [
        ("", ("", "default", 0)),
        (", imagePullSecrets: [{name: a}, {name: b}, {name: ''}, {}, ~]", ("a,b", "default", 0)),
        (", serviceAccountName: web, serviceAccount: old", ("", "web", 0)),
        (", serviceAccountName: '', serviceAccount: old", ("", "old", 0)),
        (", priorityClassName: system-node-critical", ("", "default", 2_000_001_000)),
        (", priorityClassName: system-cluster-critical", ("", "default", 2_000_000_000)),
        (", priorityClassName: ours", ("", "default", 0)),
        (", priorityClassName: system-node-critical, priority: -7", ("", "default", -7)),
    ];
    for (spec, (secrets, account, priority)) in cases {
        assert_eq!(pod(spec), (secrets.to_owned(), account.to_owned(), priority), "{spec}");
    }
    for (spec, want) in [
        ("imagePullSecrets: {name: a}", "spec.imagePullSecrets must be a list, not a map"),
        ("imagePullSecrets: [a]", "spec.imagePullSecrets[0] must be a map with a name, not \"a\""),
        ("imagePullSecrets: [{name: 1}]", "spec.imagePullSecrets[0].name must be text, not 1"),
        ("priority: high", "spec.priority must be a whole number of 32 bits, not \"high\""),
        ("priority: 3000000000", "spec.priority must be a whole number of 32 bits, not 3000000000"),
    ] {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n  containers: [{{name: c, image: i}}]\n  {spec}\n"
        );
        assert_eq!(error(&text), format!("f.yaml:6: document 1: {want}"));
    }
}

#[test]
fn secrets_and_accounts() {
    let text = "\
apiVersion: v1
kind: Secret
metadata: {name: regcred, namespace: shop, uid: u1}
type: kubernetes.io/dockerconfigjson
data:
  .dockerconfigjson: e30K
  folded: |
    aGVs
    bG8=
  other: /w==
  nothing:
stringData:
  .dockerconfigjson: '{\"auths\": {}}'
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web, annotations: {a: b}}
imagePullSecrets: [{name: regcred}, {name: ''}]
secrets: [{name: web-token}]
";
    let objects = parse("f.yaml", text).expect("parses");
    let SecretObject { source, secret } = &objects.secrets[0];
    assert_eq!(
        (source.line, secret.namespace.as_str(), secret.name.as_str(), secret.uid.as_str()),
        (1, "shop", "regcred", "u1")
    );
    assert_eq!(secret.kind, "kubernetes.io/dockerconfigjson");
    let data: Vec<_> = secret.data.iter().map(|(key, value)| (key.as_str(), value.expose())).collect();
    assert_eq!(data, [(".dockerconfigjson", "{\"auths\": {}}"), ("folded", "hello"), ("nothing", "")]);
    let AccountObject { account, pull_secrets, .. } = &objects.accounts[0];
    assert_eq!((account.namespace.as_str(), account.name.as_str()), ("default", "web"));
    assert_eq!((account.annotations.len(), pull_secrets.as_slice()), (1, ["regcred".to_owned()].as_slice()));
    assert!(matches!(check(&objects, None), Err(ManifestError::NoPod { .. })));
    assert!(!format!("{objects:?}").contains("hello"));
}

#[test]
fn bad_secrets_are_named_with_their_place_and_never_shown() {
    let cases = [
        ("data: {a: '!s3cret'}", "Secret default/x: data.a is not base64"),
        ("data: {a: czNjcmV0}\nstringData: [s3cret]", "Secret default/x: stringData must be a map, not a list"),
        ("data: s3cret", "Secret default/x: data must be a map, not text"),
        ("data: {.dockercfg: /w==}", "Secret default/x: data..dockercfg is not UTF-8 text"),
        ("stringData: {a: 12345}", "Secret default/x: stringData.a must be text, not a number"),
        ("stringData: {a: [s3cret]}", "Secret default/x: stringData.a must be text, not a list"),
        ("type: [s3cret]", "Secret default/x: type must be text, not a list"),
    ];
    for (body, want) in cases {
        let got = error(&format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: x}}\n{body}\n"));
        assert!(got.starts_with("f.yaml:") && got.ends_with(&format!(": document 1: {want}")), "{got}");
        assert!(!got.contains("s3cret") && !got.contains("12345"), "{got}");
    }
    assert_eq!(error("apiVersion: v1\nkind: Secret\n"), "f.yaml:1: document 1: Secret has no metadata.name");
    let twice = "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n---\n".repeat(2);
    let objects = parse("f.yaml", &twice).expect("parses");
    let got = check(&objects, None).expect_err("refused").to_string();
    assert_eq!(got, "f.yaml:5: document 2: Secret default/x was given before, at f.yaml:1: document 1");
}

/// A whole file with a secret in several forms.
const SECRETS: &str = "apiVersion: v1\nkind: Secret\nmetadata: {name: x, namespace: y}\ntype: Opaque\ndata:\n  \
                       .dockercfg: QjY0X0lTX1NFQ1JFVA==\nstringData:\n  a: PLAIN_IS_SECRET\n  b: |\n    BLOCK_IS_SECRET\n    \
                       more\n";

proptest::proptest! {
    /// No error shows the content of a file of secrets, however the file is damaged.
    #[test]
    fn a_damaged_secret_is_not_shown(at in 0..SECRETS.len(), cut in 0_usize..8, put in "[-\\[\\]{}:,&*!|>'\"#~@`% \n\ta-z0-9]{0,6}") {
        let end = (at + cut).min(SECRETS.len());
        let text = format!("{}{put}{}", &SECRETS[..at], &SECRETS[end..]);
        for result in [parse("f.yaml", &text), parse_secrets("f.yaml", &text)] {
            if let Err(error) = result {
                let line = error.to_string();
                for part in ["QjY0X0l", "PLAIN_IS", "BLOCK_IS", "_SECRET"] {
                    proptest::prop_assert!(!line.contains(part), "{line}\n{text}");
                }
            }
        }
    }

    /// Every manifest yields pods or an error of one line that names the place; never a panic.
    #[test]
    fn a_damaged_manifest_gives_one_line(at in 0..SMALL.len(), cut in 0_usize..20, put in "[-\\[\\]{}:,&*!|>'\"#~ \n\ta-z0-9]{0,12}") {
        let end = (at + cut).min(SMALL.len());
        let text = format!("{}{put}{}", &SMALL[..at], &SMALL[end..]);
        match parse("f.yaml", &text) {
            Ok(objects) => proptest::prop_assert!(objects.pods.iter().all(|pod| !pod.images.is_empty())),
            Err(error) => {
                let line = error.to_string();
                proptest::prop_assert!(line.starts_with("f.yaml") && !line.contains('\n'), "{line}");
            }
        }
    }
}
