//! `imagelet fleet why`: the explanation of one image on one node.

use cluster::client::Failure as Cause;
use fleet::console::{Explanation, FleetRequests, Report, Step, WhyFacts, explain};
use jiff::Timestamp;

use super::connection;
use crate::app::App;
use crate::args::FleetWhy;
use crate::exit::{Failure, Outcome};
use crate::output::Format;
use crate::pods::age;

pub(super) async fn run(app: &App, args: &FleetWhy) -> Outcome {
    let requests = connection::requests(app).await?;
    let failed = |error| connection::failed(&error);
    let Some(node) = requests.node(&args.node).await.map_err(failed)? else {
        return Err(no_node(&requests, &args.node).await);
    };
    let sets = requests.sets().await.map_err(failed)?;
    let fleet = requests.fleet().await.map_err(failed)?;
    let read = match requests.report(&args.node).await {
        Ok(report) => Ok(report),
        Err(error) if error.failure() == Cause::Forbidden => Err(()),
        Err(error) => return Err(connection::failed(&error)),
    };
    let report = match &read {
        Ok(Some(report)) => Report::Read(report),
        Ok(None) => Report::Missing,
        Err(()) => Report::Forbidden,
    };
    let explanation = explain(&WhyFacts {
        node: &node,
        image: &args.image,
        sets: &sets,
        fleet: fleet.as_ref(),
        report,
        now: Timestamp::now(),
        human: age::human,
    });
    match app.printer.format {
        Some(format) if format.is_document() => app.printer.document(Format::Json, &explanation),
        _ => app.printer.lines(render(&explanation)),
    }
}

async fn no_node(requests: &FleetRequests, name: &str) -> Failure {
    let names = requests.node_names().await.unwrap_or_default();
    let near = base::nearest(name, names.iter().map(String::as_str));
    let hint = near.map_or_else(|| "`kubectl get nodes` lists them".to_owned(), |near| format!("did you mean {near}?"));
    Failure::failed(format!("there is no Node {name}; {hint}"))
}

/// Returns the lines of an explanation.
fn render(explanation: &Explanation) -> Vec<String> {
    let line = |step: &Step| format!("  {} {:<9} {}", if step.ok { "+" } else { "-" }, step.step, step.message);
    let mut lines = Vec::new();
    for set in &explanation.sets {
        lines.push(format!("imageset/{}", set.set));
        lines.extend(set.steps.iter().map(line));
    }
    lines.push(format!("node/{}", explanation.node));
    lines.extend(explanation.steps.iter().map(line));
    lines.push(String::new());
    lines.push(explanation.answer.clone());
    lines.extend(explanation.next.iter().map(|next| format!("Next: {next}")));
    lines
}

#[cfg(test)]
mod tests {
    use fleet::console::SetExplanation;

    use super::*;

    #[test]
    fn steps_are_listed_and_the_answer_is_last() {
        let step = |ok: bool, step: &'static str, message: &str| Step { ok, step, message: message.to_owned() };
        let explanation = Explanation {
            node: "n1".to_owned(),
            image: "app:1".to_owned(),
            sets: vec![SetExplanation {
                set: "web".to_owned(),
                steps: vec![step(true, "selected", "role=web"), step(false, "released", "paused")],
            }],
            steps: vec![step(true, "reported", "5s ago")],
            answer: "n1 waits.".to_owned(),
            next: Some("resume".to_owned()),
        };
        let want = "imageset/web\n  + selected  role=web\n  - released  paused\nnode/n1\n  + reported  5s ago\n\nn1 waits.\nNext: resume";
        assert_eq!(render(&explanation).join("\n"), want);
    }
}
