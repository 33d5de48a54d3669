//! What stands in the way of a recording, and what the program has taken from it.

use crate::programs::{HEAD, compiled, compiled_for_musl, mine, record, record_with};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

#[test]
fn a_full_disk_ends_the_recording_and_not_the_program() {
    let source = "
int main(void) {
    for (int i = 0; i < 3000000; i++) { void *p = malloc(490000 + i % 97); KEEP(p); free(p); }
    puts(\"done\");
    return 7;
}";
    let recorded = record_with(&program!("full", source), &[], |command| {
        // Stands for a full disk: no file may be larger than 600 KiB. A write of the program itself
        // beyond that would end it by a signal.
        command.env("ALLOT_TEST_LIMIT", "600");
    });
    assert_eq!(recorded.status.code(), Some(7));
    assert!(recorded.errors.contains("lost: what process"), "{}", recorded.errors);
    assert!(recorded.errors.contains("ulimit -f"), "{}", recorded.errors);
    // The shell that set the limit was the image before.
    let end = recorded.end(1);
    assert!(end.full_at_ns.unwrap() > 0, "{end:?}");
    assert_eq!(end.full_error, Some(libc::EFBIG as u32), "{end:?}");
    let seen = mine(&recorded, 490_000, 490_097).len();
    assert!((10_000..3_000_000).contains(&seen), "{seen}");
}

#[test]
fn a_program_that_can_t_be_seen_is_told_so_in_one_line() {
    let own = format!(
        "{HEAD} static char room[1 << 20]; static size_t used;
         void *malloc(size_t n) {{ void *p = room + used; used += (n + 15) & ~15ul; return p; }}
         void free(void *p) {{ (void)p; }}
         int main(void) {{ free(malloc(3)); return 0; }}"
    );
    let empty = "int main(void) { return 0; }";
    let programs = [
        (compiled("static", empty, &["-static"]), "linked statically"),
        (compiled("own-malloc", &own, &["-rdynamic"]), "malloc of its own"),
    ];
    for (program, why) in programs {
        let Some(program) = program else { continue };
        let recorded = record(&program);
        assert_eq!(recorded.status.code(), Some(0), "it runs all the same");
        let told = recorded.errors.lines().filter(|line| line.contains(why)).count();
        assert_eq!(told, 1, "{}", recorded.errors);
    }
}

#[test]
fn a_program_that_is_linked_with_musl_is_recorded_in_its_threads_and_children() {
    let source = "
static void *work(void *nothing) {
    for (int i = 0; i < 1000; i++) { void *p = malloc(420000 + i); KEEP(p); free(p); }
    return nothing;
}
int main(void) {
    pthread_t thread;
    work(0);
    if (pthread_create(&thread, 0, work, 0) || pthread_join(thread, 0)) return 1;
    pid_t child = fork();
    if (!child) { work(0); exit(0); }
    int status;
    waitpid(child, &status, 0);
    return status;
}";
    let Some(program) = compiled_for_musl("musl", source) else { return };
    let recorded = record(&program);
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.errors);
    assert!(recorded.errors.contains("lost: nothing"), "{}", recorded.errors);
    let seen = mine(&recorded, 420_000, 421_000);
    let of = |process: usize| seen.iter().filter(|event| event.process == process).count();
    assert_eq!((of(0), of(1)), (2_000, 1_000), "{}", recorded.errors);
}

#[test]
fn go_and_another_user_s_rights_are_told_in_one_line() {
    // What the linker of Go leaves in every program.
    let go = "__attribute__((section(\".gopclntab\"))) int table = 1; int main(void) { return 0; }";
    let other = compiled("setuid", "int main(void) { return 0; }", &[]);
    let mut programs = vec![(compiled("go", go, &[]), "written in Go")];
    if let Some(program) = &other {
        // As another user's, if we may give files away; else it is our own, and no obstacle.
        let given = std::os::unix::fs::chown(program.path(), Some(65_534), None);
        let rights = std::fs::Permissions::from_mode(0o4755);
        if given.and_then(|()| std::fs::set_permissions(program.path(), rights)).is_ok() {
            programs.push((other, "another user's or group's rights"));
        } else {
            eprintln!("skipped: a setuid program can be made by root alone");
        }
    }
    for (program, why) in programs {
        let Some(program) = program else { continue };
        let recorded = record(&program);
        assert_eq!(recorded.status.code(), Some(0), "it runs all the same");
        let told = recorded.errors.lines().filter(|line| line.contains(why)).count();
        assert_eq!(told, 1, "{}", recorded.errors);
    }
}

