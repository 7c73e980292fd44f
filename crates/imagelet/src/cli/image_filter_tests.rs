//! Tests of filters as users of podman and docker type them.

use super::*;

const DIGEST: &str = "sha256:4bf5122f344554c53bde2ebb8cd2b7e3d1600ad631c385a5d7cce23c7785459a";

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().expect("a time")
}

fn filters(texts: &[&str]) -> Outcome<Filters> {
    Filters::parse(&texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>(), now())
}

/// (pattern, names that it matches)
#[test]
fn patterns_are_podmans() {
    let names = [
        "docker.io/library/busybox:1.36".to_owned(),
        "docker.io/library/busybox:latest".to_owned(),
        "quay.io/team/app:1.36".to_owned(),
        "h:5000/team/sub/app:2".to_owned(),
        format!("quay.io/team/app@{DIGEST}"),
    ];
    let cases: [(&str, &[usize]); 16] = [
        ("busybox", &[0, 1]),
        ("busybox:latest", &[1]),
        ("busy*", &[0, 1]),
        ("*:1.36", &[0, 2]),
        ("*", &[0, 1, 2, 3, 4]),
        ("*/*", &[0, 1, 2, 4]),
        ("library/busybox", &[0, 1]),
        ("docker.io/library/busybox:1.36", &[0]),
        ("docker.io/*/busybox:*", &[0, 1]),
        ("team/app", &[2, 4]),
        ("quay.io/team/*", &[2, 4]),
        ("quay.io/*", &[]),
        ("h:5000/team/sub/app", &[3]),
        ("app:[12]", &[3]),
        ("?pp", &[2, 3, 4]),
        ("none", &[]),
    ];
    for (pattern, want) in cases {
        let filters = filters(&[&format!("reference={pattern}")]).expect(pattern);
        let got: Vec<usize> = (0..names.len()).filter(|&n| filters.mean(&names[n])).collect();
        assert_eq!(got, want, "{pattern}");
    }
}

/// (filters, images that match)
#[test]
fn all_filters_have_to_fit() {
    let image = |tags: &[&str], pinned: bool| Image {
        repo_tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
        repo_digests: vec![format!("quay.io/team/app@{DIGEST}")],
        pinned,
        ..Image::default()
    };
    let details = |created: &str, labels: &[(&str, &str)]| Details {
        created: created.parse().ok(),
        labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
    };
    let images = [
        (image(&["quay.io/team/app:1"], false), details("2025-03-01T00:00:00Z", &[("tier", "web"), ("x", "")])),
        (image(&["quay.io/team/app:2"], true), details("2026-02-28T13:00:00Z", &[("tier", "db")])),
        (image(&[], false), details("", &[])),
    ];
    let cases: [(&[&str], &[usize]); 17] = [
        (&[], &[0, 1, 2]),
        (&["reference=app:1"], &[0]),
        (&["reference=app:1", "reference=app:2"], &[0, 1]),
        (&["label=tier"], &[0, 1]),
        (&["label=tier=db"], &[1]),
        (&["label=tier=web", "label=x"], &[0]),
        (&["label=tier=web", "label=tier=db"], &[]),
        (&["label=x="], &[0]),
        (&["dangling=true"], &[2]),
        (&["dangling=false"], &[0, 1]),
        (&["pinned=1"], &[1]),
        (&["pinned=false", "dangling=0"], &[0]),
        (&["until=24h"], &[0]),
        (&["until=2026-03-01"], &[0, 1]),
        (&["until=2026-02-28T13:00:00+01:00"], &[0]),
        (&["until=1772283601"], &[0, 1]),
        (&["until=0"], &[]),
    ];
    for (texts, want) in cases {
        let filters = filters(texts).expect("parses");
        let fits = |n: &usize| filters.fit(&images[*n].0, &images[*n].1, Span::default());
        assert_eq!((0..3).filter(fits).collect::<Vec<_>>(), want, "{texts:?}");
    }
    let none = Filters::default();
    let span = Span { after: images[0].1.created, before: None };
    let fits = |n: &usize| none.fit(&images[*n].0, &images[*n].1, span);
    assert_eq!((0..3).filter(fits).collect::<Vec<_>>(), [1], "created after another image");
}

#[test]
fn wrong_filters_say_what_is_right() {
    let cases = [
        ("busybox", r#"--filter "busybox": it must be KEY=VALUE"#),
        (
            "name=x",
            r#"--filter "name=x": there is no such key, but reference, label, dangling, pinned, before, since and until"#,
        ),
        ("dangling=yes", r#"--filter "dangling=yes": the value must be true or false"#),
        (
            "until=soon",
            r#"--filter "until=soon": it must be a time such as 2026-01-31T12:00:00Z, a date, seconds since 1970, or 24h for a day ago"#,
        ),
    ];
    for (text, want) in cases {
        assert_eq!(filters(&[text]).expect_err(text).lines(), [want]);
    }
}

#[test]
fn configs_are_read_as_far_as_they_go() {
    let info = r#"{"imageSpec":{"created":"2025-03-01T00:00:00.5Z","config":{"Labels":{"a":"b","c":1}}}}"#;
    let details = details_of(info);
    assert_eq!(details.created, "2025-03-01T00:00:00.5Z".parse().ok());
    assert_eq!(details.labels.into_iter().collect::<Vec<_>>(), [("a".to_owned(), "b".to_owned())]);
    assert_eq!(details_of("no JSON"), Details::default());
}
