//! The kubelet's cases of its verification policies, and ours.

use super::*;

const IMAGE: &str = "test.io/test/test-image:tag";

#[test]
fn preloaded_images() {
    let rows = [
        (
            "upstream: pullmanager/TestNeverVerifyPreloadedPullPolicy/there are no records about the image being pulled",
            false,
            Some(Grant::Preloaded),
        ),
        (
            "upstream: pullmanager/TestNeverVerifyPreloadedPullPolicy/there are records about the image being pulled",
            true,
            None,
        ),
    ];
    for (name, pulled, want) in rows {
        assert_eq!(VerificationPolicy::NeverVerifyPreloadedImages.exempts(IMAGE, pulled), want, "{name}");
    }
}

#[test]
fn the_other_two_do_not_ask_for_records() {
    for pulled in [false, true] {
        assert_eq!(VerificationPolicy::NeverVerify.exempts(IMAGE, pulled), Some(Grant::PolicyNeverVerifies));
        assert_eq!(VerificationPolicy::AlwaysVerify.exempts(IMAGE, pulled), None);
    }
}
