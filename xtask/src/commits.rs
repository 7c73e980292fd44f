//! `cargo xtask commits`: judges the messages of the commits since the last tag.
//!
//! `judge` is a pure function from a message to its faults; the rest asks git for the commits. Merges are exempt. Nothing here changes a
//! repository, and no commit before [`FIRST_JUDGED_AFTER`] is judged. Called by `scripts/test.sh`.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, bail};

use crate::chore::ChoreReport;

/// The last commit before these rules. Older messages are history and stay as they are; the first tag after it takes its place.
const FIRST_JUDGED_AFTER: &str = "61011c1d14e80c6bde609ece476c8396963c7117";
/// The most characters of a subject.
const LONGEST_SUBJECT: usize = 72;
/// Keys of lines at the end of a message that give no reason.
const TRAILERS: &[&str] =
    &["acked-by", "cc", "co-authored-by", "reported-by", "reviewed-by", "signed-off-by", "tested-by"];
/// First words of subjects that are not meant to stay.
const UNFINISHED: &[&str] = &["amend!", "fixup!", "squash!", "fixup", "wip"];
/// Verbs by which a subject may begin, after its area. A list, since a noun such as "budget" has the form of a verb. Sorted.
const VERBS: &str = "\
    abort accept account acquire adapt add adopt align allow answer append apply ask assert assign attach authenticate authorise \
    authorize avoid back bind block bound break build bump cache call cancel cap carry change check choose clarify clean clear close \
    collapse collect combine commit compare compile complete compose compute configure confine connect consolidate construct continue \
    convert copy correct count cover create cut decide declare decode decouple deduplicate default defer define delay delete demand \
    deny deprecate derive describe detect disable discard distinguish divide document drain drop embed emit enable encode end enforce \
    ensure enter escape estimate evaluate evict exclude execute exit expand expect explain export expose extend extract fail fall fetch fill \
    filter find finish fix flatten flush fold follow forbid force format forward free freeze generate get give group guard handle hash \
    hide hold ignore implement import improve include index inherit initialise initialize inline insert inspect install introduce \
    invert isolate join judge keep key kill label lease leave let lift limit link list load lock log look lower make mark match \
    measure merge migrate mirror model mount move name narrow normalise normalize note number omit open optimise optimize order own \
    pack park parse pass patch pin place poll port prefer prepare preserve print probe propagate protect prove provide prune publish \
    pull push put query quote raise reach read rebuild reclaim recognise recognize record recover redesign reduce refactor refresh \
    refuse register reject relax release reload remember remove rename renew reorder reorganise reorganize repair repeat rephrase \
    replace replay report request require reserve reset resolve respect restart restore restrict resume retry return reuse revert \
    review reword rewrite roll rotate round run sanitise sanitize save scan schedule select send separate serialise serialize serve \
    set settle share shorten show shrink shut sign simplify size skip sort spell split spool standardise standardize start state stop \
    store stream strip submit subscribe suggest support suppress swap sweep switch sync synchronise synchronize tag take test throttle \
    tidy tighten time tolerate trace track translate treat trim trust try tune turn type undo unify unmount unpack unpin update \
    upgrade upload use validate verify wait wake warn watch widen wire word work wrap write";

/// The entry point of the chore.
pub(crate) fn run(root: &Path) -> anyhow::Result<ChoreReport> {
    judge_repository(root, FIRST_JUDGED_AFTER)
}

/// Judges the commits of a repository that neither the last tag nor `base` contains.
fn judge_repository(root: &Path, base: &str) -> anyhow::Result<ChoreReport> {
    let git = Git { root };
    if !root.join(".git").exists() {
        return Ok(not_judged("this directory is not a git repository".to_owned()));
    }
    if git.text(&["rev-parse", "--is-shallow-repository"])? == "true" {
        let why =
            "this clone is shallow, and the history since the last tag may not be in it: run git fetch --unshallow";
        return Ok(not_judged(why.to_owned()));
    }
    let tag = git.last_tag()?;
    let has_base = git.succeeds(&["cat-file", "-e", &format!("{base}^{{commit}}")])?;
    if tag.is_none() && !has_base {
        if git.text(&["rev-list", "--count", "HEAD"])? == "1" {
            return Ok(not_judged("this repository has one commit, a copy of the tree without its history".to_owned()));
        }
        bail!(
            "this repository has neither a tag nor {base}, the commit that xtask/src/commits.rs names: was its history rewritten?"
        );
    }
    let since: Vec<&str> = tag.as_deref().into_iter().chain(has_base.then_some(base)).collect();
    let excluded: Vec<String> = since.iter().map(|start| format!("^{start}")).collect();
    let mut args = vec!["log", "-z", "--no-merges", "--no-show-signature", "--format=%h %B", "HEAD"];
    args.extend(excluded.iter().map(String::as_str));
    let log = git.text(&args)?;
    let commits: Vec<(&str, &str)> = log.split('\0').filter_map(|commit| commit.split_once(' ')).collect();
    let fault = |(id, message): &(&str, &str)| {
        let subject = message.lines().next().unwrap_or_default().to_owned();
        judge(message).into_iter().map(|fault| format!("{id} {subject:?}: {fault}")).collect::<Vec<_>>()
    };
    Ok(ChoreReport {
        failures: commits.iter().flat_map(fault).collect(),
        warnings: Vec::new(),
        seen: format!("{} commits since {}", commits.len(), tag.as_deref().unwrap_or(base)),
    })
}

