//! `imagelet doctor`: checks the node, and prints one line per check with a remedy. Changes nothing. The checks are in the files of this
//! folder; each has a bounded time.

mod cni;
mod disk;
mod finding;
mod kernel;
mod kubelet;
mod registry;
mod runtime;
mod units;

use serde::Serialize;

use crate::app::App;
use crate::args::Doctor;
use crate::exit::{Failure, Outcome};
use crate::output::{Report, Table};
use finding::{Finding, Verdict};

/// The result of all checks.
#[derive(Serialize)]
struct Findings {
    checks: Vec<Finding>,
}

impl Report for Findings {
    fn table(&self, _: bool, _: bool) -> Table {
        let mut table = Table::new(&["CHECK", "RESULT", "DETAILS"]);
        for finding in &self.checks {
            table.row([finding.check.to_owned(), finding.result.as_str().to_owned(), finding.details()]);
        }
        table
    }

    fn names(&self) -> Vec<String> {
        self.checks.iter().map(|finding| finding.check.to_owned()).collect()
    }

    /// Returns the checks that report something to fix, for scripts.
    fn ids(&self) -> Vec<String> {
        let errors = self.checks.iter().filter(|finding| finding.result == Verdict::Error);
        errors.map(|finding| finding.check.to_owned()).collect()
    }
}

pub(super) async fn run(app: &App, args: &Doctor) -> Outcome {
    let image = registry::parse(args.image.as_deref())?;
    let (of_runtime, of_kernel, of_registry, of_kubelet, of_units) = tokio::join!(
        runtime::checks(app),
        kernel::checks(app),
        registry::checks(app, image.as_ref()),
        kubelet::check(app),
        units::check(),
    );
    let groups = [of_runtime, of_kernel, of_registry, vec![of_kubelet], of_units];
    let findings = Findings { checks: groups.into_iter().flatten().collect() };
    app.printer.report(&findings)?;
    let errors = findings.ids();
    match errors.len() {
        0 => Ok(()),
        1 => Err(Failure::failed(format!("1 check failed: {}", errors[0]))),
        count => Err(Failure::failed(format!("{count} checks failed: {}", errors.join(", ")))),
    }
}
