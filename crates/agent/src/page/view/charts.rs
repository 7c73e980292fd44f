//! Throughput and pull times of the last hour as two pictures with the same time axis. Positions are percentages, so that the
//! pictures fit any width without a script. A picture of fewer than ten points is a sparkline without axes. Pure; called by [`super`].

use image_manager::{EndedPull, PullOutcome};
use maud::{Markup, html};

use super::words::{bytes, duration, percent, plural, whole_duration};
use crate::page::history::{self, INTERVAL, INTERVALS, Interval};
use crate::page::report::Report;

/// Points from which a picture has axes.
const POINTS: usize = 10;
/// Height of a picture with axes, and of a sparkline.
const HEIGHT: &str = "96";
const SPARK_HEIGHT: &str = "28";

/// Seconds that both pictures show.
const SPAN: i64 = INTERVAL * INTERVALS as i64;

pub(super) fn speed(report: &Report) -> Markup {
    let from = report.now.as_second() - SPAN;
    let shown: Vec<&EndedPull> = report
        .ended
        .iter()
        .filter(|pull| pull.ended.as_second() >= from && pull.outcome != PullOutcome::Present)
        .collect();
    html! {
        section #speed aria-labelledby="speed-title" {
            h2 #speed-title { "Last hour" }
            (throughput(&report.throughput, history::current_rate(&report.pulls)))
            (pull_times(&shown, from))
        }
    }
}

fn throughput(intervals: &[Interval], current: u64) -> Markup {
    let highest = intervals.iter().map(|interval| interval.rate).max().unwrap_or_default();
    let top = nice(highest as f64);
    let total = intervals.iter().map(|interval| interval.bytes).fold(0, u64::saturating_add);
    let points = intervals.iter().filter(|interval| interval.rate > 0).count();
    let count = intervals.len() as f64;
    let now = if current > 0 { format!(", now {}/s", bytes(current)) } else { String::new() };
    let figures = format!("{} received, peak {}/s{now}", bytes(total), bytes(highest));
    let label = format!("Highest rate of each half minute of the last hour: {figures}.");
    let bars = html! {
        @for (index, interval) in intervals.iter().enumerate().filter(|(_, interval)| interval.rate > 0) {
            @let height = (interval.rate as f64 / top).max(0.01);
            rect.bar x=(percent(index as f64, count)) width=(percent(0.8, count))
                y=(percent(1.0 - height, 1.0)) height=(percent(height, 1.0)) {}
        }
    };
    let axis = [format!("{}/s", whole(top)), format!("{}/s", whole(top / 2.0)), "0".to_owned()];
    chart("Throughput", &html! { (figures) }, &label, points, &axis, &bars)
}

fn pull_times(pulls: &[&EndedPull], from: i64) -> Markup {
    let longest = pulls.iter().map(|pull| pull.duration_milliseconds).max().unwrap_or_default();
    let failed = pulls.iter().filter(|pull| pull.outcome == PullOutcome::Failed).count();
    let top = nice_duration(longest);
    let label = format!(
        "Time of each pull: {}, {failed} of them failed, the longest took {}.",
        plural(pulls.len(), "pull"),
        duration(longest)
    );
    let figures = html! { (plural(pulls.len(), "pull")) ", " (failed) " failed " span.bad aria-hidden="true" { "×" } };
    let dots = html! {
        @for pull in pulls {
            @let x = percent((pull.ended.as_second() - from) as f64, SPAN as f64);
            @let y = percent(1.0 - pull.duration_milliseconds as f64 / top as f64, 1.0);
            @if pull.outcome == PullOutcome::Failed {
                svg x=(x) y=(y) overflow="visible" { path.cross d="M-3.5-3.5 3.5 3.5M-3.5 3.5 3.5-3.5" {} }
            } @else {
                circle.dot cx=(x) cy=(y) r="3.5" {}
            }
        }
    };
    let axis = [whole_duration(top), whole_duration(top / 2), "0".to_owned()];
    chart("Time of each pull", &figures, &label, pulls.len(), &axis, &dots)
}

/// Renders a picture: with axes from ten points on, as a sparkline with fewer, and as text without any.
fn chart(
    title: &str,
    figures: &Markup,
    label: &str,
    points: usize,
    axis_labels: &[String; 3],
    marks: &Markup,
) -> Markup {
    let has_axes = points >= POINTS;
    html! {
        figure.chart.spark[!has_axes] {
            figcaption { (title) " " span.note { (figures) } }
            @if has_axes {
                (axis(axis_labels))
                svg role="img" aria-label=(label) width="100%" height=(HEIGHT) { (grid()) (marks) }
                (times())
            } @else if points > 0 {
                svg role="img" aria-label=(label) width="100%" height=(SPARK_HEIGHT) { (marks) }
            }
        }
    }
}

/// Labels of the upright axis, from the top.
fn axis(labels: &[String]) -> Markup {
    html! { div.axis aria-hidden="true" { @for label in labels { span { (label) } } } }
}

fn times() -> Markup {
    html! { div.times aria-hidden="true" { span { "60 min ago" } span { "30 min" } span { "now" } } }
}

fn grid() -> Markup {
    html! { @for y in ["0%", "50%", "100%"] { line.grid x1="0" x2="100%" y1=(y) y2=(y) {} } }
}

/// Returns the next number of the series 1, 2, 4, 10 with which an axis ends; at least 1.
fn nice(value: f64) -> f64 {
    let power = 10_f64.powf(value.max(1.0).log10().floor());
    let step = [1.0, 2.0, 4.0, 10.0].into_iter().find(|step| step * power >= value);
    step.unwrap_or(10.0) * power
}

/// Milliseconds with which an axis of durations ends.
fn nice_duration(milliseconds: u64) -> u64 {
    const ENDS: [u64; 14] =
        [100, 200, 500, 1000, 2000, 4000, 10_000, 20_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000];
    let end = ENDS.into_iter().find(|end| *end >= milliseconds);
    end.unwrap_or_else(|| milliseconds.div_ceil(3_600_000).saturating_mul(3_600_000))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an axis ends at a positive number that was a u64"
)]
fn whole(value: f64) -> String {
    bytes(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        let cases = [(0.0, 1.0), (1.0, 1.0), (3.0, 4.0), (41.0, 100.0), (5e6, 1e7), (1e9, 1e9)];
        for (value, want) in cases {
            assert_eq!(nice(value), want, "{value}");
        }
        let cases = [(0, 100), (450, 500), (61_000, 120_000), (3_600_001, 7_200_000)];
        for (value, want) in cases {
            assert_eq!(nice_duration(value), want, "{value}");
        }
        assert!(nice(u64::MAX as f64).is_finite());
        assert!(nice_duration(u64::MAX) >= u64::MAX - 3_600_000);
    }
}
