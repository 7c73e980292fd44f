//! Cases: commands in containers, and streams to them.

use std::time::Duration;

use super::super::bench::{Outcome, check, check_eq};
use super::bench::{RuntimeBench, failed};
use super::{Command, Program};
use crate::{AttachRequest, ExecRequest, Kind};

pub(super) async fn a_command_tells_output_and_code(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    let id = bench.started(&pod, "main", Program::Sleeps).await?;
    let command = bench.harness().command(Command::Speaks);
    for time in [Duration::ZERO, Duration::from_secs(30)] {
        let output = bench.service().exec_sync(&id, &command, time).await.map_err(|e| failed("exec", &e))?;
        let result = (output.stdout.as_slice(), output.stderr.as_slice(), output.exit_code);
        check_eq!(result, (b"out\n".as_slice(), b"err\n".as_slice(), 3), "output and exit code");
    }
    Ok(())
}

pub(super) async fn a_command_ends_with_its_time(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    let id = bench.started(&pod, "main", Program::Sleeps).await?;
    let command = bench.harness().command(Command::Hangs);
    let began = tokio::time::Instant::now();
    let result = bench.service().exec_sync(&id, &command, Duration::from_secs(1)).await;
    let took = began.elapsed();
    bench.refused("a command that hangs", result, &[Kind::DeadlineExceeded])?;
    check!(took >= Duration::from_secs(1) && took < Duration::from_secs(30), "it took {took:?}");
    check_eq!(bench.status(&id).await?.state, crate::ContainerState::Running, "state of the container");
    Ok(())
}

pub(super) async fn a_command_needs_a_running_container(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    let command = bench.harness().command(Command::Speaks);
    let created = bench.created(&pod, "created", Program::Sleeps).await?;
    let exited = bench.started(&pod, "exited", Program::Ends(0)).await?;
    bench.ended(&exited).await?;
    for id in [created, exited] {
        let result = bench.service().exec_sync(&id, &command, Duration::from_secs(5)).await;
        bench.refused("a command where nothing runs", result, &[Kind::FailedPrecondition])?;
    }
    let result = bench.service().exec_sync("no-such-container", &command, Duration::from_secs(5)).await;
    bench.refused("a command in no container", result, &[Kind::NotFound])
}

pub(super) async fn streams_have_addresses(bench: &RuntimeBench<'_>) -> Outcome {
    let pod = bench.pod("one").await?;
    let id = bench.started(&pod, "main", Program::Sleeps).await?;
    let service = bench.service();
    let exec = ExecRequest {
        container_id: id.clone(),
        command: bench.harness().command(Command::Speaks),
        stdout: true,
        stderr: true,
        ..ExecRequest::default()
    };
    let attach = AttachRequest { container_id: id, stdout: true, ..AttachRequest::default() };
    let urls = [
        service.exec(&exec).await.map_err(|e| failed("exec", &e))?,
        service.attach(&attach).await.map_err(|e| failed("attach", &e))?,
        service.port_forward(&pod.id, &[80]).await.map_err(|e| failed("port forward", &e))?,
    ];
    for (url, word) in urls.iter().zip(["exec", "attach", "portforward"]) {
        check!(url.starts_with("http") && url.contains(word), "{word}: {url}");
    }
    let nowhere = ExecRequest { container_id: "no-such-container".into(), ..exec };
    bench.refused("exec in no container", service.exec(&nowhere).await, &[Kind::NotFound])
}
