//! Examples of commands whose arguments are defined without examples. Called by [`super::whole`].

/// Command and its examples.
pub(super) const EXAMPLES: [(&str, &str); 21] = [
    (
        "images",
        "  imagelet images
  imagelet images busybox                                all tags of a repository
  imagelet images -f label=tier=web -f until=24h         what fits all filters
  imagelet images --sort size -o wide
  imagelet images -o jsonpath='{range .items[*]}{.id}{\"\\t\"}{.size}{\"\\n\"}{end}'
  imagelet images -o custom-columns=ID:.id,NAMES:.repoTags[*]",
    ),
    (
        "inspect",
        "  imagelet inspect busybox:1
  imagelet inspect busybox:1 -o jsonpath='{.items[0].config.config.Env}'",
    ),
    (
        "rmi",
        "  imagelet rmi busybox:1
  imagelet rmi $(imagelet images -q -f dangling=true)",
    ),
    ("df", "  imagelet df\n  imagelet df -o json"),
    ("unpin", "  imagelet unpin registry.example/app:1"),
    ("pins", "  imagelet pins\n  imagelet pins -o json"),
    ("status", "  imagelet status\n  imagelet status -o jsonpath='{.conditions[?(@.type==\"DiskPressure\")].status}'"),
    ("mount", "  imagelet mount busybox:1 /mnt\n  imagelet mount --writable ./changes busybox:1 /mnt"),
    ("unmount", "  imagelet unmount /mnt"),
    ("import", "  imagelet import image.tar\n  imagelet import --name registry.example/app:1 ./layout"),
    (
        "export",
        "  imagelet export busybox:1 -o busybox.tar --format docker-archive\n  imagelet export busybox:1 -o ./layout",
    ),
    ("pods", "  imagelet pods\n  imagelet pods -n shop -o wide\n  imagelet pods --watch"),
    ("describe", "  imagelet describe web\n  imagelet describe shop/web -o yaml"),
    ("events", "  imagelet events\n  imagelet events web --watch"),
    ("top", "  imagelet top\n  imagelet top | head -20                       once, as plain text"),
    ("metrics", "  imagelet metrics | grep imagelet_pull"),
    (
        "fleet",
        "  imagelet fleet apply -f web.yaml                       create or change a set
  imagelet fleet watch web                               follow its rollout
  imagelet fleet why node-7 registry.example/web:2.1     why a node has an image, or not",
    ),
    ("version", "  imagelet version\n  imagelet version -o jsonpath='{.version}'"),
    ("check", "  imagelet check\n  imagelet check --repair"),
    ("save", "  imagelet save busybox:1 -o busybox.tar\n  imagelet save busybox:1 | ssh node imagelet load"),
    ("load", "  imagelet load -i busybox.tar\n  imagelet load < busybox.tar"),
];
