//! [`Access`]: how a command uses the root of the embedded store: whether it may create a store, and whether it pulls images by settings of
//! its own. Opens nothing. Called by `main`; [`App`](crate::app::App) passes it on.

use std::fmt::{self, Write as _};

use crate::args::{Command, Gc, GcAction};

/// The way in which a command uses the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// The command, as shown to a user who waits for it.
    pub(crate) command: String,
    /// Creates a store where none exists.
    pub(crate) creates_store: bool,
    /// Collects, and records its observations for the next time.
    pub(crate) collects: bool,
    /// Pulls or imports images, by the registries, the signature policy and the layer shape of this configuration.
    pub(crate) pulls: bool,
    /// Reports which engine pulls images or the space that images take, or reads or changes the layers in a runtime's store.
    pub(crate) accounts: bool,
    /// Uses the images of the agent that runs on this machine, unless the user selects others.
    pub(crate) follows_agent: bool,
}

impl Access {
    /// Returns the access of a reader that only asks questions: shell completion.
    pub(crate) fn reading() -> Self {
        Self {
            command: "imagelet completion".to_owned(),
            creates_store: false,
            collects: false,
            pulls: false,
            accounts: false,
            follows_agent: true,
        }
    }

    /// Returns true for commands whose output depends on which engine pulls.
    pub(crate) fn reports_engine(&self) -> bool {
        self.pulls || self.command == "imagelet explain"
    }

    /// Returns true if the process answers the clients of a runtime, such as a kubelet, in the place of its image service.
    pub(crate) fn is_front(&self) -> bool {
        self.command == "imagelet serve"
    }

    /// Returns true for a command that removes images from a runtime's store, and needs neither an engine nor a policy for it.
    pub(crate) fn only_removes(&self) -> bool {
        self.command == "imagelet rmi"
    }

    /// Returns the access of a command. A command that is not listed may do everything.
    pub(crate) fn of(command: &Command) -> Self {
        let (creates_store, pulls) = match command {
            Command::Images(_)
            | Command::Exists(_)
            | Command::Tags(_)
            | Command::Inspect(_)
            | Command::Rmi(_)
            | Command::Df
            | Command::Gc(_)
            | Command::Unpin(_)
            | Command::Pins
            | Command::Status
            | Command::Doctor(_)
            | Command::Check(_)
            | Command::Convert(_)
            | Command::Mount(_)
            | Command::Mounts(_)
            | Command::Ls(_)
            | Command::Cat(_)
            | Command::Cp(_)
            | Command::Explain(_)
            | Command::Export(_)
            | Command::Save(_)
            | Command::History(_)
            | Command::Tag(_)
            | Command::Untag(_)
            | Command::Prune(_)
            | Command::Top
            | Command::Push(_) => (false, false),
            Command::Fleet(args) => (args.bakes(), args.bakes()),
            Command::Pin(_) | Command::PodmanStore(_) => (true, false),
            _ => (true, true),
        };
        let collects = match command {
            Command::Gc(Gc { action: None, dry_run, interrupted, .. }) => !dry_run && !interrupted,
            Command::Gc(Gc { action: Some(GcAction::Containers(containers)), .. }) => !containers.dry_run,
            _ => false,
        };
        Self {
            command: format!("imagelet {}", name(command)),
            creates_store,
            collects,
            pulls,
            accounts: matches!(
                command,
                Command::Cat(_)
                    | Command::Check(_)
                    | Command::Convert(_)
                    | Command::Cp(_)
                    | Command::Explain(_)
                    | Command::Gc(_)
                    | Command::Doctor(_)
                    | Command::History(_)
                    | Command::Ls(_)
                    | Command::Rmi(_)
                    | Command::Status
            ),
            follows_agent: follows_agent(command),
        }
    }
}

/// Returns true for commands about images and about the agent. Agents, commands about pods and those that only concern imagelet's own store
/// do not follow another process.
fn follows_agent(command: &Command) -> bool {
    match command {
        Command::Ensure(_)
        | Command::Pull(_)
        | Command::Images(_)
        | Command::Exists(_)
        | Command::Inspect(_)
        | Command::Rmi(_)
        | Command::Df
        | Command::Gc(_)
        | Command::Pin(_)
        | Command::Unpin(_)
        | Command::Pins
        | Command::Status
        | Command::Check(_)
        | Command::Convert(_)
        | Command::Mount(_)
        | Command::Ls(_)
        | Command::Cat(_)
        | Command::Cp(_)
        | Command::Explain(_)
        | Command::Import(_)
        | Command::Export(_)
        | Command::Push(_)
        | Command::Tag(_)
        | Command::Untag(_)
        | Command::History(_)
        | Command::Prune(_)
        | Command::Save(_)
        | Command::Load(_)
        | Command::Backoff(_)
        | Command::Top
        | Command::Metrics => true,
        // The node is checked even if its agent does not answer.
        Command::Doctor(_)
        | Command::Tags(_)
        | Command::Unmount(_)
        | Command::Mounts(_)
        | Command::PodmanStore(_)
        | Command::Run(_)
        | Command::Pods(_)
        | Command::Describe(_)
        | Command::Events(_)
        | Command::Logs(_)
        | Command::Exec(_)
        | Command::Attach(_)
        | Command::PortForward(_)
        | Command::Serve(_)
        | Command::Registry(_)
        | Command::Login(_)
        | Command::Logout(_)
        | Command::Completion(_)
        | Command::Version
        | Command::Config(_)
        | Command::Settings(_)
        | Command::Fleet(_)
        | Command::Man(_) => false,
    }
}

/// Returns the name of a command as it is typed. Arguments are left out, since they may contain a secret.
fn name(command: &Command) -> String {
    /// Writes the name of a variant, and refuses everything after it.
    struct Variant(String);

    impl fmt::Write for Variant {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for letter in text.chars() {
                if !letter.is_ascii_alphabetic() {
                    return Err(fmt::Error);
                }
                if letter.is_ascii_uppercase() && !self.0.is_empty() {
                    self.0.push('-');
                }
                self.0.push(letter.to_ascii_lowercase());
            }
            Ok(())
        }
    }

    let mut variant = Variant(String::new());
    // The refused write marks the end of the name, so its error is expected.
    let _ = write!(variant, "{command:?}");
    variant.0
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn commands_that_ask_make_nothing_and_no_argument_is_shown() {
        let of = |line: &str| {
            let words = std::iter::once("imagelet").chain(line.split_whitespace());
            let access = Access::of(&Cli::try_parse_from(words).expect("parses").command);
            (access.command, access.creates_store, access.pulls)
        };
        for (line, command, creates_store, pulls) in [
            ("images", "imagelet images", false, false),
            ("df", "imagelet df", false, false),
            ("gc --all-unused", "imagelet gc", false, false),
            ("pin x", "imagelet pin", true, false),
            ("pull --creds user:s3cret x", "imagelet pull", true, true),
            ("port-forward p 1", "imagelet port-forward", true, true),
        ] {
            assert_eq!(of(line), (command.to_owned(), creates_store, pulls), "{line}");
        }
    }
}
