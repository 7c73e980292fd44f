//! The text that a scrape sees, exactly: names, types, help, labels, buckets.

use prometheus_client::encoding::text;

use super::*;

/// The lines of a scrape whose names have this prefix.
fn shown(metrics: &Metrics, name: &str) -> String {
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let mut out = String::new();
    text::encode(&mut out, &registry).expect("a string takes everything");
    let of = |line: &&str| line.trim_start_matches("# HELP ").trim_start_matches("# TYPE ").starts_with(name);
    out.lines().filter(of).map(|line| format!("{line}\n")).collect()
}

#[test]
fn plain_metrics_are_there_from_the_start() {
    let mut registry = Registry::default();
    Metrics::new().register(&mut registry);
    let mut out = String::new();
    text::encode(&mut out, &registry).expect("a string takes everything");
    let wait_buckets: String = ["0.005", "0.025", "0.1", "0.5", "1.0", "5.0", "10.0", "30.0", "60.0", "120.0", "300.0"]
        .into_iter()
        .chain(["600.0", "1800.0", "3600.0", "+Inf"])
        .map(|le| format!("imagelet_pull_queue_wait_seconds_bucket{{le=\"{le}\"}} 0\n"))
        .collect();
    let want = format!(
        "\
# HELP kubelet_imagemanager_ondisk_pullintents Pull intents on disk.
# TYPE kubelet_imagemanager_ondisk_pullintents gauge
kubelet_imagemanager_ondisk_pullintents 0
# HELP kubelet_imagemanager_ondisk_pulledrecords Pulled records on disk.
# TYPE kubelet_imagemanager_ondisk_pulledrecords gauge
kubelet_imagemanager_ondisk_pulledrecords 0
# HELP kubelet_imagemanager_inmemory_pullintents_usage_percent How full the memory for pull intents is, in percent.
# TYPE kubelet_imagemanager_inmemory_pullintents_usage_percent gauge
kubelet_imagemanager_inmemory_pullintents_usage_percent 0
# HELP kubelet_imagemanager_inmemory_pulledrecords_usage_percent How full the memory for pulled records is, in percent.
# TYPE kubelet_imagemanager_inmemory_pulledrecords_usage_percent gauge
kubelet_imagemanager_inmemory_pulledrecords_usage_percent 0
# HELP imagelet_pull_queue_length Pulls that wait for their turn.
# TYPE imagelet_pull_queue_length gauge
imagelet_pull_queue_length 0
# HELP imagelet_pull_queue_wait_seconds Time that pulls waited for their turn.
# TYPE imagelet_pull_queue_wait_seconds histogram
imagelet_pull_queue_wait_seconds_sum 0.0
imagelet_pull_queue_wait_seconds_count 0
{wait_buckets}\
# HELP imagelet_pulls_coalesced Requests that joined a pull of another.
# TYPE imagelet_pulls_coalesced counter
imagelet_pulls_coalesced_total 0
# HELP imagelet_pulls_in_flight Pulls that run.
# TYPE imagelet_pulls_in_flight gauge
imagelet_pulls_in_flight 0
# HELP imagelet_pulled_bytes Compressed bytes of layers that came from registries, as far as the image service tells.
# TYPE imagelet_pulled_bytes counter
imagelet_pulled_bytes_total 0
# HELP imagelet_pulls_throttled Pulls that registryPullQPS refused or made wait.
# TYPE imagelet_pulls_throttled counter
imagelet_pulls_throttled_total 0
# HELP imagelet_backoff_entries Images of pods that are in back-off.
# TYPE imagelet_backoff_entries gauge
imagelet_backoff_entries 0
# EOF
"
    );
    assert_eq!(out, want, "what has labels appears with its first use");
}

#[test]
fn pulls_are_timed_by_the_size_of_the_image() {
    let metrics = Metrics::new();
    metrics.pull_duration(Some(50 * MIB), Duration::from_millis(7250));
    metrics.pull_duration(Some(100 * MIB), Duration::from_secs(20));
    let name = "kubelet_image_pull_duration_seconds";
    let mut want = format!(
        "# HELP {name} Time from the start of a successful pull, waiting included, by the size of the image.\n\
         # TYPE {name} histogram\n\
         {name}_sum{{image_size_in_bytes=\"10MB-100MB\"}} 27.25\n\
         {name}_count{{image_size_in_bytes=\"10MB-100MB\"}} 2\n"
    );
    let bounds = [1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600];
    for bound in bounds {
        let count = match bound {
            ..=5 => 0,
            6..=10 => 1,
            _ => 2,
        };
        want += &format!("{name}_bucket{{le=\"{bound}.0\",image_size_in_bytes=\"10MB-100MB\"}} {count}\n");
    }
    want += &format!("{name}_bucket{{le=\"+Inf\",image_size_in_bytes=\"10MB-100MB\"}} 2\n");
    assert_eq!(shown(&metrics, name), want);
}

