//! `allot record --show`: prints the events of a recording.

use bench::console::failure::Failure;
use bench::console::print;
use serde_json::{Value, json};
use std::path::Path;
use trace_format::container::{ProcessEnd, ProcessHeader, RecordingEnd};
use trace_format::raw::LockKind;
use trace_format::{Event, EventAction, Events, NodeId, RecordingReader};

/// Prints all events of a recording.
pub fn show(file: &Path, json: bool) -> Result<(), Failure> {
    let failed =
        |error: trace_format::TraceError| Failure::Failed(format!("{}: {error}", file.display()));
    let reader = RecordingReader::open(file).map_err(failed)?;
    for (number, process) in reader.processes().iter().enumerate() {
        print_process(number, &process.header, process.end.as_ref(), json)?;
        let mut events = reader.events(number).map_err(failed)?;
        while let Some(event) = events.next() {
            let event = event.map_err(failed)?;
            if json {
                print::line(as_json(number, &event, &events))?;
            } else {
                print::line(as_text(&event, &events))?;
            }
        }
    }
    if let Some(end) = reader.end() {
        print_end(end, json)?;
    }
    if let Some(at) = reader.cut_off_at() {
        let file = file.display();
        print::to_errors(format!(
            "allot: {file}: cut off at byte {at}; the events before were shown"
        ));
    }
    Ok(())
}

fn print_process(
    number: usize,
    header: &ProcessHeader,
    end: Option<&ProcessEnd>,
    json: bool,
) -> Result<(), Failure> {
    if json {
        return print::line(json!({ "process": number, "header": header, "end": end }));
    }
    let forked = if header.forked { ", forked" } else { "" };
    print::line(format!(
        "process {number}: pid {}, parent {}{forked}: {}",
        header.pid,
        header.parent,
        header.command.join(" ")
    ))
}

fn print_end(end: &RecordingEnd, json: bool) -> Result<(), Failure> {
    if json {
        print::line(json!({ "end": end }))
    } else {
        print::line(format!("end: {}", serde_json::to_string(end).unwrap_or_default()))
    }
}

fn lock_name(lock: LockKind) -> &'static str {
    match lock {
        LockKind::Mutex => "mutex",
        LockKind::Read => "rwlock for reading",
        LockKind::Write => "rwlock for writing",
    }
}

/// A frame as the module's file name and the offset of the call in it.
fn frame(node: NodeId, events: &Events<'_>) -> String {
    let address = events.stacks().return_address(node).wrapping_sub(1);
    match events.stacks().module(node) {
        Some(id) => {
            let module = events.modules().get(id);
            let name = module.path.rsplit('/').next().unwrap_or_default();
            format!("{name}+{:#x}", address.wrapping_sub(module.bias))
        }
        None => format!("{address:#x}"),
    }
}

fn stack(site: NodeId, events: &Events<'_>) -> Vec<String> {
    let mut frames: Vec<String> =
        events.stacks().frames(site).map(|node| frame(node, events)).collect();
    if events.stacks().is_cut_off(site) {
        frames.push("...".to_owned());
    }
    frames
}

fn as_text(event: &Event, events: &Events<'_>) -> String {
    let action = match event.action {
        EventAction::Alloc { address, size, site, flags } => {
            let function = format!("{:?}", flags.function()).to_lowercase();
            let alignment = match flags.alignment() {
                1 => String::new(),
                alignment => format!(" aligned to {alignment}"),
            };
            format!(
                "{function} {address:#x} {size}{alignment} by {}",
                stack(site, events).join(" ")
            )
        }
        EventAction::Free { address, by_realloc: false } => format!("free {address:#x}"),
        EventAction::Free { address, by_realloc: true } => {
            format!("free {address:#x} to reallocate")
        }
        EventAction::Usable { address } => format!("usable size of {address:#x}"),
        EventAction::LockWait { address, lock, duration_ns, site } => format!(
            "waited {duration_ns} ns for the {} {address:#x} by {}",
            lock_name(lock),
            stack(site, events).join(" ")
        ),
        EventAction::ThreadStart { system_id } => format!("begins; its thread id is {system_id}"),
        EventAction::ThreadEnd => "ends".to_owned(),
        EventAction::ModuleLoaded(id) => {
            let module = events.modules().get(id);
            format!("module {} is loaded at {:#x}", module.path, module.start)
        }
        EventAction::ModuleUnloaded(id) => {
            format!("module {} is unloaded", events.modules().get(id).path)
        }
    };
    format!("{:.9} thread {}: {action}", event.time_ns as f64 / 1e9, event.thread)
}

fn as_json(process: usize, event: &Event, events: &Events<'_>) -> Value {
    let mut value = json!({
        "process": process,
        "time_ns": event.time_ns,
        "thread": event.thread,
    });
    let action = match event.action {
        EventAction::Alloc { address, size, site, flags } => json!({
            "event": "alloc",
            "origin": format!("{:?}", flags.function()).to_lowercase(),
            "address": address,
            "size": size,
            "alignment": flags.alignment(),
            "stack": stack(site, events),
        }),
        EventAction::Free { address, by_realloc } => {
            json!({ "event": "free", "address": address, "by_realloc": by_realloc })
        }
        EventAction::Usable { address } => json!({ "event": "usable_size", "address": address }),
        EventAction::LockWait { address, lock, duration_ns, site } => json!({
            "event": "lock_wait",
            "lock": lock_name(lock),
            "address": address,
            "duration_ns": duration_ns,
            "stack": stack(site, events),
        }),
        EventAction::ThreadStart { system_id } => {
            json!({ "event": "thread_start", "system_id": system_id })
        }
        EventAction::ThreadEnd => json!({ "event": "thread_end" }),
        EventAction::ModuleLoaded(id) => {
            let module = events.modules().get(id);
            let build_id: String =
                module.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
            json!({
                "event": "module_loaded",
                "path": module.path,
                "bias": module.bias,
                "start": module.start,
                "end": module.end,
                "build_id": build_id,
            })
        }
        EventAction::ModuleUnloaded(id) => {
            json!({ "event": "module_unloaded", "path": events.modules().get(id).path })
        }
    };
    if let (Value::Object(whole), Value::Object(action)) = (&mut value, action) {
        whole.extend(action);
    }
    value
}
