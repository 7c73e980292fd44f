//! Tests of the painter, judged by a terminal emulator that wraps lines again when it becomes narrower.

use cri_api::ProgressSink;
use oci::Digest;

use super::*;

/// Returns all text that a terminal shows and has scrolled off, without the empty lines at its end.
fn screen(terminal: &avt::Terminal) -> String {
    let lines = terminal.screen().all_lines().map(|line| line.text().trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

fn pull(image: &str) -> View {
    View::Pull(frame::PullView::new(image.to_owned()))
}

fn feed(terminal: &mut avt::Terminal, text: &str) {
    // The terminal's driver translates line ends this way.
    terminal.feed(text.replace('\n', "\r\n").as_str());
}

#[test]
fn frames_leave_nothing_behind_whatever_the_size_becomes() {
    let lines = |count: usize, width: usize| (0..count).map(|n| n.to_string().repeat(width)).collect::<Vec<_>>();
    for sizes in [[(110, 30), (80, 24), (40, 20)], [(40, 20), (110, 30), (41, 19)], [(80, 24), (20, 24), (79, 24)]] {
        let mut terminal = avt::Terminal::with_scrollback(sizes[0].0, sizes[0].1, None).expect("a size");
        let mut canvas = Canvas::default();
        // The screen is full, as after some use: terminals then move wrapped text up, and never down.
        let before = "earlier\n".repeat(sizes[0].1);
        feed(&mut terminal, &before);
        for (columns, rows) in sizes {
            terminal.resize(columns, rows);
            for frame in [lines(3, columns - 1), lines(5, columns - 1), lines(2, columns / 2)] {
                feed(&mut terminal, &canvas.redraw(&frame, columns));
                let want = format!("{before}{}", frame.join("\n"));
                assert_eq!(screen(&terminal), want, "{sizes:?}");
            }
        }
        feed(&mut terminal, &canvas.redraw(&[], sizes[2].0));
        assert_eq!(screen(&terminal), before.trim_end(), "{sizes:?}");
    }
}

#[test]
fn a_pull_is_shown_until_its_sink_is_dropped() {
    let painter = Painter::default();
    let sink = {
        let shown = painter.begin(pull("demo/x:1"));
        ProgressSink::new(move |event| shown.report(event))
    };
    sink.report(PullEvent::Resolved { digest: Digest::sha256(b"m"), layers: Vec::new() });
    assert_eq!(painter.0.state.lock().views.len(), 1);
    drop(sink);
    assert!(painter.0.state.lock().views.is_empty());
    // A pull that outlives the display is not shown any more.
    let shown = painter.begin(pull("demo/y:1"));
    painter.finish();
    shown.report(PullEvent::Committing);
    let state = painter.0.state.lock();
    assert!(state.views.is_empty() && state.canvas.is_empty());
}

#[test]
fn no_bar_drives_a_terminal() {
    let painter = Painter::default();
    let progress = crate::progress::Progress::Bars(painter.clone());
    let sink = progress.sink("demo/\u{9b}31m\u{202e}x\u{7f}");
    sink.report(PullEvent::Resolved { digest: Digest::sha256(b"m"), layers: Vec::new() });
    let mut state = painter.0.state.lock();
    let lines = frame::lines(state.views.values_mut(), (80, 24), 0, Instant::now());
    assert_eq!(lines, ["| demo/?31m?x? 0/0 layers"]);
    drop(state);
    progress.finish();
}
