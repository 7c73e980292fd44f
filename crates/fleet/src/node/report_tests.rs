//! Tables of reports.

use std::sync::Arc;

use tokio::time::Instant;

use super::super::desired::desired;
use super::super::fixtures::{key, set};
use super::super::held::HeldImages;
use super::super::presence::Presence;
use super::super::states::{Now, PullProblem};
use super::*;

const APP: &str = "r.example/app:1";
const TOOL: &str = "r.example/tool:1";

/// State of an image in a test.
#[derive(Clone, Copy, PartialEq)]
enum Observed {
    Nothing,
    Present,
    Pulling,
    Failed,
}

fn reported(set: &FollowedSet, known: &[(&str, Observed)], before: Option<&Condition>) -> NodeImagesStatus {
    let desired = desired([set]);
    let mut states = ImageStates::default();
    states.follow(&desired);
    let now = Now { clock: Instant::now(), wall: Timestamp::UNIX_EPOCH };
    let present = known.iter().filter(|(_, known)| *known == Observed::Present).map(|(name, _)| cri_api::Image {
        id: "id".to_owned(),
        repo_tags: vec![(*name).to_owned()],
        repo_digests: key(name).by_digest().into_iter().collect(),
        ..cri_api::Image::default()
    });
    states.observe(&desired, &HeldImages::default(), &Presence::of(&present.collect::<Vec<_>>()));
    for (name, known) in known {
        if matches!(known, Observed::Pulling | Observed::Failed) {
            states.started(&key(name));
        }
        if *known == Observed::Failed {
            let problem = PullProblem { reason: "ImageNotFound".into(), message: "é".repeat(300), retry_after: None };
            states.ended(&key(name), Err(problem), now, &(Arc::new(|| 0.5) as cluster::retry::Random));
        }
    }
    let context = ReportContext { now: Timestamp::UNIX_EPOCH, version: "1", disk: None, before };
    report([set], &desired, &states, &context)
}

#[test]
fn progress_is_never_reported_as_failure() {
    use Observed::{Failed, Nothing, Present, Pulling};
    let table = [
        (true, [Present, Present], SetPhase::Ready, "True", "Complete"),
        (true, [Pulling, Failed], SetPhase::Pulling, "False", "Pulling"),
        (true, [Nothing, Failed], SetPhase::Pulling, "False", "Pulling"),
        (true, [Present, Failed], SetPhase::Failed, "False", "Failed"),
        (true, [Nothing, Nothing], SetPhase::Pulling, "False", "Pulling"),
        (false, [Nothing, Nothing], SetPhase::Waiting, "False", "Waiting"),
        (false, [Present, Nothing], SetPhase::Waiting, "False", "Waiting"),
        // A disk that was prepared needs no release.
        (false, [Present, Present], SetPhase::Ready, "True", "Complete"),
    ];
    for (released, [app, tool], phase, status, reason) in table {
        let mut set = set("a", &[APP, TOOL]);
        set.released = released;
        let all = reported(&set, &[(APP, app), (TOOL, tool)], None);
        assert_eq!(all.sets[0].phase, phase, "{released} {reason}");
        assert_eq!((&*all.conditions[0].status, &*all.conditions[0].reason), (status, reason));
        assert_eq!((all.sets[0].images, &*all.sets[0].uid), (2, "uid-of-a"));
    }
}

#[test]
fn failure_has_reason_message_and_time_of_the_next_attempt() {
    let all = reported(&set("a", &[APP]), &[(APP, Observed::Failed)], None);
    let row = &all.images[0];
    assert_eq!((row.phase, row.reason.as_deref(), row.attempts), (ImagePhase::Failed, Some("ImageNotFound"), 1));
    assert_eq!(row.message.as_ref().map(|message| message.chars().count()), Some(MAX_MESSAGE));
    assert_eq!(row.retry_at.as_ref().map(|time| time.0.as_second()), Some(10));
    assert!(row.pinned);
}

#[test]
fn unresolved_image_is_reported_and_does_not_keep_the_set_from_its_end() {
    let mut unresolved = set("a", &[APP, TOOL]);
    (unresolved.images[0].digest, unresolved.images[0].reason) = (None, Some("ImageNotFound".to_owned()));
    let all = reported(&unresolved, &[], None);
    assert_eq!((all.sets[0].phase, all.images[0].reason.as_deref()), (SetPhase::Pulling, Some("ImageNotFound")));
    let all = reported(&unresolved, &[(TOOL, Observed::Present)], None);
    assert_eq!((all.sets[0].phase, all.sets[0].ready, all.sets[0].images), (SetPhase::Ready, 1, 2));
    assert_eq!(all.images[0].phase, ImagePhase::Failed);
    unresolved.released = false;
    let all = reported(&unresolved, &[], None);
    assert_eq!((all.sets[0].phase, all.images[0].phase), (SetPhase::Waiting, ImagePhase::Waiting));
}

#[test]
fn missing_images_come_first_and_the_number_is_limited() {
    let names: Vec<String> = (0..400).map(|number| format!("r.example/app:{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let present: Vec<_> = names[..399].iter().map(|name| (*name, Observed::Present)).collect();
    let all = reported(&set("a", &names), &present, None);
    assert_eq!(all.images.len(), 400);
    let all = limited(&all);
    assert_eq!((all.images.len(), &*all.images[0].name), (MAX_REPORTED_IMAGES, "r.example/app:399"));
    assert_eq!((all.sets[0].images, all.sets[0].ready), (400, 399));
}

#[test]
fn condition_keeps_the_time_of_its_last_change() {
    let then = Time(Timestamp::from_second(-60).expect("in range"));
    let mut before = reported(&set("a", &[APP]), &[], None).conditions.remove(0);
    before.last_transition_time = then.clone();
    let same = reported(&set("a", &[APP]), &[(APP, Observed::Failed)], Some(&before));
    assert_eq!((&same.conditions[0].last_transition_time, &*same.conditions[0].reason), (&then, "Failed"));
    let other = reported(&set("a", &[APP]), &[(APP, Observed::Present)], Some(&before));
    assert_eq!(other.conditions[0].last_transition_time, Time(Timestamp::UNIX_EPOCH));
}
