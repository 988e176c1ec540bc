//! `martlet completions` and `martlet man`: scripts for shells and pages for man, both made from
//! the command line itself.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::{Shell, generate};
use martlet_serving::Failure;

const NAME: &str = "martlet";

/// Arguments of `martlet completions`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  martlet completions bash > /etc/bash_completion.d/martlet
  martlet completions zsh > ~/.zfunc/_martlet
  martlet completions fish > ~/.config/fish/completions/martlet.fish")]
pub(crate) struct CompletionsArgs {
    /// Shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Arguments of `martlet man`.
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Folder of the pages; it is made if it is missing
    folder: PathBuf,
}

/// Prints the completions of a shell.
pub(crate) fn print_completions(command: Command, args: &CompletionsArgs) -> Result<(), Failure> {
    match io::stdout().write_all(&completions(command, args.shell)) {
        // A reader that has seen enough is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::refused(format!("the completions can't be printed: {error}")))
        }
        _ => Ok(()),
    }
}

fn completions(mut command: Command, shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    generate(shell, &mut command, NAME, &mut script);
    script
}

/// Writes a page for each command that `--help` shows.
pub(crate) fn write_man_pages(command: Command, args: &ManArgs) -> Result<(), Failure> {
    let written = fs::create_dir_all(&args.folder)
        .and_then(|()| clap_mangen::generate_to(command, &args.folder));
    written.map_err(|error| {
        Failure::refused(format!(
            "the pages in {} can't be written: {error}",
            args.folder.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, ValueEnum};

    use super::*;
    use crate::cli::Cli;

    /// Returns the names of the pages of a command and of all commands below it.
    fn names(command: &Command, above: &str) -> Vec<String> {
        let name = format!("{above}{}", command.get_name());
        let below = format!("{name}-");
        let visible = command.get_subcommands().filter(|it| !it.is_hide_set());
        let mut all: Vec<String> = visible.flat_map(|it| names(it, &below)).collect();
        all.push(name);
        all
    }

    #[test]
    fn every_shell_completes_every_role() {
        for shell in Shell::value_variants() {
            let script = String::from_utf8(completions(Cli::command(), *shell)).unwrap();
            for word in ["storage-node", "replicator", "cluster-key-file", "--data-dir"] {
                let word = word.trim_start_matches('-');
                assert!(script.contains(word), "{shell} doesn't know {word}");
            }
        }
    }

    #[test]
    fn every_command_has_a_page_and_the_same_one_each_time() {
        let place = tempfile::tempdir().unwrap();
        let folders = ["first/man", "second"].map(|name| place.path().join(name));
        for folder in &folders {
            write_man_pages(Cli::command(), &ManArgs { folder: folder.clone() }).unwrap();
        }
        let names = names(&Cli::command(), "");
        assert!(names.len() > 40, "{names:?}");
        assert_eq!(fs::read_dir(&folders[0]).unwrap().count(), names.len());
        for name in &names {
            let [page, again] =
                [0, 1].map(|at| fs::read(folders[at].join(format!("{name}.1"))).unwrap());
            assert_eq!(page, again, "{name}");
            assert!(page.len() > 200, "{name}");
        }
        assert!(!names.contains(&"martlet-man".to_owned()));
    }

    #[test]
    fn a_folder_that_cannot_be_created_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let args = ManArgs { folder: file.path().join("man") };
        let refusal = write_man_pages(Cli::command(), &args).unwrap_err().to_string();
        assert!(refusal.contains("can't be written"), "{refusal}");
    }
}
