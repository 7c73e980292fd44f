//! Tables of the states of images.

use std::sync::Arc;

use super::super::desired::desired;
use super::super::fixtures::{key, set};
use super::*;
use crate::api::Mode;

const APP: &str = "r.example/app:1";
const TOOL: &str = "r.example/tool:1";

struct Scene {
    desired: Desired,
    states: ImageStates,
    held: HeldImages,
    now: Now,
}

impl Scene {
    fn new(sets: &[super::super::followed::FollowedSet]) -> Self {
        let desired = desired(sets);
        let mut states = ImageStates::default();
        states.follow(&desired);
        let now = Now { clock: Instant::now(), wall: Timestamp::UNIX_EPOCH };
        Self { desired, states, held: HeldImages::default(), now }
    }

    fn due(&self) -> Vec<String> {
        self.states.due(&self.desired, &self.held, self.now.clock).into_iter().map(|key| key.name).collect()
    }

    fn observe(&mut self, present: &[&str]) -> usize {
        self.observe_named(present, true)
    }

    /// The same; without their names the images are listed by digest alone.
    fn observe_named(&mut self, present: &[&str], named: bool) -> usize {
        let image = |name: &&str| cri_api::Image {
            id: format!("id-of-{name}"),
            repo_tags: named.then(|| (*name).to_owned()).into_iter().collect(),
            repo_digests: key(name).by_digest().into_iter().collect(),
            ..cri_api::Image::default()
        };
        let images: Vec<_> = present.iter().map(image).collect();
        let disappeared = self.states.observe(&self.desired, &self.held, &Presence::of(&images)).len();
        for key in self.states.present() {
            self.held.note_present(key, &self.desired.images[key], false);
        }
        disappeared
    }

    fn fail(&mut self, name: &str, retry_after: Option<Duration>) -> Duration {
        let problem = PullProblem { reason: "No".to_owned(), message: "no".to_owned(), retry_after };
        let middle: Random = Arc::new(|| 0.5);
        self.states.started(&key(name));
        self.states.ended(&key(name), Err(problem), self.now, &middle);
        let retry = self.states.get(&key(name)).and_then(|state| state.retry).expect("a wait");
        let wait = retry.clock.duration_since(self.now.clock);
        assert_eq!(u64::try_from(retry.wall.duration_since(self.now.wall).as_secs()), Ok(wait.as_secs()));
        wait
    }

    fn phase(&self, name: &str) -> ImagePhase {
        self.states.get(&key(name)).expect("a state").phase
    }
}

#[test]
fn changed_set_ends_the_own_wait_and_not_that_of_the_registry() {
    let mut scene = Scene::new(&[set("web", &[APP])]);
    scene.fail(APP, None);
    assert_eq!(scene.due(), [""; 0]);
    scene.states.retry_now(&key(APP));
    assert_eq!(scene.due(), [APP]);
    let wait = scene.fail(APP, Some(Duration::from_secs(600)));
    scene.states.retry_now(&key(APP));
    assert_eq!(scene.due(), [""; 0], "the registry asked for time");
    scene.now.clock += wait;
    assert_eq!(scene.due(), [APP]);
    // Not every change of a set concerns its pulls.
    let mut other = set("web", &[APP]);
    other.options.namespaces = vec!["shop".to_owned()];
    let image = |set| desired([&set]).images.remove(&key(APP)).expect("wanted");
    assert!(image(set("web", &[APP])).is_pulled_like(&image(other.clone())));
    other.options.pull_secrets = vec!["registry".to_owned()];
    assert!(!image(set("web", &[APP])).is_pulled_like(&image(other)));
}

#[test]
fn image_that_is_present_by_digest_alone_is_pulled_for_its_name() {
    let mut scene = Scene::new(&[set("web", &[APP])]);
    scene.observe_named(&[APP], false);
    assert_eq!((scene.phase(APP), scene.due()), (ImagePhase::Waiting, vec![APP.to_owned()]));
    // The tag has moved, so that the pull was by digest.
    scene.states.started(&key(APP));
    scene.states.ended(&key(APP), Ok(format!("id-of-{APP}")), scene.now, &(Arc::new(|| 0.5) as Random));
    scene.held.note_present(&key(APP), &scene.desired.images[&key(APP)], true);
    assert_eq!((scene.observe_named(&[APP], false), scene.phase(APP)), (0, ImagePhase::Ready));
    // Another process knows of it.
    scene.states = ImageStates::default();
    scene.states.follow(&scene.desired);
    assert_eq!((scene.observe_named(&[APP], false), scene.phase(APP)), (0, ImagePhase::Ready));
}

