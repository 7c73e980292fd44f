//! `imagelet completion`: the script that a shell reads. Made from the command line's own description.

use clap::CommandFactory as _;

use crate::args::{Cli, Completion};
use crate::exit::Outcome;
use crate::output::Printer;

pub(crate) fn run(printer: Printer, args: &Completion) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "imagelet", &mut script);
    printer.lines([String::from_utf8_lossy(&script).trim_end()])
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use clap_complete::Shell;

    #[test]
    fn every_shell_gets_a_script() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut crate::args::Cli::command(), "imagelet", &mut script);
            let script = String::from_utf8(script).expect("text");
            assert!(script.contains("ensure") && script.contains("registry-config-path"), "{shell}");
        }
    }
}
