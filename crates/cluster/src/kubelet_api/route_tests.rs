//! Every route in many spellings: a spelling has one target with the access of that target, or none at all.

use super::*;

/// The routes with the access that each needs, and the name of the target.
pub(crate) const ROUTES: &[(&str, &str, &str, &str)] = &[
    ("GET", "/healthz", "get nodes/healthz, get nodes/proxy", "Health"),
    ("GET", "/healthz/ping", "get nodes/healthz, get nodes/proxy", "Health"),
    ("GET", "/healthz/log", "get nodes/healthz, get nodes/proxy", "Health"),
    ("GET", "/healthz/syncloop", "get nodes/healthz, get nodes/proxy", "Health"),
    ("GET", "/pods", "get nodes/pods, get nodes/proxy", "Pods"),
    ("GET", "/configz", "get nodes/configz, get nodes/proxy", "Configuration"),
    ("GET", "/metrics", "get nodes/metrics", "Metrics"),
    ("GET", "/metrics/resource", "get nodes/metrics", "ResourceMetrics"),
    ("GET", "/stats/summary", "get nodes/stats", "Summary"),
    ("GET", "/containerLogs/n/p/c", "get nodes/proxy", "Logs"),
    ("GET", "/exec/n/p/c", "create nodes/proxy", "Exec"),
    ("POST", "/exec/n/p/c", "create nodes/proxy", "Exec"),
    ("POST", "/exec/n/p/u/c", "create nodes/proxy", "Exec"),
    ("GET", "/attach/n/p/c", "create nodes/proxy", "Attach"),
    ("POST", "/attach/n/p/u/c", "create nodes/proxy", "Attach"),
    ("GET", "/portForward/n/p", "create nodes/proxy", "PortForward"),
    ("POST", "/portForward/n/p/u", "create nodes/proxy", "PortForward"),
];

fn parse(method: &str, path: &str) -> Option<Route> {
    Route::parse(&method.parse().expect("a method"), path)
}

fn shown(route: &Route) -> (String, String) {
    let access = route.access.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let target = format!("{:?}", route.target);
    (access, target.split(['(', ' ']).next().unwrap_or_default().to_owned())
}

/// Spellings of a path that some readers of paths take for the path itself.
pub(crate) fn spellings(path: &str) -> Vec<String> {
    let inner = &path[1..];
    let (first, rest) = inner.split_at(inner.find('/').unwrap_or(inner.len()));
    let first_escaped: String = first.bytes().map(|byte| format!("%{byte:02x}")).collect();
    // A slash after the only segment is allowed.
    let empty = if rest.is_empty() { format!("/{first}///") } else { format!("/{first}/{rest}") };
    vec![
        empty,
        format!("/{path}"),
        format!("//{path}"),
        format!("/.{path}"),
        format!("/..{path}"),
        format!("/x/..{path}"),
        format!("/pods/..{path}"),
        format!("/healthz/..{path}"),
        format!("/%2e{path}"),
        format!("/%2e%2e{path}"),
        format!("/%2f{inner}"),
        format!("/%2F{inner}"),
        format!("/%5c{inner}"),
        format!("/\\{inner}"),
        format!("/{first_escaped}{rest}"),
        format!("/%25{inner}"),
        format!("/{first}%00{rest}"),
        format!("/{first}%20{rest}"),
        format!("/{first}/.{rest}/x"),
        format!("{path}//"),
        format!("{path}/."),
        format!("{path}/.."),
        format!("{path}%2f"),
        format!("{path}%00"),
        format!("{path}%3fx"),
        format!("{path}/%2e%2e/{first}"),
        inner.to_owned(),
    ]
}

#[test]
fn every_route_has_its_access() {
    for (method, path, access, target) in ROUTES {
        let route = parse(method, path).expect(path);
        assert_eq!(shown(&route), ((*access).to_owned(), (*target).to_owned()), "{method} {path}");
    }
}

#[test]
fn other_spellings_of_every_route_are_no_routes() {
    let mut tried = std::collections::BTreeSet::new();
    for (method, path, ..) in ROUTES {
        for spelling in spellings(path) {
            assert_eq!(parse(method, &spelling), None, "{method} {spelling}");
            tried.insert(spelling);
        }
    }
    assert!(tried.len() > 300, "{}", tried.len());
}

