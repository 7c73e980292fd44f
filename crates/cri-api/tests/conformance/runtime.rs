//! The suite of RuntimeService on the fake.

use std::sync::Arc;

use cri_api::testing::conformance::runtime::{FakePods, RUNTIME_CASES, run_all};

use crate::runtime_saboteur::{Wrecker, Wrong};

#[tokio::test(start_paused = true)]
async fn the_fake_runtime_conforms() {
    let fake = FakePods::fake();
    let report = run_all(&FakePods::new(&fake, Arc::new(fake.clone()))).await;
    report.assert_passed();
    assert_eq!(report.not_applicable(), ["a_log_is_written"], "{report}");
    assert_eq!(report.results.len(), RUNTIME_CASES.len());
}

#[tokio::test(start_paused = true)]
async fn a_wrong_runtime_fails_the_cases_about_it() {
    let table: &[(Wrong, &[&str])] = &[
        (
            Wrong::StoppedSandboxesStayReady,
            &["a_sandbox_passes_through_its_states", "containers_end_with_their_sandbox"],
        ),
        (Wrong::AbsentIsAnErrorToStop, &["ending_a_sandbox_is_idempotent", "ending_a_container_is_idempotent"]),
        (Wrong::AbsentIsAnErrorToRemove, &["ending_a_sandbox_is_idempotent", "ending_a_container_is_idempotent"]),
        (Wrong::ExitCodesAreLost, &["exit_codes_are_reported", "a_stop_asks_first"]),
        (Wrong::FiltersAreIgnored, &["filters_select_sandboxes", "filters_select_containers"]),
        (Wrong::ContainersStartAgain, &["a_container_starts_once"]),
        (Wrong::LabelsAreLost, &["a_sandbox_passes_through_its_states", "filters_select_sandboxes"]),
        (Wrong::StopsDoNotWait, &["a_stop_kills_in_the_end", "a_stop_asks_first"]),
        (Wrong::StopsNeverKill, &["a_stop_kills_in_the_end", "a_stop_without_time_kills_at_once"]),
        (Wrong::CommandsNeedNoContainer, &["a_command_needs_a_running_container"]),
        (Wrong::SandboxesLeaveTheirContainers, &["a_ready_sandbox_can_be_removed", "containers_go_with_their_sandbox"]),
        (Wrong::AbsentHasAStatus, &["an_absent_sandbox_has_no_status", "an_absent_container_has_no_status"]),
        (Wrong::ErrorsOfAbsenceAreInternal, &["an_absent_container_has_no_status", "a_container_needs_its_image"]),
        (Wrong::StatsAreOfEverybody, &["running_containers_have_stats"]),
    ];
    for (wrong, want) in table {
        let fake = FakePods::fake();
        let harness = FakePods::new(&fake, Arc::new(Wrecker { fake: fake.clone(), wrong: *wrong }));
        let failed = run_all(&harness).await.failed();
        for case in *want {
            assert!(failed.contains(case), "{wrong:?} passes {case}; it fails {failed:?}");
        }
        // Leftovers of a case fail the case: that is every case with a container.
        let leaves = *wrong == Wrong::SandboxesLeaveTheirContainers;
        assert!(leaves || failed.len() < RUNTIME_CASES.len() / 2, "{wrong:?} fails nearly everything: {failed:?}");
    }
}
