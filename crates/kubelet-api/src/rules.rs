//! The access that a request needs, as the kubelet has it: a subresource of the node by its path, a verb by its method. Pure. Anything that is not
//! listed needs `nodes/proxy`.

use http::Method;

use crate::authority::Access;

/// The accesses of which one suffices, the narrowest first.
pub(crate) fn needed(method: &Method, path: &str) -> Vec<Access> {
    let is_below = |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let subresources: &[&'static str] = if is_below("/stats") {
        &["stats"]
    } else if is_below("/metrics") {
        &["metrics"]
    } else if is_below("/logs") {
        &["log"]
    } else if is_below("/pods") {
        &["pods", "proxy"]
    } else if is_below("/healthz") {
        &["healthz", "proxy"]
    } else if is_below("/configz") {
        &["configz", "proxy"]
    } else {
        &["proxy"]
    };
    // A WebSocket is asked for with GET, and runs commands all the same.
    let enters = ["/exec", "/attach", "/portForward"].iter().any(|root| is_below(root));
    let verb = if enters { "create" } else { verb(method) };
    subresources.iter().map(|subresource| Access { verb, subresource }).collect()
}

fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "get",
    }
}

/// The kubelet's words for somebody who may not.
pub(crate) fn forbidden(user: &str, needed: &[Access]) -> String {
    let verb = needed.first().map_or("get", |access| access.verb);
    let subresources: Vec<&str> = needed.iter().map(|access| access.subresource).collect();
    format!("Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{}])\n", subresources.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_needs_a_subresource() {
        let of = |method: Method, path: &str| {
            needed(&method, path).iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        for (method, path, want) in [
            (Method::GET, "/stats/summary", "get nodes/stats"),
            (Method::GET, "/metrics", "get nodes/metrics"),
            (Method::GET, "/metrics/resource", "get nodes/metrics"),
            (Method::GET, "/metricsx", "get nodes/proxy"),
            (Method::GET, "/logs/", "get nodes/log"),
            (Method::GET, "/pods", "get nodes/pods, get nodes/proxy"),
            (Method::GET, "/healthz", "get nodes/healthz, get nodes/proxy"),
            (Method::GET, "/configz", "get nodes/configz, get nodes/proxy"),
            (Method::GET, "/containerLogs/a/b/c", "get nodes/proxy"),
            (Method::POST, "/exec/a/b/c", "create nodes/proxy"),
            (Method::GET, "/exec/a/b/c", "create nodes/proxy"),
            (Method::GET, "/attach/a/b/c", "create nodes/proxy"),
            (Method::GET, "/portForward/a/b", "create nodes/proxy"),
            (Method::DELETE, "/", "delete nodes/proxy"),
            (Method::PUT, "/x", "update nodes/proxy"),
            (Method::PATCH, "/x", "patch nodes/proxy"),
            (Method::HEAD, "//stats/summary", "get nodes/proxy"),
        ] {
            assert_eq!(of(method, path), want, "{path}");
        }
    }

    #[test]
    fn the_refusal_has_the_kubelets_words() {
        let text = forbidden("ada", &needed(&Method::GET, "/pods"));
        assert_eq!(text, "Forbidden (user=ada, verb=get, resource=nodes, subresource(s)=[pods proxy])\n");
    }
}
