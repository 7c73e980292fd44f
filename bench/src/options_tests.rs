//! The command line of `bench-pull`: its meaning, and the arguments that it refuses by name.

use super::*;

fn run(args: &[&str]) -> Result<BenchOptions, clap::Error> {
    let args: Vec<String> = ["bench-pull"].iter().chain(args).map(|&a| a.to_owned()).collect();
    parse(&args)
}

#[test]
fn nothing_means_all_images_and_engines() {
    let options = run(&[]).expect("fine");
    assert_eq!(
        (options.rounds, options.images.len(), options.engines.len()),
        (5, IMAGES.len(), OWN.len() + OTHERS.len())
    );
    assert_eq!(options.parts, BenchParts { engines: true, ..BenchParts::default() });
    assert!(!options.docs && options.json.is_none() && options.corpus.is_none());
}

#[test]
fn quick_is_one_image() {
    let options = run(&["--quick"]).expect("fine");
    assert_eq!((options.images, options.rounds), (vec!["base".to_owned()], 2));
    let more = run(&["--quick", "--rounds=7", "--seldom", "1"]).expect("fine");
    assert_eq!((options.seldom, more.rounds, more.seldom), (3, 7, 1));
}

#[test]
fn names_come_in_the_order_of_the_tables() {
    let options = run(&["--image", "ml", "--image=base", "--engine", "podman", "--engine", "imagelet"]).expect("fine");
    assert_eq!(options.images, ["base", "ml"]);
    assert_eq!(options.engines, ["imagelet", "podman"]);
    let options = run(&["--binary", "imagelet=/a", "--binary", "before=/b"]).expect("fine");
    assert_eq!(options.engines[1..4], ["imagelet-durable", "imagelet-erofs", "imagelet-erofs-durable"]);
    assert_eq!(options.engines[4..6], ["before", "containerd-cri"]);
    assert_eq!(options.binaries[1], ("before".to_owned(), PathBuf::from("/b")));
}

#[test]
fn parts_may_be_measured_alone() {
    let only = |args: &[&str]| run(args).expect("fine").parts;
    assert_eq!(only(&["--memory", "64M"]), BenchParts { memory: Some(64 << 20), ..BenchParts::default() });
    assert_eq!(
        only(&["--together", "--engines"]),
        BenchParts { engines: true, together: true, ..BenchParts::default() }
    );
    let all = BenchParts {
        engines: true,
        together: true,
        warm: true,
        shapes: true,
        profile: true,
        behind: true,
        containers: true,
        memory: Some(1 << 30),
    };
    assert_eq!(only(&["--memory=1GiB", "--everything"]), all);
}

#[test]
fn errors_name_the_flag() {
    let cases: &[(&[&str], &str)] = &[
        (&["--rounds"], "a value is required for '--rounds <N>'"),
        (&["--rounds", "0"], "'0' for '--rounds <N>': not a number"),
        (&["--seldom", "0"], "'0' for '--seldom <N>': not a number"),
        (&["--rounds", "many"], "'many' for '--rounds <N>': not a number"),
        (&["--image", "basis"], "'basis' for '--image <NAME>'\n  [possible values: pause, tiny"),
        (&["--engine", "docker"], "--engine docker: no such engine; there are imagelet "),
        (&["--binary", "/a"], "'/a' for '--binary <NAME=FILE>': not of the form NAME=FILE"),
        (&["--binary", "podman=/a"], "the name podman is taken"),
        (&["--binary", "a=/a", "--binary=a=/b"], "the name a is taken"),
        (&["--binary", "imagelet=/a", "--binary=imagelet=/b"], "the name imagelet is taken"),
        (&["--binary", "imagelet-erofs=/a"], "the name imagelet-erofs is taken"),
        (&["--memory", "64X"], "'64X' for '--memory <SIZE>': not a size"),
        (&["--memory", "99999999999G"], "'--memory <SIZE>': not a size"),
        (&["--quick=yes"], "unexpected value 'yes' for '--quick'"),
        (&["--quick", "--image", "ml"], "cannot be used with"),
        (&["--warm", "--json", "f"], "--json needs"),
        (&["base"], "unexpected argument 'base'"),
        (&["--fast"], "unexpected argument '--fast'"),
    ];
    for (args, expected) in cases {
        let error = run(args).expect_err("refused").to_string();
        assert!(error.contains(expected), "{args:?}: {error}");
    }
}
