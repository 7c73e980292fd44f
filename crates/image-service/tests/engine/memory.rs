//! The budget of memory, on whole pulls: however little there is, and however many want it, all of them end.

use image_service::LEAST_MEMORY;

use crate::support::{Node, image, layer};

#[tokio::test(flavor = "multi_thread")]
async fn many_pulls_of_many_layers_end_with_the_least_memory_there_can_be() {
    let node = Node::with(|options| {
        options.memory = LEAST_MEMORY;
        options.max_parallel_layers = 256;
    })
    .await;
    let names: Vec<String> = (0_usize..6).map(|n| format!("app{n}:v1")).collect();
    for (n, name) in names.iter().enumerate() {
        let mut image = image();
        for l in 0_usize..10 {
            // Small ones, ones that fit into a few buffers, ones that do not.
            let bytes = [1_000, 300_000, 1_500_000][l % 3];
            image = image.layer(layer(&format!("d/{n}-{l}"), (n * 10 + l) as u64, bytes));
        }
        let (repository, tag) = name.split_once(':').expect("a tag");
        node.registry.push(repository, tag, &image.build());
    }
    let pulls = names.iter().map(|name| node.pull(name));
    for (n, pulled) in futures::future::join_all(pulls).await.into_iter().enumerate() {
        let id = pulled.expect("ends");
        assert_eq!(node.file(&id, &format!("d/{n}-8")).expect("its last layer").len(), 1_500_000);
    }
    node.check_clean().await;
}
