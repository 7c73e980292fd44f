//! Medians, rows and their JSON.

use super::*;

fn sample(engine: &str, image: &str, wall: f64) -> PullSample {
    let (engine, image) = (engine.to_owned(), image.to_owned());
    PullSample { engine, image, wall, cpu: wall * 2.0, peak: 30.5, sync: 0.1234, registry: 0.2 }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&n| n.to_owned()).collect()
}

#[test]
fn the_median_is_the_middle() {
    assert_eq!(median(&[]), 0.0);
    assert_eq!(median(&[3.0]), 3.0);
    assert_eq!(median(&[9.0, 1.0, 2.0]), 2.0);
    assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), 3.0);
}

#[test]
fn a_row_for_each_engine_and_image_that_ran() {
    let samples = [
        sample("podman", "base", 6.0),
        sample("imagelet", "base", 0.5),
        sample("imagelet", "base", 0.7),
        sample("imagelet", "base", 0.6),
        sample("podman", "ml", 8.0),
    ];
    let rows = rows(&samples, &names(&["base", "ml"]), &names(&["imagelet", "podman", "containerd-cri"]));
    let seen: Vec<(&str, &str, Option<f64>)> =
        rows.iter().map(|r| (r.image.as_str(), r.engine.as_str(), r.ratio)).collect();
    assert_eq!(seen, [("base", "imagelet", Some(1.0)), ("base", "podman", Some(10.0)), ("ml", "podman", None)]);
    assert_eq!((rows[0].wall_s, rows[0].cpu_s, rows[0].range, rows[0].rounds), (0.6, 1.2, (0.5, 0.7), 3));
}

#[test]
fn the_json_has_exactly_the_agreed_fields() {
    let rows = rows(&[sample("imagelet", "tiny", 0.5)], &names(&["tiny"]), &names(&["imagelet"]));
    let json = serde_json::to_string(&rows).expect("plain data");
    assert_eq!(
        json,
        r#"[{"engine":"imagelet","image":"tiny","wall_s":0.5,"cpu_s":1.0,"peak_mib":30.5,"sync_s":0.123,"ratio":1.0}]"#
    );
}
