//! Two tenants on one node and a registry with passwords and TLS by an authority of its own: an image that one of them
//! pulled is not the other's, in whatever order they pull, and after every restart; secrets rotate and are revoked.
//!
//! Every run of `imagelet ensure` is a process of its own: it knows of earlier pulls only from the disk.

use std::fs;

use serde_json::Value;

use crate::support::cli::Done;
use crate::support::manifests::{Manifests, Pod, PullSecret, forms_of};
use crate::support::registry::{Access, GuardedRegistry};
use crate::support::scene::Scene;
use crate::support::{Containerd, Imagelet};

const RED: (&str, &str) = ("red", "scarlet-and-crimson");
const BLUE: (&str, &str) = ("blue", "navy-and-azure");

/// A guarded registry that has one image, and a node that trusts its certificate.
struct Estate {
    imagelet: Imagelet,
    registry: GuardedRegistry,
    image: String,
    /// Digest of its one layer.
    layer: String,
    _containerd: Option<Containerd>,
    s: Scene,
}

/// A pod with its secret, as it stands in a manifest.
#[derive(Clone, Copy)]
struct Tenant {
    name: &'static str,
    /// Uid of the secret object.
    uid: &'static str,
    user: &'static str,
    password: &'static str,
}

const RED_TENANT: Tenant = Tenant { name: "team-red", uid: "secret-red", user: RED.0, password: RED.1 };
const BLUE_TENANT: Tenant = Tenant { name: "team-blue", uid: "secret-blue", user: BLUE.0, password: BLUE.1 };
/// Whose password the registry does not know.
const STRANGER: Tenant = Tenant { name: "stranger", uid: "secret-stranger", user: RED.0, password: "guessed" };

impl Estate {
    fn new() -> Self {
        let s = Scene::new();
        let (_, app) = s.push_file("estate/app:1", "data", "the estate's own");
        let layer = app.blobs[0].digest.to_string();
        s.push_file("estate/other:1", "data", "another image");
        let registry = GuardedRegistry::start(&s.scratch.join("registry"), &[RED, BLUE]);
        let certs = registry.hosts_file(&s.scratch.join("certs.d"));
        let imagelet = s.imagelet.clone().global("--registry-config-path", &certs);
        let image = registry.name("estate/app:1");
        Self { imagelet, registry, image, layer, _containerd: None, s }
    }

    /// The same with containerd in the place of the embedded engine.
    fn on_containerd() -> Self {
        let estate = Self::new();
        let containerd = Containerd::start(estate.s.registry.host());
        containerd.trust(&estate.registry.host, &estate.registry.authority);
        let imagelet = estate.imagelet.clone().global("--image-endpoint", &containerd.endpoint());
        Self { imagelet, _containerd: Some(containerd), ..estate }
    }

    fn file_for(&self, tenant: Option<Tenant>, image: &str, policy: &str) -> String {
        let name = tenant.map_or("nobody", |tenant| tenant.name);
        let secrets: &[&str] = if tenant.is_some() { &["pull"] } else { &[] };
        let mut manifests = Manifests::new().pod(Pod { namespace: name, name, image, policy, secrets });
        if let Some(Tenant { uid, user, password, .. }) = tenant {
            let registry = &self.registry.host;
            manifests = manifests.secret(PullSecret { namespace: name, name: "pull", uid, registry, user, password });
        }
        manifests.write(&self.s.scratch.join("manifests.yaml"))
    }

    /// Ensures an image for a tenant; returns the outcome, and the requests to the registry.
    #[track_caller]
    fn ensure_image(&self, tenant: Option<Tenant>, image: &str, policy: &str) -> (Done, Vec<Access>) {
        let done = self.imagelet.run(&["ensure", "-f", &self.file_for(tenant, image, policy)]);
        (done, self.registry.asked())
    }

    #[track_caller]
    fn ensure(&self, tenant: Option<Tenant>, policy: &str) -> (Done, Vec<Access>) {
        self.ensure_image(tenant, &self.image, policy)
    }