#[test]
fn unknown_paths_need_what_the_kubelet_asks_for() {
    for (method, path, access, target) in [
        ("GET", "/", "get nodes/proxy", "Unknown"),
        ("DELETE", "/", "delete nodes/proxy", "Unknown"),
        ("PUT", "/x", "update nodes/proxy", "Unknown"),
        ("PATCH", "/x/y", "patch nodes/proxy", "Unknown"),
        ("GET", "/metricsx", "get nodes/proxy", "Unknown"),
        ("GET", "/metrics/cadvisor", "get nodes/metrics", "Unknown"),
        ("GET", "/stats", "get nodes/stats", "Unknown"),
        ("GET", "/logs", "get nodes/log", "Unknown"),
        ("GET", "/logs/", "get nodes/log", "Unknown"),
        ("GET", "/logs/syslog", "get nodes/log", "Unknown"),
        ("GET", "/pods/", "get nodes/pods, get nodes/proxy", "Pods"),
        ("GET", "/healthz/", "get nodes/healthz, get nodes/proxy", "Health"),
        ("HEAD", "/pods", "get nodes/pods, get nodes/proxy", "Pods"),
        ("GET", "/runningpods/", "get nodes/pods, get nodes/proxy", "Unknown"),
        ("POST", "/pods", "create nodes/pods, create nodes/proxy", "OtherMethod"),
        ("PUT", "/metrics", "update nodes/metrics", "OtherMethod"),
        ("POST", "/containerLogs/n/p/c", "create nodes/proxy", "OtherMethod"),
        ("GET", "/containerLogs/n/p", "get nodes/proxy", "Unknown"),
        ("GET", "/exec", "create nodes/proxy", "Unknown"),
        ("GET", "/exec/", "create nodes/proxy", "Unknown"),
        ("GET", "/exec/n/p", "create nodes/proxy", "Unknown"),
        ("GET", "/exec/n/p/u/c/x", "create nodes/proxy", "Unknown"),
        ("PUT", "/exec/n/p/c", "create nodes/proxy", "OtherMethod"),
        ("HEAD", "/attach/n/p/c", "create nodes/proxy", "OtherMethod"),
        ("DELETE", "/portForward/n/p", "create nodes/proxy", "OtherMethod"),
        ("GET", "/portForward/n", "create nodes/proxy", "Unknown"),
        ("POST", "/run/n/p/c", "create nodes/proxy", "Unknown"),
        ("GET", "/run/n/p/c", "create nodes/proxy", "Unknown"),
        ("GET", "/checkpoint/n/p/c", "create nodes/checkpoint", "Unknown"),
        ("POST", "/checkpoint/n/p/c", "create nodes/checkpoint", "Unknown"),
        // Case counts, and a parameter is part of its segment.
        ("GET", "/Exec/n/p/c", "get nodes/proxy", "Unknown"),
        ("GET", "/portforward/n/p", "get nodes/proxy", "Unknown"),
        ("GET", "/exec;x/n/p/c", "get nodes/proxy", "Unknown"),
        ("GET", "/debug/pprof/heap", "get nodes/proxy", "Unknown"),
    ] {
        let route = parse(method, path).expect(path);
        assert_eq!(shown(&route), (access.to_owned(), target.to_owned()), "{method} {path}");
    }
    for path in ["", "*", "/exec/n/p/c/", "/containerLogs/n/p/", "/stats/summary/", "//", "/pods//"] {
        assert_eq!(parse("GET", path), None, "{path:?}");
    }
}

#[test]
fn the_parts_of_a_path_are_where_they_belong() {
    let target = |path: &str| parse("GET", path).expect(path).target;
    let pod = |uid: Option<&str>| PodPath::new("n", "p", uid);
    let container = |uid| ContainerPath { pod: pod(uid), container: "c".to_owned() };
    assert_eq!(target("/containerLogs/n/p/c"), Target::Logs(container(None)));
    assert_eq!(target("/exec/n/p/c"), Target::Exec(container(None)));
    assert_eq!(target("/exec/n/p/u/c"), Target::Exec(container(Some("u"))));
    assert_eq!(target("/attach/n/p/u/c"), Target::Attach(container(Some("u"))));
    assert_eq!(target("/portForward/n/p"), Target::PortForward(pod(None)));
    assert_eq!(target("/portForward/n/p/u"), Target::PortForward(pod(Some("u"))));
}
