//! Tests of `behind`: the table of samples.

use super::*;

#[test]
fn ratios_are_of_the_same_containerd_and_snapshotter() {
    let sample = |snapshotter, puller, pull| StartSample {
        image: "app".to_owned(),
        version: "2.1.9".to_owned(),
        snapshotter,
        puller,
        pull,
        start: pull + 1.0,
        cpu: [2.0, 1.0],
        peak: [60.0, 30.0],
    };
    let samples = [
        sample("overlayfs", Puller::Containerd, 8.0),
        sample("overlayfs", Puller::Directories, 2.0),
        sample("overlayfs", Puller::Directories, 4.0),
        sample("overlayfs", Puller::Directories, 1.0),
        sample("overlayfs", Puller::Files, 1.0),
        sample("erofs", Puller::Containerd, 4.0),
        sample("erofs", Puller::Directories, 1.0),
    ];
    let text = table(&samples);
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| 2")).collect();
    assert_eq!(
        rows,
        [
            "| 2.1.9 | overlayfs | containerd | 8.00 | – | 9.00 | – | 2.00, 1.00 | – | 60, 30 |",
            "| 2.1.9 | overlayfs | imagelet, directories | 2.00 | 4.00 | 3.00 | 3.00 | 2.00, 1.00 | – | 60, 30 |",
            "| 2.1.9 | overlayfs | imagelet, EROFS files | 1.00 | 8.00 | 2.00 | 4.50 | 2.00, 1.00 | – | 60, 30 |",
            "| 2.1.9 | erofs | containerd | 4.00 | – | 5.00 | – | 2.00, 1.00 | 2.00 | 60, 30 |",
            "| 2.1.9 | erofs | imagelet | 1.00 | 4.00 | 2.00 | 2.50 | 2.00, 1.00 | 8.00 | 60, 30 |",
        ]
    );
    assert!(text.contains("Medians of 3 round(s)."), "{text}");
}
