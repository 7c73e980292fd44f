//! Tests of the lines that are shown, for terminals of many sizes.

use super::*;

/// A pull of five layers: one is present, one is being fetched, one is being unpacked, one is fetched by another pull, one waits.
fn pull(image: &str) -> View {
    let digests: Vec<Digest> = (0..5_u8).map(|n| Digest::sha256(&[n])).collect();
    let mut pull = PullView::new(image.to_owned());
    let layers = digests.iter().map(|digest| (digest.clone(), 4_270_000)).collect();
    pull.report(PullEvent::Resolved { digest: Digest::sha256(b"m"), layers });
    let states = [LayerState::Present, LayerState::Fetching, LayerState::Unpacking, LayerState::WaitingForOther];
    for (digest, state) in digests.iter().zip(states) {
        pull.report(PullEvent::Layer { digest: digest.clone(), state });
    }
    pull.report(PullEvent::Bytes { digest: digests[1].clone(), done: 1_000_000 });
    pull.report(PullEvent::Bytes { digest: digests[2].clone(), done: 4_270_000 });
    View::Pull(pull)
}

fn shown(pulls: &mut [View], size: (usize, usize)) -> String {
    let now = Instant::now();
    lines(pulls.iter_mut(), size, 0, now);
    let digest = Digest::sha256(&[1]);
    let View::Pull(first) = &mut pulls[0] else { panic!("a pull") };
    first.report(PullEvent::Bytes { digest, done: 2_000_000 });
    let lines = lines(pulls.iter_mut(), size, 1, now + Duration::from_secs(2));
    assert!(lines.iter().all(|line| line.chars().count() < size.0), "{lines:#?}");
    assert!(lines.len() < size.1, "{lines:#?}");
    lines.join("\n")
}

#[test]
fn lines_fit_every_width() {
    let name = "registry.example:5000/team/app:1";
    let cases = [
        (
            110,
            "\
/ registry.example:5000/team/app:1 1/5 layers
  4bf5122f3445 fetching  [=======================>                          ]    2MB/4.27MB    500kB/s     4s
  dbc1b4c900ff unpacking [==================================================] 4.27MB/4.27MB
  084fed08b978 joined    [>                                                 ]     0B/4.27MB",
        ),
        (
            80,
            "\
/ registry.example:5000/team/app:1 1/5 layers
  4bf5122f3445 fetching  [=========>          ]    2MB/4.27MB    500kB/s     4s
  dbc1b4c900ff unpacking [====================] 4.27MB/4.27MB
  084fed08b978 joined    [>                   ]     0B/4.27MB",
        ),
        (
            60,
            "\
/ registry.example:5000/team/app:1 1/5 layers
  4bf5122f3445 fetching  [========>         ]    2MB/4.27MB
  dbc1b4c900ff unpacking [==================] 4.27MB/4.27MB
  084fed08b978 joined    [>                 ]     0B/4.27MB",
        ),
        (
            40,
            "\
/ ...example:5000/team/app:1 1/5 layers
  4bf5122f3445 fetching   46%
  dbc1b4c900ff unpacking 100%
  084fed08b978 joined      0%",
        ),
        (16, "/ .. 1/5 layers\n  4bf5122f3445 \n  dbc1b4c900ff \n  084fed08b978 "),
    ];
    for (columns, want) in cases {
        assert_eq!(shown(&mut [pull(name)], (columns, 24)), want, "{columns}");
    }
}

#[test]
fn frames_fit_every_height() {
    let pulls = || [pull("a:1"), pull("b:1"), pull("c:1")];
    let heads = |text: &str| text.lines().map(|l| l.split_whitespace().nth(1).unwrap_or_default().to_owned()).collect();
    let cases: [(usize, &[&str]); 5] = [
        (
            14,
            &[
                "a:1",
                "fetching",
                "unpacking",
                "joined",
                "b:1",
                "fetching",
                "unpacking",
                "joined",
                "c:1",
                "fetching",
                "unpacking",
                "joined",
            ],
        ),
        (10, &["a:1", "fetching", "unpacking", "joined", "b:1", "fetching", "unpacking", "c:1", "4"]),
        (5, &["a:1", "b:1", "c:1", "9"]),
        (3, &["a:1", "11"]),
        (1, &[]),
    ];
    for (rows, want) in cases {
        let got: Vec<String> = heads(&shown(&mut pulls(), (80, rows)));
        assert_eq!(got, want, "{rows}");
    }
}

#[test]
fn layers_that_an_image_has_twice_count_once() {
    let digest = Digest::sha256(b"x");
    let mut pull = PullView::new("a:1".to_owned());
    pull.report(PullEvent::Resolved { digest: digest.clone(), layers: vec![(digest.clone(), 1), (digest.clone(), 1)] });
    pull.report(PullEvent::Layer { digest, state: LayerState::Done });
    assert_eq!(pull.message(), "1/1 layer");
    pull.report(PullEvent::Committing);
    assert_eq!(pull.message(), "committing");
}

#[test]
fn a_check_takes_one_line() {
    let mut views = [View::Check(CheckView::default())];
    let now = Instant::now();
    let mut lines_of = |layers, bytes, columns, now| {
        let View::Check(check) = &mut views[0] else { panic!("a check") };
        check.report(CheckProgress { layers, layers_total: 9, bytes, bytes_total: 4_000_000 });
        lines(views.iter_mut(), (columns, 24), 0, now)
    };
    assert_eq!(lines_of(0, 0, 40, now), ["| checking 0/9 layers   0%"]);
    assert_eq!(
        lines_of(4, 2_000_000, 80, now + Duration::from_secs(2)),
        ["| checking 4/9 layers [===========>           ]    2MB/4MB         1MB/s     2s"]
    );
    assert_eq!(lines_of(9, 4_000_000, 16, now), ["| checking 9/9 "]);
}
