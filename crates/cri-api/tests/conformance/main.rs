//! The conformance suite on the fake, one test per rule; and the proof that the suite can fail: a fake that is wrong
//! in one way fails just the cases that are about it.

extern crate imagelet_cri_api as cri_api;

mod runtime;
mod runtime_saboteur;
mod saboteur;
mod support;

use cri_api::testing::conformance::{CASES, Deviation, run_all};
use saboteur::Sabotage;
use support::FakeHarness;

async fn fake() -> FakeHarness {
    FakeHarness::new()
}

mod fake_conforms {
    cri_api::image_service_conformance!(super::fake);
}

#[tokio::test]
async fn all_cases_run_one_after_another_on_one_service() {
    let harness = FakeHarness::new();
    let report = run_all(&harness).await;
    report.assert_passed();
    assert_eq!(report.not_applicable(), Vec::<&str>::new(), "the fake can run every case");
    assert_eq!(report.results.len(), CASES.len());
}

#[tokio::test(start_paused = true)]
async fn a_wrong_implementation_fails_the_cases_about_it() {
    let table: &[(Sabotage, &[&str])] = &[
        (Sabotage::RemembersRemoved, &["removed_image_is_absent_at_once", "pull_by_tag_records_tag_and_digest"]),
        (Sabotage::RemovesOneName, &["removal_by_one_tag_removes_every_name"]),
        (Sabotage::RemovalOfAbsentFails, &["removal_of_an_absent_image_is_no_error"]),
        (Sabotage::FilterIgnored, &["filter_lists_the_image_it_resolves_to"]),
        (Sabotage::NamesUnsorted, &["status_is_stable", "three_tags_of_one_image_are_listed_once"]),
        (Sabotage::AnswersManifestDigest, &["pull_answers_the_image_id"]),
        (Sabotage::EmptyNameIsIdPrefix, &["status_of_an_empty_name_is_an_invalid_argument"]),
        (Sabotage::EmptyNameRemovesTheOnlyImage, &["removal_of_an_empty_name_is_an_invalid_argument"]),
        (Sabotage::PullsOnAlone, &["dropped_pull_leaves_nothing"]),
        (Sabotage::ListsPerTag, &["three_tags_of_one_image_are_listed_once"]),
        (Sabotage::TagsDigestPulls, &["pull_by_digest_records_only_the_digest"]),
        (
            Sabotage::MissingIsInternal,
            &["pull_of_a_missing_tag_is_not_found", "pull_of_a_missing_repository_is_not_found"],
        ),
        (Sabotage::UserIsForgotten, &["user_is_reported_as_uid_or_name"]),
        (Sabotage::NoShortIds, &["short_ids_resolve_from_three_digits"]),
        (Sabotage::FirstOfAmbiguous, &["ambiguous_short_id_is_refused"]),
        (Sabotage::UsageIsConstant, &["fs_usage_grows_and_shrinks"]),
        (Sabotage::MovedTagTakesImageAlong, &["moved_tag_follows_the_pull"]),
        (Sabotage::NoTimestamp, &["fs_info_works_always"]),
        (Sabotage::AlwaysVerbose, &["verbose_status_tells_the_config"]),
        (Sabotage::BadReferenceIsUnknown, &["pull_of_a_bad_reference_is_an_invalid_argument"]),
        (Sabotage::RecordsInnerManifest, &["pull_of_an_index_records_the_index_digest"]),
        (Sabotage::SizeGrowsWithPulls, &["pull_again_changes_nothing", "removed_image_can_be_pulled_again"]),
        (Sabotage::RecordsShortNames, &["pull_in_short_spelling_is_recorded_in_normal_form"]),
        (Sabotage::LockSurvivesCaller, &["pull_dropped_at_once_does_no_harm", "dropped_pull_leaves_nothing"]),
        (Sabotage::AnyTagWillDo, &["absent_images_have_no_status"]),
        (Sabotage::ListIsCut, &["three_images_are_listed_with_one_tag_each", "empty_filter_lists_everything"]),
        (Sabotage::ListLacksUser, &["list_and_status_agree"]),
        (Sabotage::RemovesEverything, &["removal_leaves_images_with_shared_layers"]),
        (Sabotage::StepComesLate, &["image_is_absent_while_the_step_before_it_runs"]),
        (Sabotage::FailedStepIsIgnored, &["image_stays_absent_if_the_step_before_it_fails"]),
        (Sabotage::ProgressIsForgotten, &["pull_reports_its_progress"]),
        (Sabotage::TimeGoesBack, &["fs_info_time_does_not_go_back"]),
        (Sabotage::AnyHandler, &["pull_for_an_unknown_runtime_handler_is_refused"]),
    ];
    let mut killed = std::collections::BTreeSet::new();
    for (sabotage, expected) in table {
        let report = run_all(&FakeHarness::sabotaged(*sabotage)).await;
        let failed = report.failed();
        killed.extend(failed.iter().copied());
        for case in *expected {
            assert!(failed.contains(case), "{sabotage:?} should fail {case}\n{report}");
        }
        assert!(failed.len() < CASES.len() / 2, "{sabotage:?} should fail few cases\n{report}");
    }
    let immortal: Vec<&str> = CASES.iter().map(|case| case.name).filter(|name| !killed.contains(name)).collect();
    assert_eq!(immortal, Vec::<&str>::new(), "cases that no sabotage fails prove nothing");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_fails_its_cases_by_time() {
    let report = run_all(&FakeHarness::sabotaged(Sabotage::ListHangs)).await;
    assert_eq!(report.failed().len(), CASES.len());
    assert!(report.to_string().contains("did not end within 5s"), "{report}");
}

#[tokio::test(start_paused = true)]
async fn a_deviation_that_is_declared_is_demanded() {
    // A peer that deviates and says so passes; who says so without deviating fails.
    let table = [
        (Deviation::ListFilterIgnored, Sabotage::FilterIgnored, "filter_lists_the_image_it_resolves_to"),
        (
            Deviation::EmptyNameIsIdPrefix,
            Sabotage::EmptyNameIsIdPrefix,
            "status_of_an_empty_name_is_an_invalid_argument",
        ),
        (
            Deviation::EmptyNameRemovesTheOnlyImage,
            Sabotage::EmptyNameRemovesTheOnlyImage,
            "removal_of_an_empty_name_is_an_invalid_argument",
        ),
        (
            Deviation::BadReferenceIsUnknown,
            Sabotage::BadReferenceIsUnknown,
            "pull_of_a_bad_reference_is_an_invalid_argument",
        ),
        (Deviation::ShorterIdsResolve, Sabotage::ShorterIdsResolve, "short_ids_resolve_from_three_digits"),
        (Deviation::AmbiguousIdIsUnknown, Sabotage::AmbiguousIdIsUnknown, "ambiguous_short_id_is_refused"),
        (Deviation::NoChainId, Sabotage::NoChainId, "verbose_status_tells_the_config"),
    ];
    for (deviation, sabotage, case) in table {
        let silent = run_all(&FakeHarness::sabotaged(sabotage)).await.failed();
        assert!(silent.contains(&case), "{sabotage:?} should fail {case}, failed: {silent:?}");

        let mut deviant = FakeHarness::sabotaged(sabotage);
        deviant.deviations.push(deviation);
        run_all(&deviant).await.assert_passed();

        let mut liar = FakeHarness::new();
        liar.deviations.push(deviation);
        let failed = run_all(&liar).await.failed();
        assert!(failed.contains(&case), "{deviation:?} without the deviation should fail {case}, failed: {failed:?}");
    }
}
