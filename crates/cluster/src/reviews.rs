//! [`Reviews`]: asks the API server whose a token is (TokenReview), and what a user may do at this node (SubjectAccessReview).
//! Caches no answer: the kubelet's port, which calls it, does.

use crate::kubelet_api::{Access, Authority, AuthorityError, Identity};
use async_trait::async_trait;
use oci::Secret;
use serde_json::{Value, json};

use crate::client::{ClusterClient, request, within};

/// The reviews of an API server.
pub struct Reviews {
    client: ClusterClient,
    node: String,
}

impl Reviews {
    /// Reviews for the node of this name.
    #[must_use]
    pub fn new(client: ClusterClient, node: String) -> Self {
        Self { client, node }
    }

    async fn ask(&self, uri: &str, body: &Value) -> Result<Value, AuthorityError> {
        Ok(within(self.client.current().request(request::post(uri, body))).await?)
    }
}

#[async_trait]
impl Authority for Reviews {
    async fn review_token(&self, token: &Secret) -> Result<Option<Identity>, AuthorityError> {
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token.expose()},
        });
        let answer = self.ask("/apis/authentication.k8s.io/v1/tokenreviews", &body).await?;
        Ok(bearer(&answer["status"]))
    }

    async fn review_access(&self, identity: &Identity, access: Access) -> Result<bool, AuthorityError> {
        let body = access_review(&self.node, identity, access);
        let answer = self.ask("/apis/authorization.k8s.io/v1/subjectaccessreviews", &body).await?;
        let status = &answer["status"];
        Ok(status["allowed"] == true && status["denied"] != true)
    }
}

/// Returns the user in the status of a TokenReview.
fn bearer(status: &Value) -> Option<Identity> {
    let user = &status["user"];
    let name = user["username"].as_str().filter(|name| !name.is_empty() && status["authenticated"] == true)?;
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
    };
    let extra = user["extra"].as_object().into_iter().flatten();
    Some(Identity {
        name: name.to_owned(),
        uid: user["uid"].as_str().unwrap_or_default().to_owned(),
        groups: texts(&user["groups"]),
        extra: extra.map(|(key, values)| (key.clone(), texts(values))).collect(),
    })
}

fn access_review(node: &str, identity: &Identity, access: Access) -> Value {
    let extra: Value = identity.extra.iter().map(|(key, values)| (key.clone(), json!(values))).collect();
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": identity.name, "uid": identity.uid, "groups": identity.groups, "extra": extra,
            "resourceAttributes": {
                "verb": access.verb, "group": "", "version": "v1", "resource": "nodes",
                "subresource": access.subresource, "name": node,
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_token_that_is_good_has_a_bearer() {
        let user = json!({"username": "ada", "uid": "7", "groups": ["staff"], "extra": {"k": ["a", "b"]}});
        let ada = bearer(&json!({"authenticated": true, "user": user})).expect("a bearer");
        assert_eq!((ada.name.as_str(), ada.uid.as_str(), &ada.groups[..]), ("ada", "7", &["staff".to_owned()][..]));
        assert_eq!(ada.extra, [("k".to_owned(), vec!["a".to_owned(), "b".to_owned()])]);
        for status in [
            json!({"authenticated": false, "user": user}),
            json!({"user": user}),
            json!({"authenticated": "true", "user": user}),
            json!({"authenticated": true, "user": {}}),
            json!({"authenticated": true, "error": "no"}),
            json!(null),
        ] {
            assert_eq!(bearer(&status), None, "{status}");
        }
    }

    #[test]
    fn an_access_is_reviewed_for_this_node() {
        let ada = Identity { name: "ada".into(), groups: vec!["staff".into()], ..Identity::default() };
        let review = access_review("edge", &ada, Access { verb: "get", subresource: "stats" });
        assert_eq!(review["spec"]["user"], "ada");
        assert_eq!(
            review["spec"]["resourceAttributes"],
            json!({"verb": "get", "group": "", "version": "v1", "resource": "nodes", "subresource": "stats", "name": "edge"})
        );
    }
}
