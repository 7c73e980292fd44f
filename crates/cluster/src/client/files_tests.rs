//! Tests of credentials that are replaced on disk.

use std::path::Path;

use super::super::ClusterClient;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Writes a file as careful programs do, whole.
fn put(path: &Path, text: &str) {
    let next = path.with_extension("next");
    std::fs::write(&next, text).expect("written");
    std::fs::rename(next, path).expect("renamed");
}

fn kubeconfig(user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster: {{server: 'https://127.0.0.1:6443', certificate-authority: ca.crt}}\n\
         users:\n- name: u\n  user: {user}\ncontexts:\n- name: x\n  context: {{cluster: c, user: u}}\ncurrent-context: x\n"
    )
}

#[tokio::test(start_paused = true)]
async fn a_file_that_changes_makes_another_client() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, authority) = (directory.path().join("kubeconfig"), directory.path().join("ca.crt"));
    // A CA file without any CA: an empty list of certificates.
    put(&authority, "# none\n");
    put(&path, &kubeconfig("{token: one}"));
    let client = ClusterClient::open(&path).await.expect("a client");
    let (mut renewals, stop) = (client.renewals(), CancellationToken::new());
    let (follower, ended) = (client.clone(), stop.clone());
    let tasks = TaskTracker::new();
    tasks.spawn(async move { follower.follow_files(&ended).await });
    let quiet = async |renewals: &mut tokio::sync::watch::Receiver<u64>| {
        tokio::time::timeout(3 * super::super::CHECK, renewals.changed()).await.is_err()
    };
    assert!(quiet(&mut renewals).await, "nothing changed");
    for change in
        [|| (Path::new("kubeconfig"), kubeconfig("{token: two}")), || (Path::new("ca.crt"), "# another\n".to_owned())]
    {
        let (file, text) = change();
        put(&directory.path().join(file), &text);
        assert!(!quiet(&mut renewals).await, "{} changed", file.display());
        assert!(quiet(&mut renewals).await, "and that was heard once");
    }
    // Unusable credentials change nothing, until they are usable.
    put(&path, &kubeconfig("{client-certificate: client.crt, client-key: client.key}"));
    assert!(quiet(&mut renewals).await, "the certificate is not there");
    put(&path, &kubeconfig("{token: three}"));
    assert!(!quiet(&mut renewals).await, "it is whole again");
    // A change that `renew` has already read is not reported again.
    put(&path, &kubeconfig("{token: four}"));
    client.renew().await.expect("renewed");
    renewals.mark_unchanged();
    assert!(quiet(&mut renewals).await);
    stop.cancel();
}
