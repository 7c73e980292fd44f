//! Images of the store: list, inspect and remove.

use imagelet_engine::{Digest, Platform};

use crate::support::{Node, app};

#[tokio::test]
async fn images_are_listed_inspected_and_removed() {
    let node = Node::start().await;
    let built = app();
    let image = node.push("app:v1", &built);
    assert_eq!(node.engine.inspect_image(image.clone()).await, Ok(None));
    let pulled = node.engine.pull(image.clone()).await.expect("pulls");

    let listed = node.engine.list_images().await.expect("lists");
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0].id, &listed[0].tags), (built.id(), &vec![image.clone()]));
    assert_eq!(listed[0].digests, [image.at_digest(built.digest().clone())]);
    assert!(listed[0].pulled_at.is_some());

    let id = pulled.image_id.to_string();
    for name in [image.to_string(), id.clone(), id["sha256:".len()..][..12].to_owned()] {
        let details = node.engine.inspect_image(name).await.expect("reads").expect("present");
        assert_eq!(details.image, listed[0]);
        assert_eq!(details.config.platform, Platform::host());
        assert_eq!(details.config.config.entrypoint, ["/usr/bin/app"]);
        assert!(details.config.config.env.contains(&"A=b".to_owned()));
        assert_eq!(details.layer_bytes.len(), 2);
    }

    node.engine.remove_image(image.clone()).await.expect("removes");
    node.engine.remove_image(pulled.image_id).await.expect("an absent image is no error");
    assert!(node.engine.list_images().await.expect("lists").is_empty());
    assert_eq!(node.engine.inspect_image(Digest::sha256(b"")).await, Ok(None));
}
