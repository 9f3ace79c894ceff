//! Runs the lessons one after the other, and reports their results.

use std::process::ExitCode;

use anyhow::Result;

use crate::stage::Stage;
use crate::store::Store;

pub(crate) struct Play<'a> {
    pub(crate) url: &'a str,
    lessons: u32,
    failed: u32,
}

impl<'a> Play<'a> {
    pub(crate) fn new(url: &'a str) -> Self {
        Self {
            url,
            lessons: 0,
            failed: 0,
        }
    }

    pub(crate) fn lesson(&mut self, title: &str) {
        self.lessons += 1;
        println!("\nLesson {}: {title}", self.lessons);
    }

    /// Runs a part of the lesson with new sessions. `act` returns the conclusion.
    pub(crate) fn part<C: Store>(
        &mut self,
        title: &str,
        act: impl FnOnce(&mut Stage<'_, C>) -> Result<String>,
    ) {
        println!("\n  {title}");
        match Stage::set(self.url).and_then(|mut stage| act(&mut stage)) {
            Ok(learned) => println!("  =>  {learned}"),
            Err(error) => {
                self.failed += 1;
                println!("  =>  NOT AS TOLD: {error:#}");
            }
        }
    }

    pub(crate) fn end(&self) -> ExitCode {
        println!();
        if self.failed == 0 {
            println!("All as told.");
            return ExitCode::SUCCESS;
        }
        println!("Not as told: {} of the parts.", self.failed);
        ExitCode::FAILURE
    }
}
