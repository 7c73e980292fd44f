//! Tests of the view of a busy agent, for terminals of many sizes.

use cri_api::LayerState;
use image_manager::{EndedPull, LayerInFlight, PullInFlight, PullOutcome, PullStep, WantedBy};
use jiff::Timestamp;

use super::*;
use crate::cli::top::keys::Key;
use crate::cli::top::picture::{ContainerFigures, DiskFigures, PodFigures};

fn pull(image: &str, step: PullStep) -> PullInFlight {
    let layer = |state| LayerInFlight {
        digest: "sha256:1".to_owned(),
        size_bytes: 1000,
        received_bytes: 500,
        unpacked_bytes: 0,
        state,
    };
    PullInFlight {
        id: 1,
        image: image.to_owned(),
        wanted_by: vec![WantedBy::Pod { namespace: "shop".to_owned(), name: "web-1".to_owned() }],
        waiters: 1,
        since: Timestamp::UNIX_EPOCH,
        elapsed_milliseconds: 1000,
        step,
        queue_position: (step == PullStep::Queued).then_some(2),
        total_bytes: (step == PullStep::Fetching).then_some(80_000_000),
        received_bytes: 20_000_000,
        unpacked_bytes: 0,
        bytes_per_second: (step == PullStep::Fetching).then_some(1_000_000),
        layers: (step == PullStep::Fetching).then(|| vec![layer(LayerState::Done), layer(LayerState::Fetching)]),
    }
}

fn picture() -> Picture {
    let ended = EndedPull {
        number: 1,
        id: 1,
        image: "registry.example/team/old:1".to_owned(),
        wanted_by: Vec::new(),
        since: Timestamp::UNIX_EPOCH,
        ended: Timestamp::UNIX_EPOCH,
        duration_milliseconds: 2500,
        queued_milliseconds: 0,
        received_bytes: 3_000_000,
        outcome: PullOutcome::Pulled,
        image_ref: None,
        cause: None,
        message: None,
    };
    let pod = |name: &str, ready: bool| PodFigures {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        ready: if ready { "1/1" } else { "0/1" }.to_owned(),
        is_ready: ready,
        status: if ready { "Running" } else { "ImagePullBackOff" }.to_owned(),
        restarts: 2,
        created: Some(Timestamp::UNIX_EPOCH),
        containers: vec![ContainerFigures {
            name: "main".to_owned(),
            image: "registry.example/team/app:1".to_owned(),
            state: "waiting: ImagePullBackOff".to_owned(),
            restarts: 2,
        }],
    };
    let image = cri_api::Image {
        id: "sha256:0123456789abcdef".to_owned(),
        repo_tags: vec!["registry.example/team/app:1".to_owned()],
        size: 5_000_000,
        pulled_at: Some(30_000_000_000),
        ..cri_api::Image::default()
    };
    Picture {
        now: Timestamp::from_second(90).expect("a time"),
        agent: "imagelet 0.3.0, process 42".to_owned(),
        pulls: vec![
            pull("registry.example/team/app:1", PullStep::Fetching),
            pull("registry.example/team/db:7\u{1b}[31m", PullStep::Queued),
        ],
        ended: vec![ended],
        image_count: Some(34),
        images: vec![image],
        disk: Some(DiskFigures {
            path: "/var/lib/imagelet".to_owned(),
            capacity: 50_000_000_000,
            available: 19_000_000_000,
            images: Some(4_000_000_000),
        }),
        has_pressure: false,
        pods: Some(vec![pod("db-0", true), pod("web-1", false)]),
        problem: None,
    }
}

fn shown(picture: &Picture, view: &View, size: (usize, usize)) -> Vec<String> {
    screen(picture, view, size).lines
}

/// Returns the view after these keys.
fn pressed(picture: &Picture, keys: &[Key], (columns, rows): (usize, usize)) -> View {
    let mut view = View::default();
    for key in keys {
        assert!(view.press(*key, &list(picture, columns), body_height(picture, columns, rows)));
    }
    view
}

