//! Processes: how they begin, and how they end.

use crate::programs::{Program, Recorded, mine, record, record_until_ready, record_with};
use std::os::unix::process::CommandExt;
use std::process::Stdio;

#[test]
fn a_child_of_a_fork_has_its_own_process_and_its_parent_s_blocks() {
    let source = "
int main(void) {
    void *before = malloc(550001); KEEP(before);
    if (fork() == 0) { void *p = malloc(550002); KEEP(p); free(before); free(p); exit(0); }
    int status; wait(&status);
    void *p = malloc(550003); KEEP(p); free(before); free(p);
    return status;
}";
    let recorded = record(&program!("fork", source));
    assert_eq!(recorded.status.code(), Some(0));
    assert_eq!(recorded.processes().len(), 2);
    assert!(recorded.processes()[1].header.forked);
    let sizes = |process: usize| -> Vec<u64> {
        mine(&recorded, 550_000, 551_000)
            .iter()
            .filter(|event| event.process == process)
            .map(|event| event.size)
            .collect()
    };
    assert_eq!(sizes(0), [550_001, 550_003]);
    assert_eq!(sizes(1), [550_002]);
    assert_eq!(recorded.unknown_frees(1).len(), 1, "the parent's block");
    assert!(recorded.unknown_frees(0).is_empty());
}

#[test]
fn a_child_of_a_fork_that_never_allocates_is_no_process_of_the_recording() {
    let source = "
int main(void) {
    void *p = malloc(560001); KEEP(p); free(p);
    if (fork() == 0) exit(0);
    int status; wait(&status);
    return status;
}";
    let recorded = record(&program!("quiet", source));
    assert_eq!(recorded.status.code(), Some(0));
    assert_eq!(recorded.processes().len(), 1);
}

