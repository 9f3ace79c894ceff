//! Durations, and what is printed of them.

use std::time::Duration;

use program_support::terminal::{self, HEADING, styled};

#[derive(Default)]
pub(super) struct Figures(Vec<Duration>);

impl Figures {
    pub(super) fn add(&mut self, duration: Duration) {
        self.0.push(duration);
    }

    pub(super) fn print(&self, subject: &str) {
        terminal::print(format!("{}: {}", styled(HEADING, subject), self.text()));
    }

    fn text(&self) -> String {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let Some(slowest) = sorted.last() else {
            return "none".to_owned();
        };
        let at = |hundredths: usize| sorted[(sorted.len() - 1) * hundredths / 100];
        format!(
            "{} measured, median {}, 99 of 100 within {}, slowest {}",
            sorted.len(),
            millis(at(50)),
            millis(at(99)),
            millis(*slowest)
        )
    }
}

fn millis(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Figures;

    #[test]
    fn figures_are_sorted() {
        let mut figures = Figures::default();
        assert_eq!(figures.text(), "none");
        for millis in (1..=200).rev() {
            figures.add(Duration::from_millis(millis));
        }
        assert_eq!(
            figures.text(),
            "200 measured, median 100.0 ms, 99 of 100 within 198.0 ms, slowest 200.0 ms"
        );
    }
}