#[test]
fn classes_of_image_size_begin_above_their_bound() {
    let cases = [
        (0, "N/A"),
        (1, "0-10MB"),
        (10 * MIB, "0-10MB"),
        (10 * MIB + 1, "10MB-100MB"),
        (100 * MIB + 1, "100MB-500MB"),
        (500 * MIB + 1, "500MB-1GB"),
        (GIB, "500MB-1GB"),
        (GIB + 1, "1GB-5GB"),
        (5 * GIB + 1, "5GB-10GB"),
        (10 * GIB + 1, "10GB-20GB"),
        (20 * GIB + 1, "20GB-30GB"),
        (30 * GIB + 1, "30GB-40GB"),
        (40 * GIB + 1, "40GB-60GB"),
        (60 * GIB + 1, "60GB-100GB"),
        (100 * GIB, "60GB-100GB"),
        (100 * GIB + 1, "GT100GB"),
        (u64::MAX, "GT100GB"),
    ];
    for (size, class) in cases {
        assert_eq!(size_labels(size_class(size)), [("image_size_in_bytes", class)], "{size}");
    }
    let metrics = Metrics::new();
    metrics.pull_duration(None, Duration::ZERO);
    let text = shown(&metrics, "kubelet_image_pull_duration_seconds_count");
    assert_eq!(text, "kubelet_image_pull_duration_seconds_count{image_size_in_bytes=\"N/A\"} 1\n");
}

#[test]
fn each_request_is_one_sample() {
    let name = "kubelet_image_manager_ensure_image_requests";
    let policies = [PullPolicy::Always, PullPolicy::IfNotPresent, PullPolicy::Never];
    let three = [Some(true), Some(false), None];
    let word = |known: Option<bool>| known.map_or("unknown".to_owned(), |known| known.to_string());
    for policy in policies {
        for present in three {
            for required in three {
                let metrics = Metrics::new();
                metrics.ensure_request(policy, present, required);
                let want = format!(
                    "# HELP {name} Requests for an image, by pull policy, whether the image was present, and whether \
                     it had to be pulled.\n# TYPE {name} counter\n{name}_total{{pull_policy=\"{}\",\
                     present_locally=\"{}\",pull_required=\"{}\"}} 1\n",
                    policy.as_str().to_lowercase(),
                    word(present),
                    word(required)
                );
                assert_eq!(shown(&metrics, name), want);
            }
        }
    }
}

#[test]
fn records_follow_their_changes() {
    let metrics = Metrics::new();
    metrics.on_disk(2, 5);
    metrics.on_disk(-1, 0);
    metrics.in_memory_usage(RecordKind::Intents, 3);
    metrics.in_memory_usage(RecordKind::Records, 100);
    metrics.in_memory_usage(RecordKind::Records, 99);
    let values: String =
        shown(&metrics, "kubelet_imagemanager_").lines().filter(|l| !l.starts_with('#')).collect::<Vec<_>>().join("\n");
    assert_eq!(
        values,
        "kubelet_imagemanager_ondisk_pullintents 1\n\
         kubelet_imagemanager_ondisk_pulledrecords 5\n\
         kubelet_imagemanager_inmemory_pullintents_usage_percent 3\n\
         kubelet_imagemanager_inmemory_pulledrecords_usage_percent 99"
    );
}

#[test]
fn checks_are_counted_by_result() {
    let metrics = Metrics::new();
    for (index, (result, _)) in MustPullResult::ALL.into_iter().enumerate() {
        assert_eq!(result as usize, index);
        metrics.must_pull_check(result);
    }
    metrics.must_pull_check(MustPullResult::MustAuthenticate);
    let name = "kubelet_imagemanager_image_mustpull_checks";
    assert_eq!(
        shown(&metrics, name),
        format!(
            "# HELP {name} Checks whether a present image must be pulled to verify credentials, by result.\n\
             # TYPE {name} counter\n\
             {name}_total{{result=\"credentialPolicyAllowed\"}} 1\n\
             {name}_total{{result=\"credentialRecordFound\"}} 1\n\
             {name}_total{{result=\"mustAuthenticate\"}} 2\n\
             {name}_total{{result=\"error\"}} 1\n"
        )
    );
}

