//! Draws the threads as lanes along the time.

use std::time::Duration;

use program_support::terminal::{FAINT, GOOD, HEADING, WARNING, styled};

const WAITING: &str = "░";
const INSIDE: &str = "█";
const GONE: &str = " ";

/// The times of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    pub(crate) requested: Duration,
    pub(crate) acquired: Duration,
    pub(crate) released: Duration,
}

impl Lane {
    fn state_at(&self, time: Duration) -> &'static str {
        if (self.requested..self.acquired).contains(&time) {
            WAITING
        } else if (self.acquired..self.released).contains(&time) {
            INSIDE
        } else {
            GONE
        }
    }
}

/// The distances between two marks of the axis, in milliseconds.
const MARKS_MS: [u32; 10] = [1, 5, 10, 50, 100, 250, 500, 1000, 5000, 10_000];

/// How many marks the axis has at most, besides that of zero.
const MOST_MARKS: u32 = 5;

/// The lanes with a time axis above and a legend below, with styles, in lines of at most `width` columns.
pub(crate) fn draw(lanes: &[Lane], width: usize) -> String {
    let label = |thread: usize| format!("thread {thread}  ");
    let indent = label(lanes.len()).len();
    let columns = u32::try_from(width.clamp(indent + 20, 120) - indent).unwrap_or(20);
    let end = lanes.iter().map(|lane| lane.released).max();
    let end = end.unwrap_or_default().max(Duration::from_millis(1));

    let mut text = vec![format!(
        "{}{}",
        " ".repeat(indent),
        styled(FAINT, axis(end, columns))
    )];
    for (thread, lane) in (1..).zip(lanes) {
        let mut line = styled(HEADING, label(thread));
        let mut drawn = GONE;
        let mut run = String::new();
        for column in 0..columns {
            // The middle of the column's time.
            let state = lane.state_at(end * (2 * column + 1) / (2 * columns));
            if state != drawn {
                line.push_str(&in_colour(drawn, &run));
                run.clear();
                drawn = state;
            }
            run.push_str(state);
        }
        line.push_str(&in_colour(drawn, &run));
        text.push(line.trim_end().to_owned());
    }
    text.push(String::new());
    text.push(format!(
        "{}{} waiting   {} inside   (blank) gone",
        " ".repeat(indent),
        in_colour(WAITING, WAITING),
        in_colour(INSIDE, INSIDE)
    ));
    text.join("\n")
}

fn in_colour(state: &str, text: &str) -> String {
    match state {
        WAITING => styled(WARNING, text),
        INSIDE => styled(GOOD, text),
        _ => text.to_owned(),
    }
}

/// Times in milliseconds above the columns where they are.
fn axis(end: Duration, columns: u32) -> String {
    let end_ms = u32::try_from(end.as_millis()).unwrap_or(u32::MAX).max(1);
    let mark = MARKS_MS.iter().find(|mark| end_ms / **mark <= MOST_MARKS);
    let mark = *mark.unwrap_or(&end_ms);
    let mut axis = String::new();
    for time in (0..=end_ms).step_by(mark as usize) {
        let column = u64::from(time) * u64::from(columns) / u64::from(end_ms);
        let column = usize::try_from(column).unwrap_or(0);
        let text = if time == 0 {
            "0 ms".to_owned()
        } else {
            time.to_string()
        };
        if axis.len() <= column && column + text.len() <= columns as usize {
            axis.push_str(&" ".repeat(column - axis.len()));
            axis.push_str(&text);
        }
    }
    axis
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anstream::adapter::strip_str;

    use super::{Lane, draw};

    fn lane(requested: u64, acquired: u64, released: u64) -> Lane {
        let [requested, acquired, released] =
            [requested, acquired, released].map(Duration::from_millis);
        Lane {
            requested,
            acquired,
            released,
        }
    }

    fn drawn(lanes: &[Lane], width: usize) -> String {
        strip_str(&draw(lanes, width)).to_string()
    }

    #[test]
    fn threads_wait_are_inside_and_are_gone() {
        let lanes = [lane(0, 0, 250), lane(0, 500, 750), lane(0, 250, 500)];
        let expected = "          \
0 ms      250       500
thread 1  ██████████
thread 2  ░░░░░░░░░░░░░░░░░░░░██████████
thread 3  ░░░░░░░░░░██████████

          ░ waiting   █ inside   (blank) gone";
        assert_eq!(drawn(&lanes, 40), expected);
    }

    #[test]
    fn lines_are_no_wider_than_the_terminal() {
        let lanes = [lane(0, 3, 251), lane(1, 254, 503), lane(2, 505, 1_004)];
        for width in [50, 80, 200] {
            for line in drawn(&lanes, width).lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn an_overlap_of_two_threads_would_be_seen() {
        let text = drawn(&[lane(0, 0, 300), lane(0, 100, 300)], 40);
        let inside = |line: usize| text.lines().nth(line).map(|line| line.matches('█').count());
        assert_eq!((inside(1), inside(2)), (Some(30), Some(20)), "{text}");
    }
}