fn not_judged(why: String) -> ChoreReport {
    ChoreReport {
        failures: Vec::new(),
        warnings: vec![format!("no commit is judged: {why}")],
        seen: "0 commits".to_owned(),
    }
}

/// The faults of a commit's message.
fn judge(message: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut lines = message.lines();
    let subject = lines.next().unwrap_or_default();
    let length = subject.chars().count();
    if length > LONGEST_SUBJECT {
        faults.push(format!("the subject has {length} characters, {LONGEST_SUBJECT} at most"));
    }
    if subject.ends_with('.') {
        faults.push("the subject ends with a full stop".to_owned());
    }
    let start = subject.split_whitespace().next().unwrap_or_default().trim_end_matches(':').to_lowercase();
    let first = first_word(subject);
    if UNFINISHED.contains(&start.as_str()) || UNFINISHED.contains(&first.as_str()) {
        faults.push("the commit is unfinished".to_owned());
    } else if !VERBS.split(' ').any(|verb| verb == first) {
        faults.push(format!(
            "{first:?} is not among the verbs of xtask/src/commits.rs: write \"area: verb object\" or \"Verb object\""
        ));
    }
    if lines.next().is_some_and(|line| !line.trim().is_empty()) {
        faults.push("the second line is not blank".to_owned());
    }
    if !lines.any(|line| !line.trim().is_empty() && !is_trailer(line)) {
        faults.push("the message has no body that gives the reason".to_owned());
    }
    faults
}

/// The first word of a subject, without its area, in lower case.
fn first_word(subject: &str) -> String {
    let is_area = |c: char| c.is_ascii_alphanumeric() || " ,./_-".contains(c);
    let (area, rest) = subject.split_once(": ").unwrap_or(("", subject));
    let text = if area.chars().all(is_area) { rest } else { subject };
    text.split_whitespace().next().unwrap_or_default().to_lowercase()
}

fn is_trailer(line: &str) -> bool {
    line.split_once(": ").is_some_and(|(key, _)| TRAILERS.contains(&key.to_lowercase().as_str()))
}

/// The git of a repository.
struct Git<'a> {
    root: &'a Path,
}

impl Git<'_> {
    /// Runs git and returns its result, whatever its exit code.
    fn run(&self, args: &[&str]) -> anyhow::Result<Output> {
        #[expect(clippy::disallowed_methods, reason = "a chore: git alone knows the commits")]
        let mut command = Command::new("git");
        // A clone of an ordinary user is read by root, who runs the tests.
        command.arg("-c").arg(format!("safe.directory={}", self.root.display())).arg("-C").arg(self.root).args(args);
        command.output().context("run git")
    }

    /// Returns true if the command succeeds.
    fn succeeds(&self, args: &[&str]) -> anyhow::Result<bool> {
        Ok(self.run(args)?.status.success())
    }

    /// Returns standard output without white space at its end. Errors of git are errors.
    fn text(&self, args: &[&str]) -> anyhow::Result<String> {
        let output = self.run(args)?;
        if !output.status.success() {
            bail!("git {}: {}", args[0], String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// Returns the last tag of a version in the history of HEAD.
    fn last_tag(&self) -> anyhow::Result<Option<String>> {
        // Without any tag, `describe` is an error like any other.
        if self.text(&["tag", "--list", "v*", "--merged", "HEAD"])?.is_empty() {
            return Ok(None);
        }
        self.text(&["describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD"]).map(Some)
    }
}

#[cfg(test)]
#[path = "commits_tests.rs"]
mod tests;
