//! Completions for shells, and manual pages: both made of the arguments.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

const NAME: &str = "p2pshim";

/// The shell that completes.
#[derive(Args)]
pub(crate) struct CompletionsArguments {
    /// The shell to complete for
    shell: Shell,
}

/// The folder of the pages.
#[derive(Args)]
pub(crate) struct ManArguments {
    /// The folder for the pages, made if missing [default: p2pshim.1 to standard output]
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    folder: Option<PathBuf>,
}

/// Prints what a shell reads to complete.
///
/// # Errors
/// It cannot be written.
pub(crate) fn print_completions(
    out: &mut impl Write,
    command: Command,
    arguments: &CompletionsArguments,
) -> io::Result<()> {
    // Written to `out` itself, it would panic where that is full or closed.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut shown(&command), NAME, &mut script);
    out.write_all(&script)
}

/// Writes the pages.
///
/// # Errors
/// They could not be written; the text names the file.
pub(crate) fn write_man(out: &mut impl Write, command: Command, arguments: &ManArguments) -> io::Result<()> {
    let mut command = shown(&command).disable_help_subcommand(true);
    command.build();
    let Some(folder) = &arguments.folder else { return render(out, &command) };
    let named = |path: &Path, error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    fs::create_dir_all(folder).map_err(|error| named(folder, error))?;
    for command in std::iter::once(&command).chain(command.get_subcommands()) {
        let mut page = Vec::new();
        render(&mut page, command)?;
        let path = folder.join(Man::new(command.clone()).get_filename());
        fs::write(&path, page).map_err(|error| named(&path, error))?;
        writeln!(out, "{}", path.display())?;
    }
    Ok(())
}

/// The command without what is hidden: generators do not look.
fn shown(command: &Command) -> Command {
    let about = command.get_about().cloned().unwrap_or_default();
    let long_about = command.get_long_about().cloned().unwrap_or_default();
    let shown = Command::new(NAME).version(env!("CARGO_PKG_VERSION")).about(about).long_about(long_about);
    let shown = shown.args(command.get_arguments().cloned());
    let shown = match command.get_after_long_help() {
        Some(help) => shown.after_long_help(help.clone()),
        None => shown,
    };
    shown.subcommands(command.get_subcommands().filter(|command| !command.is_hide_set()).cloned())
}

fn render(out: &mut impl Write, command: &Command) -> io::Result<()> {
    let after = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    // The subcommands have their own name, and no version.
    let man = Man::new(command.clone()).manual(NAME).source(format!("{NAME} {}", env!("CARGO_PKG_VERSION")));
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(out)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(out)?;
    }
    out.write_all(sections(&after).as_bytes())
}

/// The text after the options as sections: a line that ends in a colon begins one, what is indented stays as it is.
fn sections(text: &str) -> String {
    let (mut roff, mut is_as_it_is) = (String::new(), false);
    for line in text.lines() {
        let is_indented = line.starts_with(' ');
        if is_indented != is_as_it_is {
            roff.push_str(if is_indented { ".nf\n" } else { ".fi\n" });
            is_as_it_is = is_indented;
        }
        match line.strip_suffix(':').filter(|_| !is_indented) {
            Some(title) => roff.push_str(&format!(".SH \"{}\"\n", title.to_uppercase())),
            None if line.is_empty() => roff.push_str(".PP\n"),
            None => roff.push_str(&format!("{}\n", escaped(line))),
        }
    }
    if is_as_it_is {
        roff.push_str(".fi\n");
    }
    roff
}

/// A line as roff takes it for text.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_titles_text_and_what_stays_as_it_is() {
        let roff = sections("Examples:\n  p2pshim -x a\\b\n\nExit status:\n  0\n\n.text\n");
        let expected = ".SH \"EXAMPLES\"\n.nf\n  p2pshim \\-x a\\eb\n.fi\n.PP\n.SH \"EXIT STATUS\"\n.nf\n  0\n.fi\n.PP\n\\&.text\n";
        assert_eq!(roff, expected);
    }
}
