//! The build writes these files from the rows of `src/api/functions.txt`.

#[path = "../../build/functions.rs"]
mod functions;

use functions::Table;

const TABLE: &str = include_str!("../../src/api/functions.txt");

/// All that is written for a table, but the text of names, which is one line.
fn written(table: &str) -> Vec<String> {
    let table = Table::read(table).unwrap();
    let files =
        [table.functions(), table.slots(), table.hooks(), table.trampolines("jmp {hook}\n"), table.export_map()];
    files
        .iter()
        .flat_map(|file| file.lines())
        .filter(|line| !line.starts_with("const TEXT"))
        .map(str::to_owned)
        .collect()
}

/// The lines of `after` that are not in `before`, if all of `before` are there in their order.
fn added(before: &[String], after: &[String]) -> Option<String> {
    let mut before = before.iter().peekable();
    let added: Vec<_> = after.iter().filter(|line| before.next_if_eq(line).is_none()).cloned().collect();
    before.peek().is_none().then(|| added.join("\n"))
}

#[test]
fn function_is_added_by_one_row() {
    let row = "traced driver 13020 cuMemcpyPeerStrided(dstDevice: DevicePointer, strides: Pointer, hStream: Stream)\n";
    let added = added(&written(TABLE), &written(&format!("{TABLE}{row}"))).expect("other rows have changed");
    for part in [
        "    cuMemcpyPeerStrided,\n",
        "    Layer::Driver,\n    Effect::Traced,\n    Row { since: 13020, at: ",
        "    pub(crate) static cuMemcpyPeerStrided: [Slot; DRIVER_SLOTS]",
        "pub(crate) unsafe extern \"C-unwind\" fn cuMemcpyPeerStrided(dstDevice: abi::DevicePointer, strides: abi::Pointer, \
         hStream: abi::Stream, arrival: Arrival) -> Code {",
        "    let values = &mut [dstDevice.value(), strides.value(), hStream.value()];",
        "|| unsafe { real(dstDevice, strides, hStream) })",
        "p2p_cuMemcpyPeerStrided:\n",
        "unsafe extern \"C\" fn cuMemcpyPeerStrided() {",
    ] {
        assert!(added.contains(part), "{part} is missing in\n{added}");
    }
}

#[test]
fn function_of_the_runtime_is_exported_under_each_version() {
    let row = "state(waits) runtime 2000 cudaWait()";
    let table = format!("versions runtime libcudart.so.12 libcudart.so.13\n{row}");
    let written = written(&table).join("\n");
    for part in [
        ".symver p2p_cudaWait_P2PSHIM, cudaWait@@P2PSHIM",
        ".symver p2p_cudaWait_libcudart.so.12, cudaWait@libcudart.so.12",
        ".symver p2p_cudaWait_libcudart.so.13, cudaWait@libcudart.so.13",
        "libcudart.so.12 { };\nlibcudart.so.13 { };\nP2PSHIM { };",
        "fn cudaWait(arrival: Arrival) -> Code {",
        "change::changing(Function::cudaWait, State::waits, ",
    ] {
        assert!(written.contains(part), "{part} is missing in\n{written}");
    }
}

#[test]
fn row_that_is_none_is_refused_with_its_line() {
    for (row, why) in [
        ("traced", "a row is: effect layer since symbol(name: Type, ...)"),
        ("traced driver cuFree(p: Pointer)", "a row is: "),
        ("traced driver 12080 cuFree(p)", "a row is: "),
        ("copy(sync driver 12080 cuFree(p: Pointer)", "a row is: "),
        ("traced cuda 12080 cuFree(p: Pointer)", "the layer is runtime, driver, hip or nvml"),
        ("traced driver 12.8 cuFree(p: Pointer)", "the version is a number: 12080 for 12.8"),
    ] {
        let error = Table::read(&format!("# A comment\n{row}\n")).err().unwrap_or_default();
        assert!(error.starts_with(&format!("line 2: {why}")) && error.ends_with(row), "{row}: {error}");
    }
}
