//! Tests of the view of a busy agent, for terminals of many sizes.

use cri_api::LayerState;
use image_manager::{LayerInFlight, WantedBy};

use super::*;

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
    };
    Picture {
        now: Timestamp::from_second(90).expect("a time"),
        agent: "imagelet 0.3.0, process 42".to_owned(),
        pulls: vec![
            pull("registry.example/team/app:1", PullStep::Fetching),
            pull("registry.example/team/db:7\u{1b}[31m", PullStep::Queued),
        ],
        ended: vec![ended],
        images: Some(34),
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

#[test]
fn a_screen_of_80_by_24() {
    let shown = lines(&picture(), Some((80, 24)));
    assert!(shown.iter().all(|line| line.chars().count() <= 80), "{shown:#?}");
    assert!(shown.len() <= 24, "{shown:#?}");
    let text = shown.join("\n");
    for piece in [
        "imagelet 0.3.0, process 42 · 2 pulls · 34 images · 2 pods, 1 ready",
        "disk [############        ] 62% of 50GB, 19GB free, images 4GB",
        "fetching       1/2       20MB/80MB     1MB/s  1m00s",
        "queued 2",
        "pulled 3MB in 2.50s, 90s ago",
    ] {
        assert!(text.contains(piece), "{piece}\nin\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "no name drives the terminal");
    let (web, db) = (text.find("shop/web-1").expect("shown"), text.find("shop/db-0").expect("shown"));
    assert!(web < db, "what is not ready comes first");
}

#[test]
fn every_size_is_kept_and_what_is_left_out_is_counted() {
    let mut picture = picture();
    picture.pulls = (0..40).map(|n| pull(&format!("registry.example/app:{n}"), PullStep::Fetching)).collect();
    picture.pods = Some((0..40).map(|n| PodFigures { name: format!("p{n}"), ..PodFigures::default() }).collect());
    picture.ended = vec![picture.ended[0].clone(); 40];
    picture.problem = Some("the agent does not answer".to_owned());
    for columns in [1, 20, 40, 79, 80, 120, 300] {
        for rows in [1, 2, 5, 10, 24, 60, 200] {
            let shown = lines(&picture, Some((columns, rows)));
            assert!(shown.len() <= rows, "{columns}×{rows}: {}", shown.len());
            assert!(shown.iter().all(|line| line.chars().count() <= columns), "{columns}×{rows}: {shown:#?}");
        }
    }
    let text = lines(&picture, Some((120, 24))).join("\n");
    assert_eq!(text.matches("more").count(), 3, "{text}");
    assert!(text.contains("WANTED BY") && text.contains("pod shop/web-1"), "{text}");
    let plain = lines(&picture, None);
    assert!(plain.iter().filter(|line| line.contains("fetching")).count() == 40, "plain text leaves out nothing");
}

#[test]
fn an_agent_with_nothing_to_do_says_so() {
    let picture = Picture { agent: "imagelet".to_owned(), pods: None, ..Picture::default() };
    let text = lines(&picture, Some((80, 24))).join("\n");
    assert!(text.contains("no pull runs") && text.contains("not measured") && !text.contains("POD"), "{text}");
    let idle = Picture { pods: Some(Vec::new()), ..picture };
    assert!(lines(&idle, None).join("\n").contains("no pods"));
}
