//! The alternate screen of the terminal, and its modes.

use std::io::{self, Write};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

use crate::watch::picture::Picture;

/// The alternate screen, without a cursor. Lines that are too long do not continue in the next one.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// What is between them appears at once.
const BEGIN: &str = "\x1b[?2026h\x1b[H";
const END: &str = "\x1b[?2026l";

/// The terminal of standard output. Restored when it is dropped.
pub(super) struct Terminal {
    before: Termios,
}

impl Terminal {
    pub(super) fn open() -> io::Result<Self> {
        let terminal = Self {
            before: tcgetattr(io::stdout())?,
        };
        terminal.enter()?;
        Ok(terminal)
    }

    pub(super) fn enter(&self) -> io::Result<()> {
        let mut modes = self.before.clone();
        // Keys come at once and are not shown. Ctrl-C and Ctrl-Z are signals as before.
        modes
            .local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO);
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(io::stdout(), OptionalActions::Now, &modes)?;
        write(ENTER)
    }

    pub(super) fn leave(&self) -> io::Result<()> {
        let written = write(LEAVE);
        // Keys that were not read are not for the shell.
        tcsetattr(io::stdout(), OptionalActions::Flush, &self.before)?;
        written
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.leave();
    }
}

/// Draws in an open [`Terminal`].
pub(super) fn draw(picture: &Picture) -> io::Result<()> {
    let size = tcgetwinsize(io::stdout())?;
    // A terminal that does not know its size reports 0.
    let known = |size: u16, other| if size == 0 { other } else { size.into() };
    let rows = known(size.ws_row, 24);
    let lines = picture.lines(rows, known(size.ws_col, 80));
    let rest = if lines.len() < rows { "\r\n\x1b[J" } else { "" };
    let lines: Vec<_> = lines.iter().map(|line| format!("\x1b[2K{line}")).collect();
    write(&format!("{BEGIN}{}{rest}{END}", lines.join("\r\n")))
}

fn write(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}
