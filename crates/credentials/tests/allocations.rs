//! Number of allocations of a look-up: those of its answer, however many entries there are. The kubelet makes eight for
//! each entry. In a program of its own, because it counts every allocation.

use allocation_counter::measure;
use imagelet_credentials::{Index, Keyring, KeyringOptions, PathMatch, PullSecret, Requester};
use oci::{Reference, Secret};

#[test]
fn the_number_of_entries_costs_no_allocation() {
    for size in [1, 10_000] {
        let mut index = Index::new(PathMatch::Segments);
        for at in 0..size {
            index.insert(&format!("registry-{at}.example.com"), at).expect("is a location");
            index.insert(&format!("*.region-{at}.example.com/team"), at).expect("is a location");
            index.insert(&format!("team-{at}-*.example.net"), at).expect("is a location");
        }
        let index_takes = |image: &str, found: usize, most: u64| {
            let taken = measure(|| assert_eq!(index.lookup(image).len(), found, "{image}")).count_total;
            assert!(taken <= most, "{size} entries, {image}: {taken} allocations");
        };
        index_takes("registry-0.example.com/app", 1, 2);
        index_takes("x.region-0.example.com/team/app", 1, 2);
        index_takes("elsewhere.example.com/app", 0, 0);
        // A glob's matcher is made for the first image that its text before the wildcard fits.
        assert_eq!(index.lookup("team-0-x.example.net/app").len(), 1);
        index_takes("team-0-y.example.net/app", 1, 6);
    }
}

#[test]
fn a_pull_secret_is_not_parsed_again() {
    let payload = r#"{"reg.example.com": {"username": "ada", "password": "swordfish"}}"#;
    let secret = PullSecret {
        namespace: "shop".into(),
        name: "pull".into(),
        uid: "1".into(),
        kind: "kubernetes.io/dockercfg".into(),
        data: [(".dockercfg".to_owned(), Secret::new(payload))].into(),
        ..PullSecret::default()
    };
    let pod = Requester { secrets: vec![secret], ..Requester::default() };
    let keyring = Keyring::new(KeyringOptions::default());
    let image = Reference::parse("reg.example.com/app:1").expect("a name");
    let look = || assert_eq!(keyring.secrets_only(&image, &pod).expect("is right").candidates.len(), 1);
    look();
    // The image's two parts, four lists, and the six texts of the candidate.
    let taken = measure(look).count_total;
    assert!(taken <= 12, "{taken} allocations");
}
