//! Images that a namespace may use without a credential of its own.

use super::*;
use crate::{NamespaceAccess, NamespaceGrants};

#[tokio::test]
async fn pod_of_a_permitted_namespace_uses_a_present_image_while_the_registry_is_away() {
    let access = NamespaceAccess::default();
    let options = Options { puller: SERIAL, namespace_access: access.clone(), ..Options::default() };
    let rig = Rig::with_records(options, VerificationPolicy::AlwaysVerify).await;
    rig.fake.withdraw("present_image");
    let of = |namespace: &str, policy: PullPolicy| {
        let mut wanted = request("present_image", policy);
        namespace.clone_into(&mut wanted.pod.namespace);
        wanted
    };
    rig.ensure(of("shop", PullPolicy::IfNotPresent)).await.expect_err("no record proves it");
    let key = ("docker.io/library/present_image".to_owned(), rig.present_id.clone());
    access.replace([(key, ["shop".to_owned()].into())].into());
    for policy in [PullPolicy::IfNotPresent, PullPolicy::Never] {
        assert!(!rig.ensure(of("shop", policy)).await.expect("permitted").pulled);
        rig.ensure(of("other", policy)).await.expect_err("another namespace");
    }
    let explained = rig.manager.explain(&of("shop", PullPolicy::IfNotPresent)).await;
    assert!(explained.why().contains("permits it to the namespace"), "{explained}");
    access.replace(NamespaceGrants::default());
    rig.ensure(of("shop", PullPolicy::Never)).await.expect_err("no longer");
}
