//! Runs one program to its end and returns its time, CPU and memory. `proc` measures daemons.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, bail};

use crate::session::{BenchSession, program};

/// Time and memory that a program took.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Took {
    /// Seconds.
    pub(crate) wall: f64,
    /// Seconds of CPU, user and system, of itself and all its children.
    pub(crate) cpu: f64,
    /// The most memory of itself or one child, in MiB.
    pub(crate) peak: f64,
}

impl Took {
    /// Measures of programs that ran one after the other.
    pub(crate) fn then(self, next: Self) -> Self {
        Self { wall: self.wall + next.wall, cpu: self.cpu + next.cpu, peak: self.peak.max(next.peak) }
    }
}

/// Time and memory of a program, and its output.
pub(crate) struct Measured {
    pub(crate) took: Took,
    pub(crate) stderr: String,
}

/// `time` of the shell counts CPU by the thousandth, `time` of GNU knows the most memory; together they cost a millisecond.
/// $1 and $2 are where the two write; $3, if not empty, is the list of processes of a control group to go into before.
const SCRIPT: &str = r#"
    TIMEFORMAT='%3U %3S'
    exec 4>&2
    peak=$1 cpu=$2 group=$3
    shift 3
    [ -z "$group" ] || echo $$ >"$group"
    { time /usr/bin/time -q -f %M -o "$peak" -- "$@" 2>&4; } 2>"$cpu"
"#;

/// Runs a program to its end, in a control group if one is given.
pub(crate) fn measured(session: &BenchSession, command: &Command, group: Option<&str>) -> anyhow::Result<Measured> {
    let (peak, cpu) = (session.work.join("peak"), session.work.join("cpu"));
    let mut timed = program("bash", &session.work);
    timed.args(["-c", SCRIPT, "bash"]).args([&peak, &cpu]).arg(group.unwrap_or_default());
    timed.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            timed.env(name, value);
        }
    }
    let start = Instant::now();
    let child = session.spawn(timed.stdout(Stdio::null()).stderr(Stdio::piped()))?;
    let output = child.wait_with_output()?;
    let wall = start.elapsed().as_secs_f64();
    if !output.status.success() {
        let name = command.get_program().to_string_lossy();
        bail!("{name}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    let cpu = fs::read_to_string(&cpu).context("read what the shell timed")?;
    let peak = fs::read_to_string(&peak).context("read what time said of the memory")?;
    let took = took(wall, &cpu, &peak).with_context(|| format!("{cpu:?} and {peak:?} are no figures"))?;
    Ok(Measured { took, stderr: String::from_utf8_lossy(&output.stderr).into_owned() })
}

/// The seconds that a program takes from its start to its end, and nothing else.
pub(crate) fn bare_wall(session: &BenchSession, command: &mut Command) -> anyhow::Result<f64> {
    let start = Instant::now();
    let status = session.spawn(command.stdout(Stdio::null()).stderr(Stdio::null()))?.wait()?;
    let wall = start.elapsed().as_secs_f64();
    if !status.success() {
        bail!("{}: {status}", command.get_program().to_string_lossy());
    }
    Ok(wall)
}

/// Reads the two texts: `1.234 0.567` seconds, and KiB.
fn took(wall: f64, cpu: &str, peak: &str) -> Option<Took> {
    let mut seconds = cpu.split_ascii_whitespace().map(str::parse::<f64>);
    let (user, system) = (seconds.next()?.ok()?, seconds.next()?.ok()?);
    Some(Took { wall, cpu: user + system, peak: peak.trim().parse::<f64>().ok()? / 1024.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_both_clocks_are_read() {
        let read = took(2.0, "1.250 0.500\n", "2048\n").expect("figures");
        assert_eq!(read, Took { wall: 2.0, cpu: 1.75, peak: 2.0 });
        assert_eq!(took(2.0, "1.250\n", "2048"), None);
        assert_eq!(took(2.0, "1.250 0.500", "Command exited"), None);
    }

    #[test]
    fn one_after_the_other_adds_up() {
        let (a, b) = (Took { wall: 1.0, cpu: 2.0, peak: 30.0 }, Took { wall: 0.5, cpu: 0.25, peak: 40.0 });
        assert_eq!(a.then(b), Took { wall: 1.5, cpu: 2.25, peak: 40.0 });
    }
}