#[test]
fn images_start_when_they_are_released_and_absent() {
    let mut waits = set("waits", &["r.example/later:1"]);
    waits.released = false;
    let mut scene = Scene::new(&[set("a", &[APP, TOOL]), waits]);
    assert_eq!(scene.due(), [APP, TOOL]);
    scene.observe(&[APP]);
    assert_eq!((scene.due(), scene.phase(APP)), (vec![TOOL.to_owned()], ImagePhase::Ready));
    scene.states.started(&key(TOOL));
    assert!(scene.due().is_empty());
    scene.states.ended(&key(TOOL), Ok("id".to_owned()), scene.now, &cluster::retry::system_random());
    assert_eq!(scene.phase(TOOL), ImagePhase::Ready);
}

#[test]
fn waits_double_up_to_five_minutes_and_failures_never_end_a_set() {
    let mut scene = Scene::new(&[set("a", &[APP])]);
    let mut waits = Vec::new();
    for attempt in 1..=8 {
        let wait = scene.fail(APP, None);
        waits.push(wait.as_secs());
        assert!(scene.due().is_empty());
        scene.now.clock += wait;
        assert_eq!(scene.due(), [APP]);
        assert_eq!(scene.states.get(&key(APP)).expect("a state").attempts, attempt);
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300]);
    assert_eq!(scene.fail(APP, Some(Duration::from_secs(1000))).as_secs(), 1000, "the registry asked for it");
    scene.observe(&[APP]);
    let state = scene.states.get(&key(APP)).expect("a state");
    assert_eq!((state.phase, state.attempts, &state.reason), (ImagePhase::Ready, 0, &None));
}

#[test]
fn image_that_disappears_is_pulled_again_before_others() {
    let mut not_released = set("a", &[TOOL]);
    not_released.released = false;
    let mut scene = Scene::new(&[set("b", &[APP]), not_released]);
    scene.observe(&[TOOL]);
    assert_eq!(scene.due(), [APP]);
    assert_eq!(scene.observe(&[]), 1);
    assert_eq!((scene.phase(TOOL), scene.due()), (ImagePhase::Gone, vec![TOOL.to_owned(), APP.to_owned()]));
    assert_eq!(scene.observe(&[]), 0, "reported once");
    scene.fail(TOOL, None);
    assert_eq!(scene.phase(TOOL), ImagePhase::Failed);
}

#[test]
fn disappeared_image_of_mode_once_stays_absent() {
    let mut once = set("a", &[APP]);
    once.options.mode = Mode::Once;
    let mut scene = Scene::new(&[once]);
    assert_eq!(scene.due(), [APP]);
    scene.observe(&[APP]);
    scene.observe(&[]);
    assert_eq!((scene.phase(APP), scene.due().len()), (ImagePhase::Gone, 0));
}

#[test]
fn image_of_an_earlier_process_that_is_missing_has_disappeared() {
    let mut scene = Scene::new(&[set("a", &[APP])]);
    scene.held.note_present(&key(APP), &scene.desired.images[&key(APP)], true);
    assert_eq!((scene.observe(&[]), scene.phase(APP)), (1, ImagePhase::Gone));
}

#[test]
fn running_pull_is_judged_by_its_end() {
    let mut scene = Scene::new(&[set("a", &[APP])]);
    scene.states.started(&key(APP));
    scene.observe(&[APP]);
    assert_eq!(scene.phase(APP), ImagePhase::Pulling);
    let bytes = TransferredBytes { total: 9, done: 4, ..TransferredBytes::default() };
    scene.states.progressed(&key(APP), bytes);
    scene.states.ended(&key(APP), Ok("id".to_owned()), scene.now, &cluster::retry::system_random());
    assert_eq!(scene.states.get(&key(APP)).expect("a state").bytes.done, 9);
}

#[test]
fn states_of_unwanted_images_are_dropped() {
    let mut scene = Scene::new(&[set("a", &[APP])]);
    scene.desired = Desired::default();
    scene.states.follow(&scene.desired);
    assert!(scene.states.get(&key(APP)).is_none() && scene.due().is_empty());
}
