//! The suite of RuntimeService on the fake.

use std::sync::Arc;

use cri_api::testing::conformance::runtime::{FakePods, RUNTIME_CASES, run_all};

#[tokio::test(start_paused = true)]
async fn the_fake_runtime_conforms() {
    let fake = FakePods::fake();
    let report = run_all(&FakePods::new(&fake, Arc::new(fake.clone()))).await;
    report.assert_passed();
    assert_eq!(report.not_applicable(), ["a_log_is_written"], "{report}");
    assert_eq!(report.results.len(), RUNTIME_CASES.len());
}
