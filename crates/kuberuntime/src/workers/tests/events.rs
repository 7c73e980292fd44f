//! Runtimes that report what happens to their containers.

use std::time::Duration;

use cri_api::testing::CallKind;
use cri_api::{Error, Kind};

use super::world::{World, pass, simple};
use crate::workers::{AgentOptions, PodView};

fn lists(world: &World) -> usize {
    world.runtime.calls().iter().filter(|(kind, _)| *kind == CallKind::ListPodSandboxes).count()
}

fn restarted(times: u32) -> impl Fn(&PodView) -> bool {
    move |view| {
        let container = &view.status.container_statuses[0];
        container.restart_count == times && container.state.is_running()
    }
}

#[tokio::test(start_paused = true)]
async fn events_are_faster_than_asking_and_cost_less() {
    let mut world = World::new();
    world.options = AgentOptions { events: true, resync: Duration::from_secs(3600), ..world.options.clone() };
    let at_work = world.start();
    let web = simple("web", "x:1");
    world.want([&web]);
    at_work.until_ready(&web).await;
    pass(60).await;
    world.runtime.forget_calls();
    pass(600).await;
    assert_eq!(lists(&world), 20, "every 30 s");
    world.runtime.exit(&world.running("web").await.expect("runs"), 1);
    let took = at_work.until_pod("back", &web, restarted(1)).await;
    assert!(took < Duration::from_millis(300), "{took:?}");

    // The stream breaks off: from now on it is asked every second, until there is another stream.
    assert_eq!(world.runtime.listeners(), 1);
    world.runtime.end_events(Error::new(Kind::Unavailable, "the runtime was restarted"));
    pass(1).await;
    assert_eq!(world.runtime.listeners(), 0);
    world.runtime.forget_calls();
    pass(8).await;
    assert!(lists(&world) >= 7, "{}", lists(&world));
    pass(10).await;
    assert_eq!(world.runtime.listeners(), 1);
    pass(60).await;
    world.runtime.forget_calls();
    pass(300).await;
    assert!(lists(&world) <= 11, "{}", lists(&world));
    at_work.stop().await;
}

#[tokio::test(start_paused = true)]
async fn events_that_do_not_come_are_not_relied_on() {
    let mut world = World::new();
    world.options = AgentOptions { events: true, ..world.options.clone() };
    let at_work = world.start();
    let web = simple("web", "x:1");
    world.want([&web]);
    at_work.until_ready(&web).await;
    pass(700).await;
    world.runtime.be_silent();
    for times in 1..=3 {
        world.runtime.exit(&world.running("web").await.expect("runs"), 1);
        let took = at_work.until_pod("back", &web, restarted(times)).await;
        assert!(took < Duration::from_secs(32), "{took:?}");
        pass(700).await;
    }
    world.runtime.exit(&world.running("web").await.expect("runs"), 1);
    let took = at_work.until_pod("back", &web, restarted(4)).await;
    assert!(took < Duration::from_secs(2), "it is asked every second again: {took:?}");
    at_work.stop().await;
}
