//! Which thread made the first context of a GPU: one that has not chosen a device works on device 0.

use super::model::{File, FirstContext, Report};
use super::symbols::UNKNOWN;
use super::term::counted;
use crate::judge::Words;

/// The sentence about a thread that may have taken device 0 unawares, in a process that had begun with another GPU.
pub(super) fn stray_thread(report: &Report) -> Option<Words> {
    let mut found = report.processes().filter_map(|file| Some((file, stray(file)?)));
    let (file, (context, before)) = found.next()?;
    let more = found.count() as u64;
    let more = if more == 0 { String::new() } else { format!("; so it is in {}", counted(more, "other process")) };
    let of = if report.processes().count() > 1 { format!(" of {}", report.name(file)) } else { String::new() };
    let label = |ordinal: u8| match file.devices.get(&ordinal) {
        Some(&gpu) => report.label(gpu).to_owned(),
        None => format!("device {ordinal}"),
    };
    let thread = file.threads.iter().find(|thread| thread.id == context.thread);
    let name = thread.map(|thread| format!(" ({})", thread.name)).unwrap_or_default();
    let place = context.from.in_short();
    let at = if place == UNKNOWN { String::new() } else { format!(" at {place}") };
    let text = format!(
        "Thread {}{name}{of} made the first context on {}{at}, after the main thread had begun with {}{more}.",
        context.thread,
        label(0),
        label(before.ordinal)
    );
    let more = "A thread works on device 0 until it calls cudaSetDevice. If that was not meant, call it in the thread before all else.";
    Some(Words::from(text).more(more))
}

/// The first context on device 0, if a thread made it that made no other, and the main thread's before it, if no third thread made any.
fn stray(file: &File) -> Option<(&FirstContext, &FirstContext)> {
    let (main, others): (Vec<_>, Vec<_>) = file.first_contexts.iter().partition(|it| Some(it.thread) == file.process);
    let [other] = others[..] else { return None };
    let before = main.into_iter().rfind(|it| it.time <= other.time)?;
    (other.ordinal == 0 && before.ordinal != 0).then_some((other, before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_that_takes_device_0_after_the_main_thread_took_another_is_told() {
        for (contexts, is_told) in [
            (&[(1, 7), (0, 8)][..], true),
            (&[(2, 7), (1, 7), (0, 8)], true),
            (&[(0, 7), (1, 8)], false),
            (&[(0, 8), (1, 7)], false),
            (&[(1, 7), (0, 7)], false),
            // A thread for each GPU.
            (&[(1, 8), (0, 9)], false),
            (&[(1, 7), (0, 8), (2, 9)], false),
        ] {
            let context = |(time, &(ordinal, thread)): (usize, &(u8, u32))| FirstContext {
                ordinal,
                thread,
                time: time as u64,
                from: Default::default(),
            };
            let first_contexts = contexts.iter().enumerate().map(context).collect();
            let file = File { process: Some(7), first_contexts, ..File::default() };
            assert_eq!(stray(&file).is_some(), is_told, "{contexts:?}");
        }
    }
}