#[test]
fn calls_of_the_service_are_counted_and_timed() {
    let metrics = Metrics::new();
    metrics.operation(Operation::PullImage, Duration::from_millis(10), true);
    metrics.operation(Operation::PullImage, Duration::from_millis(30), false);
    let name = "kubelet_runtime_operations";
    // 0.005 × 2.5 again and again, as floating point has it.
    let bounds: Vec<f64> = (0..14).scan(0.005, |next, _| Some(std::mem::replace(next, *next * 2.5))).collect();
    let mut want = format!(
        "# HELP {name} Calls of the image service and of the runtime, by operation.\n\
         # TYPE {name} counter\n\
         {name}_total{{operation_type=\"pull_image\"}} 2\n\
         # HELP {name}_duration_seconds Time that calls of the image service and of the runtime took, by operation.\n\
         # TYPE {name}_duration_seconds histogram\n\
         {name}_duration_seconds_sum{{operation_type=\"pull_image\"}} 0.04\n\
         {name}_duration_seconds_count{{operation_type=\"pull_image\"}} 2\n"
    );
    for (index, bound) in bounds.iter().enumerate() {
        let count = index.min(2);
        want += &format!("{name}_duration_seconds_bucket{{le=\"{bound}\",operation_type=\"pull_image\"}} {count}\n");
    }
    want += &format!(
        "{name}_duration_seconds_bucket{{le=\"+Inf\",operation_type=\"pull_image\"}} 2\n\
         # HELP {name}_errors Calls of the image service and of the runtime that failed or were given up, by \
         operation.\n\
         # TYPE {name}_errors counter\n\
         {name}_errors_total{{operation_type=\"pull_image\"}} 1\n"
    );
    assert_eq!(shown(&metrics, name), want);

    let metrics = Metrics::new();
    for (index, (operation, word)) in Operation::ALL.into_iter().enumerate() {
        assert_eq!(operation as usize, index);
        metrics.operation(operation, Duration::ZERO, true);
        let line = format!("{name}_total{{operation_type=\"{word}\"}} 1\n");
        assert!(shown(&metrics, name).contains(&line), "{line}");
    }
    assert_eq!(shown(&metrics, "kubelet_runtime_operations_errors"), "", "nothing failed");
}

#[test]
fn the_queue_and_its_pulls() {
    let metrics = Metrics::new();
    metrics.queue_length(3);
    metrics.queue_length(-1);
    metrics.queue_waited(Duration::from_millis(1500));
    metrics.coalesced();
    metrics.in_flight(1);
    metrics.pulled_bytes(7);
    metrics.pulled_bytes(1 << 40);
    metrics.throttled();
    metrics.backoff_entries(9);
    let values: Vec<String> = shown(&metrics, "imagelet_")
        .lines()
        .filter(|line| !line.starts_with('#') && !line.contains("_bucket{"))
        .map(str::to_owned)
        .collect();
    assert_eq!(
        values,
        [
            "imagelet_pull_queue_length 2",
            "imagelet_pull_queue_wait_seconds_sum 1.5",
            "imagelet_pull_queue_wait_seconds_count 1",
            "imagelet_pulls_coalesced_total 1",
            "imagelet_pulls_in_flight 1",
            "imagelet_pulled_bytes_total 1099511627783",
            "imagelet_pulls_throttled_total 1",
            "imagelet_backoff_entries 9",
        ]
    );
}

#[test]
fn failures_are_counted_by_cause() {
    let metrics = Metrics::new();
    for (index, cause) in Cause::ALL.into_iter().enumerate() {
        assert_eq!(cause as usize, index, "{cause}");
        metrics.failed(cause);
    }
    metrics.failed(Cause::RateLimited);
    let text = shown(&metrics, "imagelet_pull_failures");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("# HELP imagelet_pull_failures Failed pulls, by cause."));
    assert_eq!(lines.next(), Some("# TYPE imagelet_pull_failures counter"));
    for cause in Cause::ALL {
        let count = if cause == Cause::RateLimited { 2 } else { 1 };
        let want = format!("imagelet_pull_failures_total{{cause=\"{cause}\"}} {count}");
        assert_eq!(lines.next(), Some(want.as_str()));
    }
    assert_eq!(lines.next(), None);
}

#[test]
fn counting_makes_no_text() {
    let metrics = Metrics::new();
    let count = || {
        metrics.ensure_request(PullPolicy::IfNotPresent, Some(true), Some(false));
        metrics.must_pull_check(MustPullResult::CredentialRecordFound);
        metrics.operation(Operation::ImageStatus, Duration::from_millis(1), false);
        metrics.pull_duration(Some(1), Duration::from_secs(1));
        metrics.failed(Cause::NotFound);
        metrics.pulled_bytes(1);
        metrics.queue_length(1);
    };
    count();
    let again = allocation_counter::measure(count);
    assert_eq!(again.count_total, 0, "the first use of a series makes it, and no other");
}