    /// All pulled records, as text.
    fn records(&self) -> String {
        let directory = self.s.scratch.join("store/image_manager/pulled");
        let entries = fs::read_dir(&directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
        let mut texts: Vec<String> =
            entries.map(|e| fs::read_to_string(e.expect("an entry").path()).expect("a record")).collect();
        texts.sort();
        texts.concat()
    }
}

#[track_caller]
fn granted((done, asked): (Done, Vec<Access>)) -> Vec<Access> {
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    asked
}

#[track_caller]
fn refused((done, asked): (Done, Vec<Access>), reason: &str) -> (String, Vec<Access>) {
    // 77 where the registry refused a credential, and the runtime says so.
    assert!(matches!(done.code, Some(1 | 77)), "{}{}", done.stdout, done.stderr);
    assert!(done.stderr.contains(reason), "{}", done.stderr);
    (done.stderr, asked)
}

fn blobs(asked: &[Access]) -> usize {
    asked.iter().filter(|a| a.is_blob() && a.status == 200).count()
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn layers_of_one_tenant_are_not_available_to_another() {
    not_the_others(&Estate::new());
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn layers_of_one_tenant_in_containerd_are_not_available_to_another() {
    not_the_others(&Estate::on_containerd());
}

fn not_the_others(e: &Estate) {
    let asked = granted(e.ensure(Some(RED_TENANT), "IfNotPresent"));
    assert_eq!(blobs(&asked), 2, "config and layer: {asked:?}");

    // The error does not reveal that the image is present, and the registry is not asked.
    for tenant in [Some(STRANGER), None] {
        let (said, asked) = refused(e.ensure(tenant, "Never"), "ErrImageNeverPull");
        assert!(said.contains("is not present with pull policy of Never"), "{said}");
        assert_eq!(asked, [], "Never asks nobody");
    }
    // With a policy that may pull, the registry decides.
    for tenant in [Some(STRANGER), None] {
        let (said, asked) = refused(e.ensure(tenant, "IfNotPresent"), "ErrImagePull");
        // containerd says 401 up to 1.6, and from 1.7 on that nothing authorizes it.
        let words = ["401", "unauthorized", "authorization failed"];
        assert!(words.iter().any(|words| said.to_lowercase().contains(words)), "{said}");
        assert!(asked.iter().any(|a| a.is_manifest_of("estate/app") && a.status == 401), "{asked:?}");
        assert_eq!(asked.iter().filter(|a| a.status == 200).count(), 0, "{asked:?}");
        for secret in forms_of(STRANGER.user, STRANGER.password) {
            assert!(!said.contains(&secret), "{said}");
        }
    }
    // The tenant that pulled it causes no request any more, whatever other tenants tried meanwhile.
    assert_eq!(granted(e.ensure(Some(RED_TENANT), "IfNotPresent")), []);
    assert_eq!(granted(e.ensure(Some(RED_TENANT), "Never")), []);

    // Another tenant with access proves it once, by a request for the manifest.
    refused(e.ensure(Some(BLUE_TENANT), "Never"), "ErrImageNeverPull");
    let asked = granted(e.ensure(Some(BLUE_TENANT), "IfNotPresent"));
    assert_eq!(blobs(&asked), 0, "it is here: {asked:?}");
    assert!(asked.iter().any(|a| a.is_manifest_of("estate/app") && a.status == 200), "{asked:?}");
    assert_eq!(granted(e.ensure(Some(BLUE_TENANT), "Never")), [], "and then it is written down");

    let records = e.records();
    for (tenant, other) in [(RED_TENANT, STRANGER), (BLUE_TENANT, STRANGER)] {
        assert!(records.contains(tenant.uid), "{records}");
        assert!(!records.contains(other.uid), "{records}");
        for secret in forms_of(tenant.user, tenant.password) {
            assert!(!records.contains(&secret), "{records}");
        }
    }
    let pulling = e.s.scratch.join("store/image_manager/pulling");
    assert_eq!(fs::read_dir(pulling).expect("the intents' directory").count(), 0, "no intent is left");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn tenants_that_come_at_the_same_time_get_what_is_theirs() {
    let e = Estate::new();
    let mut manifests = Manifests::new();
    for Tenant { name, uid, user, password } in [STRANGER, RED_TENANT, BLUE_TENANT] {
        let (namespace, registry) = (name, e.registry.host.as_str());
        let pod = Pod { namespace, name, image: &e.image, policy: "IfNotPresent", secrets: &["pull"] };
        manifests = manifests.pod(pod).secret(PullSecret { namespace, name: "pull", uid, registry, user, password });
    }
    let nobody = Pod { namespace: "nobody", name: "nobody", image: &e.image, policy: "IfNotPresent", secrets: &[] };
    let file = manifests.pod(nobody).write(&e.s.scratch.join("all.yaml"));
    let done = e.imagelet.run(&["ensure", "-o", "json", "-f", &file]);
    assert_eq!(done.code, Some(77), "{}", done.stderr);
    let rows: Value = serde_json::from_str(&done.stdout).expect("JSON");
    let result = |pod: &str| {
        let rows = rows["containers"].as_array().expect("a list");
        let row = rows.iter().find(|row| row["namespace"] == pod).unwrap_or_else(|| panic!("{pod}: {rows:?}"));
        row["result"].as_str().expect("a result").to_owned()
    };
    for tenant in [STRANGER.name, "nobody"] {
        assert_eq!(result(tenant), "ErrImagePull", "{rows}");
    }
    for tenant in [RED_TENANT.name, BLUE_TENANT.name] {
        assert!(matches!(result(tenant).as_str(), "pulled" | "present"), "{rows}");
    }
    let layers = e.registry.asked().iter().filter(|a| a.path.ends_with(&e.layer) && a.status == 200).count();
    assert_eq!(layers, 1, "each proves itself, and one fetches");
    // And in the next life of the program.
    for tenant in [RED_TENANT, BLUE_TENANT] {
        assert_eq!(granted(e.ensure(Some(tenant), "Never")), []);
    }
    refused(e.ensure(Some(STRANGER), "Never"), "ErrImageNeverPull");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_pull_that_was_cut_off_before_its_record_leaves_doubt() {
    let e = Estate::new();
    // The image is present, and so is the intent to pull it: the state after a kill between commit and record.
    let creds = format!("{}:{}", RED.0, RED.1);
    e.imagelet.ok(&["pull", &e.image, "--creds", &creds]);
    let pulling = e.s.scratch.directory("store/image_manager/pulling");
    let name = format!("sha256-{}", oci::Digest::sha256(e.image.as_bytes()).hex());
    let intent = serde_json::json!({"kind": "ImagePullIntent", "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "image": e.image});
    fs::write(pulling.join(name), intent.to_string()).expect("write an intent");
    refused(e.ensure(Some(STRANGER), "Never"), "ErrImageNeverPull");
    assert_eq!(fs::read_dir(&pulling).expect("the intents' directory").count(), 0, "it became a record");
    refused(e.ensure(Some(STRANGER), "IfNotPresent"), "ErrImagePull");
    assert_eq!(blobs(&granted(e.ensure(Some(RED_TENANT), "IfNotPresent"))), 0);
    assert_eq!(granted(e.ensure(Some(RED_TENANT), "Never")), []);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn an_image_that_a_person_pulled_is_for_those_who_prove_that_they_may_have_it() {
    let e = Estate::new();
    let creds = format!("{}:{}", RED.0, RED.1);
    e.imagelet.ok(&["pull", &e.image, "--creds", &creds]);
    assert!(!e.records().contains("credentialHash"), "nobody's credential is kept: {}", e.records());
    refused(e.ensure(Some(STRANGER), "Never"), "ErrImageNeverPull");
    refused(e.ensure(Some(STRANGER), "IfNotPresent"), "ErrImagePull");
    assert_eq!(
        blobs(&granted(e.ensure(Some(RED_TENANT), "IfNotPresent"))),
        0,
        "the registry is asked, nothing fetched"
    );
    assert_eq!(granted(e.ensure(Some(RED_TENANT), "Never")), []);
    // A wrong credential brings nothing, and leaves nothing.
    let other = e.registry.name("estate/other:1");
    e.imagelet.fails(77, &["pull", &other, "--creds", "nobody:nothing"]);
    let pulling = e.s.scratch.join("store/image_manager/pulling");
    assert_eq!(fs::read_dir(pulling).expect("the intents' directory").count(), 0);
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn the_same_credential_in_another_secret_is_known() {
    let e = Estate::new();
    granted(e.ensure(Some(RED_TENANT), "IfNotPresent"));
    let twin = Tenant { name: "red-too", uid: "secret-red-too", ..RED_TENANT };
    assert_eq!(granted(e.ensure(Some(twin), "Never")), []);
    assert!(e.records().contains("secret-red-too"));
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_secret_that_rotates_keeps_its_images_and_a_revoked_one_gets_no_new_ones() {
    let e = Estate::new();
    granted(e.ensure(Some(RED_TENANT), "IfNotPresent"));

    // A new password, at the registry and in the same secret object.
    const NEW: &str = "vermilion-and-ruby";
    e.registry.set_users(&[(RED.0, NEW), BLUE]);
    let rotated = Tenant { password: NEW, ..RED_TENANT };
    // The object keeps its name, which any author can choose: the registry is asked about its new content, once.
    refused(e.ensure(Some(rotated), "Never"), "ErrImageNeverPull");
    let asked = granted(e.ensure(Some(rotated), "IfNotPresent"));
    assert_eq!(blobs(&asked), 0, "the image is here: {asked:?}");
    let manifests = asked.iter().filter(|a| a.is_manifest_of("estate/app") && a.status == 200).count();
    assert_eq!(manifests, 1, "{asked:?}");
    assert_eq!(granted(e.ensure(Some(rotated), "IfNotPresent")), [], "and then it is recorded");
    let other = e.registry.name("estate/other:1");
    let asked = granted(e.ensure_image(Some(rotated), &other, "IfNotPresent"));
    assert!(blobs(&asked) > 0, "the new password is good: {asked:?}");
    let asked = granted(e.ensure(Some(rotated), "Always"));
    assert!(asked.iter().any(|a| a.is_manifest_of("estate/app") && a.status == 200), "{asked:?}");
    // The rotated hash stands in the record now: a copy of the new secret is known, a copy of the old one is not.
    let copy = |password| Tenant { name: "copy", uid: "secret-copy", password, ..RED_TENANT };
    granted(e.ensure(Some(copy(NEW)), "Never"));
    let old = Tenant { name: "old", uid: "secret-old", ..RED_TENANT };
    refused(e.ensure(Some(old), "Never"), "ErrImageNeverPull");
    refused(e.ensure(Some(old), "IfNotPresent"), "ErrImagePull");

    // Revoked: what was proven stays, everything that asks the registry fails.
    e.registry.set_users(&[BLUE]);
    assert_eq!(granted(e.ensure(Some(rotated), "IfNotPresent")), []);
    let (_, asked) = refused(e.ensure(Some(rotated), "Always"), "ErrImagePull");
    assert!(asked.iter().all(|a| a.status == 401), "{asked:?}");
    // For the other one nothing has changed.
    granted(e.ensure(Some(BLUE_TENANT), "Always"));
}

/// A manifest has a secret under the namespace, name and uid of another tenant's.
#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_wrong_password_under_the_right_name_gets_nothing() {
    wrong_under_the_right_name(&Estate::new());
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_wrong_password_under_the_right_name_gets_nothing_from_containerd() {
    wrong_under_the_right_name(&Estate::on_containerd());
}

fn wrong_under_the_right_name(e: &Estate) {
    granted(e.ensure(Some(RED_TENANT), "IfNotPresent"));
    let guess = Tenant { password: STRANGER.password, ..RED_TENANT };
    let (said, asked) = refused(e.ensure(Some(guess), "Never"), "ErrImageNeverPull");
    assert!(said.contains("is not present with pull policy of Never"), "{said}");
    assert_eq!(asked, [], "Never asks nobody");
    let (_, asked) = refused(e.ensure(Some(guess), "IfNotPresent"), "ErrImagePull");
    assert!(asked.iter().any(|a| a.is_manifest_of("estate/app") && a.status == 401), "{asked:?}");
    assert_eq!(asked.iter().filter(|a| a.status == 200).count(), 0, "{asked:?}");
    assert_eq!(granted(e.ensure(Some(RED_TENANT), "Never")), [], "the guess took nothing away");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn explain_reports_who_would_be_verified_without_requests() {
    let e = Estate::new();
    granted(e.ensure(Some(RED_TENANT), "IfNotPresent"));
    let decision = |tenant, policy| {
        let text = e.imagelet.ok(&["explain", "-o", "json", "-f", &e.file_for(tenant, &e.image, policy)]);
        let value: Value = serde_json::from_str(&text).expect("JSON");
        for secret in [RED, BLUE].iter().flat_map(|(user, password)| forms_of(user, password)) {
            assert!(!text.contains(&secret), "{text}");
        }
        value["decisions"][0]["decision"].as_str().expect("a decision").to_owned()
    };
    assert_eq!(decision(Some(RED_TENANT), "IfNotPresent"), "use-local");
    assert_eq!(decision(Some(BLUE_TENANT), "IfNotPresent"), "pull");
    assert_eq!(decision(Some(BLUE_TENANT), "Never"), "refuse");
    assert_eq!(decision(None, "IfNotPresent"), "pull");
    assert_eq!(e.registry.asked(), []);
    refused(e.ensure(Some(BLUE_TENANT), "Never"), "ErrImageNeverPull");
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn policies_of_verification() {
    let e = Estate::new();
    granted(e.ensure(Some(RED_TENANT), "IfNotPresent"));
    let with = |policy: &str, more: &[(&str, &str)]| {
        let flag = "--image-pull-credentials-verification-policy";
        let mut imagelet = e.imagelet.clone().global(flag, policy);
        for (name, value) in more {
            imagelet = imagelet.global(name, value);
        }
        imagelet.run(&["ensure", "-f", &e.file_for(Some(STRANGER), &e.image, "Never")])
    };
    assert_eq!(with("NeverVerify", &[]).code, Some(0));
    let listed = "--preloaded-images-verification-allowlist";
    let all = format!("{}/estate/*", e.registry.host);
    assert_eq!(with("NeverVerifyAllowlistedImages", &[(listed, &all)]).code, Some(0));
    let other = format!("{}/estate/other", e.registry.host);
    assert_eq!(with("NeverVerifyAllowlistedImages", &[(listed, &other)]).code, Some(1));
    assert_eq!(with("AlwaysVerify", &[]).code, Some(1));
    // An image that imagelet did not pull itself: preloaded.
    let archive = e.s.scratch.join("preloaded.tar").display().to_string();
    e.imagelet.ok(&["export", &e.image, "-o", &archive, "--format", "docker-archive"]);
    e.imagelet.ok(&["rmi", &e.image]);
    let fresh = Imagelet::on(&e.s.scratch.join("fresh"));
    fresh.ok(&["import", &archive]);
    let file = e.file_for(Some(STRANGER), &e.image, "Never");
    assert_eq!(fresh.run(&["ensure", "-f", &file]).code, Some(0), "every pod may have what was preloaded");
    let strict = fresh.global("--image-pull-credentials-verification-policy", "AlwaysVerify");
    assert_eq!(strict.run(&["ensure", "-f", &file]).code, Some(1));
}
