//! A progress bar with the time left, on standard error, if that is a terminal.

use crate::console::print;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The bar on the terminal, so that an interrupt can remove it.
static SHOWN: OnceLock<Mutex<Option<ProgressBar>>> = OnceLock::new();

fn shown() -> MutexGuard<'static, Option<ProgressBar>> {
    SHOWN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the bar from the terminal, if there is one.
pub fn clear() {
    if let Some(bar) = shown().take() {
        bar.finish_and_clear();
    }
}

/// A known number of steps. The time left is estimated from the time of the steps done so far.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Begins with `steps` steps, none of them done.
    pub fn new(steps: usize) -> Self {
        let target = ProgressDrawTarget::stderr_with_hz(8);
        let bar = ProgressBar::with_draw_target(Some(steps as u64), target);
        let style = ProgressStyle::with_template("{bar:24} {prefix:>11}  {wide_msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("━╸ "));
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(500));
            *shown() = Some(bar.clone());
        }
        Self { bar }
    }

    /// The same if `wanted`; otherwise only warnings are shown.
    pub fn shown_if(wanted: bool, steps: usize) -> Self {
        if wanted { Self::new(steps) } else { Self { bar: ProgressBar::hidden() } }
    }

    /// Removes `steps` steps that won't be taken.
    pub fn fewer(&self, steps: usize) {
        self.bar.set_length(self.bar.length().unwrap_or_default().saturating_sub(steps as u64));
    }

    /// One step is done.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// Shows what is being done, and the estimated time left.
    pub fn say(&self, what: &str) {
        let done = self.bar.position();
        let left = self.bar.length().unwrap_or_default().saturating_sub(done);
        // Too few steps give no estimate.
        if done > 2 {
            let left = self.bar.elapsed().mul_f64(left as f64 / done as f64);
            self.bar.set_prefix(format!("{} left", rough(left)));
        }
        self.bar.set_message(what.to_owned());
    }

    /// Writes a line to standard error above the bar.
    pub fn warn(&self, line: &str) {
        self.bar.suspend(|| print::to_errors(format!("allot: {line}")));
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
