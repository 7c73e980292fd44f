//! The parameters of requests, read as the API server writes them. Pure.

use cri_api::{AttachRequest, ExecRequest};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use kuberuntime::logs::LogOptions;

use crate::kubelet_api::access::Refusal;

/// A request for a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogQuery {
    pub(crate) options: LogOptions,
    pub(crate) follow: bool,
    pub(crate) previous: bool,
}

fn pairs(query: &str) -> Vec<(String, String)> {
    url::form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

fn is_true(value: &str) -> bool {
    matches!(value, "1" | "true" | "True" | "TRUE" | "t" | "T")
}

/// Reads a request for a log.
pub(crate) fn logs(query: &str, now: Timestamp) -> Result<LogQuery, Refusal> {
    let invalid = |name: &str, value: &str, why: &str| {
        Refusal(StatusCode::UNPROCESSABLE_ENTITY, format!("{name}: Invalid value: {value:?}: {why}"))
    };
    let number = |name: &str, value: &str, least: u64| {
        let read = value.parse::<u64>().ok().filter(|number| *number >= least);
        read.ok_or_else(|| invalid(name, value, &format!("must be greater than or equal to {least}")))
    };
    let (mut read, mut seconds) = (LogQuery::default(), None);
    for (name, value) in pairs(query) {
        match name.as_str() {
            "follow" => read.follow = is_true(&value),
            "previous" => read.previous = is_true(&value),
            "timestamps" => read.options.timestamps = is_true(&value),
            // kubectl sends -1 for all lines.
            "tailLines" if value == "-1" => read.options.tail = None,
            "tailLines" => read.options.tail = Some(number(&name, &value, 0)?),
            "limitBytes" => read.options.limit_bytes = Some(number(&name, &value, 1)?),
            "sinceSeconds" => seconds = Some(number(&name, &value, 1)?),
            "sinceTime" => {
                let time = value.parse().map_err(|_| invalid(&name, &value, "must be a time of RFC 3339"))?;
                read.options.since = Some(time);
            }
            "stream" if value != "All" => return Err(invalid(&name, &value, "only All is supported")),
            _ => {}
        }
    }
    if let Some(seconds) = seconds {
        if read.options.since.is_some() {
            let text = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            return Err(Refusal(StatusCode::UNPROCESSABLE_ENTITY, text.to_owned()));
        }
        let age = i64::try_from(seconds).ok().map(SignedDuration::from_secs);
        // An age beyond the range of timestamps means the whole log.
        read.options.since = age.and_then(|age| now.checked_sub(age).ok());
    }
    Ok(read)
}

/// The streams that a request wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Streams {
    stdin: bool,
    stdout: bool,
    stderr: bool,
    tty: bool,
}

fn streams(pairs: &[(String, String)]) -> Result<Streams, Refusal> {
    let on = |name: &str| pairs.iter().any(|(found, value)| found == name && is_true(value));
    let tty = on("tty");
    // A terminal has no standard error of its own.
    let streams = Streams { stdin: on("input"), stdout: on("output"), stderr: on("error") && !tty, tty };
    if !(streams.stdin || streams.stdout || streams.stderr) {
        let text = "you must specify at least 1 of stdin, stdout, stderr";
        return Err(Refusal(StatusCode::BAD_REQUEST, text.to_owned()));
    }
    Ok(streams)
}

/// Reads a request to run a command.
pub(crate) fn exec(query: &str, container_id: String) -> Result<ExecRequest, Refusal> {
    let pairs = pairs(query);
    let Streams { stdin, stdout, stderr, tty } = streams(&pairs)?;
    let command: Vec<String> =
        pairs.into_iter().filter(|(name, _)| name == "command").map(|(_, value)| value).collect();
    if command.is_empty() {
        return Err(Refusal(StatusCode::BAD_REQUEST, "you must specify a command".to_owned()));
    }
    Ok(ExecRequest { container_id, command, tty, stdin, stdout, stderr })
}

/// Reads a request for a process's own streams.
pub(crate) fn attach(query: &str, container_id: String) -> Result<AttachRequest, Refusal> {
    let Streams { stdin, stdout, stderr, tty } = streams(&pairs(query))?;
    Ok(AttachRequest { container_id, tty, stdin, stdout, stderr })
}

/// Reads the ports of a request; clients of SPDY name them later.
pub(crate) fn ports(query: &str) -> Result<Vec<u16>, Refusal> {
    let ports = pairs(query).into_iter().filter(|(name, _)| matches!(name.as_str(), "port" | "ports"));
    let values: Vec<String> =
        ports.flat_map(|(_, value)| value.split(',').map(str::to_owned).collect::<Vec<_>>()).collect();
    let read = |value: &String| {
        value
            .parse::<u16>()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| Refusal(StatusCode::BAD_REQUEST, format!("port {value:?} is no port")))
    };
    values.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_for_logs_are_read() {
        let now: Timestamp = "2026-11-24T12:00:00Z".parse().expect("a time");
        let all = logs("follow=true&tailLines=5&limitBytes=9&timestamps=1&previous=true&sinceSeconds=60&pretty=x", now);
        let options = LogOptions {
            tail: Some(5),
            since: Some("2026-11-24T11:59:00Z".parse().expect("a time")),
            timestamps: true,
            limit_bytes: Some(9),
        };
        assert_eq!(all, Ok(LogQuery { options, follow: true, previous: true }));
        let since = logs("sinceTime=2026-11-24T10%3A00%3A00%2B01%3A00&follow=false", now).expect("it can be read");
        assert_eq!(
            (since.options.since.map(|t| t.to_string()), since.follow),
            (Some("2026-11-24T09:00:00Z".to_owned()), false)
        );
        assert_eq!(logs("", now), Ok(LogQuery::default()));
        assert_eq!(logs("tailLines=-1&sinceSeconds=18446744073709551615", now), Ok(LogQuery::default()));
        for bad in [
            "tailLines=-2",
            "tailLines=x",
            "limitBytes=0",
            "sinceSeconds=0",
            "sinceTime=yesterday",
            "sinceSeconds=1&sinceTime=2026-11-24T10:00:00Z",
            "stream=Stderr",
        ] {
            assert_eq!(logs(bad, now).expect_err(bad).0, StatusCode::UNPROCESSABLE_ENTITY, "{bad}");
        }
    }

    #[test]
    fn requests_to_enter_are_read() {
        let request =
            exec("command=sh&command=-c&command=echo%20a%26b&input=1&output=1&error=1&tty=1", "id".to_owned());
        let want = ExecRequest {
            container_id: "id".to_owned(),
            command: ["sh", "-c", "echo a&b"].map(str::to_owned).into(),
            tty: true,
            stdin: true,
            stdout: true,
            stderr: false,
        };
        assert_eq!(request, Ok(want));
        assert_eq!(exec("command=sh&tty=1", String::new()).expect_err("no stream").0, StatusCode::BAD_REQUEST);
        assert_eq!(exec("output=1", String::new()).expect_err("no command").0, StatusCode::BAD_REQUEST);
        let request = attach("output=1&error=true&input=false", "id".to_owned()).expect("it can be read");
        assert!(request.stdout && request.stderr && !request.stdin && !request.tty);
        assert_eq!(ports("port=80&port=443,8080"), Ok(vec![80, 443, 8080]));
        assert_eq!(ports(""), Ok(Vec::new()));
        for bad in ["port=0", "port=x", "port=65536"] {
            assert_eq!(ports(bad).expect_err(bad).0, StatusCode::BAD_REQUEST);
        }
    }
}
