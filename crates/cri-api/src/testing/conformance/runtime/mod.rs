//! The suite that every [`RuntimeService`](crate::RuntimeService) runs: one function per rule. It has the structure of
//! the suite for ImageService, and shares its verdicts. Cases run one after another on one runtime; each removes what
//! it made. The image with busybox that the harness names must be present.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

mod bench;
mod containers;
mod exec;
mod fake;
mod harness;
mod info;
mod sandboxes;
mod stats;

pub use bench::RuntimeBench;
pub use fake::FakePods;
pub use harness::{Command, Program, READY, RuntimeDeviation, RuntimeHarness};

use super::bench::Outcome;
use super::{CaseResult, Report, Stop, Verdict, within};

type CaseFuture<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// A rule of the suite.
#[derive(Clone, Copy)]
pub struct RuntimeCase {
    /// Name of the case.
    pub name: &'static str,
    run: for<'a> fn(&'a RuntimeBench<'a>) -> CaseFuture<'a>,
}

impl fmt::Debug for RuntimeCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! table {
    ($($module:ident::$case:ident,)*) => {
        /// Every case, in the order in which [`run_all`] runs them.
        pub const RUNTIME_CASES: &[RuntimeCase] = &[
            $(RuntimeCase { name: stringify!($case), run: |bench| Box::pin($module::$case(bench)) },)*
        ];
    };
}

table! {
    info::version_tells_who_it_is,
    info::status_tells_the_conditions,
    info::runtime_config_tells_the_cgroup_driver,
    sandboxes::a_sandbox_passes_through_its_states,
    sandboxes::a_sandbox_without_a_name_is_refused,
    sandboxes::a_sandbox_is_not_made_twice,
    sandboxes::the_next_attempt_is_another_sandbox,
    sandboxes::an_unknown_handler_is_refused,
    sandboxes::ending_a_sandbox_is_idempotent,
    sandboxes::a_ready_sandbox_can_be_removed,
    sandboxes::an_absent_sandbox_has_no_status,
    sandboxes::filters_select_sandboxes,
    containers::a_container_passes_through_its_states,
    containers::exit_codes_are_reported,
    containers::a_containers_configuration_is_returned,
    containers::a_container_needs_a_sandbox_that_is_ready,
    containers::a_container_needs_its_image,
    containers::a_container_is_not_made_twice,
    containers::a_container_starts_once,
    containers::a_stop_asks_first,
    containers::a_stop_kills_in_the_end,
    containers::a_stop_without_time_kills_at_once,
    containers::ending_a_container_is_idempotent,
    containers::a_running_container_can_be_removed,
    containers::an_absent_container_has_no_status,
    containers::filters_select_containers,
    containers::containers_end_with_their_sandbox,
    containers::containers_go_with_their_sandbox,
    containers::resources_can_be_changed,
    containers::a_log_is_written,
    containers::a_log_can_be_reopened,
    exec::a_command_tells_output_and_code,
    exec::a_command_ends_with_its_time,
    exec::a_command_needs_a_running_container,
    exec::streams_have_addresses,
    stats::running_containers_have_stats,
    stats::pods_have_stats,
    stats::events_are_reported,
}

/// Runs every case, one after another.
pub async fn run_all(harness: &dyn RuntimeHarness) -> Report {
    let mut results = Vec::with_capacity(RUNTIME_CASES.len());
    for case in RUNTIME_CASES {
        results.push(run(case, harness).await);
    }
    Report { implementation: harness.name().to_owned(), results }
}

async fn run(case: &RuntimeCase, harness: &dyn RuntimeHarness) -> CaseResult {
    let bench = RuntimeBench::new(harness, case.name);
    let limit = harness.case_timeout();
    let outcome = within(limit, (case.run)(&bench)).await;
    // Leftovers of a failed case must not make the next one fail as well.
    let swept = within(limit, bench.sweep()).await.map_err(|stop| stop.context("after the case"));
    let verdict = match outcome.and(swept) {
        Ok(()) => Verdict::Passed,
        Err(Stop::Failed(why)) => Verdict::Failed(why),
        Err(Stop::NotApplicable(why)) => Verdict::NotApplicable(why),
    };
    CaseResult { name: case.name, verdict }
}