#[test]
fn a_screen_of_80_by_24() {
    let shown = shown(&picture(), &View::default(), (80, 24));
    assert!(shown.iter().all(|line| line.chars().count() <= 80), "{shown:#?}");
    assert_eq!(shown.len(), 24, "{shown:#?}");
    let text = shown.join("\n");
    for piece in [
        "imagelet 0.3.0, process 42 · 2 pulls · 34 images · 2 pods, 1 ready",
        "disk [############        ] 62% of 50GB, 19GB free, images 4GB",
        "fetching       1/2       20MB/80MB     1MB/s  1m00s",
        "queued 2",
        "0123456789ab       5MB    60s",
        "pulled 3MB in 2.50s, 90s ago",
        "q quit  ? help  ↑↓ select  Enter details  Tab next section",
    ] {
        assert!(text.contains(piece), "{piece}\nin\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "no name drives the terminal");
    let (web, db) = (text.find("shop/web-1").expect("shown"), text.find("shop/db-0").expect("shown"));
    assert!(web < db, "pods that are not ready are first");
}

#[test]
fn every_size_is_kept_and_everything_can_be_scrolled_to() {
    let mut picture = picture();
    picture.pulls = (0..40)
        .map(|n| PullInFlight { id: n, ..pull(&format!("registry.example/app:{n}"), PullStep::Fetching) })
        .collect();
    picture.pods = Some((0..40).map(|n| PodFigures { name: format!("p{n}"), ..PodFigures::default() }).collect());
    picture.ended = (0..40).map(|number| EndedPull { number, ..picture.ended[0].clone() }).collect();
    picture.problem = Some("the agent does not answer".to_owned());
    for columns in [1, 20, 40, 79, 80, 120, 300] {
        for rows in [1, 2, 5, 10, 24, 60, 200] {
            for keys in [&[][..], &[Key::End], &[Key::Down, Key::Enter], &[Key::Help], &[Key::Help, Key::End]] {
                let size = (columns, rows);
                let frame = screen(&picture, &pressed(&picture, keys, size), size);
                assert!(frame.lines.len() <= rows, "{columns}×{rows}: {}", frame.lines.len());
                let fits = frame.lines.iter().all(|line| line.chars().count() <= columns);
                assert!(fits, "{columns}×{rows}: {:#?}", frame.lines);
                assert!(frame.highlighted.is_none_or(|index| index < frame.lines.len()));
            }
        }
    }
    let size = (120, 24);
    let text = shown(&picture, &View::default(), size).join("\n");
    assert!(text.contains("WANTED BY") && text.contains("pod shop/web-1") && text.contains("1-20 of 129"), "{text}");
    let mut view = View::default();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..121 {
        view.press(Key::Down, &list(&picture, 120), body_height(&picture, 120, 24));
        let frame = screen(&picture, &view, size);
        seen.insert(format!("{:?}", view.selected));
        assert!(frame.highlighted.is_some(), "the selected row is visible: {:?}", view.selected);
    }
    assert_eq!(seen.len(), 121, "every row can be selected");
    let plain = plain(&picture);
    assert_eq!(plain.iter().filter(|line| line.contains("fetching")).count(), 40, "plain text has all of them");
}

#[test]
fn details_of_each_kind_of_row() {
    let mut picture = picture();
    picture.ended[0].outcome = PullOutcome::Failed;
    picture.ended[0].cause = Some("not_found".to_owned());
    picture.ended[0].message = Some("no such manifest".to_owned());
    let size = (100, 24);
    let cases: [(&[Key], &[&str]); 4] = [
        (&[Key::Down, Key::Enter], &["PULL registry.example/team/app:1", "requested by pod shop/web-1", "fetching"]),
        (
            &[Key::Down, Key::Tab, Key::Enter],
            &["POD shop/web-1", "main: waiting: ImagePullBackOff, 2 restarts", "$ imagelet describe shop/web-1"],
        ),
        (
            &[Key::Down, Key::Tab, Key::Tab, Key::Enter],
            &["IMAGE registry.example/team/app:1", "5MB on disk", "$ imagelet gc explain registry.example/team/app:1"],
        ),
        (
            &[Key::End, Key::Enter],
            &["ENDED PULL registry.example/team/old:1", "not_found: no such manifest", "$ imagelet explain"],
        ),
    ];
    for (keys, pieces) in cases {
        let text = shown(&picture, &pressed(&picture, keys, size), size).join("\n");
        for piece in pieces {
            assert!(text.contains(piece), "{piece}\nin\n{text}");
        }
        assert!(text.contains("Esc back"), "{text}");
    }
    let view = pressed(&picture, &[Key::Down, Key::Enter], size);
    picture.pulls.clear();
    assert!(shown(&picture, &view, size).join("\n").contains("no longer listed"));
    let help = shown(&picture, &pressed(&picture, &[Key::Help], size), size).join("\n");
    assert!(help.contains("KEYS") && help.contains("the next section"), "{help}");
}

#[test]
fn an_agent_with_nothing_to_do_says_so() {
    let picture = Picture { agent: "imagelet".to_owned(), pods: None, ..Picture::default() };
    let text = shown(&picture, &View::default(), (80, 24)).join("\n");
    assert!(text.contains("no running pulls") && text.contains("not measured") && !text.contains("POD"), "{text}");
    let idle = Picture { pods: Some(Vec::new()), ..picture };
    assert!(plain(&idle).join("\n").contains("no pods"));
}
