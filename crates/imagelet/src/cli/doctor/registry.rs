//! Checks of an image's registry: a HEAD request for the manifest, by the mirrors and with the credentials of a pull, and the clock that the
//! answer reports. Pulls nothing.

use std::time::Duration;

use credentials::Requester;
use cri_api::Kind;
use oci::Reference;
use tokio::time::timeout;

use super::finding::Finding;
use crate::app::App;
use crate::exit::{Failure, Outcome, chain};
use crate::images::registries;
use crate::manager;

const REGISTRY: &str = "registry";
const CLOCK: &str = "clock";

/// Time in which the registry must answer: as long as a pull waits for a host that cannot be reached.
const ANSWER: Duration = Duration::from_secs(30);
/// Seconds of difference that are worth a warning.
const WARN: i64 = 10;
/// Seconds of difference from which tokens and certificates may count as invalid.
const FAIL: i64 = 300;

/// Parses the image of the command line.
pub(super) fn parse(image: Option<&str>) -> Outcome<Option<Reference>> {
    let parsed = image
        .map(|image| Reference::parse(image).map_err(|error| Failure::usage(format!("{image:?}: {}", chain(&error)))));
    parsed.transpose()
}

/// Checks registry and clock.
pub(super) async fn checks(app: &App, image: Option<&Reference>) -> Vec<Finding> {
    let Some(image) = image else {
        let why = "no image is given: imagelet doctor IMAGE asks its registry";
        return [REGISTRY, CLOCK].map(|check| Finding::skipped(check, why)).into();
    };
    let late = || {
        let message = format!("{} gave no answer within {}s", image.domain(), ANSWER.as_secs());
        (Finding::error(REGISTRY, message, unreachable(app)), None)
    };
    let (finding, clock_ahead) = timeout(ANSWER, ask(app, image)).await.unwrap_or_else(|_| late());
    vec![finding, clock(clock_ahead)]
}

/// Asks with one credential after the other until one works. Returns the seconds by which this clock is ahead as well.
async fn ask(app: &App, image: &Reference) -> (Finding, Option<i64>) {
    // A pull would fail by the same error.
    let broken = |error: String| {
        (
            Finding::error(
                REGISTRY,
                format!("find the credentials: {error}"),
                "correct the file that the message names",
            ),
            None,
        )
    };
    let keyring = match manager::user_keyring(&app.config, &app.environment).await {
        Ok(keyring) => keyring,
        Err(failure) => return broken(failure.lines().join("; ")),
    };
    let found = match keyring.candidates(image, &Requester::default()).await {
        Ok(found) => found,
        Err(error) => return broken(chain(&error)),
    };
    let registries = registries(&app.config, &app.environment.proxies);
    let candidates = found.candidates.into_iter().map(|candidate| (candidate.source.to_string(), Some(candidate.auth)));
    let mut candidates: Vec<_> = candidates.collect();
    if candidates.is_empty() {
        candidates.push(("no credential".to_owned(), None));
    }
    let mut refused = Vec::new();
    for (source, auth) in candidates {
        match registries.image_head(image, auth).await {
            Ok(head) => {
                let message = format!("{} has {image}, with {source}", head.host);
                return (Finding::ok(REGISTRY, message), head.clock_ahead);
            }
            Err(error) if matches!(error.kind(), Kind::Unauthenticated | Kind::PermissionDenied) => {
                refused.push(format!("{source}: {}", error.message()));
            }
            Err(error) => {
                let remedy = match error.kind() {
                    Kind::NotFound => "check the name and the tag".to_owned(),
                    Kind::FailedPrecondition => "correct the hosts.toml of the registry".to_owned(),
                    _ => unreachable(app),
                };
                return (Finding::error(REGISTRY, error.message(), remedy), None);
            }
        }
    }
    let remedy = format!(
        "imagelet login {}; `imagelet explain --check-credentials {image}` shows every credential",
        image.domain()
    );
    (Finding::error(REGISTRY, refused.join("; "), remedy), None)
}

/// Returns the remedy for a registry that gives no usable answer.
fn unreachable(app: &App) -> String {
    let hosts: Vec<String> = app.config.registry_config_paths.iter().map(|path| path.display().to_string()).collect();
    let hosts = if hosts.is_empty() { "registryConfigPaths".to_owned() } else { hosts.join(" or ") };
    format!("check DNS, the firewall and HTTPS_PROXY, or name a mirror in a hosts.toml below {hosts}")
}

fn clock(ahead: Option<i64>) -> Finding {
    let Some(ahead) = ahead else { return Finding::skipped(CLOCK, "the registry reported no time") };
    let direction = if ahead < 0 { "behind" } else { "ahead of" };
    let message = format!("{}s {direction} the registry's clock", ahead.unsigned_abs());
    let remedy = "set the clock: systemctl enable --now systemd-timesyncd";
    match i64::try_from(ahead.unsigned_abs()).unwrap_or(i64::MAX) {
        difference if difference >= FAIL => {
            Finding::error(CLOCK, format!("{message}: certificates and tokens may count as invalid"), remedy)
        }
        difference if difference >= WARN => Finding::warning(CLOCK, message, remedy),
        _ => Finding::ok(CLOCK, "agrees with the registry's clock"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn clock_is_judged_by_the_difference() {
        for (ahead, result, words) in [
            (Some(0), Verdict::Ok, "agrees"),
            (Some(-9), Verdict::Ok, "agrees"),
            (Some(10), Verdict::Warning, "10s ahead of"),
            (Some(-299), Verdict::Warning, "299s behind"),
            (Some(300), Verdict::Error, "300s ahead of"),
            (Some(i64::MIN), Verdict::Error, "behind"),
            (None, Verdict::Skipped, "no time"),
        ] {
            let finding = clock(ahead);
            assert!(finding.result == result && finding.details().contains(words), "{ahead:?}: {finding:?}");
        }
    }
}
