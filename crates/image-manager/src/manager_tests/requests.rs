//! Requests to the runtime, and answers to the caller.

use cri_api::PodSandboxConfig;

use super::*;

// upstream: kuberuntime/TestPullImage
#[tokio::test]
async fn answers_the_image_ref_that_the_runtime_uses() {
    let rig = Rig::new(SERIAL);
    let present = rig.ensure(request("present_image", PullPolicy::Never)).await.expect("present");
    assert_eq!((present.image_ref, present.pulled), (rig.present_id.clone(), false));
    let pulled = rig.ensure(request("missing_image", PullPolicy::IfNotPresent)).await.expect("on offer");
    assert_eq!(pulled.image_ref, FakeImage::new("missing").sized(4096).id().to_string());
    assert!(pulled.pulled && pulled.size > Some(4096) && pulled.credential.is_none());
    // Another spelling of the same name is the same image.
    let again =
        rig.ensure(request("docker.io/library/missing_image:latest", PullPolicy::Never)).await.expect("present");
    assert_eq!(again.image_ref, pulled.image_ref);
}

// upstream: images/TestPullAndListImageWithPodAnnotations
// upstream: images/TestPullAndListImageWithRuntimeHandlerInImageCriAPIFeatureGate
// upstream: kuberuntime/TestPullThenListWithAnnotations
#[tokio::test]
async fn the_runtime_is_sent_the_user_s_spelling_with_the_default_tag() {
    let rig = Rig::new(SERIAL);
    let image = FakeImage::new("root");
    rig.fake.publish("root:tag", &image);
    rig.fake.publish("root:latest", &image);
    let by_digest = format!("root@{}", image.digest());
    let by_both = format!("root:latest@{}", image.digest());
    let cases = [
        ("upstream: images/TestApplyDefaultImageTag/root", "root", "root:latest"),
        ("upstream: images/TestApplyDefaultImageTag/root:tag", "root:tag", "root:tag"),
        ("upstream: images/TestApplyDefaultImageTag/root@sha", &by_digest, &by_digest),
        ("upstream: images/TestApplyDefaultImageTag/root:latest@sha", &by_both, &by_both),
        ("upstream: images/TestApplyDefaultImageTag/root:latest", "root:latest", "root:latest"),
    ];
    for (case, given, sent) in cases {
        rig.fake.forget_calls();
        let mut request = request(given, PullPolicy::Always);
        request.pod.annotations.insert("kubernetes.io/example".into(), "yes".into());
        request.runtime_handler = "kata".into();
        request.sandbox = Some(PodSandboxConfig { hostname: "pod".into(), ..PodSandboxConfig::default() });
        rig.ensure(request).await.expect("on offer");
        let calls = rig.fake.calls();
        let Some(Call::PullImage(spec, None)) = calls.first() else { panic!("no anonymous pull: {calls:?}") };
        assert_eq!(spec.image, sent, "{case}");
        assert_eq!(spec.user_specified_image, given);
        assert_eq!(spec.runtime_handler, "kata");
        assert_eq!(spec.annotations["kubernetes.io/example"], "yes");
    }
    let listed = rig.fake.list_images(None).await.expect("lists");
    let spec = listed.iter().find(|i| i.id == image.id().to_string()).and_then(|i| i.spec.clone()).expect("listed");
    assert_eq!((spec.runtime_handler.as_str(), spec.annotations.len()), ("kata", 1));
}

#[tokio::test]
async fn without_an_object_nothing_is_recorded() {
    let rig = Rig::new(SERIAL);
    for (image, policy) in [("missing_image", PullPolicy::Always), ("FAILED_IMAGE", PullPolicy::Never)] {
        let mut request = request(image, policy);
        request.object = None;
        assert_eq!(rig.ensure(request).await.is_ok(), image == "missing_image");
    }
    assert_eq!(rig.ring.events(), []);
}
