//! Runs the lessons in turn and counts the unexpected results.

use std::process::ExitCode;

use anyhow::Result;
use program_support::terminal::{self, BAD, GOOD, HEADING, styled};

use crate::scenario::Scenario;
use crate::store::Store;
use crate::transcript;

pub(crate) struct LessonRunner<'a> {
    pub(crate) url: &'a str,
    lessons: u32,
    failed: u32,
}

impl<'a> LessonRunner<'a> {
    pub(crate) fn new(url: &'a str) -> Self {
        Self {
            url,
            lessons: 0,
            failed: 0,
        }
    }

    pub(crate) fn lesson(&mut self, title: &str) {
        self.lessons += 1;
        let heading = format!("Lesson {}: {title}", self.lessons);
        terminal::print(format!("\n{}", styled(HEADING, heading)));
    }

    /// Runs a part of the lesson, in sessions of its own. `run` returns what the part shows.
    pub(crate) fn part<C: Store>(
        &mut self,
        title: &str,
        run: impl FnOnce(&mut Scenario<'_, C>) -> Result<String>,
    ) {
        terminal::print(format!("\n  {}", styled(HEADING, title)));
        match Scenario::new(self.url).and_then(|mut scenario| run(&mut scenario)) {
            Ok(shown) => Self::note(&shown),
            Err(error) => {
                self.failed += 1;
                let text = format!("UNEXPECTED: {error:#}");
                terminal::print(transcript::note(&text, BAD, terminal::width()));
            }
        }
    }

    /// Prints what a part shows.
    pub(crate) fn note(text: &str) {
        terminal::print(transcript::note(text, GOOD, terminal::width()));
    }

    pub(crate) fn end(&self) -> ExitCode {
        if self.failed == 0 {
            let text = styled(GOOD, "All results are as expected.");
            terminal::print(format!("\n{text}"));
            return ExitCode::SUCCESS;
        }
        let text = format!("Parts with unexpected results: {}.", self.failed);
        terminal::print(format!("\n{}", styled(BAD, text)));
        ExitCode::FAILURE
    }
}