/// Takes every number of a file that a program could know of, and leaves its own files there.
const CLOSE_ALL: &str = "
static void close_all(const char *own) {
    for (int i = 3; i < 65536; i++) close(i);
    while (open(own, O_RDWR) >= 0) {}
}
static void work(void) {
    for (int i = 0; i < 100000; i++) { void *p = malloc(450000 + i % 10); KEEP(p); free(p); }
}";

#[test]
fn a_program_that_closes_all_files_is_recorded_and_its_own_are_left_alone() {
    let source = format!(
        "#include <fcntl.h>
{CLOSE_ALL} int main(int count, char **words) {{ work(); close_all(words[1]); work(); return 0; }}"
    );
    let program = program!("closes", &source);
    let own = format!("{}.own", program.path());
    std::fs::write(&own, "mine").unwrap();
    let recorded = record_with(&program, &[&own], |_| {});
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.errors);
    // No number is left for a file of ours.
    assert!(recorded.errors.contains("closed the recording's file"), "{}", recorded.errors);
    assert!(mine(&recorded, 450_000, 450_010).len() >= 100_000);
    assert_eq!(std::fs::read(&own).unwrap(), b"mine");
}

#[test]
fn a_daemon_that_changes_its_root_and_gives_up_its_rights_is_recorded_to_its_end() {
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("skipped: only root may change its root");
        return;
    }
    let source = format!(
        "#include <fcntl.h>
{CLOSE_ALL} int main(int count, char **words) {{
    int status;
    if (fork()) {{ wait(&status); return WEXITSTATUS(status); }}
    work(); setsid();
    if (chroot(words[1]) || chdir(\"/\")) return 1;
    if (fork()) {{ wait(&status); return WEXITSTATUS(status); }}
    work();
    if (setgid(65534) || setuid(65534)) return 2;
    work();
    return 0;
}}"
    );
    let program = program!("daemon", &source);
    let root = format!("{}.root", program.path());
    std::fs::create_dir(&root).unwrap();
    let recorded = record_with(&program, &[&root], |_| {});
    assert_eq!(recorded.status.code(), Some(0), "{}", recorded.errors);
    assert!(recorded.errors.contains("lost: nothing"), "{}", recorded.errors);
    assert_eq!(recorded.processes().len(), 3);
    assert_eq!(mine(&recorded, 450_000, 450_010).len(), 300_000);
}

#[test]
fn a_program_that_is_not_there_is_told_in_one_line() {
    let output = Command::new(env!("CARGO_BIN_EXE_allot"))
        .args(["record", "-o", "/dev/null", "--", "no-such-program-anywhere"])
        .output()
        .unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("no-such-program-anywhere"), "{errors}");
    assert_eq!(output.status.signal(), None);
}

/// Forbids itself all calls but a few, in a way that its first argument says, and then allocates.
const FORBIDS: &str = r#"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
int main(int count, char **words) {
    int how = atoi(words[1]);
    void *first = malloc(670001);
    KEEP(first);
    free(first);
    unsigned answers[] = {0, SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_TRAP, SECCOMP_RET_ERRNO | EPERM};
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_brk, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, answers[how % 4]),
    };
    struct sock_fprog program = {5, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    int failed = how == 8  ? 0
                 : how == 0  ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)
                 : how > 4 ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)
                           : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    if (how == 8) failed = prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
    if (failed) return 9;
    for (int i = 0; i < 300000; i++) {
        void *p = malloc(16 + i % 64);
        KEEP(p);
        free(p);
    }
    syscall(SYS_exit, 3);
}"#;

#[test]
fn a_program_that_forbids_itself_calls_runs_to_its_end() {
    let program = program!("forbids", FORBIDS);
    // The last forbids the processor's clock, which only one kind of processor can.
    let last = if cfg!(target_arch = "x86_64") { 8 } else { 7 };
    for how in (0..=last).filter(|&how| how != 4).map(|how: u32| how.to_string()) {
        let how = &*how;
        let recorded = record_with(&program, &[how], |_| {});
        assert_eq!(recorded.status.code(), Some(3), "{how}: {}", recorded.errors);
        assert!(recorded.errors.contains("forbids itself calls"), "{how}: {}", recorded.errors);
        assert_eq!(mine(&recorded, 670_001, 670_002).len(), 1, "{how}");
    }
}
