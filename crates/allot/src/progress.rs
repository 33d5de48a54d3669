//! Progress on standard error: on a terminal only, with the time left.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The bar that is on the terminal now, so that an interrupt can take it away.
static SHOWN: OnceLock<Mutex<Option<ProgressBar>>> = OnceLock::new();

fn shown() -> MutexGuard<'static, Option<ProgressBar>> {
    SHOWN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the bar off the terminal, if one is on it.
pub fn clear() {
    if let Some(bar) = shown().take() {
        bar.finish_and_clear();
    }
}

/// Steps of known number, whose remaining time is judged from what like steps took.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar of no steps yet.
    pub fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(8));
        let style = ProgressStyle::with_template("{bar:24} {elapsed:>3} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("━╸ "));
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(500));
            *shown() = Some(bar.clone());
        }
        Self { bar }
    }

    /// Begins anew, with so many steps.
    pub fn begin(&self, steps: u64) {
        self.bar.reset();
        self.bar.set_length(steps);
    }

    /// Sets how many steps there are in all.
    pub fn set_steps(&self, steps: u64) {
        self.bar.set_length(steps);
    }

    /// One step is done.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// Says what is going on, and how long it will go on, where that is known.
    pub fn say(&self, what: &str, left: Option<Duration>) {
        let left = match left {
            Some(left) => format!(", {} left", rough(left)),
            None => String::new(),
        };
        self.bar.set_message(format!("{what}{left}"));
    }

    /// Writes a line to standard error above the bar.
    pub fn warn(&self, line: &str) {
        self.bar.suspend(|| eprintln!("allot: {line}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        shown().take();
    }
}

/// `75 s` as `1:15`, `8 s` as `8 s`.
fn rough(time: Duration) -> String {
    let seconds = time.as_secs_f64().ceil() as u64;
    if seconds < 60 {
        format!("{seconds} s")
    } else {
        format!("{}:{:02}", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_rounded_up() {
        assert_eq!(rough(Duration::from_millis(7_200)), "8 s");
        assert_eq!(rough(Duration::from_secs(75)), "1:15");
    }
}
