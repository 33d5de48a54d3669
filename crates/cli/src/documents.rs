//! Completions for shells and man pages, made from the definition of the command line.

use bench::console::failure::Failure;
use bench::console::print;
use clap::{Args, Command};
use clap_complete::Shell;
use std::fs;
use std::path::{Path, PathBuf};

/// The arguments of `allot completions`.
#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// The arguments of `allot man`.
#[derive(Debug, Args)]
pub struct ManArguments {
    /// The folder, which is created if it does not exist
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// For `allot completions --help`.
pub const COMPLETIONS_EXAMPLES: &str = "Examples:
  allot completions bash > ~/.local/share/bash-completion/completions/allot
  allot completions zsh > ~/.zfunc/_allot      the folder must be in $fpath
  allot completions fish > ~/.config/fish/completions/allot.fish";

/// For `allot man --help`.
pub const MAN_EXAMPLES: &str = "Examples:
  allot man ~/.local/share/man/man1            then: man allot-advise";

/// `allot completions`: prints the script for the command line with this definition.
pub fn completions(
    arguments: &CompletionsArguments,
    mut definition: Command,
) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut definition, "allot", &mut script);
    print::line(String::from_utf8_lossy(&script).trim_end())
}

/// `allot man`: writes `allot.1`, and a page for each command of the definition.
pub fn man(arguments: &ManArguments, mut definition: Command) -> Result<(), Failure> {
    let folder = &arguments.folder;
    fs::create_dir_all(folder).map_err(|error| cannot(folder, &error))?;
    // Gives each command its full name.
    definition.build();
    write(folder, &definition)?;
    for command in definition.get_subcommands().filter(|command| !command.is_hide_set()) {
        // Clap's own command repeats what the other pages say.
        if command.get_name() != "help" {
            write(folder, command)?;
        }
    }
    Ok(())
}

fn write(folder: &Path, command: &Command) -> Result<(), Failure> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let file = folder.join(format!("{name}.1"));
    let mut page = Vec::new();
    let made = clap_mangen::Man::new(command.clone()).render(&mut page);
    made.and_then(|()| fs::write(&file, page)).map_err(|error| cannot(&file, &error))
}

fn cannot(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("can't write {}: {error}; choose another folder", path.display()))
}
