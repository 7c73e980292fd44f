//! Tests of Leases: renewal, conflicts, and two nodes of one name.

use serde_json::{Value, json};
use std::sync::Arc;

use super::super::{Machine, NodeIdentity};
use super::*;
use crate::fake::FakeServer;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n";

fn options(instance: &str, second: i64) -> NodeOptions {
    let identity = NodeIdentity { name: "n".to_owned(), ..NodeIdentity::default() };
    let now = Timestamp::from_second(second).expect("a time");
    NodeOptions {
        random: Arc::new(|| 0.5),
        ..NodeOptions::new(identity, Machine::default(), instance.to_owned(), Arc::new(move || now))
    }
}

/// A Lease of an installation, renewed at this second.
fn lease(instance: Option<&str>, second: i64) -> Value {
    let annotations = instance.map(|instance| json!({INSTANCE: instance}));
    let time = Timestamp::from_second(second).expect("a time").to_string();
    json!({"metadata": {"name": "n", "namespace": NAMESPACE, "annotations": annotations},
           "spec": {"holderIdentity": "n", "leaseDurationSeconds": 40, "renewTime": time}})
}

fn own() -> OwnNode {
    let own = OwnNode::default();
    own.put(&json!({"metadata": {"name": "n", "uid": "node-uid"}}));
    own
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_made_and_renewed() {
    let (api, own, options) = (FakeServer::new(true), own(), options("a", 1000));
    let client = api.client();
    let mut keeper = LeaseKeeper::new(&client, &options, &own);
    keeper.turn().await.expect("ours");
    let made = api.get(LEASE).expect("made");
    assert_eq!(made["spec"]["leaseDurationSeconds"], 40);
    assert_eq!(
        (&made["spec"]["holderIdentity"], &made["metadata"]["annotations"][INSTANCE]),
        (&json!("n"), &json!("a"))
    );
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "node-uid");
    assert_eq!(made["spec"]["renewTime"], "1970-01-01T00:16:40.000000Z", "in microseconds");
    keeper.turn().await.expect("ours");
    // A renewal is one request on the version that is known.
    assert_eq!((api.count("PUT leases"), api.count("GET leases")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn failures_are_tried_again_and_conflicts_read_again() {
    let (api, own, options) = (FakeServer::new(true), own(), options("a", 1000));
    let client = api.client();
    let mut keeper = LeaseKeeper::new(&client, &options, &own);
    keeper.turn().await.expect("ours");
    for code in [500, 429, 409, 504] {
        let before = api.count("PUT leases");
        api.fail("PUT leases", code);
        keeper.turn().await.expect("ours");
        assert_eq!(api.count("PUT leases") - before, 2, "{code}");
    }
    // Another client labels it: the Lease is still ours.
    let mut labelled = api.get(LEASE).expect("there");
    labelled["metadata"]["labels"] = json!({"x": "y"});
    api.put(LEASE, labelled);
    keeper.turn().await.expect("ours");
    assert_eq!(api.get(LEASE).expect("there")["metadata"]["labels"]["x"], "y");
    let before = api.count("PUT leases");
    for _ in 0..TRIES + 1 {
        api.fail("PUT leases", 500);
    }
    keeper.turn().await.expect("ours");
    assert_eq!(api.count("PUT leases") - before, TRIES, "no more than so often in a turn");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_created_again() {
    let (api, own, options) = (FakeServer::new(true), own(), options("a", 1000));
    let client = api.client();
    let mut keeper = LeaseKeeper::new(&client, &options, &own);
    keeper.turn().await.expect("ours");
    api.remove(LEASE);
    keeper.turn().await.expect("ours");
    assert!(api.get(LEASE).is_some());
}

#[tokio::test(start_paused = true)]
async fn who_lost_the_name_ends() {
    let (api, own, options) = (FakeServer::new(true), own(), options("a", 1000));
    let client = api.client();
    let mut keeper = LeaseKeeper::new(&client, &options, &own);
    keeper.turn().await.expect("ours");
    api.put(LEASE, lease(Some("b"), 1001));
    let taken = keeper.turn().await.expect_err("another one renews it");
    assert_eq!(taken, NameTaken { node: "n".into(), holder: "the imagelet b".into() });
    assert!(taken.to_string().contains("--node-name"), "{taken}");
}

#[tokio::test(start_paused = true)]
async fn a_name_is_claimed_at_once_or_after_silence() {
    for (name, lease, foreign, waits) in [
        ("there is no Lease", None, false, false),
        ("no Lease, but the Node of another", None, true, true),
        ("our own Lease of before", Some(lease(Some("a"), 1000)), false, false),
        ("our own Lease, the Node of a kubelet", Some(lease(Some("a"), 1000)), true, false),
        ("a Lease that is long void", Some(lease(Some("b"), -90_000)), true, false),
        ("a Lease that a clock an hour ahead takes for void", Some(lease(Some("b"), -2600)), true, true),
        ("another's Lease that is not renewed any more", Some(lease(Some("b"), 995)), false, true),
        ("a kubelet's Lease that is not renewed any more", Some(lease(None, 995)), true, true),
        ("a Lease of a clock that is ahead", Some(lease(Some("b"), 99_999)), true, true),
    ] {
        let (api, own, options) = (FakeServer::new(true), own(), options("a", 1000));
        if let Some(lease) = lease {
            api.put(LEASE, lease);
        }
        api.fail("GET leases", 500);
        let client = api.client();
        let begin = Instant::now();
        LeaseKeeper::new(&client, &options, &own).claim(foreign, &CancellationToken::new()).await.expect(name);
        assert_eq!(begin.elapsed() >= Duration::from_secs(40), waits, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_second_node_of_a_name_ends() {
    for holder in [Some("b"), None] {
        let (api, own, options) = (FakeServer::new(true), own(), options("a", 1000));
        api.put(LEASE, lease(holder, 995));
        let client = api.client();
        let claim = async { LeaseKeeper::new(&client, &options, &own).claim(true, &CancellationToken::new()).await };
        let other = async {
            tokio::time::sleep(Duration::from_secs(12)).await;
            api.put(LEASE, lease(holder, 1005));
        };
        let (claimed, ()) = tokio::join!(claim, other);
        let taken = claimed.expect_err("the other one lives");
        assert_eq!(
            taken.holder,
            holder.map_or("another kubelet".to_owned(), |holder| format!("the imagelet {holder}"))
        );
    }
}
