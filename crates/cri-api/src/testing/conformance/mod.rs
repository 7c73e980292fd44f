//! The suite that every [`ImageService`] runs: one function per rule, so that a failure is identified by its name.
//!
//! An implementation gives a [`Harness`] and either calls [`run_all`] or lets
//! [`image_service_conformance!`](crate::image_service_conformance) make one test of each case. Cases run one after
//! another on one service; each removes what it pulled. Where a peer is known to differ, its harness declares a
//! [`Deviation`]; the case then demands the deviating behaviour instead, so that the declaration cannot outlive it.
//!
//! The rules are those of `runtime.v1` of CRI, of critest, and further promises of imagelet.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

mod bench;
mod harness;
mod lists;
mod lookups;
mod pulls;
mod removal;
mod retag;
pub mod runtime;
mod usage;

pub use bench::{Bench, Stop};
pub use harness::{Deviation, Harness, Hold, Identity};

#[cfg(doc)]
use crate::ImageService;
use bench::Outcome;

type CaseFuture<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// A rule of the suite.
#[derive(Clone, Copy)]
pub struct Case {
    /// Name of the case.
    pub name: &'static str,
    run: for<'a> fn(&'a Bench<'a>) -> CaseFuture<'a>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Calls the macro in brackets with the module and name of every case.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_image_service_case {
    ([$($callback:tt)+] $(, $argument:path)?) => {
        $($callback)+! {
            $($argument;)?
            pulls::pull_by_tag_records_tag_and_digest,
            pulls::pull_without_tag_means_latest,
            pulls::pull_by_digest_records_only_the_digest,
            pulls::pull_by_tag_and_digest_drops_the_tag,
            pulls::pull_of_an_index_records_the_index_digest,
            pulls::pull_answers_the_image_id,
            pulls::pull_again_changes_nothing,
            pulls::pull_in_short_spelling_is_recorded_in_normal_form,
            pulls::pull_of_a_missing_tag_is_not_found,
            pulls::pull_of_a_missing_repository_is_not_found,
            pulls::pull_of_a_bad_reference_is_an_invalid_argument,
            pulls::pull_for_an_unknown_runtime_handler_is_refused,
            pulls::pull_works_with_annotations_and_sandbox,
            pulls::image_is_absent_while_the_step_before_it_runs,
            pulls::image_stays_absent_if_the_step_before_it_fails,
            pulls::pull_reports_its_progress,
            pulls::dropped_pull_leaves_nothing,
            pulls::dropped_pull_leaves_its_twin_alone,
            pulls::pull_dropped_at_once_does_no_harm,
            pulls::pulls_of_one_name_at_once_agree,
            pulls::pulls_of_many_names_at_once_keep_every_name,
            lookups::every_reference_gives_the_same_status,
            lookups::absent_images_have_no_status,
            lookups::status_of_an_empty_name_is_an_invalid_argument,
            lookups::short_ids_resolve_from_three_digits,
            lookups::ambiguous_short_id_is_refused,
            lookups::short_spelling_finds_the_image,
            lookups::user_is_reported_as_uid_or_name,
            lookups::verbose_status_tells_the_config,
            lookups::status_is_stable,
            lists::image_is_listed_right_after_its_pull,
            lists::three_images_are_listed_with_one_tag_each,
            lists::three_tags_of_one_image_are_listed_once,
            lists::names_of_two_repositories_are_one_image,
            lists::filter_lists_the_image_it_resolves_to,
            lists::empty_filter_lists_everything,
            lists::list_and_status_agree,
            removal::removed_image_is_absent_at_once,
            removal::removal_by_one_tag_removes_every_name,
            removal::removal_in_one_repository_removes_the_others,
            removal::removal_by_any_reference_works,
            removal::removal_of_an_absent_image_is_no_error,
            removal::removal_of_an_empty_name_is_an_invalid_argument,
            removal::five_removals_at_once_all_succeed,
            removal::removal_leaves_images_with_shared_layers,
            removal::removed_image_can_be_pulled_again,
            removal::pulls_and_removals_at_once_stay_whole,
            retag::moved_tag_follows_the_pull,
            retag::tagless_image_stays_and_can_be_removed,
            usage::fs_info_works_always,
            usage::fs_usage_grows_and_shrinks,
            usage::fs_info_time_does_not_go_back,
        }
    };
}

macro_rules! table {
    ($($module:ident::$case:ident,)*) => {
        /// Every case, in the order in which [`run_all`] runs them.
        pub const CASES: &[Case] = &[
            $(Case { name: stringify!($case), run: |bench| Box::pin($module::$case(bench)) },)*
        ];
    };
}
for_each_image_service_case!([table]);

/// Makes one `#[tokio::test]` of each case, in the module where it stands: `image_service_conformance!(harness)`, where
/// `harness` is the path of an `async fn` that answers a [`Harness`](crate::testing::conformance::Harness) of its own
/// for each case.
#[macro_export]
macro_rules! image_service_conformance {
    ($harness:path) => {
        $crate::for_each_image_service_case!([$crate::image_service_conformance_tests], $harness);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! image_service_conformance_tests {
    ($harness:path; $($module:ident::$case:ident,)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let harness = $harness().await;
            $crate::testing::conformance::run_case(stringify!($case), &harness).await.assert_passed();
        })*
    };
}

/// Result of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The rule holds.
    Passed,
    /// The rule is broken; the reason.
    Failed(String),
    /// The harness lacks what the case needs; what that is.
    NotApplicable(String),
}

