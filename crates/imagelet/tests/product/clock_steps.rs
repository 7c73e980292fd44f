//! A clock that is set while the program runs: at any moment of pulls, conversions, removals and collections, and under an agent.
//! Nothing fails for it, nothing half stays, and an image is no older or younger than it is.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::clock::Clock;
use crate::support::gc::{decision, going, row};
use crate::support::images::Layer;
use crate::support::process::{eventually, wait};
use crate::support::random::{Random, noise_of};
use crate::support::scene::Scene;
use crate::support::{Imagelet, Packing};

const DAY: i64 = 24 * 3600;
const SEED: u64 = 0x1DEA_2026_1122;
const FORMATS: [&str; 2] = ["erofs", "dir"];
const SHORT: Duration = Duration::from_millis(2);

/// By years and by moments, forwards and backwards, to before 1970 and beyond what 32 bits can count.
const STEPS: [i64; 9] = [0, 1, -1, 3600, -3600, 4000 * DAY, -4000 * DAY, -30_000 * DAY, 40_000 * DAY];

/// The program by a clock.
fn by(clock: &Clock, imagelet: &Imagelet) -> Imagelet {
    let words = clock.words();
    imagelet.clone().through(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn a_clock_that_is_set_at_any_moment_makes_nothing_half_and_nothing_fail() {
    let s = Scene::on_a_disk();
    let layer = |n: usize| {
        let name = format!("clock {n}");
        s.file_layer(&format!("file-{n}"), noise_of(&name, 400_000), Packing::Gzip)
    };
    let layers: Vec<Layer> = (0..4).map(layer).collect();
    let (base, all) = (s.layout.image(&layers[..1]), s.layout.image(&layers));
    let (base_name, name) =
        (s.registry.push(&s.layout, &base, "clock/base:1"), s.registry.push(&s.layout, &all, "clock/all:1"));
    s.imagelet.ok(&["pull", &base_name]);

    let clock = Clock::new(&s.scratch);
    let imagelet = by(&clock, &s.imagelet).hasty();
    let (over, steps) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(SEED);
            while !over.load(Ordering::Relaxed) {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small index")]
                let next = (random.next() * STEPS.len() as f64) as usize;
                clock.set_by(STEPS[next]);
                steps.fetch_add(1, Ordering::Relaxed);
                thread::park_timeout(SHORT);
            }
        });
        let ended = End(&over);
        let mut moments = Random(SEED);
        for round in 0..6 {
            let shaped = imagelet.clone().global("--layer-format", FORMATS[round % 2]);
            let context = format!("seed {SEED:#x}, round {round}");
            // A pull that is killed at some moment, and the pull that continues it.
            let mut killed = shaped.spawn(&["pull", &name]);
            wait(&mut killed, Duration::from_secs_f64(moments.next() / 5.0));
            let _ = killed.kill();
            killed.wait().expect("it is our child");
            shaped.ok(&["pull", &name]);
            let mut both = [base.id.as_str(), all.id.as_str()];
            both.sort_unstable();
            assert_eq!(shaped.ids(), both, "{context}");
            let deep = shaped.json(&["check", "--deep"]);
            assert_eq!((&deep["problems"], &deep["imagesChecked"]), (&serde_json::json!([]), &serde_json::json!(2)));
            shaped.ok(&["convert", "--to", FORMATS[(round + 1) % 2], &name]);
            for command in [&["images"][..], &["df"], &["status"], &["inspect", &name]] {
                shaped.ok(command);
            }
            shaped.ok(&["pin", &base_name]);
            if round % 3 == 2 {
                // It has its age by every clock: none is asked for.
                shaped.ok(&["gc", "--all-unused"]);
            } else {
                shaped.ok(&["rmi", &name]);
            }
            assert_eq!(shaped.ids(), [base.id.as_str()], "{context}");
            let report = shaped.json(&["check", "--deep"]);
            assert_eq!(report["problems"], serde_json::json!([]), "{context}");
            let unfinished = &shaped.json(&["df"])["unfinished"];
            assert_eq!((&unfinished["layers"], &unfinished["blobs"]), (&0.into(), &0.into()), "{context}");
            let layers = std::fs::read_dir(s.scratch.join("disk/store/layers")).expect("readable").count();
            assert_eq!(layers, 1, "{context}");
        }
        drop(ended);
    });
    let steps = steps.into_inner();
    assert!(steps > 500, "{steps} steps are few");
}

/// Ends the thread that sets the clock, also where an assertion fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
#[ignore = "needs root and daemons: scripts/test.sh"]
fn under_an_agent_a_clock_makes_no_image_older_or_younger() {
    let s = Scene::on_a_disk();
    let clock = Clock::new(&s.scratch);
    // The agent runs by the moved clock. The commands that query it do not.
    let imagelet = s.imagelet.clone();
    let (name, _) = s.push_file("clock/one:1", "a", "one");
    imagelet.ok(&["pull", &name]);
    let mut agent = by(&clock, &imagelet).serve(&s.scratch.join("cri.sock"));
    let of = |name: &str| {
        let plan = imagelet.plan(&["--all-unused"]);
        let since = row(&plan, name)["firstDetected"].as_str().expect("it is known").to_owned();
        (decision(&plan, name).to_owned(), since[..4].parse::<i32>().expect("a year"))
    };
    let (young, year) = of("clock/one:1");
    assert_eq!(young, "too-young", "imageMinimumGCAge is two minutes");
    for (number, days) in [4000, -4000, 0, -20_000, 30_000, 0].into_iter().enumerate() {
        clock.set_by(days * DAY);
        let (age, then) = of("clock/one:1");
        assert_eq!(age, "too-young", "{days} days");
        // The agent follows the clock, and its recorded times have moved with it.
        let years = i32::try_from(days / 365).expect("few");
        assert!((year + years - 1..=year + years + 1).contains(&then), "{days} days: since {then}, which was {year}");
        // An image that is pulled meanwhile is held for that time by its pull.
        let (name, title) = (format!("clock/at{number}:1"), number.to_string());
        let (whole, _) = s.push_file(&name, "a", &title);
        imagelet.ok(&["pull", &whole]);
        assert_eq!(of(&name).0, "in-use", "{days} days");
    }
    agent.stop();

    // Nor does a step make one young again that has its age.
    let brief = imagelet.clone().global("--minimum-image-ttl-duration", "1s");
    let agent = by(&clock, &brief).serve(&s.scratch.join("cri.sock"));
    let goes = |days: i64| {
        clock.set_by(days * DAY);
        eventually("all are old enough", || going(&imagelet.plan(&["--all-unused"])).len() == 7);
    };
    [0, -4000, 4000, 0].into_iter().for_each(goes);
    imagelet.ok(&["gc", "--all-unused"]);
    assert_eq!(imagelet.ids(), Vec::<String>::new());
    assert_eq!(imagelet.json(&["check"])["problems"], serde_json::json!([]));
    drop(agent);
}