#[test]
fn an_exec_is_a_new_image_and_what_was_before_stays() {
    let source = "
int main(int count, char **words) {
    void *p = malloc(540000 + count); KEEP(p);
    if (count == 1) execl(words[0], words[0], \"again\", (char *)0);
    return count == 2 ? 0 : 1;
}";
    let recorded = record(&program!("exec", source));
    assert_eq!(recorded.status.code(), Some(0));
    let sizes: Vec<(usize, u64)> =
        mine(&recorded, 540_000, 541_000).iter().map(|event| (event.process, event.size)).collect();
    assert_eq!(sizes, [(0, 540_001), (1, 540_002)]);
    let headers: Vec<_> = recorded.processes().iter().map(|process| &process.header).collect();
    assert_eq!(headers[0].pid, headers[1].pid);
    assert_eq!((headers[0].image, headers[1].image), (0, 1));
}

#[test]
fn nothing_is_lost_however_the_program_ends() {
    let source = "
int main(int count, char **words) {
    for (int i = 0; i < 20000; i++) { void *p = malloc(530000 + i % 10); KEEP(p); free(p); }
    void *p = malloc(530999); KEEP(p);
    switch (words[1][0]) {
    case 'e': exit(3);
    case '_': _exit(4);
    case 'a': abort();
    case 'k': kill(getpid(), SIGKILL);
    case 's': *(volatile int *)8 = 1;
    }
    return 0;
}";
    let program = program!("ends", source);
    // A shell says 128 and the signal's number, and so do we.
    for (exit_mode, code) in [("e", 3), ("_", 4), ("a", 134), ("k", 137), ("s", 139)] {
        let recorded = record_with(&program, &[exit_mode], |_| {});
        assert_eq!(recorded.status.code(), Some(code), "{exit_mode}");
        assert_eq!(mine(&recorded, 530_000, 530_010).len(), 20_000, "{exit_mode}");
        assert_eq!(mine(&recorded, 530_999, 531_000).len(), 1, "{exit_mode}");
        assert_eq!(recorded.end(0).exited, exit_mode == "e", "{exit_mode}");
    }
}

#[test]
fn ctrl_c_goes_to_the_program_and_leaves_a_recording() {
    let source = "
int main(void) {
    for (int i = 0; i < 1000; i++) { void *p = malloc(470000 + i); KEEP(p); free(p); }
    puts(\"ready\"); fflush(stdout);
    for (;;) pause();
}";
    let program = program!("endless", source);
    let recorded = record_until_ready(&program, |group| {
        // As a terminal does: to all of the foreground.
        // SAFETY: it touches no memory.
        assert_eq!(unsafe { libc::kill(-group, libc::SIGINT) }, 0);
    });
    assert_eq!(recorded.status.code(), Some(130), "{}", recorded.errors);
    assert_eq!(mine(&recorded, 470_000, 471_000).len(), 1_000);
    assert!(recorded.errors.contains("lost: nothing"), "{}", recorded.errors);
}

/// A timer's handler forks, wherever the program is; half of the children go on from there.
const FORKING_HANDLER: &str = r#"
#include <sys/time.h>
static volatile int forks;
static void fork_here(int signal) {
    if (!fork()) {
        if (forks & 1) return;
        _exit(0);
    }
    forks++;
}
int main(void) {
    pid_t own = getpid();
    struct sigaction action = {.sa_handler = fork_here, .sa_flags = SA_RESTART};
    struct itimerval time = {{0, 500}, {0, 500}};
    sigaction(SIGALRM, &action, 0);
    setitimer(ITIMER_REAL, &time, 0);
    for (int i = 0; forks < 200; i++) {
        void *p = malloc(16 + i % 8 * 16);
        KEEP(p);
        free(p);
        if (getpid() != own) {
            for (int k = 0; k < 100; k++) { p = malloc(k); KEEP(p); free(p); }
            _exit(0);
        }
    }
    signal(SIGALRM, SIG_IGN);
    while (wait(0) > 0) {}
    return 0;
}"#;

#[test]
fn a_handler_that_forks_in_the_middle_of_an_event_leaves_its_parent_s_recording_whole() {
    let recorded = record(&program!("forking_handler", FORKING_HANDLER));
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.errors);
    assert!(recorded.errors.contains("lost: nothing"), "{}", recorded.errors);
}

#[test]
fn what_is_ignored_or_closed_is_so_for_the_program_too() {
    let source = "
#include <fcntl.h>
int main(void) {
    for (int i = 1; i < 32; i++) {
        struct sigaction action;
        if (!sigaction(i, 0, &action) && action.sa_handler == SIG_IGN) fprintf(stderr, \"<%d>\", i);
    }
    for (int i = 0; i < 2; i++) if (fcntl(i, F_GETFD) < 0) fprintf(stderr, \"<closed %d>\", i);
    return 5;
}";
    let program = program!("inherits", source);
    let seen = |recorded: &Recorded| -> String {
        let told = recorded.errors.split_inclusive('>').map(|word| word.trim_start());
        told.filter(|word| word.starts_with('<')).collect()
    };
    // None of these is a wish of ours. What ran this test may have had some: nohup, a shell's
    // background.
    let plain = record_with(&program, &[], |command| {
        command.stdin(Stdio::piped());
        // SAFETY: it is allowed between fork and exec, and no handler is set.
        unsafe {
            CommandExt::pre_exec(command, || {
                for signal in 1..32 {
                    libc::signal(signal, libc::SIG_DFL);
                }
                Ok(())
            });
        }
    });
    assert_eq!((plain.status.code(), seen(&plain).as_str()), (Some(5), ""), "{}", plain.errors);
    let ignoring = record_with(&program, &[], |command| {
        // SAFETY: both are allowed between fork and exec.
        unsafe {
            CommandExt::pre_exec(command, || {
                for signal in [1, 2, 3, 13, 15, 17, 25] {
                    libc::signal(signal, libc::SIG_IGN);
                }
                libc::close(1);
                Ok(())
            });
        }
    });
    assert_eq!(ignoring.status.code(), Some(5), "{}", ignoring.errors);
    assert_eq!(seen(&ignoring), "<1><2><3><13><15><17><25><closed 1>", "{}", ignoring.errors);
}

#[test]
fn a_recording_within_a_recording_has_each_process_once() {
    let program = program!("inner", "int main(void) { free(malloc(680001)); return 6; }");
    let inner = format!("{}.allot", program.path());
    let allot = Program::at(env!("CARGO_BIN_EXE_allot"));
    let outer =
        record_with(&allot, &["record", "--json", "-o", &inner, "--", program.path()], |_| {});
    assert_eq!(outer.status.code(), Some(6), "{}", outer.errors);
    let reader = trace_format::RecordingReader::open(std::path::Path::new(&inner)).unwrap();
    assert_eq!(reader.processes().len(), 1);
    assert!(!outer.processes().is_empty());
}

#[test]
fn a_child_that_forbids_itself_calls_ends_its_own_recording_and_not_its_parent_s() {
    // It asks for no memory in between: all that the recorder has there is the parent's.
    let source = "
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <linux/seccomp.h>
int main(void) {
    void *p = malloc(530001); KEEP(p); free(p);
    if (fork() == 0) {
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
        syscall(SYS_exit, 0);
    }
    int status; wait(&status);
    for (int i = 0; i < 1000; i++) { void *p = malloc(530002); KEEP(p); free(p); }
    return status;
}";
    let recorded = record(&program!("strict", source));
    assert_eq!(recorded.status.code(), Some(0));
    assert_eq!(recorded.end(0).full_at_ns, None);
    assert_eq!(mine(&recorded, 530_000, 531_000).len(), 1001);
    assert!(recorded.processes()[1].header.forked);
    assert!(recorded.end(1).full_at_ns.is_some(), "the child's own ended");
}