/// A case and its end.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// Name of the case.
    pub name: &'static str,
    /// Verdict on the case.
    pub verdict: Verdict,
}

impl CaseResult {
    /// Passes, and passes over a case that the harness cannot run.
    ///
    /// # Panics
    /// If the case failed.
    pub fn assert_passed(&self) {
        if let Verdict::Failed(why) = &self.verdict {
            panic!("{}: {why}", self.name);
        }
    }
}

/// The ends of all cases.
#[derive(Clone, Debug)]
pub struct Report {
    /// Name of the implementation.
    pub implementation: String,
    /// An entry for each case.
    pub results: Vec<CaseResult>,
}

impl Report {
    /// Names of the cases that failed.
    #[must_use]
    pub fn failed(&self) -> Vec<&'static str> {
        self.results.iter().filter(|r| matches!(r.verdict, Verdict::Failed(_))).map(|r| r.name).collect()
    }

    /// Names of the cases that the harness could not run.
    #[must_use]
    pub fn not_applicable(&self) -> Vec<&'static str> {
        self.results.iter().filter(|r| matches!(r.verdict, Verdict::NotApplicable(_))).map(|r| r.name).collect()
    }

    /// Passes if no case failed.
    ///
    /// # Panics
    /// With the whole report, if one did.
    pub fn assert_passed(&self) {
        assert!(self.failed().is_empty(), "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "conformance of {}:", self.implementation)?;
        for CaseResult { name, verdict } in &self.results {
            match verdict {
                Verdict::Passed => writeln!(f, "  ok    {name}")?,
                Verdict::Failed(why) => writeln!(f, "  FAIL  {name}: {why}")?,
                Verdict::NotApplicable(why) => writeln!(f, "  n/a   {name}: {why}")?,
            }
        }
        Ok(())
    }
}

/// Runs every case, one after another.
pub async fn run_all(harness: &dyn Harness) -> Report {
    let mut results = Vec::with_capacity(CASES.len());
    for case in CASES {
        results.push(run(case, harness).await);
    }
    Report { implementation: harness.name().to_owned(), results }
}

/// Runs one case by its name.
///
/// # Panics
/// If no case is called so.
pub async fn run_case(name: &str, harness: &dyn Harness) -> CaseResult {
    let case = CASES.iter().find(|case| case.name == name);
    run(case.unwrap_or_else(|| panic!("no conformance case is called {name}")), harness).await
}

async fn run(case: &Case, harness: &dyn Harness) -> CaseResult {
    let bench = Bench::new(harness);
    let limit = harness.case_timeout();
    let outcome = match within(limit, bench.sweep()).await {
        Ok(()) => within(limit, (case.run)(&bench)).await,
        Err(stop) => Err(stop.context("before the case")),
    };
    // Leftovers of a failed case must not make the next one fail as well.
    let swept = within(limit, bench.sweep()).await.map_err(|stop| stop.context("after the case"));
    let verdict = match outcome.and(swept) {
        Ok(()) => Verdict::Passed,
        Err(Stop::Failed(why)) => Verdict::Failed(why),
        Err(Stop::NotApplicable(why)) => Verdict::NotApplicable(why),
    };
    CaseResult { name: case.name, verdict }
}

async fn within(limit: Duration, work: impl Future<Output = Outcome>) -> Outcome {
    match tokio::time::timeout(limit, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Stop::Failed(format!("did not end within {limit:?}"))),
    }
}
